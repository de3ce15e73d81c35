"""States encoded as ranks, shared by all trees of a forest and all forests on the same states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capi._utils.threads import in_threads
from capi._utils.validation import Bools, Floats, Ints
from capi.errors import InvalidInputError
from capi.trees._kernels.plain import LANES
from capi.trees._kernels.ranks import WINDOW, distinct, first_of_cells, rank
from capi.trees._kernels.records import Features
from capi.trees.projections import Projections

MOST_FEATURES = 2**15 - 1  # a node has 15 bits for its feature
MANY = 20_000  # rows from which threads are worth their cost
ROWS_AT_ONCE = 8192  # their codes and a tree fit into the cache
VALUES_A_CELL = 2  # of the grid, on average


@dataclass(frozen=True, eq=False)
class EncodedStates:
    """States as ranks, which compare like the values but take a quarter or half of the memory.

    A code takes 16 bits if no feature has more than 65,535 values, otherwise 32; the largest code is a missing value.
    """

    words: NDArray[np.uint64]  # (n, W), 64 // bits codes in each, padded to whole groups of lanes
    values: Floats  # the distinct values of each feature, ascending and padded; all features concatenated
    value_starts: Ints  # (d + 1,) where each feature's values start
    grid: NDArray[np.int32]  # (d, G + 1) the first code in each of G equal cells of a feature's range, for finding cuts
    scales: Floats  # (d,) cells per unit
    has_missing: Bools  # (d,)
    bits: int
    projections: Projections | None = None  # by which some of the features follow from the states

    @property
    def n_rows(self) -> int:
        """Number of states, n."""
        return len(self.words)

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return len(self.has_missing)

    @property
    def features(self) -> Features:
        """The meaning of the codes, in the form that the kernels take."""
        return Features(self.values, self.value_starts, self.grid, self.scales, self.has_missing, self.bits)


def encode(
    inputs: Floats, n_jobs: int = 1, *, narrow: bool = True, projections: Projections | None = None
) -> EncodedStates:
    """Return the ranks of ``inputs`` (n, d), column by column; in 16 bits if they fit and ``narrow`` is True.

    Values are finite or missing. The combinations of ``projections`` are encoded beside the columns.
    """
    states = inputs if projections is None else projections.beside(inputs)
    if states.shape[1] > MOST_FEATURES:
        raise InvalidInputError(
            f"trees take at most {MOST_FEATURES} features; got {states.shape[1]}. Select or combine features."
        )
    n_cells = min(max(len(states) // VALUES_A_CELL, 1), 2**20)
    threads = n_jobs if len(states) >= MANY else 1
    columns = in_threads(lambda column: _encode_column(column, n_cells), list(states.T), threads)
    bits = 16 if narrow and max(column.n_values for column in columns) < 2**16 else 32
    n_lanes = -(-len(columns) // LANES) * LANES
    codes = np.zeros((len(states), n_lanes), dtype=np.uint16 if bits == 16 else np.uint32)

    def put_together(first: int) -> None:
        rows = slice(first, first + ROWS_AT_ONCE)
        for j, column in enumerate(columns):
            codes[rows, j] = column.codes[rows]  # the code of missing values is the largest in either width

    in_threads(put_together, range(0, len(states), ROWS_AT_ONCE), threads)
    words = codes.view(np.uint64)
    return EncodedStates(
        words,
        np.concatenate([column.values for column in columns]),
        np.cumsum([0, *(len(column.values) for column in columns)]),
        np.stack([column.grid for column in columns]),
        np.array([column.scale for column in columns]),
        np.array([column.has_missing for column in columns]),
        bits,
        projections,
    )


def cells_of(values: Floats, n_cells: int) -> tuple[NDArray[np.int32], float]:
    """Return the first code in each cell of the range (G + 1,), and the number of cells per unit."""
    span = float(values[-1]) - float(values[0]) if len(values) else 0.0
    scale = (n_cells - 0.5) / span if 0 < span < np.inf else 0.0  # puts the largest value into the last cell
    if not 0 < scale < np.inf:
        return np.array([0] + [len(values)] * n_cells, dtype=np.int32), 0.0
    grid = np.empty(n_cells + 1, dtype=np.int32)
    first_of_cells(values, scale, grid)
    return grid, scale


class _Column(NamedTuple):
    """One feature of `EncodedStates`, before the codes are packed into words."""

    codes: NDArray[np.uint32]  # (n,)
    values: Floats
    n_values: int
    has_missing: bool
    grid: NDArray[np.int32]
    scale: float


def _encode_column(states: Floats, n_cells: int) -> _Column:
    column = states + 0.0  # turns -0.0 into 0.0
    ordered, values = np.sort(column), np.empty(len(column) + WINDOW)
    n_values = distinct(ordered, values)
    values[n_values : n_values + WINDOW] = np.inf
    grid, scale = cells_of(values[:n_values], n_cells)
    codes = np.empty(len(column), dtype=np.uint32)
    rank(column, values, scale, grid, codes)
    has_missing = bool(np.isnan(ordered[-1:]).any())
    return _Column(codes, values[: n_values + WINDOW], n_values, has_missing, grid, scale)
