"""Evaluation of policies on a log in parts: models from a sample of its episodes, estimates and intervals from all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.randomness import seed_sequence
from capi._utils.threads import n_threads, one_blas_thread
from capi._utils.validation import Floats
from capi.data.partitions import PartitionedTransitions
from capi.data.summary.coverage import SimilarStates
from capi.data.survey import Survey
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import portable
from capi.evaluators.over_partitions import Structure
from capi.evaluators.partitioned_averager import PartitionedAverager
from capi.learning.iteration import checked_values
from capi.offline.behaviour import bin_edges
from capi.offline.best_action import chosen, nothing_taken, valued_actions
from capi.offline.conclusions import concluded
from capi.offline.episodes import Episodes, Extent
from capi.offline.estimate import Estimate, Spread
from capi.offline.estimators import Sums
from capi.offline.evidence import BestAction, Comparison
from capi.offline.facts import Facts
from capi.offline.fitted_q import FEWER_TREES, MANY_ROWS, FittedEvaluation, fitted_evaluation
from capi.offline.importance_weights import enough_overlap
from capi.offline.log import BEHAVIOUR as BEHAVIOUR_STREAM
from capi.offline.log import FITTED, VALUES, FromSample, Log, Settings
from capi.offline.nuisances import has_models, logged_evaluation
from capi.offline.parts import (
    BEHAVIOUR,
    SINGLE,
    First,
    Models,
    Plan,
    Second,
    Whole,
    extent_of,
    first_pass,
    folds_of,
    merged,
    quantities,
    second_pass,
)
from capi.offline.sensitivity import sensitivity_of
from capi.policies import Constant
from capi.policies.behaviour import fold_models
from capi.types import Policy, QFunction


@dataclass(frozen=True, eq=False)
class _Checked:
    """The values of a user's evaluator, checked wherever they are computed."""

    q: QFunction
    n_actions: int
    name: str

    def values(self, states: Floats) -> Floats:
        """Return the action values (n, A)."""
        return checked_values(self.q, states, self.n_actions, self.name)


@dataclass(frozen=True, eq=False)
class _Sample:
    """The sample as a log, and the models that were fitted on it without each of the folds."""

    log: Log
    keys: NDArray[np.uint64]
    evaluations: Mapping[Any, list[FittedEvaluation | None]]
    models: Mapping[Any, Models]


@one_blas_thread()
def evidence_in_parts(
    policies: Mapping[str, Policy], partitions: PartitionedTransitions, survey: Survey, settings: Settings
) -> Comparison:
    """Return the evidence about each policy, from all rows of a log in parts; ``survey`` has the sample."""
    crew, parts = partitions.crew, partitions.parts
    extent = crew.merged(merged, crew.each(extent_of, parts, settings.discount))
    trees = settings.regression.n_trees or (FEWER_TREES if extent.n_rows > MANY_ROWS else None)
    settings = replace(settings, regression=replace(settings.regression, n_trees=trees))
    sample = _fitted(policies, survey, extent, settings)
    log = sample.log
    actions = valued_actions(log)
    assert log.from_sample is not None  # noqa: S101  `_fitted` gives it
    plan = Plan(
        replace(settings, behaviour=None, evaluator=None),
        log.seeds,
        extent,
        survey.seed,
        sample.keys,
        log.from_sample,
        {name: portable(policy) for name, policy in policies.items()},
        sample.models,
        np.zeros(0, dtype=np.int64) if isinstance(actions, str) else actions,
    )
    shared = crew.shared(plan)
    first: First = crew.merged(merged, crew.each(first_pass, parts, shared))
    fitted = _fitted_q(policies, partitions, survey, log) if "fitted-q" in settings.methods else {}
    candidates = [
        a
        for a, overlap in first.overlaps.items()
        if not overlap.overflows and enough_overlap(overlap.effective_episodes, extent.n_episodes)
    ]
    best, best_of_fold = None, None
    if candidates:
        best, of_folds = chosen(np.stack([first.by_fold[a] for a in candidates], axis=1))
        best_of_fold = np.array(candidates)[of_folds]
    estimates = dict(first.estimates)
    for name, (value, _) in fitted.items():
        estimates[name, "fitted-q"] = _sums_of(value)
    if best_of_fold is not None:
        total = sum(first.by_fold[a][k] for k, a in enumerate(best_of_fold.tolist()))
        estimates[SINGLE] = _sums_of(float(total) / float(first.estimates[BEHAVIOUR].counts[0]))
    whole = Whole(
        {name: of.overlap for name, of in first.of_policies.items()}, estimates, _closing(first, sample), best_of_fold
    )
    of_parts: list[Any] = [{} for _ in parts]
    if fitted:
        influence = {name: crew.results(handles) for name, (_, handles) in fitted.items()}
        of_parts = [{name: (fitted[name][0], influence[name][i]) for name in fitted} for i in range(len(parts))]
    second: Second = crew.merged(merged, crew.each(second_pass, parts, of_parts, shared, crew.shared(whole)))
    found = _estimates(second, whole, extent, settings)
    of_behaviour = first.of_log.behaviour(log.behaviour.probability)
    labels = partitions.schema.action_labels
    single: BestAction | str = actions if isinstance(actions, str) else nothing_taken(log)
    if best is not None and best_of_fold is not None:
        named = tuple(labels[a] for a in best_of_fold.tolist())
        single = BestAction(labels[candidates[best]], named, len(candidates), found[SINGLE])
    return concluded(
        {name: [policy] * log.n_folds for name, policy in policies.items()},
        {name: Facts(log, first.of_log, of, of_behaviour) for name, of in first.of_policies.items()},
        found,
        single,
        {name: sensitivity_of(quantities(p, sample.models.get(name), log), log) for name, p in policies.items()},
        "table",
        source=partitions.name,
        sample_rows=len(log.batch),
    )


def _fitted(policies: Mapping[str, Policy], survey: Survey, extent: Extent, settings: Settings) -> _Sample:
    """Return the sample with everything that is fitted on it."""
    batch, keys = survey.sample, survey.keys
    if batch.weights is not None:
        kept = batch.weights[batch.episode_starts] > 0
        batch, keys = batch.subset(np.repeat(kept, batch.episode_lengths)), keys[kept]
    n_folds = min(settings.n_folds, extent.n_episodes)
    if len(keys) < n_folds:
        raise InvalidInputError(
            f"the sample must have at least {n_folds} episodes with positive weight, one per fold; it has {len(keys)}. Use more sample_rows, or fewer folds."
        )
    seeds = seed_sequence(settings.random_state)
    episodes = Episodes(batch, settings.discount, extent)
    plain = Log(episodes, settings, seeds, folds_of(keys, keys, n_folds))
    log = replace(plain, from_sample=_of_behaviour(plain))
    evaluations: dict[Any, list[FittedEvaluation | None]] = {}
    models: dict[Any, Models] = {}
    if has_models(log):
        for name, policy in policies.items():
            evaluations[name], models[name] = _values(policy, log)
        actions = valued_actions(log)
        if not log.episodes.one_step and not isinstance(actions, str):
            trees = next(iter(evaluations.values()))
            for a in actions.tolist():
                always = Constant(a, batch.n_actions)
                found = [None if one is None else one.of_policy(always) for one in trees]
                models[a] = _models(found)
                if extent.truncated:
                    evaluations[a] = found
    if extent.truncated:
        evaluations[BEHAVIOUR] = [logged_evaluation(k, log) for k in range(n_folds)]
        models[BEHAVIOUR] = _models(evaluations[BEHAVIOUR])
    else:
        evaluations.clear()  # which only complete truncated episodes, and take much memory
    return _Sample(log, keys, evaluations, models)


def _of_behaviour(log: Log) -> FromSample:
    """Return the groups of similar states and, if the log has no probabilities of its own, models of the logged actions."""
    t, s = log.batch, log.settings
    groups = SimilarStates.of(t)
    if t.propensities is not None and s.behaviour is None:
        return FromSample(groups, None, None)
    found = fold_models(t, log.fold_of_row, s.behaviour, log.rng(BEHAVIOUR_STREAM), n_threads(s.n_jobs))
    with_models = FromSample(groups, [model.bare() for model in found], None)
    predicted = replace(log, from_sample=with_models).predicted
    assert predicted is not None  # noqa: S101  there are models
    return replace(with_models, edges=bin_edges(predicted))


def _values(policy: Policy, log: Log) -> tuple[list[FittedEvaluation | None], Models]:
    s = log.settings
    if s.evaluator is None:
        found: list[FittedEvaluation | None] = []
        for k in range(log.n_folds):
            rest = Episodes(log.batch.subset(log.fold_of_row != k), s.discount)
            found.append(fitted_evaluation(policy, rest, s.regression, log.rng(VALUES, k)))
        return found, _models(found)
    values = []
    for k in range(log.n_folds):
        rest_rows: Transitions = log.batch.subset(log.fold_of_row != k)
        q = s.evaluator.evaluate(
            policy, rest_rows, discount=s.discount, states=rest_rows.states, rng=log.rng(VALUES, k)
        )
        values.append(_Checked(portable(q), policy.n_actions, type(s.evaluator).__name__))
    return [None] * log.n_folds, Models(values, [None] * log.n_folds)


def _models(evaluations: list[FittedEvaluation | None]) -> Models:
    q = [one.q.bare() for one in evaluations if one is not None]
    structures = [Structure([model.forest for model in one.models], True, one.n_actions, ()) for one in q]
    return Models(q, structures)


def _fitted_q(
    policies: Mapping[str, Policy], partitions: PartitionedTransitions, survey: Survey, log: Log
) -> dict[str, tuple[float, list[Any]]]:
    """Return fitted Q evaluation of each policy on all rows, in trees that are grown on the sample, and the influence of all episodes."""
    found = {}
    for name, policy in policies.items():
        episodes = Episodes(log.batch, log.settings.discount)
        grown = fitted_evaluation(policy, episodes, log.settings.regression, log.rng(FITTED))
        model = PartitionedAverager.of(grown.q, log.batch, partitions, survey, log.settings.discount)
        found[name] = model.value_with_influence(policy)
    return found


def _closing(first: First, sample: _Sample) -> dict[Any, Floats]:
    """Return how much each episode of the sample moves the values that complete truncated episodes of all parts (E,)."""
    log = sample.log
    found: dict[Any, Floats] = {}
    for (name, k), wanted in first.closing.items():
        fitted = sample.evaluations[name][k]
        size = float(np.abs(wanted).max())
        if fitted is None or not np.isfinite(size) or size == 0:
            continue
        others = log.fold_of_episode != k
        out = found.setdefault(name, np.zeros(len(log.episodes)))
        out[others] += size * fitted.response_of_leaves(wanted / size) / log.episodes.weights[others].mean()
    return found


def _sums_of(value: float) -> Sums:
    """Return sums of one count vector whose estimate is ``value``."""
    none = np.zeros((1, 0))
    return Sums(np.ones(1), np.array([value]), none, none, corrected=True)


def _estimates(second: Second, whole: Whole, extent: Extent, settings: Settings) -> dict[Any, Estimate]:
    n, keys = extent.n_episodes, list(second.draws)
    products = second.products - np.outer(second.total, second.total) / n
    squares = np.diag(second.products)
    found = {}
    for i, key in enumerate(keys):
        spread = Spread(n, products, np.eye(len(keys))[i], second.largest, squares)
        draws = second.draws[key].values()
        value = float(whole.estimates[key].values()[0]) if np.isfinite(second.total[i]) else np.nan
        found[key] = Estimate(value, draws, spread, settings.level)
    return found
