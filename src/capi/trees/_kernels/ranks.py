"""Kernels that turn values into ranks, using a grid. They check nothing: `capi.trees.ranks` prepares all arrays."""

import numpy as np

from capi._utils.compile import entry, kernel
from capi.trees._kernels.memory import address_of
from capi.trees._kernels.plain import LANES
from capi.trees._kernels.simd import count_below, count_up_to

WINDOW = LANES  # values that are compared together
MISSING = np.uint32(2**32 - 1)


@entry
def distinct(ordered, values):
    """Write the distinct values of ``ordered`` (n,), ascending with NaN last, to ``values`` (n,); return their number."""
    n_values = 0
    for i in range(len(ordered)):
        x = ordered[i]
        if x != x:
            break
        if n_values == 0 or x != values[n_values - 1]:
            values[n_values] = x
            n_values += 1
    return n_values


@entry
def first_of_cells(values, scale, grid):
    """Write the index of the first of the ascending ``values`` in each cell or later to ``grid`` (G + 1,)."""
    n_cells, cell = len(grid) - 1, 0
    for i in range(len(values)):
        reached = np.int64((values[i] - values[0]) * scale)
        while cell <= reached and cell <= n_cells:
            grid[cell] = i
            cell += 1
    while cell <= n_cells:
        grid[cell] = len(values)
        cell += 1


@kernel
def cell_of(x, smallest, scale):
    """Return the cell of a value: the integer part of its distance from the smallest value times the scale."""
    return np.int64((x - smallest) * scale) if scale > 0.0 else np.int64(0)


@kernel
def first_above(values, at, end, x, or_equal):
    """Return the first index in ``at..end`` whose value is larger than ``x``, or equal to it if ``or_equal``.

    Comparing all values of a window is faster than mispredicting branches between them. The values are followed by `WINDOW`
    infinite ones.
    """
    length = end - at
    while length > 2 * WINDOW:
        half = length // 2
        middle = values[at + half - 1]
        at += half * np.int64(middle < x if or_equal else middle <= x)
        length -= half
    n_below = np.int64(WINDOW)
    while n_below == WINDOW:
        window = address_of(values) + 8 * at
        n_below = count_below(window, x) if or_equal else count_up_to(window, x)
        at += n_below
    return at


@entry
def rank(column, values, scale, grid, codes):
    """Write the rank of each entry of ``column`` (n,) among ``values`` to ``codes`` (n,); NaN becomes `MISSING`."""
    for i in range(len(column)):
        x = column[i]
        if x != x:
            codes[i] = MISSING
            continue
        cell = cell_of(x, values[0], scale)
        codes[i] = np.uint32(first_above(values, np.int64(grid[cell]), np.int64(grid[cell + 1]), x, False) - 1)
