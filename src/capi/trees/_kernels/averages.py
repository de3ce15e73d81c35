"""Kernels that average rows in the leaves of kept trees, and that follow such averages from row to row.

The *cell* of a leaf is the set of rows that it averages. ``members`` lists the rows of all trees, each tree's sorted by
leaf, such that the rows below any node are contiguous: cell l is ``members[first[l] : end[l]]``. A leaf without rows has
the cell of its nearest ancestor that has some.

The cells that points look up are a sparse matrix in compressed rows: point i looks up ``cells[pointers[i] : pointers[i + 1]]``
with the weights ``shares``.
"""

import numpy as np

from capi._utils.compile import compiled, compiled_any_order


@compiled
def place_rows(left, leaves, rows, offset, members, first, end):
    """Write the cells of one tree: ``members`` (m,), and ``first`` and ``end`` (l,), counted from ``offset``.

    ``left`` (nodes,) is each node's left child, or -1 - the number of its leaf; a parent comes before its children.
    ``leaves`` (m,) are the leaves of the ``rows`` (m,).
    """
    n_nodes, n_leaves = len(left), len(first)
    counts = np.zeros(n_leaves, dtype=np.int64)
    for i in range(len(leaves)):
        counts[leaves[i]] += 1
    inside = np.empty(n_nodes, dtype=np.int64)  # rows below each node
    for node in range(n_nodes - 1, -1, -1):
        child = left[node]
        inside[node] = counts[-1 - child] if child < 0 else inside[child] + inside[child + 1]
    start, low, high = np.zeros(n_nodes, dtype=np.int64), np.zeros(n_nodes, dtype=np.int64), inside.copy()
    free = np.zeros(n_leaves, dtype=np.int64)
    for node in range(n_nodes):
        child = left[node]
        if child < 0:
            leaf = -1 - child
            first[leaf], end[leaf], free[leaf] = offset + low[node], offset + high[node], start[node]
            continue
        start[child], start[child + 1] = start[node], start[node] + inside[child]
        for side in range(child, child + 2):
            if inside[side] > 0:
                low[side], high[side] = start[side], start[side] + inside[side]
            else:
                low[side], high[side] = low[node], high[node]
    for i in range(len(leaves)):
        leaf = leaves[i]
        members[free[leaf]] = rows[i]
        free[leaf] += 1


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
