"""Tables with few cuts as columns of zeros and ones: the best tree is found by comparing all of them.

The kernels are in `capi.trees._optimal.binary`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.threads import in_threads
from capi._utils.validation import Bools, Floats, Ints
from capi.policy_spaces.trees._binned import Binned
from capi.trees._optimal import binary
from capi.trees._optimal.records import Problem

DEEPEST = 4
MOST_COLUMNS = 1000
MOST_NUMBERS = 2**23  # in the buffers of one thread
BEST_OF = {1: binary.best_of_depth_one, 2: binary.best_of_depth_two, 3: binary.best_of_depth_three}
Splits = Any  # (v, t, left, right); None is a leaf


def steps_for(n: int, n_bins: Ints, n_actions: int, depth: int) -> float:
    """Return the estimated number of steps (about 10^9 per second) to compare all trees; infinity if they need too much memory."""
    k, d = float((n_bins - 1).sum()), float(n_actions - 1)
    if n_actions < 2 or k > MOST_COLUMNS or n * k > MOST_NUMBERS or depth > DEEPEST or k * k * (d + 4) > MOST_NUMBERS:
        return np.inf
    adding = {1: k, 2: k**2 / 4, 3: k**2 / 4 + k**3 / 24, 4: k * (k**2 / 4 + k**3 / 24)}[depth]
    comparing = {1: k, 2: k**2, 3: k**3, 4: 2 * k**4}[depth]
    return 0.7 * n * d * adding + 0.5 * comparing * (d + 1)


def steps_of_tables(n: int, n_bins: Ints, n_actions: int, depth: int) -> float:
    """Return the estimated steps to find the best tree with tables of all pairs of features."""
    cuts, squares = float(n_bins.sum()), float(np.square(n_bins).sum())
    adding, reading = 1.5 * n * len(n_bins) ** 2 * (n_actions + 2), 2.5 * (cuts**2 + squares) * n_actions
    return {1: n, 2: adding + reading, 3: len(n_bins) * adding + cuts * reading}.get(
        depth, cuts * (len(n_bins) * adding + cuts * reading)
    )


@dataclass(frozen=True, eq=False)
class Indicators:
    """The cuts of all features as columns, and the rows of the table, each kind of row once."""

    columns: binary.Columns
    cuts: Ints  # (K, 2) the feature and the cut of each column
    flipped: Bools  # (K,) whether ones go left
    constant: float  # the loss of the first action on all rows
    stop: Ints  # (1,)

    @classmethod
    def of(cls, problem: Problem, binned: Binned, stop: Ints) -> Indicators:
        """Return the columns of a problem; columns that separate the same rows are kept once."""
        columns, cuts, seen = [], [], set()
        for v, n_bins in enumerate(binned.n_bins):
            for t in range(int(n_bins) - 1):
                right = binned.codes[:, v] > t
                key = np.packbits(right ^ right[0]).tobytes()
                if key in seen or not (right ^ right[0]).any():
                    continue
                seen.add(key)
                columns.append(right)
                cuts.append((v, t))
        ones = np.stack(columns, axis=1) if columns else np.zeros((len(binned.codes), 0), dtype=bool)
        flipped = 2 * ones.sum(axis=0) > len(ones)
        n_others = problem.n_actions - 1
        losses = problem.losses
        steps = np.column_stack([losses[:, 1 : problem.n_actions] - losses[:, :1], losses[:, problem.n_actions :]])
        ones, steps = _merged(ones ^ flipped, steps)
        return cls(
            binary.Columns(
                ones.astype(np.float64), np.ascontiguousarray(steps), n_others, problem.penalty, problem.min_leaf
            ),
            np.array(cuts, dtype=np.int64).reshape(-1, 2),
            flipped,
            float(losses[:, 0].sum()),
            stop,
        )

    def relaxed(self) -> Indicators:
        """Return the same problem without a minimum size of leaves."""
        return replace(self, columns=self.columns._replace(min_leaf=1))

    def best(self, depth: int, n_jobs: int) -> tuple[Splits, float] | None:
        """Return the best tree and its cost; None if the search was stopped."""
        rows = np.arange(len(self.columns.ones))
        rooms = [self._room() for _ in range(n_jobs)]
        cost, column = self._first(rows, depth, rooms)
        if self.stop[0] != 0:
            return None
        splits = self._tree(rows, depth, column, rooms)
        return None if self.stop[0] != 0 else (splits, cost + self.constant)

    def _first(self, rows: Ints, depth: int, rooms: list[binary.Room]) -> tuple[float, int]:
        """Return the least cost of a tree of these rows, and its first column."""
        if depth < DEEPEST:
            return BEST_OF[depth](self.columns, rooms[0], rows)

        def tried(k: int) -> tuple[float, int]:
            if self.stop[0] != 0:
                return np.inf, k
            room, high = rooms.pop(), self.columns.ones[rows, k] > 0
            sides = [BEST_OF[depth - 1](self.columns, room, rows[side])[0] for side in (high, ~high)]
            rooms.append(room)
            return sum(sides) if self._large_enough(rows, high) else np.inf, k

        whole = min(0.0, *self.columns.steps[rows, : self.columns.n_others].sum(axis=0)) + self.columns.penalty
        cost, column = min(in_threads(tried, list(range(len(self.cuts))), len(rooms)), default=(np.inf, 0))
        return (cost, column) if cost < whole else (whole, binary.NO_COLUMN)

    def _large_enough(self, rows: Ints, high: Bools) -> bool:
        """Return whether both sides have enough rows for a leaf."""
        if self.columns.min_leaf < 2:
            return True
        counts = self.columns.steps[rows, -1]
        return bool(min(counts[high].sum(), counts[~high].sum()) >= self.columns.min_leaf)

    def _tree(self, rows: Ints, depth: int, column: int, rooms: list[binary.Room]) -> Splits:
        """Return the tree that starts with a column, whose sides are the best trees of their rows."""
        if column == binary.NO_COLUMN or self.stop[0] != 0:
            return None
        high = self.columns.ones[rows, column] > 0
        v, t = (int(number) for number in self.cuts[column])
        if depth == 1:
            return v, t, None, None
        sides = [rows[~high], rows[high]]
        low, up = (self._tree(side, depth - 1, self._first(side, depth - 1, rooms)[1], rooms) for side in sides)
        return (v, t, up, low) if self.flipped[column] else (v, t, low, up)

    def _room(self) -> binary.Room:
        n, k = self.columns.ones.shape
        d = self.columns.steps.shape[1]
        return binary.Room(
            rows=np.empty((2, n), dtype=np.int64),
            total=np.empty(d),
            one=np.empty((d, k)),
            two=np.empty((k, d, k)),
            three=np.empty((d, k)),
            cells=np.empty((8, k)),
            pairs=np.empty((4, k, k)),
            sides=np.empty((2, k)),
            stop=self.stop,
        )


def _merged(ones: Bools, steps: Floats) -> tuple[Bools, Floats]:
    """Return the rows with equal ones once, with the sum of their steps; rows whose steps are zero do not matter."""
    matter = np.flatnonzero((steps != 0).any(axis=1))
    ones, steps = ones[matter], steps[matter]
    if len(ones) < 2 or ones.shape[1] == 0:
        return ones, steps
    keys: NDArray[Any] = np.packbits(ones, axis=1)
    wide = np.zeros((len(keys), -(-keys.shape[1] // 8) * 8), dtype=np.uint8)
    wide[:, : keys.shape[1]] = keys
    words = wide.view(np.uint64)
    whole = words[:, 0] if words.shape[1] == 1 else np.ascontiguousarray(words).view(f"V{8 * words.shape[1]}")[:, 0]
    _, first, kind = np.unique(whole, return_index=True, return_inverse=True)
    if len(first) > 0.9 * len(ones):
        return ones, steps
    merged: Floats = np.stack(
        [np.bincount(kind, weights=column, minlength=len(first)).astype(np.float64) for column in steps.T], axis=1
    )
    return ones[first], merged
