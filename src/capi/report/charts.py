"""Charts: histograms, lines over iterations, and estimates with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import floor, isfinite, log10
from typing import Any

from markupsafe import Markup

from capi.report.svg import SMALL, SMALLEST, dot, line, mark_below, mark_left, rect, svg, text_at, ticks
from capi.report.wording import MINUS, number_text, percent_text, without_middle

MOST_DOTS = 60
LARGEST = 1e150  # larger numbers are left out of pictures
CONSTANT = 1e-9  # relative to the size: a smaller range counts as constant
LONGEST_LABEL = 64  # characters


def histogram_picture(record: dict[str, Any], width: float = 260, height: float = 84) -> Markup:
    """Return the histogram of a column, with the ends of its range below."""
    edges, shares = record["edges"], record["shares"]
    marks = [log10(e) for e in edges] if record.get("log") else edges
    places = [(mark - marks[0]) / (marks[-1] - marks[0] or 1.0) * width for mark in marks]
    density = [s / max(b - a, 1e-9) for s, a, b in zip(shares, places[:-1], places[1:], strict=True)]
    top, floor_y = max(density) or 1.0, height - 20
    names = record.get("names") or [number_text(edge) for edge in edges]
    bars = []
    for i, (share, dense) in enumerate(zip(shares, density, strict=True)):
        tall = max(dense / top * (floor_y - 4), 1.0 if share > 0 else 0.0)
        gap = 1.0 if places[i + 1] - places[i] > 3 else 0.0
        title = f"{names[i]} to {names[i + 1]}: {percent_text(share)}"
        bars.append(rect(places[i], floor_y - tall, places[i + 1] - places[i] - gap, tall, "bar", title))
    ends = record.get("ends") or [names[0], names[-1]]
    labels = [text_at(0, height - 5, ends[0], "tick"), text_at(width, height - 5, ends[1], "tick", "end")]
    if record.get("log"):
        labels.append(text_at(width / 2, height - 5, "logarithmic", "tick faint", "middle"))
    title = f"Histogram of {record['name']} from {ends[0]} to {ends[1]}"
    return svg(width, height, title, [*bars, line(0, floor_y, width, floor_y), *labels], "histogram")


def gap_picture(stakes: dict[str, Any], width: float = 480, height: float = 210) -> Markup:
    """Return the histogram of the action gap, with the limit up to which the choice matters little."""
    edges, shares = stakes["edges"], stakes["shares"]
    left, right, top, bottom = 52.0, width - 10, 26.0, height - 38
    span = edges[-1] - edges[0] or 1.0
    narrow = min(b - a for a, b in pairwise(edges)) or span
    tall = [s * narrow / (b - a or narrow) for s, a, b in zip(shares, edges[:-1], edges[1:], strict=True)]
    most = max(tall) or 1.0

    def x(value: float) -> float:
        return left + (value - edges[0]) / span * (right - left)

    def y(share: float) -> float:
        return bottom - share / most * (bottom - top)

    parts = [m for t in ticks(0, most, 3) for m in mark_left(left, right, y(t), percent_text(t))]
    for i, share in enumerate(shares):
        kind = "bar minor" if edges[i + 1] <= stakes["limit"] else "bar"
        title = f"gap {number_text(edges[i])} to {number_text(edges[i + 1])}: {percent_text(share)} of decisions"
        wide = max(x(edges[i + 1]) - x(edges[i]) - 1, 0.5)
        parts.append(rect(x(edges[i]), y(tall[i]), wide, bottom - y(tall[i]), kind, title))
    parts.append(line(left, bottom, right, bottom))
    parts += [m for t in ticks(edges[0], edges[-1]) for m in mark_below(x(t), bottom, number_text(t))]
    if stakes["limit"] < edges[-1]:
        at = x(stakes["limit"])
        parts += [
            line(at, 4, at, bottom, "limit"),
            text_at(at + 6, 13, "left of this line the choice matters little", "tick"),
        ]
    parts.append(
        text_at((left + right) / 2, height - 4, "action gap (the last bar includes all larger gaps)", "tick", "middle")
    )
    return svg(width, height, "Distribution of the action gap over the logged decisions", parts, "gaps")


def line_picture(
    xs: Sequence[float | None],
    ys: Sequence[float | None],
    title: str,
    *,
    percent: bool = False,
    kept: int | None = None,
    width: float = 320,
    height: float = 170,
) -> Markup:
    """Return a line over iterations; iterations without a number are left out, and the one that was kept is marked."""
    known = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None and isfinite(y)]
    points = [(x, y) for x, y in known if abs(y) < LARGEST]
    if not points:
        return Markup("")
    text = _whole_percent if percent else number_text
    low, high = (0.0 if percent else min(y for _, y in points)), max(y for _, y in points)
    size = max(abs(low), abs(high))
    if high - low <= CONSTANT * size or size < SMALLEST:
        low, high = (low - 0.5 * size, high + 0.5 * size) if size >= SMALLEST else (0.0, 1.0)
    marks = ticks(low, high, 4)
    left = 12 + SMALL * max([len(text(m)) for m in marks] or [1])
    right, top, bottom = width - 10, 10.0, height - 34
    first, last = points[0][0], points[-1][0]

    def x(k: float) -> float:
        return left + (k - first) / ((last - first) or 1) * (right - left)

    def y(value: float) -> float:
        return bottom - (value - low) / (high - low) * (bottom - top)

    parts = [m for v in marks for m in mark_left(left, right, y(v), text(v))]
    steps = sorted({floor(t) for t in ticks(first + 1, last + 1, 6)} | {int(first) + 1})
    parts += [text_at(x(s - 1), bottom + 15, str(s), "tick", "middle") for s in steps if first <= s - 1 <= last]
    if kept is not None and first <= kept - 1 <= last:
        parts.append(line(x(kept - 1), top, x(kept - 1), bottom, "limit"))
    path = " ".join(f"{'M' if i == 0 else 'L'}{x(a):.2f} {y(b):.2f}" for i, (a, b) in enumerate(points))
    parts.append(Markup('<path d="{}" class="line"/>').format(path))
    if len(points) <= MOST_DOTS:
        parts += [dot(x(a), y(b), 2.4, "dot", f"iteration {int(a) + 1}: {text(b)}") for a, b in points]
    parts.append(text_at((left + right) / 2, height - 4, "iteration", "tick", "middle"))
    marked = "" if kept is None else f"; iteration {kept} was kept"
    alt = f"{title} by iteration, from {text(points[0][1])} to {text(points[-1][1])}{marked}"
    return svg(width, height, alt, parts, "lines")


def _whole_percent(share: float) -> str:
    return percent_text(share) if abs(share) > 1 else f"{100 * share:.3g} %".replace("-", MINUS)


def interval_picture(rows: Sequence[dict[str, Any]], *, zero: bool = False) -> Markup:
    """Return estimates as dots with intervals as whiskers, one row per estimate, each below its label.

    ``rows`` have ``label``, ``estimate``, ``low``, ``high`` and ``kind``, a class; with ``zero`` there is a line at zero.
    """
    rows = [_drawn(row) for row in rows if row["estimate"] is not None and abs(row["estimate"]) < LARGEST]
    numbers = [v for row in rows for v in (row["estimate"], row["low"], row["high"]) if v is not None]
    if not numbers:
        return Markup("")
    low, high = min(numbers + ([0.0] if zero else [])), max(numbers + ([0.0] if zero else []))
    margin = max(0.05 * (high - low), CONSTANT * max(abs(low), abs(high))) if high > low else 0.5 * abs(high)
    margin = margin if margin >= SMALLEST else 1.0
    low, high = low - margin, high + margin
    left, step = 14.0, 42.0
    width, bottom = 460.0, 8 + step * len(rows)

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - 16)

    parts = [line(x(t), 4, x(t), bottom, "grid") for t in ticks(low, high, 4)]
    parts += [text_at(x(t), bottom + 15, number_text(t), "tick", "middle") for t in ticks(low, high, 4)]
    if zero:
        parts.append(line(x(0), 4, x(0), bottom, "limit"))
    for i, row in enumerate(rows):
        y = 8 + step * i + 29
        parts.append(
            Markup('<text x="{:g}" y="{:g}" class="name">{}<title>{}</title></text>').format(
                left - 10, y - 13, without_middle(row["label"], LONGEST_LABEL), row["label"]
            )
        )
        if row["low"] is not None and row["high"] is not None:
            parts.append(line(x(row["low"]), y, x(row["high"]), y, f"whisker {row['kind']}"))
            parts += [line(x(end), y - 5, x(end), y + 5, f"whisker {row['kind']}") for end in (row["low"], row["high"])]
        parts.append(dot(x(row["estimate"]), y, 4.5, f"estimate {row['kind']}", number_text(row["estimate"])))
    words = "; ".join(f"{row['label']}: {number_text(row['estimate'])}" for row in rows)
    return svg(width, bottom + 22, f"Estimates with intervals. {words}", parts, "intervals")


def _drawn(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without interval ends that are too large to draw."""
    return {**row, **{end: None for end in ("low", "high") if row[end] is not None and abs(row[end]) >= LARGEST}}
