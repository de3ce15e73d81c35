"""Helpers for all evaluators that learn from logged data: checks of the batch, its weights, and discounted next-action shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.data.elapsed import step_factors, times_factors
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.types import Policy


def batch_for(transitions: Any, policy: Policy, name: str) -> Transitions:
    """Return the batch, or raise an error if there is none or its number of actions is not the policy's."""
    if transitions is None:
        raise InvalidInputError(f"{name} learns from logged data: transitions must be given.")
    if not isinstance(transitions, Transitions):
        raise InvalidInputError(f"transitions must be Transitions; got a {type(transitions).__name__}.")
    if policy.n_actions != transitions.n_actions:
        raise InvalidInputError(
            f"policy must have the {transitions.n_actions} actions of the batch; it has {policy.n_actions}."
        )
    return transitions


def needs_batch(transitions: Transitions | None, policy: Policy, name: str) -> Transitions:
    """Return the batch, or raise an error if there is none, it has other actions, or an action is never taken."""
    t = batch_for(transitions, policy, name)
    t.check_actions_taken()
    return t


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
    return times_factors(np.where(t.terminated[:, None], 0.0, shares), step_factors(t, discount))


def normalised_weights(t: Transitions) -> Floats:
    """Return weights (n,) whose mean over the rows with positive weight is one."""
    if t.weights is None:
        return np.ones(len(t))
    return t.weights / t.weights[t.weights > 0].mean()
