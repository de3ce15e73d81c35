"""Categories that look ordered, such as age bands, although nothing declares their order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from capi.data.columns import Column
from capi.errors import Caveat

NUMBER = r"-?\d+(?:[.,]\d+)?"
UNIT = r"(?: ?[a-zA-Z%]{1,6})?"
BAND = re.compile(
    rf"[\[(]?\s*(?P<sign><=?|>=?|≤|≥|under|below|up to|over|above|from)?\s*(?P<low>{NUMBER}){UNIT}"
    rf"(?:\s*(?:-|\u2013|to|,|;|\.\.)\s*(?P<high>{NUMBER}|inf){UNIT})?\s*(?P<open>\+|and over|or more|and above|or less)?\s*[\])]?",
    re.IGNORECASE,
)
GRADE = re.compile(
    r"(?:stage|grade|level|class|tier|quartile|quintile|decile|asa|nyha|q)[ -]?(\d+|[ivx]+)", re.IGNORECASE
)
ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6, "vii": 7, "viii": 8, "ix": 9, "x": 10}
SCALES = (
    ("none", "very low", "low", "lower", "moderate", "medium", "middle", "intermediate", "normal", "high", "higher", "very high"),
    ("none", "absent", "minimal", "mild", "moderate", "severe", "very severe", "critical"),
    ("very small", "small", "medium", "large", "very large"),
    ("never", "rarely", "sometimes", "often", "usually", "always"),
    ("very poor", "poor", "bad", "fair", "average", "good", "very good", "excellent"),
    ("first", "second", "third", "fourth", "fifth"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
)  # fmt: skip
BELOW = ("<", "<=", "≤", "under", "below", "up to")
ABOVE = (">", ">=", "≥", "over", "above", "from")


def looks_ordered(column: Column) -> Caveat | None:
    """Return a note on how to declare the order of a category that looks ordered; two categories need no order."""
    if column.kind != "one-hot" or len(column.values) < 3:
        return None
    order = likely_order(column.values)
    if order is None:
        return None
    shown = ", ".join(map(str, order))
    listed = ",".join(map(str, order))
    declare = (
        f'ordered={{"{column.name}": [...]}}'
        if any("," in str(value) for value in order)
        else (f'ordered={{"{column.name}": [...]}} or --ordered "{column.name}={listed}"')
    )
    return Caveat(
        "looks-ordered",
        f"column {column.name} looks ordered ({shown}), but its categories are read without an order: declare it with {declare}, "
        "and rules can ask for ranges",
        "note",
        column=column.name,
    )


def likely_order(values: Sequence[Any]) -> list[Any] | None:
    """Return the values from lowest to highest if they are bands of numbers, grades or words of a scale, otherwise None.

    Examples
    --------
    >>> likely_order(["18-30", "65+", "30-65", "<18"])
    ['<18', '18-30', '30-65', '65+']
    >>> likely_order(["high", "Low", "medium"])
    ['Low', 'medium', 'high']
    >>> likely_order(["ward 1", "ward 2", "ward 3"])
    """
    if not all(isinstance(value, str) for value in values):
        return None
    for key in (_place_of_band, _place_of_grade, *(_place_on(scale) for scale in SCALES)):
        places = [key(value.strip()) for value in values]
        if all(place is not None for place in places) and len(set(places)) == len(places):
            return [value for _, value in sorted(zip(places, values, strict=True))]
    return None


def _place_of_band(text: str) -> tuple[float, int] | None:
    found = BAND.fullmatch(text)
    if found is None:
        return None
    sign = (found["sign"] or "").lower()
    below = sign in BELOW or (found["open"] or "").lower() == "or less"
    above = sign in ABOVE or (found["open"] is not None and not below)
    return float(found["low"].replace(",", ".")), -1 if below else int(above)


def _place_of_grade(text: str) -> float | None:
    found = GRADE.fullmatch(text)
    if found is None:
        return float(ROMAN[text.lower()]) if text.lower() in ROMAN else None
    place = found[1].lower()
    return float(place) if place.isdigit() else ROMAN.get(place)


def _place_on(scale: Sequence[str]) -> Any:
    return lambda text: scale.index(text.lower()) if text.lower() in scale else None
