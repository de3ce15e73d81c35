"""Sums over the rows of a batch that a description needs: of one part, merged with others, and finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.data.origin import Origin
from capi.data.summary.coverage import SimilarStates

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

MOST_VALUES = 100_000  # distinct numbers that are counted one by one
DIGITS = 17  # binary ones that are kept of more distinct numbers


@dataclass(frozen=True, eq=False)
class Counts:
    """Distinct numbers, in order, and how often each occurs; more than `MOST_VALUES` are rounded, to at least 1 part in 100,000."""

    values: Floats
    counts: Ints
    least: float = np.inf
    greatest: float = -np.inf
    rounded: bool = False

    @classmethod
    def of(cls, values: Floats) -> Counts:
        """Return the counts of some numbers."""
        if not len(values):
            return cls(np.zeros(0), np.zeros(0, dtype=np.int64))
        distinct, counts = np.unique(values, return_counts=True)
        return cls(distinct, counts, float(distinct[0]), float(distinct[-1]))._limited()

    def __add__(self, other: Counts) -> Counts:
        values, place = np.unique(np.append(self.values, other.values), return_inverse=True)
        counts = np.zeros(len(values), dtype=np.int64)
        np.add.at(counts, place, np.append(self.counts, other.counts))
        ends = min(self.least, other.least), max(self.greatest, other.greatest)
        return Counts(values, counts, *ends, self.rounded or other.rounded)._limited()

    def _limited(self) -> Counts:
        if len(self.values) <= MOST_VALUES and not self.rounded:  # so that the result does not depend on the parts
            return self
        fraction, exponent = np.frexp(self.values)
        rounded = np.ldexp(np.rint(np.ldexp(fraction, DIGITS)), exponent - DIGITS)
        values, place = np.unique(rounded, return_inverse=True)
        counts = np.zeros(len(values), dtype=np.int64)
        np.add.at(counts, place, self.counts)
        return Counts(values, counts, self.least, self.greatest, True)

    def spread(self) -> dict[str, float]:
        """Return the smallest, the median and the largest number."""
        ends, n = np.cumsum(self.counts), int(self.counts.sum())
        middle = [float(self.values[np.searchsorted(ends, k, side="right")]) for k in ((n - 1) // 2, n // 2)]
        return {"least": self.least, "median": (middle[0] + middle[1]) / 2, "greatest": self.greatest}


@dataclass(frozen=True)
class Moments:
    """Number, mean and variance of some numbers, and their range."""

    n: int
    mean: float
    variance: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Floats) -> Moments:
        """Return the moments of some numbers."""
        return cls(len(values), float(np.mean(values)), float(np.var(values)), float(values.min()), float(values.max()))

    def __add__(self, other: Moments) -> Moments:
        n = self.n + other.n
        share, apart = other.n / n, other.mean - self.mean
        variance = (1 - share) * self.variance + share * other.variance + share * (1 - share) * apart**2
        ends = min(self.least, other.least), max(self.greatest, other.greatest)
        return Moments(n, self.mean + share * apart, variance, *ends)

    def spread(self) -> dict[str, float]:
        """Return the smallest number, the mean, the largest number and the standard deviation."""
        deviation = float(np.sqrt(self.variance))
        return {"least": self.least, "mean": self.mean, "greatest": self.greatest, "deviation": deviation}


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over the rows of a part, or of all parts."""

    n_rows: int
    n_episodes: int
    n_terminated: int
    n_only_next: int
    ends: str  # how the ends of the episodes were found
    lengths: Counts
    rewards: Moments
    steps: Counts | None  # elapsed times to states that something follows; None if every step counts the same
    missing: Ints  # (columns,)
    actions: Ints  # (A,)
    in_groups: Floats  # (nodes, A) weight of each action's rows in each group of similar states
    later: Mapping[str, tuple[int, int]]  # as in `Origin`

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.n_rows + other.n_rows,
            self.n_episodes + other.n_episodes,
            self.n_terminated + other.n_terminated,
            self.n_only_next + other.n_only_next,
            self.ends,
            self.lengths + other.lengths,
            self.rewards + other.rewards,
            None if self.steps is None or other.steps is None else self.steps + other.steps,
            self.missing + other.missing,
            self.actions + other.actions,
            self.in_groups + other.in_groups,
            _together(self.later, other.later),
        )

    def with_table(self, origin: Origin) -> Tally:
        """Return the sums with those that a table states about its rows."""
        return replace(
            self, n_only_next=self.n_only_next + origin.n_only_next, later=_together(self.later, origin.later)
        )


def tally(batch: Transitions, groups: SimilarStates, *, with_table: bool = True) -> Tally:
    """Return the sums over the rows of a batch; without those of its table if other parts were read from the same one."""
    origin = batch.origin
    first_features = np.cumsum([0, *(len(column.feature_names) for column in batch.schema.columns)])[:-1]
    return Tally(
        len(batch),
        batch.n_episodes,
        int(batch.terminated.sum()),
        0 if origin is None or not with_table else origin.n_only_next,
        "" if origin is None else origin.ends,
        Counts.of(batch.episode_lengths.astype(np.float64)),
        Moments.of(batch.rewards),
        None if batch.elapsed is None else Counts.of(batch.elapsed[~batch.terminated]),
        np.array([int(np.isnan(batch.states[:, j]).sum()) for j in first_features], dtype=np.int64),
        np.bincount(batch.actions, minlength=batch.n_actions),
        groups.counts(batch, groups.leaves(batch.states)),
        {} if origin is None or not with_table else origin.later,
    )


def _together(later: Mapping[str, tuple[int, int]], more: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    found = dict(later)
    for name, (count, known) in more.items():
        before = found.get(name, (0, 0))
        found[name] = before[0] + count, before[1] + known
    return found
