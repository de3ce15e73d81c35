r"""Repeated sweeps of the Bellman operator with any regression, :math:`\hat Q \approx T^\pi \hat Q_{\text{old}}`.

A sweep fits the targets :math:`R_i + \gamma \hat Q_{\text{old}}(X'_i, \pi(X'_i))`, or :math:`R_i` where the process terminated;
:math:`\gamma` is raised to the elapsed time of the row if the batch has it. The regression belongs to the evaluator. This module
holds what all of them share: the targets, the start from an earlier Q, and the stopping rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from capi._utils.validation import Floats
from capi.data.elapsed import step_factors, times_factors
from capi.data.transitions import Transitions
from capi.errors import DivergenceError
from capi.policies import Decisions, value_of
from capi.types import QFunction

SETTLED = 1e-9  # Q has converged if it is this close to its fixed point, relative to its largest value
LAST_DIGITS = 1e-8  # largest movement, relative to Q, that rounding explains: 3e-9 was seen with a ridge of 1e-6, depending on the processor
PATIENCE = 3  # Q must converge within this many times the sweeps that a contraction by the discount needs
HOPELESS = 1e3  # Q will not converge if it is this many times as large as a contraction could make it

Swept = TypeVar("Swept")  # what is passed from sweep to sweep: a Q, or its targets


def unwrapped(evaluator: Any) -> Any:
    """Return the evaluator inside one that changes its values, such as `Pessimistic`; others are returned unchanged."""
    return getattr(evaluator, "evaluator", evaluator)


def makes_sweeps(evaluator: Any) -> bool:
    """Return whether the evaluator has the parameter ``n_sweeps``."""
    evaluator = unwrapped(evaluator)
    known = is_dataclass(evaluator) and not isinstance(evaluator, type)
    return known and "n_sweeps" in [field.name for field in fields(evaluator)]


def with_one_sweep(evaluator: Any) -> Any:
    """Return a copy of the evaluator that makes one sweep."""
    inner = unwrapped(evaluator)
    swept = replace(inner, n_sweeps=1)
    return swept if inner is evaluator else replace(evaluator, evaluator=swept)


def following_values(q: QFunction | None, own: type | tuple[()], t: Transitions, decisions: Decisions) -> Floats:
    """Return the value of the next states of a batch according to ``q`` under ``decisions`` (n,); zero without a Q.

    A Q of the evaluator's ``own`` class is evaluated only for the actions that occur; ``()`` is for evaluators without one.
    """
    if q is None:
        return np.zeros(len(t))
    if isinstance(q, own):
        expected: Floats = q.expected(t.next_states, decisions)  # type: ignore[attr-defined]
        return expected
    return value_of(decisions, q.values(t.next_states))


def bellman_targets(t: Transitions, discount: float, following: Floats) -> Floats:
    """Return the targets of a sweep, given the values of the next states (n,)."""
    ahead = np.where(t.terminated, 0.0, following)
    return t.rewards + discount * times_factors(ahead, step_factors(t, discount))


def after_sweeps(
    first: Swept, sweep: Callable[[Swept], Swept], n_sweeps: int | None, settled: Callable[[Swept], Swept]
) -> Swept:
    """Return the result of ``n_sweeps`` sweeps; ``first`` is that of the first one, and with None ``settled`` does the rest."""
    if n_sweeps is None:
        return settled(first)
    for _ in range(n_sweeps - 1):
        first = sweep(first)
    return first


def movements(
    first: Swept, sweep: Callable[[Swept], Swept], numbers: Callable[[Swept], Floats]
) -> Iterator[tuple[Swept, float, float]]:
    """Yield the result of each sweep, the largest change of its ``numbers``, and the largest of them."""
    swept, before = first, numbers(first)
    while True:
        swept = sweep(swept)
        now = numbers(swept)
        yield swept, np.abs(now - before).max(), np.abs(now).max()
        before = now


def stands_still(moved: float, largest: float, discount: float) -> bool:
    """Return whether sweeps that contract by the discount have converged if the last one changed Q by ``moved``."""
    return bool(discount * moved <= (1 - discount) * SETTLED * largest)


def settled_targets(
    targets: Floats, sweep: Callable[[Floats], Floats], discount: float, reward: float, advice: str
) -> Floats:
    """Sweep until the targets converge; raise an error with ``advice`` if they do not, because the regression may expand.

    ``reward`` is the largest absolute reward. A contraction stays below it, or below the largest first target, divided by
    ``1 - discount``.
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
        f"Q must converge; after {n_sweeps} sweeps it has reached {largest:.3g} and a sweep still changes it by "
        f"{moved / largest:.2g} of that. {advice}"
    )


def finite_targets(targets: Floats, advice: str) -> Floats:
    """Return the targets, or raise an error with ``advice`` if they are not finite."""
    if not np.isfinite(targets).all():
        raise DivergenceError(f"Q must stay finite; it became infinite or NaN. {advice}")
    return targets
