"""Kernels that average rows in the leaves of kept trees, and that follow such averages from row to row.

The *cell* of a leaf is the set of rows that it averages. ``members`` lists the rows of all trees, each tree's sorted by
leaf, such that the rows below any node are contiguous: cell l is ``members[first[l] : end[l]]``. A leaf without rows, or
with rows of weight 0 only, has the cell of its nearest ancestor that has some.

Points look up one leaf in each tree, ``leaves`` (T, m), tree by tree: all values of a tree then stay in a fast cache. To follow averages from
row to row the look-ups become a sparse matrix in compressed rows: point i looks up the cells ``cells[pointers[i] : pointers[i + 1]]`` with
the weights ``shares``.
"""

import numpy as np

from capi._utils.compile import compiled, compiled_any_order

POINTS_OF_SUMS = 512  # their sums stay in the fastest cache
BOUNDS = np.dtype([("first", "u4"), ("size", "u4"), ("inverse", "f8")])


@compiled
def place_rows(left, leaves, rows, offset, members, start, own):
    """Sort the ``rows`` (m,) of one tree by their ``leaves`` (m,) into ``members`` (m,), such that those below any node are contiguous.

    ``left`` (nodes,) is each node's left child, or -1 - the number of its leaf; a parent comes before its children. Where the rows
    of each leaf start, counted from ``offset``, goes to ``start`` (l,), their number to ``own`` (l,).
    """
    own[:] = 0
    for i in range(len(leaves)):
        own[leaves[i]] += 1
    inside = np.empty(len(left), dtype=np.int64)  # rows below each node
    for node in range(len(left) - 1, -1, -1):
        child = left[node]
        inside[node] = own[-1 - child] if child < 0 else inside[child] + inside[child + 1]
    begin, free = np.zeros(len(left), dtype=np.int64), np.zeros(len(own), dtype=np.int64)
    for node in range(len(left)):
        child = left[node]
        if child < 0:
            free[-1 - child], start[-1 - child] = begin[node], offset + begin[node]
        else:
            begin[child], begin[child + 1] = begin[node], begin[node] + inside[child]
    for i in range(len(leaves)):
        leaf = leaves[i]
        members[free[leaf]] = rows[i]
        free[leaf] += 1


@compiled
def bound_cells(left, start, own, weights, first, end):
    """Write the cell of each leaf of a tree to ``first`` and ``end`` (l,): its own rows, or, without weight, those of an ancestor.

    ``start`` and ``own`` (l,) are those of `place_rows`, ``weights`` (l,) the weights of the leaves' rows.
    """
    low, high, weight = np.empty(len(left), dtype=np.int64), np.empty(len(left), dtype=np.int64), np.empty(len(left))
    for node in range(len(left) - 1, -1, -1):  # the rows below each node
        child = left[node]
        if child < 0:
            leaf = -1 - child
            low[node], high[node], weight[node] = start[leaf], start[leaf] + own[leaf], weights[leaf]
        else:
            low[node], high[node], weight[node] = low[child], high[child + 1], weight[child] + weight[child + 1]
    for node in range(len(left)):
        child = left[node]
        if child < 0:
            first[-1 - child], end[-1 - child] = low[node], high[node]
            continue
        for side in range(child, child + 2):
            if not weight[side] > 0:
                low[side], high[side], weight[side] = low[node], high[node], weight[node]


@compiled
def cell_sums(members, first, end, y, chosen, out):
    """Write the sum of ``y`` (n,) over the rows of each of the ``chosen`` cells to ``out`` (l,)."""
    for cell in chosen:
        total = 0.0
        for k in range(first[cell], end[cell]):
            total += y[members[k]]
        out[cell] = total


@compiled
def spread_over_cells(members, first, end, x, chosen, out):
    """Add ``x`` (l,) of each of the ``chosen`` cells to ``out`` (n,) of each of its rows: the transpose of `cell_sums`."""
    for cell in chosen:
        if x[cell] != 0.0:
            for k in range(first[cell], end[cell]):
                out[members[k]] += x[cell]


@compiled
def look_up(leaves, starts, values, points, shares, first, end, out):
    """Add the sum over trees of the ``values`` (l,) of ``leaves`` (T, m) to ``out`` (n,), for the points ``first .. end - 1`` of m.

    ``points`` (m,) are their places in ``out``, ``shares`` (m,) their weights; the leaves of tree t start at ``starts[t]``. Four trees
    are processed at a time, so the sums are rarely read and written; each point adds the trees in order.
    """
    n_trees = len(leaves)
    in_fours = n_trees - n_trees % 4
    sums = np.empty(POINTS_OF_SUMS)
    for start in range(first, end, POINTS_OF_SUMS):
        block = slice(start, min(start + POINTS_OF_SUMS, end))
        total = sums[: block.stop - start]
        total[:] = 0.0
        for t in range(0, in_fours, 4):
            a, b, c, d = leaves[t, block], leaves[t + 1, block], leaves[t + 2, block], leaves[t + 3, block]
            of_a, of_b = values[starts[t] :], values[starts[t + 1] :]
            of_c, of_d = values[starts[t + 2] :], values[starts[t + 3] :]
            for i in range(len(total)):
                two = total[i] + of_a[np.uint64(a[i])] + of_b[np.uint64(b[i])]
                total[i] = two + of_c[np.uint64(c[i])] + of_d[np.uint64(d[i])]
        for t in range(in_fours, n_trees):
            a, of_a = leaves[t, block], values[starts[t] :]
            for i in range(len(total)):
                total[i] += of_a[np.uint64(a[i])]
        place, share = points[block], shares[block]
        for i in range(len(total)):
            out[place[i]] += share[i] * total[i]


@compiled
def look_back(leaves, starts, first, end, y, out):
    """Add ``y`` (m,) of each point to ``out`` (l,) of its ``leaves`` (T, m), in trees ``first .. end - 1``: the transpose of `look_up`."""
    for t in range(first, end):
        of_point, of_leaf = leaves[t], out[starts[t] :]
        for i in range(len(y)):
            of_leaf[np.uint64(of_point[i])] += y[i]


@compiled
def ask(points, leaves, starts, share, filled, cells, shares):
    """Append the ``leaves`` (T, m) of ``points`` (m,), each with weight ``share`` (m,), to the cells that they look up.

    The leaves of tree t start at ``starts[t]``; ``filled`` (n,) is where each point's next cell goes, and moves on.
    """
    for k in range(len(points)):
        place = filled[points[k]]
        for t in range(len(leaves)):
            cells[place + t] = starts[t] + leaves[t, k]
            shares[place + t] = share[k]
        filled[points[k]] += len(leaves)


@compiled
def row_shares(
    pointers,
    cells,
    shares,
    members,
    bounds,
    weights,
    from_point,
    to_point,
    marks,
    totals,
    columns,
    data,
    lengths,
):
    """Write which rows each point averages, and with which weights, for the points from ``from_point`` up to ``to_point``.

    ``bounds`` (l,) of type BOUNDS say where each cell starts in ``members``, its size, and the weight of its rows; row j
    counts ``weights[j]`` (n,) times that. The rows go to ``columns`` and ``data``, one point after another, their number
    to ``lengths``. ``marks`` (n,), whose entries must not equal a point's number before, and ``totals`` (n,) are scratch.
    """
    widest = 0
    for i in range(from_point, to_point):
        widest = max(widest, pointers[i + 1] - pointers[i])
    first, size, share = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(widest)
    touched = np.empty(widest, np.int64)  # never read: the processor fetches the members meanwhile
    free = np.int64(0)
    for i in range(from_point, to_point):
        before = free
        here, its_share = cells[pointers[i] : pointers[i + 1]], shares[pointers[i] : pointers[i + 1]]
        for k in range(len(here)):  # all cells are far apart in memory: ask for them together
            cell = bounds[np.uint64(here[k])]
            first[k], size[k], share[k] = cell["first"], cell["size"], its_share[k] * cell["inverse"]
        for k in range(len(here)):
            if size[k] > 0:
                touched[k] = members[np.uint64(first[k])]
        for k in range(len(here)):
            for member in range(first[k], first[k] + size[k]):
                j = np.uint64(members[np.uint64(member)])
                known = marks[j] == i  # no branch: a guess would often be wrong
                columns[np.uint64(free)] = j
                free += not known
                marks[j] = i
                totals[j] = share[k] + (totals[j] if known else 0.0)
        row, of_row = columns[before:free], data[before:free]
        for place in range(len(row)):
            j = np.uint64(row[place])
            of_row[place] = totals[j] * weights[j]
        lengths[i - from_point] = free - before
    return free


@compiled
def place_shares(pointers, cells, members, first, end, from_point, to_point, marks, columns, lengths, places, cell_of):
    """Write which rows each point averages to ``columns``, one point after another, and their number to ``lengths``.

    A point averages the rows of its cells, one after another; ``places`` gets where each of them is among the point's columns, and ``cell_of``
    the number of its cell among the point's. ``marks`` (n,), whose entries must not equal a point's number before, is
    scratch. The points are those from ``from_point`` up to ``to_point``.
    """
    place_of = np.empty(len(marks), dtype=np.uint32)
    free, p = np.int64(0), np.int64(0)
    for i in range(from_point, to_point):
        before = free
        for k in range(pointers[i], pointers[i + 1]):
            for member in range(first[cells[k]], end[cells[k]]):
                j = members[member]
                if marks[j] != i:
                    marks[j], place_of[j] = i, free - before
                    columns[free] = j
                    free += 1
                places[p], cell_of[p] = place_of[j], k - pointers[i]
                p += 1
        lengths[i - from_point] = free - before
    return free


@compiled
def weigh_shares(
    pointers, cells, shares, inverse, weights, starts, places, cell_of, all_pointers, all_columns, columns, data
):
    """Write the weights of the rows in each point's average to ``columns`` and ``data``, and return the new pointers (n + 1,).

    Points and rows are the same (n,); those whose weight is zero are left out. `place_shares` wrote ``places`` and ``cell_of``, from
    ``starts[i]`` on for point i, and the rows that each point may average.
    """
    n = len(weights)
    new = np.zeros(n + 1, dtype=np.int64)
    of_cells, totals = np.empty(0), np.empty(0)
    free = np.int64(0)
    for i in range(n):
        new[i + 1] = free
        if weights[i] == 0.0:
            continue
        mine, width = cells[pointers[i] : pointers[i + 1]], all_pointers[i + 1] - all_pointers[i]
        if len(of_cells) < len(mine):
            of_cells = np.empty(len(mine))
        if len(totals) < width:
            totals = np.empty(2 * width)
        for k in range(len(mine)):
            of_cells[k] = shares[pointers[i] + k] * inverse[mine[k]]
        totals[:width] = 0.0
        place, cell = places[starts[i] : starts[i + 1]], cell_of[starts[i] : starts[i + 1]]
        for p in range(len(place)):
            totals[place[p]] += of_cells[cell[p]]
        row = all_columns[all_pointers[i] : all_pointers[i + 1]]
        for e in range(len(row)):
            weight = weights[np.uint32(row[e])]
            columns[free], data[free] = row[e], totals[e] * weight
            free += weight != 0.0
        new[i + 1] = free
    return new


@compiled_any_order
def sweep_rows(pointers, columns, data, constant, backwards, values):
    """Replace each entry of ``values`` (n,) by ``constant`` plus its row of a sparse matrix times ``values``, one after another.

    Entries that were replaced before are used at once (Gauss-Seidel), in the order of the rows or ``backwards``.
    """
    n = len(values)
    for k in range(n):
        i = n - 1 - k if backwards else k
        row, weight = columns[pointers[i] : pointers[i + 1]], data[pointers[i] : pointers[i + 1]]
        total = 0.0
        for p in range(len(row)):
            total += weight[p] * values[np.uint64(row[p])]
        values[i] = constant[i] + total
