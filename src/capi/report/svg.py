"""Building blocks of pictures as inline SVG, with real text and colours set by the style sheet through classes.

Everything from the table enters as escaped text; `Markup` joins only escaped parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from markupsafe import Markup

N_COLOURS = 16
TOLD_APART = 8  # actions that colours alone tell apart; more get numbers as well
SMALLEST = 1e-290  # smaller differences have too few digits to divide by
LETTER = 6.6  # width in pixels of a 12 px character
SMALL = 6.2  # of an 11 px character
BOLD = 7.6  # of a bold 12 px character


def svg(width: float, height: float, title: str, parts: Sequence[Markup], kind: str) -> Markup:
    """Return a picture with a description for screen readers."""
    return Markup(
        '<svg class="picture {}" viewBox="0 0 {:g} {:g}" width="{:g}" height="{:g}" role="img" aria-label="{}">{}</svg>'
    ).format(kind, width, height, width, height, title, Markup("").join(parts))


def text_at(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> Markup:
    """Return a text element; ``kind`` is its class."""
    return Markup('<text x="{:g}" y="{:g}" class="{}" text-anchor="{}">{}</text>').format(
        round(x, 2), round(y, 2), kind, anchor, text
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> Markup:
    """Return a line from one point to another."""
    return Markup('<line x1="{:g}" y1="{:g}" x2="{:g}" y2="{:g}" class="{}"/>').format(
        round(x1, 2), round(y1, 2), round(x2, 2), round(y2, 2), kind
    )


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "", radius: float = 0) -> Markup:
    """Return a rectangle with an optional tooltip."""
    inside = Markup("<title>{}</title>").format(title) if title else Markup("")
    return Markup('<rect x="{:g}" y="{:g}" width="{:g}" height="{:g}" rx="{:g}" class="{}">{}</rect>').format(
        round(x, 2), round(y, 2), round(width, 2), round(height, 2), radius, kind, inside
    )


def colour_of(action: int) -> str:
    """Return the class that colours an action."""
    return f"a{action % N_COLOURS}"


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers between two ends, in at most ``most`` steps."""
    rough = high / most - low / most
    if not SMALLEST < rough < 1 / SMALLEST:
        return [low]
    power = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = ceil(low / step - 1e-9)
    last = floor(high / step + 1e-9)
    decimals = max(0, 1 - floor(log10(step)))
    found = [round(i * step, decimals) for i in range(first, last + 1)]
    slack = 1e-9 * (high - low)
    return [x for x in dict.fromkeys(found) if low - slack <= x <= high + slack]


def dot(x: float, y: float, radius: float, kind: str, title: str) -> Markup:
    """Return a filled circle with a tooltip."""
    return Markup('<circle cx="{:g}" cy="{:g}" r="{:g}" class="{}"><title>{}</title></circle>').format(
        round(x, 2), round(y, 2), radius, kind, title
    )


def mark_below(x: float, y: float, text: str) -> tuple[Markup, Markup]:
    """Return a tick below an axis and its number."""
    return line(x, y, x, y + 4), text_at(x, y + 16, text, "tick", "middle")


def mark_left(left: float, right: float, y: float, text: str) -> tuple[Markup, Markup]:
    """Return a horizontal grid line and the number to its left."""
    return line(left, y, right, y, "grid"), text_at(left - 6, y + 4, text, "tick", "end")
