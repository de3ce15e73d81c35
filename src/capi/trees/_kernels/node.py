"""Kernels for the rows of one node. They check nothing: `capi.trees.forest.grow` prepares all arrays.

`capi.trees._kernels.records` explains the arrays. Values of a feature are replaced by their ranks, the *codes*: equal values
have equal codes, and a missing value has the largest possible code. A row is a record of 64-bit words: its codes, four of
16 bits or two of 32 bits per word, then its outputs, its weight if it has one, and its number. The rows of a node are thus
one contiguous block of memory, given by the address of the first row, the number of rows and the ``size`` of each in bytes,
and moving a row is one copy.
"""

import numpy as np

from capi._utils.compile import apart, entry, kernel
from capi.trees._kernels.memory import address_of
from capi.trees._kernels.plain import LANES
from capi.trees._kernels.ranks import cell_of, first_above
from capi.trees._kernels.simd import (
    divide_3_of_16,
    divide_4_of_16,
    divide_5_of_32,
    divide_6_of_16,
    divide_any_of_16,
    divide_any_of_32,
    extremes_of_16,
    extremes_of_32,
    sum_of,
    sums_of_16,
    sums_of_32,
)

BLOCK = 128  # rows that are checked before any of them is moved


@kernel
def next_uniform(state):
    """Advance ``state`` (1,) uint64 in place and return a float in [0, 1) (xorshift)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.float64(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def largest_code(bits):
    """Return the code of a missing value."""
    return (np.uint64(1) << np.uint64(bits)) - np.uint64(1)


@kernel
def word_of(feature, bits):
    """Return the word that holds a feature's codes, and their shift within it."""
    return feature * bits // 64, np.uint64(feature * bits % 64)


@entry
def fill_records(words, outputs, weights, layout, records):
    """Write the records of all rows: codes ``words`` (n, W), ``outputs`` (n, m), ``weights`` (n,) or (0,), and row numbers."""
    floats = records.view(np.float64)
    end = layout.first_output + layout.n_outputs
    for i in range(len(words)):
        for k in range(layout.first_output):
            records[i, k] = words[i, k]
        for o in range(layout.n_outputs):
            floats[i, layout.first_output + o] = outputs[i, o]
        if layout.weighted:
            floats[i, end] = weights[i]
        if layout.number_shift:
            records[i, layout.number] |= np.uint64(i) << np.uint64(layout.number_shift)
        else:
            records[i, layout.number] = i


@kernel
def extremes(rows, n, size, bits, column, low, high):
    """Write the extreme codes of all features to ``low`` and ``high`` (lanes,); return the sum of the floats in ``column``."""
    total = 0.0
    for first in range(0, len(low), LANES):
        offset, lane = first * bits // 8, 8 * first
        here, y = rows + offset, 8 * column - offset
        if bits == 16:
            total = extremes_of_16(here, n, size, address_of(low) + lane, address_of(high) + lane, y)
        else:
            total = extremes_of_32(here, n, size, address_of(low) + lane, address_of(high) + lane, y)
    return total


@kernel
def sums_up_to(rows, n, size, bits, column, cut, sums, counts):
    """Write the sum of the floats in ``column`` over the rows up to each feature's cut to ``sums`` (lanes,).

    The number of those rows goes to ``counts`` (lanes,). The order of additions is fixed, and sums of exact zeros are zero.
    """
    cuts, to_sums, to_counts = address_of(cut), address_of(sums), address_of(counts)
    for first in range(0, len(cut), LANES):
        offset, lane = first * bits // 8, 8 * first
        if bits == 16:
            sums_of_16(rows + offset, n, size, 8 * column - offset, cuts + lane, to_sums + lane, to_counts + lane)
        else:
            sums_of_32(rows + offset, n, size, 8 * column - offset, cuts + lane, to_sums + lane, to_counts + lane)


@apart
def known_extremes(records, k, shift, mask):
    """Return the smallest and the largest known code, and the number of missing ones; the codes are in word ``k``."""
    low, high, n_missing = mask, np.uint64(0), np.int64(0)
    for i in range(len(records)):
        code = (records[i, k] >> shift) & mask
        missing = code == mask
        n_missing += missing
        low = min(low, code)
        high = max(high, np.uint64(0) if missing else code)
    return low, high, n_missing


@apart
def missing_sum(records, k, shift, mask, column):
    """Return the sum of the floats in ``column`` over the rows whose code is missing."""
    floats, total = records.view(np.float64), 0.0
    for i in range(len(records)):
        if ((records[i, k] >> shift) & mask) == mask:
            total += floats[i, column]
    return total


@kernel
def node_sums(rows, n, size, layout, total, n_known):
    """Write the sums of a node's outputs, except the first ``n_known``, to ``total`` (m,) and return its weight."""
    first = rows + 8 * layout.first_output
    for o in range(n_known, layout.n_outputs):
        total[o] = sum_of(first + 8 * o, n, size)
    return sum_of(first + 8 * layout.n_outputs, n, size) if layout.weighted else np.float64(n)


@kernel
def all_equal(floats, column):
    """Return whether all entries of a column are the same."""
    for i in range(1, len(floats)):
        if floats[i, column] != floats[0, column]:
            return False
    return True


@apart
def all_proportional(floats, column, weight):
    """Return whether all quotients of two columns are equal up to rounding, as for weighted targets that are all equal."""
    for i in range(1, len(floats)):
        here, first = floats[i, column] * floats[0, weight], floats[0, column] * floats[i, weight]
        if abs(here - first) > 1e-15 * abs(first):
            return False
    return True


@kernel
def divide(rows, n, size, target, feature, bits, cut, missing_left):
    """Write the rows that go left to the front of ``target`` and the others to its back; return how many go left.

    A missing value has the largest code and goes right. To send it left, one is added to both sides of the comparison: the
    largest code plus one overflows to zero.
    """
    n_words, offset, plus = size // 8, feature * bits // 8, np.int64(missing_left)
    upto = np.int64(cut) + plus
    if bits == 16:
        if n_words == 3:
            return divide_3_of_16(rows, n, size, offset, plus, upto, target)
        if n_words == 4:
            return divide_4_of_16(rows, n, size, offset, plus, upto, target)
        if n_words == 6:
            return divide_6_of_16(rows, n, size, offset, plus, upto, target)
        return divide_any_of_16(rows, n, size, offset, plus, upto, target)
    if n_words == 5:
        return divide_5_of_32(rows, n, size, offset, plus, upto, target)
    return divide_any_of_32(rows, n, size, offset, plus, upto, target)


@apart
def divide_in_place(records, feature, bits, cut, missing_left, wrong):
    """Move the rows that go left to the front of ``records`` and the others to the back; return how many go left.

    The rows on the wrong side in one block at the front and one at the back are listed in ``wrong`` (2, BLOCK), without
    branches, and then exchanged: at most half of all rows are moved.
    """
    k, shift = word_of(feature, bits)
    mask, plus = largest_code(bits), np.uint64(missing_left)
    upto = np.uint64(cut) + plus
    none = np.int64(0)
    front, back, n_front, n_back, at_front, at_back = none, np.int64(len(records)), none, none, none, none
    while back - front >= 2 * BLOCK:
        if n_front == at_front:
            n_front, at_front = none, none
            for i in range(front, front + BLOCK):
                wrong[0, n_front] = i
                n_front += np.int64((((records[i, k] >> shift) + plus) & mask) > upto)
        if n_back == at_back:
            n_back, at_back = none, none
            for i in range(back - BLOCK, back):
                wrong[1, n_back] = i
                n_back += np.int64((((records[i, k] >> shift) + plus) & mask) <= upto)
        for _ in range(min(n_front - at_front, n_back - at_back)):
            a, b = wrong[0, at_front], wrong[1, at_back]
            for word in range(records.shape[1]):
                records[a, word], records[b, word] = records[b, word], records[a, word]
            at_front += 1
            at_back += 1
        front += BLOCK * np.int64(n_front == at_front)
        back -= BLOCK * np.int64(n_back == at_back)
    while front < back:
        if (((records[front, k] >> shift) + plus) & mask) <= upto:
            front += 1
        else:
            back -= 1
            for word in range(records.shape[1]):
                records[front, word], records[back, word] = records[back, word], records[front, word]
    return front


@kernel
def draw_thresholds(features, state, pair, p):
    """Draw a uniform threshold between the extremes of each candidate of node p that can be cut."""
    for t in range(pair.n_cut[p]):
        j = pair.candidates[p, t]
        below = features.values[features.value_starts[j] + np.int64(pair.low[p, j])]
        above = features.values[features.value_starts[j] + np.int64(pair.high[p, j])]
        x = below + next_uniform(state) * (above - below)
        pair.thresholds[p, j] = x if x < above else below


@kernel
def find_cells(features, pair, p):
    """Find the cell of each of these thresholds; write the first codes of that cell and of the next to ``low`` and ``high``.

    ``grid[j, g]`` is the first code of feature j whose value lies in cell g or later.
    """
    for t in range(pair.n_cut[p]):
        j = pair.candidates[p, t]
        smallest = features.values[features.value_starts[j]]
        cell = cell_of(pair.thresholds[p, j], smallest, features.scales[j])
        pair.low[p, j], pair.high[p, j] = features.grid[j, cell], features.grid[j, cell + 1]


@kernel
def find_cuts(features, pair, p):
    """Find the code of each threshold: the largest code whose value is at most the threshold."""
    for t in range(pair.n_cut[p]):
        j = pair.candidates[p, t]
        start = features.value_starts[j]
        at, end = start + np.int64(pair.low[p, j]), start + np.int64(pair.high[p, j])
        pair.cut[p, j] = first_above(features.values, at, end, pair.thresholds[p, j], False) - start - 1


@kernel
def split_score(policy, left, total, left_weight, right_weight):
    """Return the score of a split (larger is better), and a second score that breaks ties.

    Both kinds of tree use the same sums of each side: ``left`` and ``total`` (m,). Value trees add up s * s / weight,
    which is the reduction of variance up to a constant. Policy trees use minus the regret that remains when each side
    takes its best action; many cuts do not change it, and then the variance breaks the tie.
    """
    variance = 0.0
    best_left, best_right = np.inf, np.inf
    for o in range(len(total)):
        right = total[o] - left[o]
        variance += left[o] * left[o] / left_weight + right * right / right_weight
        best_left = min(best_left, left[o])
        best_right = min(best_right, right)
    if policy:
        return -(best_left + best_right), variance
    return variance, 0.0


@kernel
def score_cuts(policy, cuts, total, weight):
    """Write the `split_score` of every feature's cut. Results of lanes without a feature or with an empty side are ignored."""
    n_lanes = len(cuts.scores)
    for j in range(n_lanes):
        cuts.variances[j], cuts.best_left[j], cuts.best_right[j] = 0.0, np.inf, np.inf
    for o in range(len(total)):
        for j in range(n_lanes):
            left, right = cuts.sums[o, j], total[o] - cuts.sums[o, j]
            cuts.variances[j] += left * left / cuts.weights[j] + right * right / (weight - cuts.weights[j])
            if policy:
                cuts.best_left[j] = min(cuts.best_left[j], left)
                cuts.best_right[j] = min(cuts.best_right[j], right)
    for j in range(n_lanes):
        cuts.scores[j] = -(cuts.best_left[j] + cuts.best_right[j]) if policy else cuts.variances[j]


@kernel
def is_better(score, second, best_score, best_second, tie):
    """Return whether a split beats the best one so far."""
    return score > best_score + tie or (score >= best_score - tie and second > best_second)
