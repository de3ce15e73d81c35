r"""Theorems 1 and 2 as numbers: every term by name, every constant free.

Theorem 1 bounds the loss of one improvement. With the repaired lemma of `capi.theory.distortion`, the star-hull form of Theorem 3.3 of Bartlett, Bousquet and Mendelson
(2005), b the largest gap, B the scale of :math:`r^*` and :math:`z = \ln(3 / \delta)`, with probability :math:`1 - \delta`,

.. math::
    L(\hat\pi) \le{}& u\,w\,(1 + \kappa) \inf_\Pi L + \frac{K c_r}{B} r^* + u \frac{2 t}{t - 2}\, e\, (1 + \chi) P(g \le t e) \\
    &+ \frac zn \Bigl[c_b b + c_B B K + u\,w\,\bigl(\tfrac1{2\kappa} + \tfrac23\bigr) b + u \frac{2 t}{t - 2}\, e\, \bigl(\tfrac1{2\chi} + \tfrac23\bigr)\Bigr],
    \quad u = \tfrac{K}{K - 1},\; w = \tfrac{t + 2}{t - 2},

with :math:`c_r = 4 (1 + \alpha)^2 (1 + \beta)`, :math:`c_B = 2 (1 + 1/\beta)`, :math:`c_b = 2 (\tfrac13 + \tfrac1\alpha)`. The paper's constants are K = 2, t = 4, :math:`\kappa = 1`,
which give its factor 12, and 704, 26 and 11 for the last three. ``docs/theory.md`` has the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from capi._utils.parameters import Constraint, Constraints, check_parameters, satisfying, strictly_between
from capi._utils.validation import Floats, as_floats, as_int, as_not_negative, as_positive, is_real
from capi.theory.futures import Concentrability
from capi.theory.gaps import GapRegularity
from capi.theory.propagating import EXPONENTS

N_EVENTS = 3  # concentration of the learned policy, of the best one, and of the mass of small gaps


def _above(low: float) -> Constraint:
    return satisfying(lambda value: is_real(value) and low < value < math.inf, f"be a number above {low:g}")


@dataclass(frozen=True)
class Constants:
    """The free constants of the bounds; any values give a valid bound.

    They must not be chosen by looking at the sample that the bound is about.

    Parameters
    ----------
    K : float above 1
        Large values bring the factor of the approximation error near 1, at the price of the other terms.
    t : float above 2
        Gaps up to t times the evaluation error count as small.
    kappa, chi : float above 0
        Of Bernstein's inequality for the best policy, and for the mass of small gaps.
    alpha, beta : float above 0
        Of the concentration inequality behind the local averages.
    star_hull : bool
        Whether r* is that of the star hull; otherwise the published 704, 26 and 11 are used, which hold for any sub-root function.
    """

    K: float = 2.0
    t: float = 4.0
    kappa: float = 1.0
    chi: float = 0.5
    alpha: float = 0.2
    beta: float = 1.0
    star_hull: bool = True

    _constraints: ClassVar[Constraints] = {
        "K": _above(1.0),
        "t": _above(2.0),
        "kappa": _above(0.0),
        "chi": _above(0.0),
        "alpha": _above(0.0),
        "beta": _above(0.0),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def of_radius(self) -> float:
        """c_r, the factor of K r* / B."""
        return 4 * (1 + self.alpha) ** 2 * (1 + self.beta) if self.star_hull else 704.0

    @property
    def of_scale(self) -> float:
        """c_B, the factor of B K z / n."""
        return 2 * (1 + 1 / self.beta) if self.star_hull else 26.0

    @property
    def of_range(self) -> float:
        """c_b, the factor of b z / n."""
        return 2 * (1 / 3 + 1 / self.alpha) if self.star_hull else 11.0

    @property
    def of_sample(self) -> float:
        """K / (K - 1), the factor of the empirical loss."""
        return self.K / (self.K - 1)

    @property
    def of_approximation(self) -> float:
        """The factor of the least loss in the space: the paper's 12."""
        return self.of_sample * (self.t + 2) / (self.t - 2) * (1 + self.kappa)

    @property
    def of_evaluation(self) -> float:
        """The factor of e P_n(g <= t e)."""
        return self.of_sample * 2 * self.t / (self.t - 2)


@dataclass(frozen=True)
class ImprovementBound:
    """A bound on the loss of one improvement, in reward units: the sum of its terms.

    Parameters
    ----------
    approximation : float
        From the policy space: its least loss, times a factor.
    estimation : float
        From the sample: the fixed point r*.
    evaluation : float
        From errors of the action values where gaps are small.
    deviation : float
        From chance: what the confidence costs.
    delta : float
        The probability with which the bound may fail.
    worst : float
        The largest gap: a bound above it says nothing.
    constants : Constants
    """

    approximation: float
    estimation: float
    evaluation: float
    deviation: float
    delta: float
    worst: float
    constants: Constants = field(repr=False)

    @property
    def total(self) -> float:
        """The bound."""
        return self.approximation + self.estimation + self.evaluation + self.deviation

    @property
    def is_vacuous(self) -> bool:
        """Whether no policy could break the bound."""
        return self.total >= self.worst

    @property
    def terms(self) -> dict[str, float]:
        """The terms by name."""
        return {name: getattr(self, name) for name in ("approximation", "estimation", "evaluation", "deviation")}


@dataclass(frozen=True)
class PerformanceBound:
    """A bound on the loss of the policy after K rounds, in reward units (Theorem 2).

    Parameters
    ----------
    total : float
        The bound.
    propagated : float
        The part from the errors of the rounds.
    start : float
        The part from the first policy.
    round_bound : ImprovementBound
        The bound on the loss of a round, with errors of earlier rounds discounted.
    s : float
        The exponent at which the bound is least.
    coefficient : float
        C(K, s).
    worst : float
        2 Rmax / (1 - discount): a bound above it says nothing.
    """

    total: float
    propagated: float
    start: float
    round_bound: ImprovementBound
    s: float
    coefficient: float
    worst: float

    @property
    def is_vacuous(self) -> bool:
        """Whether no policy could break the bound."""
        return self.total >= self.worst


def improvement_bound(
    radius: float,
    scale: float,
    n: int,
    delta: float,
    *,
    approximation: float = 0.0,
    error: float = 0.0,
    regularity: GapRegularity | None = None,
    by_envelope: bool = False,
    largest_gap: float | None = None,
    constants: Constants | None = None,
    tune: bool = False,
) -> ImprovementBound:
    r"""Return Theorem 1 with all its terms: a bound on the loss of the policy that minimises the loss on a sample.

    Parameters
    ----------
    radius, scale : float
        The fixed point r* and the scale B that it belongs to, as in `FixedPoint`.
    n : int
        Sample size.
    delta : float in (0, 1)
        The bound holds with probability 1 - delta.
    approximation : float
        The least loss in the space.
    error : float
        The largest error of the action values, over all states that may be sampled.
    regularity : GapRegularity, optional
        The distribution of the gap, needed if there is an error. By default gaps are as small as can be.
    by_envelope : bool
        Whether the mass of small gaps is bounded by the envelope c_g e^zeta, as the paper does, instead of taken as it is.
    largest_gap : float, optional
        b; by default ``scale``.
    constants : Constants, optional
    tune : bool
        Whether to search for the constants with the least bound.

    Examples
    --------
    >>> found = improvement_bound(0.00511, 1.9543, 2000, 0.05)
    >>> round(found.total, 3), found.is_vacuous
    (0.163, False)
    >>> improvement_bound(0.00511, 1.9543, 2000, 0.05, tune=True).total < found.total
    True
    """
    r, B = as_not_negative(radius, "radius"), as_positive(scale, "scale")
    b = B if largest_gap is None else as_not_negative(largest_gap, "largest_gap")
    n, z = as_int(n, "n", minimum=1), _confidence(delta, N_EVENTS)
    least, e = as_not_negative(approximation, "approximation"), as_not_negative(error, "error")

    def bound(chosen: Constants) -> ImprovementBound:
        return _bound(chosen, r, B, b, n, z, least, e, _small_gaps(regularity, by_envelope), delta)

    given = constants or Constants()
    return bound(_tuned(lambda chosen: bound(chosen).total, given) if tune else given)


def performance_bound(
    futures: Concentrability,
    radius: float,
    scale: float,
    n: int,
    delta: float,
    *,
    reward_bound: float,
    greedy_error: float = 0.0,
    errors: ArrayLike = (0.0,),
    regularity: GapRegularity | None = None,
    by_envelope: bool = False,
    largest_gap: float | None = None,
    constants: Constants | None = None,
    tune: bool = False,
) -> PerformanceBound:
    r"""Return Theorem 2 with all its terms: a bound on the loss of the policy after K rounds.

    Parameters
    ----------
    futures : Concentrability
        The concentrability for K rounds; their number is that of its sums.
    radius, scale : float
        The largest fixed point r* over all policies that may be improved, and its scale B.
    n : int
        Sample size of each round; samples of different rounds must be independent.
    delta : float in (0, 1)
        The bound holds with probability 1 - delta.
    reward_bound : float
        The largest absolute reward, Rmax.
    greedy_error : float
        d(Pi), as from `greedy_error`.
    errors : array of shape (K,) or (1,)
        The largest error of the action values in each round.
    regularity : GapRegularity, optional
        Distribution of the gap of all policies of the space, needed if there are errors.
    by_envelope : bool
        Whether the mass of small gaps is bounded by the envelope c_g e^zeta, as the paper does, instead of taken as it is.
    largest_gap : float, optional
        b; by default ``scale``.
    constants : Constants, optional
    tune : bool
        Whether to search for the constants with the least bound.

    Examples
    --------
    >>> futures = Concentrability(np.array([100.0, 90.0]), 0.0, discount=0.9)
    >>> found = performance_bound(futures, 0.0, 1.0, 10**6, 0.05, reward_bound=1.0, greedy_error=0.001)
    >>> round(found.total, 2), found.s
    (18.39, 0.0)
    """
    K, discount = len(futures.sums), futures.discount
    size, r, B = as_int(n, "n", minimum=1), as_not_negative(radius, "radius"), as_positive(scale, "scale")
    b = B if largest_gap is None else as_not_negative(largest_gap, "largest_gap")
    z, worst = _confidence(delta, N_EVENTS * K), 2 * as_not_negative(reward_bound, "reward_bound") / (1 - discount)
    d = as_not_negative(greedy_error, "greedy_error")
    found: Floats = np.broadcast_to(as_floats(errors, "errors", ndim=1), (K,))
    coefficients = np.array([futures.coefficient(K, s) for s in EXPONENTS])
    ages = np.arange(K)[::-1]
    start, small = discount**K * worst, _small_gaps(regularity, by_envelope)

    def at(chosen: Constants) -> tuple[float, int, ImprovementBound]:
        """Return the least propagated loss over s, the index of that s, and the bound of a round there."""
        parts = [_bound(chosen, r, B, b, size, z, d, float(e), small, delta) for e in np.unique(found)]
        by_error = dict(zip(np.unique(found).tolist(), parts, strict=True))
        each = np.array([by_error[e].evaluation + _error_deviation(chosen, float(e), z, size) for e in found.tolist()])
        plain = by_error[float(found[0])]
        rest = (
            plain.approximation
            + plain.estimation
            + plain.deviation
            - _error_deviation(chosen, float(found[0]), z, size)
        )
        worst_round = (discount ** (ages[None, :] * EXPONENTS[:, None]) * each[None, :]).max(axis=1)
        totals = 2 / (1 - discount) * coefficients * (rest + worst_round)
        i = int(np.argmin(totals))
        return (
            float(totals[i]),
            i,
            replace(plain, evaluation=float(worst_round[i]), deviation=rest - plain.approximation - plain.estimation),
        )

    given = constants or Constants()
    propagated, i, of_round = at(_tuned(lambda chosen: at(chosen)[0], given) if tune else given)
    return PerformanceBound(
        propagated + start, propagated, start, of_round, float(EXPONENTS[i]), float(coefficients[i]), worst
    )


def _bound(
    chosen: Constants,
    radius: float,
    scale: float,
    largest: float,
    n: int,
    z: float,
    least: float,
    error: float,
    small_gaps: Callable[[float], float],
    delta: float,
) -> ImprovementBound:
    small = small_gaps(chosen.t * error)
    deviation = chosen.of_range * largest + chosen.of_scale * scale * chosen.K
    deviation += chosen.of_approximation / (1 + chosen.kappa) * (1 / (2 * chosen.kappa) + 2 / 3) * largest
    return ImprovementBound(
        chosen.of_approximation * least,
        chosen.K * chosen.of_radius / scale * radius,
        chosen.of_evaluation * error * min((1 + chosen.chi) * small, 1.0),
        deviation * z / n + _error_deviation(chosen, error, z, n),
        delta,
        largest,
        chosen,
    )


def _small_gaps(regularity: GapRegularity | None, by_envelope: bool) -> Callable[[float], float]:
    """Return the mass of gaps up to a given one as a function; without knowledge of the gaps it is 1."""
    if regularity is None:
        return lambda gap: 1.0  # noqa: ARG005
    return regularity.envelope if by_envelope else regularity.mass_up_to


def _error_deviation(chosen: Constants, error: float, z: float, n: int) -> float:
    """Return what chance adds because the mass of small gaps is that of a sample."""
    return chosen.of_evaluation * error * (1 / (2 * chosen.chi) + 2 / 3) * z / n


def _confidence(delta: float, n_events: int) -> float:
    """Return z, for events that each fail with probability delta / n_events."""
    strictly_between(0, 1)(delta, "delta")
    return math.log(n_events / delta)


def _tuned(total: Callable[[Constants], float], start: Constants) -> Constants:
    """Return the constants with the least bound that a simplex search finds from ``start``."""

    def constants(x: Floats) -> Constants:
        grown = np.exp(np.clip(x, -12, 12)).tolist()
        return replace(
            start, K=1 + grown[0], t=2 + grown[1], kappa=grown[2], chi=grown[3], alpha=grown[4], beta=grown[5]
        )

    first = np.log([start.K - 1, start.t - 2, start.kappa, start.chi, start.alpha, start.beta])
    options = {"maxiter": 4000, "maxfev": 4000, "xatol": 1e-6, "fatol": 1e-12, "adaptive": True}
    found = minimize(lambda x: math.log(max(total(constants(x)), 1e-300)), first, method="Nelder-Mead", options=options)
    best = constants(found.x)
    return best if total(best) < total(start) else start
