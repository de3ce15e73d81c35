"""Forests: how they are grown, and how they are evaluated."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints, is_real
from capi.errors import InvalidInputError
from capi.trees._kernels import route
from capi.trees._kernels.grow import grow_tree
from capi.trees._kernels.node import fill_records
from capi.trees._kernels.records import Layout, Limits, Workspace
from capi.trees.predictor import Leaves, Paths, leaf_type
from capi.trees.projections import Projections
from capi.trees.ranks import ROWS_AT_ONCE, EncodedStates

UNLIMITED = 2**31 - 1
TREES_AT_ONCE = 4  # trees whose leaves a thread sums at a time


@dataclass(frozen=True)
class Growth:
    """Growth parameters of trees."""

    n_trees: int = 1  # each has its own seed
    n_candidates: int | None = None  # features considered in a node; None: all
    min_samples_split: int = 2  # rows; nodes with fewer are leaves
    min_samples_leaf: int = 1  # minimum rows on each side of a split
    max_depth: int | None = None
    max_leaf_nodes: int | None = None  # if given, the split with the largest gain comes first
    best_cuts: bool = False  # True: every cut between neighbouring values; False: one uniform cut per feature
    policy: bool = False  # outputs are regrets, and a node's score is the regret of its best action

    def limits(self, n_features: int) -> Limits:
        """Return these parameters in the form that the kernels take."""
        return Limits(
            n_features if self.n_candidates is None else self.n_candidates,
            self.min_samples_split,
            self.min_samples_leaf,
            UNLIMITED if self.max_depth is None else self.max_depth,
            0 if self.max_leaf_nodes is None else self.max_leaf_nodes,
            self.best_cuts,
            self.policy,
        )


def n_candidates(max_features: Any, n_features: int) -> int:
    """Return how many features a node considers: all for None, a number, or a share of all (at least one)."""
    if max_features is None:
        return n_features
    whole = isinstance(max_features, Integral)
    if is_real(max_features) and whole and int(max_features) >= 1:
        return min(int(max_features), n_features)
    if is_real(max_features) and not whole and 0 < float(max_features) <= 1:
        return max(1, int(float(max_features) * n_features))
    raise InvalidInputError(
        f"max_features must be a positive integer, a share in (0, 1] or None; got {max_features!r}."
    )


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree. Node 0 is the root; a node's children are ``left`` and ``left + 1``; a leaf has left = -1 - its number."""

    nodes: NDArray[np.void]  # (nodes,) of type NODE
    above: Floats  # (nodes,) the next value above each threshold, for rounding it
    sums: Floats  # (l, m) weighted sums of the outputs in each leaf
    weights: Floats  # (l,)
    counts: Ints  # (l,) rows
    leaf_of_row: NDArray[np.int32]  # (n,) the leaf of each row that the tree was grown on

    @property
    def means(self) -> Floats:
        """Mean outputs of each leaf (l, m)."""
        return self.sums / self.weights[:, None]

    def with_sums(self, sums: Floats) -> Tree:
        """Return the same tree with other ``sums`` (l, m); much faster than ``dataclasses.replace``."""
        return Tree(self.nodes, self.above, sums, self.weights, self.counts, self.leaf_of_row)


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees, with their nodes concatenated for fast evaluation."""

    trees: list[Tree]
    projections: Projections | None = None  # combinations of columns that the trees also cut

    def _inputs(self, states: Floats) -> Floats:
        """Return ``states`` (n, d) with the combinations that the trees cut."""
        return states if self.projections is None else self.projections.beside(states)

    @cached_property
    def leaf_starts(self) -> Ints:
        """Where each tree's leaves start in the numbering of the whole forest (T + 1,)."""
        return np.cumsum([0, *(len(tree.counts) for tree in self.trees)])

    @cached_property
    def sums(self) -> Floats:
        """Weighted sums of the outputs of all leaves (l, m)."""
        return np.concatenate([tree.sums for tree in self.trees])

    @cached_property
    def means(self) -> Floats:
        """Mean outputs of all leaves (l, m)."""
        return self.sums / self.leaf_weights[:, None]

    @cached_property
    def leaf_weights(self) -> Floats:
        """Weights of all leaves (l,)."""
        return np.concatenate([tree.weights for tree in self.trees])

    def leaves(self, states: Floats, n_jobs: int = 1) -> NDArray[np.int32]:
        """Return the leaf of each state in each tree, numbered across the forest; ``states`` (n, d) -> (T, n)."""
        return self._paths.counted_through(self._paths.leaves(self._inputs(states), n_jobs))

    def leaves_in_trees(self, states: Floats, n_jobs: int = 1) -> Leaves:
        """Return the leaf of each state in each tree, numbered within the tree; ``states`` (n, d) -> (T, n)."""
        return self._paths.leaves(self._inputs(states), n_jobs)

    def leaves_of_actions(self, states: Floats, n_actions: int, n_jobs: int = 1) -> Leaves:
        """Return `leaves_in_trees` of each state with each action index as last feature; ``states`` (n, d) -> (A, T, n)."""
        return self._paths.leaves_of_actions(self._inputs(states), n_actions, n_jobs)

    def mean_values_of_actions(self, states: Floats, n_actions: int, n_jobs: int = 1) -> Floats:
        """Return the mean over trees for each state with each action index as last feature; (n, d) -> (n, A)."""
        return self._paths.mean_of_actions(self._values, self._inputs(states), n_actions, n_jobs)

    def total(self, values: Floats, states: Floats, n_jobs: int = 1) -> Floats:
        """Return the sum over trees of the ``values`` (l, m) of each state's leaf; ``states`` (n, d) -> (n, m)."""
        return self._paths.total(values, self._inputs(states), n_jobs)

    def mean_values(self, states: Floats, n_jobs: int = 1) -> Floats:
        """Return the mean over trees of the means of each state's leaf; ``states`` (n, d) -> (n, m)."""
        return self.total(self.means, states, n_jobs) / len(self.trees)

    def with_sums(self, sums: Floats) -> Forest:
        """Return the same trees with other ``sums`` (l, m) in their leaves; the evaluation tables are shared."""
        ends = self.leaf_starts[1:].tolist()
        forest = Forest(
            [tree.with_sums(sums[end - len(tree.counts) : end]) for tree, end in zip(self.trees, ends, strict=True)],
            self.projections,
        )
        shared = ("_paths", "leaf_starts", "leaf_weights", "_leaves_of_rows")
        forest.__dict__.update(sums=sums, **{name: getattr(self, name) for name in shared})
        return forest

    def bare(self) -> Forest:
        """Return the same trees without the leaves of the rows that they were grown on, which are most of their size."""
        none = np.empty(0, dtype=np.int32)
        return Forest(
            [Tree(tree.nodes, tree.above, tree.sums, tree.weights, tree.counts, none) for tree in self.trees],
            self.projections,
        )

    def sums_of_outputs(self, outputs: Floats, n_jobs: int = 1) -> Floats:
        """Return the sums in all leaves (l, m) of other ``outputs`` (n, m) of the rows that the trees were grown on."""
        y, sums = np.ascontiguousarray(outputs), np.zeros((self.leaf_starts[-1], outputs.shape[1]))
        leaves = self._leaves_of_rows

        def of_piece(first: int) -> None:
            end = min(first + TREES_AT_ONCE, len(leaves))
            route.sums_of_outputs_by_leaf(leaves, self.leaf_starts, first, end, y, sums)

        in_threads(of_piece, range(0, len(leaves), TREES_AT_ONCE), n_jobs)
        return sums

    def votes_of_leaves(self, choices: Ints, n_actions: int, leaves: NDArray[np.int32], n_jobs: int = 1) -> Floats:
        """Return how many trees vote for each action (n, A), if each leaf votes for its entry of ``choices`` (l,).

        ``leaves`` (T, n) are numbered across the forest.
        """
        out = np.zeros((leaves.shape[1], n_actions))

        def of_rows(first: int) -> None:
            rows = slice(first, first + ROWS_AT_ONCE)
            route.count_votes(leaves[:, rows], choices, out[rows])

        in_threads(of_rows, range(0, len(out), ROWS_AT_ONCE), n_jobs)
        return out

    def mean_of_decisions(self, leaves: Leaves, decisions: Ints, n_jobs: int = 1) -> Floats:
        """Return the mean over trees of the first output (n,) in the leaves of decided actions.

        ``leaves`` (A, T, n) are those of each action, numbered within their tree; ``decisions`` (n,) are actions.
        """
        out, values = np.empty(len(decisions)), self._values

        def of_rows(first: int) -> None:
            end = min(first + ROWS_AT_ONCE, len(out))
            route.mean_of_chosen(leaves, self.leaf_starts, values, decisions, first, end, out)

        in_threads(of_rows, range(0, len(out), ROWS_AT_ONCE), n_jobs)
        return out

    def spread_of_leaves(self, leaves: Leaves) -> Floats:
        """Return the standard deviation over trees of the first output in ``leaves`` (T, n), numbered within their tree -> (n,)."""
        values, n = self._values, len(self.trees)
        total, squares = np.zeros(leaves.shape[1]), np.zeros(leaves.shape[1])
        for first, own in zip(
            self.leaf_starts, leaves, strict=False
        ):  # tree by tree: all at once would need much memory
            total += values[first + own]
        for first, own in zip(self.leaf_starts, leaves, strict=False):
            squares += np.square(values[first + own] - total / n)
        return np.sqrt(squares / (n - 1))

    @property
    def leaves_of_rows(self) -> NDArray[np.int32]:
        """The leaf, numbered across the forest, of each row that the trees were grown on (T, n)."""
        return self._paths.counted_through(self._leaves_of_rows)

    @property
    def leaves_in_trees_of_rows(self) -> Leaves:
        """The leaf, numbered within its tree, of each row that the trees were grown on (T, n)."""
        return self._leaves_of_rows

    @cached_property
    def _leaves_of_rows(self) -> Leaves:
        """The leaf, numbered within its tree, of each row that the trees were grown on (T, n)."""
        return np.stack([tree.leaf_of_row for tree in self.trees], dtype=leaf_type(self.leaf_starts), casting="unsafe")

    @property
    def _values(self) -> Floats:
        """The first output's mean in all leaves (l,)."""
        return np.ascontiguousarray(self.means[:, 0])

    @cached_property
    def _paths(self) -> Paths:
        return Paths.of([tree.nodes for tree in self.trees], self.leaf_starts)

    def __reduce__(self) -> tuple[type[Forest], tuple[list[Tree], Projections | None]]:
        return Forest, (self.trees, self.projections)  # the evaluation tables are rebuilt

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__["trees"] = state["trees"]  # older pickles also contain outdated evaluation tables


def sums_of_targets(forests: Sequence[Forest], targets: Sequence[Floats], n_jobs: int = 1) -> list[Floats]:
    """Return, for each forest, the sums in all leaves (l,) of other ``targets`` (n,) of the rows that it was grown on."""
    sums = [np.zeros(forest.leaf_starts[-1]) for forest in forests]
    pieces = [(k, t) for k, forest in enumerate(forests) for t in range(0, len(forest.trees), TREES_AT_ONCE)]

    def of_piece(piece: tuple[int, int]) -> None:
        k, first = piece
        leaves, end = forests[k]._leaves_of_rows, min(first + TREES_AT_ONCE, len(forests[k].trees))
        route.sums_by_leaf(leaves, forests[k].leaf_starts, first, end, targets[k], sums[k])

    in_threads(of_piece, pieces, n_jobs)
    return sums


def means_of_leaves(forests: Sequence[Forest], leaves: Sequence[Leaves], n_jobs: int = 1) -> Floats:
    """Return the mean over trees of the first output in known leaves (n, A).

    There is one column per forest, from its ``leaves_in_trees`` (T, n).
    """
    out = np.empty((leaves[0].shape[1], len(leaves)))
    values = [forest._values for forest in forests]

    def of_rows(first: int) -> None:
        end = min(first + ROWS_AT_ONCE, len(out))
        for a, forest in enumerate(forests):
            route.mean_of_leaves(leaves[a], forest.leaf_starts, values[a], first, end, out[first:end, a])

    in_threads(of_rows, range(0, len(out), ROWS_AT_ONCE), n_jobs)
    return out


def grow(
    states: EncodedStates,
    outputs: Floats,
    growth: Growth,
    rng: np.random.Generator,
    *,
    weights: Floats | None = None,
    n_jobs: int = 1,
) -> Forest:
    """Grow a forest; each tree has its own seed.

    ``outputs`` (n, m) are targets, or regrets for policy trees. ``weights`` (n,) are positive. The result does not
    depend on ``n_jobs``.
    """
    scaled = np.ascontiguousarray(outputs if weights is None else outputs * weights[:, None])
    of_rows = np.empty(0) if weights is None else np.ascontiguousarray(weights)
    layout = Layout.of(states.n_rows, states.n_features, states.bits, outputs.shape[1], weighted=weights is not None)
    limits, features = growth.limits(states.n_features), states.features
    seeds = rng.integers(1, 2**63, size=growth.n_trees, dtype=np.uint64)
    of_thread = threading.local()

    def grow_one(seed: np.uint64) -> Tree:
        if not hasattr(of_thread, "work"):
            of_thread.work = Workspace.of(states.n_rows, states.n_features, layout, limits, states.bits)
        work: Workspace = of_thread.work
        work.state[0] = seed
        fill_records(states.words, scaled, of_rows, layout, work.records)
        leaf_of_row = np.empty(states.n_rows, dtype=np.int32)
        n_nodes, n_leaves = grow_tree(layout, features, limits, work, leaf_of_row)
        grown = work.grown
        return Tree(
            grown.nodes[:n_nodes].copy(),
            grown.above[:n_nodes].copy(),
            grown.sums[:n_leaves].copy(),
            grown.weights[:n_leaves].copy(),
            grown.counts[:n_leaves].copy(),
            leaf_of_row,
        )

    return Forest(in_threads(grow_one, list(seeds), n_jobs), states.projections)
