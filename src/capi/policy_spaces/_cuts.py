"""Cut points rounded for readability."""

from __future__ import annotations


def readable_cut(below: float, above: float) -> float:
    """Return a cut with below <= cut < above: the number with the fewest digits close to the middle.

    Examples
    --------
    >>> readable_cut(36.6, 36.7), readable_cut(11.0, 12.0)
    (36.65, 11.5)
    """
    middle = below + (above - below) / 2
    for digits in range(1, 17):
        rounded = float(f"{middle:.{digits}g}")
        if abs(rounded - middle) <= (above - below) / 20 and below <= rounded < above:
            return rounded
    return below  # no number lies between them, or their distance overflows
