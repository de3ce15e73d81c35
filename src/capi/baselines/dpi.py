"""Direct policy iteration, with and without a critic, as settings of the CAPI loop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters
from capi._utils.randomness import RandomState
from capi._utils.validation import as_discount
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators.rollouts import Rollouts, RolloutsWithCritic
from capi.learning.iteration import Iteration, Loop
from capi.learning.learner import Learner
from capi.policies import Uniform
from capi.simulation.engine import drawn_starts, masks_of
from capi.simulation.sampling import sample_episodes
from capi.types import Domain, Policy, PolicyEvaluator, PolicySpace, StateSample


class DPI(Learner):
    """Direct policy iteration (Lazaric, Ghavamzadeh and Munos 2010): rollouts, then the best policy of a space.

    Parameters
    ----------
    domain : Domain
        A simulator that can start in any state.
    space : PolicySpace
        The policies to choose from.
    discount : float in [0, 1), optional
        Discount factor; by default the domain's own.
    n_iterations : int
        Number of rounds.
    n_states : int
        Number of states from which rollouts start. They are redrawn from ``domain.initial`` in each round unless ``fit`` is
        given ``states``.
    n_rollouts, horizon : int
        As in `capi.evaluators.Rollouts`.
    initial_policy : Policy, optional
        Uniformly random by default: rollouts of a constant action reveal little about where the other action is better.
    random_state : int, Generator or None
        The same int gives the same policy.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.policy_spaces import Thresholds
    >>> learner = DPI(ChainWalk(variant=2), Thresholds(), n_states=400, horizon=100, random_state=0).fit()
    >>> len(learner.history_), learner.history_[0]["n_transitions"]
    (5, 80000)
    """

    _constraints: ClassVar[Constraints] = {"n_states": at_least(1)}

    def __init__(
        self,
        domain: Domain,
        space: PolicySpace,
        discount: float | None = None,
        n_iterations: int = 5,
        *,
        n_states: int = 1000,
        n_rollouts: int = 1,
        horizon: int = 50,
        initial_policy: Policy | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.domain = domain
        self.space = space
        self.discount = discount
        self.n_iterations = n_iterations
        self.n_states = n_states
        self.n_rollouts = n_rollouts
        self.horizon = horizon
        self.initial_policy = initial_policy
        self.random_state = random_state

    def evaluator(self) -> PolicyEvaluator:
        """Return the evaluator, rollouts."""
        return Rollouts(self.domain, self.n_rollouts, self.horizon)

    def loop(self) -> Loop:
        """Return the settings of the loop: rollouts and the space."""
        check_parameters(self)
        discount = _discount_of(self.domain) if self.discount is None else self.discount
        return Loop(
            self.evaluator(),
            self.space,
            discount,
            self.n_iterations,
            initial_policy=Uniform(self.domain.n_actions) if self.initial_policy is None else self.initial_policy,
            random_state=self.random_state,
        )

    def iterate(
        self, transitions: Any = None, *, states: Any = None, starts: Any = None, after: Iteration | None = None
    ) -> Iterator[Iteration]:
        """Yield each round; by default ``states`` are drawn from the domain."""
        if transitions is not None:
            raise InvalidInputError(
                "transitions must be None: DPI learns by simulation. Omit them; states may be passed instead."
            )
        return super().iterate(
            states=partial(_draw, self.domain, self.n_states) if states is None else states, starts=starts, after=after
        )


class DPICritic(DPI):
    """DPI whose rollouts end with a critic's value estimate (Gabillon et al. 2011): shorter rollouts, less variance.

    Parameters
    ----------
    domain : Domain
        As in `DPI`.
    space : PolicySpace
        As in `DPI`.
    critic : PolicyEvaluator
        Refitted in each round, to the batch given to ``fit`` or, without one, to ``n_episodes`` episodes of the round's
        policy.
    discount : float in [0, 1), optional
        As in `DPI`.
    n_iterations, n_states, n_rollouts, horizon : int
        As in `DPI`; the default horizon is shorter.
    n_episodes, max_steps : int
        Number and maximum length of the episodes in the critic's own batch.
    initial_policy : Policy, optional
        As in `DPI`.
    random_state : int, Generator or None
        As in `DPI`.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.evaluators import Exact
    >>> from capi.policy_spaces import Thresholds
    >>> chain = ChainWalk(variant=2)
    >>> DPICritic(chain, Thresholds(), Exact(chain.mdp), n_states=400, horizon=5, random_state=0).fit().history_[-1]["loss"] < 1
    True
    """

    def __init__(
        self,
        domain: Domain,
        space: PolicySpace,
        critic: PolicyEvaluator,
        discount: float | None = None,
        n_iterations: int = 5,
        *,
        n_states: int = 1000,
        n_rollouts: int = 1,
        horizon: int = 10,
        n_episodes: int = 20,
        max_steps: int = 100,
        initial_policy: Policy | None = None,
        random_state: RandomState = None,
    ) -> None:
        super().__init__(
            domain,
            space,
            discount,
            n_iterations,
            n_states=n_states,
            n_rollouts=n_rollouts,
            horizon=horizon,
            initial_policy=initial_policy,
            random_state=random_state,
        )
        self.critic = critic
        self.n_episodes = n_episodes
        self.max_steps = max_steps

    def evaluator(self) -> PolicyEvaluator:
        """Return the evaluator, rollouts with a critic."""
        return RolloutsWithCritic(self.domain, self.critic, self.n_rollouts, self.horizon)

    def iterate(
        self, transitions: Any = None, *, states: Any = None, starts: Any = None, after: Iteration | None = None
    ) -> Iterator[Iteration]:
        """Yield each round; by default the states and the critic's batch are drawn from the domain."""
        return Learner.iterate(
            self,
            self._episodes if transitions is None else transitions,
            states=partial(_draw, self.domain, self.n_states) if states is None else states,
            starts=starts,
            after=after,
        )

    def _episodes(self, k: int, policy: Policy, rng: np.random.Generator) -> Transitions:  # noqa: ARG002
        return sample_episodes(
            policy, self.domain, n_episodes=self.n_episodes, max_steps=self.max_steps, random_state=rng
        )


def _draw(domain: Domain, n: int, k: int, policy: Policy, rng: np.random.Generator) -> StateSample:  # noqa: ARG001
    states = drawn_starts(domain, n, rng)
    return StateSample(states, None, masks_of(domain, states))


def _discount_of(domain: Any) -> float:
    if getattr(domain, "discount", None) is None:
        raise InvalidInputError(f"discount must be given: {type(domain).__name__} does not define one.")
    return as_discount(domain.discount)
