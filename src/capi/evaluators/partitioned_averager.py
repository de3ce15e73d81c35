r"""`PartitionedAverager`: the model that kept trees and all rows of a partitioned batch are, one product with the parts at a time.

It is the model of `capi.evaluators.averager`, with vectors over leaves in place of vectors over rows: leaves are few enough to send around.
With S, :math:`G_\pi`, :math:`G_0` and :math:`d_0` as there,

.. math::
    u   &= S\,(r + \gamma G_\pi u)                              && \text{value of each leaf};\ J = d_0^\top G_0 u \\
    z   &= G_0^\top d_0 + G_\pi^\top \gamma S^\top z            && \text{discounted weight that reaches each leaf};\ \mu = S^\top z

A product with the parts is one map and one sum of whole numbers, so that results do not depend on the partitioning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.data.partitions import PartitionedTransitions
from capi.data.survey import Survey, loaded
from capi.data.transitions import Transitions
from capi.evaluators._batches import portable
from capi.evaluators._fixed_points import fixed_point, largest, total
from capi.evaluators.averager import FEWEST
from capi.evaluators.fitted_values import FittedValues
from capi.evaluators.over_partitions import (
    BITS,
    ERROR,
    NextLeaves,
    OwnLeaves,
    Structure,
    counted,
    decided_leaves,
    longest_step,
    next_leaves,
    own_leaves,
    plus,
    swept,
)
from capi.evaluators.under_policy import OCCUPANCY_ERROR
from capi.policies import decided
from capi.trees._kernels import averages
from capi.trees.cells import LookUps
from capi.types import Policy


class _Starts(NamedTuple):
    """The leaves that the first states of a part's episodes look up, and their weights."""

    look_ups: LookUps
    weights: Floats
    first: Ints  # their rows


@dataclass(frozen=True, eq=False)
class _Placed:
    """A policy, as far as the parts keep it."""

    following: list[Any]
    starts: list[Any]
    n_starts: float  # their weight


@dataclass(frozen=True, eq=False)
class PartitionedAverager:
    """Values and occupancies of policies in the model that trees and all rows of a partitioned batch are.

    `capi.evaluators.over_partitions.OverPartitions.model` makes one. Episodes begin in their first states; rows count by their weights.
    """

    partitions: PartitionedTransitions
    discount: float
    n_rows: int
    largest_reward: float
    largest_weight: float
    shared: Any  # the trees, where the workers have them
    own: list[Any]  # leaves of the rows of each part
    weights: Floats  # of the leaves (l,)

    @classmethod
    def of(
        cls, q: FittedValues, sample: Transitions, partitions: PartitionedTransitions, survey: Survey, discount: float
    ) -> PartitionedAverager:
        """Return the model of all rows and the trees of ``q``, one forest per action, which `Averager.grown` has grown on ``sample``."""
        there = slice(None) if sample.weights is None else sample.weights > 0
        grown = (
            np.bincount(sample.actions[there], minlength=q.n_actions) >= FEWEST
        )  # others average rows of all actions
        structure = Structure([model.forest.bare() for model in q.models], True, q.n_actions, tuple(grown.tolist()))
        crew = partitions.crew
        shared = crew.shared(structure)
        own = crew.each(own_leaves, partitions.parts, shared)
        sizes = survey.n_rows, survey.largest_reward, survey.largest_weight
        exponent = int(BITS - 1 - np.frexp(survey.largest_weight * survey.n_rows)[1])
        weights = np.ldexp(crew.merged(plus, crew.each(counted, own, exponent)).astype(np.float64), -exponent)
        return cls(partitions, discount, *sizes, shared, own, weights)

    def value(self, policy: Policy) -> float:
        """Return the value of ``policy`` in the model, averaged over the first states of all episodes."""
        placed = self._placed(policy)
        return self._start_value(placed, self.partitions.crew.shared(self._leaf_values(placed)))

    def value_with_influence(self, policy: Policy) -> tuple[float, list[Any]]:
        """Return the value of ``policy``, and for each part a handle of how much each of its episodes moves it (E,).

        Episodes of weight 0 are left out. The influence is the derivative in the episode's count, times the sum of the counts, as in
        `capi.offline.fitted_q`.
        """
        placed, crew = self._placed(policy), self.partitions.crew
        values = self._leaf_values(placed)
        sizes = crew.merged(plus, crew.each(_sizes, self.own)).astype(np.float64)
        left_out = sizes / np.maximum(sizes - 1, 1.0)
        moved = left_out * placed.n_starts * self._reached_from(placed) / self.weights
        shared = crew.shared(values)
        value = self._start_value(placed, shared)
        handles = crew.each(_influence, self.own, placed.following, placed.starts, shared, crew.shared(moved), value)
        return value, handles

    def _start_value(self, placed: _Placed, values: Any) -> float:
        crew = self.partitions.crew
        exponent = self._exponent(largest(crew.results([values])[0]))
        sums = crew.merged(plus, crew.each(_start_sum, placed.starts, values, exponent))
        return float(np.ldexp(float(sums), -exponent)) / placed.n_starts

    def occupancy(self, policy: Policy) -> list[Floats]:
        """Return the discounted number of visits of ``policy`` to each row of each part."""
        crew = self.partitions.crew
        return crew.results(crew.each(_visits, self.own, self._inverse, crew.shared(self._reached(policy))))

    def effective_rows(self, policy: Policy) -> float:
        """Return the number of rows on which ``policy`` lives; the visits stay with their parts."""
        crew = self.partitions.crew
        moments = crew.each(_moments, self.own, self._inverse, crew.shared(self._reached(policy)))
        first, second = crew.merged(plus, moments)
        return float(first**2 / second) if second > 0 else 0.0

    @property
    def _inverse(self) -> Any:
        return self.partitions.crew.shared(1.0 / self.weights)

    def _placed(self, policy: Policy) -> _Placed:
        crew, parts = self.partitions.crew, self.partitions.parts
        decider = crew.shared(portable(policy))
        starts = crew.each(_start_leaves, parts, self.shared, decider)
        n_starts = sum(crew.results(crew.each(_start_weight, starts)))
        return _Placed(crew.each(next_leaves, parts, self.shared, decider, self.discount), starts, n_starts)

    def _exponent(self, bound: float) -> int:
        most = max(bound, np.finfo(np.float64).tiny) * self.largest_weight * self.n_rows
        return int(BITS - 1 - np.frexp(most)[1])

    def _leaf_values(self, placed: _Placed) -> Floats:
        """Return the value of each leaf (l,)."""
        crew = self.partitions.crew

        def mean(values: Floats, with_rewards: bool) -> Floats:
            ahead: list[Any] = [None] * len(self.own) if with_rewards else placed.following
            exponent = self._exponent(self.largest_reward if with_rewards else largest(values))
            handles = crew.each(swept, self.own, ahead, crew.shared(values), with_rewards, exponent)
            return np.ldexp(crew.merged(plus, handles).astype(np.float64), -exponent) / self.weights

        constant = mean(np.zeros(len(self.weights)), True)
        discount = self._slowest(placed)
        if discount == 0:
            return constant
        found = fixed_point(lambda c, x: c + mean(x, False), constant, discount=discount, tolerance=ERROR, norm=largest)
        return found.x

    def _reached(self, policy: Policy) -> Floats:
        """Return the discounted weight that reaches each leaf (l,)."""
        return self._reached_from(self._placed(policy))

    def _reached_from(self, placed: _Placed) -> Floats:
        crew = self.partitions.crew
        n_leaves = len(self.weights)
        exponent = int(BITS - 1 - np.frexp(placed.n_starts)[1])
        first = crew.merged(plus, crew.each(_first_weights, placed.starts, n_leaves, exponent))
        constant = np.ldexp(first.astype(np.float64), -exponent) / placed.n_starts
        discount = self._slowest(placed)
        if discount == 0:
            return constant

        def back(z: Floats) -> Floats:
            scale = int(BITS - 1 - np.frexp(max(total(z), 1e-300))[1])
            handles = crew.each(_flowed, self.own, placed.following, self._inverse, crew.shared(z), scale)
            return np.ldexp(crew.merged(plus, handles).astype(np.float64), -scale)

        found = fixed_point(
            lambda c, x: c + back(x), constant, discount=discount, tolerance=OCCUPANCY_ERROR, norm=total
        )
        return np.maximum(found.x, 0.0)  # rounding may leave some below zero

    def _slowest(self, placed: _Placed) -> float:
        crew = self.partitions.crew
        return float(max(crew.results(crew.each(longest_step, placed.following))))


# -- tasks on one part -------------------------------------------------------------------------------


def _start_leaves(source: Any, structure: Structure, policy: Policy) -> _Starts:
    t = loaded(source)
    first = t.episode_starts
    weights = np.ones(len(first)) if t.weights is None else t.weights[first]
    states, allowed = t.states[first], None if t.allowed is None else t.allowed[first]
    decisions = decided(policy, states, allowed)
    return _Starts(decided_leaves(structure, states, decisions, np.ones(len(first)), t.n_actions), weights, first)


def _start_weight(starts: _Starts) -> float:
    return float(starts.weights.sum())


def _start_sum(starts: _Starts, values: Floats, exponent: int) -> int:
    return int(np.rint(np.ldexp(starts.weights * starts.look_ups.values(values), exponent)).astype(np.int64).sum())


def _sizes(own: OwnLeaves) -> Ints:
    """Return the number of rows in each leaf (l,)."""
    sums = np.zeros(own.n_leaves, dtype=np.int64)
    for part in own.asked:
        once = np.ones(len(part.points), dtype=np.int64)
        averages.look_back(part.leaves, part.starts, 0, len(part.leaves), once, sums)
    return sums


def _influence(
    own: OwnLeaves, following: NextLeaves, starts: _Starts, values: Floats, moved: Floats, mean: float
) -> Floats:
    """Return how much each episode with weight moves the mean value of the first states (E,)."""
    targets = own.rewards + following.steps * following.look_ups.values(values)
    rows = _spread(own, moved) * targets - _spread(own, moved * values)
    found: Floats = starts.look_ups.values(values) - mean + np.add.reduceat(rows, starts.first)
    return found[starts.weights > 0]


def _spread(own: OwnLeaves, of_leaves: Floats) -> Floats:
    """Return the sum over the leaves of each row (n,)."""
    found = np.zeros(len(own.rewards))
    for part in own.asked:
        once = np.ones(len(part.points))
        averages.look_up(part.leaves, part.starts, of_leaves, part.points, once, 0, len(part.points), found)
    return found


def _first_weights(starts: _Starts, n_leaves: int, exponent: int) -> Ints:
    return _whole_back(starts.look_ups, starts.weights, n_leaves, exponent)


def _visits(own: OwnLeaves, inverse: Floats, reached: Floats) -> Floats:
    """Return the visits to each row (n,): the product with the transpose of S."""
    visits = _spread(own, inverse * reached)
    return visits if own.weights is None else own.weights * visits


def _moments(own: OwnLeaves, inverse: Floats, reached: Floats) -> Floats:
    visits = _visits(own, inverse, reached)
    return np.array([visits.sum(), visits @ visits])


def _flowed(own: OwnLeaves, following: NextLeaves, inverse: Floats, reached: Floats, exponent: int) -> Ints:
    ahead = following.steps * _visits(own, inverse, reached)
    return _whole_back(following.look_ups, ahead, own.n_leaves, exponent)


def _whole_back(look_ups: LookUps, x: Floats, n_leaves: int, exponent: int) -> Ints:
    """Return the whole-number sum of ``x`` (points,) times their shares over the points that look up each leaf (l,)."""
    sums = np.zeros(n_leaves, dtype=np.int64)
    for part in look_ups.asked:
        whole = np.rint(np.ldexp(part.shares * x[part.points], exponent)).astype(np.int64)
        averages.look_back(part.leaves, part.starts, 0, len(part.leaves), whole, sums)
    return sums
