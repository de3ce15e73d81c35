"""The time from each decision to its next state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.late import pyarrow as pa
from capi._utils.validation import Floats, Ints
from capi.data.elapsed import TimeUnit
from capi.data.readers.arrow import Table
from capi.data.readers.episodes import Episodes, time_of
from capi.data.readers.roles import Roles

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}  # of Arrow's units
DAY = 86_400.0


def elapsed_of(table: Table, roles: Roles, episodes: Episodes) -> Floats | None:
    """Return the time to the next row in units of ``discount_per`` (n,), None if it is not given.

    It is one after terminated rows, where nothing follows. After the last row of a truncated episode it is the median of the
    episode's own steps; without any, the median of the table's; without any at all, one.
    """
    if roles.discount_per is None or roles.time is None:
        return None
    time, unit = time_of(table, roles.time), _unit(TimeUnit.of(roles.discount_per), table, roles.time)
    followed = episodes.then != episodes.at
    before, after = time[episodes.rows[followed]], time[episodes.following[followed]]
    elapsed = np.ones(len(followed))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # checked below
        elapsed[followed] = _difference(after, before) / unit
    good = np.isfinite(elapsed) & (elapsed > 0)
    rule = "must be a positive, finite number of times discount_per before the time of the next row"
    table.check(good, roles.time, rule, episodes.rows)
    open_ended = np.flatnonzero(episodes.cut_off)
    if len(open_ended) and episodes.episode is not None and followed.any():
        own = _medians(elapsed[followed], episodes.episode[followed])
        of_all = float(np.median(elapsed[followed]))
        elapsed[open_ended] = [own.get(number, of_all) for number in episodes.episode[open_ended].tolist()]
    return elapsed


def _unit(unit: TimeUnit, table: Table, name: str) -> float:
    """Return the unit in the time column's own units."""
    kind = table.column(name).type
    types = pa.types
    is_date = types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind)
    if is_date != (unit.seconds is not None):
        wanted = 'a length of time, such as "1 day"' if is_date else "a number"
        found = f"it holds {kind if is_date else 'numbers'}"
        raise table.rejection(name, f"discount_per must be {wanted}, because {found}; got {unit}")
    if unit.seconds is None:
        return unit.amount
    if types.is_date(kind):
        return unit.seconds / (DAY if types.is_date32(kind) else SECONDS["ms"])
    return unit.seconds / SECONDS[kind.unit]


def _difference(after: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
    """Return the difference of increasing times, exact for whole numbers."""
    if after.dtype.kind == "i":
        return after.astype(np.int64) - before.astype(np.int64)
    return after - before


def _medians(steps: Floats, episode: Ints) -> dict[int, float]:
    """Return the median step of each episode."""
    order = np.lexsort((steps, episode))
    steps, episode = steps[order], episode[order]
    starts = np.flatnonzero(np.append(True, episode[1:] != episode[:-1]))
    lengths = np.diff(starts, append=len(episode))
    middle = (steps[starts + (lengths - 1) // 2] + steps[starts + lengths // 2]) / 2
    return dict(zip(episode[starts].tolist(), middle.tolist(), strict=True))
