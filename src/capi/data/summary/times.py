"""Caveats about time: unequal steps, and columns that were recorded after the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.data.columns import Column
from capi.data.origin import Origin, TimeSteps
from capi.errors import Caveat

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

FEW_UNEQUAL = 0.05  # share of steps
FEW_LATER = 0.01  # share of rows
MOST_ROWS = 2000  # looked at for shifted columns; findings are counted in all rows
FIRST_LOOK = 64  # rows
ALMOST_ALL = 0.95
LEAST_CHANGES = 20
FEW_EPISODES = 5
UNITS = (("days", 86_400), ("hours", 3600), ("minutes", 60), ("seconds", 1))


def unequal_steps(origin: Origin) -> Iterator[Caveat]:
    """Yield a caveat if the steps of the time column are unequal."""
    steps = origin.steps
    per_time = getattr(origin, "discount_per", None)
    if steps is not None and per_time is None and steps.n_unequal > FEW_UNEQUAL * steps.n:
        sizes = steps_as_text(steps)
        rest = (
            "differ from the typical one by more than a fifth. Each row counts as one step of the discount: with discount_per "
            "(--discount-per), the discount refers to elapsed time"
        )
        share = steps.n_unequal / steps.n
        yield Caveat(
            "unequal-steps",
            f"the steps of column {steps.column} are unequal: {sizes}; {steps.n_unequal:,} of {steps.n:,} steps "
            f"({100 * share:.3g} %) {rest}",
            "warning",
            column=steps.column,
            count=steps.n_unequal,
            share=share,
            text_without_counts=f"the steps of column {steps.column} are unequal: {sizes}; some {rest}",
        )


def later_dates(later: Mapping[str, tuple[int, int]]) -> Iterator[Caveat]:
    """Yield a caveat for each date column with dates after the row's time; ``later`` is as in `Origin`."""
    for name, (count, known) in later.items():
        if count > FEW_LATER * known:
            rest = "if it was not planned before the decision, a policy must not see it: leave it out"
            yield Caveat(
                "after-the-decision",
                f"column {name} is later than the row's own time in {count:,} of {known:,} rows: {rest}",
                "warning",
                column=name,
                count=count,
                share=count / known,
                text_without_counts=f"column {name} is later than the row's own time in some rows: {rest}",
            )


def steps_as_text(steps: TimeSteps) -> str:
    """Return the typical and the extreme steps, with their unit."""
    unit, seconds = "", 1
    if steps.in_seconds:
        unit, seconds = next(((f" {u}", s) for u, s in UNITS if steps.typical >= s), (" seconds", 1))
    typical, least, greatest = (f"{size / seconds:.3g}" for size in (steps.typical, steps.least, steps.greatest))
    return f"typically {typical}{unit if typical != '1' else unit[:-1]}, but from {least} to {greatest}{unit}"


def shifted_columns(batch: Transitions) -> Iterator[Caveat]:
    """Yield a caveat for each column that holds, already in this row, what another column holds in the next."""
    followed = np.flatnonzero(~batch.terminated)
    if batch.episodes is None or len(followed) < LEAST_CHANGES:
        return
    rows = followed[np.linspace(0, len(followed) - 1, min(MOST_ROWS, len(followed))).astype(np.int64)]
    now, then = batch.states[rows], batch.next_states[rows]
    columns = _single_features(batch)
    for j, column in columns.items():
        alike = (now[:FIRST_LOOK, j, None] == then[:FIRST_LOOK]).mean(axis=0) > 0
        for k in np.flatnonzero(alike).tolist():
            if k == j or k not in columns or _encoding(columns[k]) != _encoding(column):
                continue
            if _is_shifted(now[:, j], now[:, k], then[:, k]) and not _is_previous_value(batch, j, k):
                yield _shifted(batch, followed, column, columns[k], j, k)
                break


def _single_features(batch: Transitions) -> dict[int, Column]:
    """Return the columns that are one feature, by its number."""
    ends = np.cumsum([len(column.feature_names) for column in batch.schema.columns])
    pairs = zip(ends, batch.schema.columns, strict=True)
    return {int(end) - 1: column for end, column in pairs if column.kind != "one-hot"}


def _encoding(column: Column) -> tuple[object, ...]:
    return "number" if column.kind == "boolean" else column.kind, column.values, column.origin


def _is_shifted(mine: Floats, now: Floats, then: Floats) -> bool:
    """Whether a column equals the next value of another one, also where that one changes."""
    known = ~np.isnan(mine) & ~np.isnan(then)
    same, changed = (mine == then)[known], (now != then)[known]
    return bool(changed.sum() >= LEAST_CHANGES and min(same.mean(), same[changed].mean()) >= ALMOST_ALL)


def _is_previous_value(batch: Transitions, j: int, k: int) -> bool:
    """Whether column k looks like the previous value of column j: it has no value of its own in first rows."""
    starts = batch.episode_starts
    mine, other = batch.states[starts, j], batch.states[starts, k]
    if np.isnan(other).mean() >= ALMOST_ALL or (mine == other).mean() >= ALMOST_ALL:
        return True
    _, counts = np.unique(other[~np.isnan(other)], return_counts=True)
    return len(starts) >= FEW_EPISODES and bool(counts.max() >= ALMOST_ALL * len(starts))


def _shifted(batch: Transitions, followed: Ints, column: Column, other: Column, j: int, k: int) -> Caveat:
    equal: Bools = batch.states[followed, j] == batch.next_states[followed, k]
    count, of = int(equal.sum()), len(followed)
    start = f"column {column.name} equals column {other.name} of the next row"
    rest = (
        f"if it was recorded after the decision, a policy must not see it: leave it out. It may stay if {other.name} is the previous "
        f"value of {column.name}"
    )
    return Caveat(
        "equals-next-state",
        f"{start} in {count:,} of {of:,} rows: {rest}",
        "warning",
        column=column.name,
        count=count,
        share=count / of,
        text_without_counts=f"{start} in nearly all rows: {rest}",
    )
