"""What every evaluator that learns from logged data asks of its batch: its actions, its weights, and what follows on its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from capi._utils.validation import Floats
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.types import Policy


def batch_for(transitions: Any, policy: Policy, name: str) -> Transitions:
    """Return the batch, or say that there must be one, with as many actions as the policy has."""
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
    """Return the batch, or say that there must be one, with the policy's actions, each of them taken."""
    t = batch_for(transitions, policy, name)
    t.check_actions_taken()
    return t


def next_shares(t: Transitions, policy: Policy, next_states: Floats | None = None) -> Floats:
    """Return with which probability each next action is taken (n, A): none where the process terminated.

    ``next_states`` (n, d) stand in for those of the batch, where some may be missing.
    """
    shares = policy.probabilities(t.next_states if next_states is None else next_states, t.next_masks())
    return np.where(t.terminated[:, None], 0.0, shares)


def normalised_weights(t: Transitions) -> Floats:
    """Return weights (n,) whose mean over the rows that count is one."""
    if t.weights is None:
        return np.ones(len(t))
    return t.weights / t.weights[t.weights > 0].mean()
