"""Policies whose action index never decreases, or never increases, as a feature increases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from capi._utils.validation import Floats, Ints, as_int
from capi.errors import InvalidInputError


def check_monotone(monotone: Any, n_features: int | None = None, *, masked: bool = False) -> None:
    """Refuse invalid directions, unknown columns, and masks, which could break the order."""
    if monotone is None:
        return
    if not isinstance(monotone, Mapping) or not set(monotone.values()) <= {1, -1}:
        raise InvalidInputError(f"monotone must map columns to 1 or -1, such as {{0: 1}}; got {monotone!r}.")
    for j in monotone:
        if as_int(j, "a column of monotone", minimum=0) >= (n_features or j + 1):
            raise InvalidInputError(f"monotone names column {j}, but states have shape (n, {n_features}).")
    if masked and monotone:
        raise InvalidInputError(
            "monotone cannot be guaranteed with masks: where an action is not allowed, another one replaces it."
        )


def monotone_actions(nodes: Any, sums: Floats, monotone: Mapping[int, int]) -> Ints:
    """Return the actions of the leaves (l,) that make a tree monotone with the least loss.

    ``nodes`` and ``sums`` (l, A) are those of a `Tree`. At each split on a monotone feature, all actions on the low side
    are at most those on the high side (at least, for -1). Two states that differ only in this feature and are separated
    there are then in order. The best ranges of actions are found from the leaves up, from the least loss of each subtree
    for each range.
    """
    n_actions = sums.shape[1]
    tables = np.full((len(nodes), n_actions, n_actions), np.inf)  # least loss with actions in low..high
    for i in range(len(nodes) - 1, -1, -1):  # children come after their parents
        left = int(nodes["left"][i])
        if left < 0:
            for low in range(n_actions):
                tables[i, low, low:] = np.minimum.accumulate(sums[-1 - left, low:])
            continue
        first, second = _in_order(nodes[i], tables[left], tables[left + 1], monotone)
        tables[i] = _least(first, second, split=_direction(nodes[i], monotone) != 0)[0]
    actions = np.empty(len(sums), dtype=np.int64)
    waiting = [(0, 0, n_actions - 1)]
    while waiting:
        i, low, high = waiting.pop()
        left = int(nodes["left"][i])
        if left < 0:
            actions[-1 - left] = low + int(sums[-1 - left, low : high + 1].argmin())
            continue
        direction = _direction(nodes[i], monotone)
        if direction == 0:
            waiting += [(left, low, high), (left + 1, low, high)]
            continue
        first, second = _in_order(nodes[i], tables[left], tables[left + 1], monotone)
        border = int(_least(first, second, split=True)[1][low, high])
        lower, upper = (left, left + 1) if direction > 0 else (left + 1, left)
        waiting += [(lower, low, border), (upper, border, high)]
    return actions


def _direction(node: Any, monotone: Mapping[int, int]) -> int:
    """Return 1 or -1 for a split that must keep an order, otherwise 0; "is known" does not imply an order."""
    return 0 if np.isinf(node["threshold"]) else monotone.get(int(node["feature"]), 0)


def _in_order(node: Any, left: Floats, right: Floats, monotone: Mapping[int, int]) -> tuple[Floats, Floats]:
    """Return the tables (A, A) of the side with the lower and of the side with the higher actions."""
    return (right, left) if _direction(node, monotone) < 0 else (left, right)


def _least(lower: Floats, upper: Floats, *, split: bool) -> tuple[Floats, Ints]:
    """Return the least sum of two subtrees for each range (A, A), and the border between their actions that attains it."""
    if not split:
        return lower + upper, np.zeros(lower.shape, dtype=np.int64)
    sums = lower[:, None, :] + upper.T[None, :, :]  # (low, high, border)
    return sums.min(axis=2), sums.argmin(axis=2)
