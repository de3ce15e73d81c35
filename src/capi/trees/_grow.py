"""Kernels on the rows of one node. No checks: `capi.trees.forest.grow` prepares and explains all arrays.

Values of a feature are replaced by their ranks, the *codes*: equal values have equal codes, and a missing value has the
largest code there is. A 64-bit word holds the codes of four features (16 bits each) or of two (32 bits), so that a
loop over words looks at several features at once, and moving a row moves few words.
"""

import numpy as np
from numba import njit

MASK_16 = np.uint64(0xFFFF)
MASK_32 = np.uint64(0xFFFFFFFF)
BITS_16, BITS_32, BITS_48 = np.uint64(16), np.uint64(32), np.uint64(48)
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


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def sums_of_four(word, first, cut, y, output, sums, counts):
    """Write, for four features from ``first`` on, the sum of ``y`` over the rows whose code is at most their cut.

    ``sums`` is (outputs, d), ``counts`` (d,) the number of those rows.

    Additions may be reordered: only so do they use vector instructions. The compiler's order is fixed for a machine,
    and sums of exact zeros are zero in any order.
    """
    a, b, c, d = cut[first], cut[first + 1], cut[first + 2], cut[first + 3]
    s, t, u, v = 0.0, 0.0, 0.0, 0.0
    k, m, n, o = 0, 0, 0, 0
    for i in range(len(word)):
        x, value = word[i], y[i]
        p, q = x & MASK_16 <= a, (x >> BITS_16) & MASK_16 <= b
        r, w = (x >> BITS_32) & MASK_16 <= c, x >> BITS_48 <= d
        s += value if p else 0.0
        t += value if q else 0.0
        u += value if r else 0.0
        v += value if w else 0.0
        k, m, n, o = k + p, m + q, n + r, o + w
    sums[output, first], sums[output, first + 1], sums[output, first + 2], sums[output, first + 3] = s, t, u, v
    counts[first], counts[first + 1], counts[first + 2], counts[first + 3] = k, m, n, o


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def sums_of_two(word, first, cut, y, output, sums, counts):
    """Do what `sums_of_four` does, for two features."""
    a, b = cut[first], cut[first + 1]
    s, t, k, m = 0.0, 0.0, 0, 0
    for i in range(len(word)):
        x, value = word[i], y[i]
        p, q = x & MASK_32 <= a, x >> BITS_32 <= b
        s += value if p else 0.0
        t += value if q else 0.0
        k, m = k + p, m + q
    sums[output, first], sums[output, first + 1], counts[first], counts[first + 1] = s, t, k, m


@njit(cache=True, nogil=True)
def known_extremes(word, shift, mask):
    """Return the smallest and the largest code that is not missing, and how many are missing."""
    low, high, n_missing = mask, np.uint64(0), np.int64(0)
    for i in range(len(word)):
        code = (word[i] >> shift) & mask
        missing = code == mask
        n_missing += missing
        low = min(low, code)
        high = max(high, np.uint64(0) if missing else code)
    return low, high, n_missing


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def missing_sum(word, shift, mask, y):
    """Return the sum of ``y`` over the rows whose code is missing."""
    total = 0.0
    for i in range(len(word)):
        total += y[i] if ((word[i] >> shift) & mask) == mask else 0.0
    return total


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def plain_sum(y):
    """Return the sum of ``y``, in the compiler's order."""
    total = 0.0
    for i in range(len(y)):
        total += y[i]
    return total


@njit(cache=True, nogil=True)
def all_equal(y):
    """Return whether all entries are the same."""
    for i in range(1, len(y)):
        if y[i] != y[0]:
            return False
    return True


@njit(cache=True, nogil=True)
def all_proportional(y, w):
    """Return whether all y / w are the same, to rounding: targets times weights of equal targets."""
    for i in range(1, len(y)):
        if abs(y[i] * w[0] - y[0] * w[i]) > 1e-15 * abs(y[0] * w[i]):
            return False
    return True


@njit(cache=True, nogil=True)
def divide(word, y, rows, shift, mask, cut, missing_left, new_word, new_y, new_rows, places):
    """Write the rows that go left to the front of the new arrays and the others to the back, and to ``places`` where each went.

    Return how many go left, and how many are missing. All arrays are moved in one loop: in small nodes, and most are
    small, starting a loop costs more than running it.
    """
    front, back, n_missing = np.int64(0), np.int64(len(word) - 1), np.int64(0)
    for i in range(len(word)):
        x = word[i]
        code = (x >> shift) & mask
        missing = np.int64(code == mask)
        left = np.int64(code <= cut) | (missing & missing_left)
        place = back + left * (front - back)  # a branch would be guessed wrong every other time
        new_word[place], new_y[place], new_rows[place], places[i] = x, y[i], rows[i], place
        front += left
        back -= 1 - left
        n_missing += missing
    return front, n_missing


@njit(cache=True, nogil=True)
def place(values, places, new_values):
    """Put ``values`` where their rows went."""
    for i in range(len(values)):
        new_values[places[i]] = values[i]


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
