"""Drawings of a policy's tree and of the map of its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

from markupsafe import Markup

from capi.report.svg import BOLD, LETTER, N_COLOURS, SMALL, colour_of, line, rect, svg, text_at, ticks
from capi.report.wording import count_text, number_text, percent_text, short

PAGE = 950.0  # width in pixels
NARROWEST, WIDEST = 104.0, 150.0  # width in pixels of the boxes of a tree
LEAST_NUMBERED = 15.0  # pixels: smaller cells have no room for the number of their action
IMITATES = "not the policy itself, but a tree that imitates it"


def tree_picture(record: dict[str, Any], own: bool = True) -> Markup:
    """Return the drawing of a small tree; nodes carry their indices, so that the script can highlight a path.

    If the tree is not the policy's ``own``, the drawing says so, because drawings are copied without the text around them.
    """
    nodes, levels, leaves = record["nodes"], record["levels"], record["leaves"]
    box_height, gap_x, gap_y = 58.0, 10.0, 46.0
    box_width = min(max(PAGE / len(leaves) - gap_x, NARROWEST), WIDEST)
    middle: dict[int, float] = {leaf: (i + 0.5) * (box_width + gap_x) for i, leaf in enumerate(leaves)}
    for number in range(len(nodes) - 1, -1, -1):
        left = nodes[number]["left"]
        if left >= 0:
            middle[number] = (middle[left] + middle[left + 1]) / 2
    width = max(len(leaves) * (box_width + gap_x), 2 * box_width)
    shift = (width - len(leaves) * (box_width + gap_x)) / 2

    def top(number: int) -> float:
        return 4 + levels[number] * (box_height + gap_y)

    height = 8 + max(levels) * (box_height + gap_y) + box_height
    edges, boxes = [], []
    for number, node in enumerate(nodes):
        x, y = middle[number] + shift, top(number)
        if node["left"] >= 0:
            for child, word in ((node["left"], "yes"), (node["left"] + 1, "no")):
                cx, cy = middle[child] + shift, top(child)
                half = (y + box_height + cy) / 2
                path = f"M{x:.1f} {y + box_height:.1f} C{x:.1f} {half:.1f} {cx:.1f} {half:.1f} {cx:.1f} {cy:.1f}"
                edges.append(Markup('<path d="{}" class="edge" data-edge="{}"/>').format(path, child))
                edges.append(text_at(cx + (-6 if cx < x else 6), cy - 7, word, "answer", "end" if cx < x else "start"))
        boxes.append(_node(node, number, x, y, box_width, box_height))
    title = f"A decision tree with {len(leaves)} leaves; the rules below give the same as text"
    if not own:
        title = f"A tree that imitates the policy, with {len(leaves)} leaves"
        boxes.append(text_at(4, height + 14, IMITATES, "tick"))
    return svg(width, height + (0 if own else 20), title, [*edges, *boxes], "tree" if own else "tree imitates")


def _node(node: dict[str, Any], number: int, x: float, y: float, width: float, height: float) -> Markup:
    """Return a box of the tree with its text in at most three lines."""
    leaf = node["left"] < 0
    most = int((width - 16) / (BOLD if leaf else LETTER))
    lines = wrapped(node["text"], most, 2 if leaf else 3)
    kinds = ["strong" if leaf else ""] * len(lines)
    if leaf:
        shares = [] if node["rows"] is None else [f"{percent_text(node['share'])} of rows"]
        lines, kinds = [*lines, *shares], [*kinds, *(["faint"] * len(shares))]
    start = y + height / 2 - (len(lines) - 1) * 7.5 + 4
    texts = [
        text_at(x, start + i * 15, line, kind, "middle")
        for i, (line, kind) in enumerate(zip(lines, kinds, strict=True))
    ]
    rows = "" if not leaf or node["rows"] is None else f" ({count_text(node['rows'])} rows)"
    stripe = rect(x - width / 2, y, 5, height, f"fill {colour_of(node['action'])}") if leaf else Markup("")
    return Markup('<g class="node {}" data-node="{}"><title>{}</title>{}{}{}</g>').format(
        "leaf" if leaf else "split",
        number,
        node["text"] + rows,
        rect(x - width / 2, y, width, height, "box", radius=0 if leaf else 8),
        stripe,
        Markup("").join(texts),
    )


def wrapped(text: str, most: int, lines: int) -> list[str]:
    """Return a text wrapped to at most ``lines`` lines of ``most`` characters; long words are broken, the rest is truncated."""
    found: list[str] = []
    rest = " ".join(text.split())
    while rest and len(found) < lines:
        if len(rest) <= most:
            found.append(rest)
            return found
        if len(found) == lines - 1:
            found.append(short(rest, most))
            return found
        at = rest.rfind(" ", 0, most + 1)
        at = at if at > most // 3 else most
        found.append(rest[:at])
        rest = rest[at:].lstrip()
    return found or [""]


def map_picture(record: dict[str, Any], actions: Sequence[str]) -> Markup:
    """Return the decisions over one or two columns as coloured cells; pale where the table has few or no rows."""
    ny, nx = record["shape"]
    axes = record["axes"]
    left = 16.0 if len(axes) < 2 else 30 + SMALL * max(len(t) for t in _axis_labels(axes[1]))
    width, height = 480.0, 300.0 if len(axes) > 1 else 60.0
    right, top, bottom = left + width, 8.0, 8.0 + height
    cells, numbers = [], []
    for y, rows, first, n, action, backed in _blocks(record["runs"]):
        x0, y0 = left + first * width / nx, bottom - (y + rows) * height / ny
        kind = f"fill {colour_of(action)}{'' if backed else ' pale'}"
        where = "" if backed else " (few or no rows here)"
        cells.append(rect(x0, y0, n * width / nx, rows * height / ny, kind, f"{actions[action]}{where}"))
        if len(actions) > N_COLOURS and min(n * width / nx, rows * height / ny) >= LEAST_NUMBERED:
            middle = x0 + n * width / nx / 2, y0 + rows * height / ny / 2 + 4
            numbers.append(text_at(*middle, str(action + 1), "number", "middle"))
    frame = [line(left, bottom, right, bottom), line(left, top, left, bottom)]
    marks = []
    for place, label in _axis_marks(axes[0]):
        at = left + place * width
        marks += [line(at, bottom, at, bottom + 4), text_at(at, bottom + 16, label, "tick", _edge_anchor(place))]
    if len(axes) > 1:
        for place, label in _axis_marks(axes[1]):
            at = bottom - place * height
            marks += [line(left - 4, at, left, at), text_at(left - 7, at + 4, label, "tick", "end")]
        marks.append(
            Markup(
                '<text class="name" text-anchor="middle" transform="translate(12 {:g}) rotate(-90)">{}</text>'
            ).format((top + bottom) / 2, short(axes[1]["name"], 44))
        )
    marks.append(text_at((left + right) / 2, bottom + 34, short(axes[0]["name"], 60), "name", "middle"))
    names = " and ".join(axis["name"] for axis in axes)
    # Without outlines, neighbours with the same colour would look like one.
    kind = "map outlined" if len(actions) > N_COLOURS else "map"
    return svg(right + 14, bottom + 42, f"Decisions over {names}", [*cells, *numbers, *frame, *marks], kind)


def _blocks(runs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return vertically adjacent equal runs merged into blocks: [y, number of rows, first cell, number of cells, action, backed]."""
    blocks: list[list[int]] = []
    open_blocks: dict[tuple[int, ...], list[int]] = {}
    for y, *run in runs:
        block = open_blocks.get(tuple(run))
        if block is not None and block[0] + block[1] == y:
            block[1] += 1
        else:
            block = [y, 1, *run]
            blocks.append(block)
            open_blocks[tuple(run)] = block
    return blocks


def _edge_anchor(place: float) -> str:
    return "start" if place < 0.02 else "end" if place > 0.98 else "middle"


def _axis_marks(axis: dict[str, Any]) -> list[tuple[float, str]]:
    """Return the positions along an axis, from 0 to 1, and their labels."""
    if "words" in axis:
        n = len(axis["words"])
        return [((i + 0.5) / n, short(word, 14)) for i, word in enumerate(axis["words"])]
    low, high = axis["low"], axis["high"]
    if axis["ends"]:
        return [(0.0, axis["ends"][0]), (1.0, axis["ends"][1])]
    if axis["log"]:
        first, last = ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9)
        span = log10(high) - log10(low)
        step = max(1, ceil((last - first) / 5))
        return [((e - log10(low)) / span, number_text(10.0**e)) for e in range(first, last + 1, step)]
    return [((t - low) / (high - low), number_text(t)) for t in ticks(low, high)]


def _axis_labels(axis: dict[str, Any]) -> list[str]:
    return [label for _, label in _axis_marks(axis)] or [""]
