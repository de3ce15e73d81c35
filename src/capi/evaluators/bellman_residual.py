r"""Bellman residual minimisation, with the correction that makes it right for random transitions.

The mean squared residual :math:`\|Q - (r + \gamma Q(X', \pi(X')))\|^2` also counts the noise of the transitions. The modified
loss (Antos, Szepesvari and Munos 2008) takes off what the best function h of an auxiliary space leaves of it,

.. math:: \min_Q \max_h \; \|Q - \hat T Q\|_n^2 - \|h - \hat T Q\|_n^2 .

With linear Q and h, projection H on the auxiliary features, G = (I - H)^T (I - H) and D = Phi - gamma Phi',

.. math:: (D^\top D - \gamma^2 \Phi'^\top G \Phi' + n \lambda_Q I)\, w = D^\top r + \gamma \Phi'^\top G r .

The products of next features with next features cancel, so this needs the same means as LSTD. If the auxiliary space is
the space of Q and nothing is penalised, both are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, literal_or, optional
from capi._utils.validation import Floats, as_discount, as_not_negative
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators import _rkhs
from capi.evaluators._batches import needs_batch
from capi.evaluators._linear_model import LinearValues
from capi.evaluators._means import means, means_of, next_means
from capi.evaluators._rkhs import KernelSpanValues
from capi.evaluators._solving import as_dense, solved, typical_square, with_ridge
from capi.features.bases import RKHS
from capi.features.tables import Features, check_features, check_features_or_rkhs, fitted_features, kept_settings
from capi.types import Policy, QFunction

RIDGES = 1e-12, 1e-9  # of the mean square of the features, if none is chosen: of Q, of the auxiliary function
NEGATIVE = 1e-9  # curvature, relative to the largest, that is more than rounding


@dataclass(frozen=True)
class BellmanResidual:
    r"""Modified Bellman residual minimisation (Antos, Szepesvari and Munos 2008; regularised: Farahmand et al. 2008).

    Parameters
    ----------
    features : callable, transformer or RKHS
        States (n, d) -> (n, p), see `capi.features.bases`. With `RKHS` both penalties must be positive.
    auxiliary : "same", callable, transformer or None
        Features of the auxiliary space. "same" are those of Q. With None nothing is taken off: the plain residual, which is
        right only where transitions are not random, and biased elsewhere.
    ridge : float, optional
        Penalty on the weights of Q, :math:`\lambda_Q`, with means over the rows. By default 1e-12 of the features' mean square: it
        weighs more than LSTD's, because the residual is small where discounts are large.
    projection_ridge : float, optional
        Penalty on the weights of the auxiliary function, :math:`\lambda_h`; by default 1e-9 of its features' mean square. If it is large, or
        the auxiliary space poor, more than the noise is taken off and the loss has no minimum: that is refused.

    Examples
    --------
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
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,  # noqa: ARG002  the batch decides alone
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002  nothing is random
    ) -> LinearValues | KernelSpanValues:
        """Return Q of ``policy``; of ``previous`` only what does not depend on the policy is used again."""
        t, discount = needs_batch(transitions, policy, "BellmanResidual"), as_discount(discount)
        if isinstance(self.features, RKHS):
            return _rkhs.residual(self.features, t, policy, discount, self.ridge or 0.0, self.projection_ridge or 0.0)
        found, fitted, origin = means(self.features, t, policy, previous, dense=True)
        gram, cross = as_dense(found.gram), as_dense(found.cross)
        left = gram - discount * (cross + cross.T)  # D^T D but for the products of next features
        if self.auxiliary is None:
            next_gram, next_rewards = next_means(fitted, t, policy)
            left = left + discount**2 * as_dense(next_gram)
            right = found.rewards - discount * next_rewards
        else:
            if self._is_same():
                own, seen, rewards = gram, cross, found.rewards
            else:
                other = means_of(fitted_features(self.auxiliary, t.states), fitted, t, policy)
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
    """Refuse a quadratic loss that falls without end in some direction."""
    lowest, highest = np.linalg.eigvalsh(left)[[0, -1]]
    if lowest < -NEGATIVE * max(highest, 1e-300):
        raise InvalidInputError(
            f"the modified loss has no minimum: more than the noise is taken off (curvature {lowest:.2g} in one direction, {highest:.2g} "
            "in another). Take a richer auxiliary space, a smaller projection_ridge, or a larger ridge."
        )


def _taken_off(own: Floats, ridge: float, seen: Floats) -> Floats:
    """Return (2 M^{-1} - M^{-1} own M^{-1}) seen with M = own + ridge I: what 2 H - H^T H is between features."""
    ridged = with_ridge(own, ridge)
    once = solved(ridged, seen)
    return 2 * once - solved(ridged, own @ once)
