r"""Exact line searches that lower the gap-weighted loss itself.

Along a line of weights, :math:`\theta + t \delta`, each row's scores are lines in t, and its decision is their upper
envelope: it changes at no more than A - 1 points. Between neighbouring points of all rows the loss is constant, so
sorting the points solves the problem on the line exactly, in O(m A log(m A)). Machine translation tunes the weights of its
models this way [1]_; with two actions and coordinate directions it is a known method for the 0/1 loss of linear
classifiers [2]_.

.. [1] F. J. Och, "Minimum error rate training in statistical machine translation", ACL 2003, Section 5.
.. [2] T. Nguyen, S. Sanner, "Algorithms for direct 0-1 loss optimization in binary classification", ICML 2013.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from capi._utils.validation import Floats
from capi.features.tables import Table
from capi.policy_spaces.linear import _kernels

TIE = 1e-12  # losses that differ by less than this share of the total gap count as equal
SMALL, PATIENCE = 1e-3, 300  # stop after PATIENCE searches in rounds that each gain less than the share SMALL
MOST_WORK = 3e7  # rows times actions times line searches
MOST_SEARCHES = 3000


class Place(NamedTuple):
    """The current point of a search."""

    weights: Floats  # (A, p)
    scores: Floats  # (m, A)
    loss: float


@dataclass(frozen=True, eq=False)
class LineSearch:
    """The gap-weighted loss of linear scores, as a function of their weights (A, p)."""

    table: Table  # (m, p)
    lost: Floats  # (m, A) infinite where an action is not allowed; the row maxima sum to one
    fixed: tuple[int, ...] = ()  # columns whose weights are not changed

    def scores(self, weights: Floats) -> Floats:
        """Return the scores of all rows (m, A)."""
        return np.ascontiguousarray(self.table @ weights.T)

    def best_step(self, scores: Floats, slopes: Floats, loss: float) -> float:
        """Return the t with the least loss of ``scores + t slopes`` (m, A); zero if no loss is below ``loss``.

        It is the middle of the widest interval with that loss.
        """
        room = len(scores) * (scores.shape[1] - 1)
        places, changes = np.empty(room), np.empty(room)
        count, at_start = _kernels.turning_points(scores, slopes, self.lost, places, changes)
        if not count:
            return 0.0
        order = np.argsort(places[:count])
        least, start, end = _kernels.best_stretch(places, changes, order, at_start, TIE)
        return float(start + (end - start) / 2) if least < loss - TIE else 0.0

    def start(self, weights: Floats) -> Place:
        """Return the point of the search at ``weights`` (A, p)."""
        scores = self.scores(weights)
        return Place(weights, scores, float(_kernels.decided_loss(scores, self.lost)))

    def polished(self, place: Place, rng: np.random.Generator) -> Place:
        """Return a point that loses no more than ``place``, after moving to the best point of each line tried."""
        left, in_vain = int(min(MOST_SEARCHES, max(1.0, MOST_WORK / self.lost.size))), 0
        while left > 0 and in_vain < PATIENCE and place.loss > TIE:
            before, directions = place.loss, list(islice(self._directions(place.weights.shape, rng), left))
            for direction in directions:
                place = self._moved(place, direction)
            left -= len(directions)
            in_vain = in_vain + len(directions) if before - place.loss <= SMALL * before else 0
        return place

    def _moved(self, place: Place, direction: Floats) -> Place:
        """Return the best point on the line, if its actual decisions lose less."""
        step = self.best_step(place.scores, self.scores(direction), place.loss)
        if step == 0.0 or not np.isfinite(step):
            return place
        moved = self.start(place.weights + step * direction)
        return moved if moved.loss < place.loss - TIE else place

    def _directions(self, shape: tuple[int, ...], rng: np.random.Generator) -> Iterator[Floats]:
        """Yield, in random order, every coordinate and as many random directions."""
        n_actions, p = shape
        moving = range(1, 2) if n_actions == 2 else range(n_actions)  # with two actions only the difference matters
        coordinates = [(a, j) for a in moving for j in range(p) if j not in self.fixed]
        sizes = _column_sizes(self.table)
        for i in rng.permutation(2 * len(coordinates)):
            direction = np.zeros(shape)
            if i < len(coordinates):
                direction[coordinates[i]] = 1.0
            else:
                direction[:] = rng.normal(size=shape) / sizes
                direction[:, self.fixed] = 0.0
            yield direction


def _column_sizes(table: Table) -> Floats:
    """Return the largest absolute value in each column (p,), one for columns of zeros."""
    sizes = abs(table).max(axis=0)
    sizes = sizes if isinstance(sizes, np.ndarray) else sizes.toarray().ravel()
    return np.where(sizes > 0, sizes, 1.0)
