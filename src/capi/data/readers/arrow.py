"""Tables as Arrow columns: pandas, polars and Arrow tables, mappings, CSV and Parquet files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from glob import glob
from itertools import chain, islice
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from capi._utils.late import pyarrow as pa
from capi._utils.suggestions import did_you_mean
from capi._utils.validation import Ints, first_line
from capi.data.columns import is_table
from capi.data.readers.dialect import LOOKED_AT, dates_of, decimal_of, delimiter_of
from capi.data.readers.foreign import (
    arrow_of,
    broken_rule,
    has_unknown_intervals,
    items_of,
    not_a_column,
    register_intervals,
)
from capi.data.table_files import existing, format_of, is_many
from capi.errors import CapiError, InvalidInputError

P = ParamSpec("P")
R = TypeVar("R")
SAVE_AS_UTF8 = " Save the file as UTF-8 (not Latin-1 or UTF-16); in Excel, choose CSV UTF-8."


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, and the row numbers that errors state: from 1 in files (without the header), from 0 in memory."""

    name: str
    names: tuple[str, ...]
    n_rows: int
    get: Callable[[str], Any]
    first_row: int = 0
    place: Callable[[int], tuple[str, int]] | None = (
        None  # the file of a row and its number there, if there are several files
    )

    def column(self, name: str) -> Any:
        """Return a column as an Arrow chunked array, with NaN of Python and pandas as null."""
        values = self._found(name)
        try:
            array = arrow_of(values)
        except Exception as error:  # whatever the library that made the column raises
            rule, row, advice = broken_rule(items_of(values), error)
            raise self.rejection(name, rule, row, advice) from error
        self._check_length(name, array)
        return array

    def values(self, name: str) -> list[Any]:
        """Return a column as a list of Python values of any type."""
        items = items_of(self._found(name))
        self._check_length(name, items)
        return items

    def rejection(self, column: str | None, rule: str, row: int | None = None, advice: str = "") -> InvalidInputError:
        """Return the error for a broken rule; ``row`` counts from 0."""
        name, number = (self.name, 0) if row is None else self._place(row)
        where = name if column is None else f"{name}, column {column!r}"
        if row is not None:
            where += f", row {number} (the first is {self.first_row})"
        return InvalidInputError(f"{where}: {rule}.{advice}")

    def _place(self, row: int) -> tuple[str, int]:
        return (self.name, self.number(row)) if self.place is None else self.place(int(row))

    def one_row(self, row: int) -> str:
        """Return how remarks name a row, with its file if there are several."""
        name, number = self._place(row)
        of_file = "" if self.place is None else f" of {name}"
        return f"row {number}{of_file} counted from {self.first_row}"

    def two_rows(self, first: int, second: int) -> str:
        """Return how errors name two rows."""
        (here, i), (there, j) = self._place(first), self._place(second)
        counted = f"(the first is {self.first_row})"
        return f"rows {i} and {j} {counted}" if here == there else f"row {i} of {here} and row {j} of {there} {counted}"

    def number(self, row: int) -> int:
        """Return the row number that errors state."""
        return int(row) + self.first_row

    def check(self, good: Any, column: str, rule: str, rows: Ints | None = None, advice: str = "") -> None:
        """Refuse the column if a row is not ``good`` (n,); ``rows`` are the rows of the table that were checked."""
        if good.all():
            return
        i = int(good.argmin())
        row = i if rows is None else int(rows[i])
        shown = self.column(column).slice(row, 1).to_pylist()[0]
        raise self.rejection(column, f"{rule}; got {shown!r}", row, advice)

    def check_names(self, names: Collection[Any]) -> None:
        """Refuse names that do not exist or are ambiguous."""
        for name in names:
            if not isinstance(name, str):
                raise InvalidInputError(f"{self.name}: column names must be strings; got {name!r}. Rename the column.")
            if self.names.count(name) != 1:
                known = ", ".join(map(str, self.names))
                problem = "appears more than once" if name in self.names else "does not exist"
                guess = did_you_mean(name, self.names)
                raise InvalidInputError(f"{self.name}: column {name!r} {problem}; the columns are {known}.{guess}")

    def _check_length(self, name: str, column: Any) -> None:
        if len(column) != self.n_rows:
            raise self.rejection(name, f"must have {self.n_rows} rows like the other columns; it has {len(column)}")

    def _found(self, name: str) -> Any:
        self.check_names([name])
        try:
            values = self.get(name)
        except Exception as error:
            raise self.rejection(name, f"cannot be read: {first_line(error)}") from error
        if problem := not_a_column(values):
            raise self.rejection(name, f"must be a list or an array with one value per row; {problem}")
        return values


def not_arrow() -> tuple[type[Exception], ...]:
    """Return the exceptions that Arrow and NumPy raise for values that they cannot hold or convert."""
    return pa.ArrowException, ValueError, TypeError, OverflowError


def reads_column(
    function: Callable[Concatenate[str, Table, P], R],
) -> Callable[Concatenate[str, Table, P], R]:
    """Make the errors that Arrow and NumPy raise in a reader of one column name the column."""

    @wraps(function)
    def read(name: str, table: Table, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(name, table, *args, **kwargs)
        except CapiError:
            raise
        except not_arrow() as error:
            advice = " Turn it into numbers, dates or strings, or leave it out."
            raise table.rejection(name, f"cannot be read: {first_line(error)}", advice=advice) from error

    return read


def table_of(frame: Any) -> Table:
    """Return the columns of a pandas, polars or Arrow table, of any object with Arrow's protocol, or of a mapping."""
    if isinstance(frame, Mapping):
        names = tuple(frame)
        n_rows = next((len(column) for column in frame.values() if not not_a_column(column)), 0)
        return Table("the table", names, n_rows, frame.__getitem__)
    if not is_table(frame):
        hint = " Transitions.from_csv and from_parquet read files." if isinstance(frame, str | Path) else ""
        raise InvalidInputError(
            f"a table must be a pandas, polars or Arrow table or a mapping from names to columns; got a {type(frame).__name__}.{hint}"
        )
    if hasattr(frame, "iloc"):  # pandas, column by column, so that only requested columns must be convertible
        return Table("the table", tuple(frame.columns), len(frame), frame.__getitem__)
    if hasattr(frame, "get_column"):  # polars
        return Table("the table", tuple(frame.columns), len(frame), frame.get_column)
    if not hasattr(frame, "__arrow_c_stream__") and not isinstance(frame, pa.RecordBatch):
        raise InvalidInputError(
            f"a table must hold its rows in memory; a {type(frame).__name__} does not. Collect or fetch it into a table first."
        )
    try:
        return _of_arrow(pa.table(frame), "the table")
    except Exception as error:  # whatever the library that made the table raises
        raise InvalidInputError(f"the table cannot be read: {first_line(error)}.") from error


def csv_table(path: Any, names: Collection[str], delimiter: str | None = None, texts: Collection[str] = ()) -> Table:
    """Return the named columns of a CSV file with a header; empty fields, NA and NaN are missing.

    ``texts`` are columns to read as text, whatever their content. Without a ``delimiter`` the first lines show it.
    """
    return CsvFile.opened(path, delimiter).table(names, texts)


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose header was read, once for all later reads."""

    path: str
    header: tuple[str, ...]
    n_header_lines: int
    delimiter: str = ","
    decimal: str = "."
    date_formats: tuple[str, ...] = ()

    @classmethod
    def opened(cls, path: Any, delimiter: str | None = None) -> CsvFile:
        """Return the file at ``path``; compressed files are recognised by their extension, separator, decimals and dates by the first lines."""
        file = existing(path)
        try:
            with pa.input_stream(file) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
                first = list(islice(text, LOOKED_AT))
                separator = delimiter_of(first) if delimiter is None else delimiter
                lines = csv.reader(chain(first, text), delimiter=separator)
                header = next((line for line in lines if line), None)  # Arrow skips empty lines, too
                n_lines = lines.line_num
                rows = first[n_lines:]
                how = decimal_of(rows, separator), dates_of(rows, separator)
        except Exception as error:  # Arrow's, Python's and those of the libraries that decompress
            raise _not_csv(path, error) from error
        if header is None:
            raise InvalidInputError(f"{path}: cannot be read as CSV: it must have a header, but the file is empty.")
        return cls(file, tuple(header), n_lines, separator, *how)

    def table(self, names: Collection[str], texts: Collection[str] = ()) -> Table:
        """Return the named columns; ``texts`` are columns to read as text, whatever their content."""
        Table(self.path, self.header, 0, self.header.index).check_names(names)
        types = {name: pa.string() for name in texts}
        found = _of_arrow(
            self._read(include_columns=list(names), strings_can_be_null=True, column_types=types), self.path, 1
        )
        for name in names:
            _check_utf8(name, found)
        return found

    def as_text(self) -> Any:
        """Return the whole file as an Arrow table of text, so that it can be written back unchanged."""
        types = {name: pa.string() for name in self.header}
        return self._read(column_types=types, strings_can_be_null=False, null_values=[])

    def _read(self, **conversion: Any) -> Any:
        try:
            return pa.csv.read_csv(
                self.path,
                read_options=pa.csv.ReadOptions(column_names=self.header, skip_rows=self.n_header_lines),
                parse_options=pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=pa.csv.ConvertOptions(
                    decimal_point=self.decimal, timestamp_parsers=[pa.csv.ISO8601, *self.date_formats], **conversion
                ),
            )
        except Exception as error:  # Arrow's, Python's and those of the libraries that decompress
            raise _not_csv(self.path, error) from error


def _not_csv(path: Any, error: Exception) -> InvalidInputError:
    """Return our error for one that was raised while a CSV file was read."""
    if isinstance(error, UnicodeDecodeError):
        found = f"it must be UTF-8 text, but has the byte {error.object[error.start]:#04x}."
        return InvalidInputError(f"{path}: cannot be read as CSV: {found}{SAVE_AS_UTF8}")
    advice = ""
    if "Expected" in str(error) and "columns, got" in str(error):
        advice = " Each line must have as many fields as the first one. Remove lines above the header, and quote fields that contain the separator."
    return InvalidInputError(f"{path}: cannot be read as CSV: {first_line(error)}.{advice}")


def _check_utf8(name: str, table: Table) -> None:
    """Refuse a column of a CSV file that Arrow read as bytes, because some of its values are not UTF-8."""
    column = table.get(name)
    if not pa.types.is_binary(column.type):
        return
    for row, item in enumerate(column.to_pylist()):
        try:
            (item or b"").decode()
        except UnicodeDecodeError:
            raise table.rejection(name, f"must be UTF-8 text; got {item!r}", row, SAVE_AS_UTF8) from None


def parquet_table(path: Any, names: Collection[str]) -> Table:
    """Return the named columns of a Parquet file, or of a folder of them."""
    return _parquet(path, lambda dataset: _parquet_columns(dataset, str(path), names))


def header_of(path: Any) -> Table:
    """Return the names of the columns of a CSV or Parquet file, as a table without rows."""
    if format_of(path) == "csv":
        names = CsvFile.opened(path).header
    else:
        names = _parquet(path, lambda dataset: tuple(dataset.schema.names))
    return Table(str(path), names, 0, names.index)


def _parquet_columns(dataset: Any, path: str, names: Collection[str]) -> Table:
    header = tuple(dataset.schema.names)
    Table(path, header, 0, header.index).check_names(names)
    return _of_arrow(dataset.read(columns=list(names)), path, 1)


def _parquet(path: Any, read: Callable[[Any], R]) -> R:
    """Return what ``read`` makes of a Parquet file, whose errors name the file."""
    found = existing(path)
    file: Any = found
    if Path(found).is_dir():
        inside = [place for place in Path(found).rglob("*") if place.is_file()]
        files = sorted(place for place in inside if place.suffix == ".parquet")
        file = files if files and len(files) < len(inside) else found  # others, such as a run's, are not of the table
    elif is_many(found):
        file = sorted(glob(found, recursive=True))
    try:
        dataset = pa.parquet.ParquetDataset(file)
        if has_unknown_intervals(dataset.schema):
            register_intervals()
            dataset = pa.parquet.ParquetDataset(file)
        return read(dataset)
    except CapiError:
        raise
    except Exception as error:  # damaged files raise errors of many types
        raise InvalidInputError(
            f"{path}: cannot be read as Parquet: {first_line(error)}. It may be damaged or incomplete: write it again."
        ) from error


def _of_arrow(table: Any, name: str, first_row: int = 0) -> Table:
    return Table(name, tuple(table.column_names), table.num_rows, table.column, first_row)
