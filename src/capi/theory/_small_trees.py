r"""All decision trees of a small depth on few states, as pairs of sum and second moment.

Both numbers are sums over leaves, so the pairs of a tree are those of its two subtrees, added. Only pairs that no other one beats in both numbers matter, for subtrees
as for trees: the front of a node is the front of all sums of pairs of its sides' fronts, over all cuts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capi._utils.validation import Bools, Floats, Ints

MOST_SPLITS = 400  # of the nodes above the last level, for each draw of signs


@dataclass(frozen=True, eq=False)
class SmallTrees:
    """All trees of a depth."""

    states: Floats  # (N, d), none missing
    regrets: Floats  # (N, A)
    nu: Floats  # (N,)
    depth: int
    is_exact = True
    is_hull = False

    @staticmethod
    def are_few(states: Floats, depth: int) -> bool:
        """Return whether the trees of a depth on these states can be listed quickly."""
        n_cuts = sum(len(np.unique(column)) - 1 for column in states.T)
        return depth <= 1 or n_cuts ** (depth - 1) <= MOST_SPLITS

    @cached_property
    def orders(self) -> list[Ints]:
        """The states in the order of each feature."""
        return [np.argsort(column, kind="stable") for column in self.states.T]

    def front(self, signs: Floats) -> tuple[Floats, Floats]:
        """Return second moments in increasing order and positive sums of the trees that matter."""
        squares, sums = self._all(signs)
        positive = sums > 0
        return squares[positive], sums[positive]

    def largest(self, signs: Floats) -> float:
        """Return the largest sum."""
        return float(self._all(signs)[1].max())

    def _all(self, signs: Floats) -> tuple[Floats, Floats]:
        tables = np.stack([self.nu[:, None] * np.square(self.regrets), signs[:, None] * self.regrets])  # (2, N, A)
        found = self._node(np.ones(len(self.nu), dtype=bool), self.depth, tables)
        return found[0], found[1]

    def _node(self, inside: Bools, depth: int, tables: Floats) -> Floats:
        """Return the front (2, f) of all trees of a depth on the states ``inside`` (N,)."""
        totals = tables[:, inside].sum(axis=1)  # (2, A)
        parts = [totals]
        for column, order in zip(self.states.T if depth else (), self.orders, strict=False):
            rows = order[inside[order]]
            cuts = np.flatnonzero(column[rows[:-1]] < column[rows[1:]]) + 1  # states on the low side
            if depth == 1:
                low = np.cumsum(tables[:, rows], axis=1)[:, cuts - 1]  # (2, c, A)
                pairs = low[:, :, :, None] + (totals[:, None, :] - low)[:, :, None, :]
                parts.append(pairs.reshape(2, -1))
            else:
                parts += [self._split(rows[:cut], inside, depth, tables) for cut in cuts]
        return _front(np.concatenate(parts, axis=1))

    def _split(self, low: Ints, inside: Bools, depth: int, tables: Floats) -> Floats:
        """Return the pairs (2, f) of all trees whose first cut has the states ``low`` on its low side."""
        below = np.zeros_like(inside)
        below[low] = True
        left, right = (self._node(side, depth - 1, tables) for side in (below, inside & ~below))
        return (left[:, :, None] + right[:, None, :]).reshape(2, -1)


def _front(pairs: Floats) -> Floats:
    """Return the pairs of second moment and sum (2, f) that no other one beats, in order of increasing second moments."""
    ordered = pairs[:, np.lexsort((-pairs[1], pairs[0]))]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(ordered[1])[:-1]])
    return ordered[:, ordered[1] > before]
