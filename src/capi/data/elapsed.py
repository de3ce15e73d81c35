"""Discounting by elapsed time: the unit of time that a discount refers to, and the discount of each step.

A step that lasts ``elapsed`` units has the discount ``discount ** elapsed``. Everything that looks ahead multiplies the values of
next states by the discount and by `step_factors`, ``discount ** (elapsed - 1)``, which are one where a step lasts one unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.validation import Floats, is_real
from capi.errors import InvalidInputError

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
TEXT = re.compile(r"\s*([-+.\d]\S*)?\s*([A-Za-z]*)\s*")
UNNAMED = "unit of elapsed time"  # the unit of arrays
SLOWEST = 1 - 1e-5  # steps much shorter than a unit hardly contract; later steps of the episode do


@dataclass(frozen=True)
class TimeUnit:
    """The time that one factor of the discount refers to: a number in the units of a numeric column, or a length of time."""

    amount: float
    name: str | None = None  # of `SECONDS`; None for numeric columns

    @classmethod
    def of(cls, value: Any) -> TimeUnit:
        """Return the unit that a user gave: a positive number, or text such as "7 days"."""
        if isinstance(value, TimeUnit):
            return value
        amount, name = value, ""
        if isinstance(value, str):
            parts = TEXT.fullmatch(value)
            amount, name = (parts[1], parts[2].lower()) if parts else ("", "")
            name = name.removesuffix("s")
            amount = _number(amount) if amount else 1.0 if name else None
        if (name and name not in SECONDS) or not is_real(amount) or not 0 < amount < np.inf:
            varies = " Months and years vary in length: use days." if name in ("month", "year") else ""
            raise InvalidInputError(
                "discount_per must be a positive number in the units of the time column or, for dates, a length of time in "
                f'seconds, minutes, hours, days or weeks, such as "7 days"; got {value!r}.{varies}'
            )
        return cls(float(amount), name or None)

    @property
    def seconds(self) -> float | None:
        """The length of time; None for a number in the units of a column."""
        return None if self.name is None else self.amount * SECONDS[self.name]

    @property
    def plain(self) -> float | str:
        """The unit as a number or text that a settings file can hold."""
        return self.amount if self.name is None else str(self)

    def text(self, column: str) -> str:
        """Return the unit in words; ``column`` is the time column."""
        return f"{self} unit{'' if self.amount == 1 else 's'} of {column}" if self.name is None else str(self)

    def __str__(self) -> str:
        amount = f"{self.amount:.15g}"
        return amount if self.name is None else f"{amount} {self.name}{'' if self.amount == 1 else 's'}"


def check_discount_per(value: Any, time: str | None) -> None:
    """Refuse a unit of time that is not one, or that comes without a time column."""
    if value is None:
        return
    TimeUnit.of(value)
    if time is None:
        raise InvalidInputError(
            "discount_per must be given with time: the elapsed time is read from that column. Name the time column."
        )


def discount_unit(batch: Transitions) -> str | None:
    """Return the time that the discount refers to, as text; None if every step counts the same."""
    if batch.elapsed is None:
        return None
    known = None if batch.origin is None else batch.origin.discount_per
    return known or UNNAMED


def step_factors(batch: Transitions, discount: float) -> Floats | None:
    """Return the discount of each step divided by ``discount`` (n,); None if every step lasts one unit, or nothing lies ahead."""
    if batch.elapsed is None or discount == 0:
        return None
    return np.where(batch.elapsed == 1, 1.0, np.power(discount, batch.elapsed - 1))  # exactly 1: plain bytes


def times_factors(values: Floats, factors: Floats | None) -> Floats:
    """Return ``values`` (n,) or (n, m) times the factors of their rows (n,); unchanged without factors."""
    if factors is None:
        return values
    return values * (factors if values.ndim == 1 else factors[:, None])


def largest_discount(batch: Transitions, discount: float) -> float:
    """Return a discount by which every sweep over the batch contracts: that of its shortest step."""
    factors = step_factors(batch, discount)
    if factors is None:
        return discount
    return min(float(discount * factors.max()), max(discount, SLOWEST))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
