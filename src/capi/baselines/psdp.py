r"""Policy search by dynamic programming (Bagnell, Kakade, Ng and Schneider 2003), as a setting of the CAPI loop.

The horizon has T steps. Backwards in time, starting from :math:`Q_T = 0`,

.. math::
    Q_t &= T^{\pi_{t+1}} Q_{t+1} && \text{(value of an action at step t, followed by } \pi_{t+1}, \dots, \pi_{T-1}\text{)} \\
    \pi_t &= \arg\min_{\pi \in \Pi} \sum_x \mu_t(x) \bigl[\max_a Q_t(x, a) - Q_t(x, \pi(x))\bigr]

which is one evaluation sweep and one improvement on a sample of :math:`\mu_t`: round k of the loop is step T - 1 - k. The loop's
``update`` puts each new policy before the others. In the space of all policies this is backward induction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
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
    r"""Policy search by dynamic programming: one policy for each of T steps, found backwards from the last step.

    If :math:`\mu_t` is the distribution of the states that a policy of the space visits at step t, and Q is exact, the result is at
    least as good as that policy from its start states: no step loses value in the states that this policy would visit.

    Parameters
    ----------
    evaluator : Exact, FittedQ, BoostedQ, KernelFittedQ, LSTDQ, or Rollouts
        Makes one sweep per round, whatever its ``n_sweeps``. An `LSTDQ` with ``projection_ridge`` or `RKHS` makes no sweeps and is
        refused. Rollouts start at step t and run until the end.
    space : PolicySpace
        The policies to choose from at each step.
    discount : float in [0, 1)
        Discount factor. With T steps 1 would make sense, too, but the loop does not accept it; 1 - 1e-9 is the same in
        practice.
    horizon : int
        Number of steps and of rounds, T.
    base : function (t, rng) -> states, or (states, weights[, allowed]), optional
        Draws a sample of :math:`\mu_t`, the states that a good policy visits at step t. By default the sample is the same for
        all steps: the ``states`` given to ``fit``, or those of the batch, or all states of the model.
    random_state : int, Generator or None
        The same int gives the same policy.

    Notes
    -----
    ``policy_`` is a `capi.policies.NonStationary`: ``policy_.at(t)`` is the policy of step t, and after the last step that of the
    last step; ``predict`` returns the actions at step 0. All T policies stay in memory, each with its Q if the space is
    `Unrestricted`.

    References
    ----------
    .. [1] J. A. Bagnell, S. Kakade, A. Y. Ng, J. Schneider, "Policy search by dynamic programming", NIPS 2003.

    Examples
    --------
    Far from the end it pays to walk to the reward; near the end it is too late, all actions are equal, and the first is chosen:

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
        """Return the settings of the loop: one sweep per round, and an update that puts each policy before later ones."""
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
        self, transitions: Any = None, *, states: Any = None, starts: Any = None, after: Iteration | None = None
    ) -> Iterator[Iteration]:
        """Yield each round, from the last step to the first; its policy covers this and all later steps."""
        if self.base is not None and states is not None:
            raise InvalidInputError(
                "base and states must not both be given: base already draws the states of each step. Omit one of them."
            )
        sample = states if self.base is None else partial(_base_states, self.base, self.horizon)
        return super().iterate(transitions, states=sample, starts=starts, after=after)


def _base_states(base: Base, horizon: int, k: int, policy: Policy, rng: np.random.Generator) -> States:  # noqa: ARG001
    return base(horizon - 1 - k, rng)


def _before_the_others(old: Policy, new: Policy, *, q: QFunction, states: Floats, k: int) -> NonStationary:  # noqa: ARG001
    """Return the new policy for one step followed by those found before; the loop's initial policy is not used."""
    return NonStationary((new, *_later(old)))


def _later(policy: Policy) -> tuple[Policy, ...]:
    """Return the policies found so far, in order of time."""
    return tuple(policy.policies) if isinstance(policy, NonStationary) else ()


def _one_step(evaluator: Any) -> PolicyEvaluator:
    """Return an evaluator of Q_t, given the policies of later steps."""
    if isinstance(evaluator, Rollouts):
        return _ToTheEnd(evaluator)
    if makes_sweeps(evaluator):
        with suppress(InvalidInputError):  # its other settings may need a fixed point
            one_sweep: PolicyEvaluator = with_one_sweep(evaluator)
            return one_sweep
    raise InvalidInputError(
        "evaluator must make sweeps of the Bellman operator (Exact, FittedQ, BoostedQ, KernelFittedQ, LSTDQ without projection_ridge and "
        f"RKHS) or be Rollouts; got {evaluator!r}. The values of a step are one sweep applied to those of the next step, not a fixed point."
    )


@dataclass(frozen=True, eq=False)
class _ToTheEnd:
    """Rollouts that take each action first and then follow the policies of all later steps."""

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
        now = NonStationary((policy, *later))  # the rollouts' first action replaces step 0
        whole = replace(self.rollouts, horizon=1 + len(later))
        return whole.evaluate(now, transitions, discount=discount, states=states, previous=previous, rng=rng)
