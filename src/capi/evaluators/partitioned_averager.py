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
from capi.data.survey import loaded
from capi.evaluators._batches import portable
from capi.evaluators._fixed_points import fixed_point, largest, total
from capi.evaluators.over_partitions import (
    BITS,
    ERROR,
    NextLeaves,
    OwnLeaves,
    Structure,
    decided_leaves,
    longest_step,
    next_leaves,
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

    def value(self, policy: Policy) -> float:
        """Return the value of ``policy`` in the model, averaged over the first states of all episodes."""
        placed, crew = self._placed(policy), self.partitions.crew
        values = crew.shared(self._leaf_values(placed))
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
        placed, crew = self._placed(policy), self.partitions.crew
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
    return _Starts(decided_leaves(structure, states, decisions, np.ones(len(first)), t.n_actions), weights)


def _start_weight(starts: _Starts) -> float:
    return float(starts.weights.sum())


def _start_sum(starts: _Starts, values: Floats, exponent: int) -> int:
    return int(np.rint(np.ldexp(starts.weights * starts.look_ups.values(values), exponent)).astype(np.int64).sum())


def _first_weights(starts: _Starts, n_leaves: int, exponent: int) -> Ints:
    return _whole_back(starts.look_ups, starts.weights, n_leaves, exponent)


def _visits(own: OwnLeaves, inverse: Floats, reached: Floats) -> Floats:
    """Return the visits to each row (n,): the product with the transpose of S."""
    visits, flow = np.zeros(len(own.rewards)), inverse * reached
    for part in own.asked:
        once = np.ones(len(part.points))
        averages.look_up(part.leaves, part.starts, flow, part.points, once, 0, len(part.points), visits)
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
