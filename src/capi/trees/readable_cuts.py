"""Cut points, rounded so that they can be read and do not give away the values on either side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from capi.trees.forest import Tree

INSIDE = 0.4  # largest distance from the middle of the interval, as a share of its width


def readable_cut(below: float, above: float) -> float:
    """Return a cut with below < cut < above: the number with the fewest digits, well inside the interval.

    Examples
    --------
    >>> readable_cut(36.6, 36.7), readable_cut(11.0, 12.0), readable_cut(63.4127, 64.9)
    (36.65, 11.5, 64.0)
    """
    middle = below + (above - below) / 2
    for digits in range(1, 17):
        rounded = float(f"{middle:.{digits}g}")
        if abs(rounded - middle) <= INSIDE * (above - below) and below < rounded < above:
            return rounded
    return below  # no number lies between them, or their distance overflows


def with_readable_cuts(tree: Tree) -> Tree:
    """Return the tree with each threshold rounded as far as possible without moving any state."""
    nodes = tree.nodes.copy()
    for i in np.flatnonzero((nodes["left"] >= 0) & np.isfinite(nodes["threshold"])):
        middle, above = float(nodes["threshold"][i]), float(tree.above[i])
        below = middle - (above - middle)
        between = np.nextafter(middle, np.inf) < above and np.isfinite(below)  # otherwise the cut is the value below it
        nodes["threshold"][i] = readable_cut(below, above) if between else middle
    return replace(tree, nodes=nodes)
