"""`CAPI`: classification-based approximate policy iteration with the evaluator and the policy space of your choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from capi._utils.randomness import RandomState
from capi.learning.iteration import (
    ByIteration,
    Keep,
    Loop,
    Update,
    Weighting,
)
from capi.learning.learner import Learner
from capi.types import Policy, PolicyEvaluator, PolicySpace

if TYPE_CHECKING:
    from capi.learning.support import Support


class CAPI(Learner):
    r"""Classification-based approximate policy iteration (the paper's Algorithm 1).

    Starting from :math:`\pi_0`, each round estimates :math:`\hat Q^{\pi_k}` with ``evaluator.evaluate`` and sets
    :math:`\pi_{k+1} \leftarrow \arg\min_{\pi \in \Pi} \hat L_n^{\pi_k}(\pi)` with ``space.improve``: the policy of the
    space that loses the least value on the sampled states.

    Parameters
    ----------
    evaluator : PolicyEvaluator, or function (k, policy, rng) -> PolicyEvaluator, optional
        Estimates Q of the current policy. By default `FittedQ`, with as many sweeps per round as the discount and the
        episodes need.
    space : PolicySpace, or function (k, policy, rng) -> PolicySpace, optional
        The policies to choose from. By default `OptimalTrees` of depth 3, whose searches are cut short after some seconds, earlier
        in the first half of the rounds.
    discount : float in [0, 1)
        Discount factor of a step or, for a batch with elapsed times (``discount_per``), of a unit of time.
    n_iterations : int, optional
        Number of rounds, K. By default enough for the evaluator's sweeps to see as far ahead as the discount and the
        episodes need; at discount 0 one round.
    initial_policy : Policy, optional
        :math:`\pi_0`. By default that of fitted Q iteration if states count by their visits (``state_weights``), otherwise action 0 everywhere (or the
        lowest allowed action). In loops of at least ten rounds that keep the best policy by simulated episodes, each of the first three
        rounds takes one step from what was done; the next one begins anew.
    random_state : int, Generator or None
        The same int gives the same policy, bit for bit. Each round has its own seed.
    loss : "gap" or "zero-one"
        The loss that the space minimises: weighted by the action gap, or, for comparison, the fraction of states whose
        action is not greedy.
    update : function, optional
        Combines the old and the new policy: ``update(old, new, *, q, states, k)`` returns a policy or None. By default the new policy replaces the old one. If the function returns
        None, the loop ends with the old policy.
    patience : int, optional
        Stop after this many consecutive rounds without a changed decision on the sample. One is enough if each
        evaluation is complete; with one sweep per round, Q may still change while the policy does not. A policy that ``accept`` rejects
        changes nothing.
    until_settled : bool, optional
        Stop after three rounds in which neither decisions nor values move. By default only if ``n_iterations`` is left open.
    keep : "last", "best", or function of an `Iteration`, optional
        Which policy to keep. In restricted spaces the policies oscillate between rounds, and some are bad. "best" compares
        those from the log and at most twenty, spread over the rounds, in the same simulated episodes, which are put together from the steps of the batch
        (`capi.learning.episode_scores`), the best five of them in four worlds, and keeps the best; its score is not evidence. Where states repeat, as in finite
        processes, those of the later half are compared in one fixed model of the batch (`capi.evaluators.scoring_models`). With a function (larger is better), all rounds are scored. By default "best" if the
        evaluator is `FittedQ` with its own trees and the batch is fixed, otherwise "last".
    state_weights : "batch", "occupancy" or "mixture", optional
        The states on which the policy is improved. "batch": the states of the log, all alike. "occupancy": those in which
        the current policy decides, as often as it does so, in the model that the batch and the trees of Q are, or exactly
        with `Exact`. "mixture": the occupancies of all rounds, and as much of all states alike as is needed for enough effective
        rows. By default "mixture" where "best" is the default of ``keep``, otherwise "batch". See ``docs/states.md``.
    accept : "any" or "improving"
        "improving" takes a new policy, after the first round, only if its score in a fixed model of the batch rises. Otherwise the loop continues
        with the old one, and with the mixture it adds the states that the rejected policy visits. With `Exact` scores are exact values.
    support : Support, optional
        Restricts evaluation, improvement and the learned policy to actions that the log takes often enough in similar states. By default
        only actions that the log hardly ever takes are excluded.

    Attributes
    ----------
    policy_ : Policy
        The learned policy, with the names and labels of the batch (``schema``) and its origin (``training``).
    q_ : QFunction
        The action values from which ``policy_`` was chosen. If ``keep="best"`` keeps an earlier round, those of
        ``policy_`` itself.
    history_ : list of dict
        k, loss, changed, value and seconds of every round, effective_rows with weights by occupancy, and score where there is one; ``pandas.DataFrame(learner.history_)`` gives a table.
    schema_ : Schema or None
        Feature names and action labels of the batch or, without a batch, of the evaluator's model.
    support_ : FittedSupport or None
        The model of what was done, with ``support``.
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
        evaluator: PolicyEvaluator | ByIteration[PolicyEvaluator] | None = None,
        space: PolicySpace | ByIteration[PolicySpace] | None = None,
        discount: float = 0.99,
        n_iterations: int | None = None,
        *,
        initial_policy: Policy | None = None,
        random_state: RandomState = None,
        loss: Literal["gap", "zero-one"] = "gap",
        update: Update | None = None,
        patience: int | None = None,
        keep: Keep | None = None,
        state_weights: Weighting | None = None,
        accept: Literal["any", "improving"] = "any",
        support: Support | None = None,
        until_settled: bool | None = None,
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
        self.state_weights = state_weights
        self.accept = accept
        self.support = support
        self.until_settled = until_settled

    def loop(self) -> Loop:
        """Return the checked settings of the loop."""
        return Loop(**self.get_params(deep=False))
