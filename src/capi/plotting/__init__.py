"""Plots in one style: histories, action gaps, decisions and trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.plotting.gaps import draw_gaps as draw_gaps
    from capi.plotting.history import draw_history as draw_history
    from capi.plotting.regions import draw_decisions as draw_decisions
    from capi.plotting.style import add_legend as add_legend
    from capi.plotting.style import colour_of as colour_of
    from capi.plotting.style import marker_of as marker_of
    from capi.plotting.style import name_axes as name_axes
    from capi.plotting.style import new_figure as new_figure
    from capi.plotting.style import stack_bars as stack_bars
    from capi.plotting.tree import draw_tree as draw_tree
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "add_legend": "style",
            "colour_of": "style",
            "draw_decisions": "regions",
            "draw_gaps": "gaps",
            "draw_history": "history",
            "draw_tree": "tree",
            "marker_of": "style",
            "name_axes": "style",
            "new_figure": "style",
            "stack_bars": "style",
        },
    )
