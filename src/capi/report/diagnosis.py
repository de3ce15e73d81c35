"""The diagnosis of a run as the page shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capi.report.evaluation import number_or_none
from capi.report.run_records import read_run_record
from capi.report.wording import percent_text, short, shown_share
from capi.runs.diagnose import DIAGNOSIS, FORMAT

PARTS = {
    "evaluator": ("Estimated action values", "between two halves of the episodes"),
    "space": ("Policy space", "the best of all policies against this kind of policy, on other episodes"),
    "sample": ("Sample", "on held-out episodes, more than on those of learning"),
    "log": ("Leaving the log", "expected gain by actions that the log takes with a probability below 5 %"),
}
STABLE = {
    "same_root": "with the same column in the first split",
    "same_columns": "with the same columns",
    "same_decisions": "of decisions that are the same",
}
LONGEST_ADVICE = 600  # characters


def diagnosis_record(folder: Path) -> dict[str, Any] | None:
    """Return the diagnosis in a run's folder as rows and sentences, or None if there is none, or one of another policy."""
    found = read_run_record(folder, DIAGNOSIS, FORMAT, "capi diagnose")
    if found is None:
        return None
    rows = [
        {"name": name, "value": number_or_none(found.get(key)), "words": words, "main": found.get("dominant") == key}
        for key, (name, words) in PARTS.items()
    ]
    return {
        "advice": short(str(found.get("advice", "")), LONGEST_ADVICE),
        "rows": rows,
        "left": _left(found),
        "stable": [
            (percent_text(share), words)
            for key, words in STABLE.items()
            if (share := _share(found.get(key))) is not None
        ],
        "n_refits": _count(found.get("n_refits")),
    }


def _left(found: dict[str, Any]) -> str | None:
    """Return the share of decisions that the log rarely takes, unless it stands for so few rows that they could be identified."""
    share, n_rows = _share(found.get("left_by_rows")), _count(found.get("n_rows"))
    if share is None or n_rows is None:
        return None
    shown = shown_share(round(share * n_rows), n_rows)
    return None if shown is None else percent_text(shown)


def _share(value: Any) -> float | None:
    share = number_or_none(value)
    return share if share is not None and 0 <= share <= 1 else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 10**15 else None
