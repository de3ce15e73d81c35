r"""Growth functions of policy spaces, and the radius that follows from them alone.

The growth function :math:`S_n` is the largest number of different decisions on n states. From it alone, whatever the distribution of states and
values, the fixed point :math:`r^*` of the complexity condition (4) is bounded: with b the largest gap,

.. math::
    r^* \le \Bigl(\tfrac{a + \sqrt{a^2 + 4 c}}{2}\Bigr)^2, \quad a = 20 b \sqrt{\ln(S_n + 1) / n}, \quad c = (10 + 11 \ln n)\, b^2 / n.

This replaces the paper's Proposition on :math:`r^*`, which is false at n = d, where its right side is zero.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from capi._utils.validation import as_int, as_not_negative
from capi.errors import InvalidInputError
from capi.policy_spaces import Linear, OptimalTrees, Partition, Thresholds, Trees


def log_growth(space: Any, n: int, *, n_features: int = 1, n_actions: int = 2, n_cuts: int | None = None) -> float:
    """Return the logarithm of an upper bound on the number of different decisions of a space on n states.

    Exact for `Thresholds` with two actions and one feature, 2n, and for `Linear` with two actions (Cover 1965); for the other spaces it counts
    descriptions of policies, of which several may decide alike.

    Parameters
    ----------
    space : Thresholds, Trees, OptimalTrees, Linear, or int
        A whole number stands for a partition with that many cells (`Partition`).
    n : int
        Number of states.
    n_features, n_actions : int
    n_cuts : int, optional
        Number of cuts per feature that trees and thresholds choose from; by default n - 1, between any two states.

    Examples
    --------
    >>> from capi.policy_spaces import OptimalTrees, Thresholds
    >>> round(np.exp(log_growth(Thresholds(), 2000)))
    4000
    >>> log_growth(OptimalTrees(max_depth=2), 2000, n_features=6) > log_growth(OptimalTrees(max_depth=1), 2000, n_features=6)
    True
    """
    n = as_int(n, "n", minimum=1)
    d, A = as_int(n_features, "n_features", minimum=1), as_int(n_actions, "n_actions", minimum=1)
    most = n - 1 if n_cuts is None else min(as_int(n_cuts, "n_cuts", minimum=0), n - 1)
    everything = n * math.log(A)  # no space can decide in more ways
    if isinstance(space, Thresholds):
        used = 1 if space.feature is not None else d
        return min(math.log(A + used * most * A * (A - 1)), everything)
    if isinstance(space, Trees | OptimalTrees):
        if space.max_depth is None:
            return everything
        leaves = min(2**space.max_depth, n)
        return min((leaves - 1) * math.log(max(d * most, 1)) + leaves * math.log(A), everything)
    if isinstance(space, Linear):
        return min(A * (A - 1) / 2 * _log_cover(n, d), everything)
    if isinstance(space, Integral) and not isinstance(space, bool):
        return min(as_int(space, "space", minimum=1) * math.log(A), everything)
    raise InvalidInputError(
        f"the growth function of {type(space).__name__} is not known. Use Thresholds, Trees, OptimalTrees, Linear, or the number of cells of a "
        f"{Partition.__name__}."
    )


def vc_radius(log_growth: float, n: int, scale: float) -> float:
    """Return a bound on the fixed point r* by the growth function alone.

    Parameters
    ----------
    log_growth : float
        Logarithm of the number of different decisions on n states, as from `log_growth`.
    n : int
        Number of states.
    scale : float
        The largest loss of a decision, b; with two actions the largest gap.

    Examples
    --------
    >>> round(vc_radius(np.log(4000), 2000, 1.9543), 2)
    6.69
    """
    n, b = as_int(n, "n", minimum=1), as_not_negative(scale, "scale")
    size = as_not_negative(log_growth, "log_growth")
    more = size + math.log1p(math.exp(-size))  # ln(S_n + 1)
    a, c = 20 * b * math.sqrt(more / n), (10 + 11 * math.log(n)) * b**2 / n
    return ((a + math.sqrt(a**2 + 4 * c)) / 2) ** 2


def _log_cover(n: int, d: int) -> float:
    """Return the logarithm of 2 sum_{i <= d} C(n - 1, i): the number of ways to separate n points in general position by planes."""
    return math.log(2 * sum(math.comb(n - 1, i) for i in range(min(d, n - 1) + 1)))
