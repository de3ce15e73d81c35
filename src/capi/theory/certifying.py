"""Certificates: what can be said with confidence about the last improvement of a learner, from its own batch."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from capi._utils.parameters import strictly_between
from capi._utils.randomness import RandomState, numbered_rng, seed_sequence
from capi._utils.row_ops import chosen_entries
from capi._utils.validation import Floats, Ints, as_int, check_choice
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError, RareActionWarning
from capi.evaluators.averager import Averager, why_not
from capi.learning import rules
from capi.learning.iteration import Loop
from capi.learning.learner import Learner
from capi.loss import greedy
from capi.policies import Decisions, decided
from capi.policy_spaces import OptimalTrees, Thresholds, Trees, Unrestricted
from capi.policy_spaces._problem import ImprovementProblem, improved
from capi.theory._certificate_result import Certificate
from capi.theory._fronts import EXACT, Cuts, StarHulls, drawn_signs, with_all_members
from capi.theory.deviations import Complexity, bernstein_bound, least_mean
from capi.theory.growth import log_growth
from capi.types import PolicyEvaluator, PolicySpace

__all__ = ["Certificate", "certificate"]

N_DRAWS = 100
SHARE_OF_DRAWS = 0.05  # of delta, for the error of a finite number of draws
HALVES, IMPROVEMENT, EVALUATION, SIGNS, FIT = range(5)  # random-number streams


def certificate(
    learner: Learner,
    batch: Transitions,
    delta: float = 0.05,
    *,
    units: Literal["episodes", "rows"] = "episodes",
    n_draws: int = N_DRAWS,
    random_state: RandomState = 0,
) -> Certificate:
    """Return bounds on the loss of a learner's last improvement that hold with probability 1 - delta, in reward units.

    The episodes are divided into halves. The learner is refitted, with its own settings, on the first half, which gives a policy and its action
    values. On the second half, which is independent of both, the gap-weighted loss of the policy is a mean of independent units, so an empirical
    Bernstein bound holds for it; local Rademacher averages bound how small the loss of any policy of the space could be. The policy is then
    evaluated anew on the second half: where the two evaluations differ, values are uncertain. The bounds are about the refitted policy in the values of the first half,
    where losses above the largest one of that half count as that one; how wrong these values are is estimated, not bounded.

    Parameters
    ----------
    learner : Learner
        A `CAPI`, fitted or not; its settings are used.
    batch : Transitions
        The batch that it learns from, with at least four episodes.
    delta : float in (0, 1)
        The probability with which some bound may fail.
    units : "episodes" or "rows"
        What is independent. Rows of an episode are not; "rows" treats them as if they were, like the paper's analysis.
    n_draws : int
        Draws of random signs for policy spaces whose suprema are exact (`Thresholds`); others use their growth function.
    random_state : int, Generator or None

    Examples
    --------
    >>> from capi import CAPI
    >>> from capi.evaluators import FittedQ
    >>> from capi.policy_spaces import Thresholds
    >>> rng = np.random.default_rng(0)
    >>> x, arms = rng.random((8000, 1)), rng.integers(2, size=8000)
    >>> batch = Transitions(x, arms, 1.0 * (arms == (x[:, 0] > 0.4)), x, np.ones(8000, dtype=bool))
    >>> learner = CAPI(FittedQ(min_samples_split=200), Thresholds(), discount=0.0, random_state=0)
    >>> found = certificate(learner, batch)
    >>> found.is_vacuous, round(found.loss_bound, 3)
    (False, 0.003)
    """
    strictly_between(0, 1)(delta, "delta")
    check_choice(units, "units", ("episodes", "rows"))
    draws, seeds = as_int(n_draws, "n_draws", minimum=2), seed_sequence(random_state)
    _check(learner, batch)
    first, second = batch.split(0.5, random_state=numbered_rng(seeds, HALVES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RareActionWarning)  # fit warns of the whole batch
        loop = rules.with_rules(learner.loop(), first, None)
        evaluator, space = _parts_of(loop)
        again = clone(learner)
        if "random_state" in again.get_params(deep=False):
            again.set_params(random_state=int(numbered_rng(seeds, FIT).integers(2**31)))
        again.fit(first)
        excluded = rules.excluded_actions(evaluator, first)
    policy, q = again.policy_, again.q_
    kept = np.setdiff1d(np.arange(batch.n_actions), excluded)

    learned, held_out = (_problem(part, q, excluded) for part in (first, second))
    largest = float(_worst(learned, kept).max())
    shares, members = _units(second, units)
    losses, n_clipped = _clipped(_lost(held_out, decided(policy, second.states, second.allowed)), largest)
    of_units = np.bincount(members, losses * shares).astype(np.float64) * (int(members.max()) + 1)
    bound = bernstein_bound(of_units, largest, delta / 2)

    bounded = ImprovementProblem(second.states, -np.minimum(_lost_by_all(held_out), largest), shares, second.allowed)
    best = improved(with_all_members(space), bounded, q=q, rng=numbered_rng(seeds, IMPROVEMENT))
    least = bounded.loss_of(decided(best, second.states, second.allowed))
    complexity = _complexity(space, held_out, kept, shares, members, largest, draws, seeds, SHARE_OF_DRAWS * delta)
    proven = isinstance(space, EXACT) and not held_out.masked
    at_least = 0.0
    if proven and complexity is not None:
        at_least = least_mean(max(least - _remaining(best), 0.0), complexity, delta / 2)

    again_q = _evaluated(evaluator, policy, second, loop.discount, numbered_rng(seeds, EVALUATION))
    other = _problem(second, again_q, excluded)
    differences = np.abs(held_out.values - other.values)[:, kept].max(axis=1)
    reversed_ = _lost(other, greedy(held_out.values, held_out.allowed))
    worst = _worst(held_out, kept)
    visits, concentration, notes = _visits(q, first, policy, loop.discount)
    if n_clipped:
        notes.append(
            f"{n_clipped} held-out rows lose more than any row of the other half; they count as the largest loss there."
        )
    if complexity is None and not isinstance(space, Unrestricted):  # there the best policy loses nothing
        notes.append(
            f"the number of different policies of {type(space).__name__} is not known, so the best one may lose nothing."
        )
    elif complexity is not None and not proven:
        notes.append(f"{type(space).__name__} may not find its best policy, so the best one may lose nothing.")
    return Certificate(
        delta=float(delta),
        held_out_loss=float(np.mean(of_units)),
        loss_bound=bound,
        least_loss=least,
        least_bound=min(at_least, bound),
        learning_loss=learned.loss_of(decided(policy, first.states, first.allowed)),
        stakes=float(shares @ np.minimum(worst, largest)),
        largest_gap=largest,
        values_loss=float(shares @ reversed_),
        values_error=math.sqrt(float(shares @ np.square(differences))),
        uncertain_decisions=float(shares @ (_gaps(held_out, kept) <= 2 * differences)),
        decisions_per_episode=visits,
        concentration=concentration,
        units=units if batch.episodes is not None else "rows",
        n_units=int(members.max()) + 1,
        n_rows=len(second),
        n_draws=draws if complexity is not None and complexity.hulls is not None else 0,
        notes=tuple(notes),
    )


def _check(learner: Any, batch: Any) -> None:
    if not isinstance(learner, Learner):
        raise InvalidInputError(f"learner must be a learner, such as a CAPI; got {type(learner).__name__}.")
    if not isinstance(batch, Transitions):
        raise InvalidInputError(
            f"batch must be the Transitions that the learner learns from; got {type(batch).__name__}."
        )
    if batch.n_episodes < 4:
        raise InvalidInputError(
            f"certificate divides the episodes into halves, so it needs at least four; this batch has {batch.n_episodes}. "
            "Name the episode column, or collect more episodes."
        )


def _parts_of(loop: Loop) -> tuple[PolicyEvaluator, PolicySpace]:
    """Return evaluator and space; refuse loops whose last policy is not that of an improvement which can be repeated."""
    if not isinstance(loop.evaluator, PolicyEvaluator) or not isinstance(loop.space, PolicySpace):
        raise InvalidInputError(
            "certificate needs an evaluator and a space that are the same in every round; one is a function of it."
        )
    if loop.update is not None or getattr(loop.space, "starts_from_previous", False):
        raise InvalidInputError(
            "certificate is about the policy of the last improvement; this learner combines it with earlier policies."
        )
    return loop.evaluator, loop.space


def _problem(part: Transitions, q: Any, excluded: Ints) -> ImprovementProblem:
    values = q.values(part.states)
    made = rules.made_worst(values, excluded) if len(excluded) else values
    return ImprovementProblem(part.states, made, part.weights, part.allowed)


def _lost(problem: ImprovementProblem, decisions: Decisions) -> Floats:
    """Return the loss of decisions in each row (n,)."""
    gaps = _lost_by_all(problem)
    return chosen_entries(gaps, decisions) if decisions.ndim == 1 else np.einsum("ij,ij->i", gaps, decisions)


def _lost_by_all(problem: ImprovementProblem) -> Floats:
    """Return the loss of every action (n, A); those that are not allowed have none."""
    return np.where(np.isfinite(problem.regrets), problem.regrets, 0.0)


def _worst(problem: ImprovementProblem, kept: Ints) -> Floats:
    """Return the largest loss that a decision may have in each row (n,)."""
    return _lost_by_all(problem)[:, kept].max(axis=1)


def _gaps(problem: ImprovementProblem, kept: Ints) -> Floats:
    """Return the gap between the best two actions of each row (n,)."""
    gaps = problem.regrets[:, kept]
    return np.partition(gaps, 1, axis=1)[:, 1] if gaps.shape[1] > 1 else np.full(len(gaps), np.inf)


def _clipped(losses: Floats, largest: float) -> tuple[Floats, int]:
    return np.minimum(losses, largest), int((losses > largest).sum())


def _units(part: Transitions, units: str) -> tuple[Floats, Ints]:
    """Return the share of each row, with which units count alike, and the number of its unit (n,)."""
    w = np.ones(len(part)) if part.weights is None else part.weights
    number = np.arange(len(part)) if units == "rows" else np.repeat(np.arange(part.n_episodes), part.episode_lengths)
    totals = np.bincount(number, w)
    counts = np.cumsum(totals > 0) - 1  # units without weight are left out
    share = w / np.where(totals > 0, totals, 1.0)[number] / int((totals > 0).sum())
    return share, np.where(totals > 0, counts, 0)[number]


def _remaining(policy: Any) -> float:
    """Return how much less than the policy the best one of its space may lose, by its own certificate."""
    return float(getattr(policy, "remaining_gap", 0.0))


def _complexity(
    space: Any,
    problem: ImprovementProblem,
    kept: Ints,
    shares: Floats,
    members: Ints,
    largest: float,
    n_draws: int,
    seeds: np.random.SeedSequence,
    delta: float,
) -> Complexity | None:
    """Return the complexity of a space on the sample, or None if its growth function is not known."""
    n, worst = int(members.max()) + 1, np.minimum(_worst(problem, kept), largest)
    of_units = np.bincount(members, worst * shares) * n
    mean_square = math.sqrt(float(np.mean(np.square(of_units))))
    if (
        isinstance(space, Thresholds)
        and not space.monotone
        and not problem.masked
        and not np.isnan(problem.states).any()
    ):
        lost = np.minimum(problem.regrets[:, kept], largest)
        grouped = n < problem.n_rows
        cuts = Cuts(problem.states, lost, shares, space.feature, by_means=grouped)
        signs = drawn_signs(None, shares, numbered_rng(seeds, SIGNS), members)
        hulls = StarHulls.of((cuts.front(signs()) for _ in range(n_draws)), is_hull=False)
        return Complexity(n, largest, hulls, 0.0, mean_square, delta)
    if isinstance(space, OptimalTrees | Trees | Thresholds):
        size = log_growth(
            space, problem.n_rows, n_features=2 * problem.n_features, n_actions=len(kept)
        )  # missing values: two ways
        return Complexity(n, largest, None, size, mean_square, 0.0)
    return None


def _evaluated(evaluator: Any, policy: Any, part: Transitions, discount: float, rng: np.random.Generator) -> Any:
    """Return the action values of a policy by another batch, with as many sweeps as reach the horizon."""
    n_sweeps = getattr(evaluator, "n_sweeps", None)
    n_calls = 1 if n_sweeps is None else math.ceil(rules.horizon(part, discount) / n_sweeps)
    q = None
    for _ in range(n_calls):
        q = evaluator.evaluate(policy, part, discount=discount, states=part.states, previous=q, rng=rng)
    return q


def _visits(q: Any, batch: Transitions, policy: Any, discount: float) -> tuple[float, float, list[str]]:
    """Return the discounted decisions of an episode, and how much more often than the log the policy visits some row."""
    reason = why_not(q, batch)
    if reason is not None:
        n = 1.0 if batch.terminated.all() else 1 / (1 - discount)
        return n, 1.0 if batch.terminated.all() else math.nan, [f"{reason.split('. ')[0]}; visits were not measured."]
    under = Averager.of(q, batch, discount=discount).under(policy)
    weights = np.ones(len(batch)) if batch.weights is None else batch.weights
    counted = weights > 0
    visits = under.occupancy / under.occupancy.sum()
    ratio = float((visits[counted] / (weights[counted] / weights.sum())).max())
    return float(under.decision_weights.sum()), ratio, []
