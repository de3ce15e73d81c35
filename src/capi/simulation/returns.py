"""How good a policy is in a simulator: many episodes, with the uncertainty of their mean."""

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
    """What n episodes came to. Shorter is not worse in itself: ``lengths`` end at the limit or where the process ends."""

    returns: Floats = field(repr=False)  # (n,) discounted
    undiscounted: Floats = field(repr=False)  # (n,)
    lengths: Ints = field(repr=False)  # (n,)
    terminated: Bools = field(repr=False)  # (n,) ended by themselves
    discount: float

    @property
    def mean(self) -> float:
        """Mean discounted return."""
        return float(self.returns.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of `mean`."""
        return standard_error(self.returns)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return a bootstrap interval of the mean discounted return."""
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
    """Run ``policy`` in ``domain`` and return what its episodes came to.

    Parameters
    ----------
    policy : Policy
    domain : Domain, or a Gymnasium environment with discrete actions
        All episodes of a `Domain` run at once, those of an environment one after the other.
    n_episodes : int, optional
        From starts that the domain draws.
    starts : array of shape (n, d), optional
        An episode from each of these states, instead; a `Domain` only.
    max_steps : int
        An episode that has not ended then is cut off.
    discount : float in [0, 1), optional
        The domain's own unless given.
    random_state : int, Generator or None

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
    else:  # a stream of its own, so that the same seed does not test on the starts that it sampled
        rng = numbered_rng(seed_sequence(random_state), STREAM)
    own = getattr(domain, "discount", None) if discount is None else discount
    if own is None:
        raise InvalidInputError(f"discount must be given: {type(domain).__name__} has none of its own.")
    gamma = as_discount(own)
    if gymnasium.is_environment(domain):
        if starts is not None or n_episodes is None:
            raise InvalidInputError("a Gymnasium environment starts where it likes: give n_episodes, and no starts.")
        first, running = gymnasium.run(policy, domain, n_episodes, max_steps, rng)
    else:
        check_domain_fits(policy, domain)
        first = start_states(domain, starts, n_episodes, rng)
        running = steps(policy, domain, first, max_steps, rng)
    found = outcome(running, first, gamma)
    return Performance(found.discounted, found.undiscounted, found.lengths, found.terminated, gamma)
