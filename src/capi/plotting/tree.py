"""Draw a decision tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capi.errors import InvalidInputError
from capi.plotting.style import INK, PALE_INK, SMALL_TEXT_SIZE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEEPEST = 200  # levels; deeper trees do not fit on a page
LEAF_WIDTH, LEVEL_HEIGHT = 1.7, 0.9  # inches
FILL = {"leaf": "#E8F1FA", "node": "#FFFFFF"}


def draw_tree(tree: dict[str, Any], condition: Any, decision: Any) -> Figure:
    """Return a figure of a tree in nested dictionaries; ``condition`` and ``decision`` return the text of a node."""
    n_leaves, depth = _size(tree)
    if depth > DEEPEST:
        raise InvalidInputError(
            f"a tree that is drawn must have at most {DEEPEST} levels; it has {depth}. Use rules()."
        )
    figure, [axes] = new_figure(max(LEAF_WIDTH * n_leaves, 3.0), LEVEL_HEIGHT * (depth + 1))
    axes.set_axis_off()
    axes.set_xlim(0, n_leaves)
    axes.set_ylim(-depth - 0.5, 0.5)

    def draw(node: dict[str, Any], first: float, level: int) -> tuple[float, float]:
        """Draw a node and its subtree, whose leaves start at ``first``; return its position and where its leaves end."""
        if "action" in node:
            place, end = first + 0.5, first + 1.0
            text = "\n".join([decision(node), *support_of(node, 3)])
        else:
            left, middle = draw(node["then"], first, level + 1)
            right, end = draw(node["else"], middle, level + 1)
            place, text = (left + right) / 2, condition(node)
            for child, answer in ((left, "yes"), (right, "no")):
                axes.plot([place, child], [-level, -level - 1], color=PALE_INK, linewidth=1, zorder=1)
                middle_of_line = (place + child) / 2, -level - 0.5
                clear = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
                axes.text(
                    *middle_of_line,
                    answer,
                    ha="center",
                    va="center",
                    fontsize=SMALL_TEXT_SIZE - 1,
                    color=INK,
                    bbox=clear,
                )
        words: dict[str, Any] = {"fontsize": SMALL_TEXT_SIZE, "color": INK, "parse_math": False}
        box = {
            "boxstyle": "round,pad=0.3",
            "facecolor": FILL["leaf" if "action" in node else "node"],
            "edgecolor": PALE_INK,
        }
        axes.text(place, -level, text, ha="center", va="center", bbox=box, zorder=2, **words)
        return place, end

    draw(tree, 0.0, 0)
    return figure


def support_of(leaf: dict[str, Any], digits: int = 4) -> list[str]:
    """Return the number of states that a leaf was grown on, and their regret, as text."""
    if leaf["states"] is None:
        return ["support not given"]
    states = f"{leaf['states']} state{'' if leaf['states'] == 1 else 's'}"
    return [states] if leaf["regret"] is None else [states, f"regret {leaf['regret']:.{digits}g}"]


def _size(node: dict[str, Any]) -> tuple[int, int]:
    """Return the number of leaves and the depth of a tree."""
    n_leaves, depth, waiting = 0, 0, [(node, 0)]
    while waiting:
        each, level = waiting.pop()
        if "action" in each:
            n_leaves, depth = n_leaves + 1, max(depth, level)
        else:
            waiting += [(each["then"], level + 1), (each["else"], level + 1)]
    return n_leaves, depth
