"""Kernels that turn sorted values into ranks, and find the cells of a grid over them. No checks: `capi.trees.encoding` prepares all arrays."""

import numpy as np

from capi.trees._compiling import entry

MISSING = np.uint32(2**32 - 1)


@entry
def rank(column, order, codes, values):
    """Write the rank of each entry of ``column`` (n,), which ``order`` sorts, to ``codes`` (n,) and the distinct ones to ``values`` (n,).

    Missing entries come last; their code is `MISSING`. Return the number of distinct values, and whether any is missing.
    """
    n, n_values = len(column), 0
    for i in range(n):
        x = column[order[i]]
        if x != x:
            for k in range(i, n):
                codes[order[k]] = MISSING
            return n_values, True
        if n_values == 0 or x != values[n_values - 1]:
            values[n_values] = x
            n_values += 1
        codes[order[i]] = np.uint32(n_values - 1)
    return n_values, False


@entry
def first_of_cells(values, scale, grid):
    """Write the first of the ascending ``values`` that lies in each cell or later to ``grid`` (G + 1,)."""
    n_cells, cell = len(grid) - 1, 0
    for i in range(len(values)):
        reached = np.int64((values[i] - values[0]) * scale)
        while cell <= reached and cell <= n_cells:
            grid[cell] = i
            cell += 1
    while cell <= n_cells:
        grid[cell] = len(values)
        cell += 1
