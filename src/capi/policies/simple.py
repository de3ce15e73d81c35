"""Policies that need no learning, and the greedy policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from capi._utils.array_cache import Remembered
from capi._utils.parameters import Constraints, at_least, check_parameters
from capi._utils.state_rows import StateRows, state_index
from capi._utils.validation import (
    Bools,
    Floats,
    Ints,
    as_allowed,
    as_integers,
    as_states,
    check_actions,
)
from capi.errors import InvalidInputError
from capi.loss import greedy
from capi.policies.base import Deterministic
from capi.policies.decisions import check_masks_given, in_blocks, permitted
from capi.types import QFunction


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
    """Every (allowed) action with the same probability; ``act`` returns the lowest.

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
class Tabular(Deterministic):
    """One action for each of finitely many states: ``actions`` (S,).

    A state is its index or, with ``features`` (S, d), its row of features.

    Examples
    --------
    >>> Tabular(np.array([0, 1, 1]), n_actions=2).act(np.array([[2.0], [0.0]]))
    array([1, 0])
    """

    actions: Ints  # (S,)
    n_actions: int
    features: StateRows | None = field(default=None, repr=False)

    _constraints: ClassVar[Constraints] = {"n_actions": at_least(1)}

    def __post_init__(self) -> None:
        check_parameters(self)
        actions = as_integers(self.actions, "actions").copy()
        if not len(actions):
            raise InvalidInputError("actions must have at least one state; got none.")
        check_actions(actions, self.n_actions)
        actions.flags.writeable = False
        object.__setattr__(self, "actions", actions)

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action of each state (n, 1) or (n, d), or the lowest allowed one where it is not allowed (n,)."""
        return permitted(self.actions[state_index(states, len(self.actions), self.features)], allowed, self.n_actions)


@dataclass(frozen=True, eq=False)
class Greedy(Deterministic):
    """The action with the largest value, the lowest among equals.

    ``masked`` policies were learned with masks of allowed actions, and refuse to act without masks.
    """

    q: QFunction
    masked: bool = False
    known: Remembered[Ints] = field(default_factory=Remembered, repr=False)  # its actions in the states of a batch

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.q.n_actions

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the best (allowed) action in each state (n,)."""
        check_masks_given(self.masked, allowed)
        if allowed is not None:
            return greedy(self.q.values(as_states(states)), allowed)
        x = states if states in self.known else as_states(states)
        return self.known.of(x, lambda: greedy(self.q.values(x))).copy()
