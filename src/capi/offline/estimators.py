r"""Estimators as functions of the counts of the episodes.

Every estimate here is a function v(c) of the counts c (E,) of the episodes. It can be resampled by drawing c, and it has an influence
function, its derivative in c: :math:`v(c) \approx v(c_0) + \sum_i (c_i - c_{0,i})\, \phi_i / \sum_i c_{0,i}`. The spread of the influence
gives the asymptotic interval. ``docs/evidence.md`` derives each estimator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

from capi._utils.validation import Floats
from capi.offline.importance_weights import Weights

MOST_SUMS = 1_000_000  # steps x count vectors held in memory at once


class Estimator(Protocol):
    """An estimate as a function of the counts of the episodes."""

    def values(self, counts: Floats) -> Floats:
        """Return the estimate for each of several count vectors; ``counts`` (B, E) -> (B,)."""

    def influence(self, counts: Floats) -> Floats:
        """Return the derivative with respect to each episode's count, times the sum of the counts (E,)."""


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums over episodes that estimates are functions of, for B count vectors; those of several parts of a log add up."""

    counts: Floats  # (B,)
    numbers: Floats  # (B,) of the episodes' numbers
    above: Floats  # (B, H) numerators and
    below: Floats  # (B, H) denominators of the steps' ratios; H = 0 without ratios
    corrected: bool  # whether the ratios only correct a model

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.counts + other.counts,
            self.numbers + other.numbers,
            self.above + other.above,
            self.below + other.below,
            self.corrected,
        )

    @classmethod
    def concatenated(cls, blocks: Sequence[Sums]) -> Sums:
        """Return the sums for the count vectors of several blocks."""
        return cls(
            np.concatenate([one.counts for one in blocks]),
            np.concatenate([one.numbers for one in blocks]),
            np.concatenate([one.above for one in blocks]),
            np.concatenate([one.below for one in blocks]),
            blocks[0].corrected,
        )

    def values(self) -> Floats:
        """Return the estimates (B,)."""
        return self.numbers / self.counts + self.ratios()

    def ratios(self) -> Floats:
        """Return the sum of the steps' ratios (B,).

        A step at which no episode has weight adds nothing to a `corrected` estimate; without a model to correct, the estimate is NaN.
        """
        none = np.full_like(self.above, 0.0 if self.corrected else np.nan)
        return np.divide(self.above, self.below, out=none, where=self.below > 0).sum(axis=1)


@dataclass(frozen=True, eq=False)
class MeanOfEpisodes:
    """The mean of one number per episode: per-decision importance sampling, doubly robust estimation, the mean return."""

    numbers: Floats  # (E,)

    def sums(self, counts: Floats) -> Sums:
        """Return the sums for each of several count vectors (B, E)."""
        none = np.zeros((len(counts), 0))
        return Sums(counts.sum(axis=1), counts @ self.numbers, none, none, corrected=True)

    def values(self, counts: Floats) -> Floats:
        """Return the weighted means (B,)."""
        return self.sums(counts).values()

    def influence(self, counts: Floats, whole: Sums | None = None) -> Floats:
        """Return the deviation of each episode's number from the mean (E,), which is that of ``whole``, if these are parts of a log."""
        return self.numbers - float((self.sums(counts[None]) if whole is None else whole).values()[0])


@dataclass(frozen=True, eq=False)
class SumOfRatios:
    r"""A mean of episodes plus, step by step, weighted means: :math:`\bar z + \sum_t \sum_i c_i w_{it} u_{it} / \sum_i c_i w_{it}`.

    With discounted rewards as u, this is weighted per-decision importance sampling; with a single step, the whole return, weighted importance
    sampling; with temporal differences, weighted doubly robust estimation. Episodes that have ended contribute their last weight to the
    denominator and zero to the numerator.
    """

    means: Floats  # (E,) z
    above: sparse.csr_matrix  # (E, H) w u
    below: sparse.csr_matrix  # (E, H) w
    ended: sparse.csr_matrix  # (E, H) the last weight, in the column after the end
    corrected: bool = False  # whether the ratios only correct a model

    @classmethod
    def by_step(cls, weights: Weights, numbers: Floats, means: Floats | None = None) -> SumOfRatios:
        """Return the estimate of ``numbers`` (n,), one discounted number per row, which correct ``means`` (E,) if given."""
        w = weights.of_rows
        base = np.zeros(len(weights.episodes)) if means is None else means
        above, below, ended = weights.by_time(w * numbers), weights.by_time(w), weights.ended(weights.of_episodes)
        return cls(base, above, below, ended, corrected=means is not None)

    @classmethod
    def of_whole(cls, weights: Weights, numbers: Floats) -> SumOfRatios:
        """Return the weighted mean of ``numbers`` (E,), one per whole episode."""
        w = weights.of_episodes
        nothing = sparse.csr_matrix((len(w), 1))
        return cls(np.zeros(len(w)), sparse.csr_matrix((w * numbers)[:, None]), sparse.csr_matrix(w[:, None]), nothing)

    def sums(self, counts: Floats) -> Sums:
        """Return the sums for each of several count vectors (B, E)."""
        over = np.cumsum(_product(counts, self.ended), axis=1)
        above, below = _product(counts, self.above), _product(counts, self.below) + over
        return Sums(counts.sum(axis=1), counts @ self.means, above, below, self.corrected)

    def values(self, counts: Floats) -> Floats:
        """Return the estimates (B,)."""
        at_once = max(1, MOST_SUMS // self.above.shape[1])
        ratios = [self.sums(counts[i : i + at_once]).ratios() for i in range(0, len(counts), at_once)]
        return counts @ self.means / counts.sum(axis=1) + np.concatenate(ratios)

    def influence(self, counts: Floats, whole: Sums | None = None) -> Floats:
        """Return the derivative of the ratios and of the mean (E,), at the sums ``whole`` of all episodes, if these are parts of a log."""
        sums = self.sums(counts[None]) if whole is None else whole
        above, below, total = sums.above[0], sums.below[0], float(sums.counts[0])
        inverse = np.divide(1.0, below, out=np.zeros_like(below), where=below > 0)
        slope = above * inverse * inverse
        later = np.cumsum(slope[::-1])[::-1]  # an episode that has ended counts at all later steps
        of_ratios = self.above @ inverse - self.below @ slope - self.ended @ later
        return self.means - float(sums.numbers[0]) / total + total * of_ratios


def _product(counts: Floats, matrix: sparse.csr_matrix) -> Floats:
    """Return ``counts @ matrix`` (B, H)."""
    return np.asarray((matrix.T @ counts.T).T)
