"""What the spaces share that decide by nearby states of the sample: those states, and what each action loses there."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capi._utils.validation import Bools, Floats, Ints, is_fixed
from capi.features.scaling import Scale, Scaling, learned_scaling
from capi.policies import Deterministic, check_masks_given, first_allowed
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.imitation import ReadByImitation

FARTHEST = 1e100  # in units of the sample: farther away all of it is equally far, and squares must stay finite


@dataclass(frozen=True, eq=False)
class Sample:
    """The states that count, in units in which distances are comparable, each distinct one once.

    Discrete problems have a few states in many rows. A point is a distinct state; its rows are
    ``rows[starts[p] : starts[p + 1]]``, in ascending order.
    """

    scaling: Scaling
    points: Floats  # (m, d)
    rows: Ints  # (n,)
    starts: Ints  # (m + 1,)

    @classmethod
    def of(cls, states: Floats, scale: Scale) -> Sample:
        """Return the distinct ones of ``states`` (n, d), in units that are learned from them."""
        return cls.in_units(states, learned_scaling(states, scale))

    @classmethod
    def in_units(cls, states: Floats, scaling: Scaling) -> Sample:
        """Return the distinct ones of ``states`` (n, d), in known units."""
        points, point = np.unique(scaling(states), axis=0, return_inverse=True)
        starts = np.concatenate([[0], np.bincount(point.ravel()).cumsum()])
        return cls(scaling, points, np.argsort(point.ravel(), kind="stable"), starts)

    @property
    def n_features(self) -> int:
        """Number of features of a state, d."""
        return self.points.shape[1]

    @property
    def all_distinct(self) -> bool:
        """Whether no state is there twice."""
        return len(self.points) == len(self.rows)

    def asked(self, states: Floats) -> tuple[Floats, Ints | None]:
        """Return ``states`` (n, d) in our units, and None; or each distinct one once (u, d), and which one each is (n,).

        States are likely to be asked for repeatedly where the sample repeats them.
        """
        x = self.scaling(states).clip(-FARTHEST, FARTHEST)
        if self.all_distinct:
            return x, None
        distinct, which = np.unique(x, axis=0, return_inverse=True)
        return distinct, which.ravel()


@dataclass(frozen=True, eq=False)
class Losses:
    """What each action loses in each row, in a form whose sums over rows give means."""

    table: Floats  # (n, A + 1) or, with masks, (n, 2A): weighted regrets, then the weights that count in their means
    n_actions: int
    masked: bool

    @classmethod
    def of(cls, problem: ImprovementProblem) -> Losses:
        """Return the losses of the rows that count."""
        rows = problem.counted
        if rows.mask is None or rows.mask.all():
            table = np.hstack([rows.regrets, np.ones((rows.n_rows, 1))])
            return cls(rows.weighted(table), rows.n_actions, masked=False)
        table = np.hstack([np.where(rows.mask, rows.regrets, 0.0), rows.mask])
        return cls(rows.weighted(table), rows.n_actions, masked=True)

    def counts(self, totals: Floats) -> Floats:
        """Return the weight behind the sums of some rows (b, 1), with masks that of each action (b, A)."""
        return totals[:, self.n_actions :]

    def means(self, totals: Floats) -> Floats:
        """Return the mean regret of each action (b, A) from the table's sums over some rows; infinite if none allows it."""
        counts = self.counts(totals)
        return np.where(counts > 0, totals[:, : self.n_actions] / np.where(counts > 0, counts, 1.0), np.inf)


@dataclass(frozen=True, eq=False)
class Origin:
    """What a policy was learned from: as long as this is the same, so is everything but the losses."""

    states: Floats  # (n, d) as they were passed
    counting: Bools | None  # (n,) rows with weight: those without are no rows; None is all
    settings: Any  # the policy space

    @classmethod
    def of(cls, problem: ImprovementProblem, settings: Any) -> Origin:
        """Return what a policy space with these settings learns from; missing values are refused."""
        return cls(problem.complete_states(), problem.counting, settings)

    def is_that_of(self, policy: Any) -> bool:
        """Whether ``policy`` comes from the same states, which nobody can have changed, and the same settings."""
        other = getattr(policy, "origin", None)
        if not isinstance(other, Origin) or other.settings is not self.settings:
            return False
        if other.states is not self.states or not is_fixed(self.states):
            return False
        if self.counting is None or other.counting is None:
            return self.counting is other.counting
        return np.array_equal(self.counting, other.counting)

    def counted_states(self) -> Floats:
        """Return the states of the rows that count."""
        return self.states if self.counting is None else self.states[self.counting]


@dataclass(frozen=True, eq=False)
class NearbyPolicy(ReadByImitation, Deterministic):
    """The action with the least mean regret among nearby states of the sample, the lowest among equals.

    With masks an action's mean is over the states that allow it, and a state plays the first action of this ranking
    that it allows; actions that no nearby state allows come last.
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
        """Whether it was learned where not every action was allowed."""
        return self.losses.masked

    def learning_states(self) -> Floats | None:
        """Return the states of the sample that count (n, d)."""
        return None if self.origin is None else self.origin.counted_states()

    @abstractmethod
    def regrets(self, states: Floats) -> Floats:
        """Return the mean regret of each action near each state: why it decides as it does; (n, d) -> (n, A)."""

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the (allowed) action with the least mean regret nearby (n,)."""
        check_masks_given(self.masked, allowed)
        means = self.regrets(states)
        if allowed is None:
            return means.argmin(axis=1)
        return first_allowed(np.argsort(means, axis=1, kind="stable"), allowed)


def blocks(n_rows: int, rows_at_once: int) -> list[slice]:
    """Return slices that cover ``n_rows`` rows, so that memory stays bounded."""
    step = max(1, rows_at_once)
    return [slice(i, i + step) for i in range(0, n_rows, step)]
