"""Pictures in one style: histories, action gaps, decisions and trees."""

from capi.plotting.gaps import draw_gaps
from capi.plotting.history import draw_history
from capi.plotting.regions import draw_decisions
from capi.plotting.style import add_legend, colour_of, marker_of, name_axes, new_figure, stack_bars
from capi.plotting.tree import draw_tree

__all__ = [
    "add_legend",
    "colour_of",
    "draw_decisions",
    "draw_gaps",
    "draw_history",
    "draw_tree",
    "marker_of",
    "name_axes",
    "new_figure",
    "stack_bars",
]
