"""Categorical columns: each distinct value gets a number."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.late import pyarrow as pa
from capi._utils.late import pyarrow_compute as pc
from capi._utils.validation import LARGEST_INTEGER, Bools, Ints
from capi.data.columns import Column
from capi.data.origin import CategoryLevels
from capi.data.readers.arrow import Table, reads_column
from capi.data.readers.encode import nan_as_null
from capi.data.readers.foreign import decoded, is_missing
from capi.errors import LEAST_SHOWN, InvalidInputError


@dataclass(frozen=True, eq=False)
class Coded:
    """A column as integer codes."""

    codes: Ints  # (n,) -1 where the value is missing
    values: list[Any]  # the values of codes 0, 1, ...


@reads_column
def coded(name: str, table: Table) -> Coded:
    """Return a column's values sorted and numbered; values that cannot be sorted are numbered in order of appearance."""
    try:
        array = nan_as_null(table.column(name))
    except InvalidInputError:
        return _coded_objects(table.values(name), name, table)
    if pa.types.is_dictionary(array.type) and pa.types.is_nested(array.type.value_type):
        array = decoded(array)
    if pa.types.is_nested(array.type):
        return _coded_objects([tuple(v) if isinstance(v, list) else v for v in array.to_pylist()], name, table)
    array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    array = array.unify_dictionaries()
    if not array.num_chunks:
        return Coded(np.empty(0, dtype=np.int64), [])
    dictionary = array.chunk(0).dictionary
    try:
        values = dictionary.to_pylist()
    except (OverflowError, ValueError) as error:  # dates outside Python's range
        raise table.rejection(name, f"must hold values that Python can represent; {error}") from error
    if array.type.ordered:
        order = np.arange(len(values))
    else:
        order = np.asarray(pc.array_sort_indices(dictionary)).astype(np.int64)
    rank = np.empty(len(values) + 1, dtype=np.int64)
    rank[order] = np.arange(len(values))
    rank[-1] = -1  # the index of missing values
    indices = [
        pc.fill_null(chunk.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False) for chunk in array.chunks
    ]
    return Coded(rank[np.concatenate(indices)], [values[i] for i in order])


def levels_of(columns: Sequence[Column], table: Table) -> dict[str, CategoryLevels]:
    """Return the levels of the columns with many categories: those that became codes, or of which some became one."""
    many = [
        c.name for c in columns if c.values and (c.kind == "codes" or getattr(c, "rest", False)) and not c.is_ordered
    ]
    found = {}
    for name in many:
        array = nan_as_null(table.column(name))
        counted = pc.value_counts(array.unify_dictionaries() if pa.types.is_dictionary(array.type) else array)
        known = counted.filter(pc.is_valid(counted.field("values")))
        rows = np.asarray(known.field("counts"))
        words = [str(value).count(" ") >= 2 for value in known.field("values").to_pylist()]
        rare = int(np.count_nonzero(rows < LEAST_SHOWN))
        found[name] = CategoryLevels(int(rows.sum()), len(rows), rare, 2 * sum(words) > len(words))
    return found


@reads_column
def numbered(name: str, table: Table) -> tuple[Ints, Any]:
    """Return a number for each row, and the ids that the numbers represent: None if they are the column's own."""
    try:
        array = table.column(name)
        is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    except InvalidInputError:
        is_number = False
    if is_number:
        own = _own_numbers(array)
        if own is not None:
            return own, None
    column = coded(name, table)
    check_ids(column.codes >= 0, name, table)
    ids = np.empty(len(column.values), dtype=object)
    ids[:] = column.values
    return column.codes, ids


def check_ids(known: Bools, name: str, table: Table) -> None:
    """Refuse a column of episode ids unless all of them are ``known`` (n,)."""
    n_missing = int(np.count_nonzero(~known))
    if n_missing:
        rule = "must not be missing: it says which episode a row belongs to"
        found = "1 row has no value" if n_missing == 1 else f"{n_missing:,} rows have no value"
        advice = " Fill it in, or leave these rows out."
        raise table.rejection(name, f"{rule}; {found}", int(known.argmin()), advice)


def _own_numbers(array: Any) -> Ints | None:
    """Return whole numbers (n,) as they are, None if the column holds other values."""
    if array.null_count:
        return None
    own = np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in array.chunks])
    if own.dtype.kind == "f":
        whole = bool(((own == np.floor(own)) & (np.abs(own) < LARGEST_INTEGER)).all())
    else:
        whole = own.dtype != np.uint64 or bool((own < 2**63).all())
    return own.astype(np.int64) if whole else None


def _coded_objects(items: list[Any], name: str, table: Table) -> Coded:
    missing = [is_missing(item) for item in items]
    try:
        found = dict.fromkeys(item for item, gone in zip(items, missing, strict=True) if not gone)
        values = list(found)
    except TypeError as error:
        raise table.rejection(name, f"must hold hashable values: {error}") from error
    with suppress(TypeError):  # of several types: in order of appearance
        values = sorted(values)
    number = {value: code for code, value in enumerate(values)}
    codes = [-1 if gone else number[item] for item, gone in zip(items, missing, strict=True)]
    return Coded(np.array(codes, dtype=np.int64), values)
