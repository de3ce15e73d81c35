r"""How far means over a sample may be from what they estimate, for one policy and for all policies of a space at once.

The units are independent and identically distributed: rows, or episodes with the mean loss of their rows. Losses lie in [0, b].

One policy: the empirical Bernstein inequality (Maurer and Pontil 2009). All policies: for every K > 1, with probability at least :math:`1 - 3 e^{-x}` each,

.. math:: P f \le \tfrac{K}{K - 1} P_n f + d \quad\text{and}\quad P f \ge \tfrac{K}{K + 1} (P_n f - d) \quad\text{for all } f,

where d comes from a fixed point that can be computed from the sample: :math:`\hat r = 20 b\, E_\sigma R_n\{P_n f^2 \le 2 \hat r\} + 31 b^2 x / n`, which is above the one of
:math:`10 b\, E R_n\{P f^2 \le r\} + 11 b^2 x / n` (Bartlett, Bousquet and Mendelson 2005, Corollary 2.2 and Lemma A.4). With that one the argument behind `capi.theory.bounds` gives
:math:`d = K c_r \hat r / (100 b) + (c_b b + c_B b K) x / n`. Without localisation, :math:`P f \ge P_n f - 2 E_\sigma R_n - 3 b \sqrt{\ln(2/\delta) / (2 n)}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from capi._utils.validation import Floats
from capi.theory._fronts import StarHulls
from capi.theory.bounds import Constants

CONSTANTS = Constants(
    K=4.0, alpha=0.3, beta=0.7
)  # 0.2 K (1 + alpha) >= 1, so the radius of the argument is at least the fixed point


def bernstein_bound(losses: Floats, largest: float, delta: float) -> float:
    """Return an upper bound on the mean of independent losses (n,) in [0, largest], which holds with probability 1 - delta."""
    n = len(losses)
    if n < 2:
        return largest
    z = math.log(2 / delta)
    spread = math.sqrt(2 * float(np.var(losses, ddof=1)) * z / n)
    return min(float(np.mean(losses)) + spread + 7 * largest * z / (3 * (n - 1)), largest)


@dataclass(frozen=True, eq=False)
class Complexity:
    """The averages of a space over random signs of n units, as an upper bound that holds with probability 1 - ``delta``."""

    n: int
    largest: float  # b
    hulls: StarHulls | None  # of draws of signs
    log_size: float  # logarithm of the number of different decisions on the sample
    root_mean_square: float  # of the largest loss of each unit
    delta: float

    @property
    def slack(self) -> float:
        """What a finite number of draws may hide: by bounded differences, over all signs of all draws."""
        if self.hulls is None:
            return 0.0
        return self.largest * math.sqrt(2 * math.log(1 / self.delta) / (self.n * len(self.hulls.sums)))

    @property
    def overall(self) -> float:
        """The average of the supremum over all policies."""
        if self.hulls is None:
            return self.root_mean_square * math.sqrt(2 * self.log_size / self.n)
        return float(self.hulls.sums.max(axis=1).mean()) + self.slack

    def local(self, radius: float) -> float:
        """Return the average of the supremum over the star hull at mean squares up to ``radius``, never above `overall`."""
        if self.hulls is None:
            size = math.sqrt(2 * (self.log_size + math.log1p(math.exp(-self.log_size))) / self.n)
            return min(math.sqrt(radius) * size, self.overall)
        return float(self.hulls.at(radius).mean()) + self.slack


def least_mean(least: float, complexity: Complexity, delta: float) -> float:
    """Return a lower bound on the least mean loss in a space, from its least loss on the sample; it holds with probability 1 - delta."""
    b, n = complexity.largest, complexity.n
    if b == 0:
        return 0.0
    rest = delta - complexity.delta
    overall = least - 2 * complexity.overall - 3 * b * math.sqrt(math.log(4 / rest) / (2 * n))
    x = math.log(6 / rest)  # half of the probability for each of the two bounds
    local = CONSTANTS.K / (CONSTANTS.K + 1) * (least - local_deviation(complexity, x))
    return max(overall, local, 0.0)


def local_deviation(complexity: Complexity, x: float) -> float:
    """Return d, at the confidence x."""
    b, n, c = complexity.largest, complexity.n, CONSTANTS

    def above(radius: float) -> float:
        return 20 * b * complexity.local(2 * radius) + 31 * b**2 * x / n - radius

    top = 20 * b * complexity.overall + 31 * b**2 * x / n
    radius = top if above(top) >= 0 else float(brentq(above, 31 * b**2 * x / n, top, rtol=1e-9))
    return c.K * c.of_radius / (100 * b) * radius + (c.of_range + c.of_scale * c.K) * b * x / n
