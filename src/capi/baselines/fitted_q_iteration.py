"""Fitted Q iteration, with trees and with kernels, as settings of the CAPI loop."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from capi._utils.randomness import RandomState
from capi.errors import InvalidInputError
from capi.evaluators._sweeps import with_one_sweep
from capi.evaluators.fitted_q import FittedQ
from capi.evaluators.kernel_fitted_q import KernelFittedQ
from capi.learning.iteration import Keep, Loop, next_states
from capi.learning.learner import Learner
from capi.policy_spaces import Unrestricted

Evaluator = TypeVar("Evaluator", bound=FittedQ | KernelFittedQ)


class _SweptIteration(Learner, Generic[Evaluator]):
    """One sweep per round in the space of all policies: the greedy policy has T^pi Q = T* Q."""

    _kind: ClassVar[type[FittedQ | KernelFittedQ]]

    def __init__(
        self,
        evaluator: Evaluator,
        discount: float,
        n_iterations: int = 100,
        *,
        random_state: RandomState = None,
        keep: Keep = "last",
    ) -> None:
        self.evaluator = evaluator
        self.discount = discount
        self.n_iterations = n_iterations
        self.random_state = random_state
        self.keep = keep

    def loop(self) -> Loop:
        """Return the settings of the loop: one sweep per round, all policies."""
        if not isinstance(self.evaluator, self._kind):
            raise InvalidInputError(f"evaluator must be a {self._kind.__name__}; got {self.evaluator!r}.")
        return Loop(
            with_one_sweep(self.evaluator),
            Unrestricted(),
            self.discount,
            self.n_iterations,
            random_state=self.random_state,
            keep=self.keep,
            sample_of=next_states,
        )


class FittedQIteration(_SweptIteration[FittedQ]):
    r"""Fitted Q iteration (Ernst, Geurts and Wehenkel 2005): :math:`\hat Q_{k+1} \approx T^* \hat Q_k`, and its greedy policy.

    The policy that is greedy in Q has :math:`T^\pi Q = T^* Q`, so one sweep of `FittedQ` per round in the space of all policies
    is fitted Q iteration. Tree-FQI and Tree-CAPI then differ only in the policy. By default the fraction of changed decisions
    is measured at the next states of the batch, where a sweep needs Q anyway.

    Parameters
    ----------
    evaluator : FittedQ
        The trees or regressor, and when to regrow the trees; it makes one sweep per round.
    discount : float in [0, 1)
        Discount factor.
    n_iterations : int
        Number of rounds, that is, sweeps.
    random_state : int, Generator or None
        The same int gives the same policy.
    keep : "last", "best", or function of an `Iteration`
        Which policy to keep, as in `CAPI`.

    Examples
    --------
    >>> from capi.evaluators import FittedQ
    >>> from capi.testing import random_batch
    >>> learner = FittedQIteration(FittedQ(n_trees=5), discount=0.9, n_iterations=10, random_state=0).fit(random_batch())
    >>> len(learner.history_)
    10
    """

    _kind = FittedQ


class RFQI(_SweptIteration[KernelFittedQ]):
    r"""Regularised fitted Q iteration (Farahmand, Ghavamzadeh, Szepesvari and Mannor 2009), by kernel ridge regression.

    One sweep of `KernelFittedQ` per round, :math:`\hat Q_{k+1} = \arg\min_Q \sum_i (Q(X_i, A_i) - R_i - \gamma \max_a \hat Q_k(X'_i, a))^2
    + \lambda n \|Q\|^2`, and the greedy policy of the last Q. RFQI and CAPI with the same evaluator differ only in the policy. See
    `FittedQIteration` for trees.

    Parameters
    ----------
    evaluator : KernelFittedQ
        Kernel, ridge and sparsification; it makes one sweep per round.
    discount : float in [0, 1)
        Discount factor.
    n_iterations : int
        Number of rounds, that is, sweeps.
    random_state : int, Generator or None
        Has no effect on learning, in which nothing is random; ``keep="best"`` draws its trees from it.
    keep : "last", "best", or function of an `Iteration`
        Which policy to keep, as in `CAPI`.

    References
    ----------
    .. [1] A.-m. Farahmand, M. Ghavamzadeh, C. Szepesvari, S. Mannor, "Regularized fitted Q-iteration for planning in
       continuous-space Markovian decision problems", American Control Conference, 2009.

    Examples
    --------
    >>> from capi.evaluators import KernelFittedQ
    >>> from capi.testing import random_batch
    >>> learner = RFQI(KernelFittedQ(ridge=0.1), discount=0.9, n_iterations=10).fit(random_batch())
    >>> len(learner.history_)
    10
    """

    _kind = KernelFittedQ
