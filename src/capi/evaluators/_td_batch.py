"""Batches in the form that the temporal-difference kernels need: contiguous rows, in a new random order for each pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from capi._utils.validation import Floats, Ints
from capi.errors import InvalidInputError
from capi.evaluators import _td_kernels
from capi.evaluators._means import ENTRIES_AT_ONCE
from capi.features.tables import FittedFeatures

MOST_HELD = 2**24  # entries of the largest feature table that is kept for all passes of an evaluation: 128 MiB
ENTRIES_IN_CACHE = 2**17  # entries of a block of such a table
MOST_ROWS = 2**13  # rows of a block
ROWS_LOOKED_AT = 1000  # rows used to estimate the entries per row of a sparse table


@dataclass(frozen=True, eq=False)
class Tables:
    """The features of a batch: kept for all passes if there is room, otherwise computed in blocks in each pass."""

    fitted: FittedFeatures
    states: Floats  # (n, d)
    next_states: Floats  # (n, d)
    held: tuple[_td_kernels.Table, _td_kernels.Table] | None
    rows_at_once: int

    @classmethod
    def of(cls, fitted: FittedFeatures, states: Floats, next_states: Floats) -> Tables:
        """Return the features of ``states`` and ``next_states`` (n, d)."""
        looked_at: Any = fitted(states[:ROWS_LOOKED_AT])
        row_size = max(1, looked_at.nnz // looked_at.shape[0] if fitted.sparse else fitted.n_columns)  # entries
        fits = row_size * len(states) <= MOST_HELD
        held = (_as_table(fitted(states)), _as_table(fitted(next_states))) if fits else None
        at_once = (ENTRIES_AT_ONCE if held is None else ENTRIES_IN_CACHE) // row_size
        return cls(fitted, states, next_states, held, min(max(at_once, 64), MOST_ROWS))

    @property
    def width(self) -> np.uint64:
        """Number of contiguous entries of a row: all of a dense row, one of a sparse row."""
        return np.uint64(1 if self.fitted.sparse else self.fitted.n_columns)

    def of_rows(self, rows: Ints) -> tuple[_td_kernels.Table, _td_kernels.Table]:
        """Return the features of the states and of the next states of some rows."""
        if self.held is not None:
            return _chosen(self.held[0], rows), _chosen(self.held[1], rows)
        now, following = (self.fitted.of_rows(x, rows) for x in (self.states, self.next_states))
        return _as_table(now), _as_table(following)

    def mean_square(self, weight: Floats) -> float:
        """Return the mean squared length of the features of the states, by ``weight`` (n,); one if all are zero."""
        squares = np.empty(len(weight))
        if self.held is not None:
            _td_kernels.squared_lengths(self.held[0].data, self.held[0].starts, squares)
        else:
            for rows in _blocks(np.arange(len(weight)), self.rows_at_once):
                table = _as_table(self.fitted.of_rows(self.states, rows))
                _td_kernels.squared_lengths(table.data, table.starts, squares[rows[0] : rows[-1] + 1])
        mean = float(weight @ squares) / float(weight.sum())
        if not np.isfinite(mean):
            raise InvalidInputError(
                "features(states) must have finite squares; some overflow. Scale the features down."
            )
        return mean or 1.0


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch in the form that the kernel needs."""

    rows: _td_kernels.Rows  # all rows
    tables: Tables
    starts: Ints  # (m,) first rows of the segments that are shuffled
    lengths: Ints  # (m,)
    unit: float  # mean squared length of the features

    @property
    def n_steps(self) -> int:
        """Number of steps in a pass."""
        return int(self.lengths.sum())

    def blocks(
        self, rng: np.random.Generator
    ) -> Iterator[tuple[slice, tuple[_td_kernels.Table, _td_kernels.Table, _td_kernels.Rows]]]:
        """Yield the steps of a pass in blocks, with their rows copied together: random access is slow."""
        start = 0
        for chosen in _blocks(self._order(rng), self.tables.rows_at_once):
            rows = _td_kernels.Rows._make(column.take(chosen, axis=0) for column in self.rows)
            yield slice(start, start + len(chosen)), (*self.tables.of_rows(chosen), rows)
            start += len(chosen)

    def _order(self, rng: np.random.Generator) -> Ints:
        """Return the row numbers with the segments in random order; rows within a segment stay in order of time."""
        chosen = rng.permutation(len(self.starts))
        lengths = self.lengths[chosen]
        first = np.cumsum(lengths) - lengths  # new position of each segment
        return np.repeat(self.starts[chosen] - first, lengths) + np.arange(self.n_steps)


def _blocks(order: Ints, size: int) -> Iterator[Ints]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def memory_from(weights: Floats) -> _td_kernels.Memory:
    """Return the kernel's memory, with ``weights`` (A p,) as the initial weights."""
    size = len(weights)
    return _td_kernels.Memory(
        theta=weights.copy(),
        drift=np.zeros(size),
        second=np.zeros(size),
        factor=np.ones(1),
        trace=np.zeros(size),
        listed=np.zeros(size, dtype=bool),
        active=np.zeros(size, dtype=np.uint64),
        n_active=np.zeros(1, dtype=np.uint64),
    )


def _as_table(table: Any) -> _td_kernels.Table:
    """Return features (n, p) in the form that the kernel needs, as copies."""
    if sp.issparse(table):
        if not table.has_canonical_format:
            table = table.copy()
            table.sum_duplicates()
        return _td_kernels.Table(table.data.copy(), table.indices.astype(np.uint64), table.indptr.astype(np.uint64))
    n, p = table.shape
    starts = np.arange(n + 1, dtype=np.uint64) * np.uint64(p)
    return _td_kernels.Table(table.flatten(), np.zeros(0, dtype=np.uint64), starts)


def _chosen(table: _td_kernels.Table, rows: Ints) -> _td_kernels.Table:
    """Return the features of some rows as one contiguous table."""
    size = int((table.starts[rows + 1] - table.starts[rows]).sum())
    columns = np.empty(size if len(table.columns) else 0, dtype=np.uint64)
    found = _td_kernels.Table(np.empty(size), columns, np.zeros(len(rows) + 1, dtype=np.uint64))
    _td_kernels.gather(*table, rows, *found)
    return found
