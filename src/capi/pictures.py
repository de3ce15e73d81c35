"""One style for every picture, and the pictures of a loop's history and of the action gaps.

Figures are made without pyplot: nothing global changes, nothing needs to be closed, and a notebook shows what a cell returns.
Names and labels are drawn as they are; a dollar sign in them starts no formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO
from re import compile as pattern
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from capi.errors import InvalidInput
from capi.loss import greedy, negligible_gap, second_best_gap
from capi.validation import Floats, as_integers, as_names, as_q_values, check_actions, check_shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")  # Okabe and Ito's
MARKERS = "osv^DPX*"
HATCHES = (None, "///", "...", "xxx")
INK, PALE_INK, GRID_INK = "#262626", "#737373", "#D9D9D9"
TEXT_SIZE, SMALL_TEXT_SIZE = 9, 8

PANELS = {  # what a history may tell of each iteration, and what it is called
    "loss": "loss on the sample",
    "changed": "share of changed decisions",
    "value": "mean value, as Q estimates it",
    "score": "score",
}
MOST_MARKED = 40  # iterations; the points of more run into each other
OWN_LABEL = pattern(r"(_(child|container)\d+|_nolegend_)?")  # what matplotlib calls parts that nobody named
N_BINS = 30
LOG_FROM = 1000.0  # times that the largest gap is one of the small ones, from which the axis is logarithmic
SMALLEST_SHOWN = 1e-6  # of the largest gap, on a logarithmic axis


def new_figure(width: float, height: float, n_rows: int = 1, n_cols: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure in our style and its axes, row by row.

    Parameters
    ----------
    width, height : float
        In inches.
    n_rows, n_cols : int
        How many axes there are below and beside each other.

    Examples
    --------
    >>> figure, [left, right] = new_figure(6.0, 3.0, n_cols=2)
    >>> line = left.plot([0, 1], [0, 1], color=colour_of(0))
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  only those who draw pay for it

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes: list[Axes] = figure.subplots(n_rows, n_cols, squeeze=False).ravel().tolist()
    for each in axes:
        each.set_facecolor("white")
        each.spines[["top", "right"]].set_visible(False)
        each.spines[["bottom", "left"]].set(color=PALE_INK, linewidth=0.8)
        each.tick_params(labelsize=SMALL_TEXT_SIZE, color=PALE_INK, labelcolor=INK, width=0.8)
        for axis in (each.xaxis, each.yaxis):
            axis.get_offset_text().set(fontsize=SMALL_TEXT_SIZE, color=INK)
        each.grid(color=GRID_INK, linewidth=0.6)
        each.set_axisbelow(True)
    # Without %matplotlib inline, notebooks know a bare figure only by its text.
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    return figure, axes


def colour_of(action: int) -> str:
    """Return the colour of an action's number; after eight they come again."""
    return PALETTE[action % len(PALETTE)]


def marker_of(action: int) -> str:
    """Return the marker of an action's number; no two of the first 64 share both colour and marker."""
    return MARKERS[(action + action // len(PALETTE)) % len(MARKERS)]


def name_axes(axes: Axes, *, x: str | None = None, y: str | None = None, title: str | None = None) -> None:
    """Write the names of the axes and a title at the left, as they are.

    Parameters
    ----------
    axes : matplotlib Axes
    x, y, title : str, optional
        What is left out stays as it is.
    """
    words: dict[str, Any] = {"fontsize": TEXT_SIZE, "color": INK, "parse_math": False}
    if x is not None:
        axes.set_xlabel(x, **words)
    if y is not None:
        axes.set_ylabel(y, **words)
    if title is not None:
        axes.set_title(title, loc="left", **words)


def add_legend(axes: Axes, title: str) -> None:
    """Put a legend at the right of the axes, with its labels as they are.

    Parameters
    ----------
    axes : matplotlib Axes
        Whose labelled parts are listed.
    title : str
    """
    drawn: list[Any] = [*axes.containers, *axes.lines, *axes.collections]
    named = [(part, str(part.get_label())) for part in drawn if not OWN_LABEL.fullmatch(str(part.get_label()))]
    legend = axes.legend(
        [part for part, _ in named],
        [f"{i}" for i, _ in enumerate(named)],  # matplotlib leaves out what begins with "_"
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        title=title,
        alignment="left",
        fontsize=SMALL_TEXT_SIZE,
        title_fontsize=SMALL_TEXT_SIZE,
        labelcolor=INK,
    )
    legend.get_title().set_color(INK)
    for text, (_, label) in zip(legend.get_texts(), named, strict=True):
        text.set_parse_math(False)
        text.set_text(label)


def stack_bars(axes: Axes, left: Floats, widths: Floats, heights: Floats, labels: Sequence[Any]) -> None:
    """Draw the bars of each action on those of the actions before it.

    Parameters
    ----------
    axes : matplotlib Axes
    left, widths : array of shape (m,)
        Where the bars begin, and how wide they are.
    heights : array of shape (A, m)
        Of each action's part of each bar.
    labels : sequence, A of them
        For the legend.
    """
    below = np.zeros(len(left))
    for a, height in enumerate(heights):
        style: dict[str, Any] = {"color": colour_of(a), "edgecolor": "white", "linewidth": 0.6}
        hatch = HATCHES[a // len(PALETTE) % len(HATCHES)]
        axes.bar(left, height, widths, below, align="edge", hatch=hatch, label=str(labels[a]), **style)
        below = below + height


def draw_history(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Return a figure of how a loop went: loss, share of changed decisions and value by iteration.

    Parameters
    ----------
    history : sequence of mappings
        One for each iteration with its number ``k``, and ``loss``, ``changed``, ``value`` and ``score`` as far as they are
        known, like a learner's ``history_``. What no iteration tells gets no panel. With scores the iteration with the largest, the first
        among equals, is marked: it is the one whose policy was kept.

    Examples
    --------
    >>> figure = draw_history([{"k": 0, "loss": 0.5, "changed": 1.0}, {"k": 1, "loss": 0.1, "changed": 0.2}])
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['loss on the sample', 'share of changed decisions']
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter  # noqa: PLC0415

    if not isinstance(history, Sequence) or not history or not all(isinstance(row, Mapping) for row in history):
        raise InvalidInput("history must be a list with one dictionary an iteration, like a learner's history_.")
    columns = {name: _numbers(history, name) for name in ("k", *PANELS)}
    k = columns.pop("k")
    shown = {name: column for name, column in columns.items() if not np.isnan(column).all()}
    if np.isnan(k).any() or not shown:
        raise InvalidInput(f"history must tell k of every iteration, and one of {', '.join(PANELS)}.")
    figure, panels = new_figure(3.1 * len(shown), 2.7, n_cols=len(shown))
    for axes, (name, column) in zip(panels, shown.items(), strict=True):
        marker = "o" if len(k) <= MOST_MARKED else None
        axes.plot(k, column, color=colour_of(0), marker=marker, markersize=3.5, linewidth=1.4, clip_on=False)
        name_axes(axes, x="iteration", title=PANELS[name])
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if len(k) == 1:
            axes.set_xlim(k[0] - 0.5, k[0] + 0.5)
            axes.set_xticks(k)
        plain = StrMethodFormatter(
            "{x:.10g}"
        )  # a factor or an offset above the axis would have to be added in one's head
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %") if name == "changed" else plain)
        if name in ("loss", "changed"):  # which are never negative
            axes.set_ylim(0.0, 1.06 * float(np.nanmax(column)) or 1.0)
    if "score" in shown:
        _mark_kept(figure, panels, k, shown)
    return figure


def _mark_kept(figure: Figure, panels: Sequence[Axes], k: Floats, columns: Mapping[str, Floats]) -> None:
    """Mark the iteration with the largest score in every panel."""
    kept = int(np.nanargmax(columns["score"]))
    for axes, column in zip(panels, columns.values(), strict=True):
        line = axes.axvline(k[kept], color=colour_of(1), linestyle="--", linewidth=1.0, zorder=1.5)
        axes.plot(k[kept], column[kept], "o", color=colour_of(1), markersize=6, clip_on=False, zorder=3)
    legend = figure.legend([line], [f"kept: iteration {k[kept]:g}"], loc="outside lower right", frameon=False)
    for text in legend.get_texts():
        text.set(fontsize=SMALL_TEXT_SIZE, color=INK)


def draw_gaps(
    q_values: ArrayLike,
    allowed: ArrayLike | None = None,
    decisions: ArrayLike | None = None,
    labels: Sequence[Any] | None = None,
) -> Figure:
    """Return a figure of how much the choice matters: the distribution of the gap between the best two actions.

    The shaded part are the states where it hardly matters: the gap is at most `capi.loss.negligible_gap`. If gaps differ by
    orders of magnitude their axis is logarithmic, with one bar at its left for those too small to have a place on it. States that allow one action
    only have nothing to choose; they are left out, and the title says how many.

    Parameters
    ----------
    q_values : array of shape (n, A)
    allowed : array of shape (n, A), optional
        The actions to choose from, if not all of them.
    decisions : array of shape (n,), optional
        The actions that the bars are coloured by; by default the greedy ones.
    labels : sequence, A of them, optional
        What the actions are called; by default 0, 1, ...

    Examples
    --------
    >>> figure = draw_gaps([[1.0, 3.0], [2.0, 2.0], [0.0, 1.0]], labels=["wait", "treat"])
    >>> figure.axes[0].get_title(loc="left")
    'The choice hardly matters (gap at most 0.025) in 33.3 % of 3 states.'
    """
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    q = as_q_values(q_values)
    gaps = second_best_gap(q, allowed)
    chosen = greedy(q, allowed) if decisions is None else as_integers(decisions, "decisions")
    check_shape(chosen, "decisions", gaps.shape, "q_values")
    check_actions(chosen, q.shape[1], "decisions")
    words = as_names(range(q.shape[1]) if labels is None else labels, "labels", q.shape[1])
    free = np.isfinite(gaps)
    if not free.any():
        raise InvalidInput("there must be something to choose; all of these states allow one action only.")
    gaps, chosen, n_bound = gaps[free], chosen[free], int((~free).sum())
    negligible = negligible_gap(q, allowed)

    figure, [axes] = new_figure(6.0, 3.6)
    left, widths = _draw_gap_axis(axes, gaps, negligible)
    bar_of_state = np.clip(np.searchsorted(left, gaps, side="right") - 1, 0, len(left) - 1)
    counts = np.zeros((q.shape[1], len(left)))
    np.add.at(counts, (chosen, bar_of_state), 1.0)
    stack_bars(axes, left, widths, counts, words)
    start, end = axes.get_xlim()
    shaded = negligible if (gaps > negligible).any() else end
    axes.axvspan(start, shaded, color=PALE_INK, alpha=0.15, linewidth=0, zorder=0.5)
    axes.axvline(negligible, color=INK, linestyle="--", linewidth=0.8, zorder=3)
    axes.set_ylim(0.0, 1.05 * counts.sum(axis=0).max())
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(visible=False, axis="x")
    share = f"{100 * np.mean(gaps <= negligible):.1f} % of {_count(len(gaps))}"
    title = f"The choice hardly matters (gap at most {_short(negligible)}) in {share}."
    if n_bound:
        title += f"\nLeft out: {_count(n_bound)} with one allowed action."
    name_axes(axes, x="gap between the best two actions", y="states", title=title)
    add_legend(axes, "decision")
    return figure


def _draw_gap_axis(axes: Axes, gaps: Floats, negligible: float) -> tuple[Floats, Floats]:
    """Scale the axis of the gaps, and return where its bars begin and how wide they are (m,)."""
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


def _numbers(history: Sequence[Mapping[str, Any]], name: str) -> Floats:
    """Return a column of a history, NaN where an iteration does not tell it (K,)."""
    found = [row.get(name) for row in history]
    try:
        column = np.array([np.nan if value is None else float(value) for value in found])
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be a number in every row of history; got {found!r}.") from error
    return np.where(np.isfinite(column), column, np.nan)


def _png(figure: Figure) -> bytes:
    """Return the picture as a PNG file."""
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _count(n: int) -> str:
    return f"{n} state" if n == 1 else f"{n} states"


def _short(x: float) -> str:
    """Return three significant digits, written out as far as one would by hand."""
    return f"{float(f'{x:.3g}'):.10g}"
