"""Kernels that send many states down a tree by dividing lists of their numbers, node by node.

`route` explains nodes and codes. The states that reach a node are a range of ``rows``. Dividing it moves the numbers of those that
go left to the front and the others to the back, without branches to mispredict. Every state is processed as often as its leaf is
deep, while states that walk together (`walk`) all take as many steps as the longest of their paths; with few states, the lists
are too short to be worth it.

The action of a state is not in its codes: a node that cuts the action passes its whole list on to both sides, each with its part
of the actions. The first side may permute the list, but it stays the same set.
"""

import numpy as np

from capi._utils.compile import compiled
from capi.trees._kernels.plain import CHILD_SHIFT, CUT_SHIFT, FEATURE_SHIFT, FEATURES, MISSING

NODE, START, END, LOWEST, HIGHEST = range(5)  # entries of a node that waits: see `wait`
NO_ACTION = -1


@compiled
def wait(row, node, start, end, lowest, highest):
    """Write a node, its rows ``start .. end - 1`` and its actions ``lowest .. highest - 1``."""
    row[NODE], row[START], row[END], row[LOWEST], row[HIGHEST] = node, start, end, lowest, highest


@compiled
def divide_rows(rows, codes, d, feature, plus, cut, spare):
    """Move those of ``rows`` (m,) that go left to the front; return their number. ``spare`` (m,) is scratch.

    ``codes`` (n * d,) are those of all states, ``plus`` is one if missing values go left.
    """
    d, offset = np.uint64(d), np.uint64(feature)
    n_left, n_right = np.uint64(0), np.uint64(0)
    for k in range(len(rows)):
        row = rows[k]
        is_right = np.uint64(((codes[np.uint64(row) * d + offset] + plus) & np.uint32(MISSING)) > cut)
        rows[n_left], spare[n_right] = row, row
        n_left += np.uint64(1) - is_right
        n_right += is_right
    rest = rows[np.int64(n_left) :]
    for k in range(len(rest)):
        rest[k] = spare[k]
    return np.int64(n_left)


@compiled
def sift_tree(nodes, number, action, action_codes, codes, rows, spare, waiting, leaves):
    """Write the leaf of each state with each action to ``leaves`` (A, n), for one tree with these ``nodes`` and leaf ``number``.

    ``action`` is the feature that stands for the action, whose codes are ``action_codes`` (A,). ``rows`` and ``spare`` (n,) and
    ``waiting`` (nodes, 5) are scratch.
    """
    n, d, flat, n_waiting = leaves.shape[1], codes.shape[1], codes.reshape(-1), 1
    for i in range(n):
        rows[i] = i
    wait(waiting[0], 0, 0, n, 0, len(action_codes))
    while n_waiting > 0:
        n_waiting -= 1
        here, start, end, lowest, highest = waiting[n_waiting]
        while start < end:
            node = nodes[here]
            child = np.int64(node >> np.uint64(CHILD_SHIFT))
            if child == here:  # a leaf's left child is the leaf itself
                for a in range(lowest, highest):
                    for k in range(start, end):
                        leaves[a, rows[k]] = number[here]
                break
            feature = np.int64((node >> np.uint64(FEATURE_SHIFT)) & np.uint64(FEATURES))
            cut, plus = np.uint32((node >> np.uint64(CUT_SHIFT)) & np.uint64(MISSING)), np.uint32(node & np.uint64(1))
            here = child
            if feature == action:
                middle = lowest
                while middle < highest and action_codes[middle] + plus <= cut:
                    middle += 1
                if middle == lowest:
                    here = child + 1
                elif middle < highest:
                    wait(waiting[n_waiting], child + 1, start, end, middle, highest)
                    n_waiting += 1
                    highest = middle
            else:
                middle = start + divide_rows(rows[start:end], flat, d, feature, plus, cut, spare)
                if middle == start:
                    here = child + 1
                elif middle < end:
                    wait(waiting[n_waiting], child + 1, middle, end, lowest, highest)
                    n_waiting += 1
                    end = middle


@compiled
def scratch(n, nodes, roots):
    """Return ``rows`` and ``spare`` (n,) and ``waiting`` for `sift_tree`, large enough for each tree."""
    largest = len(nodes) - roots[-1]
    for t in range(1, len(roots)):
        largest = max(largest, roots[t] - roots[t - 1])
    return np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty((largest, 5), np.int64)


@compiled
def find_leaves(nodes, roots, number, action, action_codes, codes, leaves, first, end):
    """Write the leaves of states ``first .. end - 1``, which have these ``codes`` (m, d), with each action to ``leaves`` (A, T, n)."""
    rows, spare, waiting = scratch(end - first, nodes, roots)
    for t in range(len(roots)):
        of_tree = leaves[:, t, first:end]
        sift_tree(nodes[roots[t] :], number[roots[t] :], action, action_codes, codes, rows, spare, waiting, of_tree)


@compiled
def add_values(nodes, roots, number, codes, leaf_starts, values, out):
    """Add the ``values`` (l, m) of each state's leaf in every tree to ``out`` (n, m)."""
    rows, spare, waiting = scratch(len(out), nodes, roots)
    leaves, one = np.empty((1, len(out)), dtype=number.dtype), np.zeros(1, dtype=np.uint32)
    for t in range(len(roots)):
        of_tree, of_leaves = nodes[roots[t] :], values[leaf_starts[t] :]
        sift_tree(of_tree, number[roots[t] :], NO_ACTION, one, codes, rows, spare, waiting, leaves)
        for i in range(len(out)):
            for o in range(values.shape[1]):
                out[i, o] += of_leaves[leaves[0, i], o]
