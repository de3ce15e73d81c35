"""The best tree of two levels, by passes over the rows of a node in the order of each feature.

One pass compares the cuts of a second feature below up to eight first cuts, the *lanes*: vector instructions handle all lanes
at once. A row is left of a lane's cut if its ``place`` is not above the number of the lane; lanes are sorted by their cuts.

With two actions only the difference of their losses matters. Of all cuts of a feature, the best one has the least sum of
differences up to it (the second action below the cut, the first one above it), or the largest one.
"""

import numpy as np

from capi._utils.compile import apart, entry, inner_minima
from capi.trees._optimal.lanes import scan_differences, scan_losses
from capi.trees._optimal.records import LANES
from capi.trees._optimal.sums import size_of


@entry
def sort_all(codes, firsts, ends, orders, sorted_codes):
    """Write all rows in the order of each feature to ``orders`` (V, n), and their codes; ``ends`` (K + 1,) is overwritten."""
    n = len(codes)
    for v in range(codes.shape[1]):
        n_bins = firsts[v + 1] - firsts[v]
        ends[: n_bins + 1] = 0
        for i in range(n):
            ends[codes[i, v] + 1] += 1
        for b in range(n_bins):
            ends[b + 1] += ends[b]
        for i in range(n):
            code = codes[i, v]
            orders[v, ends[code]] = i
            sorted_codes[v, ends[code]] = code
            ends[code] += 1


@apart
def part(work, level, first, last, v, n_left):
    """Write the rows of both sides of a cut to the next level, in the order of each feature; the left ones come first."""
    orders, following, is_right = work.orders[level], work.orders[level + 1], work.is_right
    codes, codes_after = work.codes[level], work.codes[level + 1]
    for i in range(first, first + n_left):
        is_right[orders[v, i]] = 0
    for i in range(first + n_left, last):
        is_right[orders[v, i]] = 1
    for w in range(len(orders)):
        low, high = first, first + n_left
        for i in range(first, last):
            row = orders[w, i]
            right = np.int64(is_right[row])
            place = high if right else low
            following[w, place] = row
            codes_after[w, place] = codes[w, i]
            high += right
            low += 1 - right


@inner_minima
def least_sum(sums, total, n_actions):
    """Return the cost of the best actions for rows with these ``sums`` (C,), and for the rest of ``total`` (C,)."""
    low, high = np.inf, np.inf
    for c in range(n_actions):
        low = min(low, sums[c])
        high = min(high, total[c] - sums[c])
    return low + high


@apart
def gather(problem, work, level, first, last):
    """Copy the losses of a node's rows in the order of each feature, and find the best cut of each; return how many have cuts.

    ``first_costs`` are the costs of these cuts and ``first_bounds`` the relaxed ones, without penalties.
    """
    n_active, n_actions, total = 0, problem.n_actions, work.totals[level]
    n, least, sums = last - first, problem.min_leaf, work.sums[0, 0]
    n_all = size_of(total, n_actions, n)
    for v in range(problem.codes.shape[1]):
        rows, codes = work.orders[level, v][first:last], work.codes[level, v][first:last]
        ends, losses = work.is_end[v], work.by_feature[v]
        run, cost, relaxed, n_left = 0.0, np.inf, np.inf, 0
        for c in range(n_actions):
            sums[c] = 0.0
        for k in range(n):
            row, here = rows[k], np.inf
            end = k + 1 < n and codes[k] != codes[k + 1]
            ends[k] = end
            n_left += problem.sizes[row]
            if n_actions == 2:
                step = problem.losses[row, 1] - problem.losses[row, 0]
                losses[k, 0] = step
                run += step
                if end:
                    here = min(total[0] + run, total[1] - run)
            else:
                first_loss = problem.losses[row, 0]
                for c in range(n_actions - 1):
                    losses[k, c] = problem.losses[row, c + 1] - first_loss
                for c in range(n_actions):
                    sums[c] += problem.losses[row, c]
                if end:
                    here = least_sum(sums, total, n_actions)
            relaxed = min(relaxed, here)
            if n_left >= least and n_all - n_left >= least:
                cost = min(cost, here)
        work.first_costs[v], work.first_bounds[v] = cost, relaxed
        if relaxed < np.inf:
            work.active[n_active] = v
            n_active += 1
    return n_active


@apart
def set_places(work, rows, n, n_lanes):
    """Write the number of the first lane whose left side each row is on; ``rows`` are in the order of the feature."""
    start = 0
    for lane in range(n_lanes + 1):
        end = work.lane_ends[lane] if lane < n_lanes else n
        for i in range(start, end):
            work.place[rows[i]] = lane
        start = end


@apart
def set_lane_totals(problem, work, rows, n, n_lanes):
    """Write the sums of the rows left of each lane's cut; lanes without a cut have all rows left."""
    totals, losses, steps = work.lane_totals, problem.losses, work.lane_steps
    for c in range(problem.n_actions):
        run, start = 0.0, 0
        for lane in range(LANES):
            end = work.lane_ends[lane] if lane < n_lanes else n
            for i in range(start, end):
                run += losses[rows[i], c]
            totals[c, lane] = run
            start = end
    for c in range(problem.n_actions - 1):
        for lane in range(LANES):
            steps[c, lane] = totals[c + 1, lane] - totals[0, lane]


@apart
def cost_of_lanes(problem, work, level, first, v, n, n_lanes, n_active):
    """Write the relaxed costs of depth one of both sides of each lane's cut to ``lane_costs`` (2, lanes)."""
    n_actions, totals, whole = problem.n_actions, work.lane_totals, work.totals[level][: problem.n_actions]
    best, extremes, penalty = work.lane_costs, work.extremes, problem.penalty
    rows = work.orders[level, v][first:]
    set_places(work, rows, n, n_lanes)
    set_lane_totals(problem, work, rows, n, n_lanes)
    for lane in range(LANES):
        best[0, lane], best[1, lane] = np.inf, np.inf
        extremes[0, lane], extremes[1, lane], extremes[2, lane], extremes[3, lane] = np.inf, -np.inf, np.inf, -np.inf
    for k in range(n_active):
        w = work.active[k]
        rows, losses, ends = work.orders[level, w][first:], work.by_feature[w], work.is_end[w]
        if n_actions == 2:
            scan_differences(rows, work.place, losses, ends, n, work.masks, extremes)
        else:
            for c in range(n_actions - 1):
                work.lane_runs[0, c], work.lane_runs[1, c] = 0.0, whole[c + 1] - whole[0]
            scan_losses(
                rows, work.place, losses, ends, n, work.masks, work.lane_steps, work.lane_runs, work.lane_sums, best
            )
    for lane in range(n_lanes):
        left_leaf, right_leaf = np.inf, np.inf
        for c in range(n_actions):
            left_leaf = min(left_leaf, totals[c, lane])
            right_leaf = min(right_leaf, whole[c] - totals[c, lane])
        if n_actions == 2:
            low, high = totals[0, lane], totals[1, lane]
            best[0, lane] = min(low + extremes[0, lane], high - extremes[1, lane])
            best[1, lane] = min(whole[0] - low + extremes[2, lane], whole[1] - high - extremes[3, lane])
        else:
            best[0, lane] += totals[0, lane]
            best[1, lane] += whole[0] - totals[0, lane]
        best[0, lane] = min(best[0, lane] + 2 * penalty, left_leaf + penalty)
        best[1, lane] = min(best[1, lane] + 2 * penalty, right_leaf + penalty)


@apart
def two_sides(problem, work, level, first, v, n, n_left, n_active):
    """Return the costs of depth one left and right of a cut whose leaves have enough rows."""
    n_actions, least = problem.n_actions, problem.min_leaf
    work.lane_ends[0] = n_left
    sizes, size_left, size = problem.sizes, 0, work.totals[level, n_actions]
    rows = work.orders[level, v][first:]
    set_places(work, rows, n, 1)
    total = work.sums[1]
    for c in range(n_actions):
        total[0, c] = 0.0
        for i in range(n_left):
            total[0, c] += problem.losses[rows[i], c]
        total[1, c] = work.totals[level, c] - total[0, c]
    for i in range(n_left):
        size_left += sizes[rows[i]]
    left, right = np.inf, np.inf
    for k in range(n_active):
        w = work.active[k]
        sums, count, count_left, now_left, now_right = work.sums[0], 0, 0, np.inf, np.inf
        sums[:] = 0.0
        for i in range(n - 1):
            row = work.orders[level, w, first + i]
            side = work.place[row]
            count += sizes[row]
            count_left += (1 - side) * sizes[row]
            for c in range(n_actions):
                sums[side, c] += problem.losses[row, c]
            if not work.is_end[w, i]:
                continue
            count_right = count - count_left
            if count_left >= least and size_left - count_left >= least:
                now_left = least_sum(sums[0], total[0], n_actions)
                left = min(left, now_left)
            if count_right >= least and size - size_left - count_right >= least:
                now_right = least_sum(sums[1], total[1], n_actions)
                right = min(right, now_right)
    left_leaf, right_leaf = np.inf, np.inf
    for c in range(n_actions):
        left_leaf, right_leaf = min(left_leaf, total[0, c]), min(right_leaf, total[1, c])
    penalty = problem.penalty
    return min(left + 2 * penalty, left_leaf + penalty), min(right + 2 * penalty, right_leaf + penalty)
