"""Policies that are the best of all small decision trees."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capi._utils.row_ops import row_max
from capi._utils.threads import in_threads, n_threads
from capi._utils.validation import Bools, Floats, Ints, as_int, as_not_negative, as_positive, as_weights
from capi.errors import InvalidInput
from capi.policies import first_allowed
from capi.policy_spaces._monotone import check_monotone, monotone_actions
from capi.policy_spaces.trees.greedy import DEEPEST, MOST_CUTS, RegretSample, TreePolicy, ranked, with_readable_cuts
from capi.trees import _optimal
from capi.trees._kernels.records import NODE
from capi.trees.forest import Growth, Tree, grow
from capi.trees.ranks import encode
from capi.types import Policy, QFunction

MOST_BINS = 2**16 - 3
MOST_FEATURES = 2**14 - 1  # one with missing values counts twice
DIGITS = 48  # binary ones of the sum of all losses: sums of whole numbers up to 2^53 are exact
TIE = 1e-12  # a split that gains less than this share of the total gap does not pay
TABLES = 2**22  # numbers in the tables of a thread: 32 MB twice
SLOTS = 2**16  # of the cache
POLLING = 0.05  # seconds
STOPPED_BY = {
    _optimal.BY_ITSELF: None,
    _optimal.INTERRUPTED: "interrupt",
    _optimal.BY_NODES: "node_limit",
    _optimal.BY_TIME: "time_limit",
}
SEARCHES = {2: _optimal.search_two, 3: _optimal.search_three, 4: _optimal.search_four}  # by depth
Split: TypeAlias = "tuple[int, int, Split, Split] | None"  # (v, t, left, right); None is a leaf


@dataclass(frozen=True, eq=False)
class OptimalTreePolicy(TreePolicy):
    """A decision tree of which is known how much better the best one of its depth can be.

    ``optimal`` says that it is the best one, ``remaining_gap`` by how much its mean loss (and penalty) may exceed that of the best one,
    ``stopped_by`` what ended the search early: "time_limit", "node_limit" or "interrupt". ``thinned`` (d,) are the features that have
    more values than they were given cut points: there may be better cuts in between.
    """

    max_depth: int = 1
    optimal: bool = False
    remaining_gap: float = 0.0
    stopped_by: str | None = None
    thinned: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool), repr=False)  # (d,)

    def remarks(self) -> list[str]:
        """Return what a reader of the rules should know: whether they are optimal, and among which trees."""
        names = self.schema.feature_names if self.schema else tuple(f"x{j}" for j in range(self.n_features))
        thinned = ", ".join(str(name) for name, thin in zip(names, self.thinned, strict=True) if thin)
        where = f" on the chosen quantiles of {thinned}" if thinned else ""
        if self.optimal:
            return [f"(optimal: no tree of depth {self.max_depth}{where} loses less)"]
        why = (
            f"stopped by {self.stopped_by}"
            if self.stopped_by
            else "learned with masks"
            if self.masked
            else "made monotone"
        )
        return [
            f"({why}: a tree of depth {self.max_depth}{where} may lose up to {self.remaining_gap:.3g} less a state)"
        ]


@dataclass(frozen=True)
class OptimalTrees:
    """The decision tree with the least gap-weighted loss of all trees of a depth, with a proof.

    Greedy growth (`Trees`) takes the best split at each node without looking at what can follow; here all trees whose splits lie on
    the given cut points are compared, by tables of pairs of features for the last two levels and by branch and bound above them. The
    objective is that of R's ``policytree`` and of STreeD's cost-sensitive task. Among trees with the same
    loss the one with the fewest leaves is returned, then that with the lowest first feature and cut, and so on below. States may have missing
    values: each split sends them to the better side.

    Losses are rounded to 2^-48 of their sum, so that all sums are exact and the tree depends on nothing but the sample; a split that
    gains less than 1e-12 of the sum of all gaps does not pay.

    A search that was cut short returns the best tree found, which is never worse than the greedy one on the same cut points, with
    ``optimal`` False and the ``remaining_gap``. With masks of allowed actions the search minimises a stand-in (an action
    that a state does not allow counts as the mean of those it does), so ``optimal`` is False then too.

    Parameters
    ----------
    max_depth : int
        Levels of splits, 1 to 4.
    n_thresholds : int, optional
        Cut points a feature. None is all between neighbouring values if they are at most 255, else 255 quantiles. The
        policy says which features have more values than cut points (``thinned``).
    min_samples_leaf : int
        A leaf has at least this many states.
    leaf_penalty : float
        What a leaf costs, in units of the mean loss of a state: a split must lower the mean loss by more than that.
    time_limit : float, optional
        Seconds after which the search stops. What it has found by then depends on the machine.
    node_limit : int, optional
        Sub-problems (sides of cuts) after which the search stops; the result can be reproduced. One thread works then.
    n_jobs : int, optional
        Threads; -1 is all cores, None is one. The policy does not depend on it.
    monotone : mapping from columns to 1 or -1, optional
        Columns as which rise the action's number never falls (1) or never rises (-1). The tree is searched without, and then its leaves get
        the actions that lose the least of all that keep the order; ``optimal`` is False if that costs anything. Not with masks.

    Examples
    --------
    >>> states = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> exclusive_or = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> print(OptimalTrees(max_depth=2).improve(states, exclusive_or).rules())
    if x0 <= 0.5:
      if x1 <= 0.5:
        0  (1 state, regret 0)
      else:
        1  (1 state, regret 0)
    else:
      if x1 <= 0.5:
        1  (1 state, regret 0)
      else:
        0  (1 state, regret 0)
    (optimal: no tree of depth 2 loses less)
    """

    max_depth: int = 3
    n_thresholds: int | None = None
    min_samples_leaf: int = 1
    leaf_penalty: float = 0.0
    time_limit: float | None = None
    node_limit: int | None = None
    n_jobs: int | None = None
    monotone: Mapping[int, int] | None = None

    def __post_init__(self) -> None:
        check_monotone(self.monotone)
        if as_int(self.max_depth, "max_depth", minimum=1) > DEEPEST:
            raise InvalidInput(f"max_depth must be at most {DEEPEST}; got {self.max_depth}. Trees grows deeper ones.")
        if self.n_thresholds is not None and as_int(self.n_thresholds, "n_thresholds", minimum=1) > MOST_BINS:
            raise InvalidInput(f"n_thresholds must be at most {MOST_BINS}; got {self.n_thresholds}.")
        as_int(self.min_samples_leaf, "min_samples_leaf", minimum=1)
        as_not_negative(self.leaf_penalty, "leaf_penalty")
        if self.time_limit is not None:
            as_positive(self.time_limit, "time_limit")
        if self.node_limit is not None:
            as_int(self.node_limit, "node_limit", minimum=1)
        n_threads(self.n_jobs)

    def improve(
        self,
        states: ArrayLike,
        q_values: ArrayLike,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,  # noqa: ARG002
        allowed: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> OptimalTreePolicy:
        """Return the tree with the least gap-weighted loss on the sample."""
        return self._improved(states, q_values, allowed, weights, Switches())

    def _improved(
        self,
        states: ArrayLike,
        q_values: ArrayLike,
        allowed: ArrayLike | None,
        weights: ArrayLike | None,
        switches: Switches,
    ) -> OptimalTreePolicy:
        sample = RegretSample.of(states, q_values, allowed, weights)
        check_monotone(self.monotone, sample.states.shape[1], masked=sample.allowed is not None)
        w = as_weights(weights, "weights", np.shape(states)[0])
        weight = float(len(sample.states)) if w is None else float(w.sum())
        threads = n_threads(self.n_jobs)
        binned = Binned.of(sample.states, MOST_CUTS if self.n_thresholds is None else self.n_thresholds, threads)
        search = _Search.of(sample, binned, self, weight, switches)
        found = _interruptibly(
            lambda: search.run(threads if self.node_limit is None else 1), search.stop, self.time_limit
        )
        stopped_by = STOPPED_BY[int(search.stop[0])]
        tree = _grown(found.splits, sample, binned)
        masked = sample.allowed is not None
        leaf_regrets = _masked_regrets(tree, sample) if masked else tree.sums.min(axis=1)
        gap = float(np.ldexp(found.cost - found.bound, -search.exponent)) / weight
        chosen, price = self._in_order(tree)
        leaf_regrets, gap = leaf_regrets + price, gap + float(price.sum()) / weight
        if masked:  # nothing is known about the true loss but that it is not negative
            gap = float(leaf_regrets.sum()) / weight + self.leaf_penalty * (len(tree.counts) - 1)
        optimal = stopped_by is None and not masked and not price.any()
        return OptimalTreePolicy(
            tree,
            sample.n_actions,
            sample.states.shape[1],
            binned.has_missing,
            leaf_regrets,
            masked,
            chosen,
            max_depth=self.max_depth,
            optimal=optimal,
            remaining_gap=0.0 if optimal else max(gap, 0.0),
            stopped_by=stopped_by,
            thinned=binned.thinned,
        )

    def _in_order(self, tree: Tree) -> tuple[Ints | None, Floats]:
        """Return the leaves' actions that keep the order of `monotone` (l,), None if there is none, and what that costs in each (l,)."""
        if not self.monotone:
            return None, np.zeros(len(tree.sums))
        chosen = monotone_actions(tree.nodes, tree.sums, self.monotone)
        return chosen, tree.sums[np.arange(len(chosen)), chosen] - tree.sums.min(axis=1)


@dataclass(frozen=True)
class Switches:
    """What makes the search fast; none of it changes the result."""

    bounds: bool = True
    caching: bool = True
    ordering: int = _optimal.PROMISING
    engine: int = _optimal.BY_COST


@dataclass(frozen=True, eq=False)
class Binned:
    """States as the numbers of the bins that the cut points make.

    A feature with missing values stands for two: one in which they are the last bin, and one in which they are the first. So
    a split need not know of them.
    """

    codes: NDArray[np.uint16]  # (n, V)
    n_bins: Ints  # (V,)
    feature: Ints  # (V,) of the states
    missing_first: Bools  # (V,)
    has_missing: Bools  # (d,)
    thinned: Bools  # (d,)

    @classmethod
    def of(cls, states: Floats, most_cuts: int, n_jobs: int = 1) -> Binned:
        """Return the bins of ``states`` (n, d) with up to ``most_cuts`` cut points a feature."""
        columns = in_threads(lambda column: _bins(np.ascontiguousarray(column), most_cuts), list(states.T), n_jobs)
        has_missing = np.array([missing.any() for _, _, missing, _ in columns])
        if len(columns) + has_missing.sum() > MOST_FEATURES:
            raise InvalidInput(
                f"optimal trees take at most {MOST_FEATURES} features, those with missing values counted twice; "
                f"got {len(columns) + has_missing.sum()}. Choose some."
            )
        codes: list[NDArray[np.uint16]] = []
        n_bins, feature, first = [], [], []
        for j, (code, n, missing, _) in enumerate(columns):
            last, first_bin = np.uint16(n), np.uint16(0)
            both = [np.where(missing, last, code), np.where(missing, first_bin, code + 1)] if has_missing[j] else [code]
            codes += both
            n_bins += [n + int(has_missing[j])] * len(both)
            feature += [j] * len(both)
            first += [False, True][: len(both)]
        return cls(
            np.stack(codes, axis=1),
            np.array(n_bins),
            np.array(feature),
            np.array(first),
            has_missing,
            np.array([thin for *_, thin in columns]),
        )

    @cached_property
    def as_states(self) -> Floats:
        """The bins as states (n, d) that other trees can be grown on."""
        once = ~self.missing_first
        numbers = self.codes[:, once].astype(np.float64)
        missing = self.has_missing & (numbers == (self.n_bins[once] - 1))
        return np.where(missing, np.nan, numbers)

    def goes_left(self, v: int, t: int, rows: NDArray[Any]) -> Bools:
        """Return which ``rows`` a split sends left."""
        return self.codes[rows, v] <= t


def _bins(column: Floats, most_cuts: int) -> tuple[NDArray[np.uint16], int, Bools, bool]:
    """Return the bin of each value (n,), their number, which values are missing, and whether there are more cuts than ``most_cuts``."""
    order = np.argsort(column)
    ordered, missing = column[order], np.isnan(column)
    n_known = len(column) - int(missing.sum())  # NaN sorts to the end
    known = ordered[:n_known]
    ends = np.flatnonzero(known[1:] != known[:-1]) + 1  # how many values are below each cut
    thinned = len(ends) > most_cuts
    if thinned:
        quantiles = (np.arange(1, most_cuts + 1) * n_known) // (most_cuts + 1)
        places = np.searchsorted(ends, quantiles)  # a cut is behind all equal values
        ends = np.unique(ends[places[places < len(ends)]])
    codes = np.empty(len(column), dtype=np.uint16)
    codes[order] = np.repeat(
        np.arange(len(ends) + 1, dtype=np.uint16), np.diff(np.concatenate([[0], ends, [len(column)]]))
    )
    return codes, len(ends) + 1, missing, thinned


@dataclass(frozen=True, eq=False)
class _Found:
    """A tree, what it costs and what the best one costs at least."""

    splits: Split
    cost: float
    bound: float


@dataclass(frozen=True, eq=False)
class _Search:
    """One search: the problem in whole numbers, and the flag that stops it."""

    problem: _optimal.Problem
    binned: Binned
    depth: int
    node_limit: int | None
    exponent: int  # a unit of loss is 2 to it in whole numbers
    stop: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    @classmethod
    def of(
        cls, sample: RegretSample, binned: Binned, settings: OptimalTrees, weight: float, switches: Switches
    ) -> _Search:
        """Return the search for the best tree of a sample, whose weights have this sum."""
        outputs = sample.outputs
        with np.errstate(over="ignore"):
            total = float(row_max(outputs).sum())
        if not np.isfinite(total):
            raise InvalidInput("the weighted gaps of q_values must have a finite sum. Scale q_values or weights down.")
        exponent = DIGITS - int(np.frexp(total)[1])
        half = exponent // 2  # 2 to the whole may be more than float64 can hold
        losses = np.rint(outputs * 2.0**half * 2.0 ** (exponent - half))
        with np.errstate(over="ignore"):
            penalty = float(np.ldexp(settings.leaf_penalty * weight, exponent))
            whole = float(np.ldexp(total, exponent))
        counted = settings.min_samples_leaf > 1
        starts, firsts = _table_starts(binned.n_bins), np.append(0, np.cumsum(binned.n_bins))
        problem = _optimal.Problem(
            binned.codes,
            np.ascontiguousarray(np.column_stack([losses, np.ones(len(losses))]) if counted else losses),
            firsts,
            starts,
            sample.n_actions,
            float(np.rint(min(penalty, whole) + max(1.0, TIE * whole))),
            settings.min_samples_leaf,
            switches.bounds,
            switches.caching,
            switches.ordering,
            switches.engine,
        )
        return cls(problem, binned, settings.max_depth, settings.node_limit, exponent)

    def run(self, n_jobs: int) -> _Found:
        """Return the best tree; its first feature is tried by several threads."""
        n = len(self.problem.codes)
        rows = np.arange(n, dtype=np.int32)
        at_once = self._at_once(n)
        greedy = None if at_once else self._greedy()
        least = np.array([np.inf if greedy is None else greedy.cost])
        rooms = [self._room(least) for _ in range(1 if at_once else n_jobs)]

        def tried(v: int) -> tuple[float, int, float, Ints]:
            room = rooms.pop()
            if at_once:
                cost, bound, *room.record[0, 0] = at_once(self.problem, room, rows)
            else:
                cost, bound, _, _ = SEARCHES[self.depth](self.problem, room, rows, 0, np.inf, v)
            record = room.record[0].copy()
            rooms.append(room)
            return cost, v, bound, record

        if not at_once:
            _optimal.put_in_order(self.problem, rooms[0], rows, 0)
        order = [-1] if at_once else rooms[0].order[0].tolist()
        results = in_threads(tried, order, n_jobs)
        cost, _, _, record = min(results, key=lambda result: result[:2])
        bound = min(result[2] for result in results)
        if self.stop[0] != _optimal.BY_ITSELF:
            greedy = greedy or self._greedy()
            if greedy.cost <= cost:
                return _Found(greedy.splits, greedy.cost, min(bound, greedy.cost))
        splits = self._with_last_level(record, 0, 1, rows, rooms[0])
        return _Found(splits, cost, min(bound, cost))

    def _at_once(self, n: int) -> Any:
        """Return the kernel that finds the best tree without a search, if there is one."""
        if self.depth == 2 and _optimal.by_tables(self.problem, n, self.problem.table_starts[-1, -1]):
            return _optimal.two_levels_of_rows
        return _optimal.one_level if self.depth == 1 else None

    def _room(self, least: Floats) -> _optimal.Work:
        """Return the arrays that one thread works in."""
        (n, n_columns), n_bins, levels = self.problem.losses.shape, self.binned.n_bins, DEEPEST - 1
        n_features, most = len(n_bins), int(n_bins.max())
        cells = int(self.problem.table_starts[-1, -1])
        largest = int(np.prod(np.sort(n_bins)[-2:])) if n_features > 1 else 0
        tables_pay = self.problem.engine != _optimal.BY_ROWS
        kept = cells if self.depth > 2 and cells * n_columns <= TABLES else largest
        stacked = most if self.depth > 2 and most * cells * n_columns <= TABLES else 0
        slots = SLOTS if self.depth == DEEPEST and self.problem.caching else 1
        return _optimal.Work(
            ordered=np.empty((levels, n), dtype=np.int32),
            by_feature=np.empty((n_features, n), dtype=np.int32),
            ends=np.empty((levels, most + 1), dtype=np.int64),
            cuts=np.empty((levels, most), dtype=np.int64),
            low=np.empty((levels, most + 2)),
            high=np.empty((levels, most + 2)),
            waiting=np.empty((levels, most + 2, 2), dtype=np.int64),
            order=np.empty((levels, n_features), dtype=np.int64),
            record=np.empty((levels, 7, 2), dtype=np.int64),
            costs=np.empty((levels, 4)),
            places=np.empty((levels, 9), dtype=np.int64),
            sides=np.empty((levels, 2, 4)),
            kept=np.empty((2, 7, 2), dtype=np.int64),
            path=np.zeros(1, dtype=np.int64),
            totals=np.empty((levels, n_columns)),
            bins=np.empty((2, int(n_bins.sum()), n_columns)),
            tables=np.empty((2, kept * n_columns if tables_pay else 0)),
            bins_up_to=np.empty((stacked, int(n_bins.sum()), n_columns)),
            tables_up_to=np.empty((stacked, kept * n_columns)),
            prefix=np.empty((n_columns, int(n_bins.sum()))),
            best=np.empty((4, int(n_bins.sum()))),
            raw=np.empty((2, int(n_bins.sum()))),
            rolling=np.empty((n_columns, most)),
            beside=np.empty((n_columns, most)),
            low_sums=np.empty(n_columns),
            high_sums=np.empty(n_columns),
            minima=np.empty((9, most)),
            sums=np.empty((2, 2, n_columns)),
            keys=np.zeros(slots, dtype=np.int64),
            known=np.empty((slots, 5)),
            used=np.array([0, np.iinfo(np.int64).max if self.node_limit is None else self.node_limit]),
            least=least,
            stop=self.stop,
        )

    def _with_last_level(self, record: Ints, i: int, level: int, rows: NDArray[np.int32], room: _optimal.Work) -> Split:
        """Return the tree of a ``record``, below whose last splits one more level is sought."""
        if level == self.depth and level > 1:
            _, _, v, t = _optimal.one_level(self.problem, room, rows)
        else:
            v, t = record[i]
        if v == _optimal.NO_SPLIT:
            return None
        if level == self.depth:
            return int(v), int(t), None, None
        left = self.binned.goes_left(v, t, rows)
        sides = (
            self._with_last_level(record, 2 * i + 1 + k, level + 1, rows[side], room)
            for k, side in enumerate((left, ~left))
        )
        return int(v), int(t), *sides  # type: ignore[return-value]

    def _greedy(self) -> _Found:
        """Return the greedy tree on the same cut points, without splits that do not pay."""
        growth = Growth(min_samples_leaf=self.problem.min_leaf, max_depth=self.depth, best_cuts=True, policy=True)
        losses = np.ascontiguousarray(self.problem.losses[:, : self.problem.n_actions])
        tree = grow(encode(self.binned.as_states), losses, growth, np.random.default_rng(0)).trees[0]
        return self._paying(tree, 0, np.arange(len(losses)))

    def _paying(self, tree: Tree, number: int, rows: Ints) -> _Found:
        """Return what is left below a node of a greedy tree when splits that do not pay are taken back."""
        leaf = float(self.problem.losses[rows, : self.problem.n_actions].sum(axis=0).min()) + self.problem.penalty
        node = tree.nodes[number]
        if node["left"] < 0:
            return _Found(None, leaf, 0.0)
        v = int(np.flatnonzero(self.binned.feature == node["feature"])[0])
        t = self.binned.n_bins[v] - 2 if np.isinf(node["threshold"]) else int(node["threshold"])
        if node["missing_left"] and self.binned.has_missing[node["feature"]]:
            v, t = v + 1, t + 1
        left = self.binned.goes_left(v, t, rows)
        low, high = (self._paying(tree, int(node["left"]) + k, rows[side]) for k, side in enumerate((left, ~left)))
        if leaf <= low.cost + high.cost:
            return _Found(None, leaf, 0.0)
        return _Found((v, int(t), low.splits, high.splits), low.cost + high.cost, 0.0)


def _table_starts(n_bins: Ints) -> Ints:
    """Return where the table of each pair of features starts (V, V), in cells; at the end how many there are."""
    starts, cells = np.zeros((len(n_bins), len(n_bins)), dtype=np.int64), 0
    for v in range(len(n_bins)):
        for w in range(v + 1, len(n_bins)):
            starts[v, w] = cells
            cells += int(n_bins[v] * n_bins[w])
    starts[-1, -1] = cells
    return starts


def _interruptibly(work: Callable[[], _Found], stop: Ints, time_limit: float | None) -> _Found:
    """Return what ``work`` returns, done in a thread; Ctrl-C and the end of the time only ask it to stop."""
    outcome: list[Any] = []
    finished = threading.Event()  # a thread whose join was interrupted may pass for dead while it works (Python 3.11)

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
            if left <= 0 and stop[0] == _optimal.BY_ITSELF:
                stop[0] = _optimal.BY_TIME
            finished.wait(min(POLLING, left) if left > 0 else POLLING)
        except KeyboardInterrupt:
            if stop[0] == _optimal.INTERRUPTED:  # once more: do not wait
                raise
            stop[0] = _optimal.INTERRUPTED
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _masked_regrets(tree: Tree, sample: RegretSample) -> Floats:
    """Return what the decisions of each leaf lose (l,), where they are not the same in all its states."""
    actions = first_allowed(ranked(tree.sums, None)[tree.leaf_of_row], sample.allowed)
    lost = np.take_along_axis(sample.lost, actions[:, None], axis=1)[:, 0]
    return np.bincount(tree.leaf_of_row, weights=lost, minlength=len(tree.counts)).astype(np.float64)


def _grown(splits: Split, sample: RegretSample, binned: Binned) -> Tree:
    """Return the tree of ``splits``, with cuts in the middle between the values of its own states."""
    n = len(sample.states)
    nodes, above = [np.zeros((), dtype=NODE)], [0.0]
    leaves: list[Ints] = []
    waiting: list[tuple[int, Split, Ints]] = [(0, splits, np.arange(n))]
    while waiting:
        number, split, rows = waiting.pop()
        if split is None:
            nodes[number]["left"] = -1 - len(leaves)
            leaves.append(rows)
            continue
        v, t, low, high = split
        left = binned.goes_left(v, t, rows)
        nodes[number], above[number] = _node(sample.states[rows, binned.feature[v]], left, int(binned.feature[v]))
        nodes[number]["left"] = len(nodes)
        waiting += [(len(nodes) + 1, high, rows[~left]), (len(nodes), low, rows[left])]
        nodes += [np.zeros((), dtype=NODE), np.zeros((), dtype=NODE)]
        above += [0.0, 0.0]
    leaf_of_row = np.empty(n, dtype=np.int32)
    for number, rows in enumerate(leaves):
        leaf_of_row[rows] = number
    counts = np.array([len(rows) for rows in leaves])
    sums = np.stack([sample.outputs[rows].sum(axis=0) for rows in leaves])
    tree = Tree(np.array(nodes, dtype=NODE), np.array(above), sums, counts.astype(np.float64), counts, leaf_of_row)
    return with_readable_cuts(tree)


def _node(column: Floats, left: Bools, feature: int) -> tuple[Any, float]:
    """Return the node that splits the values of ``column`` like ``left``, and the next value above its cut."""
    missing = np.isnan(column)
    missing_left = bool(left[missing][0]) if missing.any() else 2 * int(left.sum()) >= len(left)
    node = np.zeros((), dtype=NODE)
    node["feature"], node["missing_left"] = feature, missing_left
    if not (~left & ~missing).any():  # all that is known goes left
        node["threshold"] = np.inf
        return node, np.inf
    below, above = column[left & ~missing].max(), column[~left & ~missing].min()
    with np.errstate(over="ignore"):
        middle = below + (above - below) / 2
    node["threshold"] = middle if below <= middle < above else below
    return node, float(above)
