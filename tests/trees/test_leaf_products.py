"""Products tree by tree: twins by dense matrices, with empty leaves, weights, and several actions in one forest."""

import numpy as np
import pytest

from capi.trees._kernels import leaf_tables
from capi.trees.cells import LookUps
from capi.trees.leaf_products import LeafProducts
from small_cells import cells_of, look_ups, members_of, two_forests


def averaging(cells, of_leaves):
    """Return the dense matrix that sums rows in cells, times ``of_leaves``."""
    dense = np.zeros((len(cells.first), cells.n_rows))
    for leaf, members in enumerate(members_of(cells)):
        dense[leaf, members] = of_leaves[leaf]
    return dense


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_products_are_those_of_dense_matrices(seed, weighted, n_jobs, monkeypatch):
    monkeypatch.setattr("capi.trees.leaf_products.AT_ONCE", 16)
    rng = np.random.default_rng(seed)
    forests, rows, states = two_forests(seed, n_trees=3 + 3 * (seed % 2))
    cells = cells_of(forests, rows, states)
    if weighted:
        cells = cells.weighted(rng.choice([0.0, 0.0, 2.0], size=len(states)))
    asked, looked_up = look_ups(forests, rng)
    again, looked_up_again = look_ups(forests, rng)  # other actions may look up the same forests
    asked, looked_up = LookUps.of(len(asked), [*asked.asked, *again.asked]), looked_up + looked_up_again
    of_leaves = rng.random(len(cells.first))
    dense = looked_up @ averaging(cells, of_leaves)
    products = LeafProducts.of(cells, asked)
    y, x = rng.normal(size=dense.shape[1]), rng.normal(size=dense.shape[0])
    assert len(cells.lenders.borrowers)
    for _ in range(2):  # scratch is used again
        np.testing.assert_allclose(products.ahead(y, of_leaves, n_jobs), dense @ y, atol=1e-12)
        np.testing.assert_allclose(products.back(x, of_leaves, n_jobs), dense.T @ x, atol=1e-12)


def test_points_that_look_up_nothing_get_zero():
    forests, rows, states = two_forests(0)
    products = LeafProducts.of(cells_of(forests, rows, states), LookUps.of(4, []))
    of_leaves = np.ones(len(cells_of(forests, rows, states).first))
    np.testing.assert_array_equal(products.ahead(np.ones(len(states)), of_leaves), np.zeros(4))
    np.testing.assert_array_equal(products.back(np.ones(4), of_leaves), np.zeros(len(states)))


@pytest.mark.parametrize("most", [1, 3, 100])
@pytest.mark.parametrize("seed", range(3))
def test_flows_between_groups_are_sums_over_pairs_of_points_and_rows(seed, most):
    rng = np.random.default_rng(seed)
    forests, rows, states = two_forests(seed)
    cells, n = cells_of(forests, rows, states), len(states)
    asked, _ = look_ups(forests, rng, n)
    group, weights, steps = rng.integers(4, size=n).astype(np.int32), rng.choice([0.0, 1.0, 2.0], size=n), rng.random(n)
    flows, expected = np.zeros((4, 4)), np.zeros((4, 4))
    for points, leaves, starts, shares in asked.asked:
        given = points, leaves, starts, shares, cells.members, cells.first, cells.end
        leaf_tables.flows_of_groups(group, *given, weights, steps, most, flows)
        for i, point in enumerate(points):
            t = i % len(leaves)
            cell = starts[t] + leaves[t, i]
            members = cells.members[cells.first[cell] : cells.end[cell]]
            seen = members[:: -(-len(members) // most)]
            for j in seen[weights[seen] > 0]:
                share = len(leaves) * shares[i] * weights[j] * steps[j] / weights[seen].sum()
                expected[group[point], group[j]] += share
    np.testing.assert_allclose(flows, expected, atol=1e-12)


def test_sums_in_groups_and_their_spread_are_transposes():
    rng = np.random.default_rng(0)
    group, x, of_groups = rng.integers(3, size=10).astype(np.int32), rng.normal(size=10), rng.normal(size=3)
    sums, spread = np.zeros(3), np.empty(10)
    leaf_tables.sum_in_groups(group, x, sums)
    leaf_tables.add_of_groups(group, of_groups, x, spread)
    np.testing.assert_allclose(sums, np.bincount(group, x, minlength=3))
    np.testing.assert_allclose(spread, x + of_groups[group])
