"""Kernels of linear policies: the convex surrogate, and the points on a line of weights where decisions change.

Shapes: m rows, A actions. ``lost`` (m, A) is the loss of each action in each row; infinite where it is not allowed.
"""

import numpy as np

from capi._utils.compile import compiled

HINGE, LOGISTIC, EXPONENTIAL = range(3)
ROUNDED = 0.1  # width of the part of the hinge that is a parabola
STEEPEST = 30.0  # for margins below minus this the exponential continues as a line, to prevent overflow


@compiled
def surrogate(kind, margin):
    """Return the loss of a margin and its slope."""
    if kind == HINGE:
        below = 1.0 - margin
        if below <= 0.0:
            return 0.0, 0.0
        if below < ROUNDED:
            return below * below / (2.0 * ROUNDED), -below / ROUNDED
        return below - ROUNDED / 2.0, -1.0
    if kind == LOGISTIC:
        small = np.exp(-abs(margin))
        value = np.log1p(small) + max(-margin, 0.0)
        return value, -(small if margin > 0.0 else 1.0) / (1.0 + small)
    if margin >= -STEEPEST:
        value = np.exp(-margin)
        return value, -value
    steepest = np.exp(STEEPEST)
    return steepest * (1.0 - STEEPEST - margin), -steepest


@compiled
def surrogate_sum(kind, scores, lost, slopes):
    """Return the sum, over rows and pairs of allowed actions, of their difference in loss times the surrogate of their margin.

    The margin of a pair is the score (m, A) of the better action minus that of the other. The derivatives with respect to
    the scores are written to ``slopes`` (m, A).
    """
    total = 0.0
    m, n_actions = scores.shape
    slopes[:] = 0.0
    for i in range(m):
        for a in range(n_actions):
            for b in range(n_actions):
                if lost[i, a] < lost[i, b] < np.inf:
                    more = lost[i, b] - lost[i, a]
                    value, slope = surrogate(kind, scores[i, a] - scores[i, b])
                    total += more * value
                    slopes[i, a] += more * slope
                    slopes[i, b] -= more * slope
    return total


@compiled
def first_on_line(scores, slopes, lost, i):
    """Return the allowed action of row ``i`` with the largest ``scores + t slopes`` (m, A) as t goes to minus infinity."""
    first = -1
    for a in range(scores.shape[1]):
        if lost[i, a] == np.inf:
            continue
        steeper = first < 0 or slopes[i, a] < slopes[i, first]
        if steeper or (slopes[i, a] == slopes[i, first] and scores[i, a] > scores[i, first]):
            first = a
    return first


@compiled
def next_on_line(scores, slopes, lost, i, action):
    """Return which action overtakes ``action`` next as t grows, and where; -1 if none does.

    If several overtake at the same point, the steepest stays ahead; among equally steep ones, the first.
    """
    following, place = -1, np.inf
    for b in range(scores.shape[1]):
        if lost[i, b] == np.inf or slopes[i, b] <= slopes[i, action]:
            continue
        t = (scores[i, action] - scores[i, b]) / (slopes[i, b] - slopes[i, action])
        if t < place or (following >= 0 and t == place and slopes[i, b] > slopes[i, following]):
            following, place = b, t
    return following, place


@compiled
def turning_points(scores, slopes, lost, places, changes):
    """Write the real t at which the decisions of ``scores + t slopes`` (m, A) change the loss, and by how much.

    A row's decision is the upper envelope of A lines, which has at most A - 1 corners. ``places`` and ``changes``
    (m (A - 1),) are filled from the front, unsorted. Return their number, and the loss at t = minus infinity.
    """
    count, total = 0, 0.0
    for i in range(len(scores)):  # indexed by row: slices of rows would take ten times as long
        action = first_on_line(scores, slopes, lost, i)
        total += lost[i, action]
        following, place = next_on_line(scores, slopes, lost, i, action)
        while following >= 0:
            change = lost[i, following] - lost[i, action]
            if place == -np.inf:  # the slopes are almost equal
                total += change
            elif change != 0.0:
                places[count], changes[count] = place, change
                count += 1
            action = following
            following, place = next_on_line(scores, slopes, lost, i, action)
    return count, total


@compiled
def best_stretch(places, changes, order, at_start, tie):
    """Return the least loss between two turning points, and the widest interval whose loss is within ``tie`` of it.

    ``order`` (c,) sorts ``places``; ``at_start`` is the loss before the first of them. The search range extends slightly
    past the outermost points.
    """
    count = len(order)
    first, last = places[order[0]], places[order[count - 1]]
    margin = 0.1 * (last - first) if last > first else max(abs(first), 1.0)
    least, loss, left = np.inf, at_start, first - margin
    for k in range(count + 1):
        right = places[order[k]] if k < count else last + margin
        if right > left:
            least = min(least, loss)
        loss, left = loss + (changes[order[k]] if k < count else 0.0), right
    widest, start, end = 0.0, first, first
    loss, left = at_start, first - margin
    for k in range(count + 1):
        right = places[order[k]] if k < count else last + margin
        if loss <= least + tie and right - left > widest:
            widest, start, end = right - left, left, right
        loss, left = loss + (changes[order[k]] if k < count else 0.0), right
    return least, start, end


@compiled
def decided_loss(scores, lost):
    """Return the total loss of the allowed actions with the largest scores (m, A); ties go to the lowest action."""
    total = 0.0
    for i in range(len(scores)):
        best = -1
        for a in range(scores.shape[1]):
            if lost[i, a] < np.inf and (best < 0 or scores[i, a] > scores[i, best]):
                best = a
        total += lost[i, best]
    return total
