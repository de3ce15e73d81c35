"""Kernels that send states down a tree. ``nodes`` are those of one tree; a leaf has left = -1 - its number.

Each step waits for the memory, so several states go down together: while one waits, the others step.
"""

import numpy as np
from numba import njit

TOGETHER = 16


@njit(cache=True, nogil=True)
def child(nodes, node, states, i):
    """Return the child to which state ``i`` goes from an inner node."""
    x = states[i, nodes[node].feature]
    if x != x:  # missing
        return nodes[node].left + 1 - nodes[node].missing_left
    return nodes[node].left + np.int64(x > nodes[node].threshold)


@njit(cache=True, nogil=True)
def leaves_of(nodes, states, leaves):
    """Write the leaf of each state (n, d) to ``leaves`` (n,)."""
    at = np.empty(TOGETHER, dtype=np.int64)
    for first in range(0, len(states), TOGETHER):
        count = min(TOGETHER, len(states) - first)
        at[:] = 0
        moving = count
        while moving > 0:
            moving = 0
            for k in range(count):
                if nodes[at[k]].left >= 0:
                    at[k] = child(nodes, at[k], states, first + k)
                    moving += 1
        for k in range(count):
            leaves[first + k] = -1 - nodes[at[k]].left
