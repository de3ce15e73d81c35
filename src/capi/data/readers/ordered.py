"""Ordered categories, such as age bands: declared by the table or by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capi._utils.late import pyarrow as pa
from capi._utils.late import pyarrow_compute as pc
from capi.data.columns import Column
from capi.data.readers.arrow import Table
from capi.errors import InvalidInputError


def checked_orders(ordered: Any, state: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the declared orders of state columns, by name."""
    if ordered is None:
        return {}
    if not isinstance(ordered, Mapping):
        raise InvalidInputError(
            f'ordered must map columns to their values from lowest to highest, such as {{"pain": ["low", "high"]}}; got {ordered!r}.'
        )
    orders: dict[str, tuple[Any, ...]] = {}
    for name, values in ordered.items():
        if name not in state:
            raise InvalidInputError(
                f"ordered must name state columns; it names {name!r}, and the state columns are {', '.join(state)}."
            )
        listed = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()
        if len(listed) < 2 or len(set(map(str, listed))) < len(listed):
            raise InvalidInputError(
                f"ordered must list at least two distinct values of column {name!r}, from lowest to highest; got {values!r}."
            )
        if not all(isinstance(value, str) for value in listed):
            raise InvalidInputError(
                f"ordered must list texts; column {name!r} has {values!r}. Numbers are ordered already: leave it out."
            )
        orders[name] = listed
    return orders


def ordered_column(name: str, table: Table, others: Sequence[str], order: Sequence[Any] | None) -> Column | None:
    """Return the encoding of a column whose order is declared, as codes in that order; None if none is.

    All declared values are kept, whether or not they occur: so the list says nothing about single rows.
    """
    if order is not None:
        for each in (name, *others):
            _check_listed(each, table, order)
        return Column(name, "codes", tuple(order))
    array = table.column(name)
    if not pa.types.is_dictionary(array.type) or not array.type.ordered or not array.num_chunks:
        return None
    if not (pa.types.is_string(array.type.value_type) or pa.types.is_large_string(array.type.value_type)):
        return None
    declared = tuple(array.chunk(0).dictionary.to_pylist())
    found = {value for each in others for value in pc.unique(table.column(each)).to_pylist()} - {None}
    return Column(name, "codes", declared) if len(declared) > 1 and found <= set(declared) else None


def _check_listed(name: str, table: Table, order: Sequence[Any]) -> None:
    array = table.column(name)
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_null(kind):
        return
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise table.rejection(
            name, f"must hold text to be an ordered category; it holds {kind}", advice=" Leave it out of ordered."
        )
    plain = array.cast(kind)
    listed = pc.fill_null(pc.is_in(plain, value_set=pa.array(list(order), kind)), False)
    good = np.asarray(pc.or_(listed, pc.is_null(plain)))
    table.check(good, name, f"must be one of the values that ordered lists, {', '.join(map(repr, order))}")
