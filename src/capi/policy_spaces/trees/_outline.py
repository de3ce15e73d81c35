"""The outline of a tree that is too large to read: what lies below each of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.errors import LEAST_SHOWN
from capi.trees.forest import Tree


@dataclass(frozen=True, eq=False)
class Outline:
    """Numbers of leaves and of states below each node of a tree, without recursion: trees may be thousands of levels deep."""

    levels: int
    leaves: Ints  # (nodes,)
    states: Ints  # (nodes, A), by the action that they get

    @classmethod
    def of(cls, tree: Tree, actions: Ints, n_actions: int) -> Outline:
        """Return the outline of a tree whose leaves take ``actions`` (l,)."""
        left = tree.nodes["left"]
        height, leaves = np.zeros(len(left), dtype=np.int64), np.ones(len(left), dtype=np.int64)
        states = np.zeros((len(left), n_actions), dtype=np.int64)
        ends = np.flatnonzero(left < 0)
        states[ends, actions[-1 - left[ends]]] = tree.counts[-1 - left[ends]]
        for i in _parents_from_below(tree):
            pair = slice(left[i], left[i] + 2)
            height[i] = 1 + height[pair].max()
            leaves[i], states[i] = leaves[pair].sum(), states[pair].sum(axis=0)
        return cls(int(height[0]), leaves, states)

    def below(self, number: int, labels: Sequence[Any]) -> str:
        """Return one line about the leaves below a node: their most frequent action, and how many leaves and states there are."""
        counts, leaves = self.states[number], int(self.leaves[number])
        total, first = int(counts.sum()), int(counts.argmax())
        states = "1 state" if total == 1 else f"{total:,} states"
        if leaves == 1:
            return f"{labels[first]}  ({states})"
        share = f" in {100 * counts[first] / total:.0f} %" if total else ""
        return f"... {leaves:,} leaves, {labels[first]}{share} of {states}"


def levels(tree: Tree) -> int:
    """Return the number of levels of splits of a tree."""
    left = tree.nodes["left"]
    height: Ints = np.zeros(len(left), dtype=np.int64)
    for i in _parents_from_below(tree):
        height[i] = 1 + height[left[i] : left[i] + 2].max()
    return int(height[0])


def without_small_counts(counts: Ints) -> Ints:
    """Return counts with 0 for those that are below five, and for the next smallest one if a single one is: their sum is known."""
    small: Bools = counts < LEAST_SHOWN
    if small.sum() == 1 and len(small) > 1:
        small = small.copy()
        small[np.where(small, np.inf, counts).argmin()] = True
    return np.where(small, 0, counts)


def regret_reductions(tree: Tree, n_features: int) -> Floats:
    """Return by how much the splits on each feature lower the regret of the best single action (d,)."""
    left, feature = tree.nodes["left"], tree.nodes["feature"]
    sums = np.zeros((len(left), tree.sums.shape[1]))
    ends = np.flatnonzero(left < 0)
    sums[ends] = tree.sums[-1 - left[ends]]
    reduction = np.zeros(n_features)
    for i in _parents_from_below(tree):
        one, other = sums[left[i]], sums[left[i] + 1]
        sums[i] = one + other
        reduction[feature[i]] += max(sums[i].min() - one.min() - other.min(), 0.0)
    return reduction


def _parents_from_below(tree: Tree) -> Ints:
    """Return the numbers of the inner nodes, children before their parents."""
    found: Ints = np.flatnonzero(tree.nodes["left"] >= 0)[::-1]
    return found
