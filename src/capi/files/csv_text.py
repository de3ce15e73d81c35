"""CSV files as people write them: quotes only where they are needed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capi._utils.late import pyarrow as pa
from capi._utils.late import pyarrow_compute as pc
from capi.errors import InvalidInputError

ROWS_AT_ONCE = 65_536
FORMULA = r"^[=+\-@\t\r]"  # how a cell begins that a spreadsheet runs
NUMBER = r"^[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?$"


def write_csv(table: Any, path: Path, delimiter: str = ",") -> None:
    """Write an Arrow table as CSV in UTF-8. Arrow itself quotes all text or none, and refuses none where quotes are needed."""
    columns = [_as_text(column, name) for name, column in zip(table.column_names, table.columns, strict=True)]
    texts = pa.table(columns, names=table.column_names)
    plain = pa.csv.WriteOptions(include_header=False, quoting_style="none", delimiter=delimiter)
    try:
        with path.open("wb") as file:
            file.write(_line(table.column_names, delimiter).encode())
            pa.csv.write_csv(texts, file, plain)
    except pa.ArrowInvalid:
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(_line(table.column_names, delimiter))
            for batch in texts.to_batches(max_chunksize=ROWS_AT_ONCE):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)


def without_formulas(table: Any) -> Any:
    """Return the table with an apostrophe before text, and names, that a spreadsheet would run as a formula."""
    names = [f"'{name}" if name[:1] in "=+-@\t\r" and name else name for name in table.column_names]
    return pa.table([_without_formulas(column) for column in table.columns], names=names)


def _without_formulas(column: Any) -> Any:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
        return column
    text = column.cast(pa.string())
    runs = pc.and_not(pc.match_substring_regex(text, FORMULA), pc.match_substring_regex(text, NUMBER))
    return pc.if_else(runs, pc.binary_join_element_wise("'", text, ""), text)


def _line(names: Sequence[str], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(names)
    return text.getvalue()


def _as_text(column: Any, name: str) -> Any:
    try:
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        return plain.cast(pa.string())
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {name!r} cannot be written as CSV: it holds {column.type}. Write a .parquet file instead."
        ) from error
