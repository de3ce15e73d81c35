"""What a selection tried, as the page shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capi.report.costs import negative
from capi.report.evaluation import number_or_none
from capi.report.wording import short
from capi.runs.select import read_selection
from capi.selection.result import BEHAVIOUR

MOST_ROWS, LONGEST_NAME, LONGEST_SENTENCE = 50, 80, 1200  # candidates; characters


def selection_record(folder: Path, *, is_cost: bool = False) -> dict[str, Any] | None:
    """Return the candidates of a run, the best first, and the sentence of the test; None if the run did not select."""
    found = read_selection(folder)
    if found is None:
        return None
    tried = [one for one in _list(found.get("tried")) if isinstance(one, dict)]
    rows: list[dict[str, Any]] = [
        {
            "name": short(str(one.get("name", "")), LONGEST_NAME),
            "rough": number_or_none(one.get("rough")),
            "value": number_or_none(one.get("value")),
            "error": number_or_none(one.get("standard_error")),
            "left": number_or_none(one.get("left")),
            "fate": short(str(one.get("fate", "")), LONGEST_NAME),
            "main": one.get("name") == found.get("returned"),
        }
        for one in tried
    ]
    rows.sort(key=lambda row: tuple(-(row[key] if row[key] is not None else -1e308) for key in ("value", "rough")))
    if is_cost:
        rows = [{**row, "rough": negative(row["rough"]), "value": negative(row["value"])} for row in rows]
    gate = found.get("gate") if isinstance(found.get("gate"), dict) else {}
    gate = dict(gate or {})
    return {
        "rows": rows[:MOST_ROWS],
        "is_behaviour": found.get("returned") == BEHAVIOUR,
        "untested": gate.get("verdict") == "cannot be tested",
        "sentence": short(str(gate.get("sentence", "")), LONGEST_SENTENCE),
        "returned": short(str(found.get("returned", "")), LONGEST_NAME),
        "score": short(str(found.get("score", "")), LONGEST_NAME),
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
