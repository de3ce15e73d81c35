r"""Bellman residual minimisation, with the correction for random transitions.

The mean squared residual :math:`\|Q - (r + \gamma Q(X', \pi(X')))\|^2` includes the noise of the transitions. The modified loss
(Antos, Szepesvari and Munos 2008) subtracts the residual that the best function h of an auxiliary space leaves,

.. math:: \min_Q \max_h \; \|Q - \hat T Q\|_n^2 - \|h - \hat T Q\|_n^2 .

With linear Q and h, projection H on the auxiliary features, G = (I - H)^T (I - H) and D = Phi - gamma Phi',

.. math:: (D^\top D - \gamma^2 \Phi'^\top G \Phi' + n \lambda_Q I)\, w = D^\top r + \gamma \Phi'^\top G r .

The products of next features with next features cancel, so this needs the same means as LSTD. If the auxiliary space is the
space of Q and there are no penalties, both solutions are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, literal_or, optional
from capi._utils.validation import Floats, as_discount, as_not_negative
from capi.errors import InvalidInputError
from capi.evaluators import _rkhs
from capi.evaluators._batches import AnyBatch, any_batch, needs_batch
from capi.evaluators._linear_model import LinearValues
from capi.evaluators._means import means, means_of, next_means
from capi.evaluators._rkhs import KernelSpanValues
from capi.evaluators._solving import as_dense, solved, typical_square, with_ridge
from capi.features.bases import RKHS
from capi.features.tables import Features, check_features, check_features_or_rkhs, fitted_features, kept_settings
from capi.types import Policy, QFunction

RIDGES = 1e-12, 1e-9  # default penalties of Q and of the auxiliary function, relative to the features' mean square
NEGATIVE = 1e-9  # negative curvature, relative to the largest, that rounding cannot explain


@dataclass(frozen=True)
class BellmanResidual:
    r"""Modified Bellman residual minimisation (Antos, Szepesvari and Munos 2008; regularised: Farahmand et al. 2008).

    Parameters
    ----------
    features : callable, transformer or RKHS
        States (n, d) -> (n, p), see `capi.features.bases`. With `RKHS` both penalties must be positive.
    auxiliary : "same", callable, transformer or None
        Features of the auxiliary space; "same" uses those of Q. With None nothing is subtracted: this is the plain residual,
        which is correct for deterministic transitions only and biased otherwise.
    ridge : float, optional
        Penalty on the weights of Q, :math:`\lambda_Q`, relative to means over the rows. By default 1e-12 of the features' mean
        square: the same penalty has more effect than in LSTD, because the residual is small for large discounts.
    projection_ridge : float, optional
        Penalty on the weights of the auxiliary function, :math:`\lambda_h`; by default 1e-9 of its features' mean square. If it is
        large, or the auxiliary space is too small, more than the noise is subtracted and the loss has no minimum, which raises
        an error.

    Examples
    --------
    >>> from capi import Transitions
    >>> from capi.features.bases import OneHot
    >>> from capi.policies import Constant
    >>> batch = Transitions([[0.0], [1.0]], [0, 0], [0.0, 1.0], [[1.0], [1.0]], [False, False])
    >>> BellmanResidual(OneHot(2)).evaluate(Constant(0, 1), batch, discount=0.9).values(batch.states).round(3)
    array([[ 9.],
           [10.]])
    """

    features: Features
    auxiliary: Features | None = "same"
    ridge: float | None = None
    projection_ridge: float | None = None

    uses_weights: ClassVar[bool] = True
    _constraints: ClassVar[Constraints] = {
        "features": check_features_or_rkhs,
        "auxiliary": optional(literal_or("same", check_features)),
        "ridge": optional(as_not_negative),
        "projection_ridge": optional(as_not_negative),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if isinstance(self.features, RKHS):
            _rkhs.check_ridges(self.ridge, self.projection_ridge)
            _rkhs.check_auxiliary(self.auxiliary)

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
            batch = needs_batch(transitions, policy, "BellmanResidual")
            return _rkhs.residual(
                self.features, batch, policy, discount, self.ridge or 0.0, self.projection_ridge or 0.0
            )
        t = any_batch(transitions, policy, "BellmanResidual")
        found, fitted, origin = means(self.features, t, policy, previous, discount=discount, dense=True)
        gram, cross = as_dense(found.gram), as_dense(found.cross)
        left = gram - discount * (cross + cross.T)  # D^T D without the products of next features
        if self.auxiliary is None:
            next_gram, next_rewards = next_means(fitted, t, policy, discount)
            left = left + discount**2 * as_dense(next_gram)
            right = found.rewards - discount * next_rewards
        else:
            if self._is_same():
                own, seen, rewards = gram, cross, found.rewards
            else:
                other = means_of(fitted_features(self.auxiliary, t.states), fitted, t, policy, discount)
                own, seen, rewards = as_dense(other.gram), as_dense(other.cross), other.rewards
            outer = RIDGES[1] * typical_square(own) if self.projection_ridge is None else self.projection_ridge
            taken_off = _taken_off(own, outer, np.column_stack([seen, rewards]))
            left = left + discount**2 * (seen.T @ taken_off[:, :-1])
            right = found.rewards - discount * (seen.T @ taken_off[:, -1])
        ridge = RIDGES[0] * typical_square(gram) if self.ridge is None else self.ridge
        left = with_ridge((left + left.T) / 2, ridge)
        _check_has_minimum(left)
        weights = solved(left, right)
        return LinearValues(weights.reshape(t.n_actions, -1), fitted, kept_settings(self.features), origin)

    def _is_same(self) -> bool:
        return isinstance(self.auxiliary, str) and self.auxiliary == "same"


def _check_has_minimum(left: Floats) -> None:
    """Raise an error if the quadratic loss is unbounded below."""
    lowest, highest = np.linalg.eigvalsh(left)[[0, -1]]
    if lowest < -NEGATIVE * max(highest, 1e-300):
        raise InvalidInputError(
            "the modified loss must have a minimum, but more than the noise was subtracted (curvature "
            f"{lowest:.2g} in one direction, {highest:.2g} in another). Use a larger auxiliary space, a smaller "
            "projection_ridge, or a larger ridge."
        )


def _taken_off(own: Floats, ridge: float, seen: Floats) -> Floats:
    """Return (2 M^{-1} - M^{-1} own M^{-1}) seen with M = own + ridge I, that is, 2 H - H^T H in terms of features."""
    ridged = with_ridge(own, ridge)
    once = solved(ridged, seen)
    return 2 * once - solved(ridged, own @ once)
