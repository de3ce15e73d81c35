import numpy as np
import pytest
import scipy.sparse as sp

from capi.finite import linear_systems
from capi.finite.linear_systems import solve_discounted, solve_stationary


def ring(n, rng):
    """A sparse walk on a ring with uneven steps."""
    right = rng.uniform(0.2, 0.8, size=n)
    x = np.arange(n)
    rows, columns = np.tile(x, 2), np.concatenate([(x + 1) % n, (x - 1) % n])
    return sp.csr_array((np.concatenate([right, 1 - right]), (rows, columns)), shape=(n, n))


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 0.9999])
@pytest.mark.parametrize("norm", [np.inf, 1])
def test_iterative_solution_equals_the_direct_one(monkeypatch, discount, norm):
    rng = np.random.default_rng(0)
    matrix = ring(300, rng) if norm == np.inf else ring(300, rng).T
    b = rng.normal(size=300)
    direct = solve_discounted(matrix, b, discount, norm)
    monkeypatch.setattr(linear_systems, "DENSE_LIMIT", 0)
    iterative = solve_discounted(matrix, b, discount, norm)
    np.testing.assert_allclose(iterative, direct, atol=1e-11 * np.abs(direct).max() / (1 - discount))
    residual = np.linalg.norm(b + discount * (matrix @ iterative) - iterative, norm)
    promised = linear_systems.relative_error(300, discount) * (1 - discount) * np.linalg.norm(iterative, norm)
    assert residual <= promised


def test_sweeps_finish_what_the_krylov_method_leaves(monkeypatch):
    """Whatever bicgstab returns, the certificate holds in the end."""
    monkeypatch.setattr(linear_systems, "DENSE_LIMIT", 0)
    monkeypatch.setattr(linear_systems, "bicgstab", lambda operator, b, **_: (np.full(len(b), np.nan), 1))
    matrix, b = ring(50, np.random.default_rng(1)), np.ones(50)
    np.testing.assert_allclose(solve_discounted(matrix, b, 0.9), np.full(50, 10.0), rtol=1e-11)


def test_stationary_distribution_by_both_ways(monkeypatch):
    matrix = ring(101, np.random.default_rng(2))
    direct = solve_stationary(matrix)
    monkeypatch.setattr(linear_systems, "DENSE_LIMIT", 0)
    np.testing.assert_allclose(solve_stationary(matrix), direct, atol=1e-12)
    np.testing.assert_allclose(direct @ matrix, direct, atol=1e-14)
