"""Two kinds of figures that experiments share: intervals by case, and lines with error bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.statistics import bootstrap_interval, standard_error
from capi._utils.validation import Floats
from capi.plotting.style import PALETTE, add_legend, marker_of, name_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INTERVAL = "mean, 95 % bootstrap interval"


def interval_figure(title: str, label: str, cases: Mapping[str, Floats], *, reference: str | None = None) -> Figure:
    """Return one line per case: the mean of its values, one per seed, with a bootstrap interval; the reference case stands out."""
    figure, [axes] = new_figure(7.2, 1.2 + 0.32 * len(cases))
    for place, (name, values) in enumerate(cases.items()):
        colour, middle = PALETTE[int(name == reference)], float(np.mean(values))
        if len(values) > 1:
            axes.plot(bootstrap_interval(values), [place, place], color=colour, linewidth=2)
        axes.plot([middle], [place], color=colour, marker="D" if name == reference else "o")
        if name == reference:
            axes.axvline(middle, color=colour, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(cases)), list(cases))
    axes.invert_yaxis()
    name_axes(axes, x=f"{label} ({INTERVAL})", title=title)
    return figure


def line_figure(
    title: str, x: str, y: str, lines: Mapping[str, Mapping[int, Floats]], *, logarithmic: bool = False
) -> Figure:
    """Return one line per name: means of the values at each place with one standard error."""
    figure, [axes] = new_figure(7.2, 4.2)
    for number, (name, points) in enumerate(lines.items()):
        places = sorted(points)
        means = [float(np.mean(points[place])) for place in places]
        errors = [np.nan_to_num(standard_error(np.asarray(points[place]))) for place in places]
        style: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "marker": marker_of(number), "capsize": 2}
        axes.errorbar(places, means, yerr=errors, label=name, **style)
    ticks = sorted({place for points in lines.values() for place in points})
    if logarithmic:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    name_axes(axes, x=x, y=f"{y} (bars: one standard error)", title=title)
    add_legend(axes, "")
    return figure
