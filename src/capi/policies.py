"""Decision rules that need no learning, and what all our policies share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

import capi
from capi._utils.array_cache import Remembered
from capi._utils.parameters import Constraints, at_least, check_parameters, instance_of
from capi._utils.row_ops import chosen_entries, row_sum
from capi._utils.validation import (
    Bools,
    Floats,
    Ints,
    as_allowed,
    as_distribution,
    as_int,
    as_integers,
    as_share,
    as_state_index,
    as_states,
    check_actions,
    check_shape,
)
from capi.data.schema import Schema
from capi.errors import InvalidInput
from capi.loss import greedy
from capi.plotting.regions import draw_decisions, telling_features, thinned
from capi.types import Policy, QFunction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Decisions: TypeAlias = NDArray[Any]  # in many states: actions (n,) of a deterministic policy, else probabilities (n, A)


@dataclass(frozen=True, slots=True)
class Training:
    """How a policy came about: what its users need to know besides the rule itself."""

    discount: float
    n_iterations: int
    n_rows: int | None  # of the batch; None when the evaluator held a model
    versions: dict[str, str]
    episodes: tuple[str, ...] = ()  # a sketch of the episodes that it was learned from, see `capi.data.sketch`


@dataclass(frozen=True, kw_only=True, eq=False)
class Described:
    """What our learned policies share: the words of the table, attached by the learner with `described`."""

    schema: Schema | None = field(default=None, repr=False)
    training: Training | None = field(default=None, repr=False)

    def save(self: Any, path: str | Path) -> None:
        """Write the policy to a file that `capi.load_policy` opens, anywhere and safely; see `capi.save_policy`."""
        capi.save_policy(self, path)  # the package knows where that lives: files know policies, not the other way round

    def plot(self: Any, states: ArrayLike | None = None) -> Figure:
        """Return a picture of the policy; ``figure.savefig("policy.png")`` keeps it.

        It shows `plot_decisions` over the two features that tell the most about the decisions: the one with the largest mutual
        information with them, and the one that adds the most to it. Trees are drawn as trees.

        Parameters
        ----------
        states : array of shape (n, d), optional
            Such as those of the batch. By default those that the policy was learned from, if it keeps them.
        """
        check_masks_given(getattr(self, "masked", False), None)
        kept = self.learning_states() if states is None and hasattr(self, "learning_states") else states
        if kept is None:
            raise InvalidInput(
                "states must be given, such as those of the batch: this policy does not keep those that it was learned from."
            )
        some = thinned(as_states(kept))
        return self.plot_decisions(kept, telling_features(some, self.act(some)))

    def plot_decisions(self: Any, states: ArrayLike, features: Sequence[Any] = (0, 1)) -> Figure:
        """Return a picture of the decisions over one or two features; ``figure.savefig("decisions.png")`` keeps it.

        Parameters
        ----------
        states : array of shape (n, d)
            Such as those of the batch. Over two features they are the points; the regions behind them are the decisions in states
            whose other features have their medians. Over one feature bars show the share of each action.
        features : one or two columns or names
        """
        check_masks_given(getattr(self, "masked", False), None)
        return draw_decisions(self.act, as_states(states), features, self.n_actions, self.schema)


@dataclass(frozen=True, kw_only=True, eq=False)
class Deterministic(Described):
    """What our deterministic policies share: one-hot probabilities, and the words of the table."""

    def probabilities(self: Policy, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the one-hot distribution of the decision (n, A)."""
        return one_hot(self.act(states, allowed), self.n_actions)


def described(policy: Policy, schema: Schema | None, training: Training) -> Policy:
    """Return ``policy`` with its words and origin attached, if it is one of ours; others stay as they are."""
    return replace(policy, schema=schema, training=training) if isinstance(policy, Described) else policy


@dataclass(frozen=True, eq=False)
class Constant(Deterministic):
    """The same action everywhere.

    Examples
    --------
    >>> Constant(1, n_actions=2).act(np.zeros((3, 1)))
    array([1, 1, 1])
    """

    action: int
    n_actions: int

    _constraints: ClassVar[Constraints] = {"n_actions": at_least(1), "action": at_least(0)}

    def __post_init__(self) -> None:
        check_parameters(self)
        check_actions(np.array([self.action]), self.n_actions, "action")

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action, or the lowest allowed one where it is not allowed (n,)."""
        return permitted(np.full(len(as_states(states)), self.action), allowed, self.n_actions)


@dataclass(frozen=True, eq=False)
class Uniform:
    """Every (allowed) action with the same probability; ``act`` is the lowest.

    Examples
    --------
    >>> Uniform(4).probabilities(np.zeros((1, 2)))
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    n_actions: int

    _constraints: ClassVar[Constraints] = {"n_actions": at_least(1)}

    def __post_init__(self) -> None:
        check_parameters(self)

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the lowest (allowed) action (n,)."""
        return permitted(np.zeros(len(as_states(states)), dtype=np.int64), allowed, self.n_actions)

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return equal probabilities over the (allowed) actions (n, A)."""
        shape = (len(as_states(states)), self.n_actions)
        mask = as_allowed(allowed, "allowed", shape)
        weight = np.ones(shape) if mask is None else mask.astype(np.float64)
        return weight / weight.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class EpsilonGreedy:
    """Another policy that, with probability ``epsilon``, takes any (allowed) action instead; for exploring.

    Examples
    --------
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
        """Return who decides at step ``t``: the policy may change with time."""
        return EpsilonGreedy(self.policy.at(t), self.epsilon) if hasattr(self.policy, "at") else self

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.policy.n_actions

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the most probable action, the lowest among equals (n,)."""
        return self.probabilities(states, allowed).argmax(axis=1)

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the mixture of the policy and of equal probabilities (n, A)."""
        exploring = Uniform(self.n_actions).probabilities(states, allowed)
        return (1 - self.epsilon) * self.policy.probabilities(states, allowed) + self.epsilon * exploring


@dataclass(frozen=True, eq=False)
class Tabular(Deterministic):
    """One action for each of finitely many states: ``actions`` (S,).

    Examples
    --------
    >>> Tabular(np.array([0, 1, 1]), n_actions=2).act(np.array([[2.0], [0.0]]))
    array([1, 0])
    """

    actions: Ints  # (S,)
    n_actions: int

    _constraints: ClassVar[Constraints] = {"n_actions": at_least(1)}

    def __post_init__(self) -> None:
        check_parameters(self)
        actions = as_integers(self.actions, "actions").copy()
        if not len(actions):
            raise InvalidInput("actions must have at least one state; got none.")
        check_actions(actions, self.n_actions)
        actions.flags.writeable = False
        object.__setattr__(self, "actions", actions)

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action of each state (n, 1), or the lowest allowed one where it is not allowed (n,)."""
        return permitted(self.actions[as_state_index(states, len(self.actions))], allowed, self.n_actions)


@dataclass(frozen=True, eq=False)
class Greedy(Deterministic):
    """The action with the largest value, the lowest among equals.

    ``masked`` policies were learned where not every action was allowed, and refuse to act without masks.
    """

    q: QFunction
    masked: bool = False
    known: Remembered[Ints] = field(default_factory=Remembered, repr=False)  # what it does in the states of a batch

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.q.n_actions

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the best (allowed) action in each state (n,)."""
        check_masks_given(self.masked, allowed)
        if allowed is not None:
            return greedy(self.q.values(as_states(states)), allowed)
        x = states if states in self.known else as_states(states)
        return self.known.of(x, lambda: greedy(self.q.values(x))).copy()


@dataclass(frozen=True, eq=False)
class Mixture(Described):
    r"""A policy that draws who decides, anew at each step: :math:`\pi(a|x) = \sum_i w_i \pi_i(a|x)`.

    Mixtures among the policies are taken apart, so that a mixture of mixtures is as quick as one of its members.

    Parameters
    ----------
    policies : sequence of Policy
        The members, over the same actions.
    weights : array of shape (m,)
        The probability of each member; they sum to one.
    min_weight : float in [0, 1]
        Members with less are dropped, and the weights of the others scaled up. Nothing is dropped by default.

    Examples
    --------
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
            raise InvalidInput(f"min_weight must leave a member; the largest weight is {max(shares):.4g}.")
        weights = np.array(shares)[kept]
        weights = weights if kept.all() else weights / weights.sum()
        weights.flags.writeable = False
        object.__setattr__(self, "policies", tuple(p for p, stays in zip(members, kept, strict=True) if stays))
        object.__setattr__(self, "weights", weights)

    def at(self, t: int) -> Policy:
        """Return who decides at step ``t``: members may change with time."""
        if not any(hasattr(policy, "at") for policy in self.policies):
            return self
        return replace(self, policies=[_at_step(policy, t) for policy in self.policies])

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.policies[0].n_actions

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the most probable action, the lowest among equals (n,)."""
        return self.probabilities(states, allowed).argmax(axis=1)

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the members' probabilities, weighted (n, A)."""
        total = self.weights[0] * self.policies[0].probabilities(states, allowed)
        for policy, weight in zip(self.policies[1:], self.weights[1:], strict=True):
            total += weight * policy.probabilities(states, allowed)
        return total


@dataclass(frozen=True, eq=False)
class NonStationary(Described):
    """A policy that changes with time: step t is decided by ``policies[t]``.

    Whoever knows the time asks ``at(t)``, as simulation does; ``act`` and ``probabilities`` are those of step 0.

    Parameters
    ----------
    policies : sequence of Policy
        One for each step, over the same actions.
    then : Policy, optional
        Who decides after them; by default the last of them.

    Examples
    --------
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
        """Return who decides at step ``t``, from 0, in the words that this policy has."""
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


def _at_step(policy: Any, t: int) -> Policy:
    """Return who decides at step ``t``: the policy itself unless it changes with time."""
    return policy.at(t) if hasattr(policy, "at") else policy


def _members(policies: Any, name: str) -> tuple[Policy, ...]:
    """Return ``policies`` as a tuple of at least one policy, all over the same actions."""
    members = tuple(policies) if isinstance(policies, Sequence) else ()
    if not members:
        raise InvalidInput(f"{name} must be a list of at least one Policy; got {policies!r}.")
    for i, policy in enumerate(members):
        ours = isinstance(policy, Described)  # quicker to check than the protocol
        if isinstance(policy, type) or not (ours or isinstance(policy, Policy)):
            raise InvalidInput(f"{name} must be policies (act, probabilities, n_actions); number {i} is {policy!r}.")
        if policy.n_actions != members[0].n_actions:
            raise InvalidInput(
                f"{name} must have the same actions; number 0 has {members[0].n_actions}, number {i} has {policy.n_actions}."
            )
    return members


def decided(policy: Policy, states: Floats, allowed: Bools | None = None) -> Decisions:
    """Return what ``policy`` does in ``states`` (n, d)."""
    if not isinstance(policy, Deterministic):
        return policy.probabilities(states, allowed)
    name = f"what act of {type(policy).__name__} returns"
    actions = as_integers(policy.act(states, allowed), name)
    check_shape(actions, name, (len(states),))
    check_actions(actions, policy.n_actions, name)
    return actions


def value_of(decisions: Decisions, q_values: Floats) -> Floats:
    """Return the mean of each row of ``q_values`` (n, A) under ``decisions`` (n,)."""
    return chosen_entries(q_values, decisions) if decisions.ndim == 1 else row_sum(decisions, q_values)


def one_hot(actions: Ints, n_actions: int) -> Floats:
    """Return (n, A) with a one at each row's action."""
    table = np.zeros((len(actions), n_actions))
    table[np.arange(len(actions)), actions] = 1.0
    return table


def permitted(actions: Ints, allowed: ArrayLike | None, n_actions: int) -> Ints:
    """Return ``actions`` (n,), each replaced by the lowest allowed action where it is not allowed."""
    mask = as_allowed(allowed, "allowed", (len(actions), n_actions))
    if mask is None:
        return actions
    taken = np.take_along_axis(mask, actions[:, None], axis=1)[:, 0]
    return np.where(taken, actions, mask.argmax(axis=1))


def first_allowed(ranking: Ints, allowed: ArrayLike | None) -> Ints:
    """Return the first action of each row of ``ranking`` (n, A) that the state allows (n,)."""
    mask = as_allowed(allowed, "allowed", ranking.shape)
    if mask is None:
        return ranking[:, 0]
    first = np.take_along_axis(mask, ranking, axis=1).argmax(axis=1)
    return np.take_along_axis(ranking, first[:, None], axis=1)[:, 0]


def check_masks_given(masked: bool, allowed: Bools | None) -> None:
    """Refuse to act without masks for a policy that was learned with them."""
    if masked and allowed is None:
        raise InvalidInput("this policy was learned with masks of allowed actions: pass allowed, shape (n, n_actions).")
