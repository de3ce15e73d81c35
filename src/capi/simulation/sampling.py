"""Sampling of transitions from a simulator: episodes under a behaviour policy, and steps from independent states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.randomness import RandomState, as_generator
from capi._utils.validation import Bools, Floats, Ints, as_states
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.policies import Uniform
from capi.simulation import gymnasium
from capi.simulation.engine import Step, check_domain_fits, masks_of, policy_first, start_states, steps
from capi.types import Domain, Policy


@policy_first
def sample_episodes(
    policy: Policy | None,
    domain: Any,
    *,
    n_episodes: int | None = None,
    starts: ArrayLike | None = None,
    max_steps: int,
    random_state: RandomState = None,
) -> Transitions:
    """Return the transitions of episodes under a behaviour policy, with the probability of each action.

    Parameters
    ----------
    policy : Policy or None
        The behaviour policy; None is uniformly random. `capi.policies.EpsilonGreedy` adds exploration to a policy.
    domain : Domain, or a Gymnasium environment with discrete actions
        The simulator.
    n_episodes : int, optional
        Number of episodes, from start states that the domain draws.
    starts : array of shape (n, d), optional
        Start states to use instead, one episode each; only for a `Domain`.
    max_steps : int
        Maximum length of an episode; longer ones are cut off, and their last row is not terminated.
    random_state : int, Generator or None
        The same int gives the same transitions.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> print(sample_episodes(None, ChainWalk(), n_episodes=3, max_steps=50, random_state=0))
    Transitions: 150 rows, 1 feature, 2 actions
      features    state
      actions     left 68 (45.3 %), right 82 (54.7 %)
      episodes    3, each of 50 rows
      rewards     0 to 0.1, mean 0.02
      terminated  0 rows (0.0 %)
      also        propensities
    """
    rng = as_generator(random_state)
    if gymnasium.is_environment(domain):
        if starts is not None or n_episodes is None:
            raise InvalidInputError(
                "a Gymnasium environment chooses its own start states: pass n_episodes, and omit starts."
            )
        names = gymnasium.words_of(domain)
        behaviour = policy if policy is not None else Uniform(len(names["action_labels"]))
        _, running = gymnasium.run(behaviour, domain, n_episodes, max_steps, rng)
        return _collected(running, names)
    check_domain_fits(policy, domain)
    first = start_states(domain, starts, n_episodes, rng)
    behaviour = policy if policy is not None else Uniform(domain.n_actions)
    return _collected(steps(behaviour, domain, first, max_steps, rng), _names_and_labels(domain), domain)


@policy_first
def sample_steps(
    policy: Policy | None,
    domain: Domain,
    states: ArrayLike,
    *,
    random_state: RandomState = None,
) -> Transitions:
    """Return one transition from each of ``states`` (n, d), whatever their source; the rows do not form episodes.

    ``policy`` chooses the actions; None is uniformly random.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> chain = ChainWalk()
    >>> states = chain.initial(5, np.random.default_rng(0))
    >>> len(sample_steps(None, chain, states, random_state=0))
    5
    """
    check_domain_fits(policy, domain)
    rng = as_generator(random_state)
    x = as_states(states, n_features=len(domain.feature_names), allow_nan=False)
    behaviour = policy if policy is not None else Uniform(domain.n_actions)
    return _collected(steps(behaviour, domain, x, 1, rng), _names_and_labels(domain), domain, are_episodes=False)


def _names_and_labels(domain: Domain) -> dict[str, Any]:
    return {"feature_names": domain.feature_names, "action_labels": domain.action_labels}


def _collected(
    running: Iterable[Step], names: dict[str, Any], domain: Domain | None = None, *, are_episodes: bool = True
) -> Transitions:
    """Return all steps as a batch, sorted by episode."""
    taken = list(running)
    episodes = np.concatenate([step.running for step in taken])
    order = np.argsort(episodes, kind="stable")  # the steps are already in order of time

    def column(name: str) -> Any:
        return np.concatenate([getattr(step, name) for step in taken])[order]

    next_states: Floats = column("next_states")
    terminated: Bools = column("terminated")
    number: Ints | None = episodes[order] if are_episodes else None
    masked = taken[0].allowed is not None
    return Transitions(
        column("states"),
        column("actions"),
        column("rewards"),
        next_states,
        terminated,
        episodes=number,
        propensities=column("propensities"),
        allowed=column("allowed") if masked else None,
        next_allowed=(column("next_allowed") if domain is None else _next_masks(domain, next_states, terminated))
        if masked
        else None,
        **names,
    )


def _next_masks(domain: Domain, next_states: Floats, terminated: Bools) -> Bools:
    """Return the actions allowed in the next states (n, A); none where the process terminated."""
    allowed = np.zeros((len(next_states), domain.n_actions), dtype=bool)
    if not terminated.all():
        allowed[~terminated] = masks_of(domain, next_states[~terminated])
    return allowed
