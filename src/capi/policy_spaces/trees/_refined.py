"""Cuts of an optimal tree on chosen cut points, moved to where they lose least among all values around them.

The search compares trees on some cut points. Between the cut points below and above a cut of the best one, other cuts may lose less.
With the rest of the tree as it is, sending a row left or right has a known cost, so that the best cut follows from one pass over the rows in
between. Each move lowers the loss; they are repeated while that is worth it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.policy_spaces.trees._binned import Binned
from capi.policy_spaces.trees._search import Split

MOST_PASSES = 10
WORTH = 1e-3  # share of the loss that a pass must gain for another one
TIE = 1e-12  # share of the losses at stake that a move must gain

CutTree: TypeAlias = "Cut | None"  # None is a leaf


@dataclass(frozen=True, eq=False)
class Cut:
    """A split on a cut point, or on a value near it."""

    v: int  # of the binned features
    t: int  # rows with codes up to t go left
    value: float | None  # known values up to this go left instead
    low: CutTree
    high: CutTree

    def goes_left(self, states: Floats, binned: Binned, rows: Ints) -> Bools:
        """Return which of ``rows`` go left."""
        left = binned.goes_left(self.v, self.t, rows)
        if self.value is None:
            return left
        column = states[rows, binned.feature[self.v]]
        return np.where(np.isnan(column), left, column <= self.value)


def as_cuts(splits: Split) -> CutTree:
    """Return the tree of the search."""
    if splits is None:
        return None
    v, t, low, high = splits
    return Cut(v, t, None, as_cuts(low), as_cuts(high))


@dataclass(frozen=True, eq=False)
class Refinement:
    """Moves cuts of a tree; ``lost`` (n, C) are the losses of the rows, ``min_leaf`` the least number of rows in a leaf."""

    states: Floats
    lost: Floats
    binned: Binned
    min_leaf: int

    def best(self, tree: CutTree) -> tuple[CutTree, float]:
        """Return the tree with moved cuts, and how much less it loses."""
        first = before = self.cost(tree)
        for _ in range(MOST_PASSES):
            moved = self._moved(tree, np.arange(len(self.states)))
            after = self.cost(moved)
            if not after < before:
                break
            tree, gained, before = moved, before - after, after
            if gained < WORTH * after:
                break
        return tree, first - before

    def cost(self, tree: CutTree) -> float:
        """Return the loss of a tree whose leaves take their best actions."""
        return self._cost(tree, np.arange(len(self.states)))

    def _cost(self, tree: CutTree, rows: Ints) -> float:
        if tree is None:
            return float(self._sums(rows).min())
        left = tree.goes_left(self.states, self.binned, rows)
        return self._cost(tree.low, rows[left]) + self._cost(tree.high, rows[~left])

    def _moved(self, tree: CutTree, rows: Ints) -> CutTree:
        """Return the tree with each cut moved, from the leaves to the root."""
        if tree is None:
            return None
        left = tree.goes_left(self.states, self.binned, rows)
        parts = self._moved(tree.low, rows[left]), self._moved(tree.high, rows[~left])
        cut = replace(tree, low=parts[0], high=parts[1])
        j = int(self.binned.feature[cut.v])
        if not self.binned.thinned[j]:
            return cut
        codes, column = self.binned.codes[rows, cut.v], self.states[rows, j]
        near = np.flatnonzero((codes - np.uint16(cut.t) <= 1) & ~np.isnan(column))  # the bins below and above the cut
        if len(near) == 0:
            return cut
        near = near[np.argsort(column[near], kind="stable")]
        some, values = rows[near], column[near]
        if_left = self._costs(cut.low, rows[left], some)
        if_right = self._costs(cut.high, rows[~left], some)
        costs = np.append(0.0, np.cumsum(if_left - if_right))  # of sending the first k left
        between = np.append(True, values[1:] != values[:-1])  # equal values stay together
        k = int(np.argmin(np.where(np.append(between, True), costs, np.inf)))
        n_left = int(left[near].sum())
        if not costs[k] < costs[n_left] - TIE * abs(costs).max():
            return cut
        below = values[k - 1] if k else np.nextafter(values[0], -np.inf)
        new = replace(cut, value=float(below))
        return new if self._separates(j, below) and self._large_enough(new, rows) else cut

    def _separates(self, j: int, below: float) -> bool:
        """Return whether a cut has known values on both sides, somewhere in the sample, if missing values may not be cut off alone."""
        column = self.states[:, j]
        return self.binned.missing_apart or bool((column <= below).any() and (column > below).any())

    def _costs(self, tree: CutTree, grown_on: Ints, rows: Ints) -> Floats:
        """Return the loss of each of ``rows`` in a tree whose leaves take the best actions of the rows ``grown_on``."""
        if tree is None:
            costs: Floats = self.lost[rows, int(self._sums(grown_on).argmin())]
            return costs
        out = np.empty(len(rows))
        left, own = (tree.goes_left(self.states, self.binned, some) for some in (rows, grown_on))
        out[left] = self._costs(tree.low, grown_on[own], rows[left])
        out[~left] = self._costs(tree.high, grown_on[~own], rows[~left])
        return out

    def _sums(self, rows: Ints) -> Floats:
        """Return the total loss of each action (C,)."""
        total: Floats = np.take(self._columns, rows, axis=1).sum(axis=1)
        return total

    @cached_property
    def _columns(self) -> Floats:
        """The losses by action (C, n), in which sums over rows are fast."""
        return np.ascontiguousarray(self.lost.T)

    def _large_enough(self, tree: CutTree, rows: Ints) -> bool:
        """Return whether all leaves keep enough rows."""
        if tree is None:
            return len(rows) >= max(self.min_leaf, 1)
        left = tree.goes_left(self.states, self.binned, rows)
        return self._large_enough(tree.low, rows[left]) and self._large_enough(tree.high, rows[~left])
