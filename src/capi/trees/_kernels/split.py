"""Kernels that find the best split of one node, whose rows are ``records`` (n, R).

A split is five floats: feature, cut (a code), missing_left, threshold, and the next value above it.
`capi.trees._kernels.records` explains the tables.
"""

import numpy as np

from capi._utils.compile import apart, inlined, kernel
from capi.trees._kernels.memory import address_of
from capi.trees._kernels.node import (
    is_better,
    known_extremes,
    largest_code,
    missing_sum,
    next_uniform,
    score_cuts,
    split_score,
    sums_up_to,
    word_of,
)

NO_SPLIT = -1.0
ONE_BY_ONE = 48  # up to this many rows are sorted by insertion


@kernel
def set_five(row, a, b, c, d, e):
    """Write five entries."""
    row[0], row[1], row[2], row[3], row[4] = a, b, c, d, e


@kernel
def tie_of(total, policy):
    """Return the difference up to which scores count as equal: regrets are sums, and their last digits are noise."""
    tie = 0.0
    if policy:
        for o in range(len(total)):
            tie += total[o]
    return 1e-12 * tie


@apart
def consider(trial, best, total, n_left, n, w_left, weight, limits):
    """Keep the trial's split and its two scores in ``best`` (7,) if it is allowed and better.

    ``total`` (m,) are the sums of the node, ``n_left`` and ``n`` the rows of the left side and of the node, ``w_left`` and
    ``weight`` their weights.
    """
    min_leaf = limits.min_leaf
    if n_left < min_leaf or n - n_left < min_leaf or w_left <= 0.0 or weight - w_left <= 0.0:
        return
    score, second = split_score(limits.policy, trial.left, total, w_left, weight - w_left)
    if best[0] == NO_SPLIT or is_better(score, second, best[5], best[6], tie_of(total, limits.policy)):
        for k in range(5):
            best[k] = trial.split[k]
        best[5], best[6] = score, second


@kernel
def choose_candidates(records, features, n_candidates, order, state, pair, p):
    """Choose up to ``n_candidates`` features that are not constant in node p; those that can be cut come first.

    The others have one known value and can only separate missing values. Extremes are corrected where values are missing.
    """
    n, d, mask = len(records), len(order), largest_code(features.bits)
    low, high, n_missing = pair.low[p], pair.high[p], pair.n_missing[p]
    n_tried, n_cut, n_drawn = 0, 0, 0
    while n_tried < n_candidates and n_drawn < d:
        if n_candidates < d:  # draw without replacement; if all are taken, the order does not matter
            pick = n_drawn + np.int64(next_uniform(state) * (d - n_drawn))
            order[n_drawn], order[pick] = order[pick], order[n_drawn]
        j = order[n_drawn]
        n_drawn += 1
        n_missing[j] = 0
        if features.has_missing[j]:
            k, shift = word_of(j, features.bits)
            low[j], high[j], n_missing[j] = known_extremes(records, k, shift, mask)
        if n_missing[j] == n or (low[j] == high[j] and n_missing[j] == 0):
            continue  # constant here
        pair.cut[p, j] = high[j]
        order[n_drawn - 1] = order[n_tried]
        order[n_tried] = j
        if low[j] < high[j]:
            order[n_tried], order[n_cut] = order[n_cut], order[n_tried]
            n_cut += 1
        n_tried += 1
    for t in range(n_tried):
        pair.candidates[p, t] = order[t]
    pair.n_candidates[p], pair.n_cut[p] = n_tried, n_cut


@inlined
def best_of_cuts(records, layout, features, limits, cuts, trial, pair, p):
    """Consider the cut drawn for each candidate of node p, with missing values on either side or separated from the others."""
    n, m, bits = len(records), layout.n_outputs, features.bits
    rows, size = address_of(records), 8 * layout.n_words
    cut, n_missing, best = pair.cut[p], pair.n_missing[p], pair.best[p]
    total, weight = pair.total[p], pair.weight[p]
    for o in range(m + layout.weighted):
        sums_up_to(rows, n, size, bits, layout.first_output + o, cut, cuts.sums[o], cuts.counts)
    for j in range(len(cut)):
        cuts.weights[j] = cuts.sums[m, j] if layout.weighted else np.float64(cuts.counts[j])
    score_cuts(limits.policy, cuts, total, weight)

    tie, min_leaf = tie_of(total, limits.policy), limits.min_leaf
    for t in range(pair.n_candidates[p]):
        j, has_cut = pair.candidates[p, t], t < pair.n_cut[p]
        n_left, w_left = cuts.counts[j], cuts.weights[j]
        if n_left >= min_leaf and n - n_left >= min_leaf and w_left > 0.0 and weight - w_left > 0.0:
            second = cuts.variances[j] if limits.policy else 0.0
            if best[0] == NO_SPLIT or is_better(cuts.scores[j], second, best[5], best[6], tie):
                # With one known value, the split separates missing values only.
                set_five(best, j, cut[j], 0.0, pair.thresholds[p, j] if has_cut else np.inf, 0.0)
                best[5], best[6] = cuts.scores[j], second
        if n_missing[j] > 0 and has_cut:
            mask = largest_code(bits)
            k, shift = word_of(j, bits)
            w_missing = np.float64(n_missing[j])
            if layout.weighted:
                w_missing = missing_sum(records, k, shift, mask, layout.first_output + m)
            for o in range(m):
                trial.missing[o] = missing_sum(records, k, shift, mask, layout.first_output + o)
                trial.left[o] = cuts.sums[o, j] + trial.missing[o]
            set_five(trial.split, j, cut[j], 1.0, pair.thresholds[p, j], 0.0)
            consider(trial, best, total, n_left + n_missing[j], n, w_left + w_missing, weight, limits)
            for o in range(m):
                trial.left[o] = total[o] - trial.missing[o]
            set_five(trial.split, j, mask - np.uint64(1), 0.0, np.inf, np.inf)
            consider(trial, best, total, n - n_missing[j], n, weight - w_missing, weight, limits)


@kernel
def sort_few(keys, n):
    """Sort the first n keys by insertion."""
    for i in range(1, n):
        key, at = keys[i], i
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            at -= 1
        keys[at] = key


@apart
def sort_by_code(keys, spare, n, bits, starts):
    """Sort the first n keys, which hold codes in the upper half and ascending numbers in the lower half.

    This is a stable radix sort over the bytes of the code, from the least significant on: from ``keys`` to ``spare`` and
    back, where ``starts`` (256,) holds the next position for each byte value.
    """
    if n <= ONE_BY_ONE:
        sort_few(keys, n)
        return
    for byte in range(bits // 8):
        shift = np.uint64(32 + 8 * byte)
        for b in range(len(starts)):
            starts[b] = 0
        source, target = (keys, spare) if byte % 2 == 0 else (spare, keys)
        for i in range(n):
            starts[(source[i] >> shift) & np.uint64(255)] += 1
        at = 0
        for b in range(len(starts)):
            starts[b], at = at, at + starts[b]
        for i in range(n):
            b = (source[i] >> shift) & np.uint64(255)
            target[starts[b]] = source[i]
            starts[b] += 1


@apart
def best_cut_of(records, layout, features, limits, feature, trial, total, weight, best):
    """Consider every cut between neighbouring values of a feature."""
    n, m, bits, keys = len(records), layout.n_outputs, features.bits, trial.keys
    floats, mask, low_half = records.view(np.float64), largest_code(bits), np.uint64(0xFFFFFFFF)
    values, split, left, missing = features.values, trial.split, trial.left, trial.missing
    first_output, of_weight = layout.first_output, layout.first_output + m
    start = features.value_starts[feature]
    k, shift = word_of(feature, bits)
    for i in range(n):
        keys[i] = (((records[i, k] >> shift) & mask) << np.uint64(32)) | np.uint64(i)
    sort_by_code(keys, trial.spare_keys, n, bits, trial.starts)
    n_missing, w_missing = 0, np.float64(0.0)
    for o in range(m):
        left[o], missing[o] = 0.0, 0.0
    while n_missing < n and keys[n - 1 - n_missing] >> np.uint64(32) == mask:
        row = np.int64(keys[n - 1 - n_missing] & low_half)
        w_missing += floats[row, of_weight] if layout.weighted else 1.0
        for o in range(m):
            missing[o] += floats[row, first_output + o]
        n_missing += 1
    w_left, n_known = 0.0, n - n_missing
    for at in range(n_known):
        row = np.int64(keys[at] & low_half)
        w_left += floats[row, of_weight] if layout.weighted else 1.0
        for o in range(m):
            left[o] += floats[row, first_output + o]
        code = np.int64(keys[at] >> np.uint64(32))
        if at + 1 == n_known:
            if n_missing > 0:
                set_five(split, feature, code, 0.0, np.inf, np.inf)
                consider(trial, best, total, n_known, n, w_left, weight, limits)
            break
        following = np.int64(keys[at + 1] >> np.uint64(32))
        if following == code:
            continue
        below, above = values[start + code], values[start + following]
        threshold = below + (above - below) / 2
        if not (below <= threshold < above):
            threshold = below
        set_five(split, feature, code, 0.0, threshold, above)
        consider(trial, best, total, at + 1, n, w_left, weight, limits)
        if n_missing > 0:
            split[2] = 1.0
            for o in range(m):
                left[o] += missing[o]
            consider(trial, best, total, at + 1 + n_missing, n, w_left + w_missing, weight, limits)
            for o in range(m):
                left[o] -= missing[o]


@inlined
def best_of_all_cuts(records, layout, features, limits, order, state, trial, pair, p):
    """Consider every cut of up to ``n_candidates`` features that are not constant in node p."""
    d, mask = len(order), largest_code(features.bits)
    n_tried, n_drawn = 0, 0
    while n_tried < limits.n_candidates and n_drawn < d:
        if limits.n_candidates < d:
            pick = n_drawn + np.int64(next_uniform(state) * (d - n_drawn))
            order[n_drawn], order[pick] = order[pick], order[n_drawn]
        j = order[n_drawn]
        n_drawn += 1
        k, shift = word_of(j, features.bits)
        low, high, n_missing = known_extremes(records, k, shift, mask)
        if n_missing == len(records) or (low == high and n_missing == 0):
            continue
        n_tried += 1
        best_cut_of(records, layout, features, limits, j, trial, pair.total[p], pair.weight[p], pair.best[p])
