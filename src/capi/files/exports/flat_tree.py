"""Trees of a `Program`: arrays of nodes, whose leaves have the actions to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.trees.forest import Tree


@dataclass(frozen=True, eq=False)
class FlatTree:
    """Nodes by index, 0 is the root; children follow their parents, and the right child follows the left one.

    A state goes left if its feature is at most a number; infinity sends all known values left. A leaf has actions in order of preference:
    the first that no rule forbids is taken; the last is one that no rule ever forbids, if there is one.
    """

    feature: list[int]  # -1 in a leaf
    at_most: list[float]
    missing_left: list[bool]
    left: list[int]  # -1 in a leaf
    actions: list[tuple[int, ...]]  # of a leaf, in order of preference; empty elsewhere

    @classmethod
    def of(cls, tree: Tree, rankings: Sequence[tuple[int, ...]]) -> FlatTree:
        """Return a tree with the actions of its leaves (l,), breadth-first and without redundant splits."""
        columns = (tree.nodes[name].tolist() for name in ("feature", "threshold", "missing_left", "left"))
        feature, threshold, missing_left, left = columns
        actions = _actions_below(left, rankings)
        flat = cls([], [], [], [], [])
        waiting = [0]
        for node in waiting:  # grows during the loop: children are numbered as they are found
            if actions[node]:
                flat._add(-1, 0.0, False, -1, actions[node])
            else:
                flat._add(feature[node], threshold[node], bool(missing_left[node]), len(waiting), ())
                waiting += [left[node], left[node] + 1]
        return flat

    @classmethod
    def leaf(cls, actions: tuple[int, ...]) -> FlatTree:
        """Return a tree without splits."""
        return cls([-1], [0.0], [False], [-1], [actions])

    @classmethod
    def split(cls, feature: int, at_most: float, low: tuple[int, ...], high: tuple[int, ...]) -> FlatTree:
        """Return a tree with one split, which sends missing values right."""
        return cls([feature, -1, -1], [at_most, 0.0, 0.0], [False] * 3, [1, -1, -1], [(), low, high])

    def _add(self, feature: int, at_most: float, missing_left: bool, left: int, actions: tuple[int, ...]) -> None:
        self.feature.append(feature)
        self.at_most.append(at_most)
        self.missing_left.append(missing_left)
        self.left.append(left)
        self.actions.append(actions)

    def __len__(self) -> int:
        return len(self.left)

    @property
    def leaves(self) -> list[int]:
        """The indices of the leaves, from left to right."""
        found, waiting = [], [0]
        while waiting:
            node = waiting.pop()
            if self.left[node] < 0:
                found.append(node)
            else:
                waiting += [self.left[node] + 1, self.left[node]]
        return found

    @property
    def levels(self) -> list[int]:
        """The number of splits above each node."""
        level = [0] * len(self)
        for node, left in enumerate(self.left):
            if left >= 0:
                level[left] = level[left + 1] = level[node] + 1
        return level

    def leaf_of(self, states: Floats) -> Ints:
        """Return the index of the leaf that each state falls into; ``states`` (n, d) -> (n,)."""
        reached = np.zeros(len(states), dtype=np.int64)
        rows: dict[int, Ints] = {0: np.arange(len(states))}
        for node, left in enumerate(self.left):
            here = rows.pop(node)
            if left < 0:
                reached[here] = node
                continue
            x = states[here, self.feature[node]]
            goes_left = (x <= self.at_most[node]) | (np.isnan(x) & self.missing_left[node])
            rows[left], rows[left + 1] = here[goes_left], here[~goes_left]
        return reached

    def path_to(self, leaf: int) -> list[tuple[int, bool]]:
        """Return the splits on the path to a leaf, each with whether its condition holds."""
        above = {}
        for node, left in enumerate(self.left):
            if left >= 0:
                above[left], above[left + 1] = (node, True), (node, False)
        path, node = [], leaf
        while node:
            path.append(above[node])
            node = above[node][0]
        return path[::-1]

    def renumbered(self) -> Iterator[tuple[int, int, int]]:
        """Yield each node as exports number them: its index here, its number, and the number of its left child, if it has one.

        The order is depth-first, right before left. The right child's number follows the left one's.
        """
        waiting, count = [(0, 0)], 1
        while waiting:
            node, number = waiting.pop()
            yield node, number, count
            if self.left[node] >= 0:
                waiting += [(self.left[node], count), (self.left[node] + 1, count + 1)]
                count += 2


def _actions_below(left: list[int], rankings: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return, for each node, the actions that all leaves below it share, or nothing if they differ."""
    found: list[tuple[int, ...]] = [()] * len(left)
    for node in range(len(left) - 1, -1, -1):  # children follow their parents
        child = left[node]
        if child < 0:
            found[node] = rankings[-1 - child]
        elif found[child] == found[child + 1]:
            found[node] = found[child]
    return found
