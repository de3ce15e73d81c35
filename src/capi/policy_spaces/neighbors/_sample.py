"""Shared code of policies based on nearby states of the sample: those states, and the regrets there."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capi._utils.validation import Bools, Floats, Ints, is_fixed
from capi.features.scaling import Scale, Scaling, learned_scaling
from capi.policies import Deterministic, check_masks_given, first_allowed, in_blocks
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.imitation import ReadByImitation

FARTHEST = 1e100  # in scaled units: beyond it all of the sample is equally far, and squares must stay finite


@dataclass(frozen=True, eq=False)
class Sample:
    """The distinct states with weight, scaled to make distances comparable.

    Discrete problems have few states in many rows. A point is a distinct state; its rows are
    ``rows[starts[p] : starts[p + 1]]``, in ascending order.
    """

    scaling: Scaling
    points: Floats  # (m, d)
    rows: Ints  # (n,)
    starts: Ints  # (m + 1,)

    @classmethod
    def of(cls, states: Floats, scale: Scale) -> Sample:
        """Return the distinct ``states`` (n, d), with a scaling learned from them."""
        return cls.in_units(states, learned_scaling(states, scale))

    @classmethod
    def in_units(cls, states: Floats, scaling: Scaling) -> Sample:
        """Return the distinct ``states`` (n, d), with a given scaling."""
        points, point = np.unique(scaling(states), axis=0, return_inverse=True)
        starts = np.concatenate([[0], np.bincount(point.ravel()).cumsum()])
        return cls(scaling, points, np.argsort(point.ravel(), kind="stable"), starts)

    @property
    def n_features(self) -> int:
        """Number of features of a state, d."""
        return self.points.shape[1]

    @property
    def all_distinct(self) -> bool:
        """Whether no state appears more than once."""
        return len(self.points) == len(self.rows)

    def asked(self, states: Floats) -> tuple[Floats, Ints | None]:
        """Return the scaled ``states`` (n, d) and None, or the distinct scaled states (u, d) and the index of each state (n,).

        If states repeat in the sample, queries are likely to repeat too.
        """
        x = self.scaling(states).clip(-FARTHEST, FARTHEST)
        if self.all_distinct:
            return x, None
        distinct, which = np.unique(x, axis=0, return_inverse=True)
        return distinct, which.ravel()


@dataclass(frozen=True, eq=False)
class Losses:
    """Regrets of each action in each row, stored so that sums over rows give means."""

    table: Floats  # (n, A + 1) or, with masks, (n, 2A): weighted regrets, then the weights of their means
    n_actions: int
    masked: bool

    @classmethod
    def of(cls, problem: ImprovementProblem) -> Losses:
        """Return the losses of the rows with weight."""
        rows = problem.counted
        if rows.mask is None or rows.mask.all():
            table = np.hstack([rows.regrets, np.ones((rows.n_rows, 1))])
            return cls(rows.weighted(table), rows.n_actions, masked=False)
        table = np.hstack([np.where(rows.mask, rows.regrets, 0.0), rows.mask])
        return cls(rows.weighted(table), rows.n_actions, masked=True)

    def counts(self, totals: Floats) -> Floats:
        """Return the total weight in sums over rows (b, 1); with masks, that of each action (b, A)."""
        return totals[:, self.n_actions :]

    def means(self, totals: Floats) -> Floats:
        """Return the mean regret of each action (b, A) from sums over rows of the table; infinite if no row allows it."""
        counts = self.counts(totals)
        return np.where(counts > 0, totals[:, : self.n_actions] / np.where(counts > 0, counts, 1.0), np.inf)


@dataclass(frozen=True, eq=False)
class Origin:
    """The inputs that a policy was learned from; while they are the same, everything but the losses can be reused."""

    states: Floats  # (n, d) as they were passed
    counting: Bools | None  # (n,) rows with weight, the others are ignored; None: all rows
    settings: Any  # the policy space

    @classmethod
    def of(cls, problem: ImprovementProblem, settings: Any) -> Origin:
        """Return the inputs of a policy space with these settings; missing values are refused."""
        return cls(problem.complete_states(), problem.counting, settings)

    def is_that_of(self, policy: Any) -> bool:
        """Whether ``policy`` comes from the same read-only states and the same settings."""
        other = getattr(policy, "origin", None)
        if not isinstance(other, Origin) or other.settings is not self.settings:
            return False
        if other.states is not self.states or not is_fixed(self.states):
            return False
        if self.counting is None or other.counting is None:
            return self.counting is other.counting
        return np.array_equal(self.counting, other.counting)

    def counted_states(self) -> Floats:
        """Return the states of the rows with weight."""
        return self.states if self.counting is None else self.states[self.counting]


@dataclass(frozen=True, eq=False)
class NearbyPolicy(ReadByImitation, Deterministic):
    """The action with the least mean regret among nearby states of the sample; ties go to the lowest action.

    With masks, the mean for an action is over the nearby states that allow it, and each state takes the first action of
    this ranking that it allows; actions that no nearby state allows come last.
    """

    losses: Losses = field(repr=False)
    origin: Origin | None = field(repr=False)
    n_jobs: int | None = field(repr=False)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.losses.n_actions

    @property
    def masked(self) -> bool:
        """Whether the policy was learned with masks."""
        return self.losses.masked

    def learning_states(self) -> Floats | None:
        """Return the states of the sample with weight (n, d)."""
        return None if self.origin is None else self.origin.counted_states()

    @abstractmethod
    def regrets(self, states: Floats) -> Floats:
        """Return the mean regret of each action near each state, which explains the decisions; (n, d) -> (n, A)."""

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the (allowed) action with the least mean regret nearby (n,)."""
        check_masks_given(self.masked, allowed)
        means = self.regrets(states)
        if allowed is None:
            return means.argmin(axis=1)
        return first_allowed(np.argsort(means, axis=1, kind="stable"), allowed)


def blocks(n_rows: int, rows_at_once: int) -> list[slice]:
    """Return slices that cover ``n_rows`` rows in blocks, to bound memory."""
    step = max(1, rows_at_once)
    return [slice(i, i + step) for i in range(0, n_rows, step)]
