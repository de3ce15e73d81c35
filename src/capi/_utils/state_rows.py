"""Finitely many states with features: which row of features is which state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.validation import Floats, Ints, as_floats, as_state_index, as_states, check_rows
from capi.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class StateRows:
    """The features (S, d) of finitely many states, all different; immutable."""

    features: Floats

    def __post_init__(self) -> None:
        rows = as_floats(self.features, "features", ndim=2) + 0.0  # a copy, without negative zeros
        rows.flags.writeable = False
        object.__setattr__(self, "features", rows)
        if len(self._numbers) < len(rows):
            first = next(s for s, row in enumerate(rows) if self._numbers[row.tobytes()] != s)
            raise InvalidInputError(
                f"features must differ between states; states {first} and {self._numbers[rows[first].tobytes()]} have the "
                "same ones. Add a feature, or merge these states."
            )

    @classmethod
    def of(cls, features: ArrayLike, n_states: int) -> StateRows:
        """Return the features of ``n_states`` states."""
        rows = as_floats(features, "features", ndim=2)
        if len(rows) != n_states:
            raise InvalidInputError(f"features must have one row per state, {n_states}; got {len(rows)}.")
        return cls(rows)

    @cached_property
    def _numbers(self) -> Mapping[bytes, int]:
        return {row.tobytes(): s for s, row in enumerate(self.features)}

    def index(self, states: ArrayLike) -> Ints:
        """Return the numbers (n,) of the states with the features ``states`` (n, d)."""
        if states is self.features:
            return np.arange(len(self.features))
        x = as_states(states, n_features=self.features.shape[1], allow_nan=False) + 0.0
        found = np.array([self._numbers.get(row.tobytes(), -1) for row in np.ascontiguousarray(x)], dtype=np.int64)
        check_rows(found >= 0, x, "states", "must be rows of the model's features")
        return found


def state_index(states: ArrayLike, n_states: int, rows: StateRows | None) -> Ints:
    """Return the numbers (n,) of ``states``, which are rows of features or, without ``rows``, a column of numbers."""
    return as_state_index(states, n_states) if rows is None else rows.index(states)
