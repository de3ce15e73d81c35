"""Gauss-Seidel sweeps over rows: a twin by plain loops, blocks, and threads."""

import numpy as np
import pytest
from scipy import sparse

from capi.evaluators import _row_chains
from capi.evaluators._fixed_points import fixed_point, largest
from capi.evaluators._row_chains import RowChain


def chain(n=40, seed=0):
    rng = np.random.default_rng(seed)
    B = sparse.random_array((n, n), density=0.2, rng=rng, format="csr")
    B.data *= 0.9 / B.sum(axis=1).max()
    return B, rng.normal(size=n), rng.normal(size=n)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("n_blocks", [1, 3, 8])
def test_a_sweep_uses_what_its_block_has_replaced(backwards, n_blocks, monkeypatch):
    monkeypatch.setattr(_row_chains, "LARGE", 0)
    monkeypatch.setattr(_row_chains, "N_BLOCKS", n_blocks)
    B, constant, x = chain()
    sweep = RowChain.of(B, backwards=backwards, n_jobs=2)
    assert sweep.blocks[0][0] == 0
    assert sweep.blocks[-1][1] == 40
    expected, dense = np.empty(40), B.toarray()
    for first, end in sweep.blocks:
        values = x.copy()
        for i in range(first, end)[:: -1 if backwards else 1]:
            values[i] = constant[i] + dense[i] @ values
        expected[first:end] = values[first:end]
    before = x.copy()
    np.testing.assert_allclose(sweep(constant, x), expected, rtol=1e-12)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("limit", [0, 10**9])
def test_the_fixed_point_does_not_depend_on_the_blocks_nor_its_bytes_on_threads(limit, monkeypatch):
    monkeypatch.setattr(_row_chains, "LARGE", limit)
    B, constant, _ = chain(300)
    exact = np.linalg.solve(np.eye(300) - B.toarray(), constant)
    found = []
    for n_jobs in (1, 3):
        sweep = RowChain.of(B, backwards=True, n_jobs=n_jobs)
        found.append(fixed_point(sweep, constant, discount=0.9, tolerance=1e-9, norm=largest))
        assert largest(found[-1].x - exact) <= found[-1].error * largest(exact) + 1e-12
    assert found[0].x.tobytes() == found[1].x.tobytes()


def test_no_rows_and_fewer_rows_than_blocks(monkeypatch):
    monkeypatch.setattr(_row_chains, "LARGE", 0)
    empty = RowChain.of(sparse.csr_array((0, 0)), backwards=True)
    assert len(empty(np.zeros(0), np.zeros(0))) == 0
    one = RowChain.of(sparse.csr_array(np.array([[0.5]])), backwards=False)
    np.testing.assert_allclose(one(np.array([1.0]), np.array([4.0])), [3.0])
