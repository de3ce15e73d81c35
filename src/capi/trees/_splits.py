"""Kernels that look for the best split of one node: ``records`` (n, R), and ``floats``, the same memory read as floats.

Shapes: n rows, d features, m outputs (targets, or the regrets of actions), the first of them in column ``first_output``; the weight, if there
is one, stands behind the last. A split is five floats: feature, cut (a code), missing_left, threshold, and the next value
above it.
"""

import numpy as np
from numba import njit

from capi.trees._grow import (
    draw_cuts,
    extremes,
    is_better,
    known_extremes,
    missing_sum,
    next_uniform,
    split_score,
    sums_up_to,
)

NO_SPLIT = -1.0


@njit(cache=True, nogil=True)
def set_five(row, a, b, c, d, e):
    """Write five entries."""
    row[0], row[1], row[2], row[3], row[4] = a, b, c, d, e


@njit(cache=True, nogil=True)
def consider(split, best, left, total, n_left, n, w_left, weight, min_leaf, policy, tie):
    """Keep ``split`` (5,) in ``best`` (7,), with its two scores behind it, if it is allowed and better.

    ``left`` and ``total`` (m,) are the sums of the left side and of the node, ``n_left``, ``n`` their rows and
    ``w_left``, ``weight`` their weights.
    """
    if n_left < min_leaf or n - n_left < min_leaf or w_left <= 0.0 or weight - w_left <= 0.0:
        return
    score, second = split_score(policy, left, total, w_left, weight - w_left)
    if best[0] == NO_SPLIT or is_better(score, second, best[5], best[6], tie):
        for k in range(5):
            best[k] = split[k]
        best[5], best[6] = score, second


@njit(cache=True, nogil=True)
def random_cuts(
    records,
    floats,
    first_output,
    weighted,
    values,
    value_starts,
    grid,
    scales,
    has_missing,
    bits,
    n_candidates,
    scratch,
    order,
    state,
    total,
    weight,
    split,
    left,
    missing,
    best,
    min_leaf,
    policy,
    tie,
):
    """Consider one uniform cut in each of ``n_candidates`` features that are not constant in the node.

    Missing values may go to either side, or be told apart from all others. ``scratch`` is (low, high, cut, sums,
    counts, missing, threshold): of every feature the extreme codes, the cut, the sums (m + 1, lanes) and the number of rows up to it.
    """
    low, high, cut, sums, counts, n_missing, threshold = scratch
    n, m, d = len(records), len(total), len(has_missing)
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    extremes(records, bits, low, high)

    n_tried, n_cut, n_drawn = 0, 0, 0  # candidates stand in front in ``order``, those with something to cut first
    while n_tried < n_candidates and n_drawn < d:
        if n_candidates < d:  # draw without replacement; when all are taken the order does not matter
            pick = n_drawn + np.int64(next_uniform(state) * (d - n_drawn))
            order[n_drawn], order[pick] = order[pick], order[n_drawn]
        j = order[n_drawn]
        n_drawn += 1
        n_missing[j] = 0
        if has_missing[j]:
            k, shift = j * bits // 64, np.uint64(j * bits % 64)
            low[j], high[j], n_missing[j] = known_extremes(records, k, shift, mask)
        if n_missing[j] == n or (low[j] == high[j] and n_missing[j] == 0):
            continue  # constant here
        cut[j] = high[j]
        order[n_drawn - 1] = order[n_tried]
        order[n_tried] = j
        if low[j] < high[j]:
            order[n_tried], order[n_cut] = order[n_cut], order[n_tried]
            n_cut += 1
        n_tried += 1
    draw_cuts(n_cut, order, values, value_starts, grid, scales, low, high, state, threshold, cut)

    for o in range(m + weighted):
        sums_up_to(records, bits, first_output + o, cut, sums[o], counts)

    for t in range(n_tried):
        j = order[t]
        n_left = counts[j]
        w_left = sums[m, j] if weighted else np.float64(n_left)
        if n_left >= min_leaf and n - n_left >= min_leaf and w_left > 0.0 and weight - w_left > 0.0:
            for o in range(m):
                left[o] = sums[o, j]
            score, second = split_score(policy, left, total, w_left, weight - w_left)
            if best[0] == NO_SPLIT or is_better(score, second, best[5], best[6], tie):
                best[0], best[1], best[2], best[5], best[6] = j, cut[j], 0.0, score, second
                best[3] = threshold[j] if t < n_cut else np.inf  # one known value: only missing values are told apart
                best[4] = 0.0
        if n_missing[j] > 0 and t < n_cut:
            k, shift = j * bits // 64, np.uint64(j * bits % 64)
            w_missing = np.float64(n_missing[j])
            if weighted:
                w_missing = missing_sum(records, floats, k, shift, mask, first_output + m)
            for o in range(m):
                missing[o] = missing_sum(records, floats, k, shift, mask, first_output + o)
                left[o] = sums[o, j] + missing[o]
            set_five(split, j, cut[j], 1.0, threshold[j], 0.0)
            consider(
                split, best, left, total, n_left + n_missing[j], n, w_left + w_missing, weight, min_leaf, policy, tie
            )
            for o in range(m):
                left[o] = total[o] - missing[o]
            set_five(split, j, mask - np.uint64(1), 0.0, np.inf, np.inf)
            consider(split, best, left, total, n - n_missing[j], n, weight - w_missing, weight, min_leaf, policy, tie)


@njit(cache=True, nogil=True)
def best_cuts_of(
    records,
    floats,
    first_output,
    weighted,
    k,
    shift,
    mask,
    values,
    total,
    weight,
    feature,
    keys,
    split,
    left,
    missing,
    best,
    min_leaf,
    policy,
    tie,
):
    """Consider every cut between neighbouring values of a feature, whose codes are in word ``k``."""
    n, m = len(records), len(total)
    low_bits = np.uint64(0xFFFFFFFF)
    for i in range(n):
        keys[i] = (((records[i, k] >> shift) & mask) << np.uint64(32)) | np.uint64(i)
    ordered = np.sort(keys[:n])
    n_missing, w_missing = 0, np.float64(0.0)
    missing[:] = 0.0
    while n_missing < n and ordered[n - 1 - n_missing] >> np.uint64(32) == mask:
        row = np.int64(ordered[n - 1 - n_missing] & low_bits)
        w_missing += floats[row, first_output + m] if weighted else 1.0
        for o in range(m):
            missing[o] += floats[row, first_output + o]
        n_missing += 1
    left[:] = 0.0
    w_left, n_known = 0.0, n - n_missing
    for p in range(n_known):
        row = np.int64(ordered[p] & low_bits)
        w_left += floats[row, first_output + m] if weighted else 1.0
        for o in range(m):
            left[o] += floats[row, first_output + o]
        code = np.int64(ordered[p] >> np.uint64(32))
        if p + 1 == n_known:
            if n_missing > 0:
                set_five(split, feature, code, 0.0, np.inf, np.inf)
                consider(split, best, left, total, n_known, n, w_left, weight, min_leaf, policy, tie)
            break
        following = np.int64(ordered[p + 1] >> np.uint64(32))
        if following == code:
            continue
        below, above = values[code], values[following]
        threshold = below + (above - below) / 2
        if not (below <= threshold < above):
            threshold = below
        set_five(split, feature, code, 0.0, threshold, above)
        consider(split, best, left, total, p + 1, n, w_left, weight, min_leaf, policy, tie)
        if n_missing > 0:
            split[2] = 1.0
            for o in range(m):
                left[o] += missing[o]
            consider(split, best, left, total, p + 1 + n_missing, n, w_left + w_missing, weight, min_leaf, policy, tie)
            for o in range(m):
                left[o] -= missing[o]


@njit(cache=True, nogil=True)
def all_best_cuts(
    records,
    floats,
    first_output,
    weighted,
    values,
    value_starts,
    has_missing,
    bits,
    n_candidates,
    order,
    state,
    total,
    weight,
    keys,
    split,
    left,
    missing,
    best,
    min_leaf,
    policy,
    tie,
):
    """Consider every cut of each of ``n_candidates`` features that are not constant in the node."""
    d = len(has_missing)
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    n_tried, n_drawn = 0, 0
    while n_tried < n_candidates and n_drawn < d:
        if n_candidates < d:
            pick = n_drawn + np.int64(next_uniform(state) * (d - n_drawn))
            order[n_drawn], order[pick] = order[pick], order[n_drawn]
        j = order[n_drawn]
        n_drawn += 1
        k, shift = j * bits // 64, np.uint64(j * bits % 64)
        low, high, n_missing = known_extremes(records, k, shift, mask)
        if n_missing == len(records) or (low == high and n_missing == 0):
            continue
        n_tried += 1
        of_feature = values[value_starts[j] : value_starts[j + 1]]
        best_cuts_of(
            records,
            floats,
            first_output,
            weighted,
            k,
            shift,
            mask,
            of_feature,
            total,
            weight,
            j,
            keys,
            split,
            left,
            missing,
            best,
            min_leaf,
            policy,
            tie,
        )
