"""The searches for the best tree of depth two, three and four."""

import numpy as np

from capi._utils.compile import apart, entry
from capi.trees._optimal.nodes import (
    bar_of,
    check_budget,
    close_cut,
    count_cuts,
    is_known,
    keep_record,
    key_of,
    most_of,
    next_cut,
    next_interval,
    open_feature,
    open_node,
    put_in_order,
    remember,
    result_of,
    room_of,
    set_order,
    set_side,
    take_cut,
    wait,
)
from capi.trees._optimal.records import (
    BY_ITSELF,
    LANES,
    MOVING,
    NO_SPLIT,
    ONE_BY_ONE,
    ROW_OF_SCAN,
    ROW_OF_TABLES,
    STACKED,
    TABLE_STEPS,
)
from capi.trees._optimal.rows import cost_of_lanes, gather, part, two_sides
from capi.trees._optimal.sums import add_to_bins, add_to_tables, copy, set_two
from capi.trees._optimal.tables import by_tables, two_levels_of_rows, two_levels_of_tables


@apart
def choose_lanes(problem, work, level):
    """Choose the cuts that the next pass compares, evenly spaced in the first intervals of the queue; return their number."""
    node, cuts, fresh = work.state.nodes[level], work.scan.lane_cuts, work.state.fresh
    n_lanes, n_fresh, each = 0, 0, max(1, LANES // max(node["n_waiting"], 1))
    while n_lanes + each <= LANES and next_interval(problem, work.state, level):
        a, b = node["after"], node["before"]
        some, before = min(each, b - a - 1), a
        for s in range(some):
            m = a + ((s + 1) * (b - a)) // (some + 1)
            place = n_lanes  # insertion sort by cut
            while place > 0 and cuts[place - 1] > m:
                cuts[place] = cuts[place - 1]
                place -= 1
            cuts[place] = m
            n_lanes += 1
            set_two(fresh[n_fresh], before, m)
            n_fresh += 1
            before = m
        set_two(fresh[n_fresh], before, b)
        n_fresh += 1
    for k in range(n_fresh):
        wait(work.state, level, fresh[k, 0], fresh[k, 1])
    for lane in range(n_lanes):
        work.scan.lane_ends[lane] = work.state.positions[level, cuts[lane] + 1]
    return n_lanes


@apart
def compare_lanes(problem, work, level, first, last, n_lanes, n_active):
    """Compare the lanes' cuts of the feature being searched."""
    node, n, costs = work.state.nodes[level], last - first, work.scan.lane_costs
    v = work.state.order[level, node["place"]]
    cost_of_lanes(problem, work.scan, level, first, v, n, n_lanes, n_active)
    work.state.budget[0]["nodes"] += n_lanes
    work.state.budget[0]["steps"] += n * n_active * (problem.losses.shape[1] + ROW_OF_SCAN)
    for lane in range(n_lanes):
        m, left, right = work.scan.lane_cuts[lane], costs[0, lane], costs[1, lane]
        work.state.low[level, m + 1], work.state.high[level, m + 1] = left, right
        node["bound"] = min(node["bound"], left + right)
        bar = bar_of(work.state, level, v, work.state.cuts[level, m])
        if problem.min_leaf > 1 and left + right <= bar:
            left, right = two_sides(
                problem, work.scan, level, first, v, n, work.state.positions[level, m + 1], n_active
            )
        if left + right <= bar:
            take_cut(work.state, level, m, left + right)
            set_two(work.state.record[level, 0], v, work.state.cuts[level, m])
    check_budget(work.state)


@entry
def search_two(problem, work, level, first, last, limit, only, known):
    """Return the best tree of depth two of rows ``first`` to ``last`` of a level: cost, bound and split.

    Trees that cost more than ``limit`` are ignored: if all do, or if the search was stopped, the cost is that of some tree,
    not of the best. The bound holds for the relaxed cost. ``only`` is the one feature that may be cut first, or -1.
    ``known`` (V,) are lower bounds on the relaxed cost of trees by the first feature, and are raised; V may be 0. They also
    hold for cuts with all rows on one side, because these may separate the rows of a larger node.
    """
    if not open_node(problem, work.state, work.scan, level, first, last, limit):
        return result_of(work.state, level)
    n_active = gather(problem, work.scan, level, first, last)
    all_left = set_order(problem, work.state, work.scan, level, only)
    node = work.state.nodes[level]
    while open_feature(problem, work.state, level):
        v = work.state.order[level, node["place"]]
        so_far, node["bound"] = node["bound"], np.inf
        inherited = known[v] if len(known) > 0 else 0.0
        if problem.bounds and inherited > bar_of(work.state, level, v, -1):
            node["bound"] = inherited
        else:
            count_cuts(problem, work.state, work.scan, level, first, last, all_left)
            n_lanes = choose_lanes(problem, work, level)
            while n_lanes > 0:
                compare_lanes(problem, work, level, first, last, n_lanes, n_active)
                n_lanes = choose_lanes(problem, work, level)
            if len(known) > 0:
                known[v] = max(inherited, min(node["bound"], all_left + problem.penalty))
        node["bound"] = min(so_far, node["bound"])
    return result_of(work.state, level)


@apart
def choose_order(problem, work, level, first, last, only):
    """Write the order in which a node's features are searched; with ``only`` one of them, no pass over the rows is needed."""
    if only == NO_SPLIT:
        gather(problem, work.scan, level, first, last)
        put_in_order(problem, work.state, work.scan, level)
    else:
        work.state.order[level] = NO_SPLIT
        work.state.order[level, 0] = only


@apart
def best_of_two(problem, work, level, first, last, limit, known):
    """Return the best tree of depth two, in the cheaper way: cost, bound and split."""
    if by_tables(problem, last - first, problem.table_starts[-1, -1]):
        count_tables(problem, work, last - first, problem.table_starts[-1, -1])
        return two_levels_of_rows(problem, work.pairs, work.scan.orders[level, 0][first:last])
    return search_two(problem, work, level, first, last, limit, np.int64(NO_SPLIT), known)


@apart
def count_tables(problem, work, n, cells):
    """Count the work of adding ``n`` rows to the tables of all pairs of features, and of reading ``cells`` of them."""
    n_features, n_columns = problem.codes.shape[1], problem.losses.shape[1]
    rows = n * (n_features * (n_features - 1) // 2) * (n_columns + ROW_OF_TABLES)
    work.state.budget[0]["steps"] += TABLE_STEPS * (rows + cells * n_columns)


@apart
def move_tables(problem, work, ordered, position, n_left):
    """Turn the tables of the first ``position`` rows into those of the first ``n_left``."""
    count_tables(problem, work, abs(n_left - position), 0)
    rows, sign = (ordered[position:n_left], 1.0) if position < n_left else (ordered[n_left:position], -1.0)
    add_to_bins(problem, rows, work.pairs.bins[1], sign)
    add_to_tables(problem, rows, work.pairs.tables[1], sign)


@apart
def start_tables(problem, work, rows, level):
    """Fill the tables of all ``rows`` of a node; those of the root remain from one of its features to the next."""
    if level == 0 and work.pairs.filled[0] == 1:
        return
    work.pairs.filled[0] = np.int64(level == 0)
    work.pairs.bins[0] = 0.0
    work.pairs.tables[0] = 0.0
    add_to_bins(problem, rows, work.pairs.bins[0], 1.0)
    add_to_tables(problem, rows, work.pairs.tables[0], 1.0)


@apart
def stack_tables(problem, work, rows, level):
    """Fill the tables of the rows up to each bin of the feature being searched."""
    count_tables(problem, work, len(rows), len(work.pairs.bins_up_to) * problem.table_starts[-1, -1])
    v, ends = work.state.order[level, work.state.nodes[level]["place"]], work.state.ends
    n_bins = problem.firsts[v + 1] - problem.firsts[v]
    ends[: n_bins + 1] = 0
    for i in range(len(rows)):
        ends[problem.codes[rows[i], v] + 1] += 1
    for b in range(n_bins):
        ends[b + 1] += ends[b]
    for b in range(n_bins):
        bins, tables, of_bin = work.pairs.bins_up_to[b], work.pairs.tables_up_to[b], rows[ends[b] : ends[b + 1]]
        if b == 0:
            bins[:] = 0.0
            tables[:] = 0.0
        else:
            for i in range(len(bins)):
                copy(work.pairs.bins_up_to[b - 1, i], bins[i])
            copy(work.pairs.tables_up_to[b - 1], tables)
        add_to_bins(problem, of_bin, bins, 1.0)
        add_to_tables(problem, of_bin, tables, 1.0)


@apart
def way_of(problem, work, n):
    """Return how the sides of a cut of ``n`` rows are searched: STACKED, MOVING or ONE_BY_ONE."""
    n_cells, n_features = problem.table_starts[-1, -1], problem.codes.shape[1]
    if not by_tables(problem, n, n_cells) or work.pairs.tables.shape[1] < n_cells * problem.losses.shape[1]:
        return ONE_BY_ONE
    most = len(work.pairs.bins_up_to)
    return STACKED if most > 0 and n * n_features * n_features > most * n_cells else MOVING


@apart
def side_by_tables(problem, work, level, way, side):
    """Return the best tree of depth two on a side of the cut: cost, bound and split."""
    count_tables(problem, work, 0, problem.table_starts[-1, -1])
    v, rest = work.state.order[level, work.state.nodes[level]["place"]], side == 1
    if way == MOVING:
        bins, tables = work.pairs.bins, work.pairs.tables
        return two_levels_of_tables(problem, work.pairs, bins[0], bins[1], tables[0], tables[1], rest)
    t, last = work.state.cuts[level, work.state.nodes[level]["middle"]], problem.firsts[v + 1] - problem.firsts[v] - 1
    bins, tables = work.pairs.bins_up_to, work.pairs.tables_up_to
    return two_levels_of_tables(problem, work.pairs, bins[last], bins[t], tables[last], tables[t], rest)


@entry
def search_three(problem, work, level, first, last, limit, only, _):
    """Return the best tree of depth three: cost, bound and split; the rest is as in `search_two`."""
    way = way_of(problem, work, last - first)
    if not open_node(problem, work.state, work.scan, level, first, last, limit):
        return result_of(work.state, level)
    choose_order(problem, work, level, first, last, only)
    position = 0  # number of rows in the moving tables
    node = work.state.nodes[level]
    if way == MOVING:
        start_tables(problem, work, work.scan.orders[level, 0][first:last], level)
        node["last_first"] = 1
    while open_feature(problem, work.state, level):
        v = work.state.order[level, node["place"]]
        count_cuts(problem, work.state, work.scan, level, first, last, problem.penalty)
        ordered = work.scan.orders[level, v][first:last]
        if way == MOVING:
            work.pairs.bins[1] = 0.0
            work.pairs.tables[1] = 0.0
            position = 0
        elif way == STACKED:
            stack_tables(problem, work, ordered, level)
        while next_cut(problem, work.state, level):
            n_left, t = node["n_left"], work.state.cuts[level, node["middle"]]
            parted = False
            for side in range(2):
                most = most_of(problem, work.state, level, side)
                if most < work.state.sides[level, side]["bound"]:
                    break
                key = key_of(work.state, level, side)
                if key != 0 and is_known(work.state, key, most, level, side):
                    continue
                work.state.budget[0]["nodes"] += 1
                if way == MOVING:
                    move_tables(problem, work, ordered, position, n_left)
                    position = n_left
                if way == ONE_BY_ONE:
                    if not parted:
                        part(work.scan, level, first, last, v, n_left)
                        parted = True
                    middle = first + n_left
                    start, end = (first, middle) if side == 0 else (middle, last)
                    known = work.state.by_side[level, side, node["middle"] + 1]
                    most += room_of(work.state, level)
                    result = best_of_two(problem, work, level + 1, start, end, most, known)
                else:
                    result = side_by_tables(problem, work, level, way, side)
                set_side(work.state, level, side, result)
                if key != 0:
                    complete = way != ONE_BY_ONE or (result[0] <= most and work.state.stop[0] == BY_ITSELF)
                    remember(work.state, key, level, side, complete)
            if close_cut(work.state, level):
                set_two(work.state.record[level, 0], v, t)
                for side in range(2):
                    split = work.state.sides[level, side]
                    set_two(work.state.record[level, 1 + side], split["feature"], split["cut"])
    return result_of(work.state, level)


@entry
def search_four(problem, work, level, first, last, limit, only, _):
    """Return the best tree of depth four: cost, bound and split; the rest is as in `search_two`."""
    if not open_node(problem, work.state, work.scan, level, first, last, limit):
        return result_of(work.state, level)
    choose_order(problem, work, level, first, last, only)
    node = work.state.nodes[level]
    while open_feature(problem, work.state, level):
        v = work.state.order[level, node["place"]]
        count_cuts(problem, work.state, work.scan, level, first, last, problem.penalty)
        while next_cut(problem, work.state, level):
            n_left, t = node["n_left"], work.state.cuts[level, node["middle"]]
            parted, middle = False, first + n_left
            for side in range(2):
                most = most_of(problem, work.state, level, side)
                if most < work.state.sides[level, side]["bound"]:
                    break
                if not parted:
                    part(work.scan, level, first, last, v, n_left)
                    parted = True
                start, end = (first, middle) if side == 0 else (middle, last)
                set_side(
                    work.state,
                    level,
                    side,
                    search_three(problem, work, level + 1, start, end, most, np.int64(NO_SPLIT), work.state.no_bounds),
                )
                for k in range(7):
                    copy(work.state.record[level + 1, k], work.state.kept[side, k])
            if close_cut(work.state, level):
                keep_record(work.state.record[level], v, t, work.state.kept[0], work.state.kept[1])
    return result_of(work.state, level)
