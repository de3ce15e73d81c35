"""Decision rules that need no learning, and what all our policies share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from capi.errors import InvalidInput
from capi.loss import greedy
from capi.remembering import Remembered
from capi.schema import Schema
from capi.types import Policy, QFunction
from capi.validation import (
    Bools,
    Floats,
    Ints,
    as_allowed,
    as_int,
    as_integers,
    as_share,
    as_state_index,
    as_states,
    check_actions,
)


@dataclass(frozen=True, slots=True)
class Training:
    """How a policy came about: what its users need to know besides the rule itself."""

    discount: float
    n_iterations: int
    n_rows: int | None  # of the batch; None when the evaluator held a model
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Deterministic:
    """What our deterministic policies share: one-hot probabilities, and the words of the table.

    ``schema`` and ``training`` are attached by the learner, with `described`.
    """

    schema: Schema | None = field(default=None, repr=False)
    training: Training | None = field(default=None, repr=False)

    def probabilities(self: Policy, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the one-hot distribution of the decision (n, A)."""
        return one_hot(self.act(states, allowed), self.n_actions)


def described(policy: Policy, schema: Schema | None, training: Training) -> Policy:
    """Return ``policy`` with its words and origin attached, if it is one of ours; others stay as they are."""
    return replace(policy, schema=schema, training=training) if isinstance(policy, Deterministic) else policy


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

    def __post_init__(self) -> None:
        as_int(self.n_actions, "n_actions", minimum=1)
        check_actions(np.array([as_int(self.action, "action", minimum=0)]), self.n_actions, "action")

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

    def __post_init__(self) -> None:
        as_int(self.n_actions, "n_actions", minimum=1)

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

    def __post_init__(self) -> None:
        as_share(self.epsilon, "epsilon")
        if isinstance(self.policy, type) or not isinstance(self.policy, Policy):
            raise InvalidInput(f"policy must be a Policy (act, probabilities, n_actions); got {self.policy!r}.")

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

    def __post_init__(self) -> None:
        actions = as_integers(self.actions, "actions").copy()
        if not len(actions):
            raise InvalidInput("actions must have at least one state; got none.")
        check_actions(actions, as_int(self.n_actions, "n_actions", minimum=1))
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
        x = as_states(states)
        if allowed is not None:
            return greedy(self.q.values(x), allowed)
        return self.known.of(x, lambda: greedy(self.q.values(x))).copy()


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
