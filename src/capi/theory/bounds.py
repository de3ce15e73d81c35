r"""Theorems 1 and 2 as numbers: every term by name, every constant free.

Theorem 1 bounds the loss of one improvement. With the repaired lemma of `capi.theory.distortion`, the star-hull form of Theorem 3.3 of Bartlett, Bousquet and Mendelson
(2005), b the largest gap, B the scale of :math:`r^*` and :math:`z = \ln(3 / \delta)`, with probability :math:`1 - \delta`,

.. math::
    L(\hat\pi) \le{}& u\,w\,(1 + \kappa) \inf_\Pi L + \frac{K c_r}{B} r^* + u \frac{2 t}{t - 2}\, e\, (1 + \chi) P(g \le t e) \\
    &+ u \frac{t}{t - 2}\, \eta
     + \frac zn \Bigl[c_b b + c_B B K + u\,w\,\bigl(\tfrac1{2\kappa} + \tfrac23\bigr) b + u \frac{2 t}{t - 2}\, e\, \bigl(\tfrac1{2\chi} + \tfrac23\bigr)\Bigr],
    \quad u = \tfrac{K}{K - 1},\; w = \tfrac{t + 2}{t - 2},

with :math:`c_r = 4 (1 + \alpha)^2 (1 + \beta)`, :math:`c_B = 2 (1 + 1/\beta)`, :math:`c_b = 2 (\tfrac13 + \tfrac1\alpha)`. The paper's constants are K = 2, t = 4, :math:`\kappa = 1`,
which give its factor 12, and 704, 26 and 11 for the last three. :math:`\eta` is how much more than the least estimated loss the learned policy has on the sample (the
paper's footnote on optimisation errors). ``docs/theory.md`` has the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from capi._utils.parameters import (
    Constraint,
    Constraints,
    check_parameters,
    instance_of,
    optional,
    satisfying,
    strictly_between,
)
from capi._utils.validation import Floats, as_floats, as_int, as_not_negative, check_rows, is_real
from capi.errors import InvalidInputError
from capi.theory.futures import Concentrability
from capi.theory.gaps import GapRegularity
from capi.theory.propagating import EXPONENTS

TERMS = ("approximation", "estimation", "evaluation", "optimization", "deviation")
ROUNDING = 1e-9  # relative
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
    def of_optimization(self) -> float:
        """The factor of what the minimiser on the sample misses."""
        return self.of_sample * self.t / (self.t - 2)

    @property
    def of_evaluation(self) -> float:
        """The factor of e P_n(g <= t e)."""
        return 2 * self.of_optimization


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
        The largest loss of a decision: a bound above it says nothing.
    constants : Constants
    optimization : float
        From a minimiser that does not find the least loss on the sample.
    """

    approximation: float
    estimation: float
    evaluation: float
    deviation: float
    delta: float
    worst: float
    constants: Constants = field(repr=False)
    optimization: float = 0.0

    @property
    def total(self) -> float:
        """The bound."""
        return sum(self.terms.values())

    @property
    def is_vacuous(self) -> bool:
        """Whether no policy could break the bound."""
        return self.total >= self.worst

    @property
    def terms(self) -> dict[str, float]:
        """The terms by name."""
        return {name: getattr(self, name) for name in TERMS}


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
    optimization: float = 0.0,
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
    optimization : float
        How much more than the least loss in the estimated values the policy has on the sample, such as the ``remaining_gap`` of an optimal tree.
    regularity : GapRegularity, optional
        The distribution of the gap, needed if there is an error. By default gaps are as small as can be.
    by_envelope : bool
        Whether the mass of small gaps is bounded by the envelope c_g e^zeta, as the paper does, instead of taken as it is.
    largest_gap : float, optional
        b, the largest loss of a decision: with two actions the largest gap, with more the largest difference between action values of a state. At
        most ``scale``, and by default that.
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
    least = as_not_negative(approximation, "approximation")
    one = _improvement(radius, scale, n, delta, N_EVENTS, least, optimization, regularity, by_envelope, largest_gap)
    e, given = as_not_negative(error, "error"), _constants(constants)
    return one.bound(_tuned(lambda chosen: one.bound(chosen, e).total, given) if tune else given, e)


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
    optimization: float = 0.0,
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
    optimization : float
        As in `improvement_bound`, the largest of all rounds.
    regularity : GapRegularity, optional
        Distribution of the gap of all policies of the space, needed if there are errors.
    by_envelope : bool
        Whether the mass of small gaps is bounded by the envelope c_g e^zeta, as the paper does, instead of taken as it is.
    largest_gap : float, optional
        b, the largest loss of a decision: with two actions the largest gap, with more the largest difference between action values of a state. At
        most ``scale``, and by default that.
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
    instance_of(Concentrability, "a Concentrability, as from discounted_concentrability")(futures, "futures")
    K, discount = len(futures.sums), futures.discount
    d = as_not_negative(greedy_error, "greedy_error")
    one = _improvement(radius, scale, n, delta, N_EVENTS * K, d, optimization, regularity, by_envelope, largest_gap)
    worst = 2 * as_not_negative(reward_bound, "reward_bound") / (1 - discount)
    levels, of_rounds = np.unique(_errors(errors, K), return_inverse=True)
    coefficients = np.array([futures.coefficient(K, s) for s in EXPONENTS])
    ages = np.arange(K)[::-1]
    start = discount**K * worst

    def at(chosen: Constants) -> tuple[float, int, ImprovementBound]:
        """Return the least propagated loss over s, the index of that s, and the bound of a round there."""
        exact = one.bound(chosen, 0.0)
        each = np.array([one.bound(chosen, float(e)).total for e in levels])[of_rounds] - exact.total
        worst_round = (discount ** (ages[None, :] * EXPONENTS[:, None]) * each[None, :]).max(axis=1)
        losses = exact.total + worst_round
        with np.errstate(invalid="ignore"):  # what cannot be lost is not propagated, even if coefficients are infinite
            totals = np.where(losses > 0, 2 / (1 - discount) * coefficients * losses, 0.0)
        i = int(np.argmin(totals))
        return float(totals[i]), i, replace(exact, evaluation=float(worst_round[i]))

    given = _constants(constants)
    propagated, i, of_round = at(_tuned(lambda chosen: at(chosen)[0], given) if tune else given)
    return PerformanceBound(
        propagated + start, propagated, start, of_round, float(EXPONENTS[i]), float(coefficients[i]), worst
    )


@dataclass(frozen=True, eq=False)
class _Improvement:
    """What the bound of one improvement is about, apart from the error of the values."""

    radius: float
    scale: float
    largest: float
    n: int
    z: float
    delta: float
    least: float
    missed: float  # by the minimiser on the sample
    small_gaps: Callable[[float], float]

    def bound(self, chosen: Constants, error: float) -> ImprovementBound:
        """Return the bound for given constants and a given error of the values."""
        deviation = chosen.of_range * self.largest + chosen.of_scale * self.scale * chosen.K
        deviation += chosen.of_approximation / (1 + chosen.kappa) * _bernstein(chosen.kappa) * self.largest
        deviation += chosen.of_evaluation * error * _bernstein(chosen.chi)
        small = min((1 + chosen.chi) * self.small_gaps(chosen.t * error), 1.0)
        return ImprovementBound(
            chosen.of_approximation * self.least,
            chosen.K * chosen.of_radius / self.scale * self.radius if self.radius else 0.0,
            chosen.of_evaluation * error * small,
            deviation * self.z / self.n,
            self.delta,
            self.largest,
            chosen,
            chosen.of_optimization * self.missed,
        )


def _improvement(
    radius: float,
    scale: float,
    n: int,
    delta: float,
    n_events: int,
    least: float,
    missed: float,
    regularity: GapRegularity | None,
    by_envelope: bool,
    largest_gap: float | None,
) -> _Improvement:
    r, B = as_not_negative(radius, "radius"), as_not_negative(scale, "scale")
    b = B if largest_gap is None else as_not_negative(largest_gap, "largest_gap")
    if b > B * (1 + ROUNDING):
        raise InvalidInputError(
            f"largest_gap must be at most scale: the scale must bound all losses. Got {b:.6g} and {B:.6g}."
        )
    if r > 0 and B == 0:
        raise InvalidInputError(f"scale must be positive if radius is; got radius {r:.6g} and scale 0.")
    optional(instance_of(GapRegularity, "a GapRegularity, as from gap_regularity"))(regularity, "regularity")
    strictly_between(0, 1)(delta, "delta")
    size, z = (
        as_int(n, "n", minimum=1),
        math.log(n_events / delta),
    )  # each event fails with probability delta / n_events
    return _Improvement(
        r,
        B,
        b,
        size,
        z,
        float(delta),
        least,
        as_not_negative(missed, "optimization"),
        _small_gaps(regularity, by_envelope),
    )


def _constants(given: Constants | None) -> Constants:
    optional(instance_of(Constants, "Constants"))(given, "constants")
    return given or Constants()


def _errors(errors: ArrayLike, n_rounds: int) -> Floats:
    """Return the error of each round (K,)."""
    found = as_floats(errors, "errors", ndim=1)
    if len(found) not in (1, n_rounds):
        raise InvalidInputError(f"errors must have one entry, or one per round ({n_rounds}); got {len(found)}.")
    check_rows(found >= 0, found, "errors", "must not be negative")
    return np.broadcast_to(found, (n_rounds,))


def _bernstein(share: float) -> float:
    """Return the factor of z / n after Bernstein's inequality, if ``share`` of the mean is added."""
    return 1 / (2 * share) + 2 / 3


def _small_gaps(regularity: GapRegularity | None, by_envelope: bool) -> Callable[[float], float]:
    """Return the mass of gaps up to a given one as a function; without knowledge of the gaps it is 1."""
    if regularity is None:
        return lambda gap: 1.0  # noqa: ARG005
    return regularity.envelope if by_envelope else regularity.mass_up_to


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
