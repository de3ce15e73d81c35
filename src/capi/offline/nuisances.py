"""Ingredients of the estimators of a policy: importance weights, and values fitted on other episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from capi._utils.row_ops import chosen_entries
from capi._utils.validation import Bools, Floats, Ints, as_floats, check_rows, check_shape
from capi.data.transitions import Transitions
from capi.learning.iteration import checked_values
from capi.offline.episodes import Episodes
from capi.offline.estimators import Estimator, MeanOfEpisodes, SumOfRatios
from capi.offline.fitted_q import FittedEvaluation, FittedStart, fitted_evaluation
from capi.offline.importance_weights import Overlap, Weights
from capi.offline.log import FITTED, LOGGED_VALUES, VALUES, Log
from capi.policies import Constant
from capi.types import Policy

NEEDS_MODEL = {"doubly-robust", "weighted-doubly-robust"}
MANY_PRODUCTS = 3e9  # entries of the systems x resamples; above this, fitted Q is resampled through its derivative
Values = Callable[[Floats], Floats]  # states (n, d) -> action values (n, A)
SUMS_TO_ONE = 1e-5  # tolerance for a policy's probabilities, which may be in single precision


@dataclass(frozen=True, eq=False)
class Quantities:
    """Ingredients of the estimators of one policy."""

    weights: Weights
    probabilities: Floats  # (n, A) of the policy in the logged states
    start_values: Floats  # (E,)
    taken_values: Floats  # (n,)
    next_values: Floats  # (n,) zero where the process ended
    closing: Floats | None = None  # (E,) influence of each episode through the values that complete truncated episodes
    first_values: Floats | None = None  # (E, A) of all actions in the first states; None without fitted values
    evaluations: Sequence[FittedEvaluation | None] = ()  # of each fold
    next_probabilities: Floats | None = None  # (n, A) of the policy in the next states; None without fitted values
    whole: Overlap | None = None  # of the log that these episodes are a part of; by default they are all of it

    @property
    def overlap(self) -> Overlap:
        """How well the policy and the whole log overlap."""
        return self.weights.overlap if self.whole is None else self.whole


def _decisions(policy: Policy, states: Floats, allowed: Bools | None) -> Floats:
    """Return a policy's probabilities (n, A), or raise an error that says what is wrong with them."""
    p = as_floats(policy.probabilities(states, allowed), "probabilities of the policy", ndim=2)
    check_shape(p, "probabilities of the policy", (len(states), policy.n_actions))
    right = (p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) <= SUMS_TO_ONE)
    check_rows(right, p, "probabilities of the policy", "must be a distribution over the actions")
    if allowed is not None:
        kept = ~((p > 0) & ~allowed).any(axis=1)
        check_rows(kept, p, "probabilities of the policy", "must be zero where an action is not allowed")
    return p


def has_models(log: Log) -> bool:
    """Return whether the estimators need fitted values: those inside doubly robust ones, or those that complete truncated episodes."""
    return bool(NEEDS_MODEL & set(log.settings.methods)) or log.episodes.extent.truncated


def quantities_of(policies: list[Policy], log: Log) -> Quantities:
    """Return the ingredients of the estimators; ``policies`` has one policy per fold, values are fitted without the fold."""

    def values_of(k: int) -> tuple[Values, FittedEvaluation | None]:
        return _values_of(policies[k], log.batch.subset(log.fold_of_row != k), log, log.rng(VALUES, k))

    return quantities_by_fold(policies, values_of, log)


def quantities_on_trees(policy: Policy, evaluations: Sequence[FittedEvaluation | None], log: Log) -> Quantities:
    """Return the ingredients of another policy's estimators, with values fitted on the trees of ``evaluations``, one per fold; no tree is grown."""

    def values_of(k: int) -> tuple[Values, FittedEvaluation | None]:
        found = evaluations[k]
        if found is None:
            raise ValueError("a user's evaluator has no trees")
        fitted = found.of_policy(policy)
        return fitted.q.values, fitted

    return quantities_by_fold([policy] * log.n_folds, values_of, log)


def quantities_by_fold(
    policies: Sequence[Policy], values_of: Callable[[int], tuple[Values, FittedEvaluation | None]], log: Log
) -> Quantities:
    """Return the ingredients of the estimators; ``values_of`` gives the values that were fitted without a fold."""
    t, e = log.batch, log.episodes
    probabilities = np.empty((len(t), t.n_actions))
    start, taken, following = np.zeros(len(e)), np.zeros(len(t)), np.zeros(len(t))
    needed = has_models(log)
    first_values = np.zeros((len(e), t.n_actions)) if needed else None
    next_masks = t.next_masks() if needed else None
    evaluations: list[FittedEvaluation | None] = []
    of_next = np.zeros_like(probabilities)
    for k, policy in enumerate(policies):
        rows = np.flatnonzero(log.fold_of_row == k)
        if not len(rows):  # in a part of a log
            continue
        probabilities[rows] = _decisions(policy, t.states[rows], _rows_of(t.allowed, rows))
        if first_values is None:
            continue
        values, fitted = values_of(k)
        evaluations.append(fitted)
        now = values(t.states[rows])
        taken[rows] = chosen_entries(now, t.actions[rows])
        first = np.flatnonzero(log.fold_of_episode == k)
        place = np.searchsorted(rows, e.starts[first])
        first_values[first] = now[place]
        start[first] = _expected(probabilities[e.starts[first]], now[place])
        if e.discount > 0:
            on = rows[~t.terminated[rows]]
            if len(on):
                of_next[on] = _decisions(policy, t.next_states[on], _rows_of(next_masks, on))
                following[on] = _expected(of_next[on], values(t.next_states[on]))
    with np.errstate(over="ignore"):  # the weights report it
        ratios = chosen_entries(probabilities, t.actions) / log.behaviour.probability
    weights = Weights(e, ratios)
    closing = None if weights.overflows else _closing(evaluations, of_next, weights.of_episodes, log)
    after = of_next if needed else None
    return Quantities(weights, probabilities, start, taken, following, closing, first_values, evaluations, after)


def _values_of(
    policy: Policy, rest: Transitions, log: Log, rng: np.random.Generator
) -> tuple[Values, FittedEvaluation | None]:
    """Return the action values of a policy, fitted on other episodes, as a function from states (n, d) to (n, A), and their evaluation, if any."""
    s = log.settings
    if s.evaluator is None:
        fitted = fitted_evaluation(policy, Episodes(rest, s.discount), s.regression, rng)
        return fitted.q.values, fitted
    q = s.evaluator.evaluate(policy, rest, discount=s.discount, states=rest.states, rng=rng)
    return (lambda states: checked_values(q, states, policy.n_actions, type(s.evaluator).__name__)), None


def _closing(
    evaluations: Sequence[FittedEvaluation | None], probabilities: Floats, amounts: Floats, log: Log
) -> Floats:
    """Return how much each episode moves the mean of ``amounts`` (E,) of the values that complete truncated episodes of other folds (E,).

    The results sum to zero: the estimate does not change, and its spread includes the error of these values.
    """
    t, e = log.batch, log.episodes
    out = np.zeros(len(e))
    for k, fitted in enumerate(evaluations):
        ends, worth = closed_ends(k, amounts, log)
        if fitted is not None and len(ends):
            others = log.fold_of_episode != k
            scale = float(worth.max()) or 1.0  # weights may be huge
            moved = fitted.response(t.next_states[ends], probabilities[ends], worth / scale)
            out[others] += scale * moved / e.weights[others].mean()
    return out


def closed_ends(fold: int, amounts: Floats, log: Log) -> tuple[Ints, Floats]:
    """Return the last rows of the truncated episodes of a fold, and how much of their next states' values counts; ``amounts`` (E,)."""
    e = log.episodes
    closed = np.flatnonzero(e.truncated & (log.fold_of_episode == fold))
    ends = e.last[closed]
    return ends, e.weights[closed] * amounts[closed] * e.over_steps(e.worth)[ends] * e.discount


def behaviour_value(log: Log) -> MeanOfEpisodes:
    """Return the value of the logged behaviour: the mean return, with truncated episodes completed by the behaviour's own value.

    However the log was decided, its value is a function of the state alone, and fitting it needs no actions.
    """
    t, e = log.batch, log.episodes
    if not e.extent.truncated:
        return logged_returns(log, [])
    evaluations: list[FittedEvaluation | None] = []
    for k in range(log.n_folds):
        needed = bool((e.truncated & (log.fold_of_episode == k)).any())
        evaluations.append(logged_evaluation(k, log) if needed else None)
    closing = _closing(evaluations, np.ones((len(t), 1)), np.ones(len(e)), log)
    returns = logged_returns(log, [None if fitted is None else fitted.q.values for fitted in evaluations])
    return MeanOfEpisodes(returns.numbers + closing)


def logged_evaluation(fold: int, log: Log) -> FittedEvaluation:
    """Return the value of the logged behaviour, fitted without a fold: a value of states alone."""
    t = log.batch
    unlabelled = Transitions(
        t.states,
        np.zeros(len(t), dtype=np.int64),
        t.rewards,
        t.next_states,
        t.terminated,
        n_actions=1,
        episodes=t.episodes,
        weights=t.weights,
        elapsed=t.elapsed,
    )
    rest = Episodes(unlabelled.subset(log.fold_of_row != fold), log.episodes.discount)
    return fitted_evaluation(Constant(0, 1), rest, log.settings.regression, log.rng(LOGGED_VALUES, fold))


def logged_returns(log: Log, values_of: Sequence[Values | None]) -> MeanOfEpisodes:
    """Return the mean return of the logged episodes, completed with the values that were fitted without the fold, if some are truncated."""
    t, e = log.batch, log.episodes
    following = np.zeros(len(t))
    for k, values in enumerate(values_of):
        ends = e.last[e.truncated & (log.fold_of_episode == k)]
        if values is not None and len(ends):
            following[ends] = values(t.next_states[ends])[:, 0]
    return MeanOfEpisodes(e.summed(_closed_rewards(log, following)))


def _closed_rewards(log: Log, next_values: Floats) -> Floats:
    """Return discounted rewards (n,); the last one of a truncated episode includes the value of the next state."""
    t, e = log.batch, log.episodes
    rewards = t.rewards.copy()
    ends = e.last[e.truncated]
    rewards[ends] += e.discount * e.over_steps(next_values)[ends]
    return e.worth * rewards


def fitted_start(policies: list[Policy], log: Log, kind: str) -> FittedStart:
    """Return fitted Q evaluation of one policy on the whole log, or of one policy per fold on its fold."""
    s, e = log.settings, log.episodes
    if kind == "table":
        parts = [(np.arange(len(e)), fitted_evaluation(policies[0], e, s.regression, log.rng(FITTED)))]
    else:
        parts = []
        for k, policy in enumerate(policies):  # on the fold alone: the policy was learned from the rest
            fold = Episodes(log.batch.subset(log.fold_of_row == k), s.discount)
            fitted = fitted_evaluation(policy, fold, s.regression, log.rng(FITTED, k))
            parts.append((np.flatnonzero(log.fold_of_episode == k), fitted))
    n_products = sum(part.n_entries for _, part in parts) * s.n_resamples
    return FittedStart(parts, e.weights, s.regression.n_jobs, linear=n_products > MANY_PRODUCTS)


def estimators_of(q: Quantities, fitted: FittedStart | None, log: Log) -> dict[str, Estimator]:
    """Return the requested estimators; an estimator that the data do not allow is NaN."""
    overlap = q.overlap
    lost = overlap.overflows or overlap.lost_after is not None
    found: dict[str, Estimator] = {}
    for method in log.settings.methods:
        if method == "fitted-q":
            if fitted is not None:
                found[method] = fitted
        elif overlap.overflows or (lost and method not in NEEDS_MODEL):
            found[method] = MeanOfEpisodes(np.full(len(log.episodes), np.nan))  # no estimate, and a warning says why
        else:
            found[method] = estimator_of(method, q, log)
    return found


def estimator_of(method: str, q: Quantities, log: Log) -> MeanOfEpisodes | SumOfRatios:
    """Return an estimator other than fitted Q, whether or not the policy and the log overlap."""
    t, e, w = log.batch, log.episodes, q.weights
    rewards = _closed_rewards(log, q.next_values)
    differences = e.worth * (t.rewards + e.discount * e.over_steps(q.next_values) - q.taken_values)
    closing = np.zeros(len(e)) if q.closing is None else q.closing
    shared = closing / q.overlap.mean if q.overlap.mean > 0 else closing  # for weights that are divided by their mean
    makers: dict[str, Callable[[], MeanOfEpisodes | SumOfRatios]] = {
        "doubly-robust": lambda: MeanOfEpisodes(q.start_values + e.summed(w.of_rows * differences) + closing),
        "weighted-doubly-robust": lambda: SumOfRatios.by_step(w, differences, q.start_values + shared),
        "weighted": lambda: replace(SumOfRatios.of_whole(w, e.summed(rewards)), means=shared),
        "per-decision": lambda: MeanOfEpisodes(e.summed(w.of_rows * rewards) + closing),
        "weighted-per-decision": lambda: replace(SumOfRatios.by_step(w, rewards), means=shared),
    }
    return makers[method]()


def _expected(probabilities: Floats, values: Floats) -> Floats:
    """Return the expected value of each row under its probabilities (n,); values with probability 0 are ignored."""
    return np.einsum("ij,ij->i", probabilities, np.where(probabilities > 0, values, 0.0))


def _rows_of(mask: Bools | None, rows: Ints) -> Bools | None:
    return None if mask is None else mask[rows]
