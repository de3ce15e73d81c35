"""Reductions over the short rows of (n, A) tables.

numpy takes the maximum over the last axis row by row, which for a handful of actions takes about ten times as long as
a loop over the columns: 4.4 ms against 0.4 ms for 100,000 rows of 4. Sums with einsum are three times faster, too.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Floats, Ints

Entry = TypeVar("Entry", bound=np.generic)


def row_max(table: Floats) -> Floats:
    """Return the largest entry of each row (n,)."""
    best = table[:, 0].copy()
    for column in table.T[1:]:
        np.maximum(best, column, out=best)
    return best


def first_column(table: Floats, entries: Floats) -> Ints:
    """Return the first column of each row that equals its entry of ``entries`` (n,) -> (n,); every row must contain it."""
    differs = table[:, 0] != entries
    columns = differs.astype(np.int64)
    for column in table.T[1:-1]:
        differs &= column != entries
        columns += differs
    return columns


def row_sum(table: Floats, factors: NDArray[np.float64]) -> Floats:
    """Return the sum of each row of ``table * factors`` (n,)."""
    return np.einsum("ij,ij->i", table, factors)


def chosen_entries(table: NDArray[Entry], columns: Ints) -> NDArray[Entry]:
    """Return the entry of each row in the given column (n,)."""
    return table[np.arange(len(table)), columns]


def draw_columns(probabilities: Floats, rng: np.random.Generator) -> Ints:
    """Draw a column for each row from the row's probabilities (n, A) -> (n,)."""
    upto = np.cumsum(probabilities, axis=1)
    target = rng.random(len(upto)) * upto[:, -1]
    return (upto > target[:, None]).argmax(axis=1)
