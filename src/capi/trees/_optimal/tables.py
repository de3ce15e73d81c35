"""The best tree of two levels, from tables over the bins of two features.

Integers are never NaN or -0, hence `inner_minima`, which lets the compiler vectorise minima.
"""

import numpy as np

from capi._utils.compile import apart, entry, inner_minima
from capi.trees._optimal.records import BY_COST, BY_ITSELF, BY_TABLES, NO_SPLIT
from capi.trees._optimal.sums import add_to_bins, add_to_table, sum_up


@apart
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


@apart
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


@apart
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


@apart
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


@apart
def set_beside(work, last_v, i, first_w, n_cuts):
    """Write the sums beside those in ``rolling``, and those of both parts of the first feature."""
    prefix, rolling, beside = work.prefix, work.rolling, work.beside
    for c in range(len(rolling)):
        work.low_sums[c], work.high_sums[c] = prefix[c, i], prefix[c, last_v] - prefix[c, i]
        for b in range(n_cuts):
            beside[c, b] = prefix[c, first_w + b] - rolling[c, b]


@apart
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


@apart
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


@entry
def one_level(problem, work, rows):
    """Return the best tree of depth one of ``rows``: cost, relaxed cost and split."""
    work.bins[1] = 0.0
    add_to_bins(problem, rows, work.bins[1], 1.0)
    sum_up(problem, work.bins[1], work.bins[1], np.bool_(False), work.prefix)
    take_leaves(problem, work)
    return best_cut(problem, work)


@apart
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


@entry
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


@entry
def by_tables(problem, n, n_cells):
    """Return whether two levels of ``n`` rows are cheaper to search with tables than by passes over the rows.

    The constants are nanoseconds, measured on 1,000 to 60,000 rows.
    """
    if problem.engine != BY_COST:
        return problem.engine == BY_TABLES
    n_features, n_actions, n_columns = problem.codes.shape[1], problem.n_actions, problem.losses.shape[1]
    passes = 0
    for v in range(n_features):
        passes += min(3, (min(problem.firsts[v + 1] - problem.firsts[v], n) + 7) // 8)
    n_pairs = n_features * (n_features - 1) // 2
    tables = 3.0 * n_pairs * n * (n_columns + 2) + 5.0 * n_cells * n_columns
    return tables <= passes * n * n_features * (4.0 if n_actions == 2 else 3.5 * n_actions)
