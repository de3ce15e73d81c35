"""Kernels on the rows of one node. No checks: `capi.trees.forest.grow` prepares and explains all arrays.

Values of a feature are replaced by their ranks, the *codes*: equal values have equal codes, and a missing value has the
largest code there is. A row is a record of 64-bit words: its codes, four of 16 bits or two of 32 in a word, then its outputs, its weight if
it has one, and its number. So the rows of a node are one stretch of memory, and moving a row is one copy.
"""

import numpy as np
from numba import njit

from capi.trees._lanes import (
    LANES,
    divide_4_of_16,
    divide_6_of_16,
    divide_6_of_32,
    divide_8_of_16,
    divide_8_of_32,
    divide_any_of_16,
    divide_any_of_32,
    extremes_of_16,
    extremes_of_32,
    sums_of_16,
    sums_of_32,
)

WINDOW = 8  # values that are compared together


@njit(cache=True, nogil=True)
def next_uniform(state):
    """Advance ``state`` (1,) uint64 in place and return a float in [0, 1) (xorshift)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def extremes(records, bits, low, high):
    """Write the smallest and largest code of all features to ``low`` and ``high`` (lanes,)."""
    size, base = 8 * records.shape[1], records.ctypes.data
    for first in range(0, len(low), LANES):
        here, low_here, high_here = base + first * bits // 8, low.ctypes.data + 8 * first, high.ctypes.data + 8 * first
        if bits == 16:
            extremes_of_16(here, len(records), size, low_here, high_here)
        else:
            extremes_of_32(here, len(records), size, low_here, high_here)


@njit(cache=True, nogil=True)
def sums_up_to(records, bits, column, cut, sums, counts):
    """Write the sums of the floats in ``column`` over the rows up to the cut of each feature to ``sums`` (lanes,).

    ``counts`` (lanes,) is the number of those rows. The order of additions is fixed, and sums of exact zeros are zero.
    """
    size, base = 8 * records.shape[1], records.ctypes.data
    for first in range(0, len(cut), LANES):
        offset = first * bits // 8
        cut_here, sums_here, counts_here = (
            cut.ctypes.data + 8 * first,
            sums.ctypes.data + 8 * first,
            counts.ctypes.data + 8 * first,
        )
        if bits == 16:
            sums_of_16(base + offset, len(records), size, 8 * column - offset, cut_here, sums_here, counts_here)
        else:
            sums_of_32(base + offset, len(records), size, 8 * column - offset, cut_here, sums_here, counts_here)


@njit(cache=True, nogil=True)
def known_extremes(records, k, shift, mask):
    """Return the smallest and the largest code that is not missing, and how many are missing; codes are in word ``k``."""
    low, high, n_missing = mask, np.uint64(0), np.int64(0)
    for i in range(len(records)):
        code = (records[i, k] >> shift) & mask
        missing = code == mask
        n_missing += missing
        low = min(low, code)
        high = max(high, np.uint64(0) if missing else code)
    return low, high, n_missing


@njit(cache=True, nogil=True)
def missing_sum(records, floats, k, shift, mask, column):
    """Return the sum of the floats in ``column`` over the rows whose code is missing."""
    total = 0.0
    for i in range(len(records)):
        if ((records[i, k] >> shift) & mask) == mask:
            total += floats[i, column]
    return total


@njit(cache=True, nogil=True)
def plain_sum(floats, column):
    """Return the sum of a column; four sums side by side, because an addition waits for the one before."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    n = len(floats)
    whole = n - n % 4
    for i in range(0, whole, 4):
        a += floats[i, column]
        b += floats[i + 1, column]
        c += floats[i + 2, column]
        d += floats[i + 3, column]
    for i in range(whole, n):
        a += floats[i, column]
    return (a + b) + (c + d)


@njit(cache=True, nogil=True)
def all_equal(floats, column):
    """Return whether all entries of a column are the same."""
    for i in range(1, len(floats)):
        if floats[i, column] != floats[0, column]:
            return False
    return True


@njit(cache=True, nogil=True)
def all_proportional(floats, column, weight):
    """Return whether all quotients of two columns are the same, to rounding: targets times weights of equal targets."""
    for i in range(1, len(floats)):
        here, first = floats[i, column] * floats[0, weight], floats[0, column] * floats[i, weight]
        if abs(here - first) > 1e-15 * abs(first):
            return False
    return True


@njit(cache=True, nogil=True)
def divide(records, new_records, feature, bits, cut, missing_left):
    """Write the rows that go left to the front of ``new_records`` and the others to its back; return how many go left.

    A missing value has the largest code, and goes right; where it goes left, both sides of the comparison are one larger,
    and the largest code plus one is zero.
    """
    n, n_words = records.shape
    source, target = np.int64(records.ctypes.data), np.int64(new_records.ctypes.data)
    size, offset, plus = np.int64(8 * n_words), np.int64(feature * bits // 8), np.int64(missing_left)
    upto = np.int64(cut) + plus
    if bits == 16:
        if n_words == 4:
            return divide_4_of_16(source, n, size, offset, plus, upto, target)
        if n_words == 6:
            return divide_6_of_16(source, n, size, offset, plus, upto, target)
        if n_words == 8:
            return divide_8_of_16(source, n, size, offset, plus, upto, target)
        return divide_any_of_16(source, n, size, offset, plus, upto, target)
    if n_words == 6:
        return divide_6_of_32(source, n, size, offset, plus, upto, target)
    if n_words == 8:
        return divide_8_of_32(source, n, size, offset, plus, upto, target)
    return divide_any_of_32(source, n, size, offset, plus, upto, target)


@njit(cache=True, nogil=True)
def draw_cuts(n_features, features, values, value_starts, grid, scales, low, high, state, threshold, cut):
    """Draw a uniform threshold between the extremes of each of the first ``features``, and find its code.

    The code is the largest whose value is at most the threshold. ``grid[j, g]`` is the first code of feature j whose
    value lies in cell g or later; the cell of a value is the whole part of its distance from the smallest times the scale.
    These tables do not fit into the nearest cache. In loops of their own the look-ups of all features wait together, and
    comparing all values of a window takes less time than guessing where among them to go on. Behind each feature's values
    stand `WINDOW` infinite ones.
    """
    for t in range(n_features):
        j = features[t]
        below = values[value_starts[j] + np.int64(low[j])]
        above = values[value_starts[j] + np.int64(high[j])]
        threshold[j] = below + next_uniform(state) * (above - below)
        if not threshold[j] < above:
            threshold[j] = below
    for t in range(n_features):
        j = features[t]
        cell = np.int64((threshold[j] - values[value_starts[j]]) * scales[j]) if scales[j] > 0.0 else 0
        low[j] = max(np.int64(low[j]) + 1, grid[j, cell])
        high[j] = min(np.int64(high[j]), grid[j, cell + 1])
    for t in range(n_features):
        j = features[t]
        x, start = threshold[j], value_starts[j]
        at, length = start + np.int64(low[j]), np.int64(high[j]) - np.int64(low[j])
        while length > 2 * WINDOW:
            half = length // 2
            at += half * np.int64(values[at + half - 1] <= x)
            length -= half
        n_below = np.int64(WINDOW)
        while n_below == WINDOW:
            n_below = np.int64(0)
            for i in range(WINDOW):
                n_below += np.int64(values[at + i] <= x)
            at += n_below
        cut[j] = at - start - 1


@njit(cache=True, nogil=True)
def split_score(policy, left, total, left_weight, right_weight):
    """Return how good a split is, larger is better: the score, and a second one that decides among ties.

    Both kinds of tree have the same sums of each side: ``left`` and ``total`` (m,). Value trees add up s * s /
    weight, which is the reduction of variance but for a constant. Policy trees take minus the regret that is left
    when each side plays its best action; many cuts leave it as it is, and then the variance decides.
    """
    variance = 0.0
    best_left, best_right = np.inf, np.inf
    for k in range(len(total)):
        right = total[k] - left[k]
        variance += left[k] * left[k] / left_weight + right * right / right_weight
        best_left = min(best_left, left[k])
        best_right = min(best_right, right)
    if policy:
        return -(best_left + best_right), variance
    return variance, 0.0


@njit(cache=True, nogil=True)
def is_better(score, second, best_score, best_second, tie):
    """Return whether a split beats the best one so far."""
    return score > best_score + tie or (score >= best_score - tie and second > best_second)
