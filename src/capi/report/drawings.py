"""Drawings of a policy's tree and of the map of its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from markupsafe import Markup

from capi.report.svg import BOLD, LETTER, SMALL, TOLD_APART, colour_of, line, rect, svg, text_at, ticks
from capi.report.wording import abbreviated, count_text, number_text, percent_text, short, without_middle

PAGE = 940.0  # width in pixels
NARROWEST, WIDEST = 104.0, 150.0  # width in pixels of the boxes of a tree
PADDING = 16.0  # pixels of a box that text leaves free
MOST_DOWN, MOST_ACROSS = 8, 16  # leaves of a tree that is drawn downwards, and to the right
MOST_LINES = 4  # in a box
LEAST_NUMBERED = 15.0  # pixels: smaller cells have no room for the number of their action
IMITATES = "not the policy itself, but a tree that imitates it"


def is_drawn(record: dict[str, Any]) -> bool:
    """Whether a tree is small enough for a drawing; others are shown as a list only."""
    return len(record["leaves"]) <= MOST_ACROSS


def tree_picture(record: dict[str, Any], own: bool = True, numbers: bool = False) -> Markup:
    """Return the drawing of a small tree; nodes carry their indices, so that the script can highlight a path.

    Trees of up to eight leaves grow downwards, larger ones to the right, so that both fit on a page. If the tree is not the policy's
    ``own``, the drawing says so, because drawings are copied without the text around them. With ``numbers``, leaves show the numbers of
    their actions.
    """
    nodes, leaves = record["nodes"], record["leaves"]
    place = _downwards(record) if len(leaves) <= MOST_DOWN else _to_the_right(record)
    most = int((place.width - PADDING) / LETTER)
    names = abbreviated([node["name"] for node in nodes if node["left"] >= 0], 2 * most)
    prefix = 3 if numbers else 0  # letters
    most_in_leaf = 2 * int((place.width - PADDING) / BOLD) - prefix
    words = abbreviated([node["text"] for node in nodes if node["left"] < 0], most_in_leaf)
    edges, boxes = [], []
    for number, node in enumerate(nodes):
        if node["left"] >= 0:
            for child, word in ((node["left"], "yes"), (node["left"] + 1, "no")):
                edges.append(
                    Markup('<path d="{}" class="edge" data-edge="{}"/>').format(place.edge(number, child), child)
                )
                edges.append(place.answer(number, child, word))
        x, y = place.corner[number]
        boxes.append(_node(node, number, x, y, place, names, words, numbers))
    width, height = place.size
    title = f"A decision tree with {len(leaves)} leaves; the rules below give the same as text"
    if not own:
        title = f"A tree that imitates the policy, with {len(leaves)} leaves"
        boxes.append(text_at(4, height + 14, IMITATES, "tick"))
    return svg(width, height + (0 if own else 20), title, [*edges, *boxes], "tree" if own else "tree imitates")


@dataclass(frozen=True)
class Places:
    """Where the boxes of a drawn tree are: their upper left corners, one size, and how they are joined."""

    corner: dict[int, tuple[float, float]]
    width: float
    height: float
    size: tuple[float, float]
    down: bool

    def edge(self, parent: int, child: int) -> str:
        """Return the path from a box to one below it or to its right."""
        (x, y), (cx, cy) = self.corner[parent], self.corner[child]
        if self.down:
            x, y, cx = x + self.width / 2, y + self.height, cx + self.width / 2
            half = (y + cy) / 2
            return f"M{x:.1f} {y:.1f} C{x:.1f} {half:.1f} {cx:.1f} {half:.1f} {cx:.1f} {cy:.1f}"
        x, y, cy = x + self.width, y + self.height / 2, cy + self.height / 2
        half = (x + cx) / 2
        return f"M{x:.1f} {y:.1f} C{half:.1f} {y:.1f} {half:.1f} {cy:.1f} {cx:.1f} {cy:.1f}"

    def answer(self, parent: int, child: int, word: str) -> Markup:
        """Return the word next to the end of an edge."""
        (x, y), (cx, cy) = self.corner[parent], self.corner[child]
        if self.down:
            before = cx < x
            return text_at(
                cx + self.width / 2 + (-6 if before else 6), cy - 7, word, "answer", "end" if before else "start"
            )
        return text_at(cx - 4, cy + self.height / 2 + (-5 if cy < y else 13), word, "answer", "end")


def _downwards(record: dict[str, Any]) -> Places:
    leaves, levels = record["leaves"], record["levels"]
    height, gap_x, gap_y = 70.0, 10.0, 46.0
    width = min(max(PAGE / len(leaves) - gap_x, NARROWEST), WIDEST)
    whole = max(len(leaves) * (width + gap_x), 2 * width)
    shift = (whole - len(leaves) * (width + gap_x)) / 2 + gap_x / 2
    middle = _middles(record, width + gap_x)
    corner = {node: (shift + middle[node], 4 + level * (height + gap_y)) for node, level in enumerate(levels)}
    return Places(corner, width, height, (whole, 8 + max(levels) * (height + gap_y) + height), True)


def _to_the_right(record: dict[str, Any]) -> Places:
    leaves, levels = record["leaves"], record["levels"]
    height, gap_y = 54.0, 6.0
    n_columns = max(levels) + 1
    gap_x = 34.0
    width = min((PAGE + gap_x) / n_columns - gap_x, 200.0)
    middle = _middles(record, height + gap_y)
    corner = {node: (4 + level * (width + gap_x), 4 + middle[node]) for node, level in enumerate(levels)}
    return Places(
        corner, width, height, (8 + n_columns * (width + gap_x) - gap_x, 4 + len(leaves) * (height + gap_y)), False
    )


def _middles(record: dict[str, Any], step: float) -> dict[int, float]:
    """Return the place of each node along the leaves: leaves follow each other, other nodes are between their children."""
    middle = {leaf: i * step for i, leaf in enumerate(record["leaves"])}
    for number in range(len(record["nodes"]) - 1, -1, -1):
        left = record["nodes"][number]["left"]
        if left >= 0:
            middle[number] = (middle[left] + middle[left + 1]) / 2
    return middle


def _node(
    node: dict[str, Any], number: int, x: float, y: float, place: Places, names: Any, words: Any, numbered: bool
) -> Markup:
    """Return a box of the tree: what is compared with what, or the decision and its share of the rows."""
    leaf = node["left"] < 0
    width, height = place.width, place.height
    most = int((width - PADDING) / (BOLD if leaf else LETTER))
    if leaf:
        prefix = f"{node['action'] + 1} " if numbered else ""
        lines = in_two(prefix + words[node["text"]], most)
        kinds = ["strong"] * len(lines)
        if node["rows"] is not None:
            lines, kinds = [*lines, f"{percent_text(node['share'])} of rows"], [*kinds, "faint"]
    else:
        name, rest = names[node["name"]], node["text"].removeprefix(node["name"]).strip()
        lines = wrapped(f"{name} {rest}", most, MOST_LINES) if node["text"] == f"{name} {rest}" else []
        if not lines or lines[-1].endswith("…"):
            lines = [*in_two(name, most), *wrapped(rest, most, 2)]
        kinds = [""] * len(lines)
    start = y + height / 2 - (len(lines) - 1) * 7.5 + 4
    texts = [
        text_at(x + width / 2, start + i * 15, line, kind, "middle")
        for i, (line, kind) in enumerate(zip(lines, kinds, strict=True))
    ]
    rows = "" if not leaf or node["rows"] is None else f" ({count_text(node['rows'])} rows)"
    stripe = rect(x, y, 5, height, f"fill {colour_of(node['action'])}") if leaf else Markup("")
    return Markup('<g class="node {}" data-node="{}"><title>{}</title>{}{}{}</g>').format(
        "leaf" if leaf else "split",
        number,
        node["text"] + rows,
        rect(x, y, width, height, "box", radius=0 if leaf else 8),
        stripe,
        Markup("").join(texts),
    )


def in_two(text: str, most: int) -> list[str]:
    """Return a text of up to twice ``most`` characters in at most two lines, broken within a word if necessary."""
    lines = wrapped(text, most, 3)
    return lines if len(lines) < 3 else [text[:most], without_middle(text[most:], most)]


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
    width, height = 400.0, 260.0 if len(axes) > 1 else 60.0
    right, top, bottom = left + width, 8.0, 8.0 + height
    cells, numbers = [], []
    for y, rows, first, n, action, backed in _blocks(record["runs"]):
        x0, y0 = left + first * width / nx, bottom - (y + rows) * height / ny
        kind = f"fill {colour_of(action)}{'' if backed else ' pale'}"
        where = "" if backed else " (few or no rows here)"
        cells.append(rect(x0, y0, n * width / nx, rows * height / ny, kind, f"{actions[action]}{where}"))
        if len(actions) > TOLD_APART and min(n * width / nx, rows * height / ny) >= LEAST_NUMBERED:
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
            ).format((top + bottom) / 2, without_middle(axes[1]["name"], 38))
        )
    marks.append(text_at((left + right) / 2, bottom + 34, without_middle(axes[0]["name"], 56), "name", "middle"))
    names = " and ".join(axis["name"] for axis in axes)
    # Without outlines, neighbours with the same colour would look like one.
    kind = "map outlined" if len(actions) > TOLD_APART else "map"
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
        shown = abbreviated(axis["words"], 14)
        return [((i + 0.5) / n, shown[word]) for i, word in enumerate(axis["words"])]
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
