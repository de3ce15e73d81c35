"""The order of rows in time, and how their episodes end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.late import pyarrow as pa
from capi._utils.validation import Bools, Ints
from capi.data.origin import Ends
from capi.data.readers.arrow import Table
from capi.data.readers.categories import coded, numbered
from capi.data.readers.encode import numbers
from capi.data.readers.roles import Roles
from capi.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Episodes:
    """Which rows of the table are decisions, in order, and what follows them."""

    order: Ints | None  # (m,) the table's rows by episode and time; None if already sorted
    at: Ints  # (n,) positions of the decisions in that order
    then: Ints  # (n,) positions of their next states in that order; their own position where none follows
    terminated: Bools  # (n,)
    cut_off: Bools  # (n,) neither terminated nor followed by a row
    episode: Ints | None  # (n,)
    episode_ids: NDArray[Any] | None
    ends: Ends

    @cached_property
    def rows(self) -> Ints:
        """The table's row of each decision (n,)."""
        return self.at if self.order is None else self.order[self.at]

    @cached_property
    def following(self) -> Ints:
        """The table's row of each next state (n,)."""
        return self.then if self.order is None else self.order[self.then]


def episodes_of(table: Table, roles: Roles) -> Episodes:
    """Return the decisions of a table in order, without rows that hold only the last state of an episode."""
    if roles.episode is None:
        number, ids = None, None
        order = None
        last = np.ones(table.n_rows, dtype=bool)
    else:
        number, ids = numbered(roles.episode, table)
        order = _order(number, table, roles)
        number = number if order is None else number[order]
        last = np.append(number[1:] != number[:-1], True)
    terminated, cut_off, ends = _ends(order, last, table, roles)
    kept = np.ones(len(last), dtype=bool) if roles.next_state or roles.one_step else ~cut_off
    if not kept.any():
        raise table.rejection(
            None,
            "at least one decision must remain; each episode is truncated and has one row, which holds only its last state",
            advice=" Pass next_state, discount=0, or a terminated column that says where the process ended.",
        )
    at = np.flatnonzero(kept)
    episode = None if number is None else number[at]
    return Episodes(order, at, at + ~last[at], terminated[at], cut_off[at], episode, ids, ends)


def _order(number: Ints, table: Table, roles: Roles) -> Ints | None:
    """Return the rows sorted by episode and time, None if they already are; without a time, rows keep their order."""
    if roles.time is None:
        sorted_already = bool((number[1:] >= number[:-1]).all())
        return None if sorted_already else np.argsort(number, kind="stable")
    time = time_of(table, roles.time)
    same = number[1:] == number[:-1]
    if bool(((number[1:] > number[:-1]) | (same & (time[1:] > time[:-1]))).all()):
        return None
    order = _sorted(number, time)
    number, time = number[order], time[order]
    twice = (number[1:] == number[:-1]) & (time[1:] == time[:-1])
    if twice.any():
        raise _repeated(order, np.flatnonzero(twice), table, roles)
    return order


def _repeated(order: Ints, twice: Ints, table: Table, roles: Roles) -> InvalidInputError:
    """Return the error for rows with the same episode and time: positions in ``order`` that the next one repeats."""
    rows = np.unique(np.append(order[twice], order[twice + 1]))
    n_equal, i = 0, int(twice[0])
    try:
        values = np.column_stack([coded(name, table).codes[rows] for name in roles.columns])
    except InvalidInputError:  # the fault of another column must not hide this one
        pass
    else:
        _, kinds = np.unique(values, axis=0, return_inverse=True)
        kind = np.full(table.n_rows, -1)
        kind[rows] = kinds.reshape(-1)
        n_equal = len(rows) - int(kinds.max()) - 1
        equal = twice[kind[order[twice]] == kind[order[twice + 1]]]
        i = int(equal[0]) if len(equal) else i
    advice = " Drop one of them, or leave time out if the rows are already in order."
    if n_equal:
        found = "1 row is such a duplicate" if n_equal == 1 else f"{n_equal:,} rows are such duplicates"
        advice = (
            f" They are equal in all columns that were read: {found}. Remove the duplicates, and keep one row of each."
        )
    return table.rejection(
        roles.time,
        f"must differ within an episode; {table.two_rows(*sorted(order[i : i + 2].tolist()))} have the same "
        f"{roles.episode!r} and {roles.time!r}",
        advice=advice,
    )


def _sorted(number: Ints, time: NDArray[Any]) -> Ints:
    """Return the rows by episode, then by time; combined into one number, if they fit, they sort several times faster."""
    if time.dtype.kind in "iu":
        low, high = int(time.min()), int(time.max())
        first, last = int(number.min()), int(number.max())
        if (last - first + 1) * (high - low + 1) < 2**62 and high < 2**63:
            return np.argsort((number - first) * (high - low + 1) + (time.astype(np.int64) - low))
    return np.lexsort((time, number))


def time_of(table: Table, name: str) -> NDArray[Any]:
    """Return the time of each row in its own unit (n,): float64 could not distinguish nanoseconds."""
    array = table.column(name)
    types = pa.types
    if types.is_date(array.type) or types.is_timestamp(array.type) or types.is_duration(array.type):
        array = array.cast(pa.int32() if types.is_date32(array.type) else pa.int64())
    if not (types.is_integer(array.type) or types.is_floating(array.type) or types.is_decimal(array.type)):
        kind = array.type.value_type if types.is_dictionary(array.type) else array.type
        text = types.is_string(kind) or types.is_large_string(kind)
        advice = " Strings have no reliable order: turn them into numbers or dates." if text else ""
        raise table.rejection(name, f"must be numbers or dates; it holds {kind}", advice=advice)
    rule = "must not be missing: it gives the order of the rows"
    table.check(np.asarray(array.is_valid()), name, rule)
    if types.is_integer(array.type):
        return np.concatenate([chunk.to_numpy() for chunk in array.chunks])
    time = numbers(name, table)
    table.check(~np.isnan(time), name, rule)
    return time


def _ends(order: Ints | None, last: Bools, table: Table, roles: Roles) -> tuple[Bools, Bools, Ends]:
    """Return which rows, in order, are terminated, which are cut off, and which flag columns say so."""
    terminated = None if roles.terminated is None else _flags(table, roles.terminated, order)
    truncated = None if roles.truncated is None else _flags(table, roles.truncated, order)
    for name, flags in ((roles.terminated, terminated), (roles.truncated, truncated)):
        if name is not None and flags is not None and (flags & ~last).any():
            at = int((flags & ~last).argmax())
            row = at if order is None else int(order[at])
            advice = " Give the rows after it another episode id."
            raise table.rejection(name, "must not be set before the last row of an episode", row, advice)
    if terminated is not None:
        return terminated, last & ~terminated, "terminated" if truncated is None else "both"
    if truncated is not None:
        return last & ~truncated, truncated, "truncated"
    return last, np.zeros(len(last), dtype=bool), "assumed"


def _flags(table: Table, name: str, order: Ints | None) -> Bools:
    flags = numbers(name, table)
    table.check((flags == 0) | (flags == 1), name, "must be true or false (1 or 0) in each row")
    return (flags if order is None else flags[order]) == 1
