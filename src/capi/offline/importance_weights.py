r"""Importance weights: how much more likely the logged actions are under a policy than under the behaviour policy.

The ratio of a decision is :math:`\rho = \pi(a|x) / b(a|x)`, and the weight of an episode's first t+1 decisions is their product
:math:`w_t = \rho_0 \cdots \rho_t`. After an episode has ended there are no more decisions, so its weight stays constant:
:math:`E[w_t] = 1` at every t only if episodes that have ended still count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from capi._utils.validation import Floats
from capi.offline.episodes import Episodes

ENOUGH = 20  # effective episodes that a doubly robust estimate needs, or half of all episodes if that is fewer
LARGEST_LOG = 300.0  # of a weight: the squares of larger weights overflow float64


@dataclass(frozen=True, eq=False)
class Overlap:
    """Sums of importance weights, which say how well a policy and a log overlap; those of several parts of a log add up."""

    totals: Floats  # (H,) sum of the weights at each step; episodes that have ended keep their last weight
    squares: Floats  # (H,) of the squares
    largest_log: float  # the logarithm of the largest weight
    whole: float  # sum of the weights of whole episodes
    heaviest: float  # the largest of them
    counts: float  # sum of the episodes' own weights
    n_at_step: Floats  # (H,) rows at each step
    elapsed: Floats  # (H,) sum of the times at which they come
    discount: float

    def __add__(self, other: Overlap) -> Overlap:
        return Overlap(
            self.totals + other.totals,
            self.squares + other.squares,
            max(self.largest_log, other.largest_log),
            self.whole + other.whole,
            max(self.heaviest, other.heaviest),
            self.counts + other.counts,
            self.n_at_step + other.n_at_step,
            self.elapsed + other.elapsed,
            self.discount,
        )

    @property
    def overflows(self) -> bool:
        """Whether the weights are too large for float64 arithmetic."""
        return self.largest_log > LARGEST_LOG

    @property
    def effective_episodes(self) -> float:
        r"""Kish's effective number of episodes, :math:`(\sum w)^2 / \sum w^2` at each step, averaged over steps with the discount as weight.

        A step's weight is the discount to the power of the mean time at which episodes reach it.
        """
        if self.overflows:
            return 0.0
        sizes = np.divide(self.totals**2, self.squares, out=np.zeros_like(self.totals), where=self.squares > 0)
        return float(np.average(sizes, weights=np.power(self.discount, self.elapsed / self.n_at_step)))

    @property
    def lost_after(self) -> int | None:
        """The first step, counted from 0, at which no episode has any weight left; None if there is no such step."""
        gone = np.flatnonzero(self.totals == 0)
        return int(gone[0]) if len(gone) else None

    @property
    def largest_share(self) -> float:
        """The share of the heaviest episode in the sum of the episodes' weights."""
        return float(self.heaviest / self.whole) if self.whole > 0 else 1.0

    @property
    def mean(self) -> float:
        """The mean weight of a whole episode; 0 if the weights overflow."""
        return 0.0 if self.overflows else self.whole / self.counts


@dataclass(frozen=True, eq=False)
class Weights:
    """The importance weights of a policy in all rows of a log."""

    episodes: Episodes
    ratios: Floats  # (n,)

    @property
    def overflows(self) -> bool:
        """Whether the weights are too large for float64 arithmetic."""
        return self.overlap.overflows

    @property
    def effective_episodes(self) -> float:
        """Kish's effective number of episodes, averaged over steps."""
        return self.overlap.effective_episodes

    @cached_property
    def of_rows(self) -> Floats:
        """The product of the ratios up to each row of its episode (n,); zero where it is too small to divide by."""
        with np.errstate(over="ignore"):
            return np.where(self._logs >= -LARGEST_LOG, np.exp(self._logs), 0.0)

    @cached_property
    def of_episodes(self) -> Floats:
        """The weight of each whole episode (E,)."""
        return self.of_rows[self.episodes.last]

    def by_time(self, values: Floats) -> sparse.csr_matrix:
        """Return ``values`` (n,) as a matrix with one row per episode and one column per step (E, H)."""
        e = self.episodes
        shape = (len(e), e.extent.n_steps)
        return sparse.csr_matrix((values, e.time, np.append(e.starts, len(values))), shape=shape)

    def ended(self, values: Floats) -> sparse.csr_matrix:
        """Return ``values`` (E,) in the column of the first step after each episode's end (E, H), for cumulative sums over later steps."""
        e = self.episodes
        n_steps = e.extent.n_steps
        there = np.flatnonzero(e.lengths < n_steps)
        return sparse.csr_matrix((values[there], (there, e.lengths[there])), shape=(len(e), n_steps))

    @cached_property
    def overlap(self) -> Overlap:
        """The sums that say how well the policy and the log overlap."""
        e, n_steps = self.episodes, self.episodes.extent.n_steps
        with np.errstate(over="ignore", invalid="ignore"):  # `overflows` says so
            of = e.weights * self.of_episodes
            return Overlap(
                self._totals(e.weights, self.of_rows, self.of_episodes),
                self._totals(e.weights**2, self.of_rows**2, self.of_episodes**2),
                float(self._logs.max()),
                float(of.sum()),
                float(of.max()),
                float(e.weights.sum()),
                np.bincount(e.time, minlength=n_steps).astype(np.float64),
                np.asarray(np.bincount(e.time, weights=e.elapsed, minlength=n_steps), dtype=np.float64),
                e.discount,
            )

    def _totals(self, counted: Floats, of_rows: Floats, of_episodes: Floats) -> Floats:
        return counted @ self.by_time(of_rows) + np.cumsum(counted @ self.ended(of_episodes))

    @cached_property
    def _logs(self) -> Floats:
        """Logarithms of the weights (n,); decisions with discount factor zero (discount 0) do not contribute."""
        e = self.episodes
        ratios = np.where(e.worth > 0, self.ratios, 1.0)
        lost = ratios == 0
        sizes = np.finfo(np.float64)
        logs = np.where(lost, 0.0, np.log(np.clip(ratios, sizes.tiny, sizes.max)))
        return np.where(_running(lost.astype(np.int64), e) > 0, -np.inf, _running(logs, e))


def enough_overlap(effective_episodes: float, n_episodes: int) -> bool:
    """Return whether a policy and a log of ``n_episodes`` overlap enough for weighted estimates."""
    return effective_episodes >= min(ENOUGH, n_episodes / 2)


def _running(values: np.ndarray[tuple[int, ...], Any], episodes: Episodes) -> Any:
    """Return the sums of ``values`` (n,) from the start of each row's episode to the row (n,)."""
    steps, starts = values.copy(), episodes.starts
    steps[starts[1:]] -= np.add.reduceat(values, starts)[:-1]  # keeps sums small, however long the log is
    return np.cumsum(steps)
