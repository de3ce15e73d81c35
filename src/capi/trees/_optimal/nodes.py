"""Branch and bound in one node: the order of features, intervals of cuts, bounds, and a cache of sub-problems."""

import numpy as np

from capi._utils.compile import compiled, inner
from capi.trees._optimal.records import (
    BY_ITSELF,
    BY_NODES,
    BY_WORK,
    NO_SPLIT,
    PROMISING,
    REVERSED,
)
from capi.trees._optimal.sums import add_rows, copy, least_of, order_rows, set_two
from capi.trees._optimal.tables import one_level


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
def set_side(work, level, side, result):
    """Store the cost, bound and split of a side."""
    row = work.sides[level, side]
    row["cost"], row["bound"] = result[0], max(result[1], row["bound"])
    row["feature"], row["cut"] = result[2], result[3]


@inner
def start_side(row, bound):
    """Start a side with nothing but a bound."""
    row["cost"], row["bound"], row["feature"], row["cut"] = np.inf, bound, NO_SPLIT, NO_SPLIT


@inner
def is_known(work, key, most, level, side):
    """Read a side from the cache; return whether it was found."""
    slot = slot_of(key, work.keys)
    known = work.known[slot]
    if work.keys[slot] != key or (not work.complete[slot] and known["bound"] <= most):
        return False
    set_side(work, level, side, (known["cost"], known["bound"], known["feature"], known["cut"]))
    return True


@inner
def remember(work, key, level, side, complete):
    """Put a side into the cache."""
    slot = slot_of(key, work.keys)
    work.keys[slot] = key
    known, found = work.known[slot], work.sides[level, side]
    known["cost"], known["bound"] = found["cost"], found["bound"]
    known["feature"], known["cut"] = found["feature"], found["cut"]
    work.complete[slot] = complete


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
    total, node = work.totals[level], work.nodes[level]
    total[:] = 0.0
    add_rows(problem.losses, rows, total)
    leaf = least_of(total, problem.n_actions) + problem.penalty
    node["cost"], node["bound"], node["limit"], node["bar"] = leaf, leaf, limit, limit
    node["n_cuts"], node["n_waiting"] = 0, 0
    node["feature"], node["cut"], node["place"] = NO_SPLIT, NO_SPLIT, -1
    work.record[level] = NO_SPLIT
    if leaf > 2 * problem.penalty and len(rows) >= 2 * problem.min_leaf:
        return True
    node["bound"] = min(leaf, 2 * problem.penalty)
    return False


@inner
def open_feature(problem, work, rows, level):
    """Move on to the next feature of a node; return whether there is one."""
    node = work.nodes[level]
    node["place"] += 1
    if node["place"] == problem.codes.shape[1] or work.order[level, node["place"]] == NO_SPLIT:
        return False
    if work.stop[0] != BY_ITSELF:
        node["bound"] = min(node["bound"], 2 * problem.penalty)
        return False
    v = work.order[level, node["place"]]
    n_bins = problem.firsts[v + 1] - problem.firsts[v]
    order_rows(problem.codes, v, rows, n_bins, work.ends[level], work.ordered[level])
    n_cuts, n_small = find_cuts(problem, len(rows), n_bins, work.ends[level], work.cuts[level])
    if n_small > 0:
        node["bound"] = min(node["bound"], 2 * problem.penalty)
    work.low[level, 0], work.high[level, n_cuts + 1] = problem.penalty, problem.penalty
    set_two(work.waiting[level, 0], -1, n_cuts)
    node["n_cuts"], node["n_waiting"] = n_cuts, 1
    return True


@inner
def bar_of(work, level, v, t):
    """Return the largest cost at which a tree with this first split would be the best so far."""
    node = work.nodes[level]
    feature, cut = node["feature"], node["cut"]
    earlier = v < feature or (v == feature and t < cut)
    bar = min(node["limit"], node["cost"] if earlier else node["cost"] - 1)
    return bar if level > 0 else min(bar, work.least[0])


@inner
def next_cut(problem, work, level):
    """Choose the next cut of the feature to search, in the middle of an interval; return False if none is left."""
    node = work.nodes[level]
    v, cuts = work.order[level, node["place"]], work.cuts[level]
    while node["n_waiting"] > 0:
        node["n_waiting"] -= 1
        a, b = work.waiting[level, node["n_waiting"], 0], work.waiting[level, node["n_waiting"], 1]
        if b - a < 2:
            continue
        least = work.low[level, a + 1] + work.high[level, b + 1]
        pruned = problem.bounds and least > bar_of(work, level, v, cuts[a + 1])
        if pruned or work.stop[0] != BY_ITSELF:
            node["bound"] = min(node["bound"], least)
            continue
        m = (a + b) // 2
        node["after"], node["before"], node["middle"] = a, b, m
        node["n_left"] = work.ends[level, cuts[m] + 1]
        node["bar"] = bar_of(work, level, v, cuts[m])
        start_side(work.sides[level, 0], work.low[level, a + 1])
        start_side(work.sides[level, 1], work.high[level, b + 1])
        return True
    return False


@inner
def close_cut(work, level):
    """Update the node with the results for both sides of a cut; return whether the cut is the best so far."""
    node, low, high = work.nodes[level], work.sides[level, 0], work.sides[level, 1]
    if work.stop[0] == BY_ITSELF:
        if work.budget[0]["nodes"] >= work.budget[0]["node_limit"]:
            work.stop[0] = BY_NODES
        elif work.budget[0]["steps"] >= work.budget[0]["step_limit"]:
            work.stop[0] = BY_WORK
    m, n_waiting = node["middle"], node["n_waiting"]
    work.low[level, m + 1], work.high[level, m + 1] = low["bound"], high["bound"]
    node["bound"] = min(node["bound"], low["bound"] + high["bound"])
    set_two(work.waiting[level, n_waiting], m, node["before"])
    set_two(work.waiting[level, n_waiting + 1], node["after"], m)
    node["n_waiting"] += 2
    cost = low["cost"] + high["cost"]
    if not cost <= node["bar"]:
        return False
    node["cost"] = cost
    node["feature"], node["cut"] = work.order[level, node["place"]], work.cuts[level, m]
    if level == 0 and cost < work.least[0]:
        work.least[0] = cost
    return True


@inner
def most_of(problem, work, level, side):
    """Return the largest cost of a side at which its cut would be the best so far; below its bound if no search is needed."""
    if not problem.bounds:
        return np.inf
    bar, low, high = work.nodes[level]["bar"], work.sides[level, 0], work.sides[level, 1]
    return bar - (high["bound"] if side == 0 else min(low["cost"], bar + 1))


@inner
def result_of(work, level):
    """Return the cost, the bound and the split of a node."""
    node = work.nodes[level]
    return node["cost"], node["bound"], node["feature"], node["cut"]


@inner
def set_order(problem, work, rows, level, only):
    """Write the order in which a node's features are searched, or ``only`` one feature."""
    if only == NO_SPLIT:
        put_in_order(problem, work, rows, level)
        return
    work.order[level] = NO_SPLIT
    work.order[level, 0] = only
