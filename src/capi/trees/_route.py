"""Kernels that send states down trees.

The arrays of all trees of a forest stand one after the other: the left child, the feature, the threshold and the leaf's
number of each node, and ``roots`` (T,), where each tree starts. Each step waits for the memory, so several states go
down together: while one waits, the others step. There is no branch to guess wrong: a leaf's left child is the leaf
itself, and nothing is larger than its threshold.
"""

import numpy as np
from numba import njit

TOGETHER = 16
STEPS = 2  # between two looks at whether all have arrived


@njit(cache=True, nogil=True)
def send_together(root, left, feature, threshold, flat, first, d, at):
    """Write to ``at`` (16,) where 16 complete states from row ``first`` of ``flat`` (n * d,) end."""
    for k in range(TOGETHER):
        at[k] = root
    moving = np.int32(1)
    while moving:
        for _ in range(STEPS):
            for k in range(TOGETHER):
                i = at[k]
                at[k] = left[i] + np.int32(flat[(first + k) * d + feature[i]] > threshold[i])
        moving = np.int32(0)
        for k in range(TOGETHER):
            moving |= np.int32(left[at[k]] != at[k])


@njit(cache=True, nogil=True)
def send_one(root, left, feature, threshold, missing_right, state):
    """Return where one state (d,) ends, which may have missing values; those go right where 1 says so."""
    node = root
    while left[node] != node:
        x = state[feature[node]]
        node = left[node] + (np.int32(x > threshold[node]) if x == x else missing_right[node])
    return node


@njit(cache=True, nogil=True)
def find_leaves(roots, left, feature, threshold, missing_right, number, states, complete, leaves):
    """Write the leaf of each state (n, d) in each tree to ``leaves`` (T, n); leaves are numbered through the forest."""
    n, d = states.shape
    flat = states.ravel()
    n_together = n - n % TOGETHER if complete else 0
    at = np.empty(TOGETHER, dtype=np.int32)
    for t in range(len(roots)):
        for first in range(0, n_together, TOGETHER):
            send_together(roots[t], left, feature, threshold, flat, first, d, at)
            for k in range(TOGETHER):
                leaves[t, first + k] = number[at[k]]
        for i in range(n_together, n):
            leaves[t, i] = number[send_one(roots[t], left, feature, threshold, missing_right, states[i])]


@njit(cache=True, nogil=True)
def add_values(roots, left, feature, threshold, missing_right, number, values, states, complete, out):
    """Add the ``values`` (l, m) of each state's leaf in every tree to ``out`` (n, m)."""
    n, d = states.shape
    m = values.shape[1]
    flat = states.ravel()
    n_together = n - n % TOGETHER if complete else 0
    at = np.empty(TOGETHER, dtype=np.int32)
    for t in range(len(roots)):
        for first in range(0, n_together, TOGETHER):
            send_together(roots[t], left, feature, threshold, flat, first, d, at)
            for k in range(TOGETHER):
                for o in range(m):
                    out[first + k, o] += values[number[at[k]], o]
        for i in range(n_together, n):
            leaf = number[send_one(roots[t], left, feature, threshold, missing_right, states[i])]
            for o in range(m):
                out[i, o] += values[leaf, o]
