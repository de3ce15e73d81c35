r"""Policy search by dynamic programming (Bagnell, Kakade, Ng and Schneider 2003), as a setting of the CAPI loop.

There are T steps to take. Backwards in time, from :math:`Q_T = 0` on,

.. math::
    Q_t &= T^{\pi_{t+1}} Q_{t+1} && \text{(what an action is worth at step t, then } \pi_{t+1}, \dots, \pi_{T-1}\text{)} \\
    \pi_t &= \arg\min_{\pi \in \Pi} \sum_x \mu_t(x) \bigl[\max_a Q_t(x, a) - Q_t(x, \pi(x))\bigr]

which is one sweep of evaluation and one improvement on a sample of :math:`\mu_t`: round k of the loop is step T - 1 - k. The loop's
`update` puts each new policy before the others. With all policies to choose from this is backward induction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters, optional, satisfying
from capi._utils.randomness import RandomState
from capi._utils.validation import Floats
from capi.data.schema import Schema
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._sweeps import makes_sweeps, with_one_sweep
from capi.evaluators.rollouts import Rollouts, RolloutValues
from capi.learning.iteration import Iteration, Loop, States
from capi.learning.learner import Learner
from capi.policies import NonStationary
from capi.types import Policy, PolicyEvaluator, PolicySpace, QFunction

Base: TypeAlias = Callable[[int, np.random.Generator], States]  # (t, rng) -> a sample of mu_t


class PSDP(Learner):
    r"""Policy search by dynamic programming: one policy for each of T steps, the last one found first.

    If :math:`\mu_t` are the states that a policy of the space visits at step t, and Q is exact, the result is at least as good as that
    policy from its starts: each step loses nothing against it in the states where it would be.

    Parameters
    ----------
    evaluator : Exact, FittedQ, KernelFittedQ, or Rollouts
        Makes one sweep a round. Rollouts start at step t and last until the end.
    space : PolicySpace
        Where the policy of each step is looked for.
    discount : float in [0, 1)
        What the reward of the next step counts. Over T steps 1 would make sense, too; the loop does not take it, and
        1 - 1e-9 is the same in practice.
    horizon : int
        T, the number of steps, and of rounds.
    base : function (t, rng) -> states, or (states, weights[, allowed]), optional
        A sample of :math:`\mu_t`, the states in which a good policy is at step t. By default it is the same for all steps: the
        ``states`` given to ``fit``, so those of the batch or all of the model.
    random_state : int, Generator or None
        The same int gives the same policy.

    Notes
    -----
    ``policy_`` is a `capi.policies.NonStationary`: ``policy_.at(t)`` decides at step t, and the last step's policy afterwards;
    ``predict`` is about step 0. All T policies stay in memory, with Q behind each of them if the space is `Unrestricted`.

    References
    ----------
    .. [1] J. A. Bagnell, S. Kakade, A. Y. Ng, J. Schneider, "Policy search by dynamic programming", NIPS 2003.

    Examples
    --------
    Far from the end it pays to walk to the reward; near the end it is too late, all actions are alike, and the first is taken:

    >>> from capi.domains import ChainWalk
    >>> from capi.evaluators import Exact
    >>> from capi.policy_spaces import Thresholds
    >>> mdp = ChainWalk(variant=2).mdp
    >>> learner = PSDP(Exact(mdp), Thresholds(), discount=0.99, horizon=30).fit()
    >>> print(learner.policy_.at(0).rules())
    if state <= 11.5: right
    else: left
    >>> print(learner.policy_.at(29).rules())
    always left
    """

    _constraints: ClassVar[Constraints] = {
        "horizon": at_least(1),
        "base": optional(satisfying(callable, "be a function (t, rng)", advice="Pass fixed states to fit.")),
    }

    def __init__(
        self,
        evaluator: PolicyEvaluator,
        space: PolicySpace,
        discount: float,
        horizon: int,
        *,
        base: Base | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.evaluator = evaluator
        self.space = space
        self.discount = discount
        self.horizon = horizon
        self.base = base
        self.random_state = random_state

    def loop(self) -> Loop:
        """Return one sweep a round, and an update that puts each policy before those of later steps."""
        check_parameters(self)
        return Loop(
            _one_step(self.evaluator),
            self.space,
            self.discount,
            self.horizon,
            random_state=self.random_state,
            update=_before_the_others,
        )

    def iterate(
        self, transitions: Any = None, *, states: Any = None, after: Iteration | None = None
    ) -> Iterator[Iteration]:
        """Yield each round, from the last step to the first; its policy is that of the steps from there on."""
        if self.base is not None and states is not None:
            raise InvalidInputError("give base or states, not both: base says where each step is improved.")
        sample = states if self.base is None else partial(_base_states, self.base, self.horizon)
        return super().iterate(transitions, states=sample, after=after)


def _base_states(base: Base, horizon: int, k: int, policy: Policy, rng: np.random.Generator) -> States:  # noqa: ARG001
    return base(horizon - 1 - k, rng)


def _before_the_others(old: Policy, new: Policy, *, q: QFunction, states: Floats, k: int) -> NonStationary:  # noqa: ARG001
    """Return the new policy for one step, then the old ones; what the loop starts with decides nothing."""
    return NonStationary((new, *_later(old)))


def _later(policy: Policy) -> tuple[Policy, ...]:
    """Return the policies that have been found so far, in the order of time."""
    return tuple(policy.policies) if isinstance(policy, NonStationary) else ()


def _one_step(evaluator: Any) -> PolicyEvaluator:
    """Return the evaluator of Q_t from the policies of later steps."""
    if isinstance(evaluator, Rollouts):
        return _ToTheEnd(evaluator)
    if makes_sweeps(evaluator):
        one_sweep: PolicyEvaluator = with_one_sweep(evaluator)
        return one_sweep
    raise InvalidInputError(
        f"evaluator must make sweeps of the Bellman operator (Exact, FittedQ, KernelFittedQ) or be Rollouts; got {evaluator!r}. "
        "The value of a step is one sweep from that of the next, not a fixed point."
    )


@dataclass(frozen=True, eq=False)
class _ToTheEnd:
    """Rollouts of each action, then of the policies of all later steps."""

    rollouts: Rollouts

    @property
    def n_actions(self) -> int:
        return self.rollouts.n_actions

    @property
    def schema(self) -> Schema:
        return self.rollouts.schema

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None = None,
        *,
        discount: float,
        states: Floats | None = None,
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> RolloutValues:
        later = _later(policy)
        now = NonStationary((policy, *later))  # the rollouts' own first action takes the place of step 0
        whole = replace(self.rollouts, horizon=1 + len(later))
        return whole.evaluate(now, transitions, discount=discount, states=states, previous=previous, rng=rng)
