"""Behaviour-policy probabilities: logged, or cross-fitted on other episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.data.transitions import Transitions
from capi.policies import one_hot
from capi.policies.behaviour import cross_fitted

RARE = 0.01
N_BINS = 10
MISCALIBRATED = 0.03  # mean difference between predicted and observed shares above which there may be a warning


@dataclass(frozen=True, eq=False)
class Behaviour:
    """The probability of each logged action, and how well calibrated it is."""

    probability: Floats  # (n,) of the logged action
    given: bool  # whether the log gives them; otherwise they are estimated
    calibration_error: float  # mean difference between predicted and observed shares of actions; NaN if given
    expected_error: float  # calibration error expected by chance alone
    rare: float  # share of rows whose action had a probability below `RARE`

    @property
    def is_miscalibrated(self) -> bool:
        """Whether predicted and observed shares differ by more than chance explains, and by enough to matter."""
        return self.calibration_error > max(MISCALIBRATED, 2 * self.expected_error)

    def __str__(self) -> str:
        if self.given:
            return "behaviour probabilities: from the log"
        return (
            "behaviour probabilities: estimated on other episodes; predicted and observed shares of actions differ by "
            f"{100 * self.calibration_error:.1f} % on average (chance alone: {100 * self.expected_error:.1f} %)"
        )


def behaviour_of(
    batch: Transitions, fold_of_row: Ints, classifier: Any, rng: np.random.Generator, n_jobs: int | None
) -> Behaviour:
    """Return the probabilities of the logged actions; estimates for a row come from the folds that do not contain it.

    ``fold_of_row`` (n,) numbers the folds from 0. ``classifier`` is a scikit-learn classifier, or None to use the log's own probabilities if it
    has them, and trees otherwise.
    """
    if batch.propensities is not None and classifier is None:
        rare = float((batch.propensities < RARE).mean())
        return Behaviour(batch.propensities, given=True, calibration_error=np.nan, expected_error=np.nan, rare=rare)
    predicted, _ = cross_fitted(batch, fold_of_row, classifier, rng, n_jobs)
    taken = np.take_along_axis(predicted, batch.actions[:, None], axis=1)[:, 0]
    error, chance = calibration(predicted, batch.actions)
    return Behaviour(taken, False, error, chance, float((taken < RARE).mean()))


def calibration(predicted: Floats, actions: Ints) -> tuple[float, float]:
    """Return the mean difference between predicted (n, A) and observed shares in bins of equal size, and its expectation under chance alone."""
    edges = bin_edges(predicted)
    return calibration_of_bins(binned(predicted, actions, edges), len(predicted))


def bin_edges(predicted: Floats) -> list[Floats]:
    """Return the edges of bins of equal size for the predicted shares (n, A) of each action; equal predictions go into the same bin."""
    at = np.arange(1, N_BINS) * len(predicted) // N_BINS
    return [np.unique(np.sort(p)[at]) for p in predicted.T]


def binned(predicted: Floats, actions: Ints, edges: list[Floats]) -> Floats:
    """Return the rows in each bin, the sum of their predicted shares, and how many took the action (3, A, bins); sums over rows."""
    found = np.zeros((3, len(edges), N_BINS))
    taken = one_hot(actions, len(edges))
    for a, cuts in enumerate(edges):
        bins = np.searchsorted(cuts, predicted[:, a], side="right")
        for sums, weights in zip(found, (None, predicted[:, a], taken[:, a]), strict=True):
            sums[a] = np.bincount(bins, weights=weights, minlength=N_BINS)
    return found


def calibration_of_bins(bins: Floats, n_rows: int) -> tuple[float, float]:
    """Return the `calibration` from the sums in bins (3, A, bins) over ``n_rows`` rows."""
    sizes, sums, observed = bins
    # mean absolute value of a normal variable
    spread = np.sqrt(2 / np.pi * sums * np.maximum(1 - sums / np.maximum(sizes, 1), 0.0))
    n = n_rows * len(sizes)
    return float(np.abs(sums - observed).sum()) / n, float(spread.sum()) / n
