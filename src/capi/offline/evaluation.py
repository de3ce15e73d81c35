"""Evaluation of policies on logged episodes: runs the steps in order and issues the warnings."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sklearn.base import clone

from capi._utils.executors import ordered
from capi._utils.randomness import RandomState, seed_sequence
from capi._utils.threads import n_threads, one_blas_thread
from capi._utils.validation import as_discount, check_choice
from capi.data.learned_episodes import LearnedEpisodes
from capi.data.partitions import PartitionedTransitions
from capi.data.transitions import Transitions
from capi.errors import EvidenceWarning, InvalidInputError
from capi.learning.learner import Learner
from capi.offline import in_parts
from capi.offline.best_action import SingleAction, best_single_action
from capi.offline.conclusions import concluded
from capi.offline.estimate import Estimate
from capi.offline.estimators import Estimator
from capi.offline.evidence import METHODS, BestAction, Comparison, Evidence, check_methods
from capi.offline.facts import Facts, log_sums, policy_sums
from capi.offline.log import RESAMPLES, Log, Settings, log_of
from capi.offline.nuisances import behaviour_value, estimators_of, fitted_start, quantities_of
from capi.offline.resampling import resampled
from capi.offline.sensitivity import sensitivity_of
from capi.policies import changes_with_time, described
from capi.types import Policy, PolicyEvaluator


def evaluate(
    policy: Policy,
    batch: Transitions | PartitionedTransitions,
    *,
    discount: float | None = None,
    method: str = "auto",
    methods: Sequence[str] | None = None,
    behaviour: Any = None,
    evaluator: PolicyEvaluator | None = None,
    n_folds: int = 5,
    n_resamples: int = 200,
    level: float = 0.95,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
    name: str = "the policy",
) -> Evidence:
    """Estimate the value of a policy from logged episodes, with intervals and caveats.

    The policy is compared with what was done and with the best single action; with one decision per episode the result says how strong an
    unmeasured confounder would have to be to undo the comparison with what was done.

    Parameters
    ----------
    policy : Policy
    batch : Transitions or PartitionedTransitions
        Episodes that the policy was not learned from; otherwise there is a warning. A truncated episode is completed with the fitted
        value of the state in which the log stops. Of a batch in parts, models are fitted on a sample of the episodes, and estimates and
        intervals rest on all of them (``docs/scale.md``).
    discount : float in [0, 1), optional
        By default the discount that the policy was learned with. In a batch with elapsed times it refers to their unit.
    method : str
        The estimator that gives `Evidence.estimate`: one of ``methods``, or "auto", which is doubly robust, or fitted Q if the policy and the
        log overlap too little for any weighting.
    methods : sequence of str, optional
        The estimators to compute, out of "doubly-robust", "weighted-doubly-robust", "fitted-q", "weighted", "per-decision" and
        "weighted-per-decision"; by default all. ``docs/evidence.md`` derives them.
    behaviour : scikit-learn classifier, optional
        Estimates the probabilities of the logged actions, always from other episodes. By default the probabilities in the batch are used or,
        if it has none, they are estimated with trees.
    evaluator : PolicyEvaluator, optional
        Gives the action values inside the doubly robust estimators and the values that complete truncated episodes; by default fitted Q
        evaluation on extremely randomised trees.
    n_folds : int
        Number of folds of episodes for cross-fitting: models used on a fold are fitted without it.
    n_resamples : int
        Number of bootstrap resamples of episodes.
    level : float in (0, 1)
        Confidence level of the intervals.
    random_state : int, Generator or None
    n_jobs : int, optional
        Number of threads; -1 uses all cores. The result does not depend on it.
    name : str
        Name of the policy in the result.

    Examples
    --------
    A log in which a coin chose between two arms; the second arm gives one more:

    >>> import numpy as np
    >>> from capi.policies import Constant
    >>> rng = np.random.default_rng(0)
    >>> arms = rng.integers(2, size=400)
    >>> batch = Transitions(rng.random((400, 1)), arms, arms + rng.random(400), np.zeros((400, 1)), np.ones(400, dtype=bool),
    ...                     propensities=np.full(400, 0.5))
    >>> found = evaluate(Constant(1, n_actions=2), batch, discount=0.0)
    >>> print(f"{found.estimate:.2f}")
    1.49
    >>> print(found.verdict)
    the policy is better than the logged behaviour, by 0.43... (95 % interval 0.3... to 0.4...).
    """
    settings = _settings(
        discount if discount is not None else _own_discount([policy]),
        method,
        methods,
        behaviour,
        evaluator,
        n_folds,
        n_resamples,
        level,
        random_state,
        n_jobs,
    )
    return _compared({name: policy}, batch, settings).evidence[name]


def compare(policies: Mapping[str, Policy], batch: Transitions | PartitionedTransitions, **settings: Any) -> Comparison:
    """Evaluate several policies on the same episodes, with the paired differences between them.

    Parameters
    ----------
    policies : mapping from names to Policy
    batch : Transitions or PartitionedTransitions
    settings : further keywords
        As in `evaluate`.

    Examples
    --------
    >>> import numpy as np
    >>> from capi.policies import Constant
    >>> rng = np.random.default_rng(0)
    >>> arms = rng.integers(2, size=400)
    >>> batch = Transitions(rng.random((400, 1)), arms, arms + rng.random(400), np.zeros((400, 1)), np.ones(400, dtype=bool),
    ...                     propensities=np.full(400, 0.5))
    >>> found = compare({"first": Constant(0, 2), "second": Constant(1, 2)}, batch, discount=0.0)
    >>> print(f"{found.difference('second', 'first').value:.1f}")
    1.0
    """
    if not isinstance(policies, Mapping) or not policies:
        raise InvalidInputError(f"policies must be a mapping from names to policies; got {policies!r}.")
    given = settings.pop("discount", None)
    discount = given if given is not None else _own_discount(list(policies.values()))
    return _compared(policies, batch, _settings(discount, **settings))


def cross_evaluate(
    learners: Any,
    batch: Transitions,
    *,
    executor: Any = None,
    shown: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    **settings: Any,
) -> Evidence | Comparison:
    """Evaluate a learner on episodes that it has not seen: refit it without each fold of the log, and evaluate it on that fold.

    The estimate is the mean value of the folds' policies, each learned from all other folds; the interval covers the error of their evaluation,
    given those policies.

    Parameters
    ----------
    learners : Learner or Policy, or mapping from names to them
        Several are compared on the same folds. A policy is evaluated as it is, without refitting.
    batch : Transitions
    executor : concurrent.futures.Executor, dask.distributed.Client or name of a joblib backend, optional
        Where the learners are refitted; by default here, one after another. The result does not depend on it.
    shown : callable
        Wraps the iteration over folds, for example with a progress bar.
    settings : further keywords
        As in `evaluate`. The default discount is that of the learners.

    Examples
    --------
    >>> import numpy as np
    >>> from capi import CAPI
    >>> from capi.evaluators import FittedQ
    >>> from capi.policies import Constant
    >>> from capi.policy_spaces import Trees
    >>> rng = np.random.default_rng(0)
    >>> x, arms = rng.random((400, 1)), rng.integers(2, size=400)
    >>> rewards = np.where(arms == (x[:, 0] > 0.5), 1.0, 0.0)
    >>> batch = Transitions(x, arms, rewards, x, np.ones(400, dtype=bool), propensities=np.full(400, 0.5))
    >>> learner = CAPI(FittedQ(), Trees(max_depth=1), discount=0.0, n_iterations=1, random_state=0)
    >>> found = cross_evaluate({"tree": learner, "second": Constant(1, n_actions=2)}, batch)
    >>> print(found.verdict("tree", "second"))
    tree is better than second, by 0.45... (95 % interval 0.4... to 0.5...).
    """
    named: dict[str, Any] = dict(learners) if isinstance(learners, Mapping) else {"the learner": learners}
    if not named:
        raise InvalidInputError("learners must contain at least one learner; got none.")
    for name, learner in named.items():
        if not isinstance(learner, Learner | Policy) or isinstance(learner, type):
            raise InvalidInputError(f"learners must be learners or policies; {name!r} is {learner!r}.")
    given = settings.pop("discount", None)
    discount = given if given is not None else _own_discount(list(named.values()))
    chosen = _settings(discount, **settings)
    log = log_of(batch, chosen)
    policies: dict[str, list[Policy]] = {name: [] for name in named}
    learning = {name: learner for name, learner in named.items() if isinstance(learner, Learner)}
    rests = (log.batch.subset(log.fold_of_row != k) for k in range(log.n_folds))
    refits = ordered(_refitted, ((learner, rest) for rest in rests for learner in learning.values()), executor)
    for k in shown(range(log.n_folds)):
        for name, learner in named.items():
            policies[name].append(_informed(next(refits), log, k) if name in learning else learner)
    found = _evidence(policies, log, kind="cross")
    return found if isinstance(learners, Mapping) else found.evidence["the learner"]


def _informed(policy: Any, log: Log, fold: int) -> Policy:
    """Return a refitted policy that knows its learning episodes, which it forgets on its way from another process."""
    training = getattr(policy, "training", None)
    if training is None or training.episodes is not None:
        return policy
    rest = log.batch.subset(log.fold_of_row != fold)
    return described(policy, policy.schema, replace(training, episodes=LearnedEpisodes.of(rest)))


def _refitted(learner: Learner, batch: Transitions) -> Policy:
    policy: Policy = clone(learner).fit(batch).policy_
    return policy


def _settings(discount: float | None, method: str = "auto", methods: Any = None, *rest: Any, **named: Any) -> Settings:
    if discount is None:
        raise InvalidInputError(
            "discount must be given, because the policy does not record the one that it was learned with. Pass discount."
        )
    asked = check_methods(methods)
    if method != "auto":
        check_choice(method, "method", ("auto", *METHODS))
        asked = asked if method in asked else (method, *asked)
    known = [f.name for f in fields(Settings)]
    for name in named:
        check_choice(name, "a setting", known)
    settings = Settings(as_discount(discount), method, asked, *rest, **named)
    threads = n_threads(settings.n_jobs)
    return replace(settings, regression=replace(settings.regression, n_jobs=threads))


def _own_discount(learners: Sequence[Any]) -> float | None:
    """Return the discount that the learners or policies record, if they agree; those that record none are ignored."""
    known = set()
    for learner in learners:
        training = getattr(learner, "training", None)
        value = getattr(learner, "discount", None) if training is None else training.discount
        if value is not None:
            known.add(float(value))
    if len(known) > 1:
        raise InvalidInputError(
            f"discount must be given, because the policies were learned with different ones: {', '.join(map(str, sorted(known)))}. Pass discount."
        )
    return known.pop() if known else None


def _compared(
    policies: Mapping[str, Policy], batch: Transitions | PartitionedTransitions, settings: Settings
) -> Comparison:
    if isinstance(batch, PartitionedTransitions):
        survey = batch.survey(random_state=seed_sequence(settings.random_state))
        if not survey.is_whole:
            for name, policy in policies.items():
                check_is_evaluable(name, policy, batch)
            found = in_parts.evidence_in_parts(policies, batch, survey, settings)
            _warn(found, 3)
            return found
        found = _compared(policies, survey.sample, settings)
        return Comparison({name: replace(one, source=batch.name) for name, one in found.evidence.items()})
    log = log_of(batch, settings)
    return _evidence({name: [policy] * log.n_folds for name, policy in policies.items()}, log, kind="table")


@one_blas_thread()
def _evidence(policies: Mapping[str, list[Policy]], log: Log, kind: str) -> Comparison:
    for name, of_folds in policies.items():
        for policy in of_folds[:1] if kind == "table" else of_folds:
            check_is_evaluable(name, policy, log.batch)
    parts = {name: quantities_of(of_folds, log) for name, of_folds in policies.items()}
    estimators: dict[str, dict[str, Estimator]] = {}
    for name, q in parts.items():
        fitted = fitted_start(policies[name], log, kind) if "fitted-q" in log.settings.methods else None
        estimators[name] = estimators_of(q, fitted, log)
    behaviour: Estimator = behaviour_value(log)
    single = best_single_action(next(iter(parts.values())), log)
    every = {("", "behaviour"): behaviour} | {
        (name, method): estimator for name, found in estimators.items() for method, estimator in found.items()
    }
    if isinstance(single, SingleAction):
        every["", "single"] = single.estimator
    estimates = _estimated(every, log)
    of_log = log_sums(log)
    found = concluded(
        policies,
        {name: Facts(log, of_log, policy_sums(q, log), log.behaviour) for name, q in parts.items()},
        estimates,
        _best_action(single, estimates["", "single"], log) if isinstance(single, SingleAction) else single,
        {name: sensitivity_of(q, log) for name, q in parts.items()},
        kind,
    )
    _warn(found, 5 if kind == "table" else 4)
    return found


def _warn(found: Comparison, stacklevel: int) -> None:
    for name, evidence in found.evidence.items():
        for caveat in evidence.warnings:
            python_warnings.warn(f"{name}: {caveat}", EvidenceWarning, stacklevel=stacklevel + 1)


def _best_action(single: SingleAction, estimate: Estimate, log: Log) -> BestAction:
    labels = log.batch.schema.action_labels
    of_folds = tuple(labels[a] for a in single.of_folds)
    return BestAction(labels[single.action], of_folds, len(single.candidates), estimate)


def check_is_evaluable(name: str, policy: Policy, batch: Transitions | PartitionedTransitions) -> None:
    """Refuse an object that is not a policy for the actions of ``batch``, and policies that change with time."""
    if isinstance(policy, type) or not isinstance(policy, Policy):
        hint = " Pass its policy_, or use cross_evaluate." if isinstance(policy, Learner) else ""
        raise InvalidInputError(f"{name} must be a Policy (act, probabilities, n_actions); got {policy!r}.{hint}")
    if policy.n_actions != batch.n_actions:
        raise InvalidInputError(
            f"{name} must have as many actions as the batch: it has {policy.n_actions} actions, the batch {batch.n_actions}. "
            "Pass n_actions or action_labels to the batch."
        )
    if changes_with_time(policy):
        raise InvalidInputError(f"{name} changes with time; only stationary policies can be evaluated from a log.")
    schema = getattr(policy, "schema", None)
    if schema is not None and schema != batch.schema:
        raise InvalidInputError(
            f"{name} must have been learned from a table with the same columns and actions as this batch; got {schema} and {batch.schema}. "
            "Read the table with schema=policy.schema."
        )


def _estimated(estimators: Mapping[Any, Estimator], log: Log) -> dict[Any, Estimate]:
    counts = log.episodes.weights
    draws = resampled(
        list(estimators.values()),
        counts,
        log.settings.n_resamples,
        log.seeds,
        RESAMPLES,
        log.settings.regression.n_jobs,
    )
    found = {}
    for (key, estimator), drawn in zip(estimators.items(), draws, strict=True):
        value = float(estimator.values(counts[None])[0])
        found[key] = Estimate(value, drawn, counts * estimator.influence(counts), log.settings.level)
    return found
