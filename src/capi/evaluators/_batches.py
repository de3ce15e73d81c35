"""What every evaluator that learns from logged data asks of its arguments."""

from __future__ import annotations

from typing import Any

from capi.data.transitions import Transitions
from capi.errors import InvalidInput
from capi.types import Policy


def batch_for(transitions: Any, policy: Policy, name: str) -> Transitions:
    """Return the batch, or say that there must be one, with as many actions as the policy has."""
    if transitions is None:
        raise InvalidInput(f"{name} learns from logged data: transitions must be given.")
    if not isinstance(transitions, Transitions):
        raise InvalidInput(f"transitions must be Transitions; got a {type(transitions).__name__}.")
    if policy.n_actions != transitions.n_actions:
        raise InvalidInput(
            f"policy must have the {transitions.n_actions} actions of the batch; it has {policy.n_actions}."
        )
    return transitions
