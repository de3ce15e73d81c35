"""Kernels for products with the averaging matrices of kept trees, a few trees at a time, whose sums then stay in the cache.

``tables`` (TREES, l) has one row per tree, and one column per leaf. ``leaves`` (T, m) are those of some points in each tree; the
tables are for the trees from ``first`` on, up to ``end``. The points should be in an order in which neighbours share leaves.
"""

import numpy as np

from capi._utils.compile import compiled

TREES = (
    4  # that are processed together: the additions of one tree often wait for each other, those of several trees do not
)


@compiled
def take(x, points, shares, out):
    """Write ``x`` (n,) at ``points`` (m,) times ``shares`` (m,) to ``out`` (m,)."""
    for i in range(len(points)):
        out[i] = shares[i] * x[points[i]]


@compiled
def put(parts, points, shares, out):
    """Add the sum of the ``parts`` (k, m), times ``shares`` (m,), to ``out`` (n,) at ``points`` (m,)."""
    for i in range(len(points)):
        total = 0.0
        for k in range(len(parts)):
            total += parts[k, i]
        out[points[i]] += shares[i] * total


@compiled
def to_tables(leaves, first, end, y, tables):
    """Add ``y`` (m,) of each point to the tables at its leaves."""
    if end - first == TREES:
        a, b, c, d = leaves[first], leaves[first + 1], leaves[first + 2], leaves[first + 3]
        of_a, of_b, of_c, of_d = tables[0], tables[1], tables[2], tables[3]
        for i in range(len(y)):
            of_a[np.uint64(a[i])] += y[i]
            of_b[np.uint64(b[i])] += y[i]
            of_c[np.uint64(c[i])] += y[i]
            of_d[np.uint64(d[i])] += y[i]
    else:
        for t in range(first, end):
            one, of_one = leaves[t], tables[t - first]
            for i in range(len(y)):
                of_one[np.uint64(one[i])] += y[i]


@compiled
def from_tables(leaves, first, end, tables, out):
    """Add the entries of the tables at each point's leaves to ``out`` (m,): the transpose of `to_tables`."""
    if end - first == TREES:
        a, b, c, d = leaves[first], leaves[first + 1], leaves[first + 2], leaves[first + 3]
        of_a, of_b, of_c, of_d = tables[0], tables[1], tables[2], tables[3]
        for i in range(len(out)):
            two = out[i] + of_a[np.uint64(a[i])] + of_b[np.uint64(b[i])]
            out[i] = two + of_c[np.uint64(c[i])] + of_d[np.uint64(d[i])]
    else:
        for t in range(first, end):
            one, of_one = leaves[t], tables[t - first]
            for i in range(len(out)):
                out[i] += of_one[np.uint64(one[i])]


@compiled
def scale(of_leaves, ends, first, end, tables):
    """Multiply the tables by ``of_leaves`` (l,): the leaves of tree t are numbered from ``ends[t]`` up to ``ends[t + 1]``."""
    for t in range(first, end):
        table, factors = tables[t - first], of_leaves[ends[t] : ends[t + 1]]
        for leaf in range(len(factors)):
            table[leaf] *= factors[leaf]


@compiled
def borrow(borrowers, low, high, lenders, offset, table):
    """Give each leaf of ``borrowers`` (b,) the sum of the ``lenders[low : high]``, the leaves below one of its ancestors, in one tree's table.

    The tree's leaves are numbered from ``offset`` on. Borrowers may be lenders, with what they had before.
    """
    totals = np.zeros(len(borrowers))
    for k in range(len(borrowers)):
        for place in range(low[k], high[k]):
            totals[k] += table[lenders[place] - offset]
    for k in range(len(borrowers)):
        table[borrowers[k] - offset] = totals[k]


@compiled
def give_back(borrowers, low, high, lenders, offset, table):
    """Let each leaf of ``borrowers`` (b,) add what it has to its lenders, in one tree's table: the transpose of `borrow`."""
    values = np.empty(len(borrowers))
    for k in range(len(borrowers)):
        values[k] = table[borrowers[k] - offset]
        table[borrowers[k] - offset] = 0.0
    for k in range(len(borrowers)):
        for place in range(low[k], high[k]):
            table[lenders[place] - offset] += values[k]


@compiled
def sum_in_groups(group, x, out):
    """Add ``x`` (n,) to ``out`` (k,) at the ``group`` (n,) of each entry."""
    for i in range(len(x)):
        out[group[i]] += x[i]


@compiled
def add_of_groups(group, of_groups, x, out):
    """Write ``x`` (n,) plus the entry of its ``group`` (n,) in ``of_groups`` (k,) to ``out`` (n,)."""
    for i in range(len(x)):
        out[i] = x[i] + of_groups[group[i]]


@compiled
def flows_of_groups(group, points, leaves, starts, shares, members, first, end, weights, steps, most, flows):
    """Add an estimate of the weight that flows from the group of each point to the groups of the rows that it averages to ``flows`` (k, k).

    Point i looks at one tree only, tree i modulo T, and at ``most`` rows of its cell there, evenly spaced. Row j has the weight
    ``weights[j]``, and ``steps[j]`` (n,) of it flows. The weights of each look-up sum to one, so the sums of rows are exact bounds.
    """
    n_trees = len(leaves)
    for i in range(len(points)):
        t = i % n_trees
        cell = starts[t] + leaves[t, i]
        stride = 1 + (end[cell] - first[cell] - 1) // most
        total = 0.0
        for k in range(first[cell], end[cell], stride):
            total += weights[members[k]]
        if total > 0:
            of_group, share = flows[group[points[i]]], n_trees * shares[i] / total
            for k in range(first[cell], end[cell], stride):
                j = members[k]
                of_group[group[j]] += share * weights[j] * steps[j]
