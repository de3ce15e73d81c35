"""The problem that every policy space solves: states, their action values, weights and masks, checked once.

`ImprovementProblem` holds the data of one round of improvement and everything derived from it alone (regrets, rows with
weight, rows at stake), each computed on first use. `ImprovementSolver` gives a space its public ``improve``, which checks
its arguments; the space itself only implements ``solve`` for a checked problem.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capi._utils.row_ops import row_max
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_q_values, as_states, as_weights
from capi.errors import InvalidInputError
from capi.loss import best_values, expected_regrets, filled_regrets, regrets_of_actions, regrets_to
from capi.types import Policy, PolicySpace, QFunction

PolicyT = TypeVar("PolicyT", bound=Policy, covariant=True)


class Stakes(NamedTuple):
    """The rows with a weight and a gap, and the weighted regrets there; other rows cannot change any loss.

    Losses are scaled so that the row maxima sum to one. Neither the scale of the values nor that of the weights matters.
    """

    rows: Ints  # (m,) rows with weight whose allowed actions differ in value
    states: Floats  # (m, d) of these
    weights: Floats  # (m,) of these
    lost: Floats  # (m, A) regrets times weights; infinite where an action is not allowed


@dataclass(frozen=True, eq=False)
class ImprovementProblem:
    """A sample of states with their action values, on which a policy should lose as little as possible.

    The constructor takes parts that are already checked; `of` checks them.
    """

    states: Floats  # (n, d)
    values: Floats  # (n, A)
    weights: Floats | None = None  # (n,); None: all ones
    allowed: Bools | None = None  # (n, A); None: all actions

    @classmethod
    def of(
        cls,
        states: ArrayLike,
        q_values: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        allowed: ArrayLike | None = None,
        missing_states: bool = True,
    ) -> ImprovementProblem:
        """Return the checked problem; ``missing_states`` says whether states may have missing values."""
        x = as_states(states, allow_nan=missing_states)
        values = as_q_values(q_values, n_rows=len(x))
        mask = as_allowed(allowed, "allowed", values.shape)
        return cls(x, values, as_weights(weights, "weights", len(x)), mask)

    @property
    def n_rows(self) -> int:
        """Number of states, n."""
        return len(self.states)

    @property
    def n_features(self) -> int:
        """Number of features of a state, d."""
        return self.states.shape[1]

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.values.shape[1]

    @cached_property
    def mask(self) -> Bools | None:
        """The actions allowed in each state (n, A); None if every action is allowed everywhere."""
        return None if self.allowed is None or self.allowed.all() else self.allowed

    @property
    def masked(self) -> bool:
        """Whether some action is not allowed somewhere."""
        return self.mask is not None

    def complete_states(self) -> Floats:
        """Return the states (n, d), or refuse missing values, for spaces that do not support them."""
        return as_states(self.states, allow_nan=False)

    # -- regrets -------------------------------------------------------------------------------------

    @cached_property
    def best(self) -> Floats:
        """The largest allowed value in each state (n,)."""
        return best_values(self.values, self.mask)

    @cached_property
    def regrets(self) -> Floats:
        """Regret of each action in each state (n, A); infinite where it is not allowed."""
        return regrets_to(self.best, self.values, self.mask)

    @cached_property
    def lost(self) -> Floats:
        """Regret of each action in each state, times the weight of the state (n, A); infinite where it is not allowed."""
        if self.mask is None:
            return self.weighted(self.regrets)
        return np.where(self.mask, self.weighted(np.where(self.mask, self.regrets, 0.0)), np.inf)

    @cached_property
    def filled_losses(self) -> Floats:
        """Weighted regrets (n, A); where an action is not allowed, the mean over the allowed ones."""
        return filled_regrets(self.lost, self.mask)

    def weighted(self, table: Floats) -> Floats:
        """Return ``table`` (n, c) with each row multiplied by its weight."""
        return table if self.weights is None else table * self.weights[:, None]

    def mean(self, numbers: Floats) -> float:
        """Return the weighted mean of ``numbers`` (n,)."""
        return float(np.average(numbers, weights=self.weights))

    def loss_of(self, decisions: NDArray[Any]) -> float:
        """Return the gap-weighted loss of a policy's actions (n,) or probabilities (n, A) in the states."""
        if decisions.ndim == 1:
            return self.mean(regrets_of_actions(self.best, self.values, self.mask, decisions))
        return self.mean(expected_regrets(self.regrets, decisions))

    # -- parts of the sample -------------------------------------------------------------------------

    @cached_property
    def counting(self) -> Bools | None:
        """Which rows have weight (n,); rows without weight are ignored. None: all rows."""
        if self.weights is None:
            return None
        counting = self.weights > 0
        return None if counting.all() else counting

    @cached_property
    def counted_states(self) -> Floats:
        """The states of the rows with weight."""
        return self.states if self.counting is None else self.states[self.counting]

    @cached_property
    def counted(self) -> ImprovementProblem:
        """The rows with weight, as a separate problem; it is masked if the whole problem is."""
        kept = self.counting
        if kept is None or self.weights is None:
            return self
        mask = None if self.mask is None else self.mask[kept]
        part = ImprovementProblem(self.counted_states, self.values[kept], self.weights[kept], mask)
        part.__dict__.update(mask=mask, regrets=self.regrets[kept], counting=None)
        return part

    @cached_property
    def stakes(self) -> Stakes:
        """The rows in which the choice of action matters."""
        known = self.regrets if self.mask is None else np.where(self.mask, self.regrets, 0.0)
        with np.errstate(over="ignore"):
            gaps = row_max(self.weighted(known))
        total, rows = finite_total(gaps), np.flatnonzero(gaps > 0)
        weights = np.ones(len(rows)) if self.weights is None else self.weights[rows]
        lost = self.regrets[rows] * weights[:, None] / total if rows.size else self.regrets[rows]
        return Stakes(rows, self.states if len(rows) == self.n_rows else self.states[rows], weights, lost)

    # -- related problems ----------------------------------------------------------------------------

    def scored_zero_one(self) -> ImprovementProblem:
        """Return the problem whose gap-weighted loss is the 0/1 loss of this one; see `capi.loss.zero_one_values`."""
        return replace(self, values=(self.regrets == 0).astype(np.float64))

    def priced(self, prices: Floats, allowed: Bools | None) -> ImprovementProblem:
        """Return the problem with a price for each action (A,) and other ``allowed`` actions (n, A)."""
        return replace(self, values=self.values - prices, allowed=allowed)


def finite_total(gaps: Floats) -> float:
    """Return the sum of the weighted gaps (n,), or raise if it is not finite."""
    with np.errstate(over="ignore"):
        total = float(gaps.sum())
    if not np.isfinite(total):
        raise InvalidInputError("the weighted gaps of q_values must have a finite sum. Scale q_values or weights down.")
    return total


class ImprovementSolver(ABC, Generic[PolicyT]):
    """Base class of policy spaces that solve a checked problem; they share ``improve``."""

    takes_missing: ClassVar[bool] = True  # whether states may have missing values

    def improve(
        self,
        states: ArrayLike,
        q_values: ArrayLike,
        *,
        q: QFunction | None = None,
        previous: Policy | None = None,
        allowed: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
    ) -> PolicyT:
        """Return the member with the least action-gap-weighted loss on the sample.

        Parameters
        ----------
        states : array of shape (n, d)
        q_values : array of shape (n, A)
            The value of each action in each state; larger is better.
        q : QFunction, optional
            The Q-function that ``q_values`` come from.
        previous : Policy, optional
            The previous policy; a space may start from it or reuse the parts that do not change.
        allowed : array of shape (n, A), optional
            The actions to choose from; by default all of them.
        weights : array of shape (n,), optional
            Weight of each state; by default all are equal.
        rng : Generator, optional
            None: a fixed seed.
        """
        problem = ImprovementProblem.of(
            states, q_values, weights=weights, allowed=allowed, missing_states=self.takes_missing
        )
        return self.solve(problem, q=q, previous=previous, rng=rng)

    @abstractmethod
    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,
    ) -> PolicyT:
        """Return the member with the least loss on a checked problem; the other arguments are those of `improve`."""


def in_round(space: PolicySpace, k: int, n_rounds: int) -> PolicySpace:
    """Return ``space`` as it is in round ``k`` of a loop; few spaces differ between rounds."""
    return space.in_round(k, n_rounds) if hasattr(space, "in_round") else space


def improved(
    space: PolicySpace,
    problem: ImprovementProblem,
    *,
    q: QFunction | None = None,
    previous: Policy | None = None,
    rng: np.random.Generator | None = None,
) -> Policy:
    """Return the policy that ``space`` chooses; a space with its own ``improve`` is called through it."""
    if isinstance(space, ImprovementSolver) and type(space).improve is ImprovementSolver.improve:
        return space.solve(problem, q=q, previous=previous, rng=rng)
    return space.improve(
        problem.states,
        problem.values,
        q=q,
        previous=previous,
        allowed=problem.allowed,
        weights=problem.weights,
        rng=rng,
    )
