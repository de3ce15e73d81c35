"""Estimates as text, tables and figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from capi.plotting.style import INK, PALE_INK, PALETTE, name_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capi.offline.estimate import Estimate

LOGGED = "the logged behaviour"
SMALLER = "values are costs: smaller is better"


def finite(value: float) -> float | None:
    """Return a number, or None if it is not finite."""
    return value if math.isfinite(value) else None


def number(value: float | None) -> str:
    """Return a number with four digits, or a dash if there is none."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


def span(interval: tuple[float, float]) -> str:
    """Return an interval as text."""
    low, high = interval
    return f"{number(low)} to {number(high)}" if math.isfinite(low) else "none"


def verdict(name: str, other: str, difference: Estimate, *, is_cost: bool) -> str:
    """Return a sentence on the ``difference`` of the value of a policy from that of another one."""
    low, high = difference.bootstrap
    level = f"{100 * difference.level:g} % interval"
    if not math.isfinite(low):
        return f"The data cannot distinguish {name} and {other}: there is no estimate with an interval."
    if low > 0:
        by = f": its cost is lower by {number(difference.value)}" if is_cost else f", by {number(difference.value)}"
        return f"{name} is better than {other}{by} ({level} {span((low, high))})."
    if high < 0 and is_cost:
        by = f"its cost is higher by {number(-difference.value)}"
        return f"{name} is worse than {other}: {by} ({level} {span((-high, -low))})."
    if high < 0:
        return f"{name} is worse than {other}, by {number(-difference.value)} ({level} {span((low, high))} of the difference)."
    start = f"There is no significant difference between {name} and {other}"
    if is_cost:
        less = f"a negative number means that {name} costs less"
        return f"{start}: {number(0.0 - difference.value)} ({level} {span((0.0 - high, 0.0 - low))}; {less})."
    return f"{start}: {number(difference.value)} ({level} {span((low, high))})."


def as_costs(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of rewards as costs: negative, with the ends of intervals exchanged."""
    turned = {"low": "high", "high": "low", "low_asymptotic": "high_asymptotic", "high_asymptotic": "low_asymptotic"}
    found = dict(line)
    for key in line:
        value = line.get(turned.get(key, key))
        if key in turned or key == "estimate":
            found[key] = None if value is None else 0.0 - value  # 0 stays 0, and does not become -0
    return found


def table(lines: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table of estimates."""
    names = [f"{line['policy']}, {line['method']}" for line in lines]
    width = max(map(len, names)) + 2
    head = f"  {'':<{width}}{'estimate':>10}{'s.e.':>10}{'bootstrap interval':>26}{'asymptotic':>26}"
    rows = [head]
    for name, line in zip(names, lines, strict=True):
        spans = (
            f"{number(line['low']):>12} to {number(line['high']):>10}",
            f"{number(line['low_asymptotic']):>12} to {number(line['high_asymptotic']):>10}",
        )
        rows.append(
            f"  {name:<{width}}{number(line['estimate']):>10}{number(line['standard_error']):>10}{spans[0]}{spans[1]}"
        )
    return rows


def drawn(lines: list[dict[str, Any]], level: float, title: str, headline: str | None = None) -> Figure:
    """Return a figure of estimates and their intervals, one line each; those of other methods are pale if there is a ``headline``."""
    figure, (axes,) = new_figure(6.5, 0.9 + 0.38 * len(lines))
    for place, line in enumerate(reversed(lines)):
        pale = headline is not None and line["method"] != headline
        colour = INK if line["policy"] == LOGGED else PALE_INK if pale else PALETTE[0]
        if line["estimate"] is None:
            axes.text(0.5, place, "no estimate", transform=axes.get_yaxis_transform(), ha="center", va="center")
            continue
        if line["low"] is not None:
            axes.plot([line["low"], line["high"]], [place, place], color=colour, linewidth=2, solid_capstyle="round")
        axes.plot([line["estimate"]], [place], marker="o", color=colour)
    axes.set_yticks(range(len(lines)), [f"{line['policy']}, {line['method']}" for line in reversed(lines)])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(-0.6, len(lines) - 0.4)
    name_axes(axes, x=f"value, with {100 * level:g} % interval", title=title)
    return figure
