r"""Sensitivity to an unmeasured confounder: how strong it would have to be to undo the comparison with the logged behaviour.

The marginal sensitivity model (Tan 2006) with parameter :math:`\Gamma \ge 1` assumes that the odds of the logged action, given the state and
everything unmeasured, differ from the odds given the state alone by at most the factor :math:`\Gamma`, either way. With b the probability of the
logged action given the state, its importance weight then lies anywhere between

.. math:: \pi\,\bigl(1 + (1/b - 1) / \Gamma\bigr) \quad\text{and}\quad \pi\,\bigl(1 + (1/b - 1)\,\Gamma\bigr).

The lowest weighted mean with weights in such intervals is a fractional linear programme whose solution is a threshold: the lowest values get
their largest weight, and all others their smallest (Zhao, Small and Bhattacharya 2019). One sort finds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from capi._utils.validation import Floats, Ints

if TYPE_CHECKING:
    from capi.offline.log import Log
    from capi.offline.nuisances import Quantities

SHOWN = (1.0, 1.25, 1.5, 2.0, 3.0)  # values of gamma in the table
LARGEST = 20.0  # gammas above this are not told apart
PRECISION = 1e-3  # relative, of the largest gamma


@dataclass(frozen=True)
class Bounds:
    """The range of the difference from the logged behaviour that a confounder of strength ``gamma`` allows."""

    gamma: float
    low: float
    high: float
    low_interval: float  # lower end of the confidence interval of ``low``
    high_interval: float  # upper end of that of ``high``


@dataclass(frozen=True)
class Sensitivity:
    """How strong an unmeasured confounder would have to be to undo the comparison with the logged behaviour.

    Parameters
    ----------
    bounds : tuple of Bounds
        For several values of gamma. Those for gamma 1, no confounder, are the estimate and its asymptotic interval.
    largest : float or None
        The largest gamma, up to 20, at which the estimated difference keeps its sign; None if the difference is zero.
    largest_significant : float or None
        The largest gamma at which the whole interval keeps that sign; None if it does not even without a confounder.
    given : bool
        Whether the probabilities come from the log.
    """

    bounds: tuple[Bounds, ...]
    largest: float | None
    largest_significant: float | None
    given: bool

    def __str__(self) -> str:
        if self.largest is None or self.largest_significant is None:
            return "Unmeasured confounder: there is no significant difference from the logged behaviour that it could undo."
        strong = f"{self.largest:.2f}" if self.largest < LARGEST else f"more than {LARGEST:g}"
        if self.largest_significant >= LARGEST:
            text = f"the difference from the logged behaviour stays significant even if it changes the odds of the logged actions by a factor of {LARGEST:g}."
        else:
            text = (
                "the difference from the logged behaviour stays significant as long as it changes the odds of the logged actions by at most "
                f"a factor of {self.largest_significant:.2f}, and the estimate keeps its sign up to {strong}."
            )
        trial = " If the log's probabilities come from randomisation, there is none." if self.given else ""
        return f"Unmeasured confounder: {text}{trial}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "model": "marginal sensitivity model",
            "largest_gamma": self.largest,
            "largest_gamma_significant": self.largest_significant,
            "limit": LARGEST,
            "bounds": [
                {
                    "gamma": b.gamma,
                    "low": b.low,
                    "high": b.high,
                    "low_interval": b.low_interval,
                    "high_interval": b.high_interval,
                }
                for b in self.bounds
            ],
            "text": str(self),
        }


def sensitivity_of(q: Quantities, log: Log) -> Sensitivity | str:
    """Return the sensitivity of a policy's difference from the log, or the reason why there is none."""
    e = log.episodes
    if not e.one_step:
        return "it is available for one decision per episode only, not for several steps"
    if q.weights.overflows or q.weights.overlap.lost_after is not None:
        return "no logged decision agrees with the policy"
    first = e.starts
    if (log.behaviour.probability[first] <= 0).any():
        return "some logged actions have probability zero"
    rewards = log.batch.rewards[first]
    model = np.zeros(len(e)) if q.first_values is None else q.start_values
    residuals = rewards if q.first_values is None else rewards - q.taken_values[first]
    share = q.probabilities[first, log.batch.actions[first]]
    problem = _Problem(
        residuals, share, 1 / log.behaviour.probability[first] - 1, model - rewards, e.weights, log.settings.level
    )
    return problem.sensitivity(log.behaviour.given)


@dataclass(frozen=True, eq=False)
class _Problem:
    residuals: Floats  # (E,) rewards minus their fitted values
    share: Floats  # (E,) the policy's probability of the logged action
    odds: Floats  # (E,) against the logged action: 1 / b - 1
    known: Floats  # (E,) what confounding does not touch: the fitted value of the policy minus the reward
    counts: Floats  # (E,)
    level: float

    def sensitivity(self, given: bool) -> Sensitivity:
        one = self.bounds(1.0)
        if one.low == 0 or not math.isfinite(one.low):
            return Sensitivity((one,), None, None, given)
        positive = one.low > 0

        def stands(gamma: float) -> bool:
            b = self.bounds(gamma)
            return b.low > 0 if positive else b.high < 0

        def is_significant(gamma: float) -> bool:
            b = self.bounds(gamma)
            return b.low_interval > 0 if positive else b.high_interval < 0

        shown = (one, *(self.bounds(gamma) for gamma in SHOWN[1:]))
        return Sensitivity(shown, _largest(stands), _largest(is_significant), given)

    def bounds(self, gamma: float) -> Bounds:
        low, low_error = self._lowest(self.residuals, self.known, gamma, self._rising)
        high, high_error = self._lowest(-self.residuals, -self.known, gamma, self._rising[::-1])
        n = len(self.counts)
        t = float(stats.t.ppf((1 + self.level) / 2, n - 1)) if n > 1 else math.nan
        return Bounds(gamma, low, -high, low - t * low_error, -high + t * high_error)

    @cached_property
    def _rising(self) -> Ints:
        return np.argsort(self.residuals, kind="stable")

    def _lowest(self, residuals: Floats, known: Floats, gamma: float, order: Ints) -> tuple[float, float]:
        """Return the lowest difference and its standard error, from the influence function at the optimal weights."""
        weights = lowest_weights(
            residuals,
            self.share * (1 + self.odds / gamma),
            self.share * (1 + self.odds * gamma),
            self.counts,
            order,
        )
        total, n = float(self.counts.sum()), len(self.counts)
        mean_weight = float(self.counts @ weights) / total
        ratio = float((self.counts * weights) @ residuals) / (total * mean_weight)
        fixed = float(self.counts @ known) / total
        influence = self.counts * (known - fixed + weights * (residuals - ratio) / mean_weight)
        error = float(np.std(influence, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
        return fixed + ratio, error


def lowest_weights(values: Floats, low: Floats, high: Floats, counts: Floats, order: Ints) -> Floats:
    """Return weights between ``low`` and ``high`` (n,) for which the weighted mean of ``values`` (n,) is lowest.

    Row i counts ``counts[i]`` times; ``order`` (n,) sorts the values.
    """
    v, extra = values[order], (counts * (high - low))[order]
    above = np.append(0.0, np.cumsum(extra * v)) + float((counts * low) @ values)
    below = np.append(0.0, np.cumsum(extra)) + float(counts @ low)
    n_high = int(np.argmin(above / below))
    weights = low.copy()
    weights[order[:n_high]] = high[order[:n_high]]
    return weights


def _largest(holds: Callable[[float], bool]) -> float | None:
    """Return the largest gamma in [1, `LARGEST`] at which ``holds``, by bisection; None if it does not hold at 1."""
    if not holds(1.0):
        return None
    if holds(LARGEST):
        return LARGEST
    low, high = 0.0, math.log(LARGEST)
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(math.exp(middle)) else (low, middle)
    return math.exp(low)
