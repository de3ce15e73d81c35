"""The times of a table's rows: the steps from row to row, and dates that are later than the row's own time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capi._utils.late import pyarrow as pa
from capi._utils.validation import Floats, Ints
from capi.data.columns import DAY, Column
from capi.data.origin import TimeSteps
from capi.data.readers.arrow import Table
from capi.data.readers.encode import microseconds
from capi.data.readers.episodes import Episodes, time_of
from capi.data.readers.roles import Roles

UNEQUAL = 0.2  # relative difference from the typical step; months differ by less
SECOND = 1_000_000  # microseconds


def steps_of(table: Table, roles: Roles, episodes: Episodes) -> TimeSteps | None:
    """Return the steps between the rows of episodes; None without a time column, without steps, or if steps do not matter."""
    if roles.time is None or roles.one_step:
        return None
    followed = episodes.following != episodes.rows
    if not followed.any():
        return None
    dates = _are_dates(table, roles.time)
    time = _microseconds(table, roles.time) if dates else time_of(table, roles.time)
    steps = _differences(time, episodes.rows[followed], episodes.following[followed]) / (SECOND if dates else 1)
    typical = float(np.median(steps))
    n_unequal = int(np.count_nonzero(np.abs(steps - typical) > UNEQUAL * abs(typical)))
    return TimeSteps(roles.time, len(steps), n_unequal, float(steps.min()), typical, float(steps.max()), dates)


def later_dates(
    table: Table, roles: Roles, columns: Sequence[Column], episodes: Episodes
) -> dict[str, tuple[int, int]]:
    """Return, for each date column with dates after the row's time, the number of such rows and of rows with a date."""
    names = [column.name for column in columns if column.kind == "date" and column.name != roles.time]
    if roles.time is None or not names or not _are_dates(table, roles.time):
        return {}
    time = _microseconds(table, roles.time)[episodes.rows]
    found = {}
    for name in names:
        array = microseconds(table.column(name), name, table)
        known = np.asarray(array.is_valid())[episodes.rows]
        dates = np.asarray(array.fill_null(0))[episodes.rows][known]
        count = _n_later(dates, time[known])
        if count:
            found[name] = count, len(dates)
    return found


def _n_later(dates: Ints, time: Ints) -> int:
    """Return how many dates are later; days without a time of day are compared by day."""
    if (dates % DAY == 0).all() or (time % DAY == 0).all():
        dates, time = dates // DAY, time // DAY
    return int(np.count_nonzero(dates > time))


def _differences(time: Any, rows: Ints, following: Ints) -> Floats:
    if time.dtype.kind == "u":
        time = time.astype(np.float64)
    difference: Floats = (time[following] - time[rows]).astype(np.float64)
    return difference


def _are_dates(table: Table, name: str) -> bool:
    kind = table.column(name).type
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _microseconds(table: Table, name: str) -> Ints:
    return np.asarray(microseconds(table.column(name), name, table))
