"""Forests: what growing gives, and what is read off them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capi.parallel import in_threads
from capi.trees import _route, _tree
from capi.trees.encoding import EncodedStates
from capi.validation import Floats, Ints

NODE = np.dtype([("threshold", "f8"), ("left", "i4"), ("feature", "i2"), ("missing_left", "u1"), ("unused", "u1")])
UNLIMITED = 2**31 - 1
ROWS_AT_ONCE = 4096  # states and a tree stay in the cache together


@dataclass(frozen=True)
class Growth:
    """How trees grow; `grow` explains each."""

    n_trees: int = 1
    n_candidates: int | None = None  # features looked at in a node; None is all
    min_samples_split: int = 2
    min_samples_leaf: int = 1
    max_depth: int | None = None
    max_leaf_nodes: int | None = None
    best_cuts: bool = False  # every cut between neighbouring values, else one uniform cut a feature
    policy: bool = False  # outputs are regrets, and a node's score is the regret of its best action


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree. Node 0 is the root; a node's children are ``left`` and ``left + 1``; a leaf has left = -1 - its number."""

    nodes: NDArray[np.void]  # (nodes,) of NODE
    above: Floats  # (nodes,) the next value above each threshold, so that it can be rounded for readers
    sums: Floats  # (l, m) weighted sums of the outputs in each leaf
    weights: Floats  # (l,)
    counts: Ints  # (l,) rows
    leaf_of_row: NDArray[np.int32]  # (n,) the leaf of each row it was grown on

    @property
    def means(self) -> Floats:
        """Mean outputs of each leaf (l, m)."""
        return self.sums / self.weights[:, None]

    def leaves(self, states: Floats) -> NDArray[np.int32]:
        """Return the leaf of each state (n, d) -> (n,)."""
        leaves = np.empty(len(states), dtype=np.int32)
        _route.leaves_of(self.nodes, states, leaves)
        return leaves


def grow(
    states: EncodedStates,
    outputs: Floats,
    growth: Growth,
    rng: np.random.Generator,
    *,
    weights: Floats | None = None,
    n_jobs: int = 1,
) -> list[Tree]:
    """Return the trees of a forest, each with a seed of its own.

    ``outputs`` (n, m) are targets, or regrets for policy trees. ``weights`` (n,) are positive. The result does not
    depend on ``n_jobs``.
    """
    m = outputs.shape[1]
    scaled = outputs if weights is None else outputs * weights[:, None]
    by_output = np.ascontiguousarray(scaled.T, dtype=np.float64)  # (m, n)
    w = np.empty(0) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    seeds = rng.integers(1, 2**63, size=growth.n_trees, dtype=np.uint64)
    n, d = states.n_rows, states.n_features

    def grow_one(seed: np.uint64) -> Tree:
        nodes, above = np.zeros(2 * n - 1, dtype=NODE), np.zeros(2 * n - 1)
        sums, leaf_weights, counts = np.empty((n, m)), np.empty(n), np.empty(n, dtype=np.int64)
        leaf_of_row = np.empty(n, dtype=np.int32)
        n_nodes, n_leaves = _tree.grow_tree(
            states.words.copy(),
            by_output.copy(),
            w.copy(),
            np.arange(n, dtype=np.int32),
            states.values,
            states.value_starts,
            states.grid,
            states.scales,
            states.has_missing,
            states.bits,
            d if growth.n_candidates is None else growth.n_candidates,
            growth.min_samples_split,
            growth.min_samples_leaf,
            UNLIMITED if growth.max_depth is None else growth.max_depth,
            0 if growth.max_leaf_nodes is None else growth.max_leaf_nodes,
            growth.best_cuts,
            growth.policy,
            np.array([seed], dtype=np.uint64),
            nodes,
            above,
            sums,
            leaf_weights,
            counts,
            leaf_of_row,
        )
        return Tree(
            nodes[:n_nodes].copy(),
            above[:n_nodes].copy(),
            sums[:n_leaves].copy(),
            leaf_weights[:n_leaves].copy(),
            counts[:n_leaves].copy(),
            leaf_of_row,
        )

    return in_threads(grow_one, list(seeds), n_jobs)


def mean_values(trees: list[Tree], states: Floats, n_jobs: int = 1) -> Floats:
    """Return the mean over trees of the means of each state's leaf; ``states`` (n, d) -> (n, m)."""
    means = [tree.means for tree in trees]

    def of_block(block: Floats) -> Floats:
        out, leaves = np.zeros((len(block), means[0].shape[1])), np.empty(len(block), dtype=np.int32)
        for tree, leaf_values in zip(trees, means, strict=True):
            _route.leaves_of(tree.nodes, block, leaves)
            out += leaf_values.take(leaves, axis=0)
        return out / len(trees)

    return np.vstack(in_threads(of_block, blocks(states), n_jobs))


def blocks(states: Floats) -> list[Floats]:
    """Return ``states`` in contiguous pieces that fit into a core's cache."""
    contiguous = np.ascontiguousarray(states, dtype=np.float64)
    return [contiguous[i : i + ROWS_AT_ONCE] for i in range(0, len(contiguous), ROWS_AT_ONCE)]
