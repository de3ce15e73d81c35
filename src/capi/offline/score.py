"""A quick score for comparing many policies on one batch."""

from __future__ import annotations

from capi._utils import registry
from capi._utils.randomness import RandomState, as_generator
from capi._utils.threads import n_threads, one_blas_thread
from capi._utils.validation import Floats, as_discount
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.offline.episodes import Episodes
from capi.offline.evaluation import check_is_evaluable
from capi.offline.fitted_q import FittedEvaluation, Regression, fitted_evaluation
from capi.types import Policy


def fitted_value(
    policy: Policy,
    batch: Transitions,
    *,
    discount: float,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
) -> float:
    """Return the value of a policy from the first states of the episodes, by fitted Q evaluation alone.

    The iterates of small policy spaces can oscillate between good and bad. With ``keep=lambda round: fitted_value(round.policy, batch,
    discount=0.98)``, `capi.CAPI` keeps the best of them. This is a score without evidence of its accuracy: for that use `evaluate`.

    Parameters
    ----------
    policy : Policy
    batch : Transitions
    discount : float in [0, 1)
    random_state : int, Generator or None
    n_jobs : int, optional
        Number of threads; -1 uses all cores. The result does not depend on it.

    Examples
    --------
    >>> from capi.policies import Constant
    >>> batch = Transitions([[0.0]] * 20, [0, 1] * 10, [0.0, 1.0] * 10, [[0.0]] * 20, [True] * 20)
    >>> [round(fitted_value(Constant(a, n_actions=2), batch, discount=0.9), 6) for a in (0, 1)]
    [0.0, 1.0]
    """
    regression = Regression(n_jobs=n_threads(n_jobs))
    return _evaluated(policy, batch, discount, regression, random_state).under.value


def fitted_value_with_influence(
    policy: Policy, batch: Transitions, discount: float, regression: Regression, random_state: RandomState
) -> tuple[float, Floats]:
    """Return `fitted_value` with other trees, and how much each episode moves it (E,)."""
    found = _evaluated(policy, batch, discount, regression, random_state)
    with one_blas_thread():
        return found.under.value, found.influence()


def _evaluated(
    policy: Policy, batch: Transitions, discount: float, regression: Regression, random_state: RandomState
) -> FittedEvaluation:
    if not isinstance(batch, Transitions):
        raise InvalidInputError(f"batch must be a Transitions; got {type(batch).__name__}.")
    check_is_evaluable("policy", policy, batch)
    with one_blas_thread():
        return fitted_evaluation(
            policy, Episodes.counted(batch, as_discount(discount)), regression, as_generator(random_state)
        )


@registry.score_policy.fill
def score_policy(policy: Policy, batch: Transitions, discount: float) -> float:
    """Return the score of a learner's policy: its fitted value, always with the same seed."""
    return fitted_value(policy, batch, discount=discount)
