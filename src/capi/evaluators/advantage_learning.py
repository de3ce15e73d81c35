"""Gap-increasing evaluation: advantage learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, satisfying, strictly_between
from capi._utils.row_ops import chosen_entries
from capi._utils.validation import Floats
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.loss import best_values
from capi.types import Policy, PolicyEvaluator, QFunction


def _makes_one_sweep(inner: Any) -> bool:
    return isinstance(inner, PolicyEvaluator) and getattr(inner, "n_sweeps", None) == 1


@dataclass(frozen=True)
class AdvantageLearning:
    r"""One sweep of an evaluator, less a share of what the logged actions lost in the last round (Bellemare et al. 2016).

    .. math:: y_i = R_i - \alpha \bigl[\max_a \hat Q(X_i, a) - \hat Q(X_i, A_i)\bigr] + \gamma \hat Q(X'_i, \pi(X'_i))

    Exact values of the best policy keep their maxima, and their gaps grow by the factor 1 / (1 - alpha). So errors of the values reverse fewer decisions.
    The values are then not those of a policy: do not use them to estimate what it is worth.

    Parameters
    ----------
    inner : PolicyEvaluator
        An evaluator that makes one sweep per round over a batch, such as ``FittedQ(n_sweeps=1)``.
    alpha : float in (0, 1)

    References
    ----------
    .. [1] M. G. Bellemare, G. Ostrovski, A. Guez, P. Thomas, R. Munos, "Increasing the action gap: new operators for reinforcement
       learning", AAAI 2016.

    Examples
    --------
    >>> from capi import CAPI
    >>> from capi.evaluators import FittedQ
    >>> from capi.policy_spaces import Unrestricted
    >>> from capi.testing import random_batch
    >>> CAPI(AdvantageLearning(FittedQ(n_sweeps=1), 0.5), Unrestricted(), 0.9, 3, random_state=0).fit(random_batch()).q_.n_actions
    3
    """

    inner: PolicyEvaluator
    alpha: float = 0.5

    _constraints: ClassVar[Constraints] = {
        "inner": satisfying(
            _makes_one_sweep, "be an evaluator with n_sweeps=1", advice="For example FittedQ(n_sweeps=1)."
        ),
        "alpha": strictly_between(0, 1),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None,
        *,
        discount: float,
        states: Floats | None = None,
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> QFunction:
        """Return the values after one sweep with the lowered rewards; the first sweep, without ``previous``, lowers none."""
        if transitions is None:
            raise InvalidInputError("AdvantageLearning needs transitions: pass a batch to fit.")
        batch = transitions
        if previous is not None:
            values = previous.values(batch.states)
            lost = best_values(values, batch.allowed) - chosen_entries(values, batch.actions)
            batch = batch._with({"rewards": batch.rewards - self.alpha * lost})
        return self.inner.evaluate(policy, batch, discount=discount, states=states, previous=previous, rng=rng)
