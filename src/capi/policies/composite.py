"""Policies that combine other policies: with exploration, as a mixture, or in sequence over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, instance_of
from capi._utils.validation import Bools, Floats, Ints, as_distribution, as_int, as_share
from capi.errors import InvalidInputError
from capi.policies.base import Described, described
from capi.policies.decisions import in_blocks
from capi.policies.simple import Uniform
from capi.types import Policy


@dataclass(frozen=True, eq=False)
class EpsilonGreedy:
    """A policy that, with probability ``epsilon``, takes a random (allowed) action instead of the given policy's, to explore.

    Examples
    --------
    >>> from capi.policies import Constant
    >>> EpsilonGreedy(Constant(0, n_actions=2), 0.2).probabilities(np.zeros((1, 1)))
    array([[0.9, 0.1]])
    """

    policy: Policy
    epsilon: float

    _constraints: ClassVar[Constraints] = {
        "policy": instance_of(Policy, "a Policy (act, probabilities, n_actions)"),
        "epsilon": as_share,
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def at(self, t: int) -> EpsilonGreedy:
        """Return the policy of step ``t``: the given policy may change with time."""
        return EpsilonGreedy(self.policy.at(t), self.epsilon) if hasattr(self.policy, "at") else self

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.policy.n_actions

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the most probable action, the lowest among equals (n,)."""
        return self.probabilities(states, allowed).argmax(axis=1)

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the mixture of the policy and the uniform distribution (n, A)."""
        exploring = Uniform(self.n_actions).probabilities(states, allowed)
        return (1 - self.epsilon) * self.policy.probabilities(states, allowed) + self.epsilon * exploring


@dataclass(frozen=True, eq=False)
class Mixture(Described):
    r"""A policy that draws a member at each step and follows it: :math:`\pi(a|x) = \sum_i w_i \pi_i(a|x)`.

    Nested mixtures are flattened, so that a mixture of mixtures is as fast as a mixture of their members.

    Parameters
    ----------
    policies : sequence of Policy
        The members, over the same actions.
    weights : array of shape (m,)
        The probability of each member; they sum to one.
    min_weight : float in [0, 1]
        Members with a smaller weight are dropped, and the other weights rescaled. By default none is dropped.

    Examples
    --------
    >>> from capi.policies import Constant
    >>> half = Mixture([Constant(0, n_actions=2), Constant(1, n_actions=2)], [0.5, 0.5])
    >>> mixture = Mixture([half, Constant(1, n_actions=2)], [0.8, 0.2])
    >>> mixture.weights
    array([0.4, 0.4, 0.2])
    >>> mixture.probabilities(np.zeros((1, 1))), mixture.act(np.zeros((1, 1)))
    (array([[0.4, 0.6]]), array([1]))
    """

    policies: Sequence[Policy]
    weights: Floats  # (m,)
    min_weight: float = 0.0

    _constraints: ClassVar[Constraints] = {"min_weight": as_share}

    def __post_init__(self) -> None:
        check_parameters(self)
        given = _members(self.policies, "policies")
        outer = as_distribution(self.weights, "weights", len(given))
        members: list[Policy] = []
        shares: list[float] = []
        for policy, weight in zip(given, outer, strict=True):
            nested = policy if isinstance(policy, Mixture) else None
            members += [policy] if nested is None else nested.policies
            shares += [weight] if nested is None else list(weight * nested.weights)
        kept = np.array(shares) >= self.min_weight
        if not kept.any():
            raise InvalidInputError(f"min_weight must leave a member; the largest weight is {max(shares):.4g}.")
        weights = np.array(shares)[kept]
        weights = weights if kept.all() else weights / weights.sum()
        weights.flags.writeable = False
        object.__setattr__(self, "policies", tuple(p for p, stays in zip(members, kept, strict=True) if stays))
        object.__setattr__(self, "weights", weights)

    def at(self, t: int) -> Policy:
        """Return the policy of step ``t``: members may change with time."""
        if not any(hasattr(policy, "at") for policy in self.policies):
            return self
        return replace(self, policies=[_at_step(policy, t) for policy in self.policies])

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.policies[0].n_actions

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the most probable action, the lowest among equals (n,)."""
        return self.probabilities(states, allowed).argmax(axis=1)

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the weighted mean of the members' probabilities (n, A)."""
        total = self.weights[0] * self.policies[0].probabilities(states, allowed)
        for policy, weight in zip(self.policies[1:], self.weights[1:], strict=True):
            total += weight * policy.probabilities(states, allowed)
        return total


@dataclass(frozen=True, eq=False)
class NonStationary(Described):
    """A policy that changes with time: step t is decided by ``policies[t]``.

    Code that knows the time, such as the simulation, calls ``at(t)``; ``act`` and ``probabilities`` are those of step 0.

    Parameters
    ----------
    policies : sequence of Policy
        One for each step, over the same actions.
    then : Policy, optional
        The policy for later steps; by default the last of ``policies``.

    Examples
    --------
    >>> from capi.policies import Constant
    >>> policy = NonStationary([Constant(0, n_actions=2), Constant(1, n_actions=2)])
    >>> [policy.at(t).action for t in range(4)]
    [0, 1, 1, 1]
    >>> policy.act(np.zeros((1, 1)))
    array([0])
    """

    policies: Sequence[Policy]
    then: Policy | None = None

    def __post_init__(self) -> None:
        members = _members(self.policies, "policies")
        if self.then is not None:
            _members([members[0], self.then], "policies and then")
        object.__setattr__(self, "policies", members)

    def __len__(self) -> int:
        return len(self.policies)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.policies[0].n_actions

    def at(self, t: int) -> Policy:
        """Return the policy of step ``t``, counted from 0, with the schema of this policy."""
        step = as_int(t, "t", minimum=0)
        last = self.policies[-1] if self.then is None else self.then
        policy = _at_step(self.policies[step] if step < len(self.policies) else last, step)
        return policy if self.training is None else described(policy, self.schema, self.training)

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action of step 0 in each state (n,)."""
        return self.policies[0].act(states, allowed)

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the distribution of the decision at step 0 (n, A)."""
        return self.policies[0].probabilities(states, allowed)


def changes_with_time(policy: Any) -> bool:
    """Return whether the policy decides by the number of the step, as PSDP's does; a mixture does if a member does."""
    if isinstance(policy, EpsilonGreedy | Mixture):
        members = policy.policies if isinstance(policy, Mixture) else [policy.policy]
        return any(map(changes_with_time, members))
    return hasattr(policy, "at") and policy.at(0) is not policy


def _at_step(policy: Any, t: int) -> Policy:
    """Return the policy of step ``t``: the policy itself unless it changes with time."""
    return policy.at(t) if hasattr(policy, "at") else policy


def _members(policies: Any, name: str) -> tuple[Policy, ...]:
    """Return ``policies`` as a tuple of at least one policy, all over the same actions."""
    members = tuple(policies) if isinstance(policies, Sequence) else ()
    if not members:
        raise InvalidInputError(f"{name} must be a list of at least one Policy; got {policies!r}.")
    for i, policy in enumerate(members):
        ours = isinstance(policy, Described)  # faster to check than the protocol
        if isinstance(policy, type) or not (ours or isinstance(policy, Policy)):
            raise InvalidInputError(
                f"{name} must be policies (act, probabilities, n_actions); number {i} is {policy!r}."
            )
        if policy.n_actions != members[0].n_actions:
            raise InvalidInputError(
                f"{name} must have the same actions; number 0 has {members[0].n_actions}, number {i} has {policy.n_actions}."
            )
    return members
