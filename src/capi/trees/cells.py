"""The rows that each leaf of kept trees averages, and the averages that points look up there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints
from capi.trees._kernels import averages
from capi.trees.forest import Forest
from capi.trees.predictor import Leaves

AT_ONCE = 2**18  # rows or look-ups that a thread takes at a time: for fewer a second one is not worth its start


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of all leaves of some forests; leaves are numbered across the forests."""

    forests: Sequence[Forest]
    members: NDArray[np.int32]  # the rows of all trees, sorted by leaf
    start: Ints  # (l,) where the rows in each leaf start in ``members``
    own: Ints  # (l,) their number
    first: (
        Ints  # (l,) where each leaf's cell starts: with its rows, or, if they have no weight, with those of an ancestor
    )
    end: Ints  # (l,)
    n_rows: int

    @classmethod
    def of(
        cls, forests: Sequence[Forest], rows: Sequence[Ints], leaves: Sequence[Leaves], n_rows: int, n_jobs: int = 1
    ) -> Cells:
        """Return the cells of ``forests``: forest k averages ``rows[k]`` (m,), which are in the leaves ``leaves[k]`` (T, m)."""
        n_members = np.cumsum([0, *(len(f.trees) * len(r) for f, r in zip(forests, rows, strict=True))])
        n_leaves = sum(int(forest.leaf_starts[-1]) for forest in forests)
        members, start, own = (
            np.empty(n_members[-1], np.int32),
            np.empty(n_leaves, np.int64),
            np.empty(n_leaves, np.int64),
        )

        def place(tree: _Tree) -> None:
            offset = int(n_members[tree.forest]) + tree.number * len(rows[tree.forest])
            here, of_rows = members[offset : offset + len(rows[tree.forest])], leaves[tree.forest][tree.number]
            averages.place_rows(
                tree.left, of_rows, rows[tree.forest], offset, here, start[tree.leaves], own[tree.leaves]
            )

        in_threads(place, _trees(forests), n_jobs)
        return cls(forests, members, start, own, start, start + own, n_rows)._bounded(own.astype(np.float64), n_jobs)

    def weighted(self, weights: Floats, n_jobs: int = 1) -> Cells:
        """Return the cells for other ``weights`` (n,) of the rows: a leaf whose rows all have weight 0 takes those of an ancestor."""
        return self._bounded(replace(self, first=self.start, end=self.start + self.own).sums(weights, n_jobs), n_jobs)

    def _bounded(self, weights: Floats, n_jobs: int) -> Cells:
        """Return the cells if the leaves have ``weights`` (l,)."""
        first, end = np.empty_like(self.start), np.empty_like(self.start)

        def bound(tree: _Tree) -> None:
            here = tree.leaves
            averages.bound_cells(tree.left, self.start[here], self.own[here], weights[here], first[here], end[here])

        in_threads(bound, _trees(self.forests), n_jobs)
        return replace(self, first=first, end=end)

    @cached_property
    def forest_starts(self) -> Ints:
        """Where each forest's leaves start (F + 1,)."""
        return np.cumsum([0, *(forest.leaf_starts[-1] for forest in self.forests)])

    def sums(self, y: Floats, n_jobs: int = 1) -> Floats:
        """Return the sum of ``y`` (n,) over the rows of each cell (l,)."""
        out = np.empty(len(self.first))

        def of_cells(piece: tuple[int, int]) -> None:
            averages.cell_sums(self.members, self.first, self.end, y, *piece, out)

        in_threads(of_cells, _pieces(len(out), len(self.members)), n_jobs)
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

        def of_points(piece: tuple[int, int]) -> None:
            averages.look_up(self.pointers, self.cells, self.shares, of_cells, *piece, out)

        in_threads(of_points, _pieces(len(out), len(self.cells)), n_jobs)
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

        def of_points(piece: tuple[int, int]) -> tuple[NDArray[np.int32], Floats, Ints]:
            if not hasattr(of_thread, "marks"):
                of_thread.marks, of_thread.totals = np.full(cells.n_rows, -1), np.empty(cells.n_rows)
            start, end = piece
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

        parts = in_threads(of_points, _pieces(len(self), len(self.cells)), n_jobs)
        pointers = np.cumsum(np.concatenate([[0], *(lengths for _, _, lengths in parts)]))
        columns, data = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        return sparse.csr_array((data, columns, pointers), shape=(len(self), cells.n_rows))


class _Tree(NamedTuple):
    """One of all trees of some forests."""

    forest: int
    number: int
    left: Ints  # (nodes,) each node's left child, or -1 - the number of its leaf
    leaves: slice  # of the leaves of all forests


def _pieces(n: int, work: int) -> list[tuple[int, int]]:
    """Return the first and the last + 1 of each piece of ``n`` items, all of which take ``work`` steps."""
    size = max(1, n * AT_ONCE // max(1, work))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def _trees(forests: Sequence[Forest]) -> list[_Tree]:
    found, before = [], 0
    for k, forest in enumerate(forests):
        starts = (before + forest.leaf_starts).tolist()
        for t, tree in enumerate(forest.trees):
            left = np.ascontiguousarray(tree.nodes["left"])
            found.append(_Tree(k, t, left, slice(starts[t], starts[t + 1])))
        before = starts[-1]
    return found
