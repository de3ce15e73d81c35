"""Behaviour-policy probabilities: logged, or cross-fitted on other episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from capi._utils.threads import n_threads
from capi._utils.validation import Bools, Floats, Ints
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.policies import one_hot
from capi.trees.forest import Growth, grow
from capi.trees.ranks import encode

N_TREES = 60
LEAF_SIZES = (5, 15, 50, 150, 500)  # rows; the size with the best likelihood on held-out episodes is used
FEW_TREES, MANY_ROWS = 15, 200_000  # fewer trees are enough for more rows
ENOUGH_ROWS = 50_000  # rows that are enough to choose the leaf size
MIXED_IN = 0.01  # share of the uniform distribution, which keeps all probabilities positive
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
    predicted = np.empty((len(batch), batch.n_actions))
    folds = [(np.flatnonzero(fold_of_row != k), np.flatnonzero(fold_of_row == k)) for k in range(fold_of_row.max() + 1)]
    threads = n_threads(n_jobs)
    leaf_size = None if classifier is not None else _leaf_size(batch, *folds[0], rng, threads)
    for rest, fold in folds:
        if leaf_size is None:
            predicted[fold] = _by_classifier(classifier, batch, rest, fold, rng)
        else:
            predicted[fold] = _by_trees(batch, rest, fold, leaf_size, rng, threads)
    predicted = _mixed(predicted, batch.allowed)
    taken = np.take_along_axis(predicted, batch.actions[:, None], axis=1)[:, 0]
    error, chance = calibration(predicted, batch.actions)
    return Behaviour(taken, False, error, chance, float((taken < RARE).mean()))


def calibration(predicted: Floats, actions: Ints) -> tuple[float, float]:
    """Return the mean difference between predicted (n, A) and observed shares in bins of equal size, and its expectation under chance alone."""
    n, n_actions = predicted.shape
    found = chance = 0.0
    for p, taken in zip(predicted.T, one_hot(actions, n_actions).T, strict=True):
        edges = np.unique(np.sort(p)[np.arange(1, N_BINS) * n // N_BINS])  # equal predictions go into the same bin
        bins = np.searchsorted(edges, p, side="right")
        sizes = np.bincount(bins)
        sums, observed = np.bincount(bins, weights=p), np.bincount(bins, weights=taken)
        found += float(np.abs(sums - observed).sum()) / n
        # mean absolute value of a normal variable
        spread = np.sqrt(2 / np.pi * sums * np.maximum(1 - sums / np.maximum(sizes, 1), 0.0))
        chance += float(spread.sum()) / n
    return found / n_actions, chance / n_actions


def _leaf_size(batch: Transitions, rest: Ints, fold: Ints, rng: np.random.Generator, n_jobs: int) -> int:
    """Return the leaf size whose trees, grown on ``rest``, give the actions of ``fold`` the highest likelihood; large logs are subsampled."""
    rest, fold = (rows[:: 1 + len(rows) // ENOUGH_ROWS] for rows in (rest, fold))
    sizes = [size for size in LEAF_SIZES if size == LEAF_SIZES[0] or 4 * size <= len(rest)]
    likelihoods = []
    for size in sizes:
        mask = None if batch.allowed is None else batch.allowed[fold]
        predicted = _mixed(_by_trees(batch, rest, fold, size, rng, n_jobs), mask)
        taken = np.take_along_axis(predicted, batch.actions[fold][:, None], axis=1)
        likelihoods.append(float(np.log(taken).mean()))
    return sizes[int(np.argmax(likelihoods))]


def _by_trees(
    batch: Transitions, rest: Ints, fold: Ints, leaf_size: int, rng: np.random.Generator, n_jobs: int
) -> Floats:
    growth = Growth(
        n_trees=N_TREES if len(rest) <= MANY_ROWS else FEW_TREES,
        n_candidates=batch.n_features,
        min_samples_split=2 * leaf_size,
        min_samples_leaf=leaf_size,
    )
    outputs = one_hot(batch.actions[rest], batch.n_actions)
    weights = None if batch.weights is None else batch.weights[rest]
    forest = grow(encode(batch.states[rest], n_jobs), outputs, growth, rng, weights=weights, n_jobs=n_jobs)
    return forest.mean_values(batch.states[fold], n_jobs)


def _by_classifier(classifier: Any, batch: Transitions, rest: Ints, fold: Ints, rng: np.random.Generator) -> Floats:
    needed = ("fit", "predict_proba", "get_params")
    if isinstance(classifier, type) or not all(hasattr(classifier, name) for name in needed):
        raise InvalidInputError(
            f"behaviour must be a scikit-learn classifier with the methods fit and predict_proba; got {classifier!r}."
        )
    predicted = np.zeros((len(fold), batch.n_actions))
    known = np.unique(batch.actions[rest])
    if len(known) == 1:  # many classifiers refuse a single class
        predicted[:, known] = 1.0
        return predicted
    model = clone(classifier)
    seeds: Sequence[str] = [name for name in model.get_params() if name.split("__")[-1] == "random_state"]
    model.set_params(**{name: int(rng.integers(2**31)) for name in sorted(seeds)})
    model.fit(batch.states[rest], batch.actions[rest])
    found = np.asarray(model.predict_proba(batch.states[fold]), dtype=np.float64)
    if found.shape != (len(fold), len(model.classes_)) or not (np.isfinite(found).all() and (found >= 0).all()):
        raise InvalidInputError(
            f"behaviour must predict a non-negative probability for each action it has seen; {classifier!r} does not."
        )
    predicted[:, np.asarray(model.classes_, dtype=np.int64)] = found
    return predicted


def _mixed(predicted: Floats, allowed: Bools | None) -> Floats:
    """Return distributions over the allowed actions, mixed with a little of the uniform one."""
    open_to = np.ones_like(predicted) if allowed is None else allowed.astype(np.float64)
    inside = predicted * open_to
    sums = inside.sum(axis=1, keepdims=True)
    uniform = open_to / open_to.sum(axis=1, keepdims=True)
    inside = np.where(sums > 0, inside / np.where(sums > 0, sums, 1.0), uniform)
    mixed: Floats = (1 - MIXED_IN) * inside + MIXED_IN * uniform
    return mixed
