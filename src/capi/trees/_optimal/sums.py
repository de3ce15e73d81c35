"""Sums of losses over rows: of all of them, by bins of one feature, and by cells of two."""

import numpy as np

from capi._utils.compile import apart, inner_minima
from capi.trees._optimal.records import AT_ONCE


@apart
def set_two(row, a, b):
    """Write two entries."""
    row[0], row[1] = a, b


@apart
def copy(source, target):
    """Copy one row to another; assigning a slice would take numba a second to compile."""
    for k in range(len(target)):
        target[k] = source[k]


@apart
def add_rows(losses, rows, total):
    """Add the losses of ``rows`` to ``total`` (C,)."""
    for i in range(len(rows)):
        row = losses[rows[i]]
        for c in range(len(total)):
            total[c] += row[c]


@apart
def size_of(total, n_actions, n):
    """Return how many rows ``n`` merged rows stand for, whose sums are ``total`` (C,); if rows are not counted, ``n`` will do."""
    return total[n_actions] if len(total) > n_actions else float(n)


@inner_minima
def least_of(total, n_actions):
    """Return the cost of the best single action."""
    least = np.inf
    for c in range(n_actions):
        least = min(least, total[c])
    return least


@apart
def add_to_bins(problem, rows, bins, sign):
    """Add or subtract the losses of ``rows`` in their bins (B, C) of all features."""
    for i in range(len(rows)):
        codes, losses = problem.codes[rows[i]], problem.losses[rows[i]]
        for v in range(len(codes)):
            cell = bins[problem.firsts[v] + codes[v]]
            for c in range(len(losses)):
                cell[c] += sign * losses[c]


@apart
def add_to_table(problem, v, w, rows, table, sign):
    """Add or subtract the losses of ``rows`` in their cells (cells * C,) of two features."""
    n_bins, n_columns = problem.firsts[w + 1] - problem.firsts[w], problem.losses.shape[1]
    for i in range(len(rows)):
        row = rows[i]
        losses = problem.losses[row]
        start = (np.int64(problem.codes[row, v]) * n_bins + problem.codes[row, w]) * n_columns
        c = 0
        while c + 4 <= n_columns:  # a loop over few columns takes longer than its additions
            k = start + c
            table[k] += sign * losses[c]
            table[k + 1] += sign * losses[c + 1]
            table[k + 2] += sign * losses[c + 2]
            table[k + 3] += sign * losses[c + 3]
            c += 4
        while c < n_columns:
            table[start + c] += sign * losses[c]
            c += 1


@apart
def add_to_tables(problem, rows, tables, sign):
    """Add or subtract the losses of ``rows`` in the tables of all pairs of features."""
    n_features, n_columns = problem.codes.shape[1], problem.losses.shape[1]
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        for v in range(n_features):
            for w in range(v + 1, n_features):
                add_to_table(problem, v, w, some, tables[problem.table_starts[v, w] * n_columns :], sign)


@apart
def sum_up(problem, whole, part, rest, prefix):
    """Write the sums up to each bin to ``prefix`` (C, B), for the bins of ``part`` (B, C) or for ``whole`` minus ``part``."""
    n_columns = problem.losses.shape[1]
    for v in range(len(problem.firsts) - 1):
        for c in range(n_columns):
            run = 0.0
            for i in range(problem.firsts[v], problem.firsts[v + 1]):
                run += whole[i, c] - part[i, c] if rest else part[i, c]
                prefix[c, i] = run
