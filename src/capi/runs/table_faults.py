"""What is wrong with the columns of a table that have a role nevertheless: repeated rows, missing ids, impossible probabilities.

Rows are counted from 1, as errors about files count them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capi._utils.validation import Bools
from capi.data.readers.read import LATE, LATE_ADVICE
from capi.runs.column_profiles import NUMERIC, Profile, is_amount, probable, unread_form

REFUSED = "capi describe and capi fit refuse it."


@dataclass(frozen=True)
class Repeats:
    """Rows with the episode and the time of an earlier row.

    Parameters
    ----------
    n : int
    n_equal : int
        Those that equal an earlier row in all columns.
    rows : pair of int
        The first such row, and the earlier one before it, from 0.
    """

    n: int
    n_equal: int
    rows: tuple[int, int]


def repeats_of(episode: Profile, time: Profile, columns: Sequence[Profile]) -> Repeats | None:
    """Return the rows whose episode and time an earlier row has, None if there are none; rows without an id or a time are left out."""
    known = np.flatnonzero((episode.codes >= 0) & (time.codes >= 0))
    pairs = episode.codes[known] * (time.n_distinct + 1) + time.codes[known]
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(np.diff(pairs[order]) == 0)
    if not len(again):
        return None
    earlier, later = known[order[again]], known[order[again + 1]]
    first = int(later.argmin())
    rows = np.unique(np.append(earlier, later))
    values = np.column_stack([column.codes[rows] for column in columns])
    n_equal = len(rows) - len(np.unique(values, axis=0))
    return Repeats(len(again), n_equal, (int(earlier[first]), int(later[first])))


def about_repeats(episode: Profile, time: Profile, columns: Sequence[Profile]) -> str | None:
    """Return a note on rows of an episode at the same time."""
    found = repeats_of(episode, time, columns)
    if found is None:
        return None
    example = f"first: rows {found.rows[0] + 1} and {found.rows[1] + 1}"
    if found.n_equal == found.n:
        return (
            f"{_rows(found.n)} an earlier row in all columns ({example}). Remove such duplicates; capi describe and capi fit "
            "refuse rows with the same episode and time."
        )
    equal = f"; {found.n_equal:,} of them repeat it in all columns" if found.n_equal else ""
    return (
        f"{found.n:,} {'row has' if found.n == 1 else 'rows have'} the same {episode.name} and {time.name} as an earlier row ({example}{equal}). "
        "Keep one row of each, or name another column as the time; if the rows are in order already, leave the time out. capi describe and "
        "capi fit refuse rows with the same episode and time."
    )


def _rows(n: int) -> str:
    return "1 row repeats" if n == 1 else f"{n:,} rows repeat"


def about_gaps(role: str, column: Profile) -> str | None:
    """Return a note on missing ids or times."""
    missing = np.flatnonzero(column.codes < 0)
    if not len(missing):
        return None
    says = "which episode a row belongs to" if role == "episode" else "the order of the rows"
    return (
        f"{column.name} is missing in {counted(len(missing))} (first: row {missing[0] + 1}), but it says {says}: {REFUSED} "
        "Fill it in, or leave these rows out; then run capi init again."
    )


def about_probabilities(column: Profile, decided: Bools) -> str | None:
    """Return a note on propensities that are no probabilities; last rows of episodes may have none."""
    if column.numbers is None:
        return None
    bad = np.flatnonzero(~probable(column) & (decided | (column.codes >= 0)))
    if not len(bad):
        return None
    value = column.numbers[bad[0]]
    found = "it is missing" if np.isnan(value) else f"{value:.4g}"
    return (
        f"{column.name} must be above 0 and at most 1, but is not in {counted(len(bad))} (first: row {bad[0] + 1}, {found}): {REFUSED} "
        "Correct it, leave these rows out, or leave the propensity out."
    )


def about_late_rewards(reward: Profile, last: Bools) -> str | None:
    """Return a note on rewards that are known only in last rows of episodes, None if it is not so."""
    known = reward.codes >= 0
    n_known, n_missing = int(known.sum()), int((~known).sum())
    if not n_known or (known & last).sum() < LATE * n_known or (~known & ~last).sum() < LATE * n_missing:
        return None
    return LATE_ADVICE.strip()


def why_no_action(column: Profile, most: int) -> str:
    """Return why a column cannot be the action although its name says so."""
    n = column.n_distinct
    note = (
        f"{column.name} has {n:,} value{'s' * (n != 1)}; an action has 2 to {most} values, each of them in several rows. "
        "Divide amounts into ranges, and merge what is rare."
    )
    return f"{note} If it is the action, nothing else was tried: check how the rows were filtered." if n == 1 else note


def why_no_reward(column: Profile) -> str | None:
    """Return why a column cannot be the reward although its name says so; None if it can."""
    if is_amount(column):
        return None
    if column.n_distinct < 2:
        found = "has the same value in every row" if column.n_distinct else "is empty"
        return f"{column.name} {found}, so it cannot be the reward: no decision was better than another."
    if column.kind == "text" and (form := unread_form(column)):
        return f"{column.name} cannot be the reward yet: {form}."
    return f"{column.name} cannot be the reward, which is a number: it holds {column.kind}{_example(column)}. Write it as a number."


def _example(column: Profile) -> str:
    """Return the first value that is not a number, and its row."""
    place = next((i for i, value in enumerate(column.values) if not NUMERIC.fullmatch(str(value).strip())), 0)
    if not column.values:
        return ""
    return f", such as {str(column.values[place])[:40]!r} in row {int((column.codes == place).argmax()) + 1}"


def counted(n: int) -> str:
    """Return a number of rows in words."""
    return "1 row" if n == 1 else f"{n:,} rows"
