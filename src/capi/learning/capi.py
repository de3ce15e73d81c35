"""`CAPI`: classification-based approximate policy iteration with the evaluator and the policy space of your choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from capi._utils.randomness import RandomState
from capi.learning.iteration import (
    ByIteration,
    Iteration,
    Loop,
    Update,
)
from capi.learning.learner import Learner
from capi.types import Policy, PolicyEvaluator, PolicySpace


class CAPI(Learner):
    r"""Classification-based approximate policy iteration (the paper's Algorithm 1).

    Starting from :math:`\pi_0`, each round estimates :math:`\hat Q^{\pi_k}` with ``evaluator.evaluate`` and sets
    :math:`\pi_{k+1} \leftarrow \arg\min_{\pi \in \Pi} \hat L_n^{\pi_k}(\pi)` with ``space.improve``: the policy of the
    space that loses the least value on the sampled states.

    Parameters
    ----------
    evaluator : PolicyEvaluator, or function (k, policy, rng) -> PolicyEvaluator
        Estimates Q of the current policy.
    space : PolicySpace, or function (k, policy, rng) -> PolicySpace
        The policies to choose from.
    discount : float in [0, 1)
        Discount factor of a step or, for a batch with elapsed times (``discount_per``), of a unit of time.
    n_iterations : int
        Number of rounds, K.
    initial_policy : Policy, optional
        :math:`\pi_0`; by default action 0 everywhere (or the lowest allowed action).
    random_state : int, Generator or None
        The same int gives the same policy, bit for bit. Each round has its own seed.
    loss : "gap" or "zero-one"
        The loss that the space minimises: weighted by the action gap, or, for comparison, the fraction of states whose
        action is not greedy.
    update : function (old, new, *, q, states, k) -> Policy or None, optional
        Combines the old and the new policy. By default the new policy replaces the old one. If the function returns
        None, the loop ends with the old policy.
    patience : int, optional
        Stop after this many consecutive rounds without a changed decision on the sample. One is enough if each
        evaluation is complete; with one sweep per round, Q may still change while the policy does not.
    keep : "last", or function of an `Iteration`
        Which policy to keep. In restricted spaces the policies can oscillate between rounds; with a score function
        (larger is better) the best policy is kept, the first one in case of a tie. ``history_`` records the scores.

    Attributes
    ----------
    policy_ : Policy
        The learned policy, with the names and labels of the batch (``schema``) and its origin (``training``).
    q_ : QFunction
        The action values from which ``policy_`` was chosen.
    history_ : list of dict
        k, loss, changed, value and seconds of every round; ``pandas.DataFrame(learner.history_)`` gives a table.
    schema_ : Schema or None
        Feature names and action labels of the batch or, without a batch, of the evaluator's model.
    roles_ : dict or None
        The roles of the table's columns, if ``fit`` was given a table.

    See Also
    --------
    capi.evaluators, capi.policy_spaces, capi.testing : evaluators, policy spaces, and checks for your own.

    Examples
    --------
    The paper's chain walk, with one evaluation sweep per round and policies with one threshold:

    >>> from capi.domains import ChainWalk
    >>> from capi.evaluators import Exact
    >>> from capi.policy_spaces import Thresholds
    >>> mdp = ChainWalk(variant=2).mdp
    >>> learner = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), discount=0.99, n_iterations=5).fit()
    >>> print(learner.policy_.rules())
    if state <= 11.5: right
    else: left
    >>> learner.predict([[3.0], [100.0]])
    array(['right', 'left'], dtype='<U5')
    >>> mdp.performance_loss(learner.policy_)
    0.0
    """

    def __init__(
        self,
        evaluator: PolicyEvaluator | ByIteration[PolicyEvaluator],
        space: PolicySpace | ByIteration[PolicySpace],
        discount: float,
        n_iterations: int = 20,
        *,
        initial_policy: Policy | None = None,
        random_state: RandomState = None,
        loss: Literal["gap", "zero-one"] = "gap",
        update: Update | None = None,
        patience: int | None = None,
        keep: Literal["last"] | Callable[[Iteration], float] = "last",
    ) -> None:
        self.evaluator = evaluator
        self.space = space
        self.discount = discount
        self.n_iterations = n_iterations
        self.initial_policy = initial_policy
        self.random_state = random_state
        self.loss = loss
        self.update = update
        self.patience = patience
        self.keep = keep

    def loop(self) -> Loop:
        """Return the checked settings of the loop."""
        return Loop(**self.get_params(deep=False))
