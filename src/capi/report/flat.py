"""Trees of a `Program` as arrays, for the drawings and for the page's script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.files.exports.program import Node, Program, Split


@dataclass(frozen=True, eq=False)
class FlatTree:
    """Nodes by index, 0 is the root; the right child follows the left one."""

    feature: list[int]  # -1 in a leaf
    at_most: list[float]
    missing_left: list[bool]
    left: list[int]  # -1 in a leaf
    actions: list[tuple[int, ...]]  # of a leaf, in order of preference; empty elsewhere

    @classmethod
    def of(cls, root: Node) -> FlatTree:
        """Return the arrays of a tree."""
        flat = cls([], [], [], [], [])
        waiting = [root]
        for node in waiting:  # grows during the loop: children are numbered as they are found
            inner = isinstance(node, Split)
            flat.feature.append(node.feature if isinstance(node, Split) else -1)
            flat.at_most.append(node.at_most if isinstance(node, Split) else 0.0)
            flat.missing_left.append(isinstance(node, Split) and node.missing_left)
            flat.left.append(len(waiting) if inner else -1)
            flat.actions.append(() if isinstance(node, Split) else node.actions)
            if isinstance(node, Split):
                waiting += [node.left, node.right]
        return flat

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


def program_record(program: Program) -> dict[str, Any]:
    """Return a program as plain values that JSON can hold; leaves refer to one of ``rankings``, infinite numbers are text."""
    rankings: dict[tuple[int, ...], int] = {}
    trees = [_packed(FlatTree.of(tree), rankings) for tree in program.trees]
    record: dict[str, Any] = {
        "trees": trees,
        "rankings": [list(actions) for actions in rankings],
        "scores": None,
        "needed": list(program.needed),
        "forbidden": [
            {
                "text": str(f.rule),
                "actions": list(f.actions),
                "low": [[j, as_text_if_infinite(x)] for j, x in sorted(f.box.low.items())],
                "high": [[j, as_text_if_infinite(x)] for j, x in sorted(f.box.high.items())],
                "if_missing": bool(f.rule.if_missing),
            }
            for f in program.forbidden
        ],
    }
    if program.scores is not None:
        parts = {"origin": program.scores.origin, "unit": program.scores.unit, "weights": program.scores.weights}
        record["scores"] = {name: part.tolist() for name, part in parts.items()}
    return record


def as_text_if_infinite(x: float) -> float | str:
    """Return a number as a JSON value; infinity becomes the text that JavaScript reads."""
    return float(x) if np.isfinite(x) else ("Infinity" if x > 0 else "-Infinity")


def _packed(tree: FlatTree, rankings: dict[tuple[int, ...], int]) -> dict[str, Any]:
    """Return a tree with short keys, because there may be many nodes: ``f`` < 0 is a leaf, whose ``c`` is the index of its ranking."""
    child = [
        left if left >= 0 else rankings.setdefault(actions, len(rankings))
        for left, actions in zip(tree.left, tree.actions, strict=True)
    ]
    cuts = [0 if left < 0 else as_text_if_infinite(cut) for left, cut in zip(tree.left, tree.at_most, strict=True)]
    return {"f": tree.feature, "t": cuts, "m": [int(m) for m in tree.missing_left], "c": child}
