r"""The distribution of the action gap, and the regularity that the analysis asks of it.

The paper's Assumption (Section 2.2): for constants :math:`c_g > 0` and :math:`\zeta \ge 0`, every policy of the space and every
:math:`\varepsilon > 0`,

.. math:: P_\nu(0 < g_{Q^\pi}(X) \le \varepsilon) \le c_g\, \varepsilon^\zeta.

For every :math:`\zeta` the smallest :math:`c_g` is a maximum over the jumps of the distribution. With :math:`\zeta = 0` it is at most 1,
whatever the gaps are: the paper's remark that :math:`\zeta = 0` forces all gaps to be zero does not follow from the inequality.
States without a gap are not covered by the assumption, and the analysis needs their mass on its own (see `capi.theory.distortion`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.randomness import RandomState, as_generator
from capi._utils.validation import Floats, Ints, as_array, as_int, as_not_negative, as_q_values, as_weights, check_shape
from capi.errors import InvalidInputError
from capi.loss import second_best_gap
from capi.plotting.style import INK, add_legend, colour_of, name_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FITTED = (0.05, 0.5)  # the masses between which the exponent is fitted
LEVEL = 0.95  # of the bootstrap band
N_GRID = 200  # points of the band


@dataclass(frozen=True, eq=False)
class GapRegularity:
    r"""The distribution of the gap, and an envelope :math:`c_g \varepsilon^\zeta` of it.

    Parameters
    ----------
    zeta, c_g : float
        The envelope; with several action-value functions, of all of them.
    holds_from : float
        The envelope holds for every gap from here on: 0 if it holds everywhere.
    zero_mass : float
        The largest mass of states without a gap.
    largest : float
        The largest gap.
    curves : tuple of pairs of arrays
        For each action-value function its distinct positive gaps in increasing order, and the mass of the positive gaps up to each.
    grid, band : arrays of shape (g,) and (2, g), optional
        Gaps, and the bootstrap band of the mass up to each of them, with 95 % pointwise.
    zeta_interval : pair of floats, optional
        The bootstrap interval of the fitted exponent.
    """

    zeta: float
    c_g: float
    holds_from: float
    zero_mass: float
    largest: float
    curves: tuple[tuple[Floats, Floats], ...] = field(repr=False)
    grid: Floats | None = field(default=None, repr=False)
    band: Floats | None = field(default=None, repr=False)
    zeta_interval: tuple[float, float] | None = None

    def constant(self, zeta: float) -> float:
        """Return the smallest c_g for an exponent, so that the envelope holds everywhere."""
        return _envelope(self.curves, as_not_negative(zeta, "zeta"), 0.0)

    def mass_up_to(self, gap: float) -> float:
        """Return the largest mass of states whose gap is at most ``gap``, those without a gap included."""
        at = as_not_negative(gap, "gap")
        above = [
            float(masses[-1] - _mass_up_to(at, gaps, masses)) if len(gaps) else 0.0 for gaps, masses in self.curves
        ]
        return 1.0 - min(above)

    def envelope(self, gap: float) -> float:
        """Return c_g gap ** zeta plus the mass of states without a gap, at most 1; it bounds `mass_up_to` from ``holds_from`` on."""
        return min(self.c_g * as_not_negative(gap, "gap") ** self.zeta + self.zero_mass, 1.0)

    def __str__(self) -> str:
        where = "for every gap" if self.holds_from == 0 else f"for gaps from {self.holds_from:.4g} on"
        between = "" if self.zeta_interval is None else " ({:.3g} to {:.3g})".format(*self.zeta_interval)
        return (
            f"P(0 < gap <= e) <= {self.c_g:.4g} e^{self.zeta:.4g}{between} {where}; "
            f"{100 * self.zero_mass:.3g} % of the states have no gap; largest gap {self.largest:.4g}"
        )

    def plot(self) -> Figure:
        """Return a figure of the distribution of the gap on logarithmic axes, with the envelope."""
        figure, [axes] = new_figure(6.0, 3.6)
        drawn = [curve for curve in self.curves if len(curve[0])]
        for number, (gaps, masses) in enumerate(drawn):
            shade = 1.0 if len(self.curves) == 1 else 0.3
            label = "measured" if number == 0 else "_nolegend_"
            axes.step(gaps, masses, where="post", color=colour_of(0), label=label, alpha=shade)
        if drawn:
            low = max(min(gaps[0] for gaps, _ in drawn), self.holds_from, 1e-12 * self.largest)
            x = np.geomspace(low, self.largest, 100)
            words = f"{self.c_g:.3g} e^{self.zeta:.3g}"
            axes.plot(x, np.minimum(self.c_g * x**self.zeta, 1.0), "--", color=INK, label=words)
            axes.set(xscale="log", yscale="log")
        if drawn and self.grid is not None and self.band is not None:
            axes.fill_between(self.grid, *self.band, color=colour_of(0), alpha=0.2, linewidth=0, label="95 % band")
        title = f"{100 * self.zero_mass:.3g} % of the states have no gap."
        name_axes(axes, x="gap e between the best two actions", y="mass of gaps in (0, e]", title=title)
        if drawn:
            add_legend(axes, "")
        return figure


def gap_regularity(
    q_values: Any,
    weights: ArrayLike | None = None,
    zeta: float | None = None,
    *,
    allowed: ArrayLike | None = None,
    n_resamples: int = 0,
    groups: ArrayLike | None = None,
    random_state: RandomState = 0,
) -> GapRegularity:
    r"""Return the distribution of the gap between the best two actions, and an envelope of it (the paper's Assumption, Section 2.2).

    Parameters
    ----------
    q_values : array of shape (n, A), or sequence of such arrays
        The action values at a sample of states; several of them, such as the iterates of a run or the values of all members of a
        policy space, share one envelope.
    weights : array of shape (n,), optional
        Weights of the states; by default all are equal.
    zeta : float, optional
        The exponent, for which the envelope then holds everywhere. By default it is fitted to the masses between 5 % and
        50 % of the positive gaps, by least squares on logarithms, and the envelope holds from the smallest of these gaps on.
    allowed : array of shape (n, A), optional
        The actions to choose from. States with only one have no choice: they are left out.
    n_resamples : int
        Bootstrap resamples of the states for the band; 0 for none. The action values stay as they are.
    groups : array of shape (n,), optional
        Episodes, which are resampled as a whole.
    random_state : int, Generator or None

    Examples
    --------
    >>> found = gap_regularity([[0.0, 1.0], [0.0, 2.0], [0.0, 4.0], [1.0, 1.0]], zeta=1.0)
    >>> found.c_g, found.zero_mass
    (0.25, 0.25)
    >>> found.mass_up_to(2.0)
    0.75
    """
    tables = _tables(q_values)
    n = len(tables[0])
    w = as_weights(weights, "weights", n)
    w = np.ones(n) if w is None else w
    gaps = np.stack([second_best_gap(table, allowed) for table in tables])  # (m, n)
    free = np.isfinite(gaps).all(axis=0)
    if not free.any() or w[free].sum() == 0:
        raise InvalidInputError("some state with weight must allow a choice between actions; none does.")
    gaps, w = gaps[:, free], w[free] / w[free].sum()
    curves = tuple(_curve(row, w) for row in gaps)
    exponent, start = _fitted(curves) if zeta is None else (as_not_negative(zeta, "zeta"), 0.0)
    c_g = _envelope(curves, exponent, start)
    grid = band = between = None
    if as_int(n_resamples, "n_resamples", minimum=0):
        clusters = _clusters(groups, n)[free]
        grid, band, between = _bootstrapped(gaps, w, clusters, n_resamples, as_generator(random_state))
    return GapRegularity(
        exponent,
        c_g,
        _holds_from(curves, exponent, c_g),
        max(float(w[row == 0].sum()) for row in gaps),
        float(gaps.max()),
        curves,
        grid,
        band,
        between if zeta is None else None,
    )


def _tables(q_values: Any) -> list[Floats]:
    """Return one or several tables of action values, all for the same states."""
    several = (
        isinstance(q_values, Sequence | np.ndarray)
        and len(q_values) > 0
        and as_array(q_values[0], "q_values[0]").ndim == 2
    )
    if not several:
        return [as_q_values(q_values)]
    tables = [as_q_values(table, name=f"q_values[{i}]") for i, table in enumerate(q_values)]
    for i, table in enumerate(tables):
        check_shape(table, f"q_values[{i}]", tables[0].shape, "q_values[0]")
    return tables


def _curve(gaps: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the distinct positive gaps in increasing order, and the mass of positive gaps up to each."""
    positive = (gaps > 0) & (weights > 0)
    values, place = np.unique(gaps[positive], return_inverse=True)
    return values, np.cumsum(np.bincount(place, weights[positive], minlength=len(values)))


def _mass_up_to(at: Any, gaps: Floats, masses: Floats) -> Any:
    """Return the mass of positive gaps up to each of ``at``, from the distinct gaps and their masses."""
    return np.concatenate([[0.0], masses])[np.searchsorted(gaps, at, side="right")]


def _envelope(curves: Sequence[tuple[Floats, Floats]], zeta: float, start: float) -> float:
    """Return the largest F(t) / t ** zeta over the jumps t >= start of all curves; 0 without positive gaps."""
    found = [0.0]
    for gaps, masses in curves:
        used = gaps >= start
        with np.errstate(over="ignore", divide="ignore"):
            found.append(float(np.max(masses[used] / gaps[used] ** zeta, initial=0.0)))
    return max(found)


def _holds_from(curves: Sequence[tuple[Floats, Floats]], zeta: float, c_g: float) -> float:
    """Return the gap from which c_g t ** zeta bounds all masses: 0 if it bounds them everywhere."""
    start = 0.0
    for gaps, masses in curves:
        broken = np.flatnonzero(masses > c_g * gaps**zeta * (1 + 1e-12))
        if len(broken):
            last = int(broken[-1])  # the mass stays the same until the envelope has grown to it
            start = max(start, float((masses[last] / c_g) ** (1 / zeta)) if zeta > 0 and c_g > 0 else np.inf)
    return start


def _fitted(curves: Sequence[tuple[Floats, Floats]]) -> tuple[float, float]:
    """Return the least exponent of all curves by regression of log mass on log gap, and the smallest gap used."""
    zetas, starts = [], []
    for gaps, masses in curves:
        if len(gaps):
            share = masses / masses[-1]
            used = (share >= FITTED[0]) & (share <= FITTED[1])
            if used.sum() < 3:
                used = np.ones(len(gaps), dtype=bool)
            x, y = np.log(gaps[used]), np.log(masses[used])
            spread = float(np.square(x - x.mean()).sum())
            zetas.append(max(float((x - x.mean()) @ y) / spread, 0.0) if spread > 0 else 0.0)
            starts.append(float(gaps[used][0]))
    return (min(zetas), min(starts)) if zetas else (0.0, 0.0)


def _clusters(groups: ArrayLike | None, n: int) -> Ints:
    if groups is None:
        return np.arange(n)
    labels = as_array(groups, "groups")
    check_shape(labels, "groups", (n,), "q_values")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _grid(positive: Floats) -> Floats:
    """Return some of the positive gaps, given in increasing order: half of them alike, and half dense among the smallest ones."""
    n = len(positive)
    if n == 0:
        return np.zeros(1)
    places = np.concatenate([np.linspace(1, n, N_GRID // 2), np.geomspace(1, n, N_GRID // 2)])
    return positive[np.unique(np.round(places).astype(int)) - 1]


def _bootstrapped(
    gaps: Floats, weights: Floats, clusters: Ints, n_resamples: int, rng: np.random.Generator
) -> tuple[Floats, Floats, tuple[float, float]]:
    """Return a grid of gaps, the band of the largest mass up to each of them, and the interval of the fitted exponent."""
    grid = _grid(np.unique(gaps[gaps > 0]))
    names = np.unique(clusters)
    masses, zetas = np.empty((n_resamples, len(grid))), np.empty(n_resamples)
    for b in range(n_resamples):
        counts = np.bincount(rng.integers(len(names), size=len(names)), minlength=len(names))
        w = weights * counts[np.searchsorted(names, clusters)]
        if w.sum() == 0:
            w = weights
        curves = [_curve(row, w / w.sum()) for row in gaps]
        masses[b] = np.max([_mass_up_to(grid, *curve) for curve in curves], axis=0)
        zetas[b] = _fitted(curves)[0]
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(zetas, tails)
    return grid, np.quantile(masses, tails, axis=0), (float(low), float(high))
