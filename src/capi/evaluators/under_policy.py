"""`UnderPolicy`: an `Averager` under a fixed policy, a Markov chain over the rows of its batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from capi._utils.threads import one_blas_thread
from capi._utils.validation import Floats
from capi.evaluators._fixed_points import FixedPoint, Sweep, check_finite, fixed_point, largest, total
from capi.evaluators._groups import Groups
from capi.evaluators.fitted_values import FittedValues
from capi.trees._kernels.averages import sweep_rows
from capi.trees.cells import LookUps, RowShares
from capi.trees.leaf_products import LeafProducts

if TYPE_CHECKING:
    from capi.evaluators.averager import Averager

VALUE_ERROR = 1e-6  # of all values, relative to the largest
OCCUPANCY_ERROR = 1e-3  # of all visits together, relative to their sum
SMALL_CELLS = 10  # rows; if cells have more on average, a matrix from row to row would take more work than the leaves
MANY_ROWS = 200_000  # a matrix from row to row would not fit in the cache


@dataclass(frozen=True, eq=False)
class UnderPolicy:
    """An `Averager` under a fixed policy: a Markov chain over the rows, and what follows from it."""

    model: Averager
    following: LookUps  # of the next states (n); those after the end look up nothing
    initial: LookUps  # of the start states
    tolerance: float = VALUE_ERROR  # of the values of the next states, relative to the largest
    guess: Floats | None = None  # (n,) of these values
    pattern: RowShares | None = None  # of the chain, if it is known
    small: bool | None = None  # whether cells are small, if it is known
    on_leaves: OnLeaves | None = None  # if it is known

    @property
    def value(self) -> float:
        """The value of the policy, averaged over the start states."""
        return float(self.model.start_shares @ self.start_values)

    @cached_property
    def start_values(self) -> Floats:
        """The value of the policy in each start state."""
        return self.initial.values(self.leaf_values)

    @property
    def next_values(self) -> Floats:
        """The value of the policy in each next state (n,); zero where the process terminated."""
        return self.value_solution.x

    @cached_property
    def leaf_values(self) -> Floats:
        """The action value in each leaf (l,)."""
        values = self.model.leaf_means(self.model.batch.rewards + self.model.steps * self.next_values)
        check_finite(largest(values))
        return values

    @cached_property
    def action_values(self) -> FittedValues:
        """The action values of the policy, defined for every state."""
        return self.model.q_of(self.leaf_values)

    @cached_property
    def value_solution(self) -> FixedPoint:
        """The values of the next states, with a bound on their error."""
        return self.solved_values(self.model.batch.rewards, self.guess, self.tolerance)

    def solved_values(self, rewards: Floats, start: Floats | None = None, tolerance: float = VALUE_ERROR) -> FixedPoint:
        """Return the values of the next states for other ``rewards`` (n,)."""
        m = self.model
        if self._cells_are_small:
            constant = self.following.values(m.leaf_means(rewards), m.n_jobs)
        else:
            constant = self._on_leaves.products.ahead(m.weights * rewards, m.inverse, m.n_jobs)
        with one_blas_thread():
            return self.solved(constant, tolerance, start)

    def solved(self, constant: Floats, tolerance: float, start: Floats | None = None) -> FixedPoint:
        r"""Return the x (n,) with :math:`x = c + G_\pi S \gamma x`, up to ``tolerance`` relative to its largest entry; c is ``constant`` (n,)."""
        discount = self.model.slowest
        if discount == 0:
            return FixedPoint(constant, 0.0, 0)
        roughly = None if self.groups is None else self.groups.ahead
        return fixed_point(
            self.sweep, constant, discount=discount, tolerance=tolerance, norm=largest, start=start, roughly=roughly
        )

    def solved_back(self, constant: Floats, tolerance: float) -> FixedPoint:
        r"""Return the y (n,) with :math:`y = c + \gamma S^\top G_\pi^\top y`, up to ``tolerance`` relative to the sum of its entries; c is ``constant`` (n,).

        It is the adjoint of `solved`: the product of y and d is that of c and the solution for d.
        """
        discount = self.model.slowest
        if discount == 0:
            return FixedPoint(constant, 0.0, 0)
        roughly = None if self.groups is None else self.groups.back
        return fixed_point(
            self.sweep_back, constant, discount=discount, tolerance=tolerance, norm=total, roughly=roughly
        )

    def on_same_cells(self, weights: Floats) -> UnderPolicy:
        """Return the same policy with other weights (n,) of the rows, for many resamples of the same model.

        Unlike in `Averager.reweighted`, a leaf whose rows all have weight 0 averages nothing and has the value 0. The next states of rows
        without weight are left out: their values are not those of the policy, and no other value depends on them.
        """
        model, pattern, small = (
            replace(self.model, weights=weights, n_jobs=1),
            self.chain_pattern,
            self._cells_are_small,
        )
        on_leaves = None if small else self._on_leaves
        return UnderPolicy(model, self.following, self.initial, self.tolerance, None, pattern, small, on_leaves)

    @cached_property
    def occupancy_solution(self) -> FixedPoint:
        """The discounted weight of the decision in each next state (n,), with a bound on its error."""
        with one_blas_thread():
            return self.solved_back(self.model.steps * self._first_visits, OCCUPANCY_ERROR)

    @cached_property
    def _first_visits(self) -> Floats:
        m = self.model
        return m.shared_back(self.initial.back(m.start_shares, len(m.inverse)))

    @cached_property
    def occupancy(self) -> Floats:
        """The discounted number of visits to each row (n,)."""
        m, decisions = self.model, np.maximum(self.occupancy_solution.x, 0.0)  # rounding may leave some below zero
        if self._cells_are_small:
            return self._first_visits + m.shared_back(self.following.back(decisions, len(m.inverse), m.n_jobs))
        return self._first_visits + m.weights * self._on_leaves.products.back(decisions, m.inverse, m.n_jobs)

    @property
    def effective_rows(self) -> float:
        """The number of rows on which the policy lives."""
        return effective_number(self.occupancy)

    @property
    def decision_weights(self) -> Floats:
        """The discounted weight of each decision: at the start states, then at the next states (E + n,)."""
        return np.concatenate([self.model.start_shares, self.model.steps * self.occupancy])

    # -- sweeps over the rows ------------------------------------------------------------------------

    @cached_property
    def _chain(self) -> Any:
        """The discounted weight of each row in the value of each next state, as a sparse matrix (n, n); None if leaves are large."""
        m = self.model
        if self.pattern is not None:
            return self.pattern.matrix(m.weights * m.steps, m.inverse)
        if not self._cells_are_small:
            return None
        return self.following.row_shares(m.cells, m.weights * m.steps, m.inverse, m.n_jobs)

    @cached_property
    def _cells_are_small(self) -> bool:
        if self.small is not None:
            return self.small
        m = self.model
        if len(m.batch) >= MANY_ROWS:
            return False
        members = self.following.members_of_points(m.cells, m.n_jobs).sum()
        return bool(members <= SMALL_CELLS * self.following.size)

    @cached_property
    def chain_pattern(self) -> RowShares | None:
        """Which rows the value of each next state averages; None if leaves are large."""
        if self.pattern is not None or not self._cells_are_small:
            return self.pattern
        return RowShares.of(self.following, self.model.cells, self.model.n_jobs)

    @cached_property
    def _chain_back(self) -> Any:
        return None if self._chain is None else self._chain.T.tocsr()

    @cached_property
    def _on_leaves(self) -> OnLeaves:
        """The products for sweeps through the leaves, which replace the row-to-row matrix."""
        if self.on_leaves is not None:
            return self.on_leaves
        m = self.model
        products = LeafProducts.of(m.cells, self.following)
        return OnLeaves(products, Groups.of(products, m.cells, m.weights, m.steps))

    @property
    def groups(self) -> Groups | None:
        """Groups of the next states, with which sweeps through the leaves are preconditioned."""
        return None if self._cells_are_small else self._on_leaves.groups

    @property
    def sweep(self) -> Sweep:
        """One sweep over the values of the next states; later rows come first, because values flow backwards in time."""
        m = self.model
        if self._chain is None:
            products, weights = self._on_leaves.products, m.weights * m.steps
            return lambda constant, x: constant + products.ahead(weights * x, m.inverse, m.n_jobs)
        return _gauss_seidel(self._chain, backwards=True)

    @property
    def sweep_back(self) -> Sweep:
        """One sweep over the weights of the decisions in the next states; earlier rows come first."""
        m = self.model
        if self._chain is None:
            products, weights = self._on_leaves.products, m.weights * m.steps
            return lambda constant, x: constant + weights * products.back(x, m.inverse, m.n_jobs)
        return _gauss_seidel(self._chain_back, backwards=False)


class OnLeaves(NamedTuple):
    """Products through the leaves, and groups of the next states."""

    products: LeafProducts
    groups: Groups | None


def effective_number(weights: Floats) -> float:
    """Return the number of equal weights that are as unevenly spread: the square of the sum divided by the sum of squares."""
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def _gauss_seidel(matrix: Any, *, backwards: bool) -> Sweep:
    def sweep(constant: Floats, x: Floats) -> Floats:
        out = x.copy()
        sweep_rows(matrix.indptr, matrix.indices, matrix.data, constant, backwards, out)
        return out

    return sweep
