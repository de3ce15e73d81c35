"""Kernels for tables of columns with two values: every tree is compared, without a search.

Shapes: n rows, K columns of zeros and ones, D steps. A row's step c is the loss of action c + 1 minus that of action 0, so a
leaf costs the loss of action 0, which is the same for all trees, plus the least of 0 and the sums of its steps. If the rows
of leaves must be counted, a last step counts them. All steps are integers whose sums are exact in float64.

The sums over all rows with ones in two or three columns do not depend on the order of the columns, and those with zeros
follow by subtraction. One pass over the rows of each pair of columns therefore gives the eight cells of all triples, and each
cell serves the three trees that cut its columns in another order.
"""

from typing import Any, NamedTuple

import numpy as np

from capi._utils.compile import compiled, inner, inner_minima

NO_COLUMN = -1


class Columns(NamedTuple):
    """The data of the search, and its options."""

    ones: Any  # (n, K) float64, 0 or 1
    steps: Any  # (n, D)
    n_others: int  # actions besides the first; a further step counts rows
    penalty: float  # of a leaf, positive
    min_leaf: int


class Room(NamedTuple):
    """Buffers of one thread. ``stop`` is shared by all threads."""

    rows: Any  # (2, n) int64, the rows with ones in a column, and in two
    total: Any  # (D,) sums of all rows
    one: Any  # (D, K) sums of the rows that have a one in each column
    two: Any  # (K, D, K) in two columns u < v; the first index is u
    three: Any  # (D, K) in two given columns and a later one
    cells: Any  # (8, K) the least sum of each cell of two given columns and a later one
    pairs: Any  # (4, K, K) the least cost of the cells of two columns u < v
    sides: Any  # (2, K) the least cost of both sides of a column
    stop: Any  # (1,)


@inner
def rows_with(ones, rows, column, kept):
    """Write the ``rows`` with a one in ``column`` to ``kept``; return their number."""
    n = 0
    for i in range(len(rows)):
        kept[n] = rows[i]
        n += int(ones[rows[i], column])
    return n


@inner
def add_later(columns, rows, first, sums):
    """Set ``sums`` (D, K), from column ``first`` on, to the sums of the ``rows`` with ones there."""
    ones, steps, k = columns.ones, columns.steps, columns.ones.shape[1]
    n = len(rows)
    for c in range(steps.shape[1]):
        for w in range(first, k):
            sums[c, w] = 0.0
    for i in range(0, n - 3, 4):  # four rows at once, since reading and writing the sums takes longer than adding
        r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        x0, x1, x2, x3 = ones[r0], ones[r1], ones[r2], ones[r3]
        for c in range(steps.shape[1]):
            of_step, s0, s1, s2, s3 = sums[c], steps[r0, c], steps[r1, c], steps[r2, c], steps[r3, c]
            for w in range(first, k):
                of_step[w] += (x0[w] * s0 + x1[w] * s1) + (x2[w] * s2 + x3[w] * s3)
    for i in range(n - n % 4, n):
        x0 = ones[rows[i]]
        for c in range(steps.shape[1]):
            of_step, s0 = sums[c], steps[rows[i], c]
            for w in range(first, k):
                of_step[w] += x0[w] * s0


@inner
def add_all(columns, rows, room):
    """Set the sums of all ``rows``, and of those with a one in each column."""
    room.total[:] = 0.0
    for i in range(len(rows)):
        for c in range(len(room.total)):
            room.total[c] += columns.steps[rows[i], c]
    add_later(columns, rows, 0, room.one)


@inner
def leaf_of(columns, c, cell, least):
    """Return the cost of a leaf, without its penalty, after step ``c`` with the sum ``cell``."""
    if c < columns.n_others:
        return min(least, cell)
    return np.inf if cell < columns.min_leaf else least


@inner
def cells_of_two(columns, room, u, first):
    """Set the four cells of column ``u`` and each later one, in the order 00, 01, 10, 11."""
    k, cells = columns.ones.shape[1], room.cells
    for q in range(4):
        for w in range(first, k):
            cells[q, w] = 0.0
    for c in range(columns.steps.shape[1]):
        total, a, counting = room.total[c], room.one[c, u], c == columns.n_others
        b, ab = room.one[c], room.two[u, c]
        if counting:
            for w in range(first, k):
                cells[0, w] = leaf_of(columns, c, total - a - b[w] + ab[w], cells[0, w])
                cells[1, w] = leaf_of(columns, c, b[w] - ab[w], cells[1, w])
                cells[2, w] = leaf_of(columns, c, a - ab[w], cells[2, w])
                cells[3, w] = leaf_of(columns, c, ab[w], cells[3, w])
            continue
        lower_two(cells, first, k, total - a, a, b, ab)


@inner_minima
def lower_two(cells, first, k, rest, a, b, ab):
    """Lower the four cells to the sums of one step."""
    for w in range(first, k):
        cells[0, w] = min(cells[0, w], rest - b[w] + ab[w])
        cells[1, w] = min(cells[1, w], b[w] - ab[w])
        cells[2, w] = min(cells[2, w], a - ab[w])
        cells[3, w] = min(cells[3, w], ab[w])


@inner
def cells_of_three(columns, room, u, v):
    """Set the eight cells of columns ``u`` < ``v`` and each later one, in the order 000, 001, ..., 111."""
    k, cells, first = columns.ones.shape[1], room.cells, v + 1
    for q in range(8):
        for w in range(first, k):
            cells[q, w] = 0.0
    for c in range(columns.steps.shape[1]):
        total, a, b, ab = room.total[c], room.one[c, u], room.one[c, v], room.two[u, c, v]
        e, ae, be, abe = room.one[c], room.two[u, c], room.two[v, c], room.three[c]
        if c < columns.n_others:
            lower_three(cells, first, k, (total - a - b + ab, b - ab, a - ab, ab), e, ae, be, abe)
            continue
        for w in range(first, k):
            sums = (e[w] - ae[w] - be[w] + abe[w], be[w] - abe[w], ae[w] - abe[w], abe[w])
            for q, whole in enumerate((total - a - b + ab, b - ab, a - ab, ab)):
                cells[2 * q, w] = leaf_of(columns, c, whole - sums[q], cells[2 * q, w])
                cells[2 * q + 1, w] = leaf_of(columns, c, sums[q], cells[2 * q + 1, w])


@inner_minima
def lower_three(cells, first, k, wholes, e, ae, be, abe):
    """Lower the eight cells to the sums of one step; ``wholes`` are those of the four cells of the first two columns."""
    w00, w01, w10, w11 = wholes
    for w in range(first, k):
        s00, s01, s10, s11 = e[w] - ae[w] - be[w] + abe[w], be[w] - abe[w], ae[w] - abe[w], abe[w]
        cells[0, w] = min(cells[0, w], w00 - s00)
        cells[1, w] = min(cells[1, w], s00)
        cells[2, w] = min(cells[2, w], w01 - s01)
        cells[3, w] = min(cells[3, w], s01)
        cells[4, w] = min(cells[4, w], w10 - s10)
        cells[5, w] = min(cells[5, w], s10)
        cells[6, w] = min(cells[6, w], w11 - s11)
        cells[7, w] = min(cells[7, w], s11)


@inner_minima
def lower_pairs(cells, pairs, u, v, k, two):
    """Lower the costs of pairs of columns by a cut of the third, for ``u`` < ``v`` and all later columns."""
    first = v + 1
    for q in range(4):
        least = pairs[q, u, v]
        for w in range(first, k):
            least = min(least, cells[2 * q, w] + cells[2 * q + 1, w] + two)
        pairs[q, u, v] = least
    for s in range(2):
        for z in range(2):
            of_u, of_v = pairs[2 * s + z, u], pairs[2 * s + z, v]
            for w in range(first, k):
                of_u[w] = min(of_u[w], cells[4 * s + z, w] + cells[4 * s + 2 + z, w] + two)
                of_v[w] = min(of_v[w], cells[2 * s + z, w] + cells[4 + 2 * s + z, w] + two)


@inner
def best_column(columns, room):
    """Return the least cost of all rows and the first column to cut, from the costs of the sides of each column."""
    cost, chosen = 0.0, NO_COLUMN
    for c in range(columns.n_others):
        cost = min(cost, room.total[c])
    cost += columns.penalty
    for u in range(columns.ones.shape[1]):
        here = room.sides[0, u] + room.sides[1, u]
        if here < cost:
            cost, chosen = here, u
    return cost, chosen


@inner
def take_leaves_of_sides(columns, room):
    """Initialise the sides of all columns as leaves."""
    for u in range(columns.ones.shape[1]):
        low, high = 0.0, 0.0
        for c in range(columns.steps.shape[1]):
            low = leaf_of(columns, c, room.total[c] - room.one[c, u], low)
            high = leaf_of(columns, c, room.one[c, u], high)
        room.sides[0, u], room.sides[1, u] = low + columns.penalty, high + columns.penalty


@compiled
def best_of_depth_one(columns, room, rows):
    """Return the least cost of a tree of depth one, and its column."""
    add_all(columns, rows, room)
    take_leaves_of_sides(columns, room)
    return best_column(columns, room)


@compiled
def best_of_depth_two(columns, room, rows):
    """Return the least cost of a tree of depth two, and its first column; infinity if it was stopped."""
    k, cells, sides, two = columns.ones.shape[1], room.cells, room.sides, 2 * columns.penalty
    add_all(columns, rows, room)
    take_leaves_of_sides(columns, room)
    for u in range(k):
        if room.stop[0] != 0:
            return np.inf, NO_COLUMN
        n = rows_with(columns.ones, rows, u, room.rows[0])
        add_later(columns, room.rows[0][:n], u + 1, room.two[u])
        cells_of_two(columns, room, u, u + 1)
        low, high = sides[0, u], sides[1, u]
        for w in range(u + 1, k):
            low = min(low, cells[0, w] + cells[1, w] + two)
            high = min(high, cells[2, w] + cells[3, w] + two)
            sides[0, w] = min(sides[0, w], cells[0, w] + cells[2, w] + two)
            sides[1, w] = min(sides[1, w], cells[1, w] + cells[3, w] + two)
        sides[0, u], sides[1, u] = low, high
    return best_column(columns, room)


@compiled
def best_of_depth_three(columns, room, rows):
    """Return the least cost of a tree of depth three, and its first column; infinity if it was stopped."""
    k, pairs, sides, penalty = columns.ones.shape[1], room.pairs, room.sides, columns.penalty
    add_all(columns, rows, room)
    take_leaves_of_sides(columns, room)
    for u in range(k):
        if room.stop[0] != 0:
            return np.inf, NO_COLUMN
        n = rows_with(columns.ones, rows, u, room.rows[0])
        add_later(columns, room.rows[0][:n], u + 1, room.two[u])
        cells_of_two(columns, room, u, u + 1)
        for q in range(4):
            for w in range(u + 1, k):
                pairs[q, u, w] = room.cells[q, w] + penalty
    for u in range(k):
        n = rows_with(columns.ones, rows, u, room.rows[0])
        for v in range(u + 1, k - 1):
            if room.stop[0] != 0:
                return np.inf, NO_COLUMN
            m = rows_with(columns.ones, room.rows[0][:n], v, room.rows[1])
            add_later(columns, room.rows[1][:m], v + 1, room.three)
            cells_of_three(columns, room, u, v)
            lower_pairs(room.cells, pairs, u, v, k, 2 * penalty)
    for u in range(k):
        for v in range(u + 1, k):
            sides[0, u] = min(sides[0, u], pairs[0, u, v] + pairs[1, u, v])
            sides[1, u] = min(sides[1, u], pairs[2, u, v] + pairs[3, u, v])
            sides[0, v] = min(sides[0, v], pairs[0, u, v] + pairs[2, u, v])
            sides[1, v] = min(sides[1, v], pairs[1, u, v] + pairs[3, u, v])
    return best_column(columns, room)
