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

AT_ONCE = 2**18  # look-ups that a thread makes at a time: for fewer a second thread is not worth its start


class Asked(NamedTuple):
    """The leaves of some points in one forest."""

    points: Ints  # (m,) their numbers, rising
    leaves: Leaves  # (T, m)
    starts: Ints  # (T,) where the leaves of each tree start
    shares: Floats  # (m,) the weight of each point's leaves

    @property
    def size(self) -> int:
        """Number of look-ups."""
        return self.leaves.size

    def in_order(self) -> Asked:
        """Return the same points in the order of their leaves in the first tree: neighbours mostly share leaves in all trees."""
        order = np.argsort(self.leaves[0], kind="stable")
        return Asked(self.points[order], np.take(self.leaves, order, axis=1), self.starts, self.shares[order])


class Lenders(NamedTuple):
    """The leaves that have the cell of an ancestor, and the leaves whose rows are in that cell."""

    borrowers: Ints  # (b,) rising
    low: Ints  # (b,) where the lenders of each start
    high: Ints  # (b,) and end
    lenders: Ints  # leaves with rows, in the order of ``Cells.members``

    def between(self, start: int, end: int) -> Lenders:
        """Return those among the leaves from ``start`` up to ``end``."""
        here = slice(*np.searchsorted(self.borrowers, (start, end)))
        return Lenders(self.borrowers[here], self.low[here], self.high[here], self.lenders)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of all leaves of some forests; leaves are numbered across the forests."""

    forests: Sequence[Forest]
    rows: Sequence[Asked]  # of each forest
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
        asked, n_leaves = [], 0
        for forest, points, of_points in zip(forests, rows, leaves, strict=True):
            asked.append(Asked(points, of_points, n_leaves + forest.leaf_starts[:-1], np.ones(len(points))))
            n_leaves += int(forest.leaf_starts[-1])
        offsets = np.cumsum([0, *(part.size for part in asked)])
        members = np.empty(offsets[-1], dtype=np.int32)
        start, own = np.empty(n_leaves, dtype=np.int64), np.empty(n_leaves, dtype=np.int64)

        def place(tree: _Tree) -> None:
            points, of_trees = asked[tree.forest][:2]
            offset = int(offsets[tree.forest]) + tree.number * len(points)
            here = members[offset : offset + len(points)]
            averages.place_rows(
                tree.left, of_trees[tree.number], points, offset, here, start[tree.leaves], own[tree.leaves]
            )

        in_threads(place, _trees(forests), n_jobs)
        cells = cls(forests, asked, members, start, own, start, start + own, n_rows)
        return cells._bounded(own.astype(np.float64), n_jobs)

    def weighted(self, weights: Floats, n_jobs: int = 1) -> Cells:
        """Return the cells for other ``weights`` (n,) of the rows: a leaf whose rows all have weight 0 takes those of an ancestor."""
        return self._bounded(_to_leaves(self.rows, weights, len(self.start), n_jobs), n_jobs)

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

    @cached_property
    def _borrowed(self) -> Ints:
        """The leaves that have the cell of an ancestor."""
        return np.flatnonzero((self.first != self.start) | (self.end != self.start + self.own))

    @cached_property
    def lenders(self) -> Lenders:
        """The leaves that have the cell of an ancestor, and those whose rows they take."""
        borrowed = self._borrowed
        if len(borrowed) == 0:
            return Lenders(borrowed, borrowed, borrowed, borrowed)
        own = np.flatnonzero(self.own)
        own = own[np.argsort(self.start[own], kind="stable")]
        low, high = (np.searchsorted(self.start[own], bounds[borrowed]) for bounds in (self.first, self.end))
        return Lenders(borrowed, low, high, own)

    @cached_property
    def ordered_rows(self) -> Sequence[Asked]:
        """The rows of each forest, in the order of their leaves."""
        return [part.in_order() for part in self.rows]

    def sums(self, y: Floats, n_jobs: int = 1) -> Floats:
        """Return the sum of ``y`` (n,) over the rows of each cell (l,)."""
        out = _to_leaves(self.rows, y, len(self.start), n_jobs)
        averages.cell_sums(self.members, self.first, self.end, y, self._borrowed, out)
        return out

    def spread(self, x: Floats, n_jobs: int = 1) -> Floats:
        """Return, for each row, the sum of ``x`` (l,) over its cells (n,): the transpose of `sums`."""
        owned = x
        if len(self._borrowed):
            owned = x.copy()
            owned[self._borrowed] = 0.0
        out = _to_points(self.rows, owned, self.n_rows, n_jobs)
        averages.spread_over_cells(self.members, self.first, self.end, x, self._borrowed, out)
        return out

    @property
    def sizes(self) -> Ints:
        """Number of rows of each cell (l,)."""
        return self.end - self.first


@dataclass(frozen=True, eq=False)
class LookUps:
    """The cells that points look up, with their weights: a sparse matrix (points, l)."""

    n_points: int
    asked: Sequence[Asked]

    @classmethod
    def of(cls, n_points: int, asked: Sequence[tuple[Ints, Leaves, Ints, Floats]]) -> LookUps:
        """Return the look-ups of points: each part has their numbers (m,), leaves (T, m), the start of each tree's leaves (T,), and shares (m,)."""
        return cls(n_points, [Asked(*part) for part in asked])

    def __len__(self) -> int:
        return self.n_points

    @property
    def size(self) -> int:
        """Number of look-ups of all points."""
        return sum(part.size for part in self.asked)

    def values(self, of_cells: Floats, n_jobs: int = 1) -> Floats:
        """Return the weighted sum of the values ``of_cells`` (l,) that each point looks up (points,)."""
        return _to_points(self.asked, of_cells, self.n_points, n_jobs)

    def back(self, x: Floats, n_cells: int, n_jobs: int = 1) -> Floats:
        """Return, for each cell, the weighted sum of ``x`` (points,) over the points that look it up (l,): the transpose of `values`."""
        return _to_leaves(self.asked, x, n_cells, n_jobs)

    def members_of_points(self, cells: Cells, n_jobs: int = 1) -> Ints:
        """Return how many rows each point looks at (points,), those that several of its cells share counted several times."""
        counted = [part._replace(shares=np.ones(len(part.points))) for part in self.asked]
        return _to_points(counted, cells.sizes.astype(np.float64), self.n_points, n_jobs).astype(np.int64)

    def compressed(self) -> tuple[Ints, NDArray[np.int32], Floats]:
        """Return the look-ups in compressed rows: where each point's start (points + 1,), their leaves, and weights."""
        widths = np.zeros(self.n_points, dtype=np.int64)
        for part in self.asked:
            widths[part.points] += len(part.leaves)
        pointers = np.append(0, np.cumsum(widths))
        cells, shares = np.empty(pointers[-1], dtype=np.int32), np.empty(pointers[-1])
        filled = pointers[:-1].copy()
        for part in self.asked:
            averages.ask(*part, filled, cells, shares)
        return pointers, cells, shares

    def row_shares(self, cells: Cells, weights: Floats, inverse: Floats, n_jobs: int = 1) -> sparse.csr_array:
        """Return the weight of each row in each point's average (points, n).

        Row j counts ``weights[j]`` (n,) times the ``inverse`` (l,) of each of its cells.
        """
        of_thread = threading.local()
        pointers, leaves, shares = self.compressed()
        bounds = np.empty(len(cells.first), dtype=averages.BOUNDS)
        bounds["first"], bounds["size"], bounds["inverse"] = cells.first, cells.sizes, inverse
        most = np.append(0, np.cumsum(self.members_of_points(cells, n_jobs)))

        def of_points(piece: tuple[int, int]) -> tuple[NDArray[np.int32], Floats, Ints]:
            if not hasattr(of_thread, "marks"):
                of_thread.marks, of_thread.totals = np.full(cells.n_rows, -1, dtype=np.int32), np.zeros(cells.n_rows)
            room = int(most[piece[1]] - most[piece[0]]) + 1  # the kernel writes one entry ahead
            columns, data = np.empty(room, dtype=np.int32), np.empty(room)
            lengths = np.empty(piece[1] - piece[0], dtype=np.int64)
            scratch = of_thread.marks, of_thread.totals
            n = averages.row_shares(
                pointers, leaves, shares, cells.members, bounds, weights, *piece, *scratch, columns, data, lengths
            )
            return columns[:n].copy(), data[:n].copy(), lengths

        parts = in_threads(of_points, _pieces(self.n_points, self.size), n_jobs)
        ends = np.cumsum(np.concatenate([[0], *(lengths for _, _, lengths in parts)]))
        columns, data = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        small = np.int32 if ends[-1] < 2**31 else np.int64
        return sparse.csr_array((data, columns, ends.astype(small)), shape=(self.n_points, cells.n_rows))


@dataclass(frozen=True, eq=False)
class RowShares:
    """Which rows each row's point averages, found once for many weights of the rows: a sparse matrix (n, n) without its numbers."""

    look_ups: tuple[Ints, NDArray[np.int32], Floats]  # compressed, of as many points as there are rows
    pointers: Ints  # (n + 1,)
    columns: NDArray[np.int32]
    starts: Ints  # (n + 1,) where each point starts in the following two, which list the rows of all its cells
    places: NDArray[np.uint32]  # of the row among the point's columns
    cell_of: NDArray[np.uint32]  # the number of the row's cell among the point's cells

    @classmethod
    def of(cls, look_ups: LookUps, cells: Cells, n_jobs: int = 1) -> RowShares:
        """Return the pattern of ``look_ups`` in ``cells``."""
        compressed = look_ups.compressed()
        starts = np.append(0, np.cumsum(look_ups.members_of_points(cells, n_jobs)))
        places, cell_of = np.empty(starts[-1], dtype=np.uint32), np.empty(starts[-1], dtype=np.uint32)

        def of_points(piece: tuple[int, int]) -> tuple[NDArray[np.int32], Ints]:
            mine = slice(*starts[list(piece)])
            columns, lengths = np.empty(len(places[mine]), np.int32), np.empty(piece[1] - piece[0], np.int64)
            marks, results = np.full(cells.n_rows, -1), (columns, lengths, places[mine], cell_of[mine])
            of_cells = cells.members, cells.first, cells.end
            n = averages.place_shares(*compressed[:2], *of_cells, *piece, marks, *results)
            return columns[:n].copy(), lengths

        parts = in_threads(of_points, _pieces(len(look_ups), look_ups.size), n_jobs)
        pointers = np.cumsum(np.concatenate([[0], *(lengths for _, lengths in parts)]))
        columns = np.concatenate([part for part, _ in parts])
        return cls(compressed, pointers, columns, starts, places, cell_of)

    def matrix(self, weights: Floats, inverse: Floats) -> sparse.csr_array:
        """Return the weight of each row in each point's average (n, n), as `LookUps.row_shares` does, for rows and points with weight.

        Row j counts ``weights[j]`` (n,) times the ``inverse`` (l,) of each of its cells. Where the weight is zero, rows and columns are empty.
        """
        room = len(self.columns) + 1  # the kernel writes one entry ahead
        columns, data = np.empty(room, dtype=np.int32), np.empty(room)
        known = self.starts, self.places, self.cell_of, self.pointers, self.columns
        pointers = averages.weigh_shares(*self.look_ups, inverse, weights, *known, columns, data)
        n = pointers[-1]
        small = np.int32 if n < 2**31 else np.int64
        return sparse.csr_array((data[:n], columns[:n], pointers.astype(small)), shape=(len(weights), len(weights)))


def _to_points(parts: Sequence[Asked], values: Floats, n_points: int, n_jobs: int) -> Floats:
    """Return the weighted sum over trees of the ``values`` (l,) of each point's leaves (points,)."""
    out = np.zeros(n_points)

    def of_piece(piece: tuple[int, int]) -> None:
        for part in parts:
            first, end = np.searchsorted(part.points, piece).tolist()
            averages.look_up(part.leaves, part.starts, values, part.points, part.shares, first, end, out)

    in_threads(of_piece, _pieces(n_points, sum(part.size for part in parts)), n_jobs)
    return out


def _to_leaves(parts: Sequence[Asked], x: Floats, n_leaves: int, n_jobs: int) -> Floats:
    """Return the weighted sum of ``x`` (points,) over the points of each leaf (l,)."""
    out = np.zeros(n_leaves)
    given = [part.shares * x[part.points] for part in parts]

    def of_piece(piece: tuple[int, int]) -> None:
        for part, y in zip(parts, given, strict=True):
            averages.look_back(part.leaves, part.starts, *piece, y, out)

    n_trees = max((len(part.leaves) for part in parts), default=0)
    in_threads(of_piece, _pieces(n_trees, sum(part.size for part in parts)), n_jobs)
    return out


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
