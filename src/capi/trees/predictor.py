"""Fast evaluation of a forest: its nodes concatenated, as numbers and, for many states, as codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints
from capi.trees._kernels import route, sift
from capi.trees._kernels.plain import CHILD_SHIFT, CUT_SHIFT, FEATURE_SHIFT, MISSING
from capi.trees._kernels.ranks import WINDOW
from capi.trees._kernels.walk import TOGETHER
from capi.trees.ranks import ROWS_AT_ONCE, cells_of

FEW = 64  # with fewer states, codes are not worth their cost
MANY = 1024  # with more states in a block, dividing lists of them is faster than walking
PADDING = np.full(WINDOW, np.inf)
MOST_NODES = 2**24  # limit of the child field in a node of 64 bits

Leaves: TypeAlias = NDArray[np.integer[Any]]  # numbers of leaves, within their trees
Codes: TypeAlias = NDArray[np.uint32]


def leaf_type(leaf_starts: Ints) -> type[np.integer[Any]]:
    """Return the type for the number of a leaf in its tree; 16 bits, if they suffice, halve the memory to read."""
    return np.uint16 if np.diff(leaf_starts).max() <= 2**16 else np.int32


@dataclass(frozen=True, eq=False)
class Paths:
    """The nodes of all trees: where each tree starts, and each node's left child, feature, threshold and leaf.

    A leaf is its own left child, and its threshold is infinite. Leaves are numbered within their trees unless stated otherwise.
    """

    roots: NDArray[np.int32]  # (T,)
    left: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    missing_right: NDArray[np.int32]  # 1 where missing values go right
    number: Leaves  # of each leaf
    leaf_starts: Ints  # (T + 1,) where each tree's leaves start in the numbering of the forest

    @classmethod
    def of(cls, trees: Sequence[NDArray[np.void]], leaf_starts: Ints) -> Paths:
        """Return the paths of trees, each an array of nodes, whose leaves start at ``leaf_starts`` (T + 1,)."""
        sizes = [len(nodes) for nodes in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        nodes = np.concatenate(trees)
        is_leaf = nodes["left"] < 0
        left = np.where(is_leaf, np.arange(len(nodes)), np.repeat(roots, sizes) + nodes["left"])
        number = np.where(is_leaf, -1 - nodes["left"], 0).astype(leaf_type(leaf_starts))
        missing_right = np.where(is_leaf, 0, 1 - nodes["missing_left"].astype(np.int32))
        threshold = np.where(is_leaf, np.inf, nodes["threshold"])
        small = [array.astype(np.int32) for array in (roots, left, nodes["feature"], missing_right)]
        return cls(small[0], small[1], small[2], threshold, small[3], number, leaf_starts)

    def leaves(self, states: Floats, n_jobs: int) -> Leaves:
        """Return the leaf of each state in each tree; ``states`` (n, d) -> (T, n)."""
        if not self._worth_codes(states):
            return self._each(states)
        leaves = self._room(len(states))

        def find(codes: Codes, first: int, end: int) -> None:
            self._find(codes, leaves, first, end)

        self._by_blocks(find, states, n_jobs)
        return leaves

    def leaves_of_actions(self, states: Floats, n_actions: int, n_jobs: int) -> Leaves:
        """Return the leaf of each state with each action index appended; ``states`` (n, d) -> (A, T, n)."""
        if not self._worth_codes(states):
            return self._each_of_actions(states, n_actions)
        leaves = self._room(n_actions, len(states))

        def find(codes: Codes, first: int, end: int) -> None:
            self._find_of_actions(codes, states.shape[1], leaves, first, end)

        self._by_blocks(find, states, n_jobs)
        return leaves

    def mean_of_actions(self, values: Floats, states: Floats, n_actions: int, n_jobs: int) -> Floats:
        """Return the mean over trees of the ``values`` (l,) of the leaves of each state and action; (n, d) -> (n, A)."""
        out = np.empty((len(states), n_actions))

        def average(leaves: Leaves, first: int, end: int) -> None:
            for a, of_action in enumerate(leaves):
                route.mean_of_leaves(of_action, self.leaf_starts, values, 0, end - first, out[first:end, a])

        def find(codes: Codes, first: int, end: int) -> None:
            leaves = self._room(n_actions, end - first)  # for one block only: all of them would fill the memory
            self._find_of_actions(codes, states.shape[1], leaves, 0, end - first)
            average(leaves, first, end)

        if self._worth_codes(states):
            self._by_blocks(find, states, n_jobs)
        else:
            average(self._each_of_actions(states, n_actions), 0, len(states))
        return out

    def total(self, values: Floats, states: Floats, n_jobs: int) -> Floats:
        """Return the sum over trees of the ``values`` (l, m) of each state's leaf; ``states`` (n, d) -> (n, m)."""
        out = np.zeros((len(states), values.shape[1]))

        def add(codes: Codes, first: int, end: int) -> None:
            nodes, starts = self._coded.nodes, self.leaf_starts
            add_values = sift.add_values if end - first > MANY else route.add_values
            add_values(nodes, self.roots, self.number, codes, starts, values, out[first:end])

        if self._worth_codes(states):
            self._by_blocks(add, states, n_jobs)
        else:
            route.sum_of_leaves(self.counted_through(self._each(states)), values, out)
        return out

    def counted_through(self, leaves: Leaves) -> NDArray[np.int32]:
        """Return ``leaves`` (T, n) renumbered across the forest."""
        return np.add(leaves, self.leaf_starts[:-1, None], dtype=np.int32)

    def _room(self, *shape: int) -> Leaves:
        """Return an empty array for the leaves in each tree; ``shape`` (..., n) -> (..., T, n)."""
        return np.empty((*shape[:-1], len(self.roots), shape[-1]), dtype=self.number.dtype)

    def _each(self, states: Floats) -> Leaves:
        """Return the leaves of states that are processed one by one (T, n)."""
        x, leaves = np.array(states, order="C"), self._room(len(states))  # a copy: read-only arrays are another type
        route.send_each(self.roots, self.left, self.feature, self.threshold, self.missing_right, self.number, x, leaves)
        return leaves

    def _each_of_actions(self, states: Floats, n_actions: int) -> Leaves:
        """Return the leaves of states, processed one by one, with each action index appended (A, T, n)."""
        numbers = (np.full(len(states), float(a)) for a in range(n_actions))
        return np.stack([self._each(np.column_stack([states, number])) for number in numbers])

    def _find(self, codes: Codes, leaves: Leaves, first: int, end: int) -> None:
        """Write the leaves of states ``first .. end - 1`` to ``leaves`` (T, n)."""
        tables = self._coded.nodes, self.roots, self.number
        if end - first > MANY:
            sift.find_leaves(*tables, sift.NO_ACTION, np.zeros(1, dtype=np.uint32), codes, leaves[None], first, end)
        else:
            route.find_leaves(*tables, codes, leaves, first, end)

    def _find_of_actions(self, codes: Codes, d: int, leaves: Leaves, first: int, end: int) -> None:
        """Write the leaves of states ``first .. end - 1``, with each action index after their ``d`` features, to ``leaves`` (A, T, n)."""
        nodes = self._coded.nodes
        if codes.shape[1] <= d:  # no split uses the action
            self._find(codes, leaves[0], first, end)
            leaves[1:, :, first:end] = leaves[0, :, first:end]
            return
        actions = np.zeros((len(leaves), d + 1))
        actions[:, d] = np.arange(len(leaves))
        action_codes = self._coded.codes(actions)[: len(leaves), d]
        if end - first > MANY:
            sift.find_leaves(nodes, self.roots, self.number, d, action_codes, codes, leaves, first, end)
            return
        route.find_leaves_of_actions(
            nodes, self.roots, self.number, self._last_actions, action_codes, codes, leaves, first, end
        )

    def _by_blocks(self, work: Callable[[Codes, int, int], None], states: Floats, n_jobs: int) -> None:
        """Call ``work`` with the codes of each block of states that fits into a core's cache, its first row and its end."""
        x, coded = np.ascontiguousarray(states), self._coded  # created before the threads use it

        def of_block(first: int) -> None:
            end = min(first + ROWS_AT_ONCE, len(x))
            work(coded.codes(x[first:end]), first, end)

        in_threads(of_block, range(0, len(x), ROWS_AT_ONCE), n_jobs)

    def _worth_codes(self, states: Floats) -> bool:
        """Whether there are enough states and nodes fit into 64 bits; a feature has at most as many cuts as there are nodes."""
        if len(states) < FEW:
            return False
        largest_tree = np.diff(self.roots, append=len(self.left)).max()
        return bool(largest_tree < MOST_NODES and len(self.left) < MISSING)

    @cached_property
    def _last_actions(self) -> Floats:
        """The largest value of the last feature that can reach each node."""
        last = np.empty(len(self.left))
        route.last_actions(self.left, self.feature, self.threshold, self.roots, last)
        return last

    @cached_property
    def _coded(self) -> _CodedNodes:
        n_features = int(self.feature.max()) + 1
        inner = self.threshold < np.inf  # above an infinite threshold are only missing values
        cut = np.full(len(self.left), MISSING - 1, dtype=np.int64)
        cuts = []
        for j in range(n_features):
            nodes = np.flatnonzero(inner & (self.feature == j))
            distinct, cut[nodes] = np.unique(self.threshold[nodes], return_inverse=True)
            cuts.append(distinct)
        is_leaf = self.left == np.arange(len(self.left))
        missing_left = np.where(is_leaf, 0, 1 - self.missing_right)
        cut = np.where(is_leaf, MISSING, cut + missing_left)
        child = self.left - np.repeat(self.roots, np.diff(self.roots, append=len(self.left)))
        fields = [array.astype(np.uint64) for array in (child, cut, self.feature, missing_left)]
        shifts = [np.uint64(shift) for shift in (CHILD_SHIFT, CUT_SHIFT, FEATURE_SHIFT)]
        coded = fields[0] << shifts[0] | fields[1] << shifts[1] | fields[2] << shifts[2] | fields[3]
        n_cells = max(1, max(len(of_feature) for of_feature in cuts) // 2)
        cells = [cells_of(of_feature, n_cells) for of_feature in cuts]
        return _CodedNodes(
            coded,
            np.concatenate([np.append(of_feature, PADDING) for of_feature in cuts]),
            np.cumsum([0, *(len(of_feature) + WINDOW for of_feature in cuts)]),
            np.stack([grid for grid, _ in cells]),
            np.array([scale for _, scale in cells]),
        )


@dataclass(frozen=True, eq=False)
class _CodedNodes:
    """Nodes of 64 bits each, and the tables that encode states; `capi.trees._kernels.route` explains both."""

    nodes: NDArray[np.uint64]
    cuts: Floats
    starts: Ints
    grid: NDArray[np.int32]
    scales: Floats

    def codes(self, states: Floats) -> Codes:
        """Return the codes of the features used in splits; ``states`` (n, d) -> (at least n, at most d)."""
        codes = np.zeros((-(-len(states) // TOGETHER) * TOGETHER, len(self.scales)), dtype=np.uint32)
        route.encode_states(states, self.cuts, self.starts, self.grid, self.scales, codes)
        return codes
