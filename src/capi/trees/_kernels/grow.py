"""The kernel that grows one tree, built from `node` and `split`; `capi.trees._kernels.records` explains the tables.

The rows of a node are contiguous, [start, end) of the records. Splitting it moves the rows of its children to

    start            middle            end
      | left left left | right right ... |

Small nodes, the large majority, are divided by copying each row to its side of a second buffer, where their children then
are; those are copied back, and so on. The second buffer is small, so the largest nodes are divided in place instead. All
nodes are divided in place if they are split in the order of their gain, because several parts of the tree would then need
the buffer at the same time.
"""

import numpy as np

from capi._utils.compile import entry, inlined, kernel
from capi.trees._kernels.memory import address_of
from capi.trees._kernels.node import (
    all_equal,
    all_proportional,
    divide,
    divide_in_place,
    draw_thresholds,
    extremes,
    find_cells,
    find_cuts,
    known_extremes,
    largest_code,
    node_sums,
    word_of,
)
from capi.trees._kernels.split import NO_SPLIT, best_of_all_cuts, best_of_cuts, choose_candidates, set_five

NUMBER, START, END, DEPTH, BASE, IS_SPARE = range(6)  # entries of a node's place: see `set_place`
IN_PLACE = -1


@kernel
def set_place(row, number, start, end, depth, base, is_spare):
    """Write a node's number, its range of rows, its depth and where its rows are stored.

    The rows are in ``records[start:end]`` or, if ``is_spare``, in ``spare[start - base:end - base]``. All nodes below the
    first one that fits into the spare rows have its start as ``base``; above it, ``base`` is `IN_PLACE`.
    """
    row[NUMBER], row[START], row[END], row[DEPTH], row[BASE], row[IS_SPARE] = number, start, end, depth, base, is_spare


@inlined
def rows_at(place, records, spare):
    """Return the rows of the node at a place."""
    start, end, base = place[START], place[END], place[BASE]
    return spare[start - base : end - base] if place[IS_SPARE] else records[start:end]


@kernel
def can_split(n, depth, limits):
    """Return whether a node of this size and depth may have children."""
    return n >= limits.min_split and n >= 2 * limits.min_leaf and depth < limits.max_depth


@kernel
def is_pure(records, layout, total, policy):
    """Return whether no split of a node can help: some action has no regret, or all targets are equal."""
    m, floats = layout.n_outputs, records.view(np.float64)
    for o in range(m):
        column = layout.first_output + o
        if policy:
            if total[o] == 0.0:
                return True
        elif not layout.weighted:
            if not all_equal(floats, column):
                return False
        elif not all_proportional(floats, column, layout.first_output + m):
            return False
    return not policy


@kernel
def score_without_split(total, weight, policy):
    """Return a node's own score, with which the scores of its splits are compared."""
    smallest, squares = np.inf, 0.0
    for o in range(len(total)):
        smallest = min(smallest, total[o])
        squares += total[o] * total[o]
    return -smallest if policy else squares / weight


@inlined
def find_splits(n_made, layout, features, limits, work):
    """Find the best split of each of the nodes that were just created.

    The loops run step by step, not node by node, so each step waits for memory once instead of once per node.
    """
    pair, size = work.pair, 8 * layout.n_words
    for p in range(n_made):
        rows = rows_at(pair.place[p], work.records, work.spare)
        n, total = len(rows), pair.total[p]
        may_split = can_split(n, pair.place[p, DEPTH], limits)
        looks = may_split and not limits.best_cuts
        if looks:  # the first access waits for the rows in memory, so the first sums cost nothing extra
            column = layout.first_output
            total[0] = extremes(address_of(rows), n, size, features.bits, column, pair.low[p], pair.high[p])
        pair.weight[p] = node_sums(address_of(rows), n, size, layout, total, np.int64(looks))
        pair.best[p, 0] = NO_SPLIT
        is_open = may_split and not is_pure(rows, layout, total, limits.policy)
        pair.n_candidates[p], pair.n_cut[p] = limits.n_candidates if is_open else 0, 0
    if limits.best_cuts:
        for p in range(n_made):
            if pair.n_candidates[p] > 0:
                rows = rows_at(pair.place[p], work.records, work.spare)
                best_of_all_cuts(rows, layout, features, limits, work.order, work.state, work.trial, pair, p)
        return
    for p in range(n_made):
        if pair.n_candidates[p] > 0:
            rows = rows_at(pair.place[p], work.records, work.spare)
            choose_candidates(rows, features, limits.n_candidates, work.order, work.state, pair, p)
            draw_thresholds(features, work.state, pair, p)
    for p in range(n_made):
        find_cells(features, pair, p)
    for p in range(n_made):
        find_cuts(features, pair, p)
    for p in range(n_made):
        if pair.n_candidates[p] > 0:
            rows = rows_at(pair.place[p], work.records, work.spare)
            best_of_cuts(rows, layout, features, limits, work.cuts, work.trial, pair, p)


@kernel
def next_to_split(waiting, n_waiting, best_first):
    """Return which of the waiting nodes is split next: the last one, or the one with the largest gain."""
    chosen = n_waiting - 1
    if best_first:
        for i in range(n_waiting):
            if waiting.splits[i, 5] > waiting.splits[chosen, 5]:
                chosen = i
    return chosen


@inlined
def move_rows(place, split, layout, features, work):
    """Move a node's rows to the sides of its split; return how many go left, and ``base`` and ``is_spare`` of the children."""
    rows = rows_at(place, work.records, work.spare)
    n, base, bits = len(rows), place[BASE], features.bits
    feature, cut, missing_left = np.int64(split[0]), np.uint64(split[1]), np.int64(split[2])
    if base == IN_PLACE and n > len(work.spare):
        return divide_in_place(rows, feature, bits, cut, missing_left, work.wrong), base, np.int64(0)
    if base == IN_PLACE:
        base = place[START]
    if place[IS_SPARE]:
        target = work.records[place[START] : place[END]]
    else:
        target = work.spare[place[START] - base : place[END] - base]
    n_left = divide(address_of(rows), n, 8 * layout.n_words, address_of(target), feature, bits, cut, missing_left)
    return n_left, base, np.int64(1) - place[IS_SPARE]


@kernel
def close_leaf(number, rows, layout, total, weight, grown, leaf_of_row, n_leaves):
    """Turn a node into the next leaf."""
    node = grown.nodes[number]
    node["left"] = -1 - n_leaves
    node["feature"], node["threshold"], node["missing_left"], node["unused"] = 0, 0.0, 0, 0
    grown.above[number] = 0.0
    for o in range(len(total)):
        grown.sums[n_leaves, o] = total[o]
    grown.weights[n_leaves] = weight
    grown.counts[n_leaves] = len(rows)
    shift = np.uint64(layout.number_shift)
    for i in range(len(rows)):
        leaf_of_row[rows[i, layout.number] >> shift] = n_leaves


@entry
def grow_tree(layout, features, limits, work, leaf_of_row):
    """Grow one tree from ``work.records``, which are overwritten, into ``work.grown``; return its numbers of nodes and leaves.

    Also writes ``leaf_of_row`` (n,).
    """
    pair, waiting, grown = work.pair, work.waiting, work.grown
    mask = largest_code(features.bits)
    for j in range(len(work.order)):
        work.order[j] = j
    set_place(pair.place[0], 0, 0, len(work.records), 0, IN_PLACE, 0)
    n_made, n_waiting, n_nodes, n_leaves = 1, 0, 1, 0
    while True:
        find_splits(n_made, layout, features, limits, work)
        for p in range(n_made):
            place, best = pair.place[p], pair.best[p]
            if best[0] == NO_SPLIT:
                rows = rows_at(place, work.records, work.spare)
                close_leaf(place[NUMBER], rows, layout, pair.total[p], pair.weight[p], grown, leaf_of_row, n_leaves)
                n_leaves += 1
                continue
            for k in range(6):
                waiting.places[n_waiting, k] = place[k]
            set_five(waiting.splits[n_waiting], best[0], best[1], best[2], best[3], best[4])
            own = score_without_split(pair.total[p], pair.weight[p], limits.policy)
            waiting.splits[n_waiting, 5] = best[5] - own
            n_waiting += 1
        if n_waiting == 0:
            return n_nodes, n_leaves

        chosen = next_to_split(waiting, n_waiting, limits.max_leaves > 0)
        is_full = limits.max_leaves > 0 and n_leaves + n_waiting >= limits.max_leaves
        n_waiting -= 1
        for k in range(6):  # exchange it with the last one
            last_place, last_split = waiting.places[n_waiting, k], waiting.splits[n_waiting, k]
            waiting.places[n_waiting, k], waiting.splits[n_waiting, k] = (
                waiting.places[chosen, k],
                waiting.splits[chosen, k],
            )
            waiting.places[chosen, k], waiting.splits[chosen, k] = last_place, last_split
        place, split = waiting.places[n_waiting], waiting.splits[n_waiting]
        number, start, end, depth = place[NUMBER], place[START], place[END], place[DEPTH]
        rows = rows_at(place, work.records, work.spare)
        if is_full:  # the limit on leaves is reached
            n_made = 0
            weight = node_sums(address_of(rows), len(rows), 8 * layout.n_words, layout, pair.total[0], 0)
            close_leaf(number, rows, layout, pair.total[0], weight, grown, leaf_of_row, n_leaves)
            n_leaves += 1
            continue

        feature = np.int64(split[0])
        k, shift = word_of(feature, features.bits)
        saw_missing = features.has_missing[feature] and known_extremes(rows, k, shift, mask)[2] > 0
        n_left, base, is_spare = move_rows(place, split, layout, features, work)
        node = grown.nodes[number]
        node["feature"], node["threshold"], node["left"], node["unused"] = feature, split[3], n_nodes, 0
        # A node without missing values in the sample sends them to its larger side.
        node["missing_left"] = np.int64(split[2]) if saw_missing else np.int64(2 * n_left >= end - start)
        grown.above[number] = split[4]
        set_place(pair.place[0], n_nodes, start, start + n_left, depth + 1, base, is_spare)
        set_place(pair.place[1], n_nodes + 1, start + n_left, end, depth + 1, base, is_spare)
        n_made = 2
        n_nodes += 2
