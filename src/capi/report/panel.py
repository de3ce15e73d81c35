"""What the page's script needs to decide: the program, the columns to set, examples and, if asked for, cases."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from capi.files.exports.program import Program
from capi.report.flat import program_record
from capi.report.ranges import column_record, thinned, typical
from capi.report.sources import Sources
from capi.report.wording import FEW, conditions, label_texts
from capi.validation import Floats

MOST_LETTERS = 3_000_000  # of a program, so that the page stays below 5 MB
MOST_CASES = 2000
MOST_CASE_LETTERS = 800_000
MOST_EXAMPLES = 12
MOST_WORD_LETTERS = 500_000
MOST_SPOKEN = 4000  # nodes whose conditions are written out


def panel_record(sources: Sources, *, include_cases: bool) -> dict[str, Any] | None:
    """Return the panel, None if the policy must be told what is allowed."""
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
    return {
        "exact": exact,
        "fidelity": 1.0 if exact else sources.told.fidelity,
        "drawn": program is sources.told.program,
        "actions": label_texts(sources.schema.action_labels),
        "n_features": sources.batch.n_features,
        "columns": columns,
        "policy": record,
        "words": _words(sources, program, record),
        "examples": _examples(sources, columns),
        "cases": _cases(sources, columns) if include_cases else None,
    }


def _program(sources: Sources) -> tuple[Program, dict[str, Any], bool]:
    """Return the program that the page holds, its record, and whether it is the policy itself."""
    program = sources.program
    if program is not None:
        record = program_record(program)
        if len(json.dumps(record, separators=(",", ":"))) <= MOST_LETTERS:
            return program, record, True
    return sources.told.program, program_record(sources.told.program), False


def _words(sources: Sources, program: Program, record: dict[str, Any]) -> list[list[str]] | None:
    """Return the words of both sides of each split of a single tree, which the page shows as the way down."""
    if len(program.trees) != 1 or len(record["trees"][0]["f"]) > MOST_SPOKEN:
        return None
    tree = record["trees"][0]
    words = [
        list(conditions(sources.schema, j, float(cut), bool(missing), sources.with_missing)) if j >= 0 else []
        for j, cut, missing in zip(tree["f"], tree["t"], tree["m"], strict=True)
    ]
    return words if sum(len(text) for pair in words for text in pair) <= MOST_WORD_LETTERS else None


def _examples(sources: Sources, columns: list[dict[str, Any]]) -> list[list[Any]]:
    """Return rounded medians of the rows in each leaf, the fullest leaves first: states that are nobody's own."""
    told = sources.told
    rows_of = {leaf: np.flatnonzero(told.leaf_of_row == leaf) for leaf in told.tree.leaves}
    full = sorted((leaf for leaf in rows_of if len(rows_of[leaf]) >= FEW), key=lambda leaf: -len(rows_of[leaf]))
    examples = []
    for leaf in full[:MOST_EXAMPLES]:
        states = sources.batch.states[thinned(rows_of[leaf])]
        examples.append([_typical(sources, column, states) for column in columns])
    return examples


def _typical(sources: Sources, record: dict[str, Any], states: Floats) -> Any:
    features = states[:, record["start"] : record["start"] + record["width"]]
    return typical(sources.schema.columns[record["number"]], features, record)


def _cases(sources: Sources, columns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a sample of rows: the features of the panel's columns, what was done, and the reward."""
    n = len(sources.batch)
    features = [j for column in columns for j in range(column["start"], column["start"] + column["width"])]
    most = max(1, MOST_CASE_LETTERS // (12 * (len(features) + 2)))
    rows = np.sort(np.random.default_rng(0).choice(n, min(n, MOST_CASES, most), replace=False))
    states = sources.batch.states[rows][:, features]
    with np.errstate(invalid="ignore"):
        deviation = np.array([float(np.nanstd(column)) if not np.isnan(column).all() else 0.0 for column in states.T])
    return {
        "n_rows": n,
        "features": features,
        "unit": [d if np.isfinite(d) and d > 0 else 1.0 for d in deviation.tolist()],
        "states": [[None if np.isnan(x) else float(f"{x:.12g}") for x in row] for row in states],
        "actions": sources.batch.actions[rows].tolist(),
        "rewards": sources.batch.rewards[rows].tolist(),
    }
