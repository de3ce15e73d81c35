"""Decisions in many states, as actions or probabilities, restricted to the allowed actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capi._utils.row_ops import chosen_entries, row_sum
from capi._utils.validation import Bools, Floats, Ints, as_allowed
from capi.errors import InvalidInputError
from capi.types import Policy

NUMBERS_AT_ONCE = 2**24  # entries of a table with one column per action: 128 MiB

P = TypeVar("P", bound=Policy)
Decisions: TypeAlias = NDArray[Any]  # actions (n,) of a deterministic policy, otherwise probabilities (n, A)


def value_of(decisions: Decisions, q_values: Floats) -> Floats:
    """Return the mean of each row of ``q_values`` (n, A) under ``decisions`` -> (n,)."""
    return chosen_entries(q_values, decisions) if decisions.ndim == 1 else row_sum(decisions, q_values)


def one_hot(actions: Ints, n_actions: int) -> Floats:
    """Return an array (n, A) with a one at each row's action and zeros elsewhere."""
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
    return first_in_mask(ranking, as_allowed(allowed, "allowed", ranking.shape))


def first_in_mask(ranking: Ints, mask: Bools | None) -> Ints:
    """Return the first action of each row of ``ranking`` (n, A) that the checked ``mask`` (n, A) allows (n,)."""
    if mask is None:
        return ranking[:, 0]
    first = np.take_along_axis(mask, ranking, axis=1).argmax(axis=1)
    return np.take_along_axis(ranking, first[:, None], axis=1)[:, 0]


def in_blocks(act: Callable[[P, Floats, Bools | None], Ints]) -> Callable[..., Ints]:
    """Make a policy's ``act`` decide in blocks of rows: its tables (rows, A) stay small, however many actions a file claims.

    So do tables of (rows, ``n_inputs``), if the policy has such.
    """

    @wraps(act)
    def decide(policy: P, states: Floats, allowed: Bools | None = None) -> Ints:
        size = max(1, NUMBERS_AT_ONCE // max(policy.n_actions, getattr(policy, "n_inputs", 1)))
        if not isinstance(states, np.ndarray) or states.ndim == 0 or len(states) <= size:
            return act(policy, states, allowed)
        mask = as_allowed(allowed, "allowed", (len(states), policy.n_actions))
        parts = (slice(i, i + size) for i in range(0, len(states), size))
        # Copies, because actions can be views that keep the tables alive.
        decided = [act(policy, states[rows], None if mask is None else mask[rows]).copy() for rows in parts]
        return np.concatenate(decided)

    return decide


def check_masks_given(masked: bool, allowed: Bools | None) -> None:
    """Refuse to act without masks for a policy that was learned with them."""
    if masked and allowed is None:
        raise InvalidInputError(
            "this policy was learned with masks of allowed actions: pass allowed, of shape (n, n_actions)."
        )
