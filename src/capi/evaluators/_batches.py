"""Helpers for all evaluators that learn from logged data: checks of the batch, its weights, and discounted next-action shares."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from capi._utils.array_cache import Forgetful, Remembered
from capi._utils.validation import Bools, Floats, Ints
from capi.data.elapsed import step_factors, times_factors
from capi.data.partitions import PartitionedTransitions
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators.fitted_values import FittedValues
from capi.types import Policy

AnyBatch: TypeAlias = Transitions | PartitionedTransitions
DROPPED = ("origin", "training")  # what only speeds up later calls, or describes


def batch_for(transitions: Any, policy: Policy, name: str) -> Transitions:
    """Return the batch, or raise an error if there is none or its number of actions is not the policy's."""
    if transitions is None:
        raise InvalidInputError(f"{name} learns from logged data: transitions must be given.")
    if isinstance(transitions, PartitionedTransitions):
        raise InvalidInputError(
            f"{name} needs all rows in memory; these are partitioned. FittedQ with its own trees, LSTDQ and BellmanResidual learn "
            "from partitions; others from transitions.sample()."
        )
    if not isinstance(transitions, Transitions):
        raise InvalidInputError(f"transitions must be Transitions; got a {type(transitions).__name__}.")
    if policy.n_actions != transitions.n_actions:
        raise InvalidInputError(
            f"policy must have the {transitions.n_actions} actions of the batch; it has {policy.n_actions}."
        )
    return transitions


def needs_batch(transitions: AnyBatch | None, policy: Policy, name: str) -> Transitions:
    """Return the batch, or raise an error if there is none, it has other actions, or an action is never taken."""
    t = batch_for(transitions, policy, name)
    t.check_actions_taken()
    return t


def any_batch(transitions: Any, policy: Policy, name: str) -> AnyBatch:
    """Return the batch, which may be partitioned, or raise an error as `needs_batch` does."""
    if not isinstance(transitions, PartitionedTransitions):
        return needs_batch(transitions, policy, name)
    if policy.n_actions != transitions.n_actions:
        raise InvalidInputError(
            f"policy must have the {transitions.n_actions} actions of the batch; it has {policy.n_actions}."
        )
    transitions.check_actions_taken()
    return transitions


def portable(thing: Any) -> Any:
    """Return a policy or Q that decides the same, without the rows that it was learned from and what it remembers of others.

    Workers get it; it is smaller, and nothing is remembered there of states that are read only once.
    """
    if isinstance(thing, FittedValues):
        return thing.bare()
    if not is_dataclass(thing) or isinstance(thing, type):
        inner = getattr(thing, "q", None)
        if isinstance(inner, FittedValues):  # a Q that wraps another one
            made: Any = object.__new__(type(thing))
            vars(made).update({**vars(thing), "q": inner.bare()})
            return made
        return thing
    changed: dict[str, Any] = {name: None for name in DROPPED if name in thing.__dataclass_fields__}
    if isinstance(getattr(thing, "known", None), Remembered):
        changed["known"] = Forgetful()
    if "q" in thing.__dataclass_fields__:
        changed["q"] = portable(getattr(thing, "q"))  # noqa: B009  any dataclass
    try:
        return replace(thing, **changed) if changed else thing
    except (TypeError, ValueError, InvalidInputError):  # it cannot do without
        return thing


def rows_of_actions(t: Transitions, fewest: int = 1) -> list[Ints]:
    """Return the rows of each action, or all rows if it has fewer than ``fewest``; rows of weight 0 are ignored."""
    rows = np.arange(len(t)) if t.weights is None else np.flatnonzero(t.weights)
    own = [rows[t.actions[rows] == a] for a in range(t.n_actions)]
    return [of_action if len(of_action) >= fewest else rows for of_action in own]


def of_rows(weights: Floats | None, rows: Ints) -> Floats | None:
    """Return the weights of some rows; None if all rows count alike."""
    return None if weights is None else weights[rows]


def next_shares(t: Transitions, policy: Policy, discount: float, next_states: Floats | None = None) -> Floats:
    """Return the probability of each next action (n, A), zero where the process terminated.

    In a batch with elapsed times it is multiplied by the discount of the row's step divided by ``discount``: times the discount,
    next values are discounted by their own step. ``next_states`` (n, d) replace those of the batch, some of which may be missing.
    """
    shares = policy.probabilities(t.next_states if next_states is None else next_states, t.next_masks())
    return continued(shares, t.terminated, step_factors(t, discount))


def continued(shares: Floats, terminated: Bools, factors: Floats | None) -> Floats:
    """Return ``shares`` (m, A) of next actions, zero where the process terminated (m,), times the factors of the steps (m,)."""
    return times_factors(np.where(terminated[:, None], 0.0, shares), factors)


def normalised_weights(t: Transitions) -> Floats:
    """Return weights (n,) whose mean over the rows with positive weight is one."""
    if t.weights is None:
        return np.ones(len(t))
    return t.weights / t.weights[t.weights > 0].mean()
