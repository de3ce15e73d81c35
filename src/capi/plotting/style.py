"""One style for all plots.

Figures are created without pyplot: no global state changes, nothing needs to be closed, and a notebook shows the figure
that a cell returns. Names and labels are drawn verbatim; a dollar sign in them does not start a formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from io import BytesIO
from re import compile as pattern
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.validation import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")  # Okabe and Ito's
MARKERS = "osv^DPX*"
HATCHES = (None, "///", "...", "xxx")
INK, PALE_INK, GRID_INK = "#262626", "#737373", "#D9D9D9"
TEXT_SIZE, SMALL_TEXT_SIZE = 9, 8
OWN_LABEL = pattern(r"(_(child|container)\d+|_nolegend_)?")  # default labels that matplotlib gives to unnamed artists


def new_figure(width: float, height: float, n_rows: int = 1, n_cols: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure in our style and its axes, row by row.

    Parameters
    ----------
    width, height : float
        In inches.
    n_rows, n_cols : int
        Number of rows and columns of axes.

    Examples
    --------
    >>> figure, [left, right] = new_figure(6.0, 3.0, n_cols=2)
    >>> line = left.plot([0, 1], [0, 1], color=colour_of(0))
    """
    figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained", facecolor="white")
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
    # Without %matplotlib inline, notebooks show a bare figure only as text.
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    return figure, axes


def colour_of(action: int) -> str:
    """Return the colour of an action; colours repeat after eight actions."""
    return PALETTE[action % len(PALETTE)]


def marker_of(action: int) -> str:
    """Return the marker of an action; no two of the first 64 actions share both colour and marker."""
    return MARKERS[(action + action // len(PALETTE)) % len(MARKERS)]


def name_axes(axes: Axes, *, x: str | None = None, y: str | None = None, title: str | None = None) -> None:
    """Set the axis labels and a left-aligned title, verbatim.

    Parameters
    ----------
    axes : matplotlib Axes
    x, y, title : str, optional
        Omitted texts stay unchanged.
    """
    words: dict[str, Any] = {"fontsize": TEXT_SIZE, "color": INK, "parse_math": False}
    if x is not None:
        axes.set_xlabel(x, **words)
    if y is not None:
        axes.set_ylabel(y, **words)
    if title is not None:
        axes.set_title(title, loc="left", **words)


def add_legend(axes: Axes, title: str) -> None:
    """Add a legend to the right of the axes, with verbatim labels.

    Parameters
    ----------
    axes : matplotlib Axes
        The axes whose labelled artists are listed.
    title : str
    """
    drawn: list[Any] = [*axes.containers, *axes.lines, *axes.collections]
    named = [(part, str(part.get_label())) for part in drawn if not OWN_LABEL.fullmatch(str(part.get_label()))]
    legend = axes.legend(
        [part for part, _ in named],
        [f"{i}" for i, _ in enumerate(named)],  # placeholders: matplotlib omits labels that begin with "_"
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
    """Draw the bars of each action on top of those of the previous actions.

    Parameters
    ----------
    axes : matplotlib Axes
    left, widths : array of shape (m,)
        Left edges and widths of the bars.
    heights : array of shape (A, m)
        Height of each action's part of each bar.
    labels : sequence, A of them
        Labels for the legend.
    """
    below = np.zeros(len(left))
    for a, height in enumerate(heights):
        style: dict[str, Any] = {"color": colour_of(a), "edgecolor": "white", "linewidth": 0.6}
        hatch = HATCHES[a // len(PALETTE) % len(HATCHES)]
        axes.bar(left, height, widths, below, align="edge", hatch=hatch, label=str(labels[a]), **style)
        below = below + height


def _png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes."""
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
