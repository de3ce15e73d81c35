"""The distribution of the action gap: how much the choice matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.late import matplotlib
from capi._utils.validation import Floats, as_integers, as_names, as_q_values, check_actions, check_shape
from capi.errors import InvalidInputError
from capi.loss import greedy, negligible_gap, second_best_gap
from capi.plotting.style import INK, PALE_INK, add_legend, name_axes, new_figure, stack_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

N_BINS = 30
LOG_FROM = 1000.0  # ratio of the largest to a small gap from which the axis is logarithmic
SMALLEST_SHOWN = 1e-6  # as a share of the largest gap, on a logarithmic axis


def draw_gaps(
    q_values: ArrayLike,
    allowed: ArrayLike | None = None,
    decisions: ArrayLike | None = None,
    labels: Sequence[Any] | None = None,
) -> Figure:
    """Return a figure of how much the choice matters: the distribution of the gap between the best two actions.

    The shaded part marks the states where the choice makes little difference: the gap is at most `capi.loss.negligible_gap`.
    If gaps differ by orders of magnitude the axis is logarithmic, with one bar on the left for gaps that are too small for it.
    States that allow only one action offer no choice; they are left out, and the title says how many there are.

    Parameters
    ----------
    q_values : array of shape (n, A)
    allowed : array of shape (n, A), optional
        The actions to choose from, if not all of them.
    decisions : array of shape (n,), optional
        The actions that colour the bars; by default the greedy ones.
    labels : sequence, A of them, optional
        Names of the actions; by default 0, 1, ...

    Examples
    --------
    >>> figure = draw_gaps([[1.0, 3.0], [2.0, 2.0], [0.0, 1.0]], labels=["wait", "treat"])
    >>> figure.axes[0].get_title(loc="left")
    'The choice makes little difference (gap at most 0.025) in 33.3 % of 3 states.'
    """
    ticker = matplotlib.ticker
    q = as_q_values(q_values)
    gaps = second_best_gap(q, allowed)
    chosen = greedy(q, allowed) if decisions is None else as_integers(decisions, "decisions")
    check_shape(chosen, "decisions", gaps.shape, "q_values")
    check_actions(chosen, q.shape[1], "decisions")
    names = as_names(range(q.shape[1]) if labels is None else labels, "labels", q.shape[1])
    free = np.isfinite(gaps)
    if not free.any():
        raise InvalidInputError("some state must allow a choice; all of these states allow only one action.")
    gaps, chosen, n_bound = gaps[free], chosen[free], int((~free).sum())
    negligible = negligible_gap(q, allowed)

    figure, [axes] = new_figure(6.0, 3.6)
    left, widths = _draw_gap_axis(axes, gaps, negligible)
    bar_of_state = np.clip(np.searchsorted(left, gaps, side="right") - 1, 0, len(left) - 1)
    counts = np.zeros((q.shape[1], len(left)))
    np.add.at(counts, (chosen, bar_of_state), 1.0)
    stack_bars(axes, left, widths, counts, names)
    start, end = axes.get_xlim()
    shaded = negligible if (gaps > negligible).any() else end
    axes.axvspan(start, shaded, color=PALE_INK, alpha=0.15, linewidth=0, zorder=0.5)
    axes.axvline(negligible, color=INK, linestyle="--", linewidth=0.8, zorder=3)
    axes.set_ylim(0.0, 1.05 * counts.sum(axis=0).max())
    axes.yaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    axes.grid(visible=False, axis="x")
    share = f"{100 * np.mean(gaps <= negligible):.1f} % of {_count(len(gaps))}"
    title = f"The choice makes little difference (gap at most {_short(negligible)}) in {share}."
    if n_bound:
        title += f"\nLeft out: {_count(n_bound)} with one allowed action."
    name_axes(axes, x="gap between the best two actions", y="states", title=title)
    add_legend(axes, "decision")
    return figure


def _draw_gap_axis(axes: Axes, gaps: Floats, negligible: float) -> tuple[Floats, Floats]:
    """Scale the axis of the gaps; return the left edges and the widths of its bars (m,)."""
    high, positive = float(gaps.max()), gaps[gaps > 0]
    if not len(positive):
        axes.set_xlim(-1.0, 1.0)
        axes.set_xticks([0.0])
        return np.array([-0.1]), np.array([0.2])
    if high < LOG_FROM * float(np.quantile(positive, 0.05)):
        axes.set_xlim(0.0, 1.03 * max(high, negligible))
        edges = np.linspace(0.0, high, N_BINS + 1)
        return edges[:-1], np.diff(edges)
    low = max(min(float(positive.min()), negligible), SMALLEST_SHOWN * high)
    edges = np.geomspace(low, high, N_BINS + 1)
    edges[0] = low
    decades = 10.0 ** np.arange(np.ceil(np.log10(low)), np.floor(np.log10(high)) + 1)
    ticks = {float(decade): f"{decade:g}" for decade in decades}
    too_small = gaps < low
    if too_small.any():
        step = edges[1] / edges[0]
        start, stop = low / step**3, low / step**1.5
        ticks = {float(np.sqrt(start * stop)): f"< {low:.1g}" if gaps[too_small].any() else "0"} | ticks
        left, widths = np.append(start, edges[:-1]), np.append(stop - start, np.diff(edges))
    else:
        left, widths = edges[:-1], np.diff(edges)
    axes.set_xscale("log")
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.set_xlim(left[0] / 1.1, 1.1 * max(high, negligible))
    return left, widths


def _count(n: int) -> str:
    return f"{n} state" if n == 1 else f"{n} states"


def _short(x: float) -> str:
    """Return three significant digits, without an exponent where possible."""
    return f"{float(f'{x:.3g}'):.10g}"
