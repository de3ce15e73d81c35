"""Branch and bound in one node: the order of features, intervals of cuts, bounds, and a cache of sub-problems."""

import numpy as np

from capi._utils.compile import apart
from capi.trees._optimal.records import (
    BY_ITSELF,
    BY_NODES,
    BY_WORK,
    NO_SPLIT,
    PROMISING,
    REVERSED,
    ROOM,
)
from capi.trees._optimal.sums import add_rows, copy, least_of, set_two, size_of


@apart
def key_of(work, level, side):
    """Return the marks of the rows on one side of the cut being searched; 0 if they are not to be remembered."""
    if len(work.keys) == 1:
        return np.int64(0)
    marks, node = work.marks[level], work.nodes[level]
    left = marks[node["middle"] + 1]
    return left if side == 0 else left ^ marks[node["n_cuts"] + 1]


@apart
def slot_of(key, keys):
    """Return the slot of ``key`` in the cache."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(len(keys) - 1))


@apart
def set_side(work, level, side, result):
    """Store the cost, bound and split of a side."""
    row = work.sides[level, side]
    row["cost"], row["bound"] = result[0], max(result[1], row["bound"])
    row["feature"], row["cut"] = result[2], result[3]


@apart
def start_side(row, bound):
    """Start a side with nothing but a bound."""
    row["cost"], row["bound"], row["feature"], row["cut"] = np.inf, bound, NO_SPLIT, NO_SPLIT


@apart
def is_known(work, key, most, level, side):
    """Read a side from the cache; return whether it was found."""
    slot = slot_of(key, work.keys)
    known = work.known[slot]
    if work.keys[slot] != key or (not work.complete[slot] and known["bound"] <= most):
        return False
    set_side(work, level, side, (known["cost"], known["bound"], known["feature"], known["cut"]))
    return True


@apart
def remember(work, key, level, side, complete):
    """Put a side into the cache."""
    slot = slot_of(key, work.keys)
    work.keys[slot] = key
    known, found = work.known[slot], work.sides[level, side]
    known["cost"], known["bound"] = found["cost"], found["bound"]
    known["feature"], known["cut"] = found["feature"], found["cut"]
    work.complete[slot] = complete


@apart
def find_cuts(problem, work, scan, level, first, last, v):
    """Write the cuts that separate rows and leave enough on both sides; return their number, and how many leave too few."""
    rows, codes = scan.orders[level, v], scan.codes[level, v]
    positions, reach, marks = work.positions[level], work.reach[level], work.marks[level]
    n, least, n_cuts, n_small, so_far, mark, n_left = last - first, problem.min_leaf, 0, 0, 0.0, np.int64(0), 0
    n_all = size_of(scan.totals[level], problem.n_actions, n)
    positions[0], reach[0], marks[0] = 0, 0.0, 0
    for i in range(first, last):
        row = rows[i]
        so_far += problem.most[row]
        mark ^= problem.marks[row]
        n_left += problem.sizes[row]
        if i + 1 == last or codes[i] == codes[i + 1]:
            continue
        if n_left < least or n_all - n_left < least:
            n_small += 1
            continue
        work.cuts[level, n_cuts] = codes[i]
        positions[n_cuts + 1], reach[n_cuts + 1], marks[n_cuts + 1] = i - first + 1, so_far, mark
        n_cuts += 1
    positions[n_cuts + 1], reach[n_cuts + 1], marks[n_cuts + 1] = n, so_far, mark
    return n_cuts, n_small


@apart
def put_in_order(problem, work, scan, level):
    """Write the order in which a node's features are searched; return the least relaxed cost of a tree of depth one."""
    n_features, order, costs, least = problem.codes.shape[1], work.order[level], scan.first_costs, np.inf
    for v in range(n_features):
        order[v] = v if problem.ordering != REVERSED else n_features - 1 - v
    for v in range(n_features):
        least = min(least, scan.first_bounds[v])
        if problem.ordering != PROMISING:
            continue
        k = v  # insertion sort: numba takes seconds to compile its own sort
        while k > 0 and costs[order[k - 1]] > costs[v]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = v
    return least + 2 * problem.penalty


@apart
def set_order(problem, work, scan, level, only):
    """Write the order in which a node's features are searched, or ``only`` one; return the least relaxed cost at depth one."""
    least = put_in_order(problem, work, scan, level)
    if only != NO_SPLIT:
        work.order[level] = NO_SPLIT
        work.order[level, 0] = only
    return min(least, work.nodes[level]["cost"])


@apart
def keep_record(record, v, t, left, right):
    """Write the tree made of the split and both subtrees to ``record`` (7, 2)."""
    record[:] = NO_SPLIT
    set_two(record[0], v, t)
    for depth in range(2):
        width = 1 << depth
        for k in range(width):
            copy(left[width - 1 + k], record[2 * width - 1 + k])
            copy(right[width - 1 + k], record[3 * width - 1 + k])


@apart
def open_node(problem, work, scan, level, first, last, limit):
    """Start the search in a node, whose rows are ``first`` to ``last`` of its level; return whether a split can pay."""
    total, node = scan.totals[level], work.nodes[level]
    total[:] = 0.0
    add_rows(problem.losses, scan.orders[level, 0][first:last], total)
    leaf = least_of(total, problem.n_actions) + problem.penalty
    node["cost"], node["bound"], node["limit"], node["bar"] = leaf, leaf, limit, limit
    node["n_cuts"], node["n_waiting"], node["last_first"] = 0, 0, 0
    node["feature"], node["cut"], node["place"] = NO_SPLIT, NO_SPLIT, -1
    work.record[level] = NO_SPLIT
    if leaf > 2 * problem.penalty and size_of(total, problem.n_actions, last - first) >= 2 * problem.min_leaf:
        return True
    node["bound"] = min(leaf, 2 * problem.penalty)
    return False


@apart
def open_feature(problem, work, level):
    """Move on to the next feature of a node; return whether there is one."""
    node = work.nodes[level]
    node["place"] += 1
    if node["place"] == problem.codes.shape[1] or work.order[level, node["place"]] == NO_SPLIT:
        return False
    if work.stop[0] != BY_ITSELF:
        node["bound"] = min(node["bound"], 2 * problem.penalty)
        return False
    return True


@apart
def count_cuts(problem, work, scan, level, first, last, all_left):
    """Start the search of the cuts of a feature.

    ``all_left`` bounds the relaxed cost of one side of a cut if all rows were on it.
    """
    node = work.nodes[level]
    n_cuts, n_small = find_cuts(problem, work, scan, level, first, last, work.order[level, node["place"]])
    if n_small > 0:
        node["bound"] = min(node["bound"], 2 * problem.penalty)
    work.low[level, 0], work.high[level, 0] = problem.penalty, all_left
    work.low[level, n_cuts + 1], work.high[level, n_cuts + 1] = all_left, problem.penalty
    work.by_side[level, :, 0] = 0.0
    work.by_side[level, :, n_cuts + 1] = 0.0
    set_two(work.waiting[level, 0], -1, n_cuts)
    node["n_cuts"], node["waiting"], node["n_waiting"], node["start"] = n_cuts, 0, 1, NO_SPLIT
    if level == 0 and work.hint[0] == work.order[0, node["place"]]:
        for k in range(n_cuts):
            if work.cuts[0, k] == work.hint[1]:
                node["start"] = k


@apart
def bar_of(work, level, v, t):
    """Return the largest cost at which a tree with this first split would be the best so far."""
    node = work.nodes[level]
    feature, cut = node["feature"], node["cut"]
    earlier = v < feature or (v == feature and t < cut)
    bar = min(node["limit"], node["cost"] if earlier else node["cost"] - 1)
    return bar if level > 0 else min(bar, work.least[0])


@apart
def wait(work, level, a, b):
    """Put the interval of cuts between ``a`` and ``b`` at the end of the queue."""
    node = work.nodes[level]
    if b - a > 1:
        end = (node["waiting"] + node["n_waiting"]) % len(work.waiting[level])
        set_two(work.waiting[level, end], a, b)
        node["n_waiting"] += 1


@apart
def bound_at(low, high, reach, a, b, k):
    """Return lower bounds on the relaxed costs left and right of cut ``k``, from those at cuts ``a`` < ``k`` < ``b``.

    A side that gains rows costs no less, and one that loses rows at most the largest losses of these rows less.
    """
    left = max(low[a + 1], low[b + 1] - (reach[b + 1] - reach[k + 1]))
    right = max(high[b + 1], high[a + 1] - (reach[k + 1] - reach[a + 1]))
    return left, right


@apart
def next_interval(problem, work, level):
    """Take the next interval from the queue, without the cuts at its ends that cannot be the best; return whether any is left."""
    node = work.nodes[level]
    v, cuts = work.order[level, node["place"]], work.cuts[level]
    low, high = work.low[level], work.high[level]
    while node["n_waiting"] > 0:
        node["n_waiting"] -= 1
        place = (node["waiting"] + node["last_first"] * node["n_waiting"]) % len(work.waiting[level])
        first, last = work.waiting[level, place, 0], work.waiting[level, place, 1]
        node["waiting"] = (node["waiting"] + 1 - node["last_first"]) % len(work.waiting[level])
        if work.stop[0] != BY_ITSELF:
            node["bound"] = min(node["bound"], low[first + 1] + high[last + 1])
            continue
        a, b = first, last
        if problem.bounds:
            a, b = shrunk(node, low, high, work.reach[level], a, b, bar_of(work, level, v, cuts[a + 1]))
        if b - a > 1:
            if a > first:
                inherit(work, level, first, last, a, work.by_side[level, :, a + 1])
            if b < last:
                inherit(work, level, first, last, b, work.by_side[level, :, b + 1])
            node["after"], node["before"] = a, b
            return True
    return False


@apart
def inherit(work, level, a, b, k, bounds):
    """Write lower bounds (2, V) by the first feature of each side of cut ``k``, from those at cuts ``a`` < ``k`` < ``b``."""
    of, reach = work.by_side[level], work.reach[level]
    for v in range(bounds.shape[1]):
        bounds[0, v] = max(of[0, a + 1, v], of[0, b + 1, v] - (reach[b + 1] - reach[k + 1]))
        bounds[1, v] = max(of[1, b + 1, v], of[1, a + 1, v] - (reach[k + 1] - reach[a + 1]))


@apart
def shrunk(node, low, high, reach, first, last, bar):
    """Return the interval without the cuts at its ends whose bounds exceed ``bar``; these cuts keep their bounds."""
    a, b, bound = first, last, node["bound"]
    while b - a > 1:
        left, right = bound_at(low, high, reach, first, last, a + 1)
        if left + right <= bar:
            break
        a += 1
        low[a + 1], high[a + 1] = left, right
        bound = min(bound, left + right)
    while b - a > 1:
        left, right = bound_at(low, high, reach, first, last, b - 1)
        if left + right <= bar:
            break
        b -= 1
        low[b + 1], high[b + 1] = left, right
        bound = min(bound, left + right)
    node["bound"] = bound
    return a, b


@apart
def next_cut(problem, work, level):
    """Choose the next cut of the feature to search, in the middle of an interval; return False if none is left."""
    if not next_interval(problem, work, level):
        return False
    node = work.nodes[level]
    v, cuts, a, b = work.order[level, node["place"]], work.cuts[level], node["after"], node["before"]
    m = node["start"] if a < node["start"] < b else (a + b) // 2
    node["middle"], node["n_left"] = m, work.positions[level, m + 1]
    node["bar"] = bar_of(work, level, v, cuts[m])
    left, right = bound_at(work.low[level], work.high[level], work.reach[level], a, b, m)
    start_side(work.sides[level, 0], left)
    start_side(work.sides[level, 1], right)
    inherit(work, level, a, b, m, work.by_side[level, :, m + 1])
    return True


@apart
def check_budget(work):
    """Stop the search if its budget is used up."""
    if work.stop[0] == BY_ITSELF:
        if work.budget[0]["nodes"] >= work.budget[0]["node_limit"]:
            work.stop[0] = BY_NODES
        elif work.budget[0]["steps"] >= work.budget[0]["step_limit"]:
            work.stop[0] = BY_WORK


@apart
def close_cut(work, level):
    """Update the node with the results for both sides of a cut; return whether the cut is the best so far."""
    node, low, high = work.nodes[level], work.sides[level, 0], work.sides[level, 1]
    check_budget(work)
    m = node["middle"]
    work.low[level, m + 1], work.high[level, m + 1] = low["bound"], high["bound"]
    node["bound"] = min(node["bound"], low["bound"] + high["bound"])
    wait(work, level, node["after"], m)
    wait(work, level, m, node["before"])
    cost = low["cost"] + high["cost"]
    if not cost <= node["bar"]:
        return False
    take_cut(work, level, m, cost)
    return True


@apart
def take_cut(work, level, k, cost):
    """Make a cut the best of its node so far."""
    node = work.nodes[level]
    node["cost"], node["feature"], node["cut"] = cost, work.order[level, node["place"]], work.cuts[level, k]
    if level == 0 and cost < work.least[0]:
        work.least[0] = cost


@apart
def most_of(problem, work, level, side):
    """Return the largest cost of a side at which its cut would be the best so far; below its bound if no search is needed."""
    if not problem.bounds:
        return np.inf
    bar, low, high = work.nodes[level]["bar"], work.sides[level, 0], work.sides[level, 1]
    return bar - (high["bound"] if side == 0 else min(low["cost"], bar + 1))


@apart
def room_of(work, level):
    """Return how far above the largest cost of interest the sides of the cut being searched are worth a search.

    A cut that costs more by the largest losses of the rows between it and an end of its interval excludes all cuts up to
    there. If the search stopped as soon as the cut itself is excluded, its bounds would exclude few others.
    """
    node, reach = work.nodes[level], work.reach[level]
    at = reach[node["middle"] + 1]
    return ROOM * min(at - reach[node["after"] + 1], reach[node["before"] + 1] - at)


@apart
def result_of(work, level):
    """Return the cost, the bound and the split of a node."""
    node = work.nodes[level]
    return node["cost"], node["bound"], node["feature"], node["cut"]
