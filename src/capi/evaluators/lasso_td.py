r"""Lasso-TD: the fixed point of an L1-penalised projected Bellman operator, which uses few features.

:math:`w = \arg\min_u \tfrac1{2n} \|\Phi u - (r + \gamma \Phi' w)\|^2 + \beta \|u\|_1` (Kolter and Ng 2009; Ghavamzadeh et al. 2011). With
the means :math:`A = \tfrac1n \Phi^\top(\Phi - \gamma \Phi')`, :math:`b = \tfrac1n \Phi^\top r` and :math:`c = b - A w` that is:

.. math:: |c_j| \le \beta \text{ for all } j, \qquad c_j = \beta \operatorname{sign}(w_j) \text{ where } w_j \ne 0 .

LARS-TD follows the solutions from the largest penalty, where all weights are zero, down to the requested one. If A is a P-matrix, as
it is on-policy, solutions are unique and the path reaches every penalty; otherwise it may turn back.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from sklearn.linear_model import lars_path_gram

from capi._utils.parameters import Constraints, check_parameters, one_of, optional
from capi._utils.validation import Bools, Floats, as_discount, as_not_negative, is_real
from capi.data.transitions import Transitions
from capi.errors import DivergenceError, InvalidInputError, PathEndedWarning
from capi.evaluators._batches import needs_batch
from capi.evaluators._linear_model import LinearValues
from capi.evaluators._means import Means, means
from capi.evaluators._solving import as_dense, solved, typical_square, with_ridge
from capi.features.tables import Features, check_features, kept_settings
from capi.types import Policy, QFunction

RIDGE = 1e-9  # default, relative to the mean square of the features
TIE = 1e-12  # correlations that are this close to the penalty, relative to the largest one, are equal to it
TOLERANCE = 1e-8  # of the optimality conditions, relative to the largest correlation
MOST_PROJECTIONS = 300
LARGEST = 1e9  # targets larger than this many times the correlations with the rewards are diverging
STEPS_A_WEIGHT = 20  # maximum number of steps of the path per weight; more are a sign of a cycle


@dataclass(frozen=True, eq=False)
class LassoPath:
    """The solutions for all penalties down from the largest, linear between the knots."""

    penalties: Floats  # (k,), decreasing
    weights: Floats  # (k, A, p)

    def at(self, penalty: float) -> Floats:
        """Return the weights (A, p) for a penalty on the path."""
        lowest = self.penalties[-1]
        if not is_real(penalty) or not penalty >= lowest:
            raise InvalidInputError(f"penalty must be at least {lowest:.4g}, the end of the path; got {penalty!r}.")
        flat = self.weights.reshape(len(self.penalties), -1)
        found = [np.interp(penalty, self.penalties[::-1], column[::-1]) for column in flat.T]
        return np.array(found).reshape(self.weights.shape[1:])


@dataclass(frozen=True)
class LassoTD:
    r"""Temporal differences with an L1 penalty (Kolter and Ng 2009), which selects among many features.

    Parameters
    ----------
    features : callable or transformer
        States (n, d) -> (n, p), see `capi.features.bases`. All are penalised equally, so they should have similar scales.
    penalty : float
        :math:`\beta`, relative to means over the rows: duplicating every row does not change the solution. If it is at least the
        largest :math:`|b_j|`, all weights are zero; `path` shows the solutions for smaller penalties.
    ridge : float, optional
        Added to the diagonal of A, for nearly dependent features; by default 1e-9 of the features' mean square.
    solver : "path" or "fixed-point"
        LARS-TD, or repeated lasso regressions on the targets of the last weights, which is slow. Off-policy the path may turn
        back: then the solution for the smallest penalty that it reached is returned, with a `PathEndedWarning`. In both cases
        the optimality conditions are checked.

    Examples
    --------
    >>> from capi.features.bases import Polynomial
    >>> from capi.policies import Constant
    >>> from capi.testing import random_batch
    >>> batch = random_batch()
    >>> few = LassoTD(Polynomial(3), penalty=0.1).evaluate(Constant(0, 3), batch, discount=0.5)
    >>> int(np.count_nonzero(few.weights)), few.weights.size
    (11, 30)
    """

    features: Features
    penalty: float = 1e-4
    ridge: float | None = None
    solver: Literal["path", "fixed-point"] = "path"

    uses_weights: ClassVar[bool] = True
    _constraints: ClassVar[Constraints] = {
        "features": check_features,
        "penalty": as_not_negative,
        "ridge": optional(as_not_negative),
        "solver": one_of("path", "fixed-point"),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,  # noqa: ARG002  only the batch matters
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002  nothing is random
    ) -> LinearValues:
        """Return Q of ``policy``, reusing only those parts of ``previous`` that do not depend on the policy."""
        t, discount = needs_batch(transitions, policy, "LassoTD"), as_discount(discount)
        found, fitted, origin = means(self.features, t, policy, previous, discount=discount, dense=True)
        problem = _Problem.of(found, discount, self.ridge)
        if self.solver == "path":
            penalties, knots, turned_back = problem.path(self.penalty)
            weights, reached = knots[-1], penalties[-1]
            if reached > self.penalty:
                warnings.warn(_path_ended(self.penalty, reached, turned_back), PathEndedWarning, stacklevel=2)
        else:
            weights = problem.fixed_point(self.penalty)
        return LinearValues(weights.reshape(t.n_actions, -1), fitted, kept_settings(self.features), origin)

    def path(self, policy: Policy, transitions: Transitions, *, discount: float) -> LassoPath:
        """Return the solutions for all penalties down to ``penalty``, or to the point where the path turns back (LARS-TD)."""
        t, discount = needs_batch(transitions, policy, "LassoTD"), as_discount(discount)
        found = means(self.features, t, policy, discount=discount, dense=True)[0]
        penalties, weights, _ = _Problem.of(found, discount, self.ridge).path(self.penalty)
        return LassoPath(np.array(penalties), np.array(weights).reshape(len(weights), t.n_actions, -1))


@dataclass(frozen=True, eq=False)
class _Direction:
    """What changes while the penalty falls by one, until the set of active weights changes."""

    active: Bools  # (m,)
    move: Floats  # (m,), of the weights
    fall: Floats  # (m,), of the correlations
    closed: Bools  # (m,), weights at a bound that they cannot join: its other side, -c, stays open to them


@dataclass(frozen=True, eq=False)
class _Problem:
    """A and b of the optimality conditions, and the Gram matrix that is part of A."""

    A: Floats  # (m, m)
    b: Floats  # (m,)
    gram: Floats  # (m, m), ridged

    @classmethod
    def of(cls, found: Means, discount: float, ridge: float | None) -> _Problem:
        ridge = RIDGE * typical_square(found.gram) if ridge is None else ridge
        gram = with_ridge(as_dense(found.gram), ridge)
        return cls(gram - discount * as_dense(found.cross), found.rewards, gram)

    def is_solved_by(self, w: Floats, penalty: float) -> bool:
        """Return whether ``w`` (m,) satisfies the optimality conditions."""
        c, slack = self.b - self.A @ w, TOLERANCE * max(np.abs(self.b).max(), penalty)
        at_bound = np.abs(c - penalty * np.sign(w))[w != 0]
        return bool(np.isfinite(c).all() and (np.abs(c) <= penalty + slack).all() and (at_bound <= slack).all())

    def path(self, target: float) -> tuple[list[float], list[Floats], bool]:
        """Return the knots of LARS-TD down to the penalty ``target``: penalties, weights (m,), and whether the path turned back."""
        m = len(self.b)
        w, c = np.zeros(m), self.b.copy()
        penalty = float(np.abs(c).max(initial=0.0))
        penalties, weights = [max(penalty, target)], [w.copy()]
        active = np.zeros(m, dtype=bool)
        left = active.copy()  # the weight that has just become zero
        if penalty > target:
            active[np.abs(c).argmax()] = True
        for _ in range(STEPS_A_WEIGHT * m):
            if penalty <= target:
                break
            direction = self._direction(w, c, penalty, active, left)
            if direction is None:
                return penalties, weights, True
            active = direction.active
            step, changes = self._step(w, c, penalty, target, direction)
            w, penalty = w + step * direction.move, target if changes < 0 else penalty - step
            c = self.b - self.A @ w  # recomputed, so that rounding errors do not accumulate
            left[:] = False
            if changes >= 0:
                active[changes] = not active[changes]
                if not active[changes]:
                    w[changes], left[changes] = 0.0, True
            if not self.is_solved_by(w, penalty):
                break
            penalties.append(penalty)
            weights.append(w.copy())
        return penalties, weights, False

    def _direction(self, w: Floats, c: Floats, penalty: float, active: Bools, left: Bools) -> _Direction | None:
        """Return how the weights move as the penalty falls, or None if they cannot: then the path turns back.

        A weight of zero whose correlation is at a bound either grows in the direction of its sign, and its correlation stays at
        the bound, or it stays zero, and its correlation falls at least as fast as the penalty. Which ones do is a linear
        complementarity problem, with a unique solution if A is a P-matrix; least-index pivoting (Murty 1974) finds it.
        """
        tie = min(TIE * np.abs(self.b).max(), penalty / 2)
        signs, tied = np.sign(c), (w == 0) & (active | left | (np.abs(c) >= penalty - tie))
        active = active.copy()
        for _ in range(STEPS_A_WEIGHT * (1 + int(tied.sum()))):
            move = np.zeros(len(w))
            if active.any():
                move[active] = solved(self.A[np.ix_(active, active)], signs[active])
            fall = self.A[:, active] @ move[active]
            wrong = tied & np.where(active, move * signs < 0, fall * signs < 1 - TIE)
            if not wrong.any():
                return _Direction(active, move, fall, tied & ~active)
            first = wrong.argmax()
            active[first] = not active[first]
        return None

    @staticmethod
    def _step(w: Floats, c: Floats, penalty: float, target: float, direction: _Direction) -> tuple[float, int]:
        """Return how far the penalty can fall until the set of active weights changes, and which weight changes (-1: none)."""
        active, move, fall, closed = direction.active, direction.move, direction.fall, direction.closed
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.where(~active & ~(closed & (c > 0)) & (fall < 1), (penalty - c) / (1 - fall), np.inf)
            down = np.where(~active & ~(closed & (c < 0)) & (fall > -1), (penalty + c) / (1 + fall), np.inf)
            zero = np.where(active & (w * move < 0), -w / move, np.inf)
        until = np.maximum(np.minimum(np.minimum(up, down), zero), 0.0)
        first = int(until.argmin())
        return (penalty - target, -1) if until[first] >= penalty - target else (float(until[first]), first)

    def fixed_point(self, penalty: float) -> Floats:
        """Return the weights (m,) that are a fixed point of lasso regression on their own targets."""
        w = np.zeros(len(self.b))
        for _ in range(MOST_PROJECTIONS):
            targets = self.b + (self.gram - self.A) @ w
            if np.abs(targets).max() > LARGEST * np.abs(self.b).max():
                break
            w = lars_path_gram(targets, self.gram, n_samples=1, alpha_min=penalty, method="lasso")[2][:, -1]
            settled = self._with_support(w, penalty)
            if self.is_solved_by(settled, penalty):
                return settled
        raise DivergenceError(
            f"no fixed point of the L1-penalised projection was found at penalty {penalty:g}; off-policy it may not exist. "
            "Increase penalty or ridge, or use LSTDQ."
        )

    def _with_support(self, w: Floats, penalty: float) -> Floats:
        """Return the solution with the signs of ``w``, if it exists: A w = b - penalty sign(w) where w is not zero."""
        active, settled = w != 0, np.zeros(len(w))
        if active.any():
            right = self.b[active] - penalty * np.sign(w[active])
            settled[active] = solved(self.A[np.ix_(active, active)], right)
        return settled


def _path_ended(penalty: float, reached: float, turned_back: bool) -> str:
    if turned_back:
        how = "turned back"
        why = (
            "A = Phi^T (Phi - discount Phi') / n is not a P-matrix, as may happen off-policy: solutions for smaller "
            "penalties need not exist or be unique"
        )
    else:
        how = "stopped"
        why = "rounding errors or the limit on its steps ended it, although a solution may exist"
    return (
        f"LARS-TD's path {how} at penalty {reached:.4g}, above the requested {penalty:g}: {why}. "
        f"Returning the solution for {reached:.4g}. Increase penalty or ridge."
    )
