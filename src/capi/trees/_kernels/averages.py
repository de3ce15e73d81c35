"""Kernels that average rows in the leaves of kept trees, and that follow such averages from row to row.

The *cell* of a leaf is the set of rows that it averages. ``members`` lists the rows of all trees, each tree's sorted by
leaf, such that the rows below any node are contiguous: cell l is ``members[first[l] : end[l]]``. A leaf without rows, or
with rows of weight 0 only, has the cell of its nearest ancestor that has some.

The cells that points look up are a sparse matrix in compressed rows: point i looks up ``cells[pointers[i] : pointers[i + 1]]``
with the weights ``shares``.
"""

import numpy as np

from capi._utils.compile import compiled, compiled_any_order


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
def cell_sums(members, first, end, y, from_cell, to_cell, out):
    """Write the sum of ``y`` (n,) over the rows of each cell from ``from_cell`` up to ``to_cell`` to ``out`` (l,)."""
    for cell in range(from_cell, to_cell):
        total = 0.0
        for k in range(first[cell], end[cell]):
            total += y[members[k]]
        out[cell] = total


@compiled
def spread_over_cells(members, first, end, x, out):
    """Add ``x`` (l,) of each cell to ``out`` (n,) of each of its rows: the transpose of `cell_sums`."""
    for cell in range(len(first)):
        if x[cell] != 0.0:
            for k in range(first[cell], end[cell]):
                out[members[k]] += x[cell]


@compiled
def ask(pointers, rows, leaves, starts, share, filled, cells, shares):
    """Append the ``leaves`` (T, m) of points ``rows`` (m,), each with weight ``share`` (m,), to the cells that they look up.

    The leaves of tree t start at ``starts[t]``; ``filled`` (n,) counts the cells that each point has already.
    """
    for k in range(len(rows)):
        i = rows[k]
        place = pointers[i] + filled[i]
        for t in range(len(leaves)):
            cells[place + t] = starts[t] + leaves[t, k]
            shares[place + t] = share[k]
        filled[i] += len(leaves)


@compiled
def look_up(pointers, cells, shares, values, from_point, to_point, out):
    """Write the weighted sum of the ``values`` (l,) of its cells to ``out`` (n,) for each point from ``from_point`` up to ``to_point``."""
    for i in range(from_point, to_point):
        total = 0.0
        for k in range(pointers[i], pointers[i + 1]):
            total += shares[k] * values[cells[k]]
        out[i] = total


@compiled
def look_back(pointers, cells, shares, x, out):
    """Add each point's weighted ``x`` (n,) to ``out`` (l,) of its cells: the transpose of `look_up`."""
    for i in range(len(x)):
        if x[i] != 0.0:
            for k in range(pointers[i], pointers[i + 1]):
                out[cells[k]] += shares[k] * x[i]


@compiled
def row_shares(
    pointers,
    cells,
    shares,
    members,
    first,
    end,
    inverse,
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

    Row j of cell l counts ``weights[j] * inverse[l]`` (n,), (l,). The rows go to ``columns`` and ``data``, one point after
    another, their number to ``lengths``. ``marks`` (n,), whose entries must not equal a point's number before, and ``totals`` (n,) are scratch.
    """
    free = np.int64(0)
    for i in range(from_point, to_point):
        before = free
        for k in range(pointers[i], pointers[i + 1]):
            cell = cells[k]
            share = shares[k] * inverse[cell]
            for member in range(first[cell], end[cell]):
                j = members[member]
                if marks[j] != i:
                    marks[j], totals[j] = i, 0.0
                    columns[free] = j
                    free += 1
                totals[j] += share
        for place in range(before, free):
            j = columns[place]
            data[place] = totals[j] * weights[j]
        lengths[i - from_point] = free - before
    return free


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
