"""Policies from optimal decision trees of small depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters, checked_by, optional
from capi._utils.threads import n_threads
from capi._utils.validation import Bools, Floats, Ints, as_not_negative, as_positive
from capi.policy_spaces._monotone import check_monotone, monotone_actions
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.policy_spaces.trees._between_cuts import least_cost
from capi.policy_spaces.trees._binned import MOST_BINS, Binned
from capi.policy_spaces.trees._rankings import Rankings, least_possible
from capi.policy_spaces.trees._refined import CutTree, Refinement, as_cuts
from capi.policy_spaces.trees._search import Limits, Search, Switches, interruptibly, on_bins
from capi.policy_spaces.trees.greedy import DEEPEST, MOST_CUTS, TreePolicy, leaf_losses, leaf_size
from capi.trees._kernels.records import NODE
from capi.trees._optimal import records
from capi.trees.forest import Tree
from capi.trees.readable_cuts import with_readable_cuts
from capi.types import Policy, QFunction

AFFORDABLE = {
    0: np.inf,
    1: np.inf,
    2: 5e7,
    3: 3e5,
}  # rows x features^2 x actions, by depth: all cuts take about a second
DEEPEST_TRIED = 6
MOST_NAMES = 8  # of columns in a remark
SHORTEST = 1e-3  # seconds of a second search, if the first one has used up the time limit


@dataclass(frozen=True, eq=False)
class OptimalTreePolicy(TreePolicy):
    """A decision tree with an optimality certificate.

    ``optimal`` is True if no tree of this depth is better, whatever its cuts. ``remaining_gap`` bounds how much the mean loss
    (plus penalty) may exceed that of the best tree on any cuts. ``stopped_by`` is the reason why the search stopped early: "time_limit",
    "node_limit", "work_limit" or "interrupt". ``thinned`` (d,) marks the features with more values than cut points; if there
    are any, ``optimal_on_cuts`` says whether no tree on the chosen cut points is better.
    """

    max_depth: int = 1
    optimal: bool = False
    remaining_gap: float = 0.0
    stopped_by: str | None = None
    thinned: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool), repr=False)  # (d,)
    substitute: bool = False  # with masks and more than five actions the search does not minimise the loss itself

    @property
    def optimal_on_cuts(self) -> bool:
        """Whether no tree of this depth on the chosen cut points is better."""
        finished = self.stopped_by is None and not self.substitute and self.chosen is None and self.max_depth <= DEEPEST
        return self.optimal or (finished and bool(self.thinned.any()))

    def remarks(self) -> list[str]:
        """Return remarks for readers of the rules: whether the tree is optimal, and among which trees."""
        names = self.schema.feature_names if self.schema else tuple(f"x{j}" for j in range(self.n_features))
        thinned = [str(name) for name, thin in zip(names, self.thinned, strict=True) if thin]
        listed = ", ".join(thinned) if len(thinned) <= MOST_NAMES else f"{len(thinned)} columns"
        where = f" on the chosen quantiles of {listed}" if thinned else ""
        if self.optimal and self.remaining_gap == 0:
            return [f"(optimal: no tree of depth {self.max_depth}{where} loses less)"]
        if self.optimal_on_cuts:
            why = f"optimal{where}"
        elif self.stopped_by:
            why = f"stopped by {self.stopped_by}"
        elif self.substitute:
            why = "learned with masks"
        else:
            why = "too deep for a proof" if self.max_depth > DEEPEST else "made monotone"
        return [f"({why}: a tree of depth {self.max_depth} may lose up to {self.remaining_gap:.3g} less per state)"]


@dataclass(frozen=True)
class OptimalTrees(ImprovementSolver[OptimalTreePolicy]):
    """The decision tree with the least gap-weighted loss of all trees of a given depth, with a certificate.

    Greedy growth (`Trees`) takes the best split at each node without looking ahead. This space compares all trees whose
    splits lie on the given cut points, using tables of pairs of features for the last two levels and branch and bound above
    them. The objective is that of R's ``policytree`` and of STreeD's cost-sensitive task. Among trees with the same loss, the
    one with the fewest leaves is returned, then the one with the lowest first feature and cut, and so on below. States may
    have missing values: each split sends them to the better side.

    Losses are rounded to 2^-48 of their sum, so all sums are exact and the tree depends only on the sample. A split that
    gains less than 1e-12 of the sum of all gaps is not made.

    A search that is stopped early returns the best tree found, which is never worse than the greedy one on the same cut
    points, with ``optimal`` False and the ``remaining_gap``. With masks and up to five actions (with five, up to 280,000 states), the search
    compares all rankings of the actions in each leaf. With more actions it minimises a substitute (an action that a state does not
    allow counts as the mean of the allowed ones), ``optimal`` is False, and a second search bounds the gap.

    Parameters
    ----------
    max_depth : int
        Levels of splits, 0 (the best single action) to 6. Trees of depth 5 and 6 are not compared with all others: their
        upper or lower three levels are optimal, they are never worse than the greedy tree, and the gap is reported.
    n_thresholds : int, optional
        Cut points per feature. None: all cuts between neighbouring values if there are at most 255 of them, or if the search
        takes about a second: depth 1, and depths 2 and 3 if rows x features^2 x actions is at most 5 x 10^7 and 3 x 10^5.
        Otherwise 255 quantiles, and the cuts of the best tree on these are moved to where they lose least among the values around them. ``thinned`` of the policy marks the features with more values than cut points; the
        ``remaining_gap`` then includes what other cuts may gain.
    min_samples_leaf : int, optional
        A leaf has at least this many states. None: 5, or 1 % of the states if they are fewer than 500; a search that is
        stopped early may return smaller leaves.
    leaf_penalty : float
        Cost of a leaf, in units of the mean loss per state: a split must lower the mean loss by more than this.
    time_limit : float, optional
        Seconds after which the search stops. The tree found by then depends on the machine.
    node_limit : int, optional
        Number of sub-problems (sides of cuts) after which the search stops. The result is reproducible; the search then
        uses one thread.
    work_limit : int, optional
        Like ``node_limit``, but counts steps of the search (about 10^9 take a second), so that one limit fits samples of all
        sizes: a sub-problem of a large sample takes more steps. Depths 1 and 2 need no limit and ignore it.
    late_work_limit : int, optional
        The ``work_limit`` in the second half of the rounds of a loop (`CAPI`), whose policies matter more. None: the same in
        all rounds.
    n_jobs : int, optional
        Number of threads; -1: all cores, None: one. The policy does not depend on it.
    monotone : mapping from columns to 1 or -1, optional
        Monotonicity per column: 1 if the action index must not decrease as the column increases, -1 if it must not
        increase. The search ignores this constraint; then the leaves get the actions with the least loss that keep the
        order. ``optimal`` is False if that increases the loss. Not available with masks.
    missing_splits : bool
        Whether a split may separate missing values from all others. False: they go with the lowest or the highest values.

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
    min_samples_leaf: int | None = None
    leaf_penalty: float = 0.0
    time_limit: float | None = None
    node_limit: int | None = None
    n_jobs: int | None = None
    monotone: Mapping[int, int] | None = None
    work_limit: int | None = None
    missing_splits: bool = True
    late_work_limit: int | None = None

    _constraints: ClassVar[Constraints] = {
        "monotone": checked_by(check_monotone),
        "max_depth": at_least(0, at_most=DEEPEST_TRIED, otherwise="Use Trees for deeper trees."),
        "n_thresholds": optional(at_least(1, at_most=MOST_BINS)),
        "min_samples_leaf": optional(at_least(1)),
        "leaf_penalty": as_not_negative,
        "time_limit": optional(as_positive),
        "node_limit": optional(at_least(1)),
        "work_limit": optional(at_least(1)),
        "late_work_limit": optional(at_least(1)),
        "n_jobs": checked_by(n_threads),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def in_round(self, k: int, n_rounds: int) -> OptimalTrees:
        """Return the space of round ``k`` of a loop, with the limit of that round."""
        if self.late_work_limit is None or k < n_rounds // 2:
            return self
        return replace(self, work_limit=self.late_work_limit)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> OptimalTreePolicy:
        """Return the tree with the least gap-weighted loss on the sample; the search starts from ``previous`` if it is a tree."""
        started = monotonic()
        same_columns = isinstance(previous, TreePolicy) and previous.n_features == problem.n_features
        start = previous.tree if same_columns and not problem.masked else None  # type: ignore[union-attr]
        found = self._solved(problem, Switches(), start)
        least = leaf_size(self.min_samples_leaf, problem.counted.n_rows)
        small = self.min_samples_leaf is None and found.tree.counts.min() < least
        if not small or found.stopped_by is not None:
            return found  # a search that counts no states is faster, and a tree that is the best of all is the best of these
        again = replace(self, min_samples_leaf=least, time_limit=self._time_left(started))
        return again._solved(problem, Switches(), start)

    def _most_cuts(self, sample: ImprovementProblem) -> int:
        """Return the number of cut points per feature: all if that is affordable."""
        if self.n_thresholds is not None:
            return self.n_thresholds
        n, d = sample.states.shape
        affordable = n * d**2 * max(sample.n_actions, 2) <= AFFORDABLE.get(self.max_depth, 0.0)
        return max(min(n, MOST_BINS), 1) if affordable else MOST_CUTS

    def _solved(self, problem: ImprovementProblem, switches: Switches, start: Tree | None = None) -> OptimalTreePolicy:
        sample, masked = problem.counted, problem.masked
        check_monotone(self.monotone, problem.n_features, masked=masked)
        weight = float(problem.n_rows) if problem.weights is None else float(problem.weights.sum())
        threads = n_threads(self.n_jobs)
        rankings = Rankings.of(sample) if masked else None
        posed = sample if rankings is None else rankings.problem(sample)
        binned = Binned.of(sample.states, self._most_cuts(posed), threads, missing_apart=self.missing_splits)
        limits = Limits(self.max_depth, self.min_samples_leaf or 1, self.leaf_penalty, self.node_limit, self.work_limit)
        on_cuts = None if start is None else on_bins(start, sample.states, binned)
        search = Search.of(posed, binned, limits, weight, switches, on_cuts)
        if self.node_limit is not None or self.work_limit is not None:
            threads = 1  # threads would share the limit in an order that depends on the machine
        started = monotonic()
        found = interruptibly(lambda: search.run(threads), search.stop, self.time_limit)
        cuts, gained = as_cuts(found.splits), 0.0
        if binned.thinned.any() and cuts is not None:
            refinement = Refinement(sample.states, posed.filled_losses, binned, limits.min_samples_leaf)
            cuts, gained = refinement.best(cuts)
        tree = _grown(cuts, sample, binned)
        tree = tree if rankings is None else rankings.put_into(tree)
        leaf_regrets = leaf_losses(tree, None, sample) if masked else tree.sums.min(axis=1)
        own_cost = float(leaf_regrets.sum()) / weight + self.leaf_penalty * (len(tree.counts) - 1)
        substitute, stopped_by = masked and rankings is None, search.stopped_by
        bound = found.bound - search.lost_by_thinning()
        if not substitute and self._worth_a_bound(search, found.cost - bound):
            stop = np.zeros(1, dtype=np.int64)
            lost = search.row_losses(tree.leaf_of_row)
            by_intervals = interruptibly(
                lambda: least_cost(search.problem, binned, lost, self.max_depth, stop), stop, self._time_left(started)
            )
            bound = max(bound, by_intervals)
            stopped_by = "interrupt" if stop[0] == records.INTERRUPTED else stopped_by
        gap = (float(np.ldexp(found.cost - bound, -search.exponent)) - gained) / weight
        if substitute:
            bounding = Search.of(least_possible(sample), binned, limits, weight, Switches())
            gap = own_cost
            if stopped_by is None:  # otherwise no more time is to be spent
                least = interruptibly(lambda: bounding.run(threads), bounding.stop, self._time_left(started)).bound
                bound = float(np.ldexp(least - bounding.lost_by_thinning(), -bounding.exponent)) / weight
                gap = own_cost - max(bound - self.leaf_penalty, 0.0)  # the search also pays for the first leaf
                stopped_by = "interrupt" if bounding.stopped_by == "interrupt" else None  # the tree itself is complete
        gap = min(gap, own_cost)
        chosen, price = self._in_order(tree)
        leaf_regrets, gap = leaf_regrets + price, gap + float(price.sum()) / weight
        proved = self.max_depth <= DEEPEST and not binned.thinned.any()
        optimal = stopped_by is None and not substitute and not price.any() and (proved or gap <= 0)
        return OptimalTreePolicy(
            tree,
            problem.n_actions,
            problem.n_features,
            binned.has_missing,
            leaf_regrets,
            masked,
            chosen,
            max_depth=self.max_depth,
            optimal=optimal,
            remaining_gap=0.0 if optimal else max(gap, 0.0),
            stopped_by=stopped_by,
            thinned=binned.thinned,
            substitute=substitute,
        )

    def _worth_a_bound(self, search: Search, gap: float) -> bool:
        """Return whether intervals of cuts may bound the gap better than the search has; not if no more time is to be spent."""
        limited = search.stopped_by in ("work_limit", "node_limit")
        finished = search.stopped_by is None and bool(search.binned.thinned.any())
        return gap > 0 and (limited or finished)

    def _time_left(self, started: float) -> float | None:
        """Return the seconds that a second search may take."""
        return None if self.time_limit is None else max(self.time_limit - (monotonic() - started), SHORTEST)

    def _in_order(self, tree: Tree) -> tuple[Ints | None, Floats]:
        """Return the leaves' actions that keep the order of `monotone` (l,), None without one, and the extra loss of each (l,)."""
        if not self.monotone:
            return None, np.zeros(len(tree.sums))
        chosen = monotone_actions(tree.nodes, tree.sums, self.monotone)
        return chosen, tree.sums[np.arange(len(chosen)), chosen] - tree.sums.min(axis=1)


def _grown(cuts: CutTree, sample: ImprovementProblem, binned: Binned) -> Tree:
    """Return the tree of ``cuts``, with thresholds midway between the values of its own states."""
    n = len(sample.states)
    nodes, above = [np.zeros((), dtype=NODE)], [0.0]
    leaves: list[Ints] = []
    waiting: list[tuple[int, CutTree, Ints]] = [(0, cuts, np.arange(n))]
    while waiting:
        number, cut, rows = waiting.pop()
        if cut is None:
            nodes[number]["left"] = -1 - len(leaves)
            leaves.append(rows)
            continue
        left = cut.goes_left(sample.states, binned, rows)
        j = int(binned.feature[cut.v])
        column = sample.states[rows, j]
        low, high = cut.low, cut.high
        if binned.missing_apart and not (left & ~np.isnan(column)).any():  # "is known" sends known values left
            left, low, high = ~left, high, low
        if binned.missing_apart or _separates(column, left):
            nodes[number], above[number] = _node(column, left, j)
        else:  # missing values alone on one side of an ordinary cut: the values of other states show where it is
            nodes[number], above[number] = _node(
                sample.states[:, j], cut.goes_left(sample.states, binned, np.arange(n)), j
            )
        nodes[number]["left"] = len(nodes)
        waiting += [(len(nodes) + 1, high, rows[~left]), (len(nodes), low, rows[left])]
        nodes += [np.zeros((), dtype=NODE), np.zeros((), dtype=NODE)]
        above += [0.0, 0.0]
    leaf_of_row = np.empty(n, dtype=np.int32)
    for number, rows in enumerate(leaves):
        leaf_of_row[rows] = number
    counts = np.array([len(rows) for rows in leaves])
    sums = np.stack([sample.filled_losses[rows].sum(axis=0) for rows in leaves])
    tree = Tree(np.array(nodes, dtype=NODE), np.array(above), sums, counts.astype(np.float64), counts, leaf_of_row)
    return with_readable_cuts(tree)


def _separates(column: Floats, left: Bools) -> bool:
    """Return whether both sides of a split have known values."""
    known = ~np.isnan(column)
    return bool((known & left).any() and (known & ~left).any())


def _node(column: Floats, left: Bools, feature: int) -> tuple[Any, float]:
    """Return the node that splits ``column`` as in ``left``, and the next value above its cut."""
    missing = np.isnan(column)
    missing_left = bool(left[missing][0]) if missing.any() else 2 * int(left.sum()) >= len(left)
    node = np.zeros((), dtype=NODE)
    node["feature"], node["missing_left"] = feature, missing_left
    if not (~left & ~missing).any():  # all known values go left
        node["threshold"] = np.inf
        return node, np.inf
    below, above = column[left & ~missing].max(), column[~left & ~missing].min()
    with np.errstate(over="ignore"):
        middle = below + (above - below) / 2
    node["threshold"] = middle if below <= middle < above else below
    return node, float(above)
