"""What an evaluation found, as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from capi.errors import Caveat, InvalidInputError
from capi.report.wording import (
    FEW,
    count_text,
    few_hidden,
    hidden_text,
    number_text,
    percent_text,
    sentence,
    stands_for_few,
    told_caveat,
)

KINDS = {
    "table": "the table",
    "held-out": "held-out episodes",
    "cross": "cross-fitting: learned and evaluated in turns",
}
LOGGED = {"policy": "what was done", "method": "mean return"}
NUMBERS = ("estimate", "standard_error", "low", "high")
LISTS = ("estimates", "interval", "warnings")
RECORDS = ("behaviour", "difference", "behaviour_model", "overlap")
OLD_NAMES = {"doubtful": "unreliable", "beyond": "extrapolated_share", "share_hardly_taken": "rarely_taken_share"}
MOST_COUNTED = 1e15


def checked_evaluation(found: Any) -> dict[str, Any]:
    """Return what ``evaluation.json`` says, or say what it should be."""
    if not isinstance(found, dict) or found.get("format") != "capi evaluation":
        raise InvalidInputError("must be what capi evaluate writes.")
    for name, kind, what in [(name, list, "a list") for name in LISTS] + [(name, dict, "a record") for name in RECORDS]:
        if found.get(name) is not None and not isinstance(found[name], kind):
            raise InvalidInputError(f"must be what capi evaluate writes: its {name!r} is no {what[2:]}.")
    if found.get("interval") is not None and len(found["interval"]) != 2:
        raise InvalidInputError("must be what capi evaluate writes: its 'interval' has not two ends.")
    if not all(isinstance(row, Mapping) for row in found.get("estimates") or ()):
        raise InvalidInputError("must be what capi evaluate writes: its 'estimates' are no records.")
    try:
        _caveats(found)
    except InvalidInputError as error:
        raise InvalidInputError(f"must be what capi evaluate writes: {error}") from error
    overlap = {"overlap": _with_new_names(found["overlap"])} if found.get("overlap") else {}
    return _with_new_names(found) | overlap


def _with_new_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of an evaluation that may have been written before its keys were renamed."""
    return {OLD_NAMES.get(key, key): value for key, value in record.items()}


def evaluation_record(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation (``evaluation.json``) in rows and facts; what it does not say is left out."""
    method = text_of(found.get("method"))
    rows = [_row(row, method) for row in found.get("estimates") or () if isinstance(row, Mapping)]
    behaviour = found.get("behaviour")
    if isinstance(behaviour, Mapping):
        row = {**_row({**LOGGED, **behaviour}, ""), "kind": "behaviour"}
        if (row["policy"], row["method"]) not in {(r["policy"], r["method"]) for r in rows}:
            rows.append(row)
    model = found.get("behaviour_model")
    return {
        "rows": rows,
        "gain": _gain(found.get("difference")),
        "verdict": sentence(text_of(found.get("verdict"))),
        "warnings": [told_caveat(caveat) for caveat in _caveats(found)],
        "facts": list(_facts(found)),
        "behaviour_text": sentence(text_of(model.get("text"))) if isinstance(model, Mapping) else "",
    }


def _caveats(found: Mapping[str, Any]) -> list[Caveat]:
    """Return the warnings that have a text; those of evaluations written before are strings."""
    records = [
        {key: text_of(value) if isinstance(value, str) else value for key, value in warning.items()}
        if isinstance(warning, Mapping)
        else text_of(warning)
        for warning in found.get("warnings") or ()
    ]
    return [caveat for caveat in map(Caveat.from_dict, records) if caveat.text]


def number_or_none(value: Any) -> float | None:
    """Return a number, None if it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # whole numbers of hundreds of digits
        return None
    return number if isfinite(number) else None


def text_of(value: Any) -> str:
    """Return a text that can be written in a file; what is no text at all is empty."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""


def _gain(difference: Any) -> dict[str, Any] | None:
    """Return the row of the policy less the behaviour, None if it was not told."""
    if not isinstance(difference, Mapping) or number_or_none(difference.get("estimate")) is None:
        return None
    return {**_row(difference, ""), "label": "difference", "kind": "headline"}


def _row(row: Mapping[str, Any], headline: str) -> dict[str, Any]:
    policy, method = text_of(row.get("policy")), text_of(row.get("method"))
    numbers = {name: number_or_none(row.get(name)) for name in NUMBERS}
    for end in ("low", "high"):
        if numbers[end] is None:
            numbers[end] = number_or_none(row.get(f"{end}_asymptotic"))
    kind = "headline" if headline and method == headline else ""
    label = f"{policy}, {method}" if policy and method else policy or method
    return {"policy": policy, "method": method, "label": label, "kind": kind, **numbers}


def _counted(found: Mapping[str, Any], key: str) -> int | None:
    number = number_or_none(found.get(key))
    return None if number is None or not 0 <= number <= MOST_COUNTED else int(number)


def _facts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and texts of what belongs to the estimates."""
    facts = [
        ("Evaluated on", KINDS.get(text_of(found.get("kind")), text_of(found.get("kind")))),
        ("Table", text_of(found.get("source")).replace("\\", "/").rsplit("/", 1)[-1]),
        ("Headline method", text_of(found.get("method"))),
    ]
    for name, key in (("Decisions", "n_rows"), ("Episodes", "n_episodes")):
        count = _counted(found, key)
        facts.append((name, "" if count is None else count_text(few_hidden(count))))
    resamples = _counted(found, "n_resamples")
    facts.append(("Bootstrap resamples", "" if resamples is None else count_text(resamples)))
    discount, effective = number_or_none(found.get("discount")), number_or_none(found.get("effective_episodes"))
    facts.append(("Discount", "" if discount is None else number_text(discount)))
    if effective is not None:
        few = stands_for_few(effective, None)
        facts.append(("Effective episodes", f"<{FEW}" if few else number_text(effective)))
    level = number_or_none(found.get("level"))
    facts.append(("Level of the intervals", "" if level is None or not 0 < level < 1 else f"{100 * level:g} %"))
    overlap, model = found.get("overlap"), found.get("behaviour_model")
    extrapolated = number_or_none(found.get("extrapolated_share"))
    facts.append(("Share of the value beyond the log", "" if extrapolated is None else percent_text(extrapolated)))
    if isinstance(overlap, Mapping):
        rare = number_or_none(overlap.get("rarely_taken_share"))
        if rare is not None:
            few = stands_for_few(rare * (_counted(found, "n_rows") or 0), rare)
            facts.append(("Decisions hardly ever taken", hidden_text(None) if few else percent_text(rare)))
    if isinstance(model, Mapping):
        facts.append(("Behaviour's probabilities", "from the table" if model.get("given") else "estimated"))
        error = number_or_none(model.get("calibration_error"))
        facts.append(("Calibration error", "" if error is None else number_text(error, 3)))
    return [(name, text) for name, text in facts if text]
