"""Rows to decide for: tables, single rows and lists of rows, and the warning about categories that are new to a policy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from capi.data.columns import Column
from capi.data.readers.arrow import Table
from capi.data.readers.encode import unknown_values
from capi.errors import InvalidInputError, UnseenCategoryWarning

MOST_SHOWN = 3  # new values of a column


def is_rows(value: Any) -> bool:
    """Whether ``value`` is one row, a mapping from names to values, or a list of such rows."""
    if isinstance(value, Mapping):
        return bool(value) and not any(_is_column(item) for item in value.values())
    return isinstance(value, list | tuple) and (not value or any(isinstance(row, Mapping) for row in value))


def as_columns(value: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns ``names`` of one row or of a list of rows; other entries are ignored."""
    rows = [value] if isinstance(value, Mapping) else list(value)
    for i, row in enumerate(rows):
        where = f"row {i} (the first is 0)"
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"rows must be mappings from column names to values; {where} is of type {type(row).__name__}."
            )
        for name in names:
            if name not in row:
                raise InvalidInputError(
                    f"rows must have every column that the policy was learned with; {where} has no {name!r}. "
                    "Use None for a missing value."
                )
            if _is_column(row[name]):
                raise InvalidInputError(f"rows must have one value per column; {where} has {row[name]!r} in {name!r}.")
    return {name: [row[name] for row in rows] for name in names}


def warn_of_unseen(columns: Sequence[Column], table: Table) -> None:
    """Warn once of all categories in a table that did not occur when its columns were encoded; they are missing values."""
    found = []
    for column in columns:
        if column.values and (unknown := unknown_values(column, table)):
            shown = ", ".join(map(repr, unknown.values[:MOST_SHOWN]))
            more = f" and {len(unknown.values) - MOST_SHOWN:,} more" if len(unknown.values) > MOST_SHOWN else ""
            where = f"{unknown.n_rows:,} of {table.n_rows:,} rows, first in {table.one_row(unknown.first)}"
            found.append(f"column {column.name!r} has {shown}{more} ({where})")
    if found:
        text = f"categories that the policy has not seen are treated as missing values: {'; '.join(found)}."
        warnings.warn(text, UnseenCategoryWarning, stacklevel=4)


def _is_column(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)
