r"""Least-squares temporal differences: the fixed point of the projected Bellman operator, from one linear system.

Plain (Bradtke and Barto 1996; for action values Lagoudakis and Parr 2003), with means over the batch,

.. math:: A = \tfrac1n \Phi^\top (\Phi - \gamma \Phi'), \quad b = \tfrac1n \Phi^\top r, \quad w = (A + \epsilon I)^{-1} b .

Regularised (Farahmand, Ghavamzadeh, Szepesvari and Mannor 2008): the projection is also a ridge regression,
:math:`H = \Phi (\Phi^\top \Phi + n \lambda_h I)^{-1} \Phi^\top`, and w minimises
:math:`\tfrac1n \|\Phi w - H (r + \gamma \Phi' w)\|^2 + \lambda_Q \|w\|^2`.

A sweep is a regression on the targets of the Q before it, :math:`w \leftarrow (\tfrac1n \Phi^\top \Phi + \epsilon I)^{-1} \tfrac1n \Phi^\top (r +
\gamma \Phi' w)`: with the same products as the fixed point, so that any number of sweeps takes one pass over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters, optional
from capi._utils.validation import Floats, as_discount, as_not_negative
from capi.errors import InvalidInputError
from capi.evaluators import _rkhs
from capi.evaluators._batches import AnyBatch, any_batch, needs_batch
from capi.evaluators._linear_model import LinearValues, known_on
from capi.evaluators._means import Means, means, means_of
from capi.evaluators._rkhs import KernelSpanValues
from capi.evaluators._solving import as_dense, solved, typical_square, with_ridge
from capi.features.bases import RKHS
from capi.features.tables import Features, FittedFeatures, check_features_or_rkhs, kept_settings
from capi.types import Policy, QFunction

RIDGE = 1e-9  # default, relative to the mean square of the features


@dataclass(frozen=True)
class LSTDQ:
    r"""Least-squares temporal differences for action values (Lagoudakis and Parr 2003).

    Works on-policy and off-policy without importance ratios, because the next action is the policy's. Memory holds the products
    of features with features, one chunk of features, and some 50 bytes per row, also for ten million rows; sparse features stay
    sparse.

    Parameters
    ----------
    features : callable, transformer or RKHS
        States (n, d) -> (n, p), see `capi.features.bases`. With `RKHS` both penalties must be positive.
    ridge : float, optional
        Added to the diagonal, relative to means over the rows: duplicating every row does not change the solution. With
        ``projection_ridge`` it is the penalty on the weights, :math:`\lambda_Q`. The default, 1e-9 of the features' mean square, only
        keeps the system solvable if features are dependent.
    projection_ridge : float, optional
        Penalty of the projection, :math:`\lambda_h`; turns the method into regularised LSTD (Farahmand et al. 2008).
    n_sweeps : int, optional
        Number of sweeps from the previous Q, at first from zero, instead of the fixed point. With 1 and `Unrestricted` policies the loop is
        fitted Q iteration with linear values, which may be better where the policy leaves the states of the batch.

    Examples
    --------
    >>> from capi import Transitions
    >>> from capi.features.bases import OneHot
    >>> from capi.policies import Constant
    >>> batch = Transitions([[0.0], [1.0]], [0, 0], [0.0, 1.0], [[1.0], [1.0]], [False, False])
    >>> LSTDQ(OneHot(2)).evaluate(Constant(0, 1), batch, discount=0.9).values(batch.states).round(3)
    array([[ 9.],
           [10.]])
    """

    features: Features
    ridge: float | None = None
    projection_ridge: float | None = None
    n_sweeps: int | None = None

    uses_weights: ClassVar[bool] = True
    _constraints: ClassVar[Constraints] = {
        "features": check_features_or_rkhs,
        "ridge": optional(as_not_negative),
        "projection_ridge": optional(as_not_negative),
        "n_sweeps": optional(at_least(1)),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.n_sweeps is not None and (self.projection_ridge is not None or isinstance(self.features, RKHS)):
            raise InvalidInputError(
                "n_sweeps must be None with projection_ridge or RKHS, which find the fixed point. Leave out one of them."
            )
        if isinstance(self.features, RKHS):
            _rkhs.check_ridges(self.ridge, self.projection_ridge)

    def evaluate(
        self,
        policy: Policy,
        transitions: AnyBatch | None,
        *,
        discount: float,
        states: Floats | None = None,  # noqa: ARG002  only the batch matters
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002  nothing is random
    ) -> LinearValues | KernelSpanValues:
        """Return Q of ``policy``, reusing only those parts of ``previous`` that do not depend on the policy."""
        discount = as_discount(discount)
        if isinstance(self.features, RKHS):
            batch = needs_batch(transitions, policy, "LSTDQ")
            return _rkhs.lstd(self.features, batch, policy, discount, self.ridge or 0.0, self.projection_ridge or 0.0)
        t = any_batch(transitions, policy, "LSTDQ")
        dense = self.projection_ridge is not None
        found, fitted, origin = means(self.features, t, policy, previous, discount=discount, dense=dense)
        ridge = RIDGE * typical_square(found.gram) if self.ridge is None else self.ridge
        if self.n_sweeps is not None:
            start = self._first_targets(previous, found, fitted, t, policy, discount)
            weights = _swept(found, discount, ridge, start, self.n_sweeps)
        elif self.projection_ridge is None:
            weights = solved(with_ridge(found.gram - discount * found.cross, ridge), found.rewards)
        else:
            weights = _regularised(found, discount, ridge, self.projection_ridge)
        return LinearValues(weights.reshape(t.n_actions, -1), fitted, kept_settings(self.features), origin)

    def _first_targets(
        self,
        previous: QFunction | None,
        found: Means,
        fitted: FittedFeatures,
        t: AnyBatch,
        policy: Policy,
        discount: float,
    ) -> Floats:
        """Return the mean products of features with the targets of the first sweep (A p,)."""
        if previous is None:
            return found.rewards
        if not isinstance(previous, LinearValues):
            raise InvalidInputError(
                f"previous must be a Q that is linear in features, from which the sweeps of LSTDQ start; got a {type(previous).__name__}. "
                "Leave out n_sweeps to find the fixed point, which needs no start."
            )
        cross = found.cross
        if known_on(self.features, t, previous) is None:  # other features, or fitted to another batch
            cross = means_of(fitted, previous.features, t, policy, discount, (found.gram, found.rewards)).cross
        return found.rewards + discount * (cross @ previous.weights.ravel())


def _swept(found: Means, discount: float, ridge: float, targets: Floats, n_sweeps: int) -> Floats:
    """Return the weights (A p,) after ``n_sweeps`` regressions, the first of them on ``targets`` (A p,)."""
    gram = with_ridge(found.gram, ridge)
    weights = solved(gram, targets)
    for _ in range(n_sweeps - 1):
        weights = solved(gram, found.rewards + discount * (found.cross @ weights))
    return weights


def _regularised(found: Means, discount: float, ridge: float, projection_ridge: float) -> Floats:
    """Return the minimiser: with U = I - discount M^{-1} S the residual is phi (U w - M^{-1} b), M the ridged Gram matrix."""
    gram, cross = as_dense(found.gram), as_dense(found.cross)
    projected = solved(with_ridge(gram, projection_ridge), np.column_stack([cross, found.rewards]))
    residual = np.eye(len(gram)) - discount * projected[:, :-1]
    left = with_ridge(residual.T @ gram @ residual, ridge)
    return solved(left, residual.T @ (gram @ projected[:, -1]))
