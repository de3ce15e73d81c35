"""The kernel that grows one tree, from the pieces in `_grow` and `_splits`.

Rows of a node stand side by side, [start, end) of the records. There are two copies of the records: nodes at even depth
have their rows in the first, and splitting a node writes its stretch to the other one:

    start            middle            end
      | left left left | right right ... |
"""

import numpy as np
from numba import njit

from capi.trees._grow import all_equal, all_proportional, divide, known_extremes, plain_sum
from capi.trees._splits import NO_SPLIT, all_best_cuts, random_cuts, set_five


@njit(cache=True, nogil=True)
def can_split(n, depth, min_split, min_leaf, max_depth):
    """Return whether a node of this size and depth may have children."""
    return n >= min_split and n >= 2 * min_leaf and depth < max_depth


@njit(cache=True, nogil=True)
def set_node(table, i, node, start, end, depth):
    """Write a node's number, its stretch of rows and its depth to row ``i``."""
    table[i, 0], table[i, 1], table[i, 2], table[i, 3] = node, start, end, depth


@njit(cache=True, nogil=True)
def node_sums(floats, first_output, weighted, total):
    """Write the sums of a node's outputs to ``total`` (m,) and return its weight."""
    for o in range(len(total)):
        total[o] = plain_sum(floats, first_output + o)
    return plain_sum(floats, first_output + len(total)) if weighted else np.float64(len(floats))


@njit(cache=True, nogil=True)
def is_pure(floats, first_output, weighted, total, policy):
    """Return whether nothing is to be gained in a node: an action without regret, or targets that are all equal."""
    m = len(total)
    for o in range(m):
        if policy:
            if total[o] == 0.0:
                return True
        elif not weighted:
            if not all_equal(floats, first_output + o):
                return False
        elif not all_proportional(floats, first_output + o, first_output + m):
            return False
    return not policy


@njit(cache=True, nogil=True)
def score_without_split(total, weight, policy):
    """Return a node's own score, to which the scores of its splits are compared."""
    smallest, squares = np.inf, 0.0
    for o in range(len(total)):
        smallest = min(smallest, total[o])
        squares += total[o] * total[o]
    return -smallest if policy else squares / weight


@njit(cache=True, nogil=True)
def grow_tree(
    records,
    first_output,
    m,
    weighted,
    values,
    value_starts,
    grid,
    scales,
    has_missing,
    bits,
    n_candidates,
    min_split,
    min_leaf,
    max_depth,
    max_leaves,
    best_cuts,
    policy,
    state,
    nodes,
    above,
    sums,
    weights,
    counts,
    leaf_of_row,
):
    """Grow one tree; return the number of its nodes and of its leaves.

    ``records`` (2, n, R) are given in their first half and used up: R words a row, an even number. The codes of a whole number of
    groups of lanes come first, then, from word ``first_output`` on, ``m`` outputs, the weight if ``weighted``, and the row's number.
    ``nodes`` and ``above`` (2n - 1,), ``sums`` (n, m), ``weights`` and ``counts`` (n,) by leaf, and ``leaf_of_row`` (n,) are
    written.
    """
    n, d = records.shape[1], len(has_missing)
    n_lanes = first_output * (64 // bits)
    floats = records.view(np.float64)
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    low, high, cut = np.empty(n_lanes, np.uint64), np.empty(n_lanes, np.uint64), np.zeros(n_lanes, np.uint64)
    cut_sums, cut_counts = np.empty((m + 1, n_lanes)), np.empty(n_lanes, np.int64)
    scratch = (low, high, cut, cut_sums, cut_counts, np.zeros(n_lanes, np.int64), np.empty(n_lanes))
    keys = np.empty(n if best_cuts else 0, dtype=np.uint64)
    order = np.arange(d)
    number = first_output + m + weighted
    total, left, missing = np.empty(m), np.empty(m), np.empty(m)
    split, best = np.empty(5), np.empty(7)

    open_nodes, open_splits = np.empty((64, 4), dtype=np.int64), np.empty((64, 6))  # a split, and its gain
    made = np.empty((2, 4), dtype=np.int64)  # the nodes that were just made
    set_node(made, 0, 0, 0, n, 0)
    n_made, n_open, n_nodes, n_leaves = 1, 0, 1, 0
    while True:
        for p in range(n_made):
            node, start, end, depth = made[p, 0], made[p, 1], made[p, 2], made[p, 3]
            here = depth % 2
            rows, outputs = records[here, start:end], floats[here, start:end]
            weight = node_sums(outputs, first_output, weighted, total)
            best[0] = NO_SPLIT
            if can_split(end - start, depth, min_split, min_leaf, max_depth) and not is_pure(
                outputs, first_output, weighted, total, policy
            ):
                tie = 1e-12 * total.sum() if policy else 0.0
                if best_cuts:
                    all_best_cuts(
                        rows,
                        outputs,
                        first_output,
                        weighted,
                        values,
                        value_starts,
                        has_missing,
                        bits,
                        n_candidates,
                        order,
                        state,
                        total,
                        weight,
                        keys,
                        split,
                        left,
                        missing,
                        best,
                        min_leaf,
                        policy,
                        tie,
                    )
                else:
                    random_cuts(
                        rows,
                        outputs,
                        first_output,
                        weighted,
                        values,
                        value_starts,
                        grid,
                        scales,
                        has_missing,
                        bits,
                        n_candidates,
                        scratch,
                        order,
                        state,
                        total,
                        weight,
                        split,
                        left,
                        missing,
                        best,
                        min_leaf,
                        policy,
                        tie,
                    )
            if best[0] == NO_SPLIT:
                n_leaves = close_leaf(
                    node, rows, total, weight, number, nodes, sums, weights, counts, leaf_of_row, n_leaves
                )
                continue
            if n_open == len(open_nodes):
                open_nodes = np.concatenate((open_nodes, np.empty_like(open_nodes)))
                open_splits = np.concatenate((open_splits, np.empty_like(open_splits)))
            set_node(open_nodes, n_open, node, start, end, depth)
            set_five(open_splits[n_open], best[0], best[1], best[2], best[3], best[4])
            open_splits[n_open, 5] = best[5] - score_without_split(total, weight, policy)
            n_open += 1
        if n_open == 0:
            return n_nodes, n_leaves

        chosen = n_open - 1
        if max_leaves > 0:  # the largest gain first
            for i in range(n_open):
                if open_splits[i, 5] > open_splits[chosen, 5]:
                    chosen = i
        full = max_leaves > 0 and n_leaves + n_open >= max_leaves
        node, start, end, depth = (
            open_nodes[chosen, 0],
            open_nodes[chosen, 1],
            open_nodes[chosen, 2],
            open_nodes[chosen, 3],
        )
        feature, cut_code, missing_left = (
            np.int64(open_splits[chosen, 0]),
            np.uint64(open_splits[chosen, 1]),
            np.int64(open_splits[chosen, 2]),
        )
        threshold, next_value = open_splits[chosen, 3], open_splits[chosen, 4]
        n_open -= 1
        open_nodes[chosen] = open_nodes[n_open]
        open_splits[chosen] = open_splits[n_open]
        n_made = 0
        here, there = depth % 2, 1 - depth % 2
        if full:  # no room for one more leaf
            rows, outputs = records[here, start:end], floats[here, start:end]
            weight = node_sums(outputs, first_output, weighted, total)
            n_leaves = close_leaf(
                node, rows, total, weight, number, nodes, sums, weights, counts, leaf_of_row, n_leaves
            )
            continue

        k, shift = feature * bits // 64, np.uint64(feature * bits % 64)
        n_missing = known_extremes(records[here, start:end], k, shift, mask)[2] if has_missing[feature] else np.int64(0)
        n_left = divide(records[here, start:end], records[there, start:end], feature, bits, cut_code, missing_left)
        middle = start + n_left
        if n_missing == 0:
            missing_left = np.int64(2 * n_left >= end - start)  # it saw none: they go to the larger side

        nodes[node].feature = feature
        nodes[node].threshold = threshold
        nodes[node].missing_left = missing_left
        nodes[node].left = n_nodes
        above[node] = next_value
        set_node(made, 0, n_nodes, start, middle, depth + 1)
        set_node(made, 1, n_nodes + 1, middle, end, depth + 1)
        n_made = 2
        n_nodes += 2


@njit(cache=True, nogil=True)
def close_leaf(node, rows, total, weight, number, nodes, sums, weights, counts, leaf_of_row, n_leaves):
    """Make a node the next leaf and return how many leaves there are now; ``number`` is the word with a row's number."""
    nodes[node].left = -1 - n_leaves
    sums[n_leaves] = total
    weights[n_leaves] = weight
    counts[n_leaves] = len(rows)
    for i in range(len(rows)):
        leaf_of_row[rows[i, number]] = n_leaves
    return n_leaves + 1
