r"""The parts of a learner's loss, all in reward units per episode.

A policy decides at the start states, with their weights, and at the next states, with the discount times its visits
(`capi.evaluators.averager`). The sum over these points of weight times regret is, to first order, what its decisions lose per episode.
All losses here are such sums or differences of values, so they compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from capi._utils.randomness import numbered_rng
from capi._utils.validation import Floats, Ints
from capi.data.transitions import Transitions
from capi.evaluators.averager import Averager, why_not
from capi.evaluators.scoring_models import ScoringModels, projections_of, settled_targets
from capi.evaluators.under_policy import UnderPolicy
from capi.learning import rules
from capi.learning.decision_points import BatchPoints
from capi.loss import greedy
from capi.policies import Decisions, Greedy, decided
from capi.policy_spaces._problem import ImprovementProblem
from capi.selection._refits import MODELS, SEEDS, Refit
from capi.types import Policy, QFunction, StateSample


@dataclass(frozen=True, eq=False)
class Task:
    """What all parts are measured with."""

    batch: Transitions
    policy: Policy
    q: QFunction
    discount: float
    starts: StateSample | None
    excluded: Ints  # actions that the learner never chooses
    seeds: np.random.SeedSequence
    n_jobs: int

    def model(self, refit: Refit, number: int) -> Averager:
        """Return the model that the refit's batch and trees are; trees are grown for an evaluator that has none."""
        if why_not(refit.q, refit.batch) is None:
            return Averager.of(refit.q, refit.batch, discount=self.discount, starts=self.starts, n_jobs=self.n_jobs)
        targets = settled_targets(refit.q, refit.batch, [refit.policy], self.discount, self.starts)
        grown = ScoringModels.grown(
            refit.batch,
            targets,
            discount=self.discount,
            rng=numbered_rng(self.seeds, MODELS, number),
            starts=self.starts,
            n_jobs=self.n_jobs,
            projections=projections_of(refit.q),
        )
        return grown.models[0]

    @cached_property
    def under(self) -> UnderPolicy:
        """The model of the whole batch under the learned policy."""
        return self.model(Refit(self.batch, self.policy, self.q), 0).under(self.policy)

    @cached_property
    def points(self) -> ImprovementProblem:
        """Where the policy decides, with the action values of the whole batch's model."""
        return self.problem(self.under, self.under.action_values)

    def visited(self, under: UnderPolicy) -> tuple[BatchPoints, Floats]:
        """Return the points where a policy may decide in a model, and how often it does so per episode."""
        points = BatchPoints.of(under.model.batch, self.starts)
        weights, first = under.decision_weights, len(points.starts.states)
        return points, np.concatenate([weights[:first], weights[first:][points.going_on]])

    def problem(self, under: UnderPolicy, q: QFunction) -> ImprovementProblem:
        """Return the points where a policy decides in a model, weighted by its visits, with the values of ``q``."""
        points, weights = self.visited(under)
        kept = weights > 0
        states, allowed = points.states[kept], None if points.allowed is None else points.allowed[kept]
        return ImprovementProblem(states, self.values(q, states), weights[kept], allowed)

    def values(self, q: QFunction, states: Floats) -> Floats:
        """Return action values with those actions worst that the learner never chooses (n, A)."""
        found = q.values(states)
        return rules.made_worst(found, self.excluded) if len(self.excluded) else found

    @property
    def stakes(self) -> float:
        """What the choice of actions is worth: the loss of the worst decisions that the learner may take."""
        gaps = np.where(np.isfinite(self.points.regrets), self.points.regrets, 0.0)
        return self.points.mean(np.delete(gaps, self.excluded, axis=1).max(axis=1)) * total_of(self.points)

    def best(self, model: Averager) -> Policy:
        """Return the best of all policies in a model that take only actions that the learner may choose."""
        best = model.best_policy()
        return Greedy(rules.WithoutActions(best.q, self.excluded), best.masked) if len(self.excluded) else best


def total_of(problem: ImprovementProblem) -> float:
    """Return the sum of the weights."""
    return float(problem.n_rows if problem.weights is None else problem.weights.sum())


def lost(problem: ImprovementProblem, decisions: Decisions) -> float:
    """Return the weighted sum of the regrets of ``decisions``."""
    return problem.loss_of(decisions) * total_of(problem)


def loss_in(task: Task, under: UnderPolicy, policy: Policy) -> float:
    """Return what the decisions of ``policy`` lose per episode by its own action values in a model."""
    problem = task.problem(under, under.action_values)
    return lost(problem, decided(policy, problem.states, problem.allowed))


class OfHalves(NamedTuple):
    """What one half of the episodes says about the other, averaged over both directions and all divisions."""

    evaluator: float
    space: float
    learning: float
    held_out: float


def of_halves(task: Task, halves: Sequence[tuple[Refit, Refit]]) -> OfHalves:
    """Return the parts of the loss that need two halves of the episodes; NaN without any."""
    found: list[OfHalves] = []
    points = task.points
    for number, pair in enumerate(halves):
        models = [task.model(refit, 1 + 2 * number + side) for side, refit in enumerate(pair)]
        judges = [_values_of(task, refit, model) for refit, model in zip(pair, models, strict=True)]
        tables = [task.values(q, points.states) for q in judges]
        for mine, other in ((0, 1), (1, 0)):
            policy = pair[mine].policy
            there = models[other].under(policy)
            across = ImprovementProblem(points.states, tables[other], points.weights, points.allowed)
            found.append(
                OfHalves(
                    lost(across, greedy(tables[mine], points.allowed)),
                    models[other].value(task.best(models[mine])) - there.value,
                    loss_in(task, models[mine].under(policy), policy),
                    loss_in(task, there, policy),
                )
            )
    return OfHalves(*np.mean(found, axis=0).tolist()) if found else OfHalves(*[math.nan] * 4)


def _values_of(task: Task, refit: Refit, model: Averager) -> QFunction:
    """Return the action values by a half: those of the learned policy on its trees, or the refit's own without trees."""
    return model.action_values(task.policy) if why_not(refit.q, refit.batch) is None else refit.q


def of_seeds(task: Task, evaluator: Any) -> float:
    """Return what greedy decisions in one evaluation of the policy lose in another with a different seed."""
    n_sweeps = getattr(evaluator, "n_sweeps", None)
    n_calls = 1 if n_sweeps is None else math.ceil(rules.horizon(task.batch, task.discount) / n_sweeps)
    tables = []
    for number in range(2):
        q: Any = None
        rng = numbered_rng(task.seeds, SEEDS, number)
        for _ in range(n_calls):
            q = evaluator.evaluate(
                task.policy, task.batch, discount=task.discount, states=task.points.states, previous=q, rng=rng
            )
        tables.append(task.values(q, task.points.states))
    p = task.points
    problems = [ImprovementProblem(p.states, table, p.weights, p.allowed) for table in tables]
    return float(np.mean([lost(problems[1 - i], greedy(tables[i], p.allowed)) for i in range(2)]))
