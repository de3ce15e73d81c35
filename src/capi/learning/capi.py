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

    From :math:`\pi_0` on, :math:`\hat Q^{\pi_k} \leftarrow` ``evaluator.evaluate``, and :math:`\pi_{k+1}
    \leftarrow \arg\min_{\pi \in \Pi} \hat L_n^{\pi_k}(\pi)` by ``space.improve``: the policy of the space that
    loses the least value on the sampled states.

    Parameters
    ----------
    evaluator : PolicyEvaluator, or function (k, policy, rng) -> PolicyEvaluator
    space : PolicySpace, or function (k, policy, rng) -> PolicySpace
    discount : float in [0, 1)
    n_iterations : int
        K, the number of rounds.
    initial_policy : Policy, optional
        :math:`\pi_0`; by default action 0 everywhere (or the lowest allowed action).
    random_state : int, Generator or None
        The same int gives the same policy, bit for bit. Round k draws from a seed of its own.
    loss : "gap" or "zero-one"
        What the space minimises: the action-gap-weighted loss, or the plain share of states whose action
        is not greedy, for comparison.
    update : function (old, new, *, q, states, k) -> Policy or None, optional
        How the new policy enters. By default it replaces the old one. None ends the loop with the old one.
    patience : int, optional
        Stop when no decision on the sample has changed for this many rounds in a row. One is enough
        when each evaluation is complete; with one sweep a round, Q may still be moving under a policy
        that does not.
    keep : "last", or function of an `Iteration`
        Which policy is returned. Restricted spaces make the iterates oscillate; with a score function
        (larger is better) the best iterate is kept, the first among equals. The score is in ``history_``.

    Attributes
    ----------
    policy_ : Policy
        With the names and labels of the batch (``schema``) and its origin (``training``).
    q_ : QFunction
        The action values from which ``policy_`` was chosen.
    history_ : list of dict
        k, loss, changed, value and seconds of every round; ``pandas.DataFrame(learner.history_)`` is a table.
    schema_ : Schema or None
        The words of the batch, or without one those of the evaluator's model.
    roles_ : dict or None
        The roles of the table's columns, if ``fit`` was given a table.

    See Also
    --------
    capi.evaluators, capi.policy_spaces, capi.testing : the parts, and checks for your own.

    Examples
    --------
    The paper's chain walk, one sweep of evaluation a round, policies with one cut:

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
        """Return what the loop runs with, checked."""
        return Loop(**self.get_params(deep=False))
