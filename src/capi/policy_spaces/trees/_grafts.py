"""A tree below the leaves of another one, without the branches that no state can reach."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from capi._utils.validation import Ints
from capi.trees.forest import Tree


@dataclass(frozen=True)
class _Reached:
    """What the splits above a node leave of one feature: values in (low, high], and whether it may be missing."""

    low: float = -np.inf
    high: float = np.inf
    missing: bool = True

    @property
    def is_empty(self) -> bool:
        return not (self.low < self.high or self.missing)

    def branches(self, threshold: float, missing_left: bool) -> tuple[_Reached, _Reached]:
        """Return what reaches the left and the right child of a split."""
        left = replace(self, high=min(self.high, threshold), missing=self.missing and missing_left)
        right = replace(self, low=max(self.low, threshold), missing=self.missing and not missing_left)
        return left, right


@dataclass
class _Node:
    action: int = -1
    split: tuple[int, float, bool, float] = (0, 0.0, False, 0.0)  # feature, threshold, missing_left, next value above
    children: tuple[_Node, _Node] | None = None


def grafted(top: Tree, bottom: Tree, decisions: Ints, n_actions: int) -> Tree:
    """Return a tree that takes action ``decisions[i, j]`` in the states that leaf i of ``top`` and leaf j of ``bottom`` share.

    Splits that all states pass on the same side, or whose sides decide alike, are left out. The leaves have no counts.
    """

    def below(tree: Tree, number: int, reached: dict[int, _Reached], leaf_of_top: int) -> _Node:
        node = tree.nodes[number]
        left = int(node["left"])
        if left < 0:
            leaf = -1 - left
            return below(bottom, 0, reached, leaf) if leaf_of_top < 0 else _Node(int(decisions[leaf_of_top, leaf]))
        feature, threshold, missing_left = int(node["feature"]), float(node["threshold"]), bool(node["missing_left"])
        sides = reached.get(feature, _Reached()).branches(threshold, missing_left)
        found = [
            None if side.is_empty else below(tree, left + i, {**reached, feature: side}, leaf_of_top)
            for i, side in enumerate(sides)
        ]
        low, high = found
        if low is None or high is None:
            only = low or high
            if only is None:
                raise ValueError("no state reaches this split")
            return only
        if low == high:
            return low
        return _Node(split=(feature, threshold, missing_left, float(tree.above[number])), children=(low, high))

    return _as_tree(below(top, 0, {}, -1), top, n_actions)


def _as_tree(root: _Node, like: Tree, n_actions: int) -> Tree:
    """Return nodes as a tree; a leaf's sums rank its action first."""
    order = [root]
    rows: list[tuple[int, float, bool, float, int]] = []
    actions: list[int] = []
    for node in order:  # grows during the loop
        if node.children is None:
            actions.append(node.action)
            rows.append((0, 0.0, False, 0.0, -len(actions)))
        else:
            rows.append((*node.split, len(order)))
            order += node.children
    nodes = np.zeros(len(rows), dtype=like.nodes.dtype)
    feature, threshold, missing_left, above, left = map(np.array, zip(*rows, strict=True))
    nodes["feature"], nodes["threshold"], nodes["missing_left"], nodes["left"] = feature, threshold, missing_left, left
    sums = 1.0 - np.eye(n_actions)[actions]
    n = len(actions)
    return Tree(nodes, above.astype(float), sums, np.ones(n), np.zeros(n, dtype=np.int64), np.zeros(0, dtype=np.int32))
