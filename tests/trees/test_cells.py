"""The rows that leaves average: twins that walk nodes in Python, transposes, and leaves without rows."""

import numpy as np
import pytest
from scipy import sparse

import naive
from capi.trees._kernels.averages import sweep_rows
from capi.trees.cells import LookUps, RowShares
from small_cells import cells_of, look_ups, members_of, two_forests


def expected_cells(forests, rows, states, weights):
    for forest, r in zip(forests, rows, strict=True):
        for tree in forest.trees:
            for members in naive.cells(tree.nodes, naive.leaves(tree.nodes, states[r]), weights[r]):
                yield sorted(r[members].tolist())


@pytest.mark.parametrize("seed", range(5))
def test_a_leaf_without_rows_takes_those_of_its_nearest_ancestor_with_some(seed):
    forests, rows, states = two_forests(seed)
    cells = cells_of(forests, rows, states, n_jobs=1 + seed % 2)
    expected = list(expected_cells(forests, rows, states, np.ones(len(states))))
    assert members_of(cells) == expected
    assert (cells.own == 0).any()
    assert (cells.sizes > 0).all()
    assert cells.forest_starts.tolist() == [0, forests[0].leaf_starts[-1], sum(f.leaf_starts[-1] for f in forests)]


@pytest.mark.parametrize("seed", range(5))
def test_a_leaf_whose_rows_have_no_weight_takes_those_of_an_ancestor(seed):
    forests, rows, states = two_forests(seed)
    cells = cells_of(forests, rows, states)
    weights = np.random.default_rng(seed).choice([0.0, 0.0, 2.0], size=len(states))
    for r in rows:
        weights[r[0]] = 1.0  # some weight in each forest
    weighted = cells.weighted(weights)
    assert members_of(weighted) == list(expected_cells(forests, rows, states, weights))
    assert (weighted.sums(weights) > 0).all()
    assert members_of(weighted.weighted(np.ones(len(states)))) == members_of(cells)


def test_if_no_row_has_weight_every_leaf_has_the_cell_of_the_root():
    forests, rows, states = two_forests(0)
    cells = cells_of(forests, rows, states).weighted(np.zeros(len(states)))
    assert set(cells.sizes) == {len(r) for r in rows}
    empty = cells_of(forests, [r[:0] for r in rows], states)
    assert not empty.sizes.any()
    assert not empty.sums(np.ones(len(states))).any()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_sums_and_spread_are_transposes(n_jobs, monkeypatch):
    monkeypatch.setattr("capi.trees.cells.AT_ONCE", 16)
    forests, rows, states = two_forests(1)
    cells, rng = cells_of(forests, rows, states), np.random.default_rng(0)
    y, x = rng.normal(size=len(states)), rng.normal(size=len(cells.first))
    sums = [y[members].sum() for members in members_of(cells)]
    np.testing.assert_allclose(cells.sums(y, n_jobs), sums, atol=1e-12)
    np.testing.assert_allclose(cells.spread(x, n_jobs) @ y, x @ sums)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_look_ups_are_a_sparse_matrix(n_jobs, monkeypatch):
    monkeypatch.setattr("capi.trees.cells.AT_ONCE", 16)
    rng = np.random.default_rng(2)
    forests, rows, states = two_forests(2)
    asked, dense = look_ups(forests, rng)
    x, y = rng.normal(size=dense.shape[1]), rng.normal(size=dense.shape[0])
    assert len(asked) == len(dense)
    np.testing.assert_allclose(asked.values(x, n_jobs), dense @ x, atol=1e-12)
    np.testing.assert_allclose(asked.back(y, dense.shape[1]), dense.T @ y, atol=1e-12)
    np.testing.assert_allclose(asked.back(y, dense.shape[1], n_jobs), dense.T @ y, atol=1e-12)

    cells = cells_of(forests, rows, states)
    weights, inverse = rng.random(len(states)), rng.random(dense.shape[1])
    spread = np.zeros((dense.shape[1], len(states)))
    for leaf, members in enumerate(members_of(cells)):
        spread[leaf, members] = inverse[leaf]
    found = asked.row_shares(cells, weights, inverse, n_jobs)
    np.testing.assert_allclose(found.toarray(), dense @ spread * weights, atol=1e-12)
    np.testing.assert_array_equal(asked.members_of_points(cells, n_jobs), (dense > 0) @ cells.sizes)
    assert asked.size == (dense > 0).sum()


def test_points_that_ask_for_nothing_get_zero():
    nothing = LookUps.of(4, [])
    np.testing.assert_array_equal(nothing.values(np.ones(3)), np.zeros(4))
    np.testing.assert_array_equal(nothing.back(np.ones(4), 3), np.zeros(3))
    forests, rows, states = two_forests(0)
    cells = cells_of(forests, rows, states)
    n_leaves = len(cells.first)
    assert nothing.row_shares(cells, np.ones(len(states)), np.ones(n_leaves)).nnz == 0
    assert not nothing.members_of_points(cells).any()


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_pattern_gives_the_shares_of_the_rows_and_points_with_weight(seed, n_jobs, monkeypatch):
    monkeypatch.setattr("capi.trees.cells.AT_ONCE", 16)
    rng = np.random.default_rng(seed)
    forests, rows, states = two_forests(seed)
    cells, n = cells_of(forests, rows, states), len(states)
    asked, _ = look_ups(forests, rng, n)
    pattern = RowShares.of(asked, cells, n_jobs)
    for share in (1.0, 0.6, 0.0):
        weights, inverse = rng.random(n) * (rng.random(n) < share), rng.random(len(cells.first))
        expected = asked.row_shares(cells, weights, inverse).toarray() * (weights > 0)[:, None]
        found = pattern.matrix(weights, inverse)
        np.testing.assert_allclose(found.toarray(), expected, atol=1e-14)
        assert found.nnz == (expected > 0).sum()


def test_a_pattern_of_points_that_ask_for_nothing_is_empty():
    forests, rows, states = two_forests(0)
    cells, n = cells_of(forests, rows, states), len(states)
    assert RowShares.of(LookUps.of(n, []), cells).matrix(np.ones(n), np.ones(len(cells.first))).nnz == 0


@pytest.mark.parametrize("backwards", [False, True])
def test_a_sweep_uses_what_it_has_replaced_already(backwards):
    rng = np.random.default_rng(3)
    B = sparse.random_array((12, 12), density=0.4, rng=rng, format="csr")
    constant, values = rng.normal(size=12), rng.normal(size=12)
    expected = values.copy()
    for i in range(12)[:: -1 if backwards else 1]:
        expected[i] = constant[i] + B.toarray()[i] @ expected
    sweep_rows(B.indptr, B.indices, B.data, constant, backwards, values)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
