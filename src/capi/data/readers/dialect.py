"""How a CSV file separates its fields, and writes decimals and dates: programs in many countries use semicolons, decimal commas and 31.12.2024."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import islice

SEPARATORS = ",;\t|"
LOOKED_AT = 1000  # rows
COMPARED = 20  # rows that must have as many fields as the header
COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
DOTTED_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}( \d{1,2}:\d{2}(:\d{2})?)?")
VERSION = re.compile(r"\d+\.\d+\.\d{1,3}")  # or a code, which Arrow would take for a date in the first centuries
DAY_FIRST = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S")


def delimiter_of(lines: Sequence[str]) -> str:
    r"""Return the separator that divides the first lines of a file into the most fields, the same number in each; else a comma.

    Examples
    --------
    >>> delimiter_of(["age;arm;gain\n", "40;drug;1,5\n"])
    ';'
    """
    widths = {separator: _width(lines, separator) for separator in SEPARATORS}
    return max(SEPARATORS, key=lambda separator: widths[separator])  # the first of equals, so a comma


def decimal_of(lines: Iterable[str], delimiter: str) -> str:
    r"""Return the decimal mark: a comma if it separates no fields, and numbers have commas and no points.

    Examples
    --------
    >>> decimal_of(["40;drug;1,5\n"], ";"), decimal_of(["40;drug;1.5\n"], ";")
    (',', '.')
    """
    if delimiter == ",":
        return "."
    fields = [field.strip() for row in _rows(lines, delimiter) for field in row]
    return "," if any(map(COMMA.fullmatch, fields)) and not any(map(POINT.fullmatch, fields)) else "."


def dates_of(lines: Iterable[str], delimiter: str) -> tuple[str, ...]:
    r"""Return the formats of dates beside ISO 8601: with points the day comes first. Dates with slashes remain text, because the month may come first.

    Examples
    --------
    >>> dates_of(["40;31.12.2024\n"], ";")
    ('%d.%m.%Y', '%d.%m.%Y %H:%M', '%d.%m.%Y %H:%M:%S')
    >>> dates_of(["40;12/31/2024\n"], ";")
    ()
    """
    fields = [field.strip() for row in _rows(lines, delimiter) for field in row]
    dotted = any(map(DOTTED_DATE.fullmatch, fields)) and not any(map(VERSION.fullmatch, fields))
    return DAY_FIRST if dotted else ()


def _width(lines: Sequence[str], delimiter: str) -> int:
    """Return the number of fields of the first rows, or 1 if it varies."""
    widths = {len(row) for row in islice(_rows(lines, delimiter), COMPARED)}
    return widths.pop() if len(widths) == 1 else 1


def _rows(lines: Iterable[str], delimiter: str) -> Iterable[list[str]]:
    try:
        yield from (row for row in csv.reader(lines, delimiter=delimiter) if row)
    except csv.Error:  # the reader of the file says what is wrong
        return
