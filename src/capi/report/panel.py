"""Data for the page's script: the program, the columns to set, examples and, if requested, cases."""

from __future__ import annotations

import json
from math import floor
from typing import Any

import numpy as np

from capi._utils.validation import Floats
from capi.data.columns import DAY, Column
from capi.files.exports.program import Program
from capi.report.columns import column_record, thinned, typical
from capi.report.program_record import program_record
from capi.report.sources import Sources
from capi.report.wording import FEW, conditions, label_texts, numbered, short

MOST_LETTERS = 2_400_000  # of a program: with everything below, the page stays under 5 MB
MOST_CASES = 2000
MOST_CASE_LETTERS = 800_000
MOST_EXAMPLES = 12
MOST_WORD_LETTERS = 500_000
MOST_LISTED_LETTERS = 400_000  # of all listed categories
SHORT = 20  # characters of an action's name if there are very many
MOST_SPOKEN = 4000  # most nodes whose conditions are written out


def panel_record(sources: Sources, *, include_cases: bool) -> dict[str, Any] | None:
    """Return the panel, or None if the policy needs masks of allowed actions."""
    if sources.masked:
        return None
    program, record, exact = _program(sources)
    owner = [number for number, column in enumerate(sources.schema.columns) for _ in column.feature_names]
    used = sorted({owner[j] for j in program.used})
    starts = np.cumsum([0, *(len(column.feature_names) for column in sources.schema.columns)])
    states = sources.batch.states
    columns = []
    for number, column in enumerate(sources.schema.columns):
        features = states[:, starts[number] : starts[number + 1]]
        if number in used:
            columns.append({**column_record(column, features, int(starts[number])), "number": number})
    _cut_lists(columns)
    words = _words(sources, program, record)
    days = {int(starts[n]): column for n, column in enumerate(sources.schema.columns) if column.kind == "date"}
    _count_from_1970(record, days)
    return {
        "exact": exact,
        "fidelity": 1.0 if exact else sources.shown.fidelity,
        "drawn": program is sources.shown.program,
        "actions": _action_names(sources),
        "n_features": sources.batch.n_features,
        "columns": columns,
        "policy": record,
        "words": words,
        "examples": [] if sources.tiny else _examples(sources, columns),
        "cases": _cases(sources, columns, days) if include_cases else None,
    }


def _program(sources: Sources) -> tuple[Program, dict[str, Any], bool]:
    """Return the program that the page embeds, its record, and whether it is the policy itself."""
    program = sources.program
    if program is not None:
        record = program_record(program)
        if len(json.dumps(record, separators=(",", ":"))) <= MOST_LETTERS:
            return program, record, True
    return sources.shown.program, program_record(sources.shown.program), False


def _cut_lists(columns: list[dict[str, Any]]) -> None:
    """Drop categories from the ends of the longest lists until all lists fit on the page."""
    lists = sorted((c for c in columns if "values" in c), key=lambda c: _letters(c["values"]))
    left = MOST_LISTED_LETTERS
    for i, column in enumerate(lists):
        share, values, used = left // (len(lists) - i), column["values"], 0
        for n, entry in enumerate(values):
            used += _letters(entry) + 1
            if used > share:
                column["values"], column["n_not_listed"] = values[:n], len(values) - n
                break
        left -= _letters(column["values"])


def _letters(value: Any) -> int:
    """Return an upper bound on the bytes that a value takes in the page, where some characters are written as six."""
    text = json.dumps(value, separators=(",", ":"))
    return len(text) + 5 * sum(text.count(sign) for sign in "<>&")


def _action_names(sources: Sources) -> list[str]:
    """Return the names of the actions, truncated if they would not all fit on the page."""
    names = label_texts(sources.schema.action_labels)
    return names if _letters(names) <= MOST_LISTED_LETTERS else numbered([short(name, SHORT) for name in names])


def _count_from_1970(record: dict[str, Any], days: dict[int, Column]) -> None:
    """Make date columns count microseconds from 1970, because their own origin is the earliest day of the table.

    ``days`` maps features to date columns.
    """
    for tree in record["trees"]:
        tree["t"] = [
            _last_at_most(days[j], t) if j in days and isinstance(t, float) else t
            for j, t in zip(tree["f"], tree["t"], strict=True)
        ]
    for rule in record["forbidden"]:
        rule["high"] = [
            [j, _last_at_most(days[j], x) if j in days and isinstance(x, float) else x] for j, x in rule["high"]
        ]
        rule["low"] = [
            [j, _first_at_least(days[j], x) if j in days and isinstance(x, float) else x] for j, x in rule["low"]
        ]
    for j, column in days.items():
        if record["scores"] is not None and j < len(record["scores"]["origin"]):
            record["scores"]["origin"][j] = record["scores"]["origin"][j] * DAY + column.origin_microseconds
            record["scores"]["unit"][j] *= DAY


def _last_at_most(column: Column, days: float) -> int:
    """Return the last point in time at most ``days`` after the origin, in microseconds since 1970.

    Points are compared as the policy sees them: in days with a rounded fraction.
    """
    whole = floor(days)
    low, high = 0, DAY - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if whole + middle / DAY <= days else (low, middle - 1)
    return column.origin_microseconds + whole * DAY + low


def _first_at_least(column: Column, days: float) -> int:
    """Return the first point in time at least ``days`` after the origin, in microseconds since 1970."""
    whole = floor(days)
    low, high = 0, DAY
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if whole + middle / DAY >= days else (middle + 1, high)
    return column.origin_microseconds + whole * DAY + low


def _words(sources: Sources, program: Program, record: dict[str, Any]) -> list[list[str]] | None:
    """Return the conditions of both sides of each split of a single tree, which the page shows as a path."""
    if len(program.trees) != 1 or len(record["trees"][0]["f"]) > MOST_SPOKEN:
        return None
    tree = record["trees"][0]
    words = [
        list(conditions(sources.display_schema, j, float(cut), bool(missing), sources.with_missing)) if j >= 0 else []
        for j, cut, missing in zip(tree["f"], tree["t"], tree["m"], strict=True)
    ]
    return words if _letters(words) <= MOST_WORD_LETTERS else None


def _examples(sources: Sources, columns: list[dict[str, Any]]) -> list[list[Any]]:
    """Return rounded medians of the rows in each leaf, the fullest leaves first; they identify no single row."""
    shown = sources.shown
    rows_of = {leaf: np.flatnonzero(shown.leaf_of_row == leaf) for leaf in shown.tree.leaves}
    full = sorted((leaf for leaf in rows_of if len(rows_of[leaf]) >= FEW), key=lambda leaf: -len(rows_of[leaf]))
    examples = []
    for leaf in full[:MOST_EXAMPLES]:
        states = sources.batch.states[thinned(rows_of[leaf])]
        examples.append([_typical(sources, column, states) for column in columns])
    return examples


def _typical(sources: Sources, record: dict[str, Any], states: Floats) -> Any:
    features = states[:, record["start"] : record["start"] + record["width"]]
    return typical(sources.schema.columns[record["number"]], features, record)


def _cases(sources: Sources, columns: list[dict[str, Any]], days: dict[int, Column]) -> dict[str, Any]:
    """Return a sample of rows: the features of the panel's columns, the logged action, and the reward."""
    n = len(sources.batch)
    features = [j for column in columns for j in range(column["start"], column["start"] + column["width"])]
    most = max(1, MOST_CASE_LETTERS // (12 * (len(features) + 2)))
    rows = np.sort(np.random.default_rng(0).choice(n, min(n, MOST_CASES, most), replace=False))
    states = sources.batch.states[rows][:, features]
    for place, j in enumerate(features):
        if j in days:
            states[:, place] = states[:, place] * DAY + days[j].origin_microseconds
    with np.errstate(invalid="ignore", over="ignore"):
        deviation = np.array([float(np.nanstd(column)) if not np.isnan(column).all() else 0.0 for column in states.T])
    return {
        "n_rows": n,
        "features": features,
        "unit": [d if np.isfinite(d) and d > 0 else 1.0 for d in deviation.tolist()],
        "states": [[None if np.isnan(x) else float(f"{x:.12g}") for x in row] for row in states],
        "actions": sources.batch.actions[rows].tolist(),
        "rewards": sources.batch.rewards[rows].tolist(),
    }
