"""Products with the matrices by which kept trees average rows, and points look up averages, one after the other.

A product goes tree by tree: the sums in a tree's leaves are used as soon as they are known and are never stored, so they stay in
the processor's cache. Rows and points are sorted by their leaves in the first tree, so neighbours mostly share leaves in all trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints
from capi.trees._kernels import leaf_tables
from capi.trees.cells import AT_ONCE, Asked, Cells, Lenders, LookUps

HALVES = 2  # of the trees of a forest, summed independently: work for two threads, with sums in the same order for any number


class _InForest(NamedTuple):
    """The rows of a forest, and the points that look it up."""

    ends: Ints  # (T + 1,) where each tree's leaves start, and the end of the last one's
    rows: Sequence[Asked]  # one
    asked: Sequence[Asked]

    @property
    def work(self) -> int:
        return sum(part.size for part in (*self.rows, *self.asked))


@dataclass(frozen=True, eq=False)
class LeafProducts:
    """The products of `LookUps.values` after `Cells.sums`, and of `Cells.spread` after `LookUps.back`, without storing the leaves in between."""

    forests: Sequence[_InForest]  # the one with most work first
    lenders: Lenders
    n_rows: int
    n_points: int
    _free: list[Floats] = field(default_factory=list, repr=False)  # tables to use again

    @classmethod
    def of(cls, cells: Cells, look_ups: LookUps) -> LeafProducts:
        """Return the products of ``look_ups`` in ``cells``."""
        asked: list[list[Asked]] = [[] for _ in cells.forests]
        for part in look_ups.asked:
            forest = np.searchsorted(cells.forest_starts, part.starts[0], side="right") - 1
            asked[forest].append(part.in_order())
        ends = cells.forest_starts[1:]
        forests = [
            _InForest(np.append(rows.starts, end), [rows], parts)
            for rows, end, parts in zip(cells.ordered_rows, ends, asked, strict=True)
            if parts
        ]
        forests.sort(key=lambda forest: -forest.work)
        return cls(forests, cells.lenders, cells.n_rows, len(look_ups))

    def ahead(self, y: Floats, of_leaves: Floats, n_jobs: int = 1) -> Floats:
        """Return what each point looks up (points,), if each leaf has the sum of ``y`` (n,) over its cell times ``of_leaves`` (l,)."""
        return self._product(y, of_leaves, n_jobs, back=False)

    def back(self, x: Floats, of_leaves: Floats, n_jobs: int = 1) -> Floats:
        """Return the transpose of `ahead` (n,) times ``x`` (points,)."""
        return self._product(x, of_leaves, n_jobs, back=True)

    def _product(self, given: Floats, of_leaves: Floats, n_jobs: int, *, back: bool) -> Floats:
        tasks = [(forest, half) for forest in self.forests for half in range(HALVES)]
        work = sum(forest.work for forest in self.forests)
        threads = n_jobs if work > AT_ONCE else 1
        sources = [forest.asked if back else forest.rows for forest in self.forests]
        targets = [forest.rows if back else forest.asked for forest in self.forests]
        taken = in_threads(lambda parts: [_taken(given, part) for part in parts], sources, threads)
        sums = [[np.zeros((HALVES, len(part.points))) for part in parts] for parts in targets]

        def run(task: int) -> None:
            k, half = divmod(task, HALVES)
            tables = self._free.pop() if self._free else np.empty((leaf_tables.TREES, self._widest))
            ends = self.forests[k].ends
            for first, end in _groups(len(ends) - 1, half):
                tables[:, : np.diff(ends[first : end + 1]).max()] = 0.0
                for part, y in zip(sources[k], taken[k], strict=True):
                    leaf_tables.to_tables(part.leaves, first, end, y, tables)
                if not back:
                    self._lend(leaf_tables.borrow, ends[first : end + 1], tables)
                leaf_tables.scale(of_leaves, ends, first, end, tables)
                if back:
                    self._lend(leaf_tables.give_back, ends[first : end + 1], tables)
                for part, out in zip(targets[k], sums[k], strict=True):
                    leaf_tables.from_tables(part.leaves, first, end, tables, out[half])
            self._free.append(tables)

        in_threads(run, range(len(tasks)), threads)
        out = np.zeros(self.n_rows if back else self.n_points)
        for parts, of_parts in zip(targets, sums, strict=True):
            for part, of_part in zip(parts, of_parts, strict=True):
                leaf_tables.put(of_part, part.points, part.shares, out)
        return out

    def _lend(self, how: Callable[..., None], ends: Ints, tables: Floats) -> None:
        """Let leaves without rows of their own borrow, or give back, in the tables of the trees whose leaves start at ``ends``."""
        if len(self.lenders.borrowers):
            for table, start, end in zip(tables, ends[:-1].tolist(), ends[1:].tolist(), strict=False):
                how(*self.lenders.between(start, end), start, table)

    @property
    def _widest(self) -> int:
        return max(int(np.diff(forest.ends).max()) for forest in self.forests)


def _taken(x: Floats, part: Asked) -> Floats:
    out = np.empty(len(part.points))
    leaf_tables.take(x, part.points, part.shares, out)
    return out


def _groups(n_trees: int, half: int) -> list[tuple[int, int]]:
    """Return the first and the last + 1 of each group of trees that are processed together, in one half of the forest."""
    groups = [(first, min(first + leaf_tables.TREES, n_trees)) for first in range(0, n_trees, leaf_tables.TREES)]
    middle = (len(groups) + 1) // HALVES
    return groups[middle:] if half else groups[:middle]
