"""Encoding of columns as features: the kind of each column, and the array of states of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from capi._utils.late import pyarrow as pa
from capi._utils.late import pyarrow_compute as pc
from capi._utils.validation import Floats
from capi.data.columns import DAY, MOST_VALUES, Column, Kind
from capi.data.readers.arrow import Table, not_arrow, reads_column
from capi.data.readers.foreign import decoded
from capi.errors import LEAST_SHOWN

ROWS_AT_ONCE = 16_384  # their states stay in the cache while the columns are written one by one
MOST_CATEGORIES = 100_000  # more are probably names, not categories
OTHER = "other"  # the name of all categories with too few rows


@reads_column
def learn(name: str, table: Table, others: Sequence[str] = (), min_rows: int = LEAST_SHOWN) -> Column:
    """Return how to encode a column.

    ``others`` are columns of the same kind, such as the next state's. Categories with fewer than ``min_rows`` rows become one, because
    encodings are saved with policies, and a rare name can identify a person.
    """
    kinds: set[str] = set()
    arrays = []
    for each in (name, *others):
        array = table.column(each)
        if pa.types.is_dictionary(array.type) and not _of_categories(array.type.value_type):
            array = decoded(array)
        arrays.append(array)
        kinds.add(_kind(array.type, each, table))
    kinds.discard("missing")
    if kinds == {"number", "boolean"}:
        kinds = {"number"}
    if len(kinds) > 1:
        raise table.rejection(
            others[0], f"must be of the same kind as {name!r}; they are {' and '.join(sorted(kinds))}"
        )
    kind = kinds.pop() if kinds else "number"
    if kind == "date":
        return Column(name, "date", origin=_origin(arrays, name, table))
    if kind == "categories":
        values = _categories(arrays)
        if len(values) > MOST_CATEGORIES:
            rule = f"must have at most {MOST_CATEGORIES} distinct values to be a state column; it has {len(values)}"
            raise table.rejection(name, rule, advice=" It looks like a name or an id: leave it out.")
        return _categorical(name, values, _rare(arrays, min_rows))
    return Column(name, "boolean" if kind == "boolean" else "number")


def encode(columns: Sequence[Column], table: Table, names: Sequence[str] | None = None) -> Floats:
    """Return the states (n, d) of a table; ``names`` are the names of the columns in the table, if they differ."""
    called = [column.name for column in columns] if names is None else list(names)
    table.check_names(called)
    arrays = [_features(name, table, column) for column, name in zip(columns, called, strict=True)]
    ends = np.cumsum([len(column.feature_names) for column in columns])
    states = np.empty((table.n_rows, int(ends[-1])))
    for start in range(0, table.n_rows, ROWS_AT_ONCE):
        block = states[start : start + ROWS_AT_ONCE]
        for column, array, end in zip(columns, arrays, ends, strict=True):
            _write(column, array.slice(start, len(block)), block[:, end - len(column.feature_names) : end])
        infinite = np.isinf(block)
        if infinite.any():
            i, j = (int(part[0]) for part in np.nonzero(infinite))
            name = called[int(np.searchsorted(ends, j, side="right"))]
            rule = f"must not be infinite (NaN marks a missing value); got {block[i, j]}"
            raise table.rejection(name, rule, start + i)
    return states


def unknown_shares(columns: Sequence[Column], table: Table) -> dict[str, float]:
    """Return, for each categorical column with unknown values, the share of a table's rows that have one.

    Columns in which one category stands for all others know every value.
    """
    shares = {}
    for column in columns:
        if column.values and not column.rest:
            array = table.column(column.name)
            known = _positions(array, column)
            lost = known.null_count - nan_as_null(array).null_count
            if lost > 0:
                shares[column.name] = lost / table.n_rows
    return shares


class Unknown(NamedTuple):
    """Values of a column that are not among its categories."""

    values: list[Any]  # each once, in order of appearance
    n_rows: int
    first: int


def unknown_values(column: Column, table: Table) -> Unknown | None:
    """Return the values in a table that are not among the categories of a column, or None if there are none."""
    array = nan_as_null(table.column(column.name))
    unknown = pc.and_(pc.is_null(_positions(array, column)), pc.is_valid(array))
    n_rows = pc.sum(unknown).as_py() or 0
    if not n_rows:
        return None
    return Unknown(pc.unique(array.filter(unknown)).to_pylist(), n_rows, pc.index(unknown, True).as_py())


@reads_column
def numbers(name: str, table: Table) -> Floats:
    """Return a column of numbers or booleans (n,), NaN where it is missing."""
    array = _features(name, table, Column(name))
    column = np.empty((table.n_rows, 1))
    _write(Column(name), array, column)
    return column[:, 0]


def nan_as_null(array: Any) -> Any:
    """Return an Arrow column with NaN, which Arrow treats as a number, replaced by null."""
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)


def _categorical(name: str, values: Sequence[Any], rare: set[Any]) -> Column:
    if not values:
        return Column(name)
    listed = [value for value in values if value not in rare]
    other = OTHER
    while other in listed:
        other = f"{other} values"
    values = [*listed, other] if rare else listed
    kind: Kind = "one-hot" if len(values) <= MOST_VALUES else "codes"
    return Column(name, kind, tuple(values), rest=bool(rare))


def _rare(arrays: Sequence[Any], min_rows: int) -> set[Any]:
    """Return the values with fewer than ``min_rows`` rows."""
    if min_rows <= 1:
        return set()
    rows: Counter[Any] = Counter()
    for array in arrays:
        plain = nan_as_null(array)
        plain = plain.unify_dictionaries() if pa.types.is_dictionary(plain.type) else plain
        counts = pc.value_counts(plain)
        rows.update(dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)))
    return {value for value, count in rows.items() if value is not None and count < min_rows}


def _kind(kind: Any, name: str, table: Table) -> str:
    types = pa.types
    if types.is_null(kind):
        return "missing"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind):
        return "categories"
    advice = " Turn it into a number, a date or a string, or leave it out."
    raise table.rejection(name, f"must be numbers, booleans, dates or strings; it holds {kind}", advice=advice)


def _of_categories(kind: Any) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind) or types.is_floating(kind)


def _categories(arrays: Sequence[Any]) -> list[Any]:
    """Return the values that occur, in the order that the table declares, or sorted if it declares none."""
    found: set[Any] = set()
    for array in arrays:
        found |= set(pc.unique(nan_as_null(array)).to_pylist())
    found.discard(None)
    first = arrays[0]
    if pa.types.is_dictionary(first.type) and first.type.ordered and first.num_chunks:
        declared = first.chunk(0).dictionary.to_pylist()
        if found <= set(declared):
            return [value for value in declared if value in found]
    return sorted(found)


def _origin(arrays: Sequence[Any], name: str, table: Table) -> str:
    points = [microseconds(array, name, table) for array in arrays]
    known = np.concatenate([np.asarray(pc.drop_null(array)) for array in points])
    year = np.datetime64(int(known.min()) if len(known) else 0, "us").astype("datetime64[Y]")  # no one's own date
    first = year.astype("datetime64[D]")
    return str(first if (known % DAY == 0).all() else first.astype("datetime64[s]"))


def microseconds(array: Any, name: str, table: Table) -> Any:
    """Return dates, points in time or ISO strings as microseconds since 1970, in UTC."""
    try:
        if pa.types.is_timestamp(array.type) and array.type.tz is not None:
            array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
        return array.cast(pa.timestamp("us"), safe=not pa.types.is_timestamp(array.type)).cast(pa.int64())
    except pa.ArrowException as error:
        raise table.rejection(name, f"must be dates; it holds {array.type}") from error


@reads_column
def _features(name: str, table: Table, column: Column) -> Any:
    """Return the column as numbers for `_write`: its feature, or the position of each value for categories."""
    array = table.column(name)
    if pa.types.is_dictionary(array.type) and not column.values:
        array = decoded(array)
    if pa.types.is_null(array.type):
        return array.cast(pa.float64())
    if column.values:
        return _positions(array, column)
    if column.kind == "date":
        since = pc.subtract(microseconds(array, name, table), column.origin_microseconds)
        whole = pc.floor(pc.divide(since.cast(pa.float64(), safe=False), float(DAY)))
        rest = pc.subtract(
            since, pc.multiply(whole.cast(pa.int64()), DAY)
        )  # exact, so that dates come back as they were
        return pc.add(whole, pc.divide(rest.cast(pa.float64(), safe=False), float(DAY)))
    return _as_numbers(column, array, name, table)


def _as_numbers(column: Column, array: Any, name: str, table: Table) -> Any:
    if pa.types.is_temporal(array.type) or pa.types.is_nested(array.type):
        raise table.rejection(name, f"must be numbers; it holds {array.type}")
    plain = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    try:
        array = array if plain else array.cast(pa.float64())
    except pa.ArrowException as error:
        text = array.to_pylist()
        row = next((i for i, item in enumerate(text) if item is not None and not _is_number(item)), None)
        got = f"; got {text[row]!r}" if row is not None else f"; it holds {array.type}"
        raise table.rejection(name, f"must be numbers{got}", row) from error
    if column.kind == "boolean" and not pa.types.is_boolean(table.column(name).type):
        flags = nan_as_null(array).cast(pa.float64(), safe=False)
        good = pc.fill_null(pc.or_(pc.equal(flags, 0), pc.equal(flags, 1)), True)
        table.check(np.asarray(good), name, "must be booleans (or 0 and 1)")
    return array


def _is_number(text: Any) -> bool:
    try:
        return bool(float(text) == float(text))
    except (TypeError, ValueError):
        return False


def _positions(array: Any, column: Column) -> Any:
    """Return the position of each entry in the values of ``column``, null if it is not among them."""
    if pa.types.is_dictionary(array.type):
        chunks = [pc.take(_positions(chunk.dictionary, column), chunk.indices) for chunk in array.chunks]
        return pa.chunked_array(chunks, pa.int32())
    if not column.rest:
        return _places(array, column.values)
    is_known = pc.is_valid(nan_as_null(array))
    last = pc.if_else(is_known, pa.scalar(len(column.listed), pa.int32()), pa.scalar(None, pa.int32()))
    return pc.coalesce(_places(array, column.listed), last) if column.listed else last


def _places(array: Any, values: Sequence[Any]) -> Any:
    known = pa.array(values)
    if array.type != known.type:
        try:
            array = array.cast(known.type)
        except not_arrow():  # values of another type: none is known
            return pa.chunked_array([pa.nulls(len(array), pa.int32())])
    return pc.index_in(array, value_set=known)


def _write(column: Column, array: Any, out: Floats) -> None:
    """Write an Arrow column of numbers to the features ``out`` (n, width) of its column."""
    at = 0
    for chunk in array.chunks:
        part = out[at : at + len(chunk)]
        feature = chunk.to_numpy(zero_copy_only=False)
        at += len(chunk)
        if column.kind != "one-hot":
            part[:, 0] = feature
            continue
        for value in range(part.shape[1]):
            part[:, value] = feature == value
        if chunk.null_count:
            part[np.isnan(feature)] = np.nan
