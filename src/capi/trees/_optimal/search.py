"""The searches for the best tree of depth two, three and four."""

import numpy as np

from capi._utils.compile import compiled, inner
from capi.trees._optimal.nodes import (
    close_cut,
    is_known,
    keep_record,
    key_of,
    most_of,
    next_cut,
    open_feature,
    open_node,
    remember,
    result_of,
    set_order,
    set_side,
    side_of,
)
from capi.trees._optimal.records import (
    BY_ITSELF,
    MOVING,
    NO_SPLIT,
    ONE_BY_ONE,
    ROW_OF_SCAN,
    ROW_OF_TABLES,
    STACKED,
    TABLE_STEPS,
)
from capi.trees._optimal.rows import two_sides
from capi.trees._optimal.sums import add_to_bins, add_to_tables, copy, order_rows, set_two
from capi.trees._optimal.tables import by_tables, two_levels_of_rows, two_levels_of_tables


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
        v = work.order[level, work.nodes[level]["place"]]
        while next_cut(problem, work, level):
            n_left, t = work.nodes[level]["n_left"], work.cuts[level, work.nodes[level]["middle"]]
            cost, relaxed = two_sides(problem, work, work.ordered[level][:n], n_left, v, t)
            work.budget[0]["nodes"] += 1
            work.budget[0]["steps"] += n * problem.codes.shape[1] * (problem.losses.shape[1] + ROW_OF_SCAN)
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
    work.budget[0]["steps"] += TABLE_STEPS * (rows + cells * n_columns)


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
    v, ends = work.order[level, work.nodes[level]["place"]], work.ends[level]
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
    v, rest = work.order[level, work.nodes[level]["place"]], side == 1
    if way == MOVING:
        bins, tables = work.bins, work.tables
        return two_levels_of_tables(problem, work, bins[0], bins[1], tables[0], tables[1], rest)
    t, last = work.cuts[level, work.nodes[level]["middle"]], problem.firsts[v + 1] - problem.firsts[v] - 1
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
        v = work.order[level, work.nodes[level]["place"]]
        if way == MOVING:
            work.bins[1] = 0.0
            work.tables[1] = 0.0
            position = 0
        elif way == STACKED:
            stack_tables(problem, work, work.ordered[level][:n], level)
        while next_cut(problem, work, level):
            n_left, t = work.nodes[level]["n_left"], work.cuts[level, work.nodes[level]["middle"]]
            for side in range(2):
                most = most_of(problem, work, level, side)
                if most < work.sides[level, side]["bound"]:
                    break
                key = key_of(work.path[0], side_of(v, t, side)) if level == 1 and problem.caching else 0
                if key != 0 and is_known(work, key, most, level, side):
                    continue
                work.budget[0]["nodes"] += 1
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
                    set_two(work.record[level, 1 + side], split["feature"], split["cut"])
    return result_of(work, level)


@compiled
def search_four(problem, work, rows, level, limit, only):
    """Return the best tree of depth four: cost, bound and split; the rest is as in `search_two`."""
    n = len(rows)
    if not open_node(problem, work, rows, level, limit):
        return result_of(work, level)
    set_order(problem, work, rows, level, only)
    while open_feature(problem, work, rows, level):
        v = work.order[level, work.nodes[level]["place"]]
        while next_cut(problem, work, level):
            n_left, t = work.nodes[level]["n_left"], work.cuts[level, work.nodes[level]["middle"]]
            for side in range(2):
                most = most_of(problem, work, level, side)
                if most < work.sides[level, side]["bound"]:
                    break
                work.path[0] = side_of(v, t, side)
                of_side = work.ordered[level][:n_left] if side == 0 else work.ordered[level][n_left:n]
                set_side(work, level, side, search_three(problem, work, of_side, level + 1, most, np.int64(NO_SPLIT)))
                for k in range(7):
                    copy(work.record[level + 1, k], work.kept[side, k])
            if close_cut(work, level):
                keep_record(work.record[level], v, t, work.kept[0], work.kept[1])
    return result_of(work, level)
