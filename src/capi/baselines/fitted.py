"""Fitted Q iteration, as a setting of the CAPI loop."""

from __future__ import annotations

from dataclasses import replace

from capi.errors import InvalidInput
from capi.evaluators.fitted import FittedQ
from capi.iteration import Learner
from capi.loop import Loop, next_states
from capi.policy_spaces import Unrestricted
from capi.randomness import RandomState


class FittedQIteration(Learner):
    r"""Fitted Q iteration (Ernst, Geurts and Wehenkel 2005): :math:`\hat Q_{k+1} \approx T^* \hat Q_k`, and its greedy policy.

    The policy that is greedy in Q has :math:`T^\pi Q = T^* Q`, so one sweep of `FittedQ` a round with all policies to choose
    from is fitted Q iteration. Tree-FQI and Tree-CAPI then differ in the policy alone. The share of changed decisions is
    measured at the next states of the batch unless ``states`` are given: there a sweep needs Q anyway.

    Parameters
    ----------
    evaluator : FittedQ
        Trees or regressor, and when the trees are refreshed; it makes one sweep a round.
    discount : float in [0, 1)
    n_iterations : int
    random_state : int, Generator or None

    Examples
    --------
    >>> from capi.evaluators import FittedQ
    >>> from capi.testing import random_batch
    >>> learner = FittedQIteration(FittedQ(n_trees=5), discount=0.9, n_iterations=10, random_state=0).fit(random_batch())
    >>> len(learner.history_)
    10
    """

    def __init__(
        self, evaluator: FittedQ, discount: float, n_iterations: int = 100, *, random_state: RandomState = None
    ) -> None:
        self.evaluator = evaluator
        self.discount = discount
        self.n_iterations = n_iterations
        self.random_state = random_state

    def loop(self) -> Loop:
        """Return one sweep a round, all policies."""
        if not isinstance(self.evaluator, FittedQ):
            raise InvalidInput(f"evaluator must be a FittedQ; got {self.evaluator!r}.")
        one_sweep = replace(self.evaluator, sweeps=1)
        return Loop(
            one_sweep,
            Unrestricted(),
            self.discount,
            self.n_iterations,
            random_state=self.random_state,
            sample_of=next_states,
        )
