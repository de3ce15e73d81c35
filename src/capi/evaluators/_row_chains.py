"""Gauss-Seidel sweeps over the rows of a batch, whose values depend on those of other rows through a sparse matrix.

A sweep replaces one value after another, and uses those that it has replaced at once: along an episode a value travels through all
rows in one sweep. A large matrix is divided into blocks of rows, which threads sweep side by side: entries of other blocks keep their
old values during a sweep. The blocks depend on the matrix alone, so the number of threads changes no byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.threads import in_threads
from capi._utils.validation import Floats
from capi.trees._kernels.averages import sweep_rows

LARGE = 2**22  # entries; sweeps of a smaller matrix take less than threads are worth
N_BLOCKS = 8


@dataclass(frozen=True, eq=False)
class RowChain:
    """The sweeps of a matrix (n, n), from its first row to its last one or backwards."""

    matrix: Any
    columns: Any  # of the entries; those within their row's block are counted from n
    blocks: list[tuple[int, int]]
    backwards: bool
    n_jobs: int

    @classmethod
    def of(cls, matrix: Any, *, backwards: bool, n_jobs: int = 1) -> RowChain:
        """Return the sweeps of a sparse matrix in compressed rows."""
        n, n_blocks = matrix.shape[0], N_BLOCKS if matrix.nnz >= LARGE else 1
        if n_blocks == 1:
            return cls(matrix, matrix.indices, [(0, n)], backwards, n_jobs)
        edges = np.searchsorted(matrix.indptr, np.linspace(0, matrix.nnz, n_blocks + 1)[1:-1]).tolist()
        blocks = list(zip([0, *edges], [*edges, n], strict=True))
        columns = np.empty_like(matrix.indices)

        def place(block: tuple[int, int]) -> None:
            entries = slice(matrix.indptr[block[0]], matrix.indptr[block[1]])
            given = matrix.indices[entries]
            columns[entries] = given + n * ((given >= block[0]) & (given < block[1]))

        in_threads(place, blocks, n_jobs)
        return cls(matrix, columns, blocks, backwards, n_jobs)

    def __call__(self, constant: Floats, x: Floats) -> Floats:
        """Return a sweep from ``x`` (n,) that adds ``constant`` (n,)."""
        values = np.concatenate([x, x]) if len(self.blocks) > 1 else x.copy()  # the old ones, and those to be replaced
        out = values[-len(x) :] if len(x) else values

        def sweep(block: tuple[int, int]) -> None:
            m = self.matrix
            sweep_rows(m.indptr, self.columns, m.data, constant, self.backwards, *block, values, out)

        in_threads(sweep, self.blocks, self.n_jobs)
        return out
