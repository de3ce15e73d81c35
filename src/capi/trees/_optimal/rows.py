"""The best tree of two levels below a cut, by a pass over the rows of each feature."""

import numpy as np

from capi._utils.compile import inner, inner_minima
from capi.trees._optimal.sums import add_rows, least_of


@inner_minima
def add_and_compare(sums, losses, total, n_actions):
    """Add ``losses`` (C,) to ``sums``; return the costs of the best actions for these rows and for the rest of ``total``."""
    low, high = np.inf, np.inf
    for c in range(n_actions):
        here = sums[c] + losses[c]
        sums[c] = here
        low = min(low, here)
        high = min(high, total[c] - here)
    return low + high


@inner
def two_sides(problem, work, rows, n_left, v, t):
    """Return the costs of depth one left and right of a cut, and the relaxed ones; ``rows`` are sorted by the feature."""
    n, n_actions, counted = len(rows), problem.n_actions, problem.min_leaf > 1
    total = work.sums[1]
    total[:] = 0.0
    add_rows(problem.losses, rows[:n_left], total[0])
    add_rows(problem.losses, rows[n_left:], total[1])
    left, right = least_of(total[0], n_actions) + problem.penalty, least_of(total[1], n_actions) + problem.penalty
    cost, relaxed = (left, right), (left, right)
    for w in range(problem.codes.shape[1]):
        sums = work.sums[0]
        sums[:] = 0.0
        now_left, now_right, count_left, count_right = np.inf, np.inf, 0, 0
        by_w = work.by_feature[w][:n]
        code = problem.codes[by_w[0], w]
        for i in range(n - 1):
            row = by_w[i]
            if problem.codes[row, v] <= t:
                now_left = add_and_compare(sums[0], problem.losses[row], total[0], n_actions) + 2 * problem.penalty
                count_left += 1
            else:
                now_right = add_and_compare(sums[1], problem.losses[row], total[1], n_actions) + 2 * problem.penalty
                count_right += 1
            following = problem.codes[by_w[i + 1], w]
            if following == code:
                continue
            code = following
            relaxed = (min(relaxed[0], now_left), min(relaxed[1], now_right))
            if counted:
                least = problem.min_leaf
                good_left = count_left >= least and n_left - count_left >= least
                good_right = count_right >= least and n - n_left - count_right >= least
                cost = (
                    min(cost[0], now_left) if good_left else cost[0],
                    min(cost[1], now_right) if good_right else cost[1],
                )
    return (cost, relaxed) if counted else (relaxed, relaxed)
