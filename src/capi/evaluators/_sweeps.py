r"""Sweeps of the Bellman operator, by any regression: :math:`\hat Q \approx T^\pi \hat Q_{\text{old}}`, over and over.

A sweep fits the targets :math:`R_i + \gamma \hat Q_{\text{old}}(X'_i, \pi(X'_i))`; nothing is added where the process terminated. The regression
belongs to the evaluator. What all of them share is here: the targets, the start from an earlier Q, and when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from capi._utils.validation import Floats
from capi.data.transitions import Transitions
from capi.errors import DivergenceError
from capi.policies import Decisions, value_of
from capi.types import QFunction

SETTLED = 1e-9  # how close to its fixed point Q is when it counts as settled, relative to its largest value
LAST_DIGITS = 1e-8  # largest movement, relative to Q, that rounding explains: 3e-9 was seen with a ridge of 1e-6, depending on the processor
PATIENCE = 3  # times as many sweeps as a contraction by the discount needs, and Q must have settled
HOPELESS = 1e3  # times as large as a contraction by the discount could make Q: it will not settle

Swept = TypeVar("Swept")  # what goes from sweep to sweep: a Q, or its targets


def makes_sweeps(evaluator: Any) -> bool:
    """Whether the evaluator can be told how many sweeps to make."""
    known = is_dataclass(evaluator) and not isinstance(evaluator, type)
    return known and "n_sweeps" in [field.name for field in fields(evaluator)]


def with_one_sweep(evaluator: Any) -> Any:
    """Return an evaluator that makes one sweep, else as it is."""
    return replace(evaluator, n_sweeps=1)


def following_values(q: QFunction | None, own: type, t: Transitions, decisions: Decisions) -> Floats:
    """Return the value of the next states of a batch by ``q`` under ``decisions`` there (n,); zero without a Q.

    One of the evaluator's ``own`` kind is asked only for the actions that occur.
    """
    if q is None:
        return np.zeros(len(t))
    if isinstance(q, own):
        expected: Floats = q.expected(t.next_states, decisions)  # type: ignore[attr-defined]
        return expected
    return value_of(decisions, q.values(t.next_states))


def bellman_targets(t: Transitions, discount: float, following: Floats) -> Floats:
    """Return what a sweep fits, given the values of the next states (n,)."""
    return t.rewards + discount * np.where(t.terminated, 0.0, following)


def after_sweeps(
    first: Swept, sweep: Callable[[Swept], Swept], n_sweeps: int | None, settled: Callable[[Swept], Swept]
) -> Swept:
    """Return what ``n_sweeps`` sweeps make, of which ``first`` is the result of one; None goes on until it has ``settled``."""
    if n_sweeps is None:
        return settled(first)
    for _ in range(n_sweeps - 1):
        first = sweep(first)
    return first


def movements(
    first: Swept, sweep: Callable[[Swept], Swept], numbers: Callable[[Swept], Floats]
) -> Iterator[tuple[Swept, float, float]]:
    """Yield the result of each sweep, how far it has moved any of its ``numbers``, and the largest of them."""
    swept, before = first, numbers(first)
    while True:
        swept = sweep(swept)
        now = numbers(swept)
        yield swept, np.abs(now - before).max(), np.abs(now).max()
        before = now


def stands_still(moved: float, largest: float, discount: float) -> bool:
    """Whether sweeps that contract by the discount have settled once they move by so much."""
    return bool(discount * moved <= (1 - discount) * SETTLED * largest)


def settled_targets(
    targets: Floats, sweep: Callable[[Floats], Floats], discount: float, reward: float, advice: str
) -> Floats:
    """Sweep until the targets stand still, with a regression that may expand; then it has no fixed point, and ``advice`` is given.

    ``reward`` is the largest one: a contraction stays below it, or the first targets, over ``1 - discount``.
    """
    needed = 1 if discount == 0 else np.log(SETTLED * (1 - discount)) / np.log(discount)
    most = PATIENCE * int(np.ceil(needed)) + 1
    largest = np.abs(targets).max()
    hopeless = HOPELESS * max(largest, reward) / (1 - discount)
    for n_sweeps, (swept, moved, size) in enumerate(movements(targets, sweep, lambda numbers: numbers), start=1):
        largest = max(largest, size)
        if stands_still(moved, largest, discount):
            return swept
        if n_sweeps == most or largest > hopeless:
            break
    if moved <= LAST_DIGITS * largest:
        return swept
    raise DivergenceError(
        f"Q must settle; after {n_sweeps} sweeps it has reached {largest:.3g} and still moves by {moved / largest:.2g} of that. {advice}"
    )


def finite_targets(targets: Floats, advice: str) -> Floats:
    """Return the targets if they are numbers, else give ``advice``."""
    if not np.isfinite(targets).all():
        raise DivergenceError(f"Q must stay finite; it grew beyond all numbers. {advice}")
    return targets
