"""The result of an evaluation as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from capi.errors import Caveat, InvalidInputError
from capi.report.wording import (
    FEW,
    LONGEST_WORD,
    count_text,
    few_hidden,
    hidden_text,
    number_text,
    percent_text,
    sentence,
    short,
    shown_caveat,
    stands_for_few,
)

KINDS = {
    "table": "the table",
    "held-out": "held-out episodes",
    "cross": "cross-fitting: each part evaluated by a policy learned from the others",
}
LOGGED = {"policy": "the logged behaviour", "method": "mean return"}
NUMBERS = ("estimate", "standard_error", "low", "high")
BOUNDS = ("gamma", "low", "high", "low_interval", "high_interval")
LISTS = ("estimates", "interval", "warnings")
RECORDS = ("behaviour", "difference", "behaviour_model", "overlap", "best_action", "sensitivity")
OLD_NAMES = {"doubtful": "unreliable", "beyond": "extrapolated_share", "share_hardly_taken": "rarely_taken_share"}
MOST_COUNTED = 1e15


def checked_evaluation(found: Any) -> dict[str, Any]:
    """Return the content of ``evaluation.json``, or raise an error that says what it must be."""
    if not isinstance(found, dict) or found.get("format") != "capi evaluation":
        raise InvalidInputError("must be a file written by capi evaluate.")
    for name, kind, what in [(name, list, "a list") for name in LISTS] + [(name, dict, "a record") for name in RECORDS]:
        if found.get(name) is not None and not isinstance(found[name], kind):
            raise InvalidInputError(f"must be a file written by capi evaluate: its {name!r} is not {what}.")
    if found.get("interval") is not None and len(found["interval"]) != 2:
        raise InvalidInputError("must be a file written by capi evaluate: its 'interval' does not have two ends.")
    if not all(isinstance(row, Mapping) for row in found.get("estimates") or ()):
        raise InvalidInputError("must be a file written by capi evaluate: its 'estimates' are not all records.")
    try:
        _caveats(found)
    except InvalidInputError as error:
        raise InvalidInputError(f"must be a file written by capi evaluate: {error}") from error
    overlap = {"overlap": _with_new_names(found["overlap"])} if found.get("overlap") else {}
    return _with_new_names(found) | overlap


def _with_new_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of an evaluation that may have been written before its keys were renamed."""
    return {OLD_NAMES.get(key, key): value for key, value in record.items()}


def evaluation_record(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation (``evaluation.json``) as rows and facts; missing entries are left out."""
    method = "" if found.get("is_behaviour") else text_of(found.get("method"))
    rows = [_row(row, method) for row in found.get("estimates") or () if isinstance(row, Mapping)]
    behaviour = found.get("behaviour")
    if isinstance(behaviour, Mapping):
        row = {**_row({**LOGGED, **behaviour}, ""), "kind": "headline" if found.get("is_behaviour") else "behaviour"}
        if (row["policy"], row["method"]) not in {(r["policy"], r["method"]) for r in rows}:
            rows.append(row)
    best = _best_action(found)
    if best is not None:
        rows.append({**best["row"], "kind": "behaviour"})
    model = found.get("behaviour_model")
    return {
        "rows": rows,
        "gain": _gain(found.get("difference")),
        "best_action": best,
        "verdict": sentence(text_of(found.get("verdict"))),
        "sensitivity": _sensitivity(found.get("sensitivity")),
        "warnings": [shown_caveat(caveat) for caveat in _caveats(found)],
        "facts": list(_facts(found)),
        "behaviour_text": sentence(text_of(model.get("text"))) if isinstance(model, Mapping) else "",
    }


def of_behaviour(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation of what was done on episodes of its own table without comparisons of what was done with itself.

    Earlier versions compared the mean of the log with the value of the model of it.
    """
    if found.get("is_behaviour") or found.get("kind") != "held-out":
        return dict(found)
    behaviour, best = found.get("behaviour"), found.get("best_action")
    return {
        **found,
        "is_behaviour": True,
        "estimates": [
            {**row, "policy": "a model of what was done"}
            for row in found.get("estimates") or ()
            if isinstance(row, Mapping)
        ],
        "difference": None,
        "best_action": {**best, "difference": None, "verdict": ""} if isinstance(best, Mapping) else None,
        "sensitivity": None,
        "not_comparable": None,
        "verdict": "the policy is what was done, so there is nothing to compare" if behaviour else "",
    }


def headline_record(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stands at the top of the page: the policy, what was done, the best single action, and the verdicts."""
    behaviour, best = found.get("behaviour"), _best_action(found)
    return {
        "estimate": number_or_none(found.get("estimate")),
        "interval": [number_or_none(end) for end in found.get("interval") or (None, None)],
        "logged": _row({**LOGGED, **behaviour}, "") if isinstance(behaviour, Mapping) else None,
        "best_action": best,
        "verdict": sentence(text_of(found.get("verdict"))),
        "is_behaviour": bool(found.get("is_behaviour")),
        "not_comparable": bool(text_of(found.get("not_comparable"))),
        "unreliable": bool(found.get("unreliable", found.get("warnings"))),
        "crossed": found.get("kind") == "cross",
    }


def _best_action(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the best single action and the policy's difference from it, or None if the evaluation has none."""
    record = found.get("best_action")
    if not isinstance(record, Mapping) or number_or_none(record.get("estimate")) is None:
        return None
    label = short(text_of(record.get("action")), LONGEST_WORD)
    words = {"policy": f"the best single action ({label})", "method": "chosen on other episodes"}
    return {
        "label": label,
        "row": _row({**record, **words}, ""),
        "gain": _gain(record.get("difference")),
        "verdict": sentence(text_of(record.get("verdict"))),
    }


def _sensitivity(record: Any) -> dict[str, Any] | None:
    """Return the sensitivity to an unmeasured confounder: a sentence, and the range of the difference for several strengths."""
    if not isinstance(record, Mapping):
        return None
    bounds = record.get("bounds")
    rows = [
        {name: number_or_none(row.get(name)) for name in BOUNDS}
        for row in (bounds if isinstance(bounds, list) else ())
        if isinstance(row, Mapping)
    ]
    return {
        "text": sentence(text_of(record.get("text"))),
        "rows": rows,
        "unavailable": sentence(text_of(record.get("unavailable"))),
    }


def _caveats(found: Mapping[str, Any]) -> list[Caveat]:
    """Return the warnings that have a text; evaluations of earlier versions hold them as strings."""
    records = [
        {key: text_of(value) if isinstance(value, str) else value for key, value in warning.items()}
        if isinstance(warning, Mapping)
        else text_of(warning)
        for warning in found.get("warnings") or ()
    ]
    return [caveat for caveat in map(Caveat.from_dict, records) if caveat.text]


def number_or_none(value: Any) -> float | None:
    """Return a finite number, or None if the value is not one."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # integers with hundreds of digits
        return None
    return number if isfinite(number) else None


def text_of(value: Any) -> str:
    """Return a text that can be written to a file; anything that is not a string becomes an empty text."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""


def _gain(difference: Any) -> dict[str, Any] | None:
    """Return the row of the policy minus the behaviour, or None if the evaluation has none."""
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
    """Return the names and texts of the facts about the estimates."""
    facts = [
        ("Evaluated on", KINDS.get(text_of(found.get("kind")), text_of(found.get("kind")))),
        ("Table", text_of(found.get("source")).replace("\\", "/").rsplit("/", 1)[-1]),
        ("Headline method", LOGGED["method"] if found.get("is_behaviour") else text_of(found.get("method"))),
    ]
    for name, key in (("Decisions", "n_rows"), ("Episodes", "n_episodes")):
        count = _counted(found, key)
        facts.append((name, "" if count is None else count_text(few_hidden(count))))
    sampled = _counted(found, "sample_rows")
    facts.append(("Models and checks of the table", "" if sampled is None else f"from a sample of {sampled:,} rows"))
    resamples = _counted(found, "n_resamples")
    facts.append(("Bootstrap resamples", "" if resamples is None else count_text(resamples)))
    discount, effective = number_or_none(found.get("discount")), number_or_none(found.get("effective_episodes"))
    per = text_of(found.get("discount_per"))
    facts.append(("Discount", "" if discount is None else number_text(discount) + (f" per {per}" if per else "")))
    if effective is not None:
        few = stands_for_few(effective, None)
        facts.append(("Effective episodes", f"<{FEW}" if few else number_text(effective)))
    level = number_or_none(found.get("level"))
    facts.append(("Confidence level", "" if level is None or not 0 < level < 1 else f"{100 * level:g} %"))
    overlap, model = found.get("overlap"), found.get("behaviour_model")
    extrapolated = number_or_none(found.get("extrapolated_share"))
    facts.append(
        ("Share of the value beyond the log's end", "" if extrapolated is None else percent_text(extrapolated))
    )
    if isinstance(overlap, Mapping):
        rare = number_or_none(overlap.get("rarely_taken_share"))
        if rare is not None:
            few = stands_for_few(rare * (_counted(found, "n_rows") or 0), rare)
            facts.append(("Decisions rarely taken in the log", hidden_text(None) if few else percent_text(rare)))
    if isinstance(model, Mapping):
        facts.append(("Behaviour probabilities", "from the table" if model.get("given") else "estimated"))
        error = number_or_none(model.get("calibration_error"))
        facts.append(("Calibration error", "" if error is None else number_text(error, 3)))
    return [(name, text) for name, text in facts if text]
