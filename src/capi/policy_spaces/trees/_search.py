"""The Python side of the search for optimal trees: the problem in integers, threads, and early stopping.

The search itself is in `capi.trees._optimal`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from capi._utils.row_ops import row_max
from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints
from capi.policy_spaces._problem import ImprovementProblem, finite_total
from capi.policy_spaces.trees._binned import Binned
from capi.policy_spaces.trees._indicators import Indicators, steps_for, steps_of_tables
from capi.policy_spaces.trees._rooms import NO_LIMIT, room_for
from capi.policy_spaces.trees.greedy import DEEPEST
from capi.trees._optimal import records, search, tables
from capi.trees._optimal.rows import sort_all
from capi.trees.forest import Growth, Tree, grow
from capi.trees.ranks import encode

DIGITS = 48  # binary digits of the sum of all losses: sums of integers up to 2^53 are exact
TIE = 1e-12  # a split that gains less than this share of the total gap is not made
PROVED = 3  # levels of the optimal parts of a tree that is too deep for a proof
POLLING = 0.05  # seconds
WORTH_MERGING = 0.9  # share of the rows that may differ
LOOKED_AT = 1000  # rows, to see whether any are equal
FEW_CUTS = 5  # per column, on average: up to so many, comparing all trees may be faster than a search
STOPPED_BY = {
    records.BY_ITSELF: None,
    records.INTERRUPTED: "interrupt",
    records.BY_NODES: "node_limit",
    records.BY_TIME: "time_limit",
    records.BY_WORK: "work_limit",
}
SEARCHES = {2: search.search_two, 3: search.search_three, 4: search.search_four}  # by depth
Result = TypeVar("Result")
Split: TypeAlias = "tuple[int, int, Split, Split] | None"  # (v, t, left, right); None is a leaf


@dataclass(frozen=True)
class Switches:
    """Optimisations of the search; none of them changes the result."""

    bounds: bool = True
    caching: bool = True
    ordering: int = records.PROMISING
    engine: int = records.BY_COST


@dataclass(frozen=True)
class Limits:
    """Limits on the trees, and on the search."""

    max_depth: int
    min_samples_leaf: int
    leaf_penalty: float
    node_limit: int | None = None
    work_limit: int | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """A tree, its cost, and a lower bound on the cost of the best tree."""

    splits: Split
    cost: float
    bound: float


@dataclass(frozen=True, eq=False)
class Search:
    """One search: the problem in integers, and the flag that stops it."""

    problem: records.Problem
    binned: Binned
    depth: int
    limits: Limits
    exponent: int  # a unit of loss is 2**exponent as an integer
    stop: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    start: Tree | None = None  # on the same columns; the search starts with its cost

    @property
    def stopped_by(self) -> str | None:
        """What stopped the search early, None if it finished."""
        return STOPPED_BY[int(self.stop[0])]

    @classmethod
    def of(
        cls,
        sample: ImprovementProblem,
        binned: Binned,
        limits: Limits,
        weight: float,
        switches: Switches,
        start: Tree | None = None,
    ) -> Search:
        """Return the search for the best tree of a sample whose weights sum to ``weight``."""
        outputs = sample.filled_losses
        total = finite_total(row_max(outputs))
        exponent = DIGITS - int(np.frexp(total)[1])
        half = exponent // 2  # 2**exponent may overflow float64
        losses = np.rint(outputs * 2.0**half * 2.0 ** (exponent - half))
        most = row_max(losses)
        with np.errstate(over="ignore"):
            penalty = float(np.ldexp(limits.leaf_penalty * weight, exponent))
            whole = float(np.ldexp(total, exponent))
        counted = limits.min_samples_leaf > 1
        starts, firsts = _table_starts(binned.n_bins), np.append(0, np.cumsum(binned.n_bins))
        problem = records.Problem(
            binned.codes,
            np.ascontiguousarray(np.column_stack([losses, np.ones(len(losses))]) if counted else losses),
            most,
            np.ones(len(losses), dtype=np.int64),
            np.random.default_rng(0).integers(1, 2**63 - 1, size=len(losses)),
            firsts,
            starts,
            sample.n_actions,
            float(np.rint(min(penalty, whole) + max(1.0, TIE * whole))),
            limits.min_samples_leaf,
            switches.bounds,
            switches.caching,
            switches.ordering,
            switches.engine,
        )
        return cls(problem, binned, limits.max_depth, limits, exponent, start=start)

    def lost_by_thinning(self) -> float:
        """Return by how much less a tree may cost whose cuts lie between the chosen cut points.

        If its cuts are moved to cut points, only rows in the bins of these cuts change sides, and each adds at most its
        largest loss. The tree has one cut per inner node.
        """
        weights = [
            np.bincount(self.binned.codes[:, v], weights=self.problem.most)
            for v, j in enumerate(self.binned.feature)
            if self.binned.thinned[j] and not self.binned.missing_first[v]
        ]
        return float(np.sort(np.concatenate(weights))[::-1][: 2**self.depth - 1].sum()) if weights else 0.0

    def row_losses(self, leaf_of_row: NDArray[Any]) -> Floats:
        """Return the loss of each row in a tree whose leaves take the best actions (n,)."""
        losses = self.problem.losses[:, : self.problem.n_actions]
        best = np.array([np.bincount(leaf_of_row, weights=column) for column in losses.T]).argmin(axis=0)
        lost: Floats = losses[np.arange(len(losses)), best[leaf_of_row]]
        return lost

    def run(self, n_jobs: int) -> Found:
        """Return the best tree."""
        if self.depth == 0:
            leaf = self._leaf_of(np.arange(len(self.problem.codes)))
            return Found(None, leaf, leaf)
        if self.depth > DEEPEST:
            return self._deepened(n_jobs)
        return self._compared(n_jobs) if self._all_can_be_compared() else self._searched(n_jobs)

    def _leaf_of(self, rows: Ints) -> float:
        """Return the cost of a leaf with these rows."""
        return float(self.problem.losses[rows, : self.problem.n_actions].sum(axis=0).min()) + self.problem.penalty

    def _deepened(self, n_jobs: int) -> Found:
        """Return a good tree that is too deep for a proof.

        It is the better one of two: the top of the greedy tree, or of the previous one, with the best trees of depth three
        below it; and the best tree of depth three, with the best trees of the other levels below it.
        """
        known, rows, above = self._incumbent(), np.arange(len(self.problem.codes)), self.depth - PROVED
        one = self._completed(known.splits, above, rows, PROVED, n_jobs)
        other = self._completed(self._part(rows, PROVED).run(n_jobs).splits, PROVED, rows, above, n_jobs)
        best = min((one, other, known), key=lambda found: found.cost)
        return Found(best.splits, best.cost, min(best.cost, 2 * self.problem.penalty))

    def _part(self, rows: Ints, depth: int) -> Search:
        """Return the search for the best tree of some rows."""
        limit = self.limits.work_limit
        limits = replace(self.limits, work_limit=None if limit is None else 1 + limit // 2**self.depth)
        return replace(self._of_rows(rows), depth=depth, limits=limits)

    def _of_rows(self, rows: Ints) -> Search:
        """Return the same search on some of the rows."""
        binned, kept = replace(self.binned, codes=self.binned.codes[rows]), self.problem
        parts = {name: getattr(kept, name)[rows] for name in ("losses", "most", "sizes", "marks")}
        return replace(self, problem=kept._replace(codes=binned.codes, **parts), binned=binned, start=None)

    def _completed(self, splits: Split, levels: int, rows: Ints, depth: int, n_jobs: int) -> Found:
        """Return the first ``levels`` of a tree with the best trees of a ``depth`` below, without splits that gain too little."""
        if levels == 0 or splits is None:
            return self._part(rows, depth).run(n_jobs)
        v, t, *below = splits
        left = self.binned.goes_left(v, t, rows)
        sides = zip(below, (rows[left], rows[~left]), strict=True)
        low, high = (self._completed(part, levels - 1, side, depth, n_jobs) for part, side in sides)
        leaf = self._leaf_of(rows)
        if leaf <= low.cost + high.cost:
            return Found(None, leaf, 0.0)
        return Found((v, t, low.splits, high.splits), low.cost + high.cost, 0.0)

    def _all_can_be_compared(self) -> bool:
        """Return whether comparing all trees is possible, and faster than a search."""
        if self.problem.engine not in (records.BY_COST, records.BY_COLUMNS):
            return False
        n, n_bins, n_actions = len(self.problem.codes), self.binned.n_bins, self.problem.n_actions
        steps = steps_for(n, n_bins, n_actions, self.depth)
        if self.problem.engine == records.BY_COLUMNS:
            return steps < np.inf
        if (n_bins - 1).sum() > FEW_CUTS * len(n_bins):  # bounds skip most cuts of a column with many
            return False
        most = min(steps_of_tables(n, n_bins, n_actions, self.depth), self.limits.work_limit or np.inf)
        return self.depth > 1 and steps < most

    def _compared(self, n_jobs: int) -> Found:
        """Return the best of all trees."""
        indicators = Indicators.of(self.problem, self.binned, self.stop)
        best = indicators.best(self.depth, n_jobs)
        bound = best
        if self.problem.min_leaf > 1 and self.binned.thinned.any():
            bound = indicators.relaxed().best(self.depth, n_jobs)
        if best is not None and bound is not None:
            return Found(*best, bound[1])
        known = self._incumbent()
        return Found(known.splits, known.cost, min(known.cost, 2 * self.problem.penalty))

    def _searched(self, n_jobs: int) -> Found:
        """Return the best tree; threads share the features to try at the root."""
        n = len(self.problem.codes)
        at_once = self._at_once(n)
        known = None if at_once or self._starts_well(n) else self._incumbent()
        least = np.array([np.inf if known is None else known.cost])
        cost, bound, splits = self._merged()._least(n_jobs, least) if self.depth > 1 else self._least(1, least)
        if self.stop[0] != records.BY_ITSELF:
            known = known or self._incumbent()
            if known.cost <= cost:
                return Found(known.splits, known.cost, min(bound, known.cost))
        return Found(splits(), cost, min(bound, cost))

    def _least(self, n_jobs: int, least: Floats) -> tuple[float, float, Callable[[], Split]]:
        """Return the cost of the best tree, a bound, and the tree itself if it is asked for; ``least`` is the cost of a known one."""
        n = len(self.problem.codes)
        rows = np.arange(n, dtype=np.int32)
        at_once = self._at_once(n)
        limits = self.limits.node_limit, self.limits.work_limit
        rooms = [room_for(self.problem, self.depth, limits, least, self.stop) for _ in range(1 if at_once else n_jobs)]

        def tried(v: int) -> tuple[float, int, float, Ints]:
            room = rooms.pop()
            if at_once:
                cost, bound, *room.state.record[0, 0] = at_once(self.problem, room.pairs, rows)
            else:
                cost, bound, _, _ = SEARCHES[self.depth](
                    self.problem, room, 0, 0, n, np.inf, v, room.state.no_bounds[:0]
                )
            record = room.state.record[0].copy()
            rooms.append(room)
            return cost, v, bound, record

        if not at_once:
            orders, codes = self._orders()
            for room in rooms:
                room.scan.orders[0], room.scan.codes[0] = orders, codes
        order = [-1] if at_once or self.depth == 2 else self._order(rooms, n)
        results = in_threads(tried, order, n_jobs)
        cost, _, _, record = min(results, key=lambda result: result[:2])
        bound = min(result[2] for result in results)
        return cost, bound, lambda: self._with_last_level(record, 0, 1, rows, rooms[0])

    def _merged(self) -> Search:
        """Return the same search on rows that differ; each has the losses of all rows that are equal to it."""
        codes, kept = self.problem.codes, self.problem
        if self.binned.n_bins.max() > WORTH_MERGING * len(codes):  # so many rows differ
            return self
        factors = np.random.default_rng(0).integers(1, 2**63, size=codes.shape[1], dtype=np.uint64)
        some = codes[:: 1 + len(codes) // LOOKED_AT].astype(np.uint64) @ factors
        if len(np.unique(some)) == len(some):  # then few rows are equal, if any
            return self
        kind, _ = pd.factorize(codes.astype(np.uint64) @ factors)
        first = np.full(kind.max() + 1, -1)
        first[kind[::-1]] = np.arange(len(kind))[::-1]
        if (
            len(first) > WORTH_MERGING * len(kind) or (codes != codes[first[kind]]).any()
        ):  # or two kinds of rows look alike
            return self
        merged = self._of_rows(first)
        losses = np.stack([np.bincount(kind, weights=column) for column in kept.losses.T], axis=1)
        problem = merged.problem._replace(losses=losses, most=np.bincount(kind, weights=kept.most))
        if kept.min_leaf > 1:
            problem = problem._replace(sizes=np.bincount(kind))
        return replace(merged, problem=problem)

    def _at_once(self, n: int) -> Any:
        """Return the kernel that finds the best tree without a search, if there is one."""
        if self.depth == 2 and tables.by_tables(self.problem, n, self.problem.table_starts[-1, -1]):
            return tables.two_levels_of_rows
        return tables.one_level if self.depth == 1 else None

    def _starts_well(self, n: int) -> bool:
        """Return whether the first cut that is searched gives a good tree in less time than it takes to grow a greedy one."""
        by_tables = bool(tables.by_tables(self.problem, n, self.problem.table_starts[-1, -1]))
        return self.depth == 3 and self.start is None and by_tables

    def _orders(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return all rows in the order of each feature (V, n), and their codes."""
        n, n_features = self.problem.codes.shape
        orders, codes = (np.empty((n_features, n), dtype=np.int32) for _ in range(2))
        ends = np.empty(int(self.binned.n_bins.max()) + 1, dtype=np.int64)
        sort_all(self.problem.codes, self.problem.firsts, ends, orders, codes)
        return orders, codes

    def _order(self, rooms: list[records.Work], n: int) -> list[int]:
        """Return the features in the order of their best trees of depth two; the best of these also shows where to start."""
        known, room = np.zeros(len(self.binned.n_bins)), rooms[0]
        if tables.by_tables(self.problem, n, self.problem.table_starts[-1, -1]):
            _, _, v, t = tables.two_levels_of_rows(self.problem, room.pairs, np.arange(n, dtype=np.int32))
            both = np.where(
                np.isin(np.arange(room.pairs.best.shape[1]), self.problem.firsts[1:] - 1),
                np.inf,
                room.pairs.best[:2].sum(axis=0),
            )
            known = np.minimum.reduceat(both, self.problem.firsts[:-1])
        else:
            least, budget = room.state.least[0], room.state.budget.copy()
            room.state.least[0], room.state.budget["node_limit"], room.state.budget["step_limit"] = (
                np.inf,
                NO_LIMIT,
                NO_LIMIT,
            )
            _, _, v, t = search.search_two(self.problem, room, 0, 0, n, np.inf, -1, known)
            room.state.least[0], room.state.budget[:] = least, budget
        for each in rooms:
            each.state.hint[:] = v, t
        return np.lexsort((np.arange(len(known)), np.arange(len(known)) != v, known)).tolist()

    def _with_last_level(self, record: Ints, i: int, level: int, rows: NDArray[np.int32], room: records.Work) -> Split:
        """Return the tree of a ``record``, with one more level found below its last splits."""
        if level == self.depth and level > 1:
            _, _, v, t = tables.one_level(self.problem, room.pairs, rows)
        else:
            v, t = record[i]
        if v == records.NO_SPLIT:
            return None
        if level == self.depth:
            return int(v), int(t), None, None
        left = self.binned.goes_left(v, t, rows)
        sides = (
            self._with_last_level(record, 2 * i + 1 + k, level + 1, rows[side], room)
            for k, side in enumerate((left, ~left))
        )
        return int(v), int(t), *sides  # type: ignore[return-value]

    def _incumbent(self) -> Found:
        """Return the better one of the greedy tree on the same cut points and the tree to start with."""
        growth = Growth(min_samples_leaf=self.problem.min_leaf, max_depth=self.depth, best_cuts=True, policy=True)
        losses = np.ascontiguousarray(self.problem.losses[:, : self.problem.n_actions])
        tree = grow(encode(self.binned.as_states), losses, growth, np.random.default_rng(0)).trees[0]
        rows = np.arange(len(losses))
        greedy = self._paying(tree, 0, rows, self.depth)
        if self.start is None:
            return greedy
        previous = self._paying(self.start, 0, rows, self.depth)
        return previous if previous.cost < greedy.cost else greedy

    def _paying(self, tree: Tree, number: int, rows: Ints, depth: int) -> Found:
        """Return the subtree below a node of a tree on bin numbers, without the splits that gain too little."""
        leaf, node = self._leaf_of(rows), tree.nodes[number]
        if node["left"] < 0 or depth == 0:
            return Found(None, leaf, 0.0)
        v = int(np.flatnonzero(self.binned.feature == node["feature"])[0])
        t = int(self.binned.n_bins[v]) - 2 if np.isinf(node["threshold"]) else int(node["threshold"])
        if np.isinf(node["threshold"]) and not self.binned.missing_apart:
            return Found(None, leaf, 0.0)
        if node["missing_left"] and self.binned.has_missing[node["feature"]]:
            v, t = v + 1, t + int(self.binned.missing_apart)
        left = self.binned.goes_left(v, t, rows)
        if min(left.sum(), (~left).sum()) < self.problem.min_leaf:
            return Found(None, leaf, 0.0)
        sides = enumerate((left, ~left))
        low, high = (self._paying(tree, int(node["left"]) + k, rows[side], depth - 1) for k, side in sides)
        if leaf <= low.cost + high.cost:
            return Found(None, leaf, 0.0)
        return Found((v, t, low.splits, high.splits), low.cost + high.cost, 0.0)


def on_bins(tree: Tree, states: Floats, binned: Binned) -> Tree:
    """Return a tree on ``states`` (n, d) as a tree on their bin numbers, with each cut moved up to the next cut point."""
    nodes = tree.nodes.copy()
    for i in np.flatnonzero((nodes["left"] >= 0) & np.isfinite(nodes["threshold"])):
        j = int(nodes["feature"][i])
        v = int(np.flatnonzero(binned.feature == j)[0])
        below = binned.codes[states[:, j] <= nodes["threshold"][i], v]
        nodes["threshold"][i] = below.max() if len(below) else -1.0
    return replace(tree, nodes=nodes)


def _table_starts(n_bins: Ints) -> Ints:
    """Return where the table of each pair of features starts (V, V), in cells; the last entry is the number of cells."""
    cells = np.triu(np.outer(n_bins, n_bins), 1).ravel()
    starts: Ints = (np.cumsum(cells) - cells).reshape(len(n_bins), len(n_bins))
    starts[-1, -1] = cells.sum()
    return starts


def interruptibly(work: Callable[[], Result], stop: Ints, time_limit: float | None) -> Result:
    """Run ``work`` in a thread and return its result; Ctrl-C and the time limit only ask it to stop.

    Ctrl-C reaches the main thread alone. If it ends there, searches that other threads have started stop as well.
    """
    outcome: list[Any] = []
    finished = threading.Event()  # after an interrupted join, a running thread may be reported as dead (Python 3.11)

    def done() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # raised below
            outcome.append(error)
        finished.set()

    ends = np.inf if time_limit is None else time.perf_counter() + time_limit
    threading.Thread(target=done, daemon=True).start()
    while not finished.is_set():
        try:
            left = ends - time.perf_counter()
            if left <= 0 and stop[0] == records.BY_ITSELF:
                stop[0] = records.BY_TIME
            if not threading.main_thread().is_alive() and stop[0] == records.BY_ITSELF:
                stop[0] = records.INTERRUPTED
            finished.wait(min(POLLING, left) if left > 0 else POLLING)
        except KeyboardInterrupt:
            if stop[0] == records.INTERRUPTED:  # interrupted again: do not wait
                raise
            stop[0] = records.INTERRUPTED
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    result: Result = outcome[0]
    return result
