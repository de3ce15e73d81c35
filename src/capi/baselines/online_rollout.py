"""Rollouts at decision time: one improvement of a base policy, without learning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters, instance_of
from capi._utils.validation import Bools, Floats, Ints, as_discount, as_states
from capi.evaluators.rollouts import Rollouts
from capi.loss import greedy
from capi.policies import Deterministic
from capi.simulation.engine import check_domain
from capi.types import Domain, Policy


@dataclass(frozen=True, eq=False)
class OnlineRollout(Deterministic):
    """The policy that simulates each action, then a base policy, whenever it has to decide, and takes the best action (Bertsekas and Castanon 1999).

    It is the greedy policy of `Rollouts` in the current states: one round of `CAPI` with all policies, computed where it is needed instead
    of learned. Rollouts without noise are never worse than the base policy.

    Parameters
    ----------
    domain : Domain
        A simulator that can start in any state.
    base : Policy
        The policy to improve on.
    discount : float in [0, 1)
    n_rollouts, horizon : int
        As in `capi.evaluators.Rollouts`.
    random_state : int
        Each state has random numbers of its own, so a decision depends neither on the other states nor on earlier decisions.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.policies import Constant
    >>> chain = ChainWalk(variant=2, success=1.0)
    >>> policy = OnlineRollout(chain, Constant(1, 2), 0.99, horizon=100)
    >>> policy.act(chain.mdp.states[[5, 15]])
    array([1, 0])
    >>> [round(chain.mdp.performance_loss(each), 1) for each in (Constant(1, 2), policy)]
    [48.7, 45.1]
    """

    domain: Domain
    base: Policy
    discount: float
    n_rollouts: int = 1
    horizon: int = 50
    random_state: int = field(default=0, repr=False)

    _constraints: ClassVar[Constraints] = {
        "domain": check_domain,
        "base": instance_of(Policy, "a Policy (act, probabilities, n_actions)"),
        "discount": as_discount,
        "n_rollouts": at_least(1),
        "horizon": at_least(1),
        "random_state": at_least(0),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.domain.n_actions

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action with the largest simulated return in each state (n,)."""
        x = as_states(states)
        distinct, place = np.unique(x, axis=0, return_inverse=True)
        values = np.concatenate([self._values(state) for state in distinct])
        return greedy(values[place.ravel()], allowed)

    def _values(self, state: Floats) -> Floats:
        """Return the simulated return of each action in a state (1, A)."""
        rng = np.random.default_rng([self.random_state, *np.ascontiguousarray(state + 0.0).view(np.uint64).tolist()])
        evaluator = Rollouts(self.domain, self.n_rollouts, self.horizon)
        q = evaluator.evaluate(self.base, None, discount=self.discount, states=state[None, :], rng=rng)
        return q.values(state[None, :])
