r"""Convex surrogates of the gap-weighted loss, for scores that are linear in features.

A policy takes :math:`\arg\max_a f_a(x)`. Its loss in row i, :math:`r_i(\pi(X_i))` with the regrets r of Q, is replaced by
a sum over all pairs of allowed actions: where b loses more than a, the score of a should exceed that of b by a margin,
weighted by the difference in regret,

.. math::
    \sum_{a, b} \bigl[r_i(b) - r_i(a)\bigr]_+\; \ell\bigl(f_a(X_i) - f_b(X_i)\bigr).

These are the weights of cost-sensitive one-versus-one classification [1]_, with differences of scores as its classifiers.
With two actions it is the gap times :math:`\ell` of the better action's margin: the binary surrogate.

Known properties: it is convex in f. A policy that takes b where a is best has :math:`f_b \ge f_a`, so the loss is at most
the surrogate divided by :math:`\ell(0)`. Where Q is a function of the state, as in CAPI, the surrogate's infimum over all f
is zero: reducing it reduces the loss, for any :math:`\ell`. With two actions this also holds if the values at a state are
random [2]_. With more actions it need not: the logistic minimiser is only guaranteed to take an action that loses no more
than the mean of all actions at that state. The form of Lee, Lin and Wahba [3]_ does not have this flaw, but it requires each
score to be on the right side of the mean score, which linear scores often cannot achieve [4]_: on six kinds of problems with
four actions it always lost more than this one. With scores restricted to a class, no surrogate guarantees the least loss;
polishing addresses this.

.. [1] H.-T. Lin, "Reduction from cost-sensitive multiclass classification to one-versus-one binary classification", ACML
   2014.
.. [2] P. L. Bartlett, M. I. Jordan, J. D. McAuliffe, "Convexity, classification, and risk bounds", Journal of the American
   Statistical Association 101(473), 2006.
.. [3] Y. Lee, Y. Lin, G. Wahba, "Multicategory support vector machines", Journal of the American Statistical
   Association 99(465), 2004; with risk bounds for costs, B. Avila Pires, C. Szepesvari, M. Ghavamzadeh, "Cost-sensitive
   multiclass classification risk bounds", ICML 2013.
.. [4] U. Dogan, T. Glasmachers, C. Igel, "A unified view on multi-class support vector classification", Journal of Machine
   Learning Research 17(45), 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from scipy.optimize import minimize

from capi._utils.parameters import Constraints, at_least, check_parameters, one_of
from capi._utils.validation import Bools, Floats, as_not_negative
from capi.features.tables import Table
from capi.policy_spaces.linear import _kernels

Surrogate: TypeAlias = Literal["hinge", "logistic", "exponential"]
Penalty: TypeAlias = Literal["l2", "l1"]

KINDS = {"hinge": _kernels.HINGE, "logistic": _kernels.LOGISTIC, "exponential": _kernels.EXPONENTIAL}
FLAT, STILL = 1e-6, 1e-10  # the largest gradient entry and the relative progress at which the solver stops


@dataclass(frozen=True)
class ConvexLoss:
    """The surrogate and the penalty to minimise."""

    surrogate: Surrogate
    penalty: Penalty
    strength: float
    max_iterations: int

    _constraints: ClassVar[Constraints] = {
        "surrogate": one_of(*KINDS),
        "penalty": one_of("l2", "l1"),
        "strength": as_not_negative,
        "max_iterations": at_least(1),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def minimiser(self, table: Table, lost: Floats, free: Bools, order: Mapping[int, int]) -> Floats:
        """Return the weights (A, p) of features ``table`` (m, p); ``free`` columns (p,) have no penalty.

        In the columns of ``order``, weights increase (1) or decrease (-1) from action to action.
        """
        shape = lost.shape[1], table.shape[1]
        problem = Objective(self, table, lost, np.broadcast_to(~free, shape).ravel() * self.strength / (shape[0] - 1))
        options = {"maxiter": self.max_iterations, "maxfun": 10 * self.max_iterations, "gtol": FLAT, "ftol": STILL}
        if self.penalty == "l2":
            start, steps = np.zeros(shape[0] * shape[1]), Steps(shape, order)
            found = minimize(
                lambda x: steps.pulled_back(problem.squared, x),
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=steps.bounds() if order else None,
                options=options,
            ).x
            return steps.weights(found)
        start, bounds = np.zeros(2 * shape[0] * shape[1]), problem.bounds_of_parts()
        both = minimize(problem.absolute, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        positive, negative = both.reshape(2, *shape)
        return positive - negative


@dataclass(frozen=True, eq=False)
class Steps:
    """Weights (A, p) as free variables; in the columns of ``order``, the variables are nonnegative steps between actions."""

    shape: tuple[int, int]
    order: Mapping[int, int]

    def weights(self, x: Floats) -> Floats:
        """Return the weights (A, p)."""
        weights = x.reshape(self.shape).copy()
        for j, direction in self.order.items():
            weights[1:, j] *= direction
            weights[:, j] = np.cumsum(weights[:, j])
        return weights

    def pulled_back(self, function: Callable[[Floats], tuple[float, Floats]], x: Floats) -> tuple[float, Floats]:
        """Return the value of a function of the weights, and its gradient with respect to x."""
        if not self.order:
            return function(x)
        value, gradient = function(self.weights(x).ravel())
        gradient = gradient.reshape(self.shape).copy()
        for j, direction in self.order.items():
            gradient[:, j] = np.cumsum(gradient[::-1, j])[::-1]
            gradient[1:, j] *= direction
        return value, gradient.ravel()

    def bounds(self) -> list[tuple[Any, Any]]:
        """Return the bounds of x."""
        is_step = np.zeros(self.shape, dtype=bool)
        is_step[1:, list(self.order)] = True
        return [(0, None) if step else (None, None) for step in is_step.ravel()]


@dataclass(frozen=True, eq=False)
class Objective:
    """Surrogate plus penalty as functions of flat weights (A p,), each with its gradient."""

    loss: ConvexLoss
    table: Table  # (m, p)
    lost: Floats  # (m, A)
    strengths: Floats  # (A p,) penalty of each weight: the strength divided by the number of other actions, or zero

    def surrogate(self, weights: Floats) -> tuple[float, Floats]:
        """Return the surrogate of the gap-weighted loss."""
        scores = np.asarray(self.table @ weights.reshape(self.lost.shape[1], -1).T)
        slopes = np.empty_like(scores)
        value = _kernels.surrogate_sum(KINDS[self.loss.surrogate], scores, self.lost, slopes)
        return value, np.asarray(self.table.T @ slopes).T.ravel()

    def squared(self, weights: Floats) -> tuple[float, Floats]:
        """Return the surrogate plus the penalty on squared weights.

        If the mean over actions is zero, which minimises the penalty, it is half the strength times the squared length of
        the difference of two actions' weights, averaged over all pairs.
        """
        value, gradient = self.surrogate(weights)
        return value + float(self.strengths @ (weights * weights)), gradient + 2.0 * self.strengths * weights

    def absolute(self, parts: Floats) -> tuple[float, Floats]:
        """Return the surrogate plus the penalty on absolute weights.

        Weights are the difference of two nonnegative parts (2 A p,), in which the sum of absolute values is linear.
        """
        positive, negative = np.split(parts, 2)
        value, gradient = self.surrogate(positive - negative)
        return (
            value + float(self.strengths @ (positive + negative)),
            np.concatenate([gradient + self.strengths, self.strengths - gradient]),
        )

    def bounds_of_parts(self) -> list[tuple[Any, Any]]:
        """Return the bounds of both parts; a weight without penalty uses only its first part, with any sign."""
        penalised = self.strengths > 0
        return [(0, None) if p else (None, None) for p in penalised] + [(0, None) if p else (0, 0) for p in penalised]
