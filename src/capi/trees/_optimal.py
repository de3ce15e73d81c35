"""Kernels that search for the tree of a given depth with the least loss.

Shapes: n rows, V features, each with its own bins, B bins in total, C columns of ``losses``: one per action, followed by a
column of ones if the rows of leaves must be counted. All losses are integers whose sums are exact in float64. The order in
which they are added or subtracted therefore does not matter, and ties are exact.

A split is (v, t): rows with codes up to t of feature v go left. The best tree of a node is the leaf, if no split costs less;
otherwise the split with the least cost, and among ties the lowest (v, t). Every way of searching finds that one.

Two facts make the search short. Costs are not negative, so the cost of the best tree of a set of rows can only grow with the
set: between two cuts a < b of a feature, no cut costs less than the left side of a plus the right side of b. And the sums of
all leaves of two levels can be read from tables over the bins of two features, which change little from one cut of a third
feature to the next.

With a minimum size of leaves, the first fact holds only for the costs without that limit; these are the ``relaxed`` costs.
"""

from typing import Any, NamedTuple

import numpy as np

from capi._utils.compile import compiled, inner, inner_minima

NO_SPLIT = -1
BY_COST, BY_TABLES, BY_ROWS = 0, 1, 2  # how the last two levels are searched
ONE_BY_ONE, MOVING, STACKED = 0, 1, 2  # how the sides of cuts above them are searched
AS_GIVEN, PROMISING, REVERSED = 0, 1, 2  # the order of features
BY_ITSELF, INTERRUPTED, BY_NODES, BY_TIME, BY_WORK = 0, 1, 2, 3, 4  # what ended the search
COST, BOUND, LIMIT, BAR = range(
    4
)  # of a node: its best tree, a bound for any tree, the largest cost of interest, that at the next cut
FEATURE, CUT, PLACE, N_CUTS, N_WAITING, FROM, TO, MIDDLE, N_LEFT = range(9)
ROW_OF_SCAN, ROW_OF_TABLES = 15, 8  # columns' worth of work that a row takes in addition to its columns
TABLE_STEPS = 3  # steps of a scan that a step in a table takes, measured on 1,000 to 33,000 rows with 4 to 30 features
AT_ONCE = 4096  # rows that stay in the cache while they are added to all tables

# Integers are never NaN or -0, hence `inner_minima`, which lets the compiler vectorise minima.


class Problem(NamedTuple):
    """The data of the search, and its options."""

    codes: Any  # (n, V) uint16
    losses: Any  # (n, C)
    firsts: Any  # (V + 1,) where the bins of each feature start
    table_starts: Any  # (V, V) where the table of a pair of features starts, in cells
    n_actions: int
    penalty: float  # of a leaf, positive
    min_leaf: int
    bounds: bool
    caching: bool
    ordering: int
    engine: int


class Work(NamedTuple):
    """Buffers of one thread; L levels, K the largest number of bins. ``stop`` and ``least`` are shared by all threads."""

    ordered: Any  # (L, n) int32, a node's rows, ordered by the bins of a feature
    by_feature: Any  # (V, n) int32, the rows of a node of two levels, ordered by each feature
    ends: Any  # (L, K + 1) where the bins start in ``ordered``
    cuts: Any  # (L, K) the cuts of a feature that separate rows of the node
    low: Any  # (L, K + 2) lower bounds on the cost of the left side of these
    high: Any  # (L, K + 2) and of the right side
    waiting: Any  # (L, K + 2, 2) the intervals of cuts still to be searched
    order: Any  # (L, V) order of features
    costs: Any  # (L, 4) state of the search in each node: COST, BOUND, ...
    places: Any  # (L, 9) and FEATURE, CUT, ...
    sides: Any  # (L, 2, 4) cost, bound and split of both sides of a cut
    record: Any  # (L, 7, 2) the splits of each level's best tree, those of node i at 2i + 1 and 2i + 2
    kept: Any  # (2, 7, 2)
    path: Any  # (1,) the side of a cut of the root that is searched
    totals: Any  # (L, C)
    bins: Any  # (2, B, C) sums of the rows in each bin: of all rows of a node, and of those left of a cut
    tables: Any  # (2, cells * C) and of each pair of bins
    bins_up_to: Any  # (K, B, C) the same for the rows up to each bin of a feature, if there is room
    tables_up_to: Any  # (K, cells * C)
    prefix: Any  # (C, B) sums up to each bin
    best: Any  # (4, B) the least cost left and right of each cut, then the same relaxed
    raw: Any  # (2, B) cost of the best single action left and right of each cut
    rolling: Any  # (C, K) sums below two cuts, by the second one
    beside: Any  # (C, K) sums above the first and below the second
    low_sums: Any  # (C,) sums below the first cut
    high_sums: Any  # (C,) and above it
    minima: Any  # (9, K)
    sums: Any  # (2, 2, C)
    keys: Any  # (H,) int64, the cache: sides of two cuts
    known: Any  # (H, 5) cost, relaxed cost, v, t, whether the cost is the least
    used: Any  # (4,) number of cuts searched, its limit, steps of work, their limit
    least: Any  # (1,) the least cost of a whole tree so far
    stop: Any  # (1,)


@inner
def set_two(row, a, b):
    """Write two entries."""
    row[0], row[1] = a, b


@inner
def copy(source, target):
    """Copy one row to another; assigning a slice would take numba a second to compile."""
    for k in range(len(target)):
        target[k] = source[k]


@inner
def add_rows(losses, rows, total):
    """Add the losses of ``rows`` to ``total`` (C,)."""
    for i in range(len(rows)):
        row = losses[rows[i]]
        for c in range(len(total)):
            total[c] += row[c]


@inner_minima
def least_of(total, n_actions):
    """Return the cost of the best single action."""
    least = np.inf
    for c in range(n_actions):
        least = min(least, total[c])
    return least


@inner
def order_rows(codes, v, rows, n_bins, ends, ordered):
    """Write ``rows`` to ``ordered`` by their bin in feature ``v``, and where each bin starts to ``ends`` (bins + 1,)."""
    ends[: n_bins + 1] = 0
    for i in range(len(rows)):
        ends[codes[rows[i], v] + 1] += 1
    for b in range(n_bins):
        ends[b + 1] += ends[b]
    for i in range(len(rows)):
        code = codes[rows[i], v]
        ordered[ends[code]] = rows[i]
        ends[code] += 1
    for b in range(n_bins, 0, -1):
        ends[b] = ends[b - 1]
    ends[0] = 0


@inner
def add_to_bins(problem, rows, bins, sign):
    """Add or subtract the losses of ``rows`` in their bins (B, C) of all features."""
    for i in range(len(rows)):
        codes, losses = problem.codes[rows[i]], problem.losses[rows[i]]
        for v in range(len(codes)):
            cell = bins[problem.firsts[v] + codes[v]]
            for c in range(len(losses)):
                cell[c] += sign * losses[c]


@inner
def add_to_table(problem, v, w, rows, table, sign):
    """Add or subtract the losses of ``rows`` in their cells (cells * C,) of two features."""
    n_bins, n_columns = problem.firsts[w + 1] - problem.firsts[w], problem.losses.shape[1]
    for i in range(len(rows)):
        row = rows[i]
        losses = problem.losses[row]
        start = (np.int64(problem.codes[row, v]) * n_bins + problem.codes[row, w]) * n_columns
        c = 0
        while c + 4 <= n_columns:  # a loop over few columns takes longer than its additions
            k = start + c
            table[k] += sign * losses[c]
            table[k + 1] += sign * losses[c + 1]
            table[k + 2] += sign * losses[c + 2]
            table[k + 3] += sign * losses[c + 3]
            c += 4
        while c < n_columns:
            table[start + c] += sign * losses[c]
            c += 1


@inner
def add_to_tables(problem, rows, tables, sign):
    """Add or subtract the losses of ``rows`` in the tables of all pairs of features."""
    n_features, n_columns = problem.codes.shape[1], problem.losses.shape[1]
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        for v in range(n_features):
            for w in range(v + 1, n_features):
                add_to_table(problem, v, w, some, tables[problem.table_starts[v, w] * n_columns :], sign)


@inner
def sum_up(problem, whole, part, rest, prefix):
    """Write the sums up to each bin to ``prefix`` (C, B), for the bins of ``part`` (B, C) or for ``whole`` minus ``part``."""
    n_columns = problem.losses.shape[1]
    for v in range(len(problem.firsts) - 1):
        for c in range(n_columns):
            run = 0.0
            for i in range(problem.firsts[v], problem.firsts[v + 1]):
                run += whole[i, c] - part[i, c] if rest else part[i, c]
                prefix[c, i] = run


@inner
def take_leaves(problem, work):
    """Initialise ``best`` with the cost of a leaf on each side of each cut."""
    n_actions, counted = problem.n_actions, problem.min_leaf > 1
    for v in range(len(problem.firsts) - 1):
        last = problem.firsts[v + 1] - 1
        for i in range(problem.firsts[v], last + 1):
            left, right = np.inf, np.inf
            for c in range(n_actions):
                left = min(left, work.prefix[c, i])
                right = min(right, work.prefix[c, last] - work.prefix[c, i])
            work.raw[0, i], work.raw[1, i] = left, right
            work.best[0, i], work.best[1, i] = left + problem.penalty, right + problem.penalty
            if counted:
                work.best[2, i], work.best[3, i] = work.best[0, i], work.best[1, i]
                n_left = work.prefix[n_actions, i]
                if n_left < problem.min_leaf:
                    work.best[0, i] = np.inf
                if work.prefix[n_actions, last] - n_left < problem.min_leaf:
                    work.best[1, i] = np.inf


@inner
def cut_twice(problem, work, v):
    """Lower ``best`` with second cuts of the same feature."""
    first, last = problem.firsts[v], problem.firsts[v + 1] - 1
    n_actions, counted, two = problem.n_actions, problem.min_leaf > 1, 2 * problem.penalty
    n = work.prefix[n_actions, last] if counted else 0.0
    for t in range(first + 1, last):
        middle = work.minima[0][: t - first]
        middle[:] = np.inf
        for c in range(n_actions):
            up_to, row = work.prefix[c, t], work.prefix[c][first:t]
            for s in range(len(middle)):
                middle[s] = min(middle[s], up_to - row[s])
        for s in range(len(middle)):
            left, right = work.raw[0, first + s] + middle[s] + two, middle[s] + work.raw[1, t] + two
            if counted:
                work.best[2, t] = min(work.best[2, t], left)
                work.best[3, first + s] = min(work.best[3, first + s], right)
                n_s, n_t = work.prefix[n_actions, first + s], work.prefix[n_actions, t]
                if n_t - n_s < problem.min_leaf or n_s < problem.min_leaf:
                    left = np.inf
                if n_t - n_s < problem.min_leaf or n - n_t < problem.min_leaf:
                    right = np.inf
            work.best[0, t] = min(work.best[0, t], left)
            work.best[1, first + s] = min(work.best[1, first + s], right)


@inner_minima
def set_minima(sums, n_actions, n_cuts, minima, row):
    """Write the least of the actions' ``sums`` (C, K) to one of two rows of ``minima``; return which.

    No loop writes to what it reads: otherwise the compiler uses masked writes, and reading the result back is slow.
    """
    last, before = n_actions - 1, len(minima) - 1
    for c in range(0, n_actions, 4):
        c1, c2, c3 = min(c + 1, last), min(c + 2, last), min(c + 3, last)
        after = row + (c // 4) % 2
        for b in range(n_cuts):
            least = min(min(sums[c, b], sums[c1, b]), min(sums[c2, b], sums[c3, b]))
            minima[after, b] = min(minima[before, b], least)
        before = after
    return before


@inner_minima
def set_minima_of_rest(totals, sums, n_actions, n_cuts, minima, row):
    """Do the same with ``totals`` (C,) minus the sums."""
    last, before = n_actions - 1, len(minima) - 1
    for c in range(0, n_actions, 4):
        c1, c2, c3 = min(c + 1, last), min(c + 2, last), min(c + 3, last)
        t0, t1, t2, t3 = totals[c], totals[c1], totals[c2], totals[c3]
        after = row + (c // 4) % 2
        for b in range(n_cuts):
            least = min(min(t0 - sums[c, b], t1 - sums[c1, b]), min(t2 - sums[c2, b], t3 - sums[c3, b]))
            minima[after, b] = min(minima[before, b], least)
        before = after
    return before


@inner_minima
def lower(minima, places, n_cuts, best, row, two, i, first):
    """Lower the least costs (``row`` of ``best`` left, the next one right) of the first feature at ``i``, of the second from ``first`` on."""
    q0, q1, q2, q3 = places
    left, right = np.inf, np.inf
    for b in range(n_cuts):
        left = min(left, minima[q0, b] + minima[q1, b])
        right = min(right, minima[q2, b] + minima[q3, b])
    for b in range(n_cuts):
        best[row, first + b] = min(best[row, first + b], minima[q0, b] + minima[q2, b] + two)
    for b in range(n_cuts):
        best[row + 1, first + b] = min(best[row + 1, first + b], minima[q1, b] + minima[q3, b] + two)
    best[row, i] = min(best[row, i], left + two)
    best[row + 1, i] = min(best[row + 1, i], right + two)


@inner
def forbid_small(least, low, high, rolling, beside, k, minima, places, n_cuts):
    """Make quarters with fewer than ``least`` rows infinitely expensive; row ``k`` of the sums counts rows."""
    q0, q1, q2, q3 = places
    for b in range(n_cuts):
        if rolling[k, b] < least:
            minima[q0, b] = np.inf
        if low[k] - rolling[k, b] < least:
            minima[q1, b] = np.inf
        if beside[k, b] < least:
            minima[q2, b] = np.inf
        if high[k] - beside[k, b] < least:
            minima[q3, b] = np.inf


@inner
def roll(whole, part, rest, start, n_bins, rolling):
    """Add the sums up to each bin in a row of a table, which begins at ``start``, to ``rolling`` (C, K)."""
    n_columns = len(rolling)
    for c in range(0, n_columns - 3, 4):  # four chains of additions at once
        a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
        for b in range(n_bins):
            k = start + b * n_columns + c
            a0 += whole[k] - part[k] if rest else part[k]
            a1 += whole[k + 1] - part[k + 1] if rest else part[k + 1]
            a2 += whole[k + 2] - part[k + 2] if rest else part[k + 2]
            a3 += whole[k + 3] - part[k + 3] if rest else part[k + 3]
            rolling[c, b] += a0
            rolling[c + 1, b] += a1
            rolling[c + 2, b] += a2
            rolling[c + 3, b] += a3
    for c in range(n_columns - n_columns % 4, n_columns):
        a0 = 0.0
        for b in range(n_bins):
            k = start + b * n_columns + c
            a0 += whole[k] - part[k] if rest else part[k]
            rolling[c, b] += a0


@inner
def set_beside(work, last_v, i, first_w, n_cuts):
    """Write the sums beside those in ``rolling``, and those of both parts of the first feature."""
    prefix, rolling, beside = work.prefix, work.rolling, work.beside
    for c in range(len(rolling)):
        work.low_sums[c], work.high_sums[c] = prefix[c, i], prefix[c, last_v] - prefix[c, i]
        for b in range(n_cuts):
            beside[c, b] = prefix[c, first_w + b] - rolling[c, b]


@inner
def cut_both(problem, work, v, w, whole, part, rest):
    """Lower ``best`` with cuts of ``w`` below cuts of ``v`` and vice versa, from their tables (cells * C,)."""
    rolling, beside, minima, best = work.rolling, work.beside, work.minima, work.best
    low, high, first, n_actions, two = (
        work.low_sums,
        work.high_sums,
        problem.firsts[w],
        problem.n_actions,
        2 * problem.penalty,
    )
    n_cuts = problem.firsts[w + 1] - first - 1
    rolling[:] = 0.0
    minima[8] = np.inf
    for i in range(problem.firsts[v], problem.firsts[v + 1] - 1):
        roll(whole, part, rest, (i - problem.firsts[v]) * (n_cuts + 1) * len(rolling), n_cuts + 1, rolling)
        set_beside(work, problem.firsts[v + 1] - 1, i, first, n_cuts)
        places = (
            set_minima(rolling, n_actions, n_cuts, minima, 0),
            set_minima_of_rest(low, rolling, n_actions, n_cuts, minima, 2),
            set_minima(beside, n_actions, n_cuts, minima, 4),
            set_minima_of_rest(high, beside, n_actions, n_cuts, minima, 6),
        )
        if problem.min_leaf > 1:
            lower(minima, places, n_cuts, best, 2, two, i, first)
            forbid_small(problem.min_leaf, low, high, rolling, beside, n_actions, minima, places, n_cuts)
        lower(minima, places, n_cuts, best, 0, two, i, first)


@inner
def best_cut(problem, work):
    """Return the least cost of a node, the least relaxed cost and the split, from the costs of both sides of each cut."""
    counted = problem.min_leaf > 1
    leaf = np.inf
    for c in range(problem.n_actions):
        leaf = min(leaf, work.prefix[c, problem.firsts[1] - 1])
    cost = leaf + problem.penalty
    relaxed, feature, cut = cost, NO_SPLIT, NO_SPLIT
    for v in range(len(problem.firsts) - 1):
        for i in range(problem.firsts[v], problem.firsts[v + 1] - 1):
            here = work.best[0, i] + work.best[1, i]
            if here < cost:
                cost, feature, cut = here, v, i - problem.firsts[v]
            if counted:
                relaxed = min(relaxed, work.best[2, i] + work.best[3, i])
    return cost, relaxed if counted else cost, feature, cut


@compiled
def one_level(problem, work, rows):
    """Return the best tree of depth one of ``rows``: cost, relaxed cost and split."""
    work.bins[1] = 0.0
    add_to_bins(problem, rows, work.bins[1], 1.0)
    sum_up(problem, work.bins[1], work.bins[1], np.bool_(False), work.prefix)
    take_leaves(problem, work)
    return best_cut(problem, work)


@inner
def two_levels_of_tables(problem, work, bins, part_bins, tables, part_tables, rest):
    """Return the best tree of depth two of the rows in the tables of a part, or of the ``rest``: cost, relaxed cost and split."""
    n_features, n_columns = problem.codes.shape[1], problem.losses.shape[1]
    sum_up(problem, bins, part_bins, rest, work.prefix)
    take_leaves(problem, work)
    for v in range(n_features):
        cut_twice(problem, work, v)
        for w in range(v + 1, n_features):
            start = problem.table_starts[v, w] * n_columns
            cut_both(problem, work, v, w, tables[start:], part_tables[start:], rest)
    return best_cut(problem, work)


@compiled
def two_levels_of_rows(problem, work, rows):
    """Return the best tree of depth two of ``rows``, with one table at a time: cost, relaxed cost and split."""
    n_features, n_columns = problem.codes.shape[1], problem.losses.shape[1]
    work.bins[1] = 0.0
    add_to_bins(problem, rows, work.bins[1], 1.0)
    rest = np.bool_(False)
    sum_up(problem, work.bins[1], work.bins[1], rest, work.prefix)
    take_leaves(problem, work)
    for v in range(n_features):
        cut_twice(problem, work, v)
        for w in range(v + 1, n_features):
            if work.stop[0] != BY_ITSELF:
                cost, _, feature, cut = best_cut(problem, work)
                return cost, min(cost, 2 * problem.penalty), feature, cut
            n_cells = (problem.firsts[v + 1] - problem.firsts[v]) * (problem.firsts[w + 1] - problem.firsts[w])
            table = work.tables[1][: n_cells * n_columns]
            table[:] = 0.0
            add_to_table(problem, v, w, rows, table, 1.0)
            cut_both(problem, work, v, w, table, table, rest)
    return best_cut(problem, work)


@compiled
def by_tables(problem, n, n_cells):
    """Return whether two levels of ``n`` rows are cheaper to search with tables than by scanning the rows for each cut."""
    if problem.engine != BY_COST:
        return problem.engine == BY_TABLES
    n_features, n_columns = problem.codes.shape[1], problem.losses.shape[1]
    n_pairs = n_features * (n_features - 1) // 2
    n_cuts = 0
    for v in range(n_features):
        n_cuts += min(problem.firsts[v + 1] - problem.firsts[v], n)
    tables = n_pairs * n * (n_columns + 8.0) + 3.0 * n_cells * n_columns
    return tables <= 0.1 * n_cuts * n * n_features * (n_columns + 15.0)


@inner_minima
def add_and_compare(sums, losses, total, n_actions):
    """Add ``losses`` (C,) to ``sums``; return the costs of the best actions for these rows and for the rest of ``total``."""
    low, high = np.inf, np.inf
    for c in range(n_actions):
        here = sums[c] + losses[c]
        sums[c] = here
        low = min(low, here)
        high = min(high, total[c] - here)
    return low + high


@inner
def two_sides(problem, work, rows, n_left, v, t):
    """Return the costs of depth one left and right of a cut, and the relaxed ones; ``rows`` are sorted by the feature."""
    n, n_actions, counted = len(rows), problem.n_actions, problem.min_leaf > 1
    total = work.sums[1]
    total[:] = 0.0
    add_rows(problem.losses, rows[:n_left], total[0])
    add_rows(problem.losses, rows[n_left:], total[1])
    left, right = least_of(total[0], n_actions) + problem.penalty, least_of(total[1], n_actions) + problem.penalty
    cost, relaxed = (left, right), (left, right)
    for w in range(problem.codes.shape[1]):
        sums = work.sums[0]
        sums[:] = 0.0
        now_left, now_right, count_left, count_right = np.inf, np.inf, 0, 0
        by_w = work.by_feature[w][:n]
        code = problem.codes[by_w[0], w]
        for i in range(n - 1):
            row = by_w[i]
            if problem.codes[row, v] <= t:
                now_left = add_and_compare(sums[0], problem.losses[row], total[0], n_actions) + 2 * problem.penalty
                count_left += 1
            else:
                now_right = add_and_compare(sums[1], problem.losses[row], total[1], n_actions) + 2 * problem.penalty
                count_right += 1
            following = problem.codes[by_w[i + 1], w]
            if following == code:
                continue
            code = following
            relaxed = (min(relaxed[0], now_left), min(relaxed[1], now_right))
            if counted:
                least = problem.min_leaf
                good_left = count_left >= least and n_left - count_left >= least
                good_right = count_right >= least and n - n_left - count_right >= least
                cost = (
                    min(cost[0], now_left) if good_left else cost[0],
                    min(cost[1], now_right) if good_right else cost[1],
                )
    return (cost, relaxed) if counted else (relaxed, relaxed)


@inner
def side_of(v, t, right):
    """Return a 32-bit key for one side of a cut."""
    return (np.int64(v) << 17) | (np.int64(t) << 1) | np.int64(right)


@inner
def key_of(one, other):
    """Return the key of the rows that are on both of two sides; never 0."""
    return ((min(one, other) + 1) << 32) | (max(one, other) + 1)


@inner
def slot_of(key, keys):
    """Return the slot of ``key`` in the cache."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(len(keys) - 1))


@inner
def is_known(work, key, most, level, side):
    """Read a side from the cache; return whether it was found."""
    slot = slot_of(key, work.keys)
    if work.keys[slot] != key or (work.known[slot, 4] == 0.0 and work.known[slot, 1] <= most):
        return False
    copy(work.known[slot], work.sides[level, side])
    return True


@inner
def remember(work, key, level, side, complete):
    """Put a side into the cache."""
    slot = slot_of(key, work.keys)
    work.keys[slot] = key
    copy(work.sides[level, side], work.known[slot][:4])
    work.known[slot, 4] = 1.0 if complete else 0.0


@inner
def find_cuts(problem, n, n_bins, ends, cuts):
    """Write the cuts that separate rows and leave enough on both sides; return their number, and how many leave too few."""
    n_cuts, n_small = 0, 0
    for t in range(n_bins - 1):
        n_left = ends[t + 1]
        if n_left == ends[t] or n_left == n:
            continue
        if n_left < problem.min_leaf or n - n_left < problem.min_leaf:
            n_small += 1
            continue
        cuts[n_cuts] = t
        n_cuts += 1
    return n_cuts, n_small


@compiled
def put_in_order(problem, work, rows, level):
    """Write the order in which a node's features are searched."""
    n_features = problem.codes.shape[1]
    order = work.order[level]
    for v in range(n_features):
        order[v] = v if problem.ordering != REVERSED else n_features - 1 - v
    if problem.ordering != PROMISING:
        return
    one_level(problem, work, rows)
    costs = np.full(n_features, np.inf)
    for v in range(n_features):
        for i in range(problem.firsts[v], problem.firsts[v + 1] - 1):
            costs[v] = min(costs[v], work.best[0, i] + work.best[1, i])
        k = v  # insertion sort: numba takes seconds to compile its own sort
        while k > 0 and costs[order[k - 1]] > costs[v]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = v


@inner
def keep_record(record, v, t, left, right):
    """Write the tree made of the split and both subtrees to ``record`` (7, 2)."""
    record[:] = NO_SPLIT
    set_two(record[0], v, t)
    for depth in range(2):
        width = 1 << depth
        for k in range(width):
            copy(left[width - 1 + k], record[2 * width - 1 + k])
            copy(right[width - 1 + k], record[3 * width - 1 + k])


@inner
def open_node(problem, work, rows, level, limit):
    """Start the search in a node; return whether a split can reduce the cost."""
    total, costs, places = work.totals[level], work.costs[level], work.places[level]
    total[:] = 0.0
    add_rows(problem.losses, rows, total)
    leaf = least_of(total, problem.n_actions) + problem.penalty
    costs[COST], costs[BOUND], costs[LIMIT], costs[BAR] = leaf, leaf, limit, limit
    places[:] = 0
    places[FEATURE], places[CUT], places[PLACE] = NO_SPLIT, NO_SPLIT, -1
    work.record[level] = NO_SPLIT
    if leaf > 2 * problem.penalty and len(rows) >= 2 * problem.min_leaf:
        return True
    costs[BOUND] = min(leaf, 2 * problem.penalty)
    return False


@inner
def open_feature(problem, work, rows, level):
    """Move on to the next feature of a node; return whether there is one."""
    costs, places = work.costs[level], work.places[level]
    places[PLACE] += 1
    if places[PLACE] == problem.codes.shape[1] or work.order[level, places[PLACE]] == NO_SPLIT:
        return False
    if work.stop[0] != BY_ITSELF:
        costs[BOUND] = min(costs[BOUND], 2 * problem.penalty)
        return False
    v = work.order[level, places[PLACE]]
    n_bins = problem.firsts[v + 1] - problem.firsts[v]
    order_rows(problem.codes, v, rows, n_bins, work.ends[level], work.ordered[level])
    n_cuts, n_small = find_cuts(problem, len(rows), n_bins, work.ends[level], work.cuts[level])
    if n_small > 0:
        costs[BOUND] = min(costs[BOUND], 2 * problem.penalty)
    work.low[level, 0], work.high[level, n_cuts + 1] = problem.penalty, problem.penalty
    set_two(work.waiting[level, 0], -1, n_cuts)
    places[N_CUTS], places[N_WAITING] = n_cuts, 1
    return True


@inner
def bar_of(work, level, v, t):
    """Return the largest cost at which a tree with this first split would be the best so far."""
    costs, feature, cut = work.costs[level], work.places[level, FEATURE], work.places[level, CUT]
    earlier = v < feature or (v == feature and t < cut)
    bar = min(costs[LIMIT], costs[COST] if earlier else costs[COST] - 1)
    return bar if level > 0 else min(bar, work.least[0])


@inner
def next_cut(problem, work, level):
    """Choose the next cut of the feature to search, in the middle of an interval; return False if none is left."""
    costs, places = work.costs[level], work.places[level]
    v, cuts = work.order[level, places[PLACE]], work.cuts[level]
    while places[N_WAITING] > 0:
        places[N_WAITING] -= 1
        a, b = work.waiting[level, places[N_WAITING], 0], work.waiting[level, places[N_WAITING], 1]
        if b - a < 2:
            continue
        least = work.low[level, a + 1] + work.high[level, b + 1]
        pruned = problem.bounds and least > bar_of(work, level, v, cuts[a + 1])
        if pruned or work.stop[0] != BY_ITSELF:
            costs[BOUND] = min(costs[BOUND], least)
            continue
        m = (a + b) // 2
        places[FROM], places[TO], places[MIDDLE] = a, b, m
        places[N_LEFT] = work.ends[level, cuts[m] + 1]
        costs[BAR] = bar_of(work, level, v, cuts[m])
        work.sides[level] = NO_SPLIT
        set_two(work.sides[level, 0], np.inf, work.low[level, a + 1])
        set_two(work.sides[level, 1], np.inf, work.high[level, b + 1])
        return True
    return False


@inner
def close_cut(work, level):
    """Update the node with the results for both sides of a cut; return whether the cut is the best so far."""
    costs, places, sides = work.costs[level], work.places[level], work.sides[level]
    if work.stop[0] == BY_ITSELF:
        if work.used[0] >= work.used[1]:
            work.stop[0] = BY_NODES
        elif work.used[2] >= work.used[3]:
            work.stop[0] = BY_WORK
    m, n_waiting = places[MIDDLE], places[N_WAITING]
    work.low[level, m + 1], work.high[level, m + 1] = sides[0, 1], sides[1, 1]
    costs[BOUND] = min(costs[BOUND], sides[0, 1] + sides[1, 1])
    set_two(work.waiting[level, n_waiting], m, places[TO])
    set_two(work.waiting[level, n_waiting + 1], places[FROM], m)
    places[N_WAITING] += 2
    cost = sides[0, 0] + sides[1, 0]
    if not cost <= costs[BAR]:
        return False
    costs[COST] = cost
    places[FEATURE], places[CUT] = work.order[level, places[PLACE]], work.cuts[level, m]
    if level == 0 and cost < work.least[0]:
        work.least[0] = cost
    return True


@inner
def most_of(problem, work, level, side):
    """Return the largest cost of a side at which its cut would be the best so far; below its bound if no search is needed."""
    if not problem.bounds:
        return np.inf
    bar, sides = work.costs[level, BAR], work.sides[level]
    return bar - (sides[1, 1] if side == 0 else min(sides[0, 0], bar + 1))


@inner
def set_side(work, level, side, result):
    """Store the cost, bound and split of a side."""
    row = work.sides[level, side]
    row[0], row[1], row[2], row[3] = result[0], max(result[1], row[1]), result[2], result[3]


@inner
def result_of(work, level):
    """Return the cost, the bound and the split of a node."""
    costs, places = work.costs[level], work.places[level]
    return costs[COST], costs[BOUND], places[FEATURE], places[CUT]


@inner
def set_order(problem, work, rows, level, only):
    """Write the order in which a node's features are searched, or ``only`` one feature."""
    if only == NO_SPLIT:
        put_in_order(problem, work, rows, level)
        return
    work.order[level] = NO_SPLIT
    work.order[level, 0] = only


@compiled
def search_two(problem, work, rows, level, limit, only):
    """Return the best tree of depth two, cut by cut: cost, bound and split.

    Trees that cost more than ``limit`` are ignored: if all do, or if the search was stopped, the cost is that of some tree,
    not of the best. The bound holds for the relaxed cost. ``only`` is the one feature that may be cut first, or -1.
    """
    n = len(rows)
    if not open_node(problem, work, rows, level, limit):
        return result_of(work, level)
    set_order(problem, work, rows, level, only)
    for w in range(problem.codes.shape[1]):
        n_bins = problem.firsts[w + 1] - problem.firsts[w]
        order_rows(problem.codes, w, rows, n_bins, work.ends[level], work.by_feature[w])
    while open_feature(problem, work, rows, level):
        v = work.order[level, work.places[level, PLACE]]
        while next_cut(problem, work, level):
            n_left, t = work.places[level, N_LEFT], work.cuts[level, work.places[level, MIDDLE]]
            cost, relaxed = two_sides(problem, work, work.ordered[level][:n], n_left, v, t)
            work.used[0] += 1
            work.used[2] += n * problem.codes.shape[1] * (problem.losses.shape[1] + ROW_OF_SCAN)
            for side in range(2):
                set_side(work, level, side, (cost[side], relaxed[side], NO_SPLIT, NO_SPLIT))
            if close_cut(work, level):
                set_two(work.record[level, 0], v, t)
    return result_of(work, level)


@inner
def best_of_two(problem, work, rows, level, limit):
    """Return the best tree of depth two, in the cheaper way: cost, bound and split."""
    if by_tables(problem, len(rows), problem.table_starts[-1, -1]):
        count_tables(problem, work, len(rows), problem.table_starts[-1, -1])
        return two_levels_of_rows(problem, work, rows)
    return search_two(problem, work, rows, level, limit, np.int64(NO_SPLIT))


@inner
def count_tables(problem, work, n, cells):
    """Count the work of adding ``n`` rows to the tables of all pairs of features, and of reading ``cells`` of them."""
    n_features, n_columns = problem.codes.shape[1], problem.losses.shape[1]
    rows = n * (n_features * (n_features - 1) // 2) * (n_columns + ROW_OF_TABLES)
    work.used[2] += TABLE_STEPS * (rows + cells * n_columns)


@inner
def move_tables(problem, work, ordered, position, n_left):
    """Turn the tables of the first ``position`` rows into those of the first ``n_left``."""
    count_tables(problem, work, abs(n_left - position), 0)
    rows, sign = (ordered[position:n_left], 1.0) if position < n_left else (ordered[n_left:position], -1.0)
    add_to_bins(problem, rows, work.bins[1], sign)
    add_to_tables(problem, rows, work.tables[1], sign)


@inner
def start_tables(problem, work, rows):
    """Fill the tables of all ``rows``, and clear those of the rows left of a cut."""
    work.bins[:] = 0.0
    work.tables[:] = 0.0
    add_to_bins(problem, rows, work.bins[0], 1.0)
    add_to_tables(problem, rows, work.tables[0], 1.0)


@inner
def stack_tables(problem, work, rows, level):
    """Fill the tables of the rows up to each bin of the feature being searched."""
    count_tables(problem, work, len(rows), len(work.bins_up_to) * problem.table_starts[-1, -1])
    v, ends = work.order[level, work.places[level, PLACE]], work.ends[level]
    for b in range(problem.firsts[v + 1] - problem.firsts[v]):
        bins, tables, of_bin = work.bins_up_to[b], work.tables_up_to[b], rows[ends[b] : ends[b + 1]]
        if b == 0:
            bins[:] = 0.0
            tables[:] = 0.0
        else:
            for i in range(len(bins)):
                copy(work.bins_up_to[b - 1, i], bins[i])
            copy(work.tables_up_to[b - 1], tables)
        add_to_bins(problem, of_bin, bins, 1.0)
        add_to_tables(problem, of_bin, tables, 1.0)


@inner
def way_of(problem, work, n):
    """Return how the sides of a cut of ``n`` rows are searched: STACKED, MOVING or ONE_BY_ONE."""
    n_cells, n_features = problem.table_starts[-1, -1], problem.codes.shape[1]
    if not by_tables(problem, n, n_cells) or work.tables.shape[1] < n_cells * problem.losses.shape[1]:
        return ONE_BY_ONE
    most = len(work.bins_up_to)
    return STACKED if most > 0 and n * n_features * n_features > most * n_cells else MOVING


@inner
def side_by_tables(problem, work, level, way, side):
    """Return the best tree of depth two on a side of the cut: cost, bound and split."""
    count_tables(problem, work, 0, problem.table_starts[-1, -1])
    v, rest = work.order[level, work.places[level, PLACE]], side == 1
    if way == MOVING:
        bins, tables = work.bins, work.tables
        return two_levels_of_tables(problem, work, bins[0], bins[1], tables[0], tables[1], rest)
    t, last = work.cuts[level, work.places[level, MIDDLE]], problem.firsts[v + 1] - problem.firsts[v] - 1
    bins, tables = work.bins_up_to, work.tables_up_to
    return two_levels_of_tables(problem, work, bins[last], bins[t], tables[last], tables[t], rest)


@compiled
def search_three(problem, work, rows, level, limit, only):
    """Return the best tree of depth three: cost, bound and split; the rest is as in `search_two`."""
    n, way = len(rows), way_of(problem, work, len(rows))
    if not open_node(problem, work, rows, level, limit):
        return result_of(work, level)
    set_order(problem, work, rows, level, only)
    position = 0  # number of rows in the moving tables
    if way == MOVING:
        start_tables(problem, work, rows)
    while open_feature(problem, work, rows, level):
        v = work.order[level, work.places[level, PLACE]]
        if way == MOVING:
            work.bins[1] = 0.0
            work.tables[1] = 0.0
            position = 0
        elif way == STACKED:
            stack_tables(problem, work, work.ordered[level][:n], level)
        while next_cut(problem, work, level):
            n_left, t = work.places[level, N_LEFT], work.cuts[level, work.places[level, MIDDLE]]
            for side in range(2):
                most = most_of(problem, work, level, side)
                if most < work.sides[level, side, 1]:
                    break
                key = key_of(work.path[0], side_of(v, t, side)) if level == 1 and problem.caching else 0
                if key != 0 and is_known(work, key, most, level, side):
                    continue
                work.used[0] += 1
                if way == MOVING:
                    move_tables(problem, work, work.ordered[level], position, n_left)
                    position = n_left
                if way == ONE_BY_ONE:
                    of_side = work.ordered[level][:n_left] if side == 0 else work.ordered[level][n_left:n]
                    result = best_of_two(problem, work, of_side, level + 1, most)
                else:
                    result = side_by_tables(problem, work, level, way, side)
                set_side(work, level, side, result)
                if key != 0:
                    complete = way != ONE_BY_ONE or (result[0] <= most and work.stop[0] == BY_ITSELF)
                    remember(work, key, level, side, complete)
            if close_cut(work, level):
                set_two(work.record[level, 0], v, t)
                for side in range(2):
                    split = work.sides[level, side]
                    set_two(work.record[level, 1 + side], np.int64(split[2]), np.int64(split[3]))
    return result_of(work, level)


@compiled
def search_four(problem, work, rows, level, limit, only):
    """Return the best tree of depth four: cost, bound and split; the rest is as in `search_two`."""
    n = len(rows)
    if not open_node(problem, work, rows, level, limit):
        return result_of(work, level)
    set_order(problem, work, rows, level, only)
    while open_feature(problem, work, rows, level):
        v = work.order[level, work.places[level, PLACE]]
        while next_cut(problem, work, level):
            n_left, t = work.places[level, N_LEFT], work.cuts[level, work.places[level, MIDDLE]]
            for side in range(2):
                most = most_of(problem, work, level, side)
                if most < work.sides[level, side, 1]:
                    break
                work.path[0] = side_of(v, t, side)
                of_side = work.ordered[level][:n_left] if side == 0 else work.ordered[level][n_left:n]
                set_side(work, level, side, search_three(problem, work, of_side, level + 1, most, np.int64(NO_SPLIT)))
                for k in range(7):
                    copy(work.record[level + 1, k], work.kept[side, k])
            if close_cut(work, level):
                keep_record(work.record[level], v, t, work.kept[0], work.kept[1])
    return result_of(work, level)
