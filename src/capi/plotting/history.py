"""Plot the history of a loop: loss, changed decisions, value and score per iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.validation import Floats
from capi.errors import InvalidInputError
from capi.plotting.style import INK, SMALL_TEXT_SIZE, colour_of, name_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {  # columns of a history, and the titles of their panels
    "loss": "loss on the sample",
    "changed": "share of changed decisions",
    "value": "mean value, as Q estimates it",
    "score": "score",
    "effective_rows": "effective rows that the policy visits",
}
MOST_MARKED = 40  # iterations; with more, the points overlap


def draw_history(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Return a figure of a loop's history: loss, share of changed decisions and value per iteration.

    Parameters
    ----------
    history : sequence of mappings
        One per iteration with its number ``k``, and ``loss``, ``changed``, ``value``, ``score`` and ``effective_rows`` if known, like a
        learner's ``history_``. A column that no iteration has gets no panel. If there are scores, the iteration whose
        policy was kept is marked: the one with ``kept``, or with the largest score.

    Examples
    --------
    >>> figure = draw_history([{"k": 0, "loss": 0.5, "changed": 1.0}, {"k": 1, "loss": 0.1, "changed": 0.2}])
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['loss on the sample', 'share of changed decisions']
    """
    ticker = matplotlib.ticker
    if not isinstance(history, Sequence) or not history or not all(isinstance(row, Mapping) for row in history):
        raise InvalidInputError("history must be a list with one dictionary per iteration, like a learner's history_.")
    columns = {name: _numbers(history, name) for name in ("k", *PANELS)}
    k = columns.pop("k")
    shown = {name: column for name, column in columns.items() if not np.isnan(column).all()}
    if np.isnan(k).any() or not shown:
        raise InvalidInputError(f"history must have k in every row, and at least one of {', '.join(PANELS)}.")
    figure, panels = new_figure(3.1 * len(shown), 2.7, n_cols=len(shown))
    for axes, (name, column) in zip(panels, shown.items(), strict=True):
        marker = "o" if len(k) <= MOST_MARKED or np.isnan(column).any() else None  # single points have no line
        axes.plot(k, column, color=colour_of(0), marker=marker, markersize=3.5, linewidth=1.4, clip_on=False)
        name_axes(axes, x="iteration", title=PANELS[name])
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
        if len(k) == 1:
            axes.set_xlim(k[0] - 0.5, k[0] + 0.5)
            axes.set_xticks(k)
        plain = ticker.StrMethodFormatter("{x:.10g}")  # no factor or offset above the axis to apply mentally
        axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, symbol=" %") if name == "changed" else plain)
        if name in ("loss", "changed"):  # never negative
            axes.set_ylim(0.0, 1.06 * float(np.nanmax(column)) or 1.0)
    if "score" in shown:
        _mark_kept(figure, panels, k, shown, _kept(history, shown["score"]))
    return figure


def _mark_kept(figure: Figure, panels: Sequence[Axes], k: Floats, columns: Mapping[str, Floats], kept: int) -> None:
    """Mark the iteration whose policy was kept in every panel."""
    for axes, column in zip(panels, columns.values(), strict=True):
        line = axes.axvline(k[kept], color=colour_of(1), linestyle="--", linewidth=1.0, zorder=1.5)
        axes.plot(k[kept], column[kept], "o", color=colour_of(1), markersize=6, clip_on=False, zorder=3)
    legend = figure.legend([line], [f"kept: iteration {k[kept]:g}"], loc="outside lower right", frameon=False)
    for text in legend.get_texts():
        text.set(fontsize=SMALL_TEXT_SIZE, color=INK)


def _kept(history: Sequence[Mapping[str, Any]], scores: Floats) -> int:
    """Return which iteration was kept: the one that says so, the last accepted one, or that with the largest score."""
    for name in ("kept", "accepted"):
        marked = np.flatnonzero([bool(row.get(name)) for row in history])
        if len(marked):
            return int(marked[-1])
    return int(np.nanargmax(scores))


def _numbers(history: Sequence[Mapping[str, Any]], name: str) -> Floats:
    """Return a column of a history, NaN where an iteration lacks it (K,)."""
    found = [row.get(name) for row in history]
    try:
        column = np.array([np.nan if value is None else float(value) for value in found])
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must be a number in every row of history; got {found!r}.") from error
    return np.where(np.isfinite(column), column, np.nan)
