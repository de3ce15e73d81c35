"""Scaling of state columns to comparable units, for all methods that measure distances.

The scaling is learned from the batch once and then kept, so that a state always has the same coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.validation import Floats, as_floats, as_states, check_choice
from capi.errors import InvalidInputError

Scale: TypeAlias = Literal["range", "deviation"] | ArrayLike | None


@dataclass(frozen=True, eq=False)
class Scaling:
    """(states - origin) / unit, column by column."""

    origin: Floats  # (d,)
    unit: Floats  # (d,)
    extremes: bool = False  # whether they are the smallest and the largest values of a batch

    def __call__(self, states: ArrayLike) -> Floats:
        """Return the states (n, d) in the learned units; no value may be missing."""
        x = as_states(states, n_features=len(self.unit), allow_nan=False)
        with np.errstate(over="ignore"):
            return (x - self.origin) / self.unit

    def finite(self, states: ArrayLike) -> Floats:
        """Return the states (n, d) in the learned units, or raise an error if they are too large for them."""
        scaled = self(states)
        good = np.isfinite(scaled)
        if not good.all():
            i, j = (int(k) for k in np.unravel_index(int(good.argmin()), good.shape))
            raise InvalidInputError(
                f"states must be finite in the learned units; states[{i}, {j}] = {np.asarray(states)[i, j]:g} is not: "
                f"it is divided by {self.unit[j]:g}. Check the column."
            )
        return scaled


def check_scale(scale: Any, name: str = "scale") -> None:
    """Refuse a scale other than "range", "deviation", a box (2, d) or None."""
    if scale is None:
        return
    if isinstance(scale, str):
        check_choice(scale, name, ("range", "deviation"))
        return
    box = as_floats(scale, name, ndim=2)
    if len(box) != 2 or not (box[0] < box[1]).all():
        raise InvalidInputError(
            f"{name} must be 'range', 'deviation', None, or the lowest and the highest state as an array (2, d); got {scale!r}."
        )


def check_box_scale(scale: Any, name: str = "scale") -> None:
    """Refuse a scale other than "range", a box (2, d) or None: these map the batch to 0..1."""
    check_scale(scale, name)
    if isinstance(scale, str):
        check_choice(scale, name, ("range",))


def learned_scaling(states: Floats, scale: Scale) -> Scaling:
    """Return the scaling that makes the columns of ``states`` (n, d) comparable.

    "range" maps the smallest and the largest value of a column to 0 and 1, "deviation" its mean to 0 and its standard
    deviation to 1, a box (2, d) its two rows to 0 and 1; None changes nothing. A constant column becomes 0.
    """
    check_scale(scale)
    x = as_states(states, allow_nan=False)
    d = x.shape[1]
    if scale is None:
        return Scaling(np.zeros(d), np.ones(d))
    if isinstance(scale, str) and scale == "deviation":
        origin, unit = x.mean(axis=0), x.std(axis=0)
    else:
        low, high = (x.min(axis=0), x.max(axis=0)) if isinstance(scale, str) else as_floats(scale, "scale", ndim=2)
        if len(low) != d:
            raise InvalidInputError(f"scale must have {d} columns, one per feature; got {len(low)}.")
        origin, unit = low, high - low
    varies = unit > 0
    if isinstance(scale, str):
        varies &= x.min(axis=0) < x.max(axis=0)  # rounding can put the deviation of equal numbers slightly above zero
    return Scaling(origin, np.where(varies, unit, 1.0), extremes=isinstance(scale, str) and scale == "range")
