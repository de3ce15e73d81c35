"""An estimate with its uncertainty: from resampled episodes, and from the influence of each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from capi._utils.validation import Floats

MOST_LOST = 0.1  # largest share of resamples without an estimate for which there is a bootstrap interval


@dataclass(frozen=True, eq=False)
class Spread:
    """The influence of the episodes of a log in parts on some estimates, as far as intervals need it."""

    n_episodes: int
    products: Floats = field(repr=False)  # (m, m) sums of products of the influences on m estimates, minus their means
    of: Floats  # (m,) this estimate as a combination of the m: one of them, or a difference
    largest: Floats = field(repr=False)  # (m,) influence of an episode on each of the m
    squares: Floats = field(repr=False)  # (m,) sum of the squares

    def __len__(self) -> int:
        return self.n_episodes

    def __sub__(self, other: Spread) -> Spread:
        return Spread(self.n_episodes, self.products, self.of - other.of, self.largest, self.squares)

    def deviation(self) -> float:
        """Return the standard deviation of the influence."""
        used = np.flatnonzero(self.of)  # others may be NaN
        total = float(self.of[used] @ self.products[np.ix_(used, used)] @ self.of[used])
        return math.sqrt(max(total, 0.0) / (self.n_episodes - 1)) if math.isfinite(total) else math.nan


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number with its uncertainty.

    Parameters
    ----------
    value : float
        NaN if the data allow no estimate.
    draws : array of shape (B,)
        The same estimate on resampled episodes.
    influence : array of shape (E,), or Spread
        How much each episode moves the estimate; of a log in parts, the spread of that.
    level : float
        Confidence level of the intervals.
    """

    value: float
    draws: Floats = field(repr=False)
    influence: Floats | Spread = field(repr=False)
    level: float

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return len(self.influence)

    @property
    def standard_error(self) -> float:
        """The standard error, from the influence function; NaN for a single episode."""
        n, moved = len(self.influence), self.influence
        if n < 2:
            return math.nan
        deviation = moved.deviation() if isinstance(moved, Spread) else float(np.std(moved, ddof=1))
        return deviation / math.sqrt(n)

    @property
    def most_influential(self) -> tuple[float, float]:
        """The size of the largest influence of an episode, and its share of all squared influences."""
        moved = self.influence
        if isinstance(moved, Spread):
            at = int(np.argmax(np.abs(moved.of)))
            largest, squares = float(moved.largest[at]), float(moved.squares[at])
            return largest, largest**2 / squares if squares > 0 else 0.0
        sizes = np.abs(moved)
        largest = float(sizes.max())
        return largest, 1 / float(np.square(sizes / largest).sum()) if largest > 0 else 0.0

    @property
    def asymptotic(self) -> tuple[float, float]:
        """The interval from asymptotic theory."""
        n = len(self.influence)
        half = float(stats.t.ppf((1 + self.level) / 2, n - 1)) * self.standard_error if n > 1 else math.nan
        return self.value - half, self.value + half

    @property
    def bootstrap(self) -> tuple[float, float]:
        """The interval between quantiles of the resampled estimates, widened by the ratio of a t to a normal interval for as many episodes."""
        known = self.draws[np.isfinite(self.draws)]
        if not math.isfinite(self.value) or len(known) < max((1 - MOST_LOST) * len(self.draws), 2):
            return math.nan, math.nan
        n, above = len(self.influence), (1 + self.level) / 2
        ends = np.quantile(known, [1 - above, above], method="weibull")
        wider = float(stats.t.ppf(above, n - 1) / stats.norm.ppf(above)) * math.sqrt(n / (n - 1)) if n > 1 else 1.0
        low, high = self.value + wider * (ends - self.value)
        return float(low), float(high)

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the paired difference: both estimates use the same episodes and the same resamples."""
        moved: Any = self.influence
        return Estimate(self.value - other.value, self.draws - other.draws, moved - other.influence, self.level)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values, with None for those that are not finite."""
        (low, high), (low_asymptotic, high_asymptotic) = self.bootstrap, self.asymptotic
        numbers = {
            "estimate": self.value,
            "standard_error": self.standard_error,
            "low": low,
            "high": high,
            "low_asymptotic": low_asymptotic,
            "high_asymptotic": high_asymptotic,
        }
        return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
