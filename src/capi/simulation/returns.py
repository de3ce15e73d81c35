"""The performance of a policy in a simulator: the returns of many episodes, and the uncertainty of their mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.randomness import RandomState, numbered_rng, seed_sequence
from capi._utils.statistics import bootstrap_interval, standard_error
from capi._utils.validation import Bools, Floats, Ints, as_discount
from capi.errors import InvalidInputError
from capi.simulation import gymnasium
from capi.simulation.engine import check_domain_fits, check_is_policy, outcome, policy_first, start_states, steps
from capi.types import Policy

STREAM = 1


@dataclass(frozen=True, eq=False)
class Performance:
    """The results of n episodes.

    A short episode is not bad in itself: ``lengths`` count steps until the step limit or the end of the process.
    """

    returns: Floats = field(repr=False)  # (n,) discounted
    undiscounted: Floats = field(repr=False)  # (n,)
    lengths: Ints = field(repr=False)  # (n,)
    terminated: Bools = field(repr=False)  # (n,) ended by the process
    discount: float

    @property
    def mean(self) -> float:
        """Return the mean discounted return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Return the standard error of `mean`."""
        return standard_error(self.returns)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return a bootstrap interval for the mean discounted return."""
        return bootstrap_interval(self.returns, level)

    def __str__(self) -> str:
        if len(self.returns) == 1:
            return f"return {self.mean:.4g} in one episode of {self.lengths[0]} steps"
        low, high = self.interval()
        return (
            f"mean return {self.mean:.4g} (s.e. {self.standard_error:.2g}, 95 % interval {low:.4g} to {high:.4g}) over "
            f"{len(self.returns)} episodes of {self.lengths.mean():.4g} steps"
        )


@policy_first
def performance(
    policy: Policy,
    domain: Any,
    *,
    n_episodes: int | None = None,
    starts: ArrayLike | None = None,
    max_steps: int,
    discount: float | None = None,
    random_state: RandomState = 0,
) -> Performance:
    """Run ``policy`` in ``domain`` and return the results of its episodes.

    Parameters
    ----------
    policy : Policy
        The policy to measure.
    domain : Domain, or a Gymnasium environment with discrete actions
        All episodes of a `Domain` run at once, those of an environment one after another.
    n_episodes : int, optional
        Number of episodes, from start states that the domain draws.
    starts : array of shape (n, d), optional
        Start states to use instead, one episode each; only for a `Domain`.
    max_steps : int
        Maximum length of an episode; longer ones are cut off.
    discount : float in [0, 1), optional
        Discount factor; by default the domain's own.
    random_state : int, Generator or None
        The same int gives the same episodes.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.policies import Constant
    >>> result = performance(Constant(0, 2), ChainWalk(), n_episodes=2000, max_steps=1000)
    >>> exact = ChainWalk().mdp.action_values(Constant(0, 2))[:, 0].mean()
    >>> bool(abs(result.mean - exact) < 4 * result.standard_error)
    True
    """
    check_is_policy(policy)
    if isinstance(random_state, np.random.Generator):
        rng = random_state
    else:  # a separate stream, so the same seed does not test on the starts that it used for sampling
        rng = numbered_rng(seed_sequence(random_state), STREAM)
    own = getattr(domain, "discount", None) if discount is None else discount
    if own is None:
        raise InvalidInputError(f"discount must be given: {type(domain).__name__} does not define one.")
    gamma = as_discount(own)
    if gymnasium.is_environment(domain):
        if starts is not None or n_episodes is None:
            raise InvalidInputError(
                "a Gymnasium environment chooses its own start states: pass n_episodes, and omit starts."
            )
        first, running = gymnasium.run(policy, domain, n_episodes, max_steps, rng)
    else:
        check_domain_fits(policy, domain)
        first = start_states(domain, starts, n_episodes, rng)
        running = steps(policy, domain, first, max_steps, rng)
    found = outcome(running, first, gamma)
    return Performance(found.discounted, found.undiscounted, found.lengths, found.terminated, gamma)
