"""What trees with any cuts lose at least, if the search has compared only some cuts, or has stopped early.

The values of each feature are merged into few bins, in which the best tree known loses about the same. A tree that ignores the
rows of the bins that it cuts loses no more than one that cuts these bins somewhere (`capi.trees._optimal.intervals`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Bools, Floats, Ints
from capi.policy_spaces.trees._binned import Binned
from capi.trees._optimal import intervals, records

MOST_BINS = {1: 4096, 2: 128, 3: 32}  # of a feature, by depth: the bound takes less time than most searches
MOST_STEPS = 1e9  # beyond that there is no bound; about a second


@dataclass(frozen=True, eq=False)
class Column:
    """A feature in merged bins."""

    codes: NDArray[np.uint16]  # (n,)
    divisible: Bools  # (bins,) whether a cut may lie in each

    @classmethod
    def of(cls, codes: NDArray[np.uint16], divisible: Bools, lost: Floats, most: int) -> Column:
        """Return the bins ``codes`` (n,), merged to about ``most`` whose rows lose the same; large bins without cuts stay alone."""
        weights = np.bincount(codes, weights=lost, minlength=len(divisible))
        share = most / weights.sum()
        place = ((np.cumsum(weights) - weights / 2) * share).astype(np.int64)
        alone = ~divisible & (weights * share > 1)
        starts = np.diff(place, prepend=place[0]) > 0
        starts |= alone | np.append(False, alone[:-1])
        starts[0] = False
        if len(divisible) <= most:
            starts[1:] = True
        group = np.cumsum(starts)
        return cls(
            group.astype(np.uint16)[codes], (np.bincount(group, weights=divisible) > 0) | (np.bincount(group) > 1)
        )

    @property
    def between(self) -> Bools:
        """Whether only the position before a bin can be cut, not the bins around it (bins + 1,)."""
        whole = ~self.divisible
        return np.concatenate([[False], whole[1:] & whole[:-1], [False]])

    @property
    def n_below(self) -> Ints:
        """Number of rows in the bins before each position (bins + 1,)."""
        return np.append(0, np.cumsum(np.bincount(self.codes, minlength=len(self.divisible))))

    @property
    def options(self) -> list[tuple[int, int]]:
        """Where it can be split: bins before the first number go left, those from the second on go right."""
        inside = [(b, b + 1) for b in np.flatnonzero(self.divisible).tolist()]
        return inside + [(p, p) for p in np.flatnonzero(self.between).tolist()]  # other cuts between bins cost no less


def least_cost(problem: records.Problem, binned: Binned, lost: Floats, depth: int, stop: Ints) -> float:
    """Return a lower bound on the cost of all trees, whatever their cuts and the size of their leaves; 0 if it would take too long.

    ``lost`` (n,) is what the best tree known loses in each row.
    """
    if depth not in MOST_BINS or not lost.sum() > 0:
        return 0.0
    weights = lost + lost.mean()  # rows in which that tree is right may lose in others
    columns = [
        Column.of(np.ascontiguousarray(codes), divisible, weights, MOST_BINS[depth])
        for codes, divisible in zip(problem.codes.T, binned.divisible, strict=True)
    ]
    n_bins = np.array([len(column.divisible) for column in columns])
    (n, n_features), n_actions = problem.codes.shape, problem.n_actions
    cells = np.triu(np.outer(n_bins, n_bins), 1)
    n_pairs, n_tables = n_features * (n_features + 1) // 2, 2 * int(n_bins.sum()) if depth == 3 else 1
    if (
        n * n_pairs * n_actions * (n_features if depth == 3 else 1) + 4 * n_tables * cells.sum() * n_actions
        > MOST_STEPS
    ):
        return 0.0
    cells[np.diag_indices(n_features)] = n_bins
    starts = (np.cumsum(cells) - cells.ravel()).reshape(cells.shape)
    firsts = np.append(0, np.cumsum(n_bins + 1))
    options = [column.options for column in columns]
    low, high = np.array([pair for some in options for pair in some], dtype=np.int64).reshape(-1, 2).T.copy()
    by_column = np.stack([column.codes for column in columns])
    orders = np.argsort(by_column, axis=1, kind="stable") if depth == 3 else np.arange(n)[None]
    bins = intervals.Bins(
        np.ascontiguousarray(by_column.T),
        orders.astype(np.int32),
        np.ascontiguousarray(problem.losses[:, :n_actions]),
        n_bins,
        starts,
        firsts,
        np.concatenate([column.n_below for column in columns]),
        np.concatenate([np.append(column.divisible, False) for column in columns]),
        np.concatenate([column.between for column in columns]),
        np.append(0, np.cumsum([len(some) for some in options])),
        low,
        high,
        problem.penalty,
    )
    most = int(n_bins.max()) + 1
    room = intervals.Room(
        np.empty(firsts[-1]),
        np.empty(firsts[-1]),
        np.empty((firsts[-1], n_actions)),
        np.empty((n_actions, most)),
        np.empty((n_actions, most)),
        np.empty((4, most, most)),
        np.empty((2, int(cells.sum()) * n_actions)),
        np.empty(most),
        np.empty(most),
        np.empty((most, 2), dtype=np.int64),
    )
    return float(intervals.least_cost(bins, room, depth, stop))
