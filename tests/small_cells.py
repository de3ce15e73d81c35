"""Shared by tests of averages in leaves: two small forests, the cells of their leaves, and look-ups of points."""

import numpy as np

import naive
from capi.trees.cells import Cells, LookUps
from capi.trees.forest import Growth, grow
from capi.trees.ranks import encode


def two_forests(seed, n_structure=25, n_rows=18, n_trees=3):
    """Return two forests, the rows that each averages, which are others than those that it was grown on, and all states."""
    rng = np.random.default_rng(seed)
    growth = Growth(n_trees=n_trees, min_samples_split=2)
    forests = [
        grow(encode(rng.normal(size=(n_structure, 2)), 1), rng.normal(size=(n_structure, 1)), growth, rng)
        for _ in range(2)
    ]
    states = rng.normal(size=(n_rows, 2))
    rows = [np.sort(rng.choice(n_rows, size=size, replace=False)) for size in (n_rows // 2, n_rows // 3)]
    return forests, rows, states


def cells_of(forests, rows, states, n_jobs=1):
    leaves = [forest.leaves_in_trees(states[r]) for forest, r in zip(forests, rows, strict=True)]
    return Cells.of(forests, rows, leaves, len(states), n_jobs)


def members_of(cells):
    return [sorted(cells.members[a:b].tolist()) for a, b in zip(cells.first, cells.end, strict=True)]


def look_ups(forests, rng, n_points=11):
    """Return look-ups of points in one forest or both, and the same as a dense matrix."""
    states = rng.normal(size=(n_points, 2))
    n_leaves = sum(f.leaf_starts[-1] for f in forests)
    dense, asked, offset = np.zeros((n_points, n_leaves)), [], 0
    for forest in forests:
        points = np.flatnonzero(rng.random(n_points) < 0.6)
        share = rng.random(len(points))
        starts = forest.leaf_starts[:-1] + offset
        asked.append((points, forest.leaves_in_trees(states[points]), starts, share))
        for t, tree in enumerate(forest.trees):
            for i, leaf, p in zip(points, naive.leaves(tree.nodes, states[points]), share, strict=True):
                dense[i, starts[t] + leaf] += p
        offset += forest.leaf_starts[-1]
    return LookUps.of(n_points, asked), dense
