r"""The states that matter: where a policy decides, and how often.

A policy of a small space cannot be right everywhere, so it should be right where it goes. Decisions are made at the start states, with weight
:math:`d_0`, and at the next states of rows after which the process continues, with weight :math:`\gamma \mu_i`, where
:math:`\mu` is the occupancy of the current policy: exact in a model (`capi.evaluators.Exact`), or in the model that the batch and the trees of its
Q are (`capi.evaluators.averager`).

An occupancy that is estimated from a batch may live on a few rows, and what is learned from few rows is noise. So "mixture" sums
the occupancies of all rounds, and mixes in all points alike until the weights are spread over enough of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from capi._utils.validation import Bools, Floats, Ints, as_allowed
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators.averager import Averager, checked_starts, why_not
from capi.evaluators.under_policy import effective_number
from capi.learning.iteration import Weighting, checked_values
from capi.types import Policy, QFunction, StateSample

ENOUGH = 1000  # effective points: over a hundred for each of the eight leaves of a tree of depth 3


@dataclass(frozen=True, eq=False)
class Visited:
    """The weights of a round's points."""

    weights: Floats  # (m,) on which the policy is improved
    visits: Floats  # (m,) occupancies summed over the rounds, each with sum 1
    effective: float  # rows or states on which the round's policy lives


@dataclass(frozen=True, eq=False)
class BatchPoints:
    """The start states of a batch's episodes, and the next states after which the process continues."""

    batch: Transitions
    starts: StateSample

    @classmethod
    def of(cls, batch: Transitions, starts: StateSample | None) -> BatchPoints:
        """Return the points of a batch; ``starts`` are by default the first states of its episodes."""
        return cls(batch, checked_starts(starts, batch))

    @cached_property
    def going_on(self) -> Ints:
        """The rows after which the process continues (m,)."""
        return np.flatnonzero(~self.batch.terminated)

    @cached_property
    def states(self) -> Floats:
        """The points, read-only."""
        x = np.concatenate([self.starts.states, self.batch.next_states[self.going_on]])
        x.flags.writeable = False
        return x

    @cached_property
    def allowed(self) -> Bools | None:
        """The actions that each point allows."""
        following = self.batch.next_masks()
        if following is None:
            return None
        shape = (len(self.starts.states), self.batch.n_actions)
        first = as_allowed(self.starts.allowed, "allowed actions of the starts", shape)
        return np.concatenate([np.ones(shape, dtype=bool) if first is None else first, following[self.going_on]])

    @cached_property
    def even(self) -> Floats:
        """The weights of all points alike, with sum 1; rows count by their weights."""
        w = np.ones(len(self.batch)) if self.batch.weights is None else self.batch.weights
        of_starts = np.ones(len(self.starts.states)) if self.starts.weights is None else self.starts.weights
        both = np.concatenate([of_starts * w.mean() / of_starts.mean(), w[self.going_on]])
        return both / both.sum()

    @property
    def enough(self) -> float:
        """The effective number of points that a mixture must have."""
        return min(ENOUGH, effective_number(self.even) / 2)

    def values(self, q: QFunction, n_actions: int, evaluator: str) -> Floats:
        """Return Q at the points; the leaves of the next states of a batch are known already."""
        first = checked_values(q, self.starts.states, n_actions, evaluator)
        following = checked_values(q, self.batch.next_states, n_actions, evaluator)
        return np.concatenate([first, following[self.going_on]])

    def occupancy(self, q: QFunction, policy: Policy, discount: float) -> tuple[Floats, float]:
        """Return how often ``policy`` decides at each point, with sum 1, and the effective number of rows that it visits."""
        under = Averager.of(q, self.batch, discount=discount, starts=self.starts).under(policy)
        n = len(self.starts.states)
        weights = under.decision_weights
        visits = np.concatenate([weights[:n], weights[n:][self.going_on]])
        return visits / visits.sum(), under.effective_rows


@dataclass(frozen=True, eq=False)
class ModelPoints:
    """All states of a model, which gives exact occupancies."""

    mdp: Any
    allowed: None = None
    enough: float = 0.0  # exact visits are not noise, however few they are

    @property
    def states(self) -> Floats:
        """All states."""
        x: Floats = self.mdp.states
        return x

    @cached_property
    def even(self) -> Floats:
        """The weights of all states alike, with sum 1."""
        return np.full(len(self.states), 1 / len(self.states))

    def values(self, q: QFunction, n_actions: int, evaluator: str) -> Floats:
        """Return Q of all states."""
        return checked_values(q, self.states, n_actions, evaluator)

    def occupancy(self, q: QFunction, policy: Policy, discount: float) -> tuple[Floats, float]:  # noqa: ARG002  the model knows
        """Return how often ``policy`` visits each state, discounted, with sum 1, and the effective number of states."""
        visits = self.mdp.discounted_occupancy(policy)
        return visits / visits.sum(), effective_number(visits)


Points: TypeAlias = BatchPoints | ModelPoints


def points_of(evaluator: Any, batch: Transitions | None, starts: StateSample | None) -> Points:
    """Return the points at which policies decide."""
    mdp = getattr(evaluator, "mdp", None)
    if mdp is not None and hasattr(mdp, "discounted_occupancy"):
        return ModelPoints(mdp)
    if batch is None:
        raise InvalidInputError(
            f"state_weights must be 'batch' with {type(evaluator).__name__} and no batch: there is no model in which to follow a policy."
        )
    return BatchPoints.of(batch, starts)


def visited(
    weighting: Weighting, points: Points, q: QFunction, policy: Policy, discount: float, earlier: Floats | None
) -> Visited:
    """Return the weights of the points in a round: those of ``policy``, whose Q is ``q``, and of ``earlier`` rounds' visits."""
    if isinstance(points, BatchPoints) and (reason := why_not(q, points.batch)) is not None:
        raise InvalidInputError(
            f"state_weights={weighting!r} needs the visits of a policy. {reason} Or set state_weights='batch' (--state-weights batch)."
        )
    if earlier is not None and len(earlier) != len(points.even):
        raise InvalidInputError(
            f"after must be a round of the same batch and starts: it counts visits to {len(earlier)} points, these have {len(points.even)}."
        )
    now, effective = points.occupancy(q, policy, discount)
    visits = now if earlier is None else earlier + now
    together = visits / visits.sum()
    weights = now if weighting == "occupancy" else mixed(together, points.even, points.enough)
    return Visited(weights, visits, effective)


def mixed(visits: Floats, even: Floats, enough: float) -> Floats:
    """Return visits mixed with even weights, as few of these as make the effective number of points large enough."""
    if effective_number(visits) >= enough:
        return visits
    a, b, c = float(visits @ visits), float(visits @ even), float(even @ even)
    curve, slope = a - 2 * b + c, a - b  # sum of squares with the share s of even weights: curve s^2 - 2 slope s + a
    share = (slope - math.sqrt(max(slope**2 - curve * (a - 1 / enough), 0.0))) / curve
    return (1 - share) * visits + share * even
