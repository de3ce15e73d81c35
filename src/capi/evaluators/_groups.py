r"""A rough solution of an averager's equations, on groups of similar points, which preconditions the exact one.

Values vary little among points whose leaves are close, so most of :math:`(I - B)^{-1} r` is found by replacing r by its averages in
some hundreds of groups, and B by the flows :math:`\bar B` between the groups. The rough solution is
:math:`r + E\,((I - \bar B)^{-1} - I)\,A\,r`, where A averages within groups and E repeats the averages. The sums of the rows of
:math:`\bar B` are at most the discount, so the inverse always exists (Bertsekas and Castanon 1989 have such groups in value iteration).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capi._utils.threads import one_blas_thread
from capi._utils.validation import Floats
from capi.trees._kernels import leaf_tables
from capi.trees.cells import Cells
from capi.trees.leaf_products import LeafProducts

MOST_GROUPS = 1000
POINTS_OF_GROUP = 64  # at least, on average
FEWEST_GROUPS = 8
ROWS_OF_LOOK_UP = 8  # at most, when flows between groups are estimated


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of points, and what solving between them adds to a right-hand side."""

    group: NDArray[np.int32]  # (n,) of each point
    sizes: Floats  # (k,)
    change: Floats  # (k, k) the inverse less the identity

    @classmethod
    def of(cls, products: LeafProducts, cells: Cells, weights: Floats, steps: Floats) -> Groups | None:
        """Return groups of the points, of which there are as many as rows; None if there are too few points.

        Row j has weight ``weights[j]`` (n,), of which ``steps[j]`` (n,) flows on.
        """
        n = products.n_points
        parts = [part for forest in products.forests for part in forest.asked]
        wanted = min(MOST_GROUPS, n // POINTS_OF_GROUP)
        if wanted < FEWEST_GROUPS or not parts:
            return None
        group, k = np.zeros(n, dtype=np.int32), 1  # points that look up nothing are in a group of their own
        asked = sum(len(part.points) for part in parts)
        for part in parts:
            m = len(part.points)
            of_part = max(1, wanted * m // asked)
            group[part.points] = k + np.arange(m) * of_part // m
            k += of_part
        flows, own = np.zeros((k, k)), np.array(weights)  # writable: another type would be compiled again
        for part in parts:
            given = part.points, part.leaves, part.starts, part.shares, cells.members, cells.first, cells.end
            leaf_tables.flows_of_groups(group, *given, own, steps, ROWS_OF_LOOK_UP, flows)
        sizes = np.maximum(1.0, np.bincount(group, minlength=k))
        flows /= sizes[:, None]
        with one_blas_thread():
            return cls(group, sizes, np.linalg.inv(np.eye(k) - flows) - np.eye(k))

    def ahead(self, r: Floats) -> Floats:
        """Return roughly the x (n,) with :math:`x = r + Bx`."""
        return self._added(self.change @ (self._sums(r) / self.sizes), r)

    def back(self, r: Floats) -> Floats:
        """Return roughly the y (n,) with :math:`y = r + B^T y`: the transpose of `ahead`."""
        return self._added((self._sums(r) @ self.change) / self.sizes, r)

    def _sums(self, r: Floats) -> Floats:
        sums = np.zeros(len(self.sizes))
        leaf_tables.sum_in_groups(self.group, r, sums)
        return sums

    def _added(self, of_groups: Floats, r: Floats) -> Floats:
        out = np.empty_like(r)
        leaf_tables.add_of_groups(self.group, of_groups, r, out)
        return out
