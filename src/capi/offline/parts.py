"""Evaluation of one part of a large log: sums over its episodes, which `capi.offline.in_parts` merges and finishes.

Models were fitted on a sample of the episodes, each without one of the folds; a part applies them to its rows. The first pass gives sums for the
estimates, overlap and caveats. The second one, when the sums of all parts are known, draws how often each episode counts in each resample, and sums
the products of its influences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from capi._utils.randomness import numbered_rng
from capi._utils.validation import Floats, Ints
from capi.data.survey import Source, keys_of
from capi.evaluators.over_partitions import Structure, decided_leaves
from capi.offline.best_action import always, one_step_numbers
from capi.offline.episodes import Episodes, Extent
from capi.offline.estimators import MeanOfEpisodes, Sums
from capi.offline.facts import LogSums, PolicySums, log_sums, policy_sums
from capi.offline.importance_weights import Overlap
from capi.offline.log import RESAMPLES, FromSample, Log, Settings
from capi.offline.nuisances import (
    Quantities,
    Values,
    closed_ends,
    estimator_of,
    estimators_of,
    has_models,
    logged_returns,
    quantities_by_fold,
)
from capi.policies import Constant
from capi.types import Policy

MOST_COUNTS = 5_000_000  # held in memory at once
MOST_DRAWN = 20  # of a Poisson variable with mean 1: more have a probability below 2**-61
BEHAVIOUR, SINGLE = ("", "behaviour"), ("", "single")
Key = tuple[Any, str]  # the name of a policy and a method


@dataclass(frozen=True, eq=False)
class Models:
    """The values of a policy, or of the logged behaviour, fitted on the sample without each of the folds."""

    values: Sequence[Any]  # K objects with a method ``values``
    structures: Sequence[Structure | None]  # their trees, if they have some: K


@dataclass(frozen=True, eq=False)
class Plan:
    """What all parts need."""

    settings: Settings
    seeds: np.random.SeedSequence
    extent: Extent
    sample_seed: np.uint64
    sample_keys: NDArray[np.uint64]  # of the sample's episodes with weight, rising
    from_sample: FromSample
    policies: Mapping[str, Policy]
    models: Mapping[Any, Models]  # by the policy's name, by a number for always taking that action, and `BEHAVIOUR`
    actions: Ints  # that could be taken always


@dataclass(frozen=True, eq=False)
class First:
    """The sums of the first pass."""

    of_log: LogSums
    of_policies: dict[Any, PolicySums]
    estimates: dict[Key, Sums]
    overlaps: dict[Any, Overlap]  # of taking an action always
    by_fold: dict[Any, Floats]  # (K,) the numbers of that
    closing: dict[
        tuple[Any, int], Floats
    ]  # (l,) weight that truncated episodes of a fold give to the leaves of its model

    def __add__(self, other: First) -> First:
        return First(
            self.of_log + other.of_log,
            _added(self.of_policies, other.of_policies),
            _added(self.estimates, other.estimates),
            _added(self.overlaps, other.overlaps),
            _added(self.by_fold, other.by_fold),
            _added(self.closing, other.closing),
        )


@dataclass(frozen=True, eq=False)
class Whole:
    """What the second pass needs from the first one of all parts."""

    overlaps: Mapping[str, Overlap]
    estimates: Mapping[Key, Sums]
    closing: Mapping[Any, Floats]  # of the sample's episodes (E,), in the order of their keys
    best_of_fold: Ints | None  # (K,) the best single action by the other folds


@dataclass(frozen=True, eq=False)
class Second:
    """The sums of the second pass, for m estimates."""

    draws: dict[Key, Sums]
    total: Floats  # (m,) sums of the influences
    products: Floats  # (m, m) and of their products
    largest: Floats  # (m,)

    def __add__(self, other: Second) -> Second:
        return Second(
            _added(self.draws, other.draws),
            self.total + other.total,
            self.products + other.products,
            np.fmax(self.largest, other.largest),
        )


def merged(a: Any, b: Any) -> Any:
    """Return the sum of two parts; None is a part in which no episode has weight."""
    return b if a is None else a if b is None else a + b


def extent_of(source: Source, discount: float) -> Extent | None:
    """Return the size of a part."""
    found = _counted(source, discount)
    return None if found is None else found[0].extent


def first_pass(source: Source, plan: Plan) -> First | None:
    """Return the sums of the first pass over a part."""
    found = part_log(source, plan)
    if found is None:
        return None
    log = found[0]
    with np.errstate(over="ignore", invalid="ignore"):  # overlaps say if weights overflow
        of_policies: dict[Any, PolicySums] = {}
        estimates: dict[Key, Sums] = {}
        closing: dict[tuple[Any, int], Floats] = {}
        of_first: Quantities | None = None
        for name, policy in plan.policies.items():
            q = quantities(policy, plan.models.get(name), log)
            of_policies[name] = policy_sums(q, log)
            for method in plan.settings.methods:
                if method != "fitted-q":
                    estimates[name, method] = estimator_of(method, q, log).sums(log.episodes.weights[None])
            closing |= _closing(name, q.next_probabilities, q.weights.of_episodes, plan, log)
            of_first = q if of_first is None else of_first
        returns = _returns(plan, log)
        estimates[BEHAVIOUR] = returns.sums(log.episodes.weights[None])
        ones = np.ones((len(log.batch), 1))
        closing |= _closing(BEHAVIOUR, ones, np.ones(len(log.episodes)), plan, log)
        overlaps, by_fold = {}, {}
        assert of_first is not None  # noqa: S101  there is a policy
        for a in plan.actions.tolist():
            mine, numbers = _always(a, of_first, plan, log)
            overlaps[a] = always(a, log).overlap
            worth: Floats = log.episodes.weights * numbers
            by_fold[a] = np.asarray(np.bincount(log.fold_of_episode, worth, minlength=log.n_folds), dtype=np.float64)
            if mine is not None:
                closing |= _closing(a, mine.next_probabilities, mine.weights.of_episodes, plan, log)
    return First(log_sums(log), of_policies, estimates, overlaps, by_fold, closing)


def second_pass(source: Source, fitted: Mapping[str, tuple[float, Floats]], plan: Plan, whole: Whole) -> Second | None:
    """Return the sums of the second pass over a part; ``fitted`` are the values of fitted Q evaluation and the influence of the episodes (E,)."""
    found = part_log(source, plan)
    if found is None:
        return None
    log, keys = found
    estimators: dict[Key, Any] = {}
    of_first: Quantities | None = None
    with np.errstate(over="ignore", invalid="ignore"):
        for name, policy in plan.policies.items():
            q = quantities(policy, plan.models.get(name), log)
            q = replace(q, whole=whole.overlaps[name], closing=_of_episodes(whole.closing.get(name), keys, plan))
            start: Any = MeanOfEpisodes(fitted[name][0] + fitted[name][1]) if name in fitted else None
            estimators |= {(name, method): one for method, one in estimators_of(q, start, log).items()}
            of_first = q if of_first is None else of_first
        returns = _returns(plan, log).numbers + _of_episodes(whole.closing.get(BEHAVIOUR), keys, plan)
        estimators[BEHAVIOUR] = MeanOfEpisodes(returns)
        if whole.best_of_fold is not None and of_first is not None:
            estimators[SINGLE] = MeanOfEpisodes(_best_numbers(whole, of_first, keys, plan, log))
        weights = log.episodes.weights
        moved = np.stack([weights * one.influence(weights, whole.estimates[key]) for key, one in estimators.items()])
        draws = _draws(estimators, weights, keys, plan)
        return Second(draws, moved.sum(axis=1), moved @ moved.T, np.abs(moved).max(axis=1))


def part_log(source: Source, plan: Plan) -> tuple[Log, NDArray[np.uint64]] | None:
    """Return the log of a part and the keys of its episodes."""
    found = _counted(source, plan.settings.discount)
    if found is None:
        return None
    episodes, ids = found
    keys = keys_of(ids, plan.sample_seed)
    log = Log(
        replace(episodes, whole=plan.extent),
        plan.settings,
        plan.seeds,
        folds_of(keys, plan.sample_keys, min(plan.settings.n_folds, plan.extent.n_episodes)),
        plan.from_sample,
    )
    return log, keys


def folds_of(keys: NDArray[np.uint64], sample_keys: NDArray[np.uint64], n_folds: int) -> Ints:
    """Return the fold of each episode (E,): episodes of the sample take turns, all others are divided by their keys."""
    place = np.searchsorted(sample_keys, keys)
    inside = sample_keys[np.minimum(place, len(sample_keys) - 1)] == keys
    return np.where(inside, place % n_folds, ((keys >> np.uint64(32)) % np.uint64(n_folds)).astype(np.int64))


def quantities(policy: Policy, models: Models | None, log: Log) -> Quantities:
    """Return the ingredients of a policy's estimators, with the values of the sample's models."""

    def values_of(k: int) -> tuple[Values, None]:
        if models is None:
            raise ValueError("no values were fitted")
        return models.values[k].values, None

    return quantities_by_fold([policy] * log.n_folds, values_of, log)


def _counted(source: Source, discount: float) -> tuple[Episodes, NDArray[np.uint64]] | None:
    """Return the episodes of a part that have weight, and their ids; None if there are none."""
    found = source.read()
    if found is None or (found.batch.weights is not None and not found.batch.weights.any()):
        return None
    episodes = Episodes(found.batch, discount)
    kept = episodes.weights > 0
    if kept.all():
        return episodes, found.ids
    return Episodes(found.batch.subset(kept[episodes.of_row]), discount), found.ids[kept]


def _returns(plan: Plan, log: Log) -> MeanOfEpisodes:
    models = plan.models.get(BEHAVIOUR)
    return logged_returns(log, [] if models is None else [one.values for one in models.values])


def _always(action: int, q: Quantities, plan: Plan, log: Log) -> tuple[Quantities | None, Floats]:
    """Return the ingredients of always taking an action, if it needs its own, and its number in each episode (E,)."""
    weights = always(action, log)
    if log.episodes.one_step:
        return None, one_step_numbers(action, weights, q, log)
    mine = None if not has_models(log) else quantities(Constant(action, log.batch.n_actions), plan.models[action], log)
    method = "per-decision" if mine is None else "doubly-robust"
    found = estimator_of(method, replace(q, weights=weights, whole=None) if mine is None else mine, log)
    assert isinstance(found, MeanOfEpisodes)  # noqa: S101  these two are
    return mine, found.numbers


def _best_numbers(whole: Whole, q: Quantities, keys: NDArray[np.uint64], plan: Plan, log: Log) -> Floats:
    """Return the number of the action that is best by the other folds in each episode (E,)."""
    assert whole.best_of_fold is not None  # noqa: S101  the caller knows
    best, found = whole.best_of_fold[log.fold_of_episode], np.zeros(len(log.episodes))
    for a in np.unique(best).tolist():
        numbers = _always(a, q, plan, log)[1] + _of_episodes(whole.closing.get(a), keys, plan)
        found = np.where(best == a, numbers, found)
    return found


def _closing(name: Any, probabilities: Floats | None, amounts: Floats, plan: Plan, log: Log) -> dict[Any, Floats]:
    """Return how much the truncated episodes of each fold look up each leaf of the trees of its model."""
    models, t, found = plan.models.get(name), log.batch, {}
    for k, structure in enumerate(() if models is None else models.structures):
        ends, worth = closed_ends(k, amounts, log)
        if structure is None or probabilities is None or not plan.extent.truncated:
            continue
        ones = np.ones(len(ends))
        asked = decided_leaves(structure, t.next_states[ends], probabilities[ends], ones, structure.n_actions)
        found[name, k] = asked.back(worth, int(structure.starts[-1]))
    return found


def _of_episodes(closing: Floats | None, keys: NDArray[np.uint64], plan: Plan) -> Floats:
    """Return the numbers of the sample's episodes for those of a part (E,); 0 for all others."""
    found = np.zeros(len(keys))
    if closing is not None:
        place = np.minimum(np.searchsorted(plan.sample_keys, keys), len(plan.sample_keys) - 1)
        inside = plan.sample_keys[place] == keys
        found[inside] = closing[place[inside]]
    return found


def _draws(estimators: Mapping[Key, Any], weights: Floats, keys: NDArray[np.uint64], plan: Plan) -> dict[Key, Sums]:
    """Return the sums of each estimator in all resamples."""
    n, n_resamples = len(keys), plan.settings.n_resamples
    at_once = max(1, MOST_COUNTS // n)
    blocks: list[dict[Key, Sums]] = []
    for first in range(0, n_resamples, at_once):
        numbers = range(first, min(first + at_once, n_resamples))
        counts = np.stack([drawn_counts(keys, resample_seed(plan.seeds, b)) for b in numbers]) * weights
        blocks.append({key: one.sums(counts) for key, one in estimators.items()})
    return {key: Sums.concatenated([block[key] for block in blocks]) for key in estimators}


def resample_seed(seeds: np.random.SeedSequence, number: int) -> np.uint64:
    """Return the seed of a resample."""
    return np.uint64(numbered_rng(seeds, RESAMPLES, number).integers(2**63))


def drawn_counts(keys: NDArray[np.uint64], seed: np.uint64) -> Floats:
    """Return how often each episode counts in a resample (E,): Poisson variables of mean 1 that depend on its key and the seed alone."""
    return np.searchsorted(_BORDERS, keys_of(keys, seed), side="right").astype(np.float64)


_BORDERS = np.array([int(p * 2.0**64) for p in stats.poisson.cdf(np.arange(MOST_DRAWN), 1.0) if p * 2.0**64 < 2.0**64], dtype=np.uint64)  # fmt: skip


def _added(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: a[key] + b[key] for key in a}
