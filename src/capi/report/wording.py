"""Texts of the page: numbers, conditions and names, with small counts hidden."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf, isfinite, log10
from typing import Any

from capi._utils.validation import Bools
from capi.data.columns import Column
from capi.data.schema import Schema
from capi.errors import LEAST_SHOWN, Caveat

FEW = LEAST_SHOWN  # rows or episodes: numbers based on fewer are hidden
TINY = 20  # rows: for smaller tables all numbers are hidden
LONGEST = 60  # characters of a name in a picture
LONGEST_WORD = 300  # characters of a category or an action
LONGEST_CONDITION = 600
MOST_PERCENT = 1e6
NOTHING, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def few_hidden(count: float) -> int | None:
    """Return a number of rows, or None if it is so small that it could identify someone."""
    return None if _is_few(count) else int(count)


def _is_few(count: float) -> bool:
    return 0 < count < FEW


def shown_counts(counts: Sequence[int]) -> list[int | None]:
    """Return counts whose sum is known, with None for those that are so small that they could identify someone.

    If there is only one such count, the smallest of the others is None too; otherwise the sum would reveal it.
    """
    shown = [few_hidden(int(count)) for count in counts]
    if shown.count(None) == 1 and len(shown) > 1:
        others = [i for i, count in enumerate(shown) if count is not None]
        shown[min(others, key=lambda i: (shown[i] == 0, shown[i], i))] = None
    return shown


def shown_cells(cells: Sequence[Sequence[int]]) -> list[list[int | None]]:
    """Return a table of counts whose row and column sums are known, with None for counts that the sums would reveal."""
    shown = [[few_hidden(int(count)) for count in row] for row in cells]
    again = True
    while again:
        again = False
        for turned in (False, True):
            lines = [list(line) for line in zip(*shown, strict=True)] if turned else shown
            new = [shown_counts([1 if c is None else c for c in line]) for line in lines]
            again = again or new != lines
            shown = [list(line) for line in zip(*new, strict=True)] if turned else new
    return shown


def shown_share(count: int, of: int) -> float | None:
    """Return a share of rows, or None if the share or the rest covers so few rows that they could be identified."""
    few = few_hidden(int(count)) is None or few_hidden(int(of - count)) is None
    return None if few or not of else float(count) / of


def stands_for_few(count: float | None, share: float | None) -> bool:
    """Return whether a number of rows or episodes, or the rest that its share leaves, is so small that it could identify someone."""
    if count is None:
        return False
    rest = round(count / share - count, 6) if share else 0.0
    return _is_few(count) or _is_few(rest)


def shown_caveat(caveat: Caveat) -> dict[str, Any]:
    """Return a caveat as the page may show it: without its numbers and with its text without counts if they are based on fewer than `FEW`.

    Only the fields matter; the wording of the text does not.
    """
    plain = caveat.to_dict()
    text_without_counts = plain.pop("text_without_counts")
    if stands_for_few(caveat.count, caveat.share):
        words = (
            text_without_counts
            or f"{caveat.kind}: its numbers are hidden, because they are based on fewer than {FEW} rows or episodes"
        )
        plain |= {"text": words, "count": None, "share": None}
    return {**plain, "text": sentence(plain["text"])}


def count_text(count: int | None) -> str:
    """Return a number of rows with thousands separators, or "<5" if it is hidden."""
    return f"<{FEW}" if count is None else f"{count:,}"


def hidden_text(count: int | None) -> str:
    """Return a number of rows, or "hidden" if it is small or would reveal a small number."""
    return "hidden" if count is None else count_text(count)


def percent_text(share: float | None) -> str:
    """Return a share in per cent with one decimal place."""
    if share is None or not isfinite(100 * share):
        return NOTHING
    if abs(100 * share) > MOST_PERCENT:
        return f"{number_text(100 * share)} %"
    text = f"{100 * share:.1f} %"
    return "0.0 %" if text == "-0.0 %" else text.replace("-", MINUS)


def number_text(x: float | None, digits: int = 4) -> str:
    """Return a number with ``digits`` significant digits, written as one would by hand."""
    if x is None or not isfinite(x):
        return NOTHING
    if x == 0:
        return "0"
    sign, size = MINUS if x < 0 else "", abs(x)
    exponent = floor(log10(size))
    if not -4 <= exponent < 9:
        mantissa = f"{size:.{digits - 1}e}".split("e")
        return f"{sign}{float(mantissa[0]):g}·10{str(int(mantissa[1])).translate(SUPERSCRIPT)}"
    decimals = max(digits - 1 - exponent, 0)
    text = f"{round(size, digits - 1 - exponent):,.{decimals}f}"
    return sign + (text.rstrip("0").rstrip(".") if "." in text else text)


def short(text: str, most: int = LONGEST) -> str:
    """Return a text, truncated to at most ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def without_middle(text: str, most: int, tail: float = 0.5) -> str:
    """Return a text of at most ``most`` characters that keeps both ends, because long names often differ only at the end.

    Examples
    --------
    >>> without_middle("concentration on admission, marker 12", 20)
    'concentrat…marker 12'
    """
    if len(text) <= most:
        return text
    end = max(int(tail * (most - 1)), 1)
    return f"{text[: most - 1 - end].rstrip()}…{text[-end:].lstrip()}"


def abbreviated(texts: Sequence[str], most: int) -> dict[str, str]:
    """Return distinct texts of about ``most`` characters for distinct texts.

    Examples
    --------
    >>> list(abbreviated(["concentration of marker 1", "concentration of marker 2"], 14).values())
    ['concent…rker 1', 'concent…rker 2']
    """
    names = list(dict.fromkeys(texts))
    for tail in (0.5, 0.7, 0.3, 0.9):
        found = [without_middle(name, most, tail) for name in names]
        if len(set(found)) == len(names):
            return dict(zip(names, found, strict=True))
    return dict(zip(names, numbered([without_middle(name, most) for name in names]), strict=True))


def sentence(text: str) -> str:
    """Return a text with a capital letter at the start and a full stop at the end."""
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?:" else ".")


def label_texts(labels: Sequence[Any]) -> list[str]:
    """Return action labels as distinct texts that are never empty."""
    return numbered([short(str(label) if str(label).strip() else repr(label), LONGEST_WORD) for label in labels])


def numbered(texts: Sequence[str]) -> list[str]:
    """Return distinct texts: duplicates, caused by truncation, get a number at the end."""
    seen: dict[str, int] = {}
    taken, found = set(texts), []
    for text in texts:
        seen[text] = seen.get(text, 0) + 1
        new = text
        while seen[text] > 1 and new in taken:
            new = f"{text} ({seen[text]})"
            seen[text] += new in taken
        taken.add(new)
        found.append(new)
    return found


def column_of(schema: Schema, feature: int) -> tuple[int, Column, int]:
    """Return the index of a feature's column, the column, and the feature's position in it."""
    for number, column in enumerate(schema.columns):
        if feature < len(column.feature_names):
            return number, column, feature
        feature -= len(column.feature_names)
    raise IndexError(feature)


def exact_text(x: float) -> str:
    """Return a number with all its digits and thousands separators."""
    text = repr(float(x)).removesuffix(".0")
    if "e" in text or "n" in text:  # powers of ten, infinity
        return text.replace("-", MINUS)
    whole, point, rest = text.removeprefix("-").partition(".")
    return (MINUS if x < 0 else "") + f"{int(whole):,}{point}{rest}"


def conditions(
    schema: Schema, feature: int, at_most: float, missing_left: bool, with_missing: Bools
) -> tuple[str, str]:
    """Return the conditions of both sides of a split as text: where it holds and where it does not.

    Missing values are mentioned only for features that have some, ``with_missing`` (d,).
    """
    _, column, position = column_of(schema, feature)
    if at_most == inf:
        known, missing = f"{column.name} is known", f"{column.name} is missing"
        return (f"{known} or missing", "never") if missing_left else (known, missing)
    yes, no = (short(side, LONGEST_CONDITION) for side in _sides(column, position, at_most))
    left, right = (" or is missing", "") if missing_left else ("", " or is missing")
    return (yes + left, no + right) if with_missing[feature] else (yes, no)


def _sides(column: Column, position: int, at_most: float) -> tuple[str, str]:
    """Return the text for where a feature of a column is at most a number, and for where it is above."""
    name, condition = column.name, column.condition(position, at_most)
    rest = condition.removeprefix(f"{name} ")
    if column.kind == "date":
        return condition, f"{name} after {rest.split(' before ', 1)[1]}"
    if column.kind == "number" or condition == f"{column.feature_names[position]} <= {at_most!r}":
        feature = column.feature_names[position]
        return f"{feature} ≤ {exact_text(at_most)}", f"{feature} > {exact_text(at_most)}"
    if column.kind == "boolean":
        return condition, f"{name} is true"
    if column.kind == "one-hot":
        return condition, f"{name} is {column.values[position]}"
    return condition, f"{name} {rest.removeprefix('not ')}" if rest.startswith("not in ") else f"{name} not {rest}"
