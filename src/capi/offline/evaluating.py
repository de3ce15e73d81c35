"""Evaluate policies on the episodes of a log: the parts in their order, and what to warn of."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone

from capi.errors import EvidenceWarning, InvalidInput
from capi.fingerprints import share_known
from capi.iteration import Learner
from capi.loop import checked_values
from capi.offline.behaviour import Behaviour, behaviour_of
from capi.offline.episodes import Episodes
from capi.offline.estimators import Estimator, MeanOfEpisodes, SumOfRatios
from capi.offline.evidence import METHODS, Comparison, Estimate, Evidence, check_methods
from capi.offline.fitted import FittedStart, LeafSystem, Regression, leaf_system
from capi.offline.resampling import resampled
from capi.offline.weighting import Weights
from capi.parallel import n_threads, one_blas_thread
from capi.policies import Constant, EpsilonGreedy, Mixture
from capi.randomness import RandomState, numbered_rng, seed_sequence
from capi.rows import chosen_entries
from capi.tables.coverage import counts_by_leaf
from capi.transitions import Transitions
from capi.types import Policy, PolicyEvaluator
from capi.validation import (
    Bools,
    Floats,
    Ints,
    as_discount,
    as_floats,
    as_int,
    check_choice,
    check_rows,
    check_shape,
    is_real,
)

FOLDS, BEHAVIOUR, VALUES, LOGGED_VALUES, FITTED, RESAMPLES = range(6)  # streams of random numbers
NEEDS_MODEL = {"doubly-robust", "weighted-doubly-robust"}
ENOUGH = 20  # effective episodes that a doubly robust number needs, or half of all
MANY_PRODUCTS = 3e9  # entries of the systems x resamples; beyond, fitted Q is resampled by its derivative
FEW_EPISODES, TOO_FEW_EPISODES = 30, 10  # below which intervals are too short, and below which they say nothing
HARDLY = 0.01  # share of an action among the decisions in such states, below which nothing is known about it
MUCH = 0.1  # of the decisions hardly ever taken, or of the value beyond the log, of which one should know
SUMS_TO_ONE = 1e-5  # how closely a policy's probabilities must, which may be in single precision
NOT_ONE = 0.1  # how far the mean ratio may be from one


@dataclass(frozen=True)
class Settings:
    """How to evaluate; `evaluate` explains each."""

    discount: float
    method: str = "auto"
    methods: tuple[str, ...] = METHODS
    behaviour: Any = None
    evaluator: PolicyEvaluator | None = None
    n_folds: int = 5
    n_resamples: int = 200
    level: float = 0.95
    random_state: RandomState = 0
    n_jobs: int | None = None
    regression: Regression = field(default_factory=Regression)


def evaluate(
    policy: Policy,
    batch: Transitions,
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
    """Estimate what a policy is worth from logged episodes, with intervals and with what speaks against trusting them.

    Parameters
    ----------
    policy : Policy
    batch : Transitions
        Episodes that the policy was not learned from; otherwise a warning says so. Truncated episodes are closed by the fitted value of
        the state in which the log stops.
    discount : float in [0, 1), optional
        By default the one that the policy was learned with.
    method : str
        Whose number is the `Evidence.estimate`: one of ``methods``, or "auto": doubly robust, or fitted Q where the policy and the log overlap too
        little for any weighting.
    methods : sequence of str, optional
        Which estimators to compute, of "doubly-robust", "weighted-doubly-robust", "fitted-q", "weighted", "per-decision" and
        "weighted-per-decision"; by default all. ``docs/evidence.md`` derives them.
    behaviour : scikit-learn classifier, optional
        Estimates the probabilities of what was done, always on other episodes. By default they are taken from the batch or, if it has none, estimated
        with our trees.
    evaluator : PolicyEvaluator, optional
        Gives the action values inside the doubly robust estimators and those that close truncated episodes; by default fitted Q evaluation
        on extremely randomised trees.
    n_folds : int
        Parts of the episodes; what is fitted for a part does not see it.
    n_resamples : int
        Of the bootstrap over episodes.
    level : float in (0, 1)
        Of the intervals.
    random_state : int, Generator or None
    n_jobs : int, optional
        Threads; -1 is all cores. The result does not depend on it.
    name : str
        What to call the policy.

    Examples
    --------
    A log of a coin that chose between two arms, the second of which gives one more:

    >>> rng = np.random.default_rng(0)
    >>> arms = rng.integers(2, size=400)
    >>> batch = Transitions(rng.random((400, 1)), arms, arms + rng.random(400), np.zeros((400, 1)), np.ones(400, dtype=bool),
    ...                     propensity=np.full(400, 0.5))
    >>> found = evaluate(Constant(1, n_actions=2), batch, discount=0.0)
    >>> print(f"{found.estimate:.2f}")
    1.49
    >>> print(found.verdict)
    the policy is better than what was done, by 0.43... (95 % interval 0.3... to 0.4...).
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


def compare(policies: Mapping[str, Policy], batch: Transitions, **settings: Any) -> Comparison:
    """Evaluate several policies on the same episodes, with the paired differences between them.

    Parameters
    ----------
    policies : mapping from names to Policy
    batch : Transitions
    settings : further keywords
        As in `evaluate`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> arms = rng.integers(2, size=400)
    >>> batch = Transitions(rng.random((400, 1)), arms, arms + rng.random(400), np.zeros((400, 1)), np.ones(400, dtype=bool),
    ...                     propensity=np.full(400, 0.5))
    >>> found = compare({"first": Constant(0, 2), "second": Constant(1, 2)}, batch, discount=0.0)
    >>> print(f"{found.difference('second', 'first').value:.1f}")
    1.0
    """
    if not isinstance(policies, Mapping) or not policies:
        raise InvalidInput(f"policies must be a mapping from names to policies; got {policies!r}.")
    given = settings.pop("discount", None)
    discount = given if given is not None else _own_discount(list(policies.values()))
    return _compared(policies, batch, _settings(discount, **settings))


def cross_evaluate(
    learners: Any,
    batch: Transitions,
    *,
    shown: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    **settings: Any,
) -> Evidence | Comparison:
    """Evaluate how a learner does on episodes that it has not seen: it is fitted anew without each part of the log, and evaluated on that part.

    The number is the mean value of the fold's policies, each learned from all other folds; the interval is that of their evaluation, given
    those policies.

    Parameters
    ----------
    learners : Learner or Policy, or mapping from names to them
        Several are compared on the same folds. A policy is evaluated as it is.
    batch : Transitions
    shown : callable
        Wraps the folds, for a progress bar.
    settings : further keywords
        As in `evaluate`. The discount is by default the learners'.

    Examples
    --------
    >>> from capi import CAPI
    >>> from capi.evaluators import FittedQ
    >>> from capi.policy_spaces import Trees
    >>> rng = np.random.default_rng(0)
    >>> x, arms = rng.random((400, 1)), rng.integers(2, size=400)
    >>> rewards = np.where(arms == (x[:, 0] > 0.5), 1.0, 0.0)
    >>> batch = Transitions(x, arms, rewards, x, np.ones(400, dtype=bool), propensity=np.full(400, 0.5))
    >>> learner = CAPI(FittedQ(), Trees(max_depth=1), discount=0.0, n_iterations=1, random_state=0)
    >>> found = cross_evaluate({"tree": learner, "second": Constant(1, n_actions=2)}, batch)
    >>> print(found.verdict("tree", "second"))
    tree is better than second, by 0.45... (95 % interval 0.4... to 0.5...).
    """
    named: dict[str, Any] = dict(learners) if isinstance(learners, Mapping) else {"the policy": learners}
    if not named:
        raise InvalidInput("learners must have at least one learner; got none.")
    for name, learner in named.items():
        if not isinstance(learner, Learner | Policy) or isinstance(learner, type):
            raise InvalidInput(f"learners must be learners or policies; {name!r} is {learner!r}.")
    given = settings.pop("discount", None)
    discount = given if given is not None else _own_discount(list(named.values()))
    chosen = _settings(discount, **settings)
    log = _log(batch, chosen)
    policies: dict[str, list[Policy]] = {name: [] for name in named}
    for k in shown(range(log.n_folds)):
        rest = log.batch.subset(log.fold_of_row != k)
        for name, learner in named.items():
            if isinstance(learner, Learner):
                fitted: Policy = clone(learner).fit(rest).policy_
                policies[name].append(fitted)
            else:
                policies[name].append(learner)
    found = _evidence(policies, log, kind="cross")
    return found if isinstance(learners, Mapping) else found.evidence["the policy"]


def _settings(discount: float | None, method: str = "auto", methods: Any = None, *rest: Any, **named: Any) -> Settings:
    if discount is None:
        raise InvalidInput("discount must be given: the policy does not know the one that it was learned with.")
    asked = check_methods(methods)
    if method != "auto":
        check_choice(method, "method", ("auto", *METHODS))
        asked = asked if method in asked else (method, *asked)
    try:
        settings = Settings(as_discount(discount), method, asked, *rest, **named)
    except TypeError as error:
        raise InvalidInput(f"{error}: see evaluate for the settings.") from error
    as_int(settings.n_folds, "n_folds", minimum=2)
    as_int(settings.n_resamples, "n_resamples", minimum=1)
    if not is_real(settings.level) or not 0 < settings.level < 1:
        raise InvalidInput(f"level must lie strictly between 0 and 1; got {settings.level!r}.")
    if settings.evaluator is not None and not isinstance(settings.evaluator, PolicyEvaluator):
        raise InvalidInput(f"evaluator must be a PolicyEvaluator; got {settings.evaluator!r}.")
    threads = n_threads(settings.n_jobs)
    return replace(settings, regression=replace(settings.regression, n_jobs=threads))


def _own_discount(learners: Sequence[Any]) -> float | None:
    """Return the discount that all of the learners or policies know of, if they agree; those that know of none do not count."""
    known = set()
    for learner in learners:
        training = getattr(learner, "training", None)
        value = getattr(learner, "discount", None) if training is None else training.discount
        if value is not None:
            known.add(float(value))
    if len(known) > 1:
        raise InvalidInput(
            f"discount must be given: the policies were learned with different ones, {', '.join(map(str, sorted(known)))}."
        )
    return known.pop() if known else None


@dataclass(frozen=True, eq=False)
class _Log:
    """The episodes, their folds, and what they were decided with."""

    episodes: Episodes
    settings: Settings
    seeds: np.random.SeedSequence
    fold_of_episode: Ints  # (E,)

    @property
    def batch(self) -> Transitions:
        return self.episodes.batch

    @property
    def n_folds(self) -> int:
        return int(self.fold_of_episode.max()) + 1

    @cached_property
    def fold_of_row(self) -> Ints:
        return self.fold_of_episode[self.episodes.of_row]

    @cached_property
    def behaviour(self) -> Behaviour:
        s = self.settings
        return behaviour_of(self.batch, self.fold_of_row, s.behaviour, self.rng(BEHAVIOUR), s.n_jobs)

    @cached_property
    def by_leaf(self) -> tuple[Ints, Floats]:
        """The kind of state of each row (n,), and how often each action was taken in each kind."""
        return counts_by_leaf(self.batch)

    def rng(self, *numbers: int) -> np.random.Generator:
        return numbered_rng(self.seeds, *numbers)


def _log(batch: Transitions, settings: Settings) -> _Log:
    if not isinstance(batch, Transitions):
        raise InvalidInput(f"batch must be a Transitions; got {type(batch).__name__}.")
    episodes, seeds = Episodes.counted(batch, settings.discount), seed_sequence(settings.random_state)
    n_episodes = len(episodes)
    if n_episodes < 2:
        raise InvalidInput(
            "evaluation needs at least two episodes that count; this batch has one. Name the episode column, or collect more."
        )
    fold = np.empty(n_episodes, dtype=np.int64)
    order = numbered_rng(seeds, FOLDS).permutation(n_episodes)
    fold[order] = np.arange(n_episodes) % min(settings.n_folds, n_episodes)
    return _Log(episodes, settings, seeds, fold)


def _compared(policies: Mapping[str, Policy], batch: Transitions, settings: Settings) -> Comparison:
    log = _log(batch, settings)
    return _evidence({name: [policy] * log.n_folds for name, policy in policies.items()}, log, kind="table")


@dataclass(frozen=True, eq=False)
class _Quantities:
    """What the estimators of one policy are made of."""

    weights: Weights
    probabilities: Floats  # (n, A) of the policy in the logged states
    start_values: Floats  # (E,)
    taken_values: Floats  # (n,)
    next_values: Floats  # (n,) zero where the process ended
    closing: Floats | None = (
        None  # (E,) by how much each episode moves an estimate through the values that close others
    )


@one_blas_thread()
def _evidence(policies: Mapping[str, list[Policy]], log: _Log, kind: str) -> Comparison:
    for name, of_folds in policies.items():
        for policy in of_folds[:1] if kind == "table" else of_folds:
            _check_policy(name, policy, log.batch)
    parts = {name: _quantities(of_folds, log) for name, of_folds in policies.items()}
    estimators: dict[str, dict[str, Estimator]] = {}
    for name, q in parts.items():
        fitted = _fitted(policies[name], log, kind) if "fitted-q" in log.settings.methods else None
        estimators[name] = _estimators(q, fitted, log)
    behaviour: Estimator = _behaviour_value(log)
    every = {("", "behaviour"): behaviour} | {
        (name, method): estimator for name, found in estimators.items() for method, estimator in found.items()
    }
    estimates = _estimated(every, log)
    warned = {name: _warnings(policies[name], q, log) for name, q in parts.items()}
    method = log.settings.method
    if method == "auto":
        method = _headline(parts.values(), log)
    found: dict[str, Evidence] = {}
    for name, q in parts.items():
        lines, doubtful = warned[name]
        beyond = _beyond(q, log)
        if beyond > MUCH:
            lines = [*lines, _beyond_words(beyond)]
        found[name] = Evidence(
            name=name,
            method=method,
            estimates={m: estimates[name, m] for m in log.settings.methods},
            behaviour=estimates["", "behaviour"],
            behaviour_model=log.behaviour,
            effective_episodes=q.weights.effective_episodes,
            hardly_taken=_hardly_taken(q, log)[0],
            beyond=beyond,
            warnings=tuple(lines),
            doubtful=doubtful,
            n_rows=len(log.batch),
            n_episodes=len(log.episodes),
            discount=log.settings.discount,
            level=log.settings.level,
            source="arrays" if log.batch.origin is None else log.batch.origin.name,
            kind=kind,
        )
        for line in lines:
            python_warnings.warn(f"{name}: {line}", EvidenceWarning, stacklevel=5 if kind == "table" else 4)
    return Comparison(found)


def _check_policy(name: str, policy: Policy, batch: Transitions) -> None:
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise InvalidInput(f"{name} must be a Policy (act, probabilities, n_actions); got {policy!r}.")
    if policy.n_actions != batch.n_actions:
        raise InvalidInput(f"{name} has {policy.n_actions} actions, the batch {batch.n_actions}.")
    if _changes_with_time(policy):
        raise InvalidInput(f"{name} changes with time; only policies that do not can be evaluated from a log.")
    schema = getattr(policy, "schema", None)
    if schema is not None and schema != batch.schema:
        raise InvalidInput(
            f"{name} was learned from a table with other columns or actions than this batch: {schema} and {batch.schema}. "
            "Read the table with schema=policy.schema."
        )


def _changes_with_time(policy: Any) -> bool:
    if isinstance(policy, EpsilonGreedy | Mixture):  # which change if a member does
        members = policy.policies if isinstance(policy, Mixture) else [policy.policy]
        return any(map(_changes_with_time, members))
    return hasattr(policy, "at") and policy.at(0) is not policy


def _decisions(policy: Policy, states: Floats, allowed: Bools | None) -> Floats:
    """Return a policy's probabilities (n, A), or say what is wrong with them."""
    p = as_floats(policy.probabilities(states, allowed), "probabilities of the policy", ndim=2)
    check_shape(p, "probabilities of the policy", (len(states), policy.n_actions))
    right = (p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) <= SUMS_TO_ONE)
    check_rows(right, p, "probabilities of the policy", "must be a distribution over the actions")
    if allowed is not None:
        kept = ~((p > 0) & ~allowed).any(axis=1)
        check_rows(kept, p, "probabilities of the policy", "must be zero where an action is not allowed")
    return p


def _quantities(policies: list[Policy], log: _Log) -> _Quantities:
    t, e = log.batch, log.episodes
    probabilities = np.empty((len(t), t.n_actions))
    start, taken, following = np.zeros(len(e)), np.zeros(len(t)), np.zeros(len(t))
    needed = bool(NEEDS_MODEL & set(log.settings.methods)) or bool(e.truncated.any())
    next_masks = t.next_masks() if needed else None
    systems: list[LeafSystem | None] = []
    of_next = np.zeros_like(probabilities)
    for k, policy in enumerate(policies):
        rows = np.flatnonzero(log.fold_of_row == k)
        probabilities[rows] = _decisions(policy, t.states[rows], _rows_of(t.allowed, rows))
        if not needed:
            continue
        rest = t.subset(log.fold_of_row != k)
        values, system = _values_of(policy, rest, log, log.rng(VALUES, k))
        systems.append(system)
        now = values(t.states[rows])
        taken[rows] = chosen_entries(now, t.actions[rows])
        first = np.flatnonzero(log.fold_of_episode == k)
        place = np.searchsorted(rows, e.starts[first])
        start[first] = _expected(probabilities[e.starts[first]], now[place])
        if e.discount > 0:
            on = rows[~t.terminated[rows]]
            if len(on):
                of_next[on] = _decisions(policy, t.next_states[on], _rows_of(next_masks, on))
                following[on] = _expected(of_next[on], values(t.next_states[on]))
    with np.errstate(over="ignore"):  # weights tell
        ratios = chosen_entries(probabilities, t.actions) / log.behaviour.probability
    weights = Weights(e, ratios)
    closing = None if weights.overflows else _closing(systems, of_next, weights.of_episodes, log)
    return _Quantities(weights, probabilities, start, taken, following, closing)


def _values_of(
    policy: Policy, rest: Transitions, log: _Log, rng: np.random.Generator
) -> tuple[Callable[[Floats], Floats], LeafSystem | None]:
    """Return the action values of a policy, fitted on other episodes: a function from states (n, d) to (n, A); and the system behind it, if any."""
    s = log.settings
    if s.evaluator is None:
        system = leaf_system(policy, Episodes(rest, s.discount), s.regression, rng)
        return system.q(s.regression.n_jobs).values, system
    q = s.evaluator.evaluate(policy, rest, discount=s.discount, states=rest.states, rng=rng)
    return (lambda states: checked_values(q, states, policy.n_actions, type(s.evaluator).__name__)), None


def _closing(systems: Sequence[LeafSystem | None], probabilities: Floats, amounts: Floats, log: _Log) -> Floats:
    """Return by how much each episode moves the mean of ``amounts`` (E,) of the values that close truncated episodes of other folds (E,).

    They add up to zero: the estimate stays what it is, and its spread gets what the error of these values adds to it.
    """
    t, e = log.batch, log.episodes
    out = np.zeros(len(e))
    for k, system in enumerate(systems):
        closed = np.flatnonzero(e.truncated & (log.fold_of_episode == k))
        if system is not None and len(closed):
            ends, others = e.last[closed], log.fold_of_episode != k
            worth = e.weights[closed] * amounts[closed] * e.worth[ends] * e.discount
            scale = float(worth.max()) or 1.0  # of weights that may be huge
            moved = system.response(t.next_states[ends], probabilities[ends], worth / scale)
            out[others] += scale * moved / e.weights[others].mean()
    return out


def _behaviour_value(log: _Log) -> MeanOfEpisodes:
    """Return what was done: the mean return, truncated episodes closed by the value of the log's own way to decide.

    Whatever it decides by, its value is a function of the state alone, whose fitted evaluation needs no actions.
    """
    t, e = log.batch, log.episodes
    values = np.zeros(len(t))
    if not e.truncated.any():
        return MeanOfEpisodes(e.summed(_closed_rewards(log, values)))
    systems: list[LeafSystem | None] = []
    unlabelled = Transitions(
        t.states,
        np.zeros(len(t), dtype=np.int64),
        t.rewards,
        t.next_states,
        t.terminated,
        n_actions=1,
        episode=t.episode,
        weight=t.weight,
    )
    for k in range(log.n_folds):
        ends, system = e.last[e.truncated & (log.fold_of_episode == k)], None
        if len(ends):
            rest = Episodes(unlabelled.subset(log.fold_of_row != k), e.discount)
            system = leaf_system(Constant(0, 1), rest, log.settings.regression, log.rng(LOGGED_VALUES, k))
            values[ends] = system.q(log.settings.regression.n_jobs).values(t.next_states[ends])[:, 0]
        systems.append(system)
    closing = _closing(systems, np.ones((len(t), 1)), np.ones(len(e)), log)
    return MeanOfEpisodes(e.summed(_closed_rewards(log, values)) + closing)


def _closed_rewards(log: _Log, next_values: Floats) -> Floats:
    """Return discounted rewards (n,), the last of truncated episodes with what the state that follows is worth."""
    t, e = log.batch, log.episodes
    rewards = t.rewards.copy()
    ends = e.last[e.truncated]
    rewards[ends] += e.discount * next_values[ends]
    return e.worth * rewards


def _fitted(policies: list[Policy], log: _Log, kind: str) -> FittedStart:
    s, e = log.settings, log.episodes
    if kind == "table":
        parts = [(np.arange(len(e)), leaf_system(policies[0], e, s.regression, log.rng(FITTED)))]
    else:
        parts = []
        for k, policy in enumerate(policies):  # on the fold alone: the rest is what the policy was learned from
            fold = Episodes(log.batch.subset(log.fold_of_row == k), s.discount)
            system = leaf_system(policy, fold, s.regression, log.rng(FITTED, k))
            parts.append((np.flatnonzero(log.fold_of_episode == k), system))
    n_products = sum(system.taken.nnz + system.following.nnz for _, system in parts) * s.n_resamples
    return FittedStart(parts, e.weights, s.regression.n_jobs, linear=n_products > MANY_PRODUCTS)


def _estimators(q: _Quantities, fitted: FittedStart | None, log: _Log) -> dict[str, Estimator]:
    t, e, w = log.batch, log.episodes, q.weights
    rewards = _closed_rewards(log, q.next_values)
    differences = e.worth * (t.rewards + e.discount * q.next_values - q.taken_values)
    closing = np.zeros(len(e)) if q.closing is None else q.closing
    total = 0.0 if w.overflows else float(np.average(w.of_episodes, weights=e.weights))
    shared = closing / total if total > 0 else closing  # of weights that are divided by their mean
    makers: dict[str, Callable[[], Estimator]] = {
        "doubly-robust": lambda: MeanOfEpisodes(q.start_values + e.summed(w.of_rows * differences) + closing),
        "weighted-doubly-robust": lambda: SumOfRatios.by_step(w, differences, q.start_values + shared),
        "weighted": lambda: replace(SumOfRatios.of_whole(w, e.summed(rewards)), means=shared),
        "per-decision": lambda: MeanOfEpisodes(e.summed(w.of_rows * rewards) + closing),
        "weighted-per-decision": lambda: replace(SumOfRatios.by_step(w, rewards), means=shared),
    }
    lost = w.overflows or w.lost_after is not None
    found: dict[str, Estimator] = {}
    for method in log.settings.methods:
        if fitted is not None and method == "fitted-q":
            found[method] = fitted
        elif w.overflows or (lost and method not in NEEDS_MODEL):
            found[method] = MeanOfEpisodes(np.full(len(e), np.nan))  # there is no estimate, and a warning says why
        else:
            found[method] = makers[method]()
    return found


def _estimated(estimators: Mapping[Any, Estimator], log: _Log) -> dict[Any, Estimate]:
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


def _headline(parts: Iterable[_Quantities], log: _Log) -> str:
    """Return the method that stands for a policy: doubly robust if there is overlap enough, else fitted Q, else the first."""
    enough = min(ENOUGH, len(log.episodes) / 2)
    overlap = all(q.weights.effective_episodes >= enough for q in parts)
    for method in ("doubly-robust", "fitted-q") if overlap else ("fitted-q", "doubly-robust"):
        if method in log.settings.methods:
            return method
    return log.settings.methods[0]


def _warnings(policies: list[Policy], q: _Quantities, log: _Log) -> tuple[list[str], bool]:
    """Return what speaks against trusting the estimates of a policy, and whether it speaks loudly."""
    lines: list[str] = []
    e, w = log.episodes, q.weights
    doubtful = False
    seen = _seen(policies, log)
    if seen > 0:
        doubtful = True
        lines.append(
            f"{_percent(seen)} of these episodes are among those that the policy was learned from, so that its value here flatters it. "
            "Evaluate it on other episodes, or the learner with cross_evaluate."
        )
    hardly, never = _hardly_taken(q, log)
    labels = log.batch.schema.action_labels
    if never:
        doubtful = True
        shares = ", ".join(f"{labels[a]!r} ({_percent(share)} of its decisions)" for a, share in never.items())
        lines.append(
            f"the log never took {shares}: nothing says what that is worth. Forbid it, or collect such decisions."
        )
    if hardly > MUCH:
        doubtful = True
        lines.append(
            f"{_percent(hardly)} of the policy's decisions were hardly ever taken in such states: there every estimate rests on guesses."
        )
    if w.overflows:
        doubtful = True
        lines.append(
            f"importance weights overflow (the largest is e^{w.largest_log:.0f}): there are no weighted and no doubly robust estimates. "
            "The probabilities of the logged actions are tiny; check them, or shorten the episodes."
        )
    elif w.lost_after is not None:
        doubtful = True
        lines.append(
            f"from step {w.lost_after + 1} on no logged episode agrees with the policy: there are no importance-sampling estimates, "
            "and the doubly robust ones rest on the fitted values alone from there on."
        )
    elif w.effective_episodes < min(ENOUGH, len(e) / 2):
        doubtful = True
        lines.append(
            f"the policy and the log overlap too little: {len(e)} episodes are worth {w.effective_episodes:.1f} of the policy's own "
            f"(the heaviest has {_percent(w.largest_share)} of the weight). Weighted and doubly robust estimates should not be trusted."
        )
    lines += _about_behaviour(log.behaviour)
    mean = _mean_ratio(q, log)
    if mean is not None:
        doubtful = True
        lines.append(
            f"the ratios of the policy's and the log's probabilities should be 1 in the mean, and are {mean:.2f}: "
            "either the log's probabilities are wrong, or the policy does what the log never does."
        )
    if len(e) < FEW_EPISODES:
        doubtful = doubtful or len(e) < TOO_FEW_EPISODES
        lines.append(f"there are only {len(e)} episodes: intervals from so few are too short.")
    return lines, doubtful


def _seen(policies: list[Policy], log: _Log) -> float:
    """Return the share of the episodes that the policy which decides in them was learned from."""
    trained = [getattr(policy, "training", None) for policy in policies]
    if not any(training is not None and training.episodes for training in trained):
        return 0.0
    hashes, share = log.batch.episode_hashes(), 0.0
    same = all(policy is policies[0] for policy in policies)
    for k, training in enumerate(trained[:1] if same else trained):
        mine = hashes if same else hashes[log.fold_of_episode == k]
        if training is not None and training.episodes:
            share += share_known(mine, training.episodes) * len(mine) / len(hashes)
    return share


def _about_behaviour(b: Behaviour) -> list[str]:
    lines = []
    if b.is_miscalibrated:
        lines.append(
            f"the estimated behaviour probabilities are off by {_percent(b.calibration_error)} in the mean "
            f"(chance alone: {_percent(b.expected_error)}): weighted estimates inherit that. Give the true ones, or another classifier."
        )
    if b.rare > 0.001:
        lines.append(
            f"{_percent(b.rare)} of the logged decisions had a probability below 1 %: a few of them may decide the weighted estimates."
        )
    return lines


def _mean_ratio(q: _Quantities, log: _Log) -> float | None:
    """Return the mean ratio of the policy's and the log's probabilities if it differs from 1 by more than chance explains."""
    e = log.episodes
    if q.weights.overflows:  # which has its own warning
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # a single ratio beyond all bounds is all noise
        sums, rows = e.weights * e.summed(q.weights.ratios), e.weights * e.lengths
        mean = float(sums.sum() / rows.sum())
        noise = float(np.linalg.norm(sums - mean * rows) / rows.sum())
    return mean if abs(mean - 1) > max(NOT_ONE, 4 * noise) else None


def _hardly_taken(q: _Quantities, log: _Log) -> tuple[float, dict[int, float]]:
    """Return the share of the policy's decisions that were hardly ever taken in such states, and the share of each action never taken at all."""
    leaves, counts = log.by_leaf
    rows = counts * (len(log.batch) / counts.sum())  # weights have any scale
    shares = (rows + 1) / (rows + 1).sum(axis=1, keepdims=True)  # by Laplace's rule, for few rows show nothing
    rare = shares[leaves] < HARDLY
    never = counts.sum(axis=0) == 0
    counted = log.episodes.weights[log.episodes.of_row]
    mean = np.average(q.probabilities, axis=0, weights=counted)
    taken = {int(a): float(mean[a]) for a in np.flatnonzero(never & (mean > 0))}
    return float(np.average((q.probabilities * rare).sum(axis=1), weights=counted)), taken


def _beyond(q: _Quantities, log: _Log) -> float:
    """Return the share of the value that lies behind the log's end, by the fitted values."""
    e = log.episodes
    if not e.truncated.any():
        return 0.0
    ends = e.last[e.truncated]
    tail = float((e.weights[e.truncated] * np.abs(e.worth[ends] * e.discount * q.next_values[ends])).sum())
    whole = float((e.weights * np.abs(q.start_values)).sum())
    return min(tail / whole, 1.0) if whole > 0 else float(tail > 0)


def _beyond_words(share: float) -> str:
    return (
        f"about {_percent(share)} of the value lies behind the end of the recorded episodes, where only the fitted values know of it; "
        "no interval covers their error there."
    )


def _expected(probabilities: Floats, values: Floats) -> Floats:
    """Return the mean of each row's values that have a probability (n,)."""
    return np.einsum("ij,ij->i", probabilities, np.where(probabilities > 0, values, 0.0))


def _rows_of(mask: Bools | None, rows: Ints) -> Bools | None:
    return None if mask is None else mask[rows]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
