"""A lower bound on the cost of trees with any cuts, from few bins that hold many values each.

Whatever the value at which a tree cuts a feature, it lies in one of its bins, or between two of them. Without the rows of that
bin, both sides lose no more than before, because losses are not negative. The least cost of such trees, which ignore the rows
of the bins that they cut, is therefore no larger than that of any tree, and it follows from tables over pairs of bins.

Shapes: n rows, V features, A actions. A feature with B bins has B + 1 positions: at position p the first p bins are below. An
option (p, q) of a feature is a split in which the bins before p go left and those from q on right.
"""

from typing import Any, NamedTuple

import numpy as np

from capi._utils.compile import apart, entry, inner_minima
from capi.trees._optimal.records import BY_ITSELF
from capi.trees._optimal.sums import set_two
from capi.trees._optimal.tables import roll


class Bins(NamedTuple):
    """Rows in bins, and where features can be split."""

    codes: Any  # (n, V) uint16
    orders: Any  # (V, n) int32, the rows in the order of each feature; below depth three the first may be any order
    losses: Any  # (n, A) integers
    n_bins: Any  # (V,)
    starts: Any  # (V, V) where the table of a pair of features starts, in cells; on the diagonal, the bins of one
    firsts: Any  # (V + 1,) where the positions of each feature start
    n_below: Any  # (positions,) rows below each position
    inside: Any  # (positions,) whether the bin that begins at a position can be cut
    between: Any  # (positions,) whether only the position itself can be cut
    options: Any  # (V + 1,) where the options of each feature start
    low: Any  # (K,) the options
    high: Any  # (K,)
    penalty: float  # of a leaf


class Room(NamedTuple):
    """Buffers; P is the largest number of positions."""

    left: Any  # (positions,) the least cost of the rows below each position
    right: Any  # (positions,) and above it
    sums: Any  # (positions, A) losses below each position
    by_position: Any  # (A, P) the same for one feature
    rolled: Any  # (A, P) losses below a position of one feature and each of another
    quarters: Any  # (4, P, P) the least losses below both positions, below the first, below the second, above both
    tables: Any  # (2, cells * A) losses by pairs of bins: of all rows, and of those below a position
    below: Any  # (P,) the least cost of the rows below each position of the first feature
    above: Any  # (P,)
    waiting: Any  # (P, 2) intervals of positions


@apart
def add(bins, rows, table, sign):
    """Add or subtract the losses of ``rows`` in the tables (cells * A,)."""
    n_features, n_actions = bins.codes.shape[1], bins.losses.shape[1]
    for i in range(len(rows)):
        codes, losses = bins.codes[rows[i]], bins.losses[rows[i]]
        for v in range(n_features):
            for w in range(v, n_features):
                cell = bins.starts[v, w] + (codes[v] * bins.n_bins[w] + codes[w] if w > v else codes[v])
                for c in range(n_actions):
                    table[cell * n_actions + c] += sign * losses[c]


@apart
def take_leaves(bins, room, rest):
    """Set the costs of all sides to those of leaves."""
    n_actions, (every, part) = bins.losses.shape[1], (room.tables[0], room.tables[1])
    for v in range(len(bins.n_bins)):
        first, last, k = bins.firsts[v], bins.firsts[v + 1] - 1, bins.starts[v, v] * n_actions
        for c in range(n_actions):
            room.sums[first, c] = 0.0
        for i in range(first, last):
            for c in range(n_actions):
                room.sums[i + 1, c] = room.sums[i, c] + (every[k] - part[k] if rest else part[k])
                k += 1
        for i in range(first, last + 1):
            below, above = np.inf, np.inf
            for c in range(n_actions):
                below = min(below, room.sums[i, c])
                above = min(above, room.sums[last, c] - room.sums[i, c])
            room.left[i], room.right[i] = below + bins.penalty, above + bins.penalty


@apart
def cut_twice(bins, room, v):
    """Lower the costs of the sides with second splits of the same feature."""
    first, last, two = bins.firsts[v], bins.firsts[v + 1] - 1, 2 * bins.penalty
    n_actions, sums = bins.losses.shape[1], room.sums
    for k in range(bins.options[v], bins.options[v + 1]):
        p, q = first + bins.low[k], first + bins.high[k]
        below, above = np.inf, np.inf
        for c in range(n_actions):
            below = min(below, sums[p, c])
            above = min(above, sums[last, c] - sums[q, c])
        for i in range(q, last + 1):
            between = np.inf
            for c in range(n_actions):
                between = min(between, sums[i, c] - sums[q, c])
            room.left[i] = min(room.left[i], below + between + two)
        for i in range(first, p + 1):
            between = np.inf
            for c in range(n_actions):
                between = min(between, sums[p, c] - sums[i, c])
            room.right[i] = min(room.right[i], between + above + two)


@inner_minima
def set_quarters(rolled, own, sums, total, n, quarters, i):
    """Write the least losses of the four quarters at a position of one feature, whose rows below it sum to ``sums`` (A,)."""
    q0, q1, q2, q3 = quarters[0, i], quarters[1, i], quarters[2, i], quarters[3, i]
    for b in range(n):
        q0[b], q1[b], q2[b], q3[b] = np.inf, np.inf, np.inf, np.inf
    for c in range(len(sums)):
        here, below, rest = rolled[c], sums[c], total[c] - sums[c]
        other = own[c]
        for b in range(n):
            q0[b] = min(q0[b], here[b])
        for b in range(n):
            q1[b] = min(q1[b], below - here[b])
        for b in range(n):
            q2[b] = min(q2[b], other[b] - here[b])
        for b in range(n):
            q3[b] = min(q3[b], rest - other[b] + here[b])


@inner_minima
def lower(costs, n, one, other, two):
    """Lower ``costs`` to the sums of two least losses."""
    for b in range(n):
        costs[b] = min(costs[b], one[b] + other[b] + two)


@apart
def cut_both(bins, room, rest, v, w):
    """Lower the costs of the sides with splits of ``w`` below splits of ``v``, and the other way round."""
    n_actions, n, two = bins.losses.shape[1], bins.n_bins[w] + 1, 2 * bins.penalty
    first_v, first_w, quarters = bins.firsts[v], bins.firsts[w], room.quarters
    total = room.sums[bins.firsts[v + 1] - 1]
    for c in range(n_actions):
        for b in range(n):
            room.rolled[c, b] = 0.0
            room.by_position[c, b] = room.sums[first_w + b, c]
    for i in range(bins.n_bins[v] + 1):
        if i > 0:
            start = (bins.starts[v, w] + (i - 1) * (n - 1)) * n_actions
            roll(room.tables[0], room.tables[1], rest, start, n - 1, room.rolled[:, 1:])
        set_quarters(room.rolled, room.by_position, room.sums[first_v + i], total, n, quarters, i)
        left, right = np.inf, np.inf
        for k in range(bins.options[w], bins.options[w + 1]):
            p, q = bins.low[k], bins.high[k]
            left = min(left, quarters[0, i, p] + quarters[1, i, q])
            right = min(right, quarters[2, i, p] + quarters[3, i, q])
        room.left[first_v + i] = min(room.left[first_v + i], left + two)
        room.right[first_v + i] = min(room.right[first_v + i], right + two)
    for k in range(bins.options[v], bins.options[v + 1]):
        p, q = bins.low[k], bins.high[k]
        lower(room.left[first_w:], n, quarters[0, p], quarters[2, q], two)
        lower(room.right[first_w:], n, quarters[1, p], quarters[3, q], two)


@apart
def least_of_part(bins, room, rest, depth):
    """Return the least cost of trees of depth one or two of the rows in the second table, or of the ``rest``."""
    take_leaves(bins, room, rest)
    if depth > 1:
        for v in range(len(bins.n_bins)):
            cut_twice(bins, room, v)
            for w in range(v + 1, len(bins.n_bins)):
                cut_both(bins, room, rest, v, w)
    least = room.left[bins.firsts[1] - 1]
    for v in range(len(bins.n_bins)):
        for k in range(bins.options[v], bins.options[v + 1]):
            p, q = bins.firsts[v] + bins.low[k], bins.firsts[v] + bins.high[k]
            least = min(least, room.left[p] + room.right[q])
    return least


@apart
def least_by_feature(bins, room, v, of_all, least, stop):
    """Return the smaller one of ``least`` and the least cost of trees of depth three that cut feature ``v`` first.

    Costs below and above a position only grow with their rows. So no split between two positions costs less than the rows
    below the first and those above the second, and most positions need not be compared.
    """
    first, n_bins, order, below, above = bins.firsts[v], bins.n_bins[v], bins.orders[v], room.below, room.above
    room.tables[1] = 0.0
    below[0], above[n_bins] = bins.penalty, bins.penalty
    below[n_bins], above[0] = of_all, of_all
    set_two(room.waiting[0], 0, n_bins)
    here, n_waiting = 0, 1
    while n_waiting > 0 and stop[0] == BY_ITSELF:
        n_waiting -= 1
        a, b = room.waiting[n_waiting]
        if below[a] + above[b] >= least:
            continue
        if b - a == 1:
            if bins.inside[first + a]:
                least = below[a] + above[b]
            continue
        m = (a + b) // 2
        start, end = bins.n_below[first + min(here, m)], bins.n_below[first + max(here, m)]
        add(bins, order[start:end], room.tables[1], 1.0 if m > here else -1.0)
        here = m
        below[m], above[m] = least_of_part(bins, room, np.bool_(False), 2), least_of_part(bins, room, np.bool_(True), 2)
        if bins.between[first + m]:
            least = min(least, below[m] + above[m])
        low_first = below[a] + above[m] <= below[m] + above[b]
        set_two(room.waiting[n_waiting + (1 if low_first else 0)], a, m)
        set_two(room.waiting[n_waiting + (0 if low_first else 1)], m, b)
        n_waiting += 2
    return least


@entry
def least_cost(bins, room, depth, stop):
    """Return the least cost of trees of depth one to three that ignore the rows of the bins that they cut; 0 if it was stopped."""
    room.tables[0] = 0.0
    add(bins, bins.orders[0], room.tables[0], 1.0)
    for k in range(room.tables.shape[1]):
        room.tables[1, k] = room.tables[0, k]
    least = of_all = least_of_part(bins, room, np.bool_(False), min(depth, 2))
    if depth == 3:
        for v in range(len(bins.n_bins)):
            least = least_by_feature(bins, room, v, of_all, least, stop)
    return least if stop[0] == BY_ITSELF else 0.0
