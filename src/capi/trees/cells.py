"""The rows that each leaf of kept trees averages, and the averages that points look up there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints
from capi.trees._kernels import averages
from capi.trees.forest import Forest
from capi.trees.predictor import Leaves

POINTS_AT_ONCE = 4096
CELLS_AT_ONCE = 2**16


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of all leaves of some forests; leaves are numbered across the forests."""

    forest_starts: Ints  # (F + 1,) where each forest's leaves start
    members: NDArray[np.int32]  # the rows of all trees, sorted by leaf
    first: Ints  # (l,) where each leaf's cell starts in ``members``
    end: Ints  # (l,)
    n_rows: int

    @classmethod
    def of(
        cls, forests: Sequence[Forest], rows: Sequence[Ints], leaves: Sequence[Leaves], n_rows: int, n_jobs: int = 1
    ) -> Cells:
        """Return the cells of ``forests``: forest k averages ``rows[k]`` (m,), which are in the leaves ``leaves[k]`` (T, m)."""
        forest_starts = np.cumsum([0, *(forest.leaf_starts[-1] for forest in forests)])
        n_members = np.cumsum([0, *(len(f.trees) * len(r) for f, r in zip(forests, rows, strict=True))])
        members = np.empty(n_members[-1], dtype=np.int32)
        first, end = np.empty(forest_starts[-1], dtype=np.int64), np.empty(forest_starts[-1], dtype=np.int64)

        def place(tree: tuple[int, int]) -> None:
            k, t = tree
            offset = int(n_members[k]) + t * len(rows[k])
            of_leaf = slice(
                forest_starts[k] + forests[k].leaf_starts[t], forest_starts[k] + forests[k].leaf_starts[t + 1]
            )
            left = np.ascontiguousarray(forests[k].trees[t].nodes["left"])
            here = members[offset : offset + len(rows[k])]
            averages.place_rows(left, leaves[k][t], rows[k], offset, here, first[of_leaf], end[of_leaf])

        in_threads(place, [(k, t) for k, forest in enumerate(forests) for t in range(len(forest.trees))], n_jobs)
        return cls(forest_starts, members, first, end, n_rows)

    def sums(self, y: Floats, n_jobs: int = 1) -> Floats:
        """Return the sum of ``y`` (n,) over the rows of each cell (l,)."""
        out = np.empty(len(self.first))

        def of_cells(start: int) -> None:
            averages.cell_sums(self.members, self.first, self.end, y, start, min(start + CELLS_AT_ONCE, len(out)), out)

        in_threads(of_cells, range(0, len(out), CELLS_AT_ONCE), n_jobs)
        return out

    def spread(self, x: Floats) -> Floats:
        """Return, for each row, the sum of ``x`` (l,) over its cells (n,): the transpose of `sums`."""
        out = np.zeros(self.n_rows)
        averages.spread_over_cells(self.members, self.first, self.end, x, out)
        return out

    @property
    def sizes(self) -> Ints:
        """Number of rows of each cell (l,)."""
        return self.end - self.first


@dataclass(frozen=True, eq=False)
class LookUps:
    """The cells that points look up, with their weights: a sparse matrix (points, l)."""

    pointers: Ints  # (points + 1,)
    cells: NDArray[np.int32]
    shares: Floats

    @classmethod
    def of(cls, n_points: int, asked: Sequence[tuple[Ints, Leaves, Ints, Floats]]) -> LookUps:
        """Return the look-ups of points: each part has their numbers (m,), leaves (T, m), the start of each tree's leaves (T,), and shares (m,)."""
        widths = np.zeros(n_points, dtype=np.int64)
        for points, leaves, _, _ in asked:
            widths[points] += len(leaves)
        pointers = np.append(0, np.cumsum(widths))
        cells, shares = np.empty(pointers[-1], dtype=np.int32), np.empty(pointers[-1])
        filled = np.zeros(n_points, dtype=np.int64)
        for points, leaves, starts, share in asked:
            averages.ask(pointers, points, leaves, starts, share, filled, cells, shares)
        return cls(pointers, cells, shares)

    def __len__(self) -> int:
        return len(self.pointers) - 1

    def values(self, of_cells: Floats, n_jobs: int = 1) -> Floats:
        """Return the weighted sum of the values ``of_cells`` (l,) that each point looks up (points,)."""
        out = np.empty(len(self))

        def of_points(start: int) -> None:
            end = min(start + POINTS_AT_ONCE, len(out))
            averages.look_up(self.pointers, self.cells, self.shares, of_cells, start, end, out)

        in_threads(of_points, range(0, len(out), POINTS_AT_ONCE), n_jobs)
        return out

    def back(self, x: Floats, n_cells: int) -> Floats:
        """Return, for each cell, the weighted sum of ``x`` (points,) over the points that look it up (l,): the transpose of `values`."""
        out = np.zeros(n_cells)
        averages.look_back(self.pointers, self.cells, self.shares, x, out)
        return out

    def n_members(self, cells: Cells) -> int:
        """Return how many rows all points look at, those that several cells share counted several times."""
        return int(cells.sizes[self.cells].sum())

    def row_shares(self, cells: Cells, weights: Floats, inverse: Floats, n_jobs: int = 1) -> sparse.csr_array:
        """Return the weight of each row in each point's average (points, n).

        Row j counts ``weights[j]`` (n,) times the ``inverse`` (l,) of each of its cells.
        """
        of_thread = threading.local()

        def of_points(start: int) -> tuple[NDArray[np.int32], Floats, Ints]:
            if not hasattr(of_thread, "marks"):
                of_thread.marks, of_thread.totals = np.full(cells.n_rows, -1), np.empty(cells.n_rows)
            end = min(start + POINTS_AT_ONCE, len(self))
            most = int(cells.sizes[self.cells[self.pointers[start] : self.pointers[end]]].sum())
            columns, data, lengths = (
                np.empty(most, dtype=np.int32),
                np.empty(most),
                np.empty(end - start, dtype=np.int64),
            )
            n = averages.row_shares(
                self.pointers,
                self.cells,
                self.shares,
                cells.members,
                cells.first,
                cells.end,
                inverse,
                weights,
                start,
                end,
                of_thread.marks,
                of_thread.totals,
                columns,
                data,
                lengths,
            )
            return columns[:n].copy(), data[:n].copy(), lengths

        parts = in_threads(of_points, range(0, len(self), POINTS_AT_ONCE), n_jobs)
        pointers = np.cumsum(np.concatenate([[0], *(lengths for _, _, lengths in parts)]))
        columns, data = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        return sparse.csr_array((data, columns, pointers), shape=(len(self), cells.n_rows))
