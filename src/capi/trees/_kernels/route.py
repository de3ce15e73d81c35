"""Kernels that send states down trees.

The nodes of all trees of a forest are concatenated; ``roots`` (T,) holds the start of each tree. There are no branches to
mispredict: a leaf's left child is the leaf itself, and no value is larger than its threshold.

If there are many states, they are encoded by the number of the forest's cuts below each value, so that a node fits into 64
bits. From the top these are its left child (24 bits, relative to the tree's root), its cut (24), its feature (15), and
whether missing values go left (1). A missing value has the largest code. To send it left, one is added to both sides of the
comparison: the largest code plus one overflows to zero. G = `TOGETHER` states are processed at a time, as
`capi.trees._kernels.walk` explains; ``codes`` therefore has a multiple of G rows, and the last ones may be padding.
"""

import numpy as np

from capi._utils.compile import compiled
from capi.trees._kernels.memory import address_of
from capi.trees._kernels.plain import MISSING
from capi.trees._kernels.ranks import WINDOW, cell_of, first_above
from capi.trees._kernels.walk import TOGETHER, walk

ROWS_OF_SUMS = 1024  # fit into the L1 cache together with four trees


@compiled
def encode_states(states, cuts, starts, grid, scales, codes):
    """Write the number of cuts below each value to ``codes`` (n, d), `MISSING` for NaN.

    ``cuts`` holds the ascending cuts of all features: those of feature j start at ``starts[j]`` and are followed by `WINDOW`
    infinite ones. ``grid[j, g]`` is the first cut of feature j in cell g or later.
    """
    for j in range(min(states.shape[1], codes.shape[1])):  # later features are in no split, or are set separately
        start, n_cuts = starts[j], starts[j + 1] - starts[j] - WINDOW
        for i in range(len(states)):
            x = states[i, j]
            if x != x:
                codes[i, j] = MISSING
            elif n_cuts == 0 or x <= cuts[start]:
                codes[i, j] = 0
            elif x > cuts[start + n_cuts - 1]:
                codes[i, j] = n_cuts
            else:
                cell = cell_of(x, cuts[start], scales[j])
                first, end = start + np.int64(grid[j, cell]), start + np.int64(grid[j, cell + 1])
                codes[i, j] = first_above(cuts, first, end, x, True) - start


@compiled
def send_together(nodes, root, codes, starts, at):
    """Write to ``at`` (G,) the last nodes, relative to the root, of the states whose codes begin at ``starts`` (G,)."""
    walk(address_of(nodes) + 8 * np.int64(root), address_of(codes), address_of(starts), address_of(at))


@compiled
def rows_from(first, d, starts):
    """Write to ``starts`` (G,) where the codes of G rows begin."""
    for k in range(TOGETHER):
        starts[k] = (first + k) * d


@compiled
def find_leaves(nodes, roots, number, codes, leaves, first, end):
    """Write the leaves of states ``first .. end - 1``, which have these ``codes`` (m, d), to ``leaves`` (T, n)."""
    starts, at = np.empty(TOGETHER, dtype=np.int64), np.empty(TOGETHER, dtype=np.int64)
    for t in range(len(roots)):
        for start in range(first, end, TOGETHER):
            rows_from(start - first, codes.shape[1], starts)
            send_together(nodes, roots[t], codes, starts, at)
            for k in range(min(TOGETHER, end - start)):
                leaves[t, start + k] = number[roots[t] + at[k]]


@compiled
def add_values(nodes, roots, number, codes, leaf_starts, values, out):
    """Add the ``values`` (l, m) of each state's leaf in every tree to ``out`` (n, m)."""
    starts, at = np.empty(TOGETHER, dtype=np.int64), np.empty(TOGETHER, dtype=np.int64)
    for t in range(len(roots)):
        for start in range(0, len(out), TOGETHER):
            rows_from(start, codes.shape[1], starts)
            send_together(nodes, roots[t], codes, starts, at)
            for k in range(min(TOGETHER, len(out) - start)):
                leaf = leaf_starts[t] + number[roots[t] + at[k]]
                for o in range(values.shape[1]):
                    out[start + k, o] += values[leaf, o]


@compiled
def last_actions(left, feature, threshold, roots, last):
    """Write to ``last`` (nodes,) the largest value of the last feature, an action index, that can reach each node.

    A parent comes before its children. A state that reaches a node with some action also reaches it with all smaller action
    indices on the same side of the cuts.
    """
    action = feature.max()
    for t in range(len(roots)):
        last[roots[t]] = np.inf
    for i in range(len(left)):
        if left[i] != i:
            below = min(last[i], threshold[i]) if feature[i] == action else last[i]
            last[left[i]], last[left[i] + 1] = below, last[i]


@compiled
def find_leaves_of_actions(nodes, roots, number, last, action_codes, codes, leaves, first, end):
    """Write the leaves of states ``first .. end - 1``, which have these ``codes`` (m, d), with each action to ``leaves`` (A, T, n).

    The last column is the code of the action, from ``action_codes`` (A,). Few splits use the action, so most leaves serve
    several actions: the action processed after a is the first one that its leaf does not serve, ``last`` of the leaf plus one.
    """
    n, d, n_actions = end - first, codes.shape[1], len(action_codes)
    starts, at = np.empty(TOGETHER, dtype=np.int64), np.empty(TOGETHER, dtype=np.int64)
    pending, action = np.empty(n + TOGETHER, dtype=np.int64), np.empty(n, dtype=np.int64)
    for t in range(len(roots)):
        n_pending = n
        for i in range(n):
            pending[i], action[i], codes[i, d - 1] = i, 0, action_codes[0]
        while n_pending > 0:
            n_kept = 0
            pending[n_pending : n_pending + TOGETHER] = pending[n_pending - 1]  # the last one is repeated as padding
            for start in range(0, n_pending, TOGETHER):
                for k in range(TOGETHER):
                    starts[k] = pending[start + k] * d
                send_together(nodes, roots[t], codes, starts, at)
                for k in range(min(TOGETHER, n_pending - start)):
                    i, node = pending[start + k], roots[t] + at[k]
                    a = action[i]
                    while a < n_actions and a <= last[node]:
                        leaves[a, t, first + i] = number[node]
                        a += 1
                    if a < n_actions:
                        action[i], codes[i, d - 1] = a, action_codes[a]
                        pending[n_kept] = i
                        n_kept += 1
            n_pending = n_kept


@compiled
def send_each(roots, left, feature, threshold, missing_right, number, states, leaves):
    """Write the leaf of each state (n, d) in each tree to ``leaves`` (T, n), without codes; for few states."""
    for t in range(len(roots)):
        for i in range(len(states)):
            node = roots[t]
            while left[node] != node:
                x = states[i, feature[node]]
                node = left[node] + (np.int32(x > threshold[node]) if x == x else missing_right[node])
            leaves[t, i] = number[node]


@compiled
def sum_of_leaves(leaves, values, out):
    """Add the ``values`` (l, m) of ``leaves`` (T, n), numbered across the forest, to ``out`` (n, m), tree by tree."""
    for t in range(leaves.shape[0]):
        for i in range(leaves.shape[1]):
            for o in range(values.shape[1]):
                out[i, o] += values[leaves[t, i], o]


@compiled
def mean_of_leaves(leaves, starts, values, first, end, out):
    """Write the mean over trees of the ``values`` (l,) of ``leaves`` (T, n), rows ``first .. end - 1``, to ``out`` (end - first,).

    The leaves of tree t start at ``starts[t]``. Four trees are processed at a time, so the sums are rarely read and written;
    each row adds the trees in order.
    """
    n_trees = len(leaves)
    in_fours = n_trees - n_trees % 4
    sums = np.empty(ROWS_OF_SUMS)
    for start in range(first, end, ROWS_OF_SUMS):
        rows = slice(start, min(start + ROWS_OF_SUMS, end))
        total = sums[: rows.stop - start]
        total[:] = 0.0
        for t in range(0, in_fours, 4):
            a, b, c, d = leaves[t, rows], leaves[t + 1, rows], leaves[t + 2, rows], leaves[t + 3, rows]
            of_a, of_b, of_c, of_d = (
                values[starts[t] :],
                values[starts[t + 1] :],
                values[starts[t + 2] :],
                values[starts[t + 3] :],
            )
            for i in range(len(total)):
                two = total[i] + of_a[np.uint64(a[i])] + of_b[np.uint64(b[i])]
                total[i] = two + of_c[np.uint64(c[i])] + of_d[np.uint64(d[i])]
        for t in range(in_fours, n_trees):
            a, of_a = leaves[t, rows], values[starts[t] :]
            for i in range(len(total)):
                total[i] += of_a[np.uint64(a[i])]
        for i in range(len(total)):
            out[start - first + i] = total[i] / n_trees


@compiled
def sums_by_leaf(leaves, starts, first, end, y, sums):
    """Add each row's ``y`` (n,) to the ``sums`` (l,) of its leaf, in trees ``first .. end - 1`` of ``leaves`` (T, n).

    The leaves of tree t start at ``starts[t]``.
    """
    for t in range(first, end):
        of_row, of_leaf = leaves[t], sums[starts[t] :]
        for i in range(len(y)):
            of_leaf[np.uint64(of_row[i])] += y[i]


@compiled
def sums_of_outputs_by_leaf(leaves, starts, first, end, y, sums):
    """Do what `sums_by_leaf` does for several outputs at once: ``y`` (n, m), ``sums`` (l, m)."""
    for t in range(first, end):
        of_row, of_leaf = leaves[t], sums[starts[t] :]
        for i in range(len(y)):
            leaf = np.uint64(of_row[i])
            for o in range(y.shape[1]):
                of_leaf[leaf, o] += y[i, o]


@compiled
def count_votes(leaves, choices, out):
    """Add one to the action of each state's leaf in every tree: ``leaves`` (T, n), numbered across the forest, ``choices`` (l,), ``out`` (n, A)."""
    for t in range(leaves.shape[0]):
        for i in range(leaves.shape[1]):
            out[i, choices[leaves[t, i]]] += 1.0


@compiled
def mean_of_chosen(leaves, starts, values, decisions, first, end, out):
    """Write the mean over trees of the ``values`` (l,) of the leaves of decided actions, rows ``first .. end - 1``, to ``out`` (n,).

    ``leaves`` (A, T, n) are numbered within their trees, ``decisions`` (n,) are actions; each row adds the trees in order.
    """
    n_trees = leaves.shape[1]
    out[first:end] = 0.0
    for t in range(n_trees):
        of_tree, of_leaf = leaves[:, t], values[starts[t] :]
        for i in range(first, end):
            out[i] += of_leaf[np.uint64(of_tree[decisions[i], i])]
    for i in range(first, end):
        out[i] /= n_trees
