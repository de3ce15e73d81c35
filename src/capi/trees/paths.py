"""What reads a forest quickly: its nodes one after the other, as numbers and, for many states, as codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi.parallel import in_threads
from capi.trees import _route
from capi.trees.encoding import cells_of
from capi.validation import Floats, Ints

ROWS_AT_ONCE = 8192  # states and a tree stay in the cache together
FEW = 64  # states for which codes do not pay
MOST_NODES = 2**24  # that fit into a node's 64 bits


@dataclass(frozen=True, eq=False)
class Paths:
    """The nodes of all trees: where each tree starts, and each node's left child, feature, threshold and leaf.

    A leaf is its own left child, and its threshold is infinite.
    """

    roots: NDArray[np.int32]  # (T,)
    left: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    missing_right: NDArray[np.int32]  # 1 where missing values go right
    number: NDArray[np.int32]  # of each leaf, counted through the forest

    @classmethod
    def of(cls, trees: Sequence[NDArray[np.void]], leaf_starts: Ints) -> Paths:
        """Return the paths of trees, each an array of nodes, whose leaves are numbered from ``leaf_starts`` (T + 1,) on."""
        sizes = [len(nodes) for nodes in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        nodes = np.concatenate(trees)
        first_node, first_leaf = np.repeat(roots, sizes), np.repeat(leaf_starts[:-1], sizes)
        is_leaf = nodes["left"] < 0
        left = np.where(is_leaf, np.arange(len(nodes)), first_node + nodes["left"])
        number = np.where(is_leaf, first_leaf - 1 - nodes["left"], 0)
        missing_right = np.where(is_leaf, 0, 1 - nodes["missing_left"].astype(np.int32))
        threshold = np.where(is_leaf, np.inf, nodes["threshold"])
        small = [array.astype(np.int32) for array in (roots, left, nodes["feature"], missing_right, number)]
        return cls(small[0], small[1], small[2], threshold, small[3], small[4])

    def leaves(self, states: Floats, n_jobs: int) -> NDArray[np.int32]:
        """Return the leaf of each state in each tree; ``states`` (n, d) -> (T, n)."""

        def by_code(codes: NDArray[np.uint32]) -> NDArray[np.int32]:
            leaves = np.empty((len(self.roots), len(codes)), dtype=np.int32)
            _route.find_leaves(self._coded.nodes, self.roots, self.number, codes, leaves)
            return leaves

        return np.concatenate(self._by_blocks(self._each, by_code, states, n_jobs), axis=1)

    def leaves_of_actions(self, states: Floats, n_actions: int, n_jobs: int) -> NDArray[np.int32]:
        """Return the leaf of each state with each action's number behind it; ``states`` (n, d) -> (A, T, n)."""
        return np.concatenate(self._by_blocks(*self._ways_of_actions(states, n_actions), states, n_jobs), axis=2)

    def total_of_actions(self, values: Floats, states: Floats, n_actions: int, n_jobs: int) -> Floats:
        """Return the sum over trees of the ``values`` (l,) of the leaves of each state and action; (n, d) -> (n, A)."""

        def summed(find: Callable[[Any], NDArray[np.int32]]) -> Callable[[Any], Floats]:
            def of_block(block: Any) -> Floats:
                out = np.zeros((len(block), n_actions))
                for a, leaves in enumerate(find(block)):
                    _route.sum_of_leaves(leaves, values[:, None], out[:, a : a + 1])
                return out

            return of_block

        by_value, by_code = self._ways_of_actions(states, n_actions)
        return np.concatenate(self._by_blocks(summed(by_value), summed(by_code), states, n_jobs))

    def _ways_of_actions(
        self, states: Floats, n_actions: int
    ) -> tuple[Callable[[Floats], NDArray[np.int32]], Callable[[NDArray[np.uint32]], NDArray[np.int32]]]:
        """Return what finds the leaves (A, T, n) of a block of states, and of their codes."""
        d = states.shape[1]

        def with_action(block: Floats, action: int) -> Floats:
            return np.column_stack([block, np.full(len(block), float(action))])

        def by_value(block: Floats) -> NDArray[np.int32]:
            return np.stack([self._each(with_action(block, a)) for a in range(n_actions)])

        def by_code(codes: NDArray[np.uint32]) -> NDArray[np.int32]:
            leaves = np.empty((n_actions, len(self.roots), len(codes)), dtype=np.int32)
            if codes.shape[1] <= d:  # no split asks for the action
                _route.find_leaves(self._coded.nodes, self.roots, self.number, codes, leaves[0])
                leaves[1:] = leaves[0]
                return leaves
            actions = np.zeros((n_actions, d + 1))
            actions[:, d] = np.arange(n_actions)
            action_codes = self._coded.codes(actions)[:, d]
            _route.find_leaves_of_actions(
                self._coded.nodes, self.roots, self.number, self._last_actions, action_codes, codes, leaves
            )
            return leaves

        return by_value, by_code

    def total(self, values: Floats, states: Floats, n_jobs: int) -> Floats:
        """Return the sum over trees of the ``values`` (l, m) of each state's leaf; ``states`` (n, d) -> (n, m)."""

        def by_value(block: Floats) -> Floats:
            out = np.zeros((len(block), values.shape[1]))
            _route.sum_of_leaves(self._each(block), values, out)
            return out

        def by_code(codes: NDArray[np.uint32]) -> Floats:
            out = np.zeros((len(codes), values.shape[1]))
            _route.add_values(self._coded.nodes, self.roots, self.number, codes, values, out)
            return out

        return np.concatenate(self._by_blocks(by_value, by_code, states, n_jobs))

    def _each(self, states: Floats) -> NDArray[np.int32]:
        """Return the leaves of few states (T, n)."""
        leaves = np.empty((len(self.roots), len(states)), dtype=np.int32)
        _route.send_each(
            self.roots, self.left, self.feature, self.threshold, self.missing_right, self.number, states, leaves
        )
        return leaves

    def _by_blocks(
        self, by_value: Callable[[Floats], Any], by_code: Callable[[Any], Any], states: Floats, n_jobs: int
    ) -> list[Any]:
        """Return the results of blocks of states that fit into a core's cache; what the groups of eight leave goes apart."""
        x = np.ascontiguousarray(states)
        n_coded = 0 if len(x) < FEW or not self._fits else len(x) - len(x) % _route.TOGETHER
        starts = list(range(0, n_coded, ROWS_AT_ONCE))
        if starts:
            _ = self._coded  # made once, before the threads ask for it
        blocks = in_threads(lambda i: by_code(self._coded.codes(x[i : min(i + ROWS_AT_ONCE, n_coded)])), starts, n_jobs)
        return blocks if n_coded == len(x) and blocks else [*blocks, by_value(x[n_coded:])]

    @cached_property
    def _last_actions(self) -> Floats:
        """The largest value of the last feature that can come to each node."""
        last = np.empty(len(self.left))
        _route.last_actions(self.left, self.feature, self.threshold, self.roots, last)
        return last

    @property
    def _fits(self) -> bool:
        """Whether nodes fit into 64 bits; the cuts of a feature are at most as many as the nodes."""
        largest_tree = np.diff(self.roots, append=len(self.left)).max()
        return bool(largest_tree < MOST_NODES and len(self.left) < _route.MISSING)

    @cached_property
    def _coded(self) -> _CodedNodes:
        n_features = int(self.feature.max()) + 1
        inner = self.threshold < np.inf  # an infinite threshold: only missing values are above
        cut = np.full(len(self.left), _route.MISSING - 1, dtype=np.int64)
        cuts = []
        for j in range(n_features):
            nodes = np.flatnonzero(inner & (self.feature == j))
            distinct, cut[nodes] = np.unique(self.threshold[nodes], return_inverse=True)
            cuts.append(distinct)
        is_leaf = self.left == np.arange(len(self.left))
        missing_left = np.where(is_leaf, 0, 1 - self.missing_right)
        cut = np.where(is_leaf, _route.MISSING, cut + missing_left)
        child = self.left - np.repeat(self.roots, np.diff(self.roots, append=len(self.left)))
        fields = [array.astype(np.uint64) for array in (child, cut, self.feature, missing_left)]
        shifts = (_route.CHILD_SHIFT, _route.CUT_SHIFT, _route.ONE)
        coded = fields[0] << shifts[0] | fields[1] << shifts[1] | fields[2] << shifts[2] | fields[3]
        n_cells = max(1, max(len(of_feature) for of_feature in cuts) // 2)
        cells = [cells_of(of_feature, n_cells) for of_feature in cuts]
        return _CodedNodes(
            coded,
            np.concatenate(cuts),
            np.cumsum([0, *map(len, cuts)]),
            np.stack([grid for grid, _ in cells]),
            np.array([scale for _, scale in cells]),
        )


@dataclass(frozen=True, eq=False)
class _CodedNodes:
    """Nodes of 64 bits each, and what gives states their codes; the kernels explain both."""

    nodes: NDArray[np.uint64]
    cuts: Floats
    starts: Ints
    grid: NDArray[np.int32]
    scales: Floats

    def codes(self, states: Floats) -> NDArray[np.uint32]:
        """Return the codes of the features that occur in a split; ``states`` (n, d) -> (n, up to d)."""
        codes = np.zeros((len(states), len(self.scales)), dtype=np.uint32)
        _route.encode_states(states, self.cuts, self.starts, self.grid, self.scales, codes)
        return codes
