"""Actions taken, and masks of allowed actions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capi._utils.validation import Bools, Ints, as_names, sequence_of_names
from capi.data.readers.arrow import Table
from capi.data.readers.categories import coded
from capi.data.readers.encode import numbers
from capi.data.readers.episodes import Episodes
from capi.data.readers.roles import Roles
from capi.errors import InvalidInputError

SEPARATORS = re.compile(r"[,;|]")
MOST_ACTIONS = 100_000  # more are probably ids, not actions
ADVICE = (
    " Fill it in, or leave such episodes out. If the last row of an episode contains only its last state, mark it with truncated; "
    "if the process ended there, drop it and mark the row before it as terminated."
)
ROW_ADVICE = " Fill it in, or leave such rows out."  # where each row stands for itself


def actions_of(roles: Roles, table: Table, rows: Ints, labels: Any) -> tuple[Ints, tuple[Any, ...]]:
    """Return the action of each of the ``rows`` (n,), and the labels: the given ones, or those found, sorted."""
    name = roles.action
    column = coded(name, table)
    found = column.codes[rows]
    _check_known(found >= 0, name, table, rows, advice_on_gaps(roles))
    if labels is None:
        used = np.zeros(len(column.values), dtype=bool)
        used[found] = True
        if used.sum() > MOST_ACTIONS:
            raise table.rejection(name, f"must have at most {MOST_ACTIONS} distinct actions; it has {used.sum()}")
        names = _without_needless_points([column.values[i] for i in np.flatnonzero(used)], column.codes)
        return (np.cumsum(used) - 1)[found], tuple(names)
    given = sequence_of_names(labels, "action_labels")
    given = as_names(given, "action_labels", len(given))
    number = {label: a for a, label in enumerate(given)}
    translated = np.array([number.get(value, -1) for value in column.values], dtype=np.int64)[found]
    shown = ", ".join(map(repr, given))
    table.check(translated >= 0, name, f"must be one of action_labels, {shown}", rows)
    return translated, given


def masks_of(
    allowed: Any, table: Table, labels: Sequence[Any], episodes: Episodes, actions: Ints, action: str, needed: bool
) -> tuple[Bools, Bools]:
    """Return what each decision and its next state allow (n, A); ``needed`` says whether the latter is used."""
    if isinstance(allowed, Mapping):
        masks, name = _by_column(allowed, table, labels), action
    else:
        masks, name = _by_label(allowed, table, labels), str(allowed)
    for rows in (episodes.rows, episodes.following):
        table.check(masks[rows].any(axis=1), name, "must allow at least one action", rows)
    mine = masks[episodes.rows]
    taken = np.take_along_axis(mine, actions[:, None], axis=1)[:, 0]
    table.check(taken, name, "must allow the action that was taken", episodes.rows)
    unknown = episodes.cut_off & needed
    if unknown.any():
        row = int(episodes.rows[int(unknown.argmax())])
        raise table.rejection(
            name,
            "the actions allowed in the next state must be known; no row follows, and the episode is not terminated",
            row,
            " Leave the row out, or pass arrays with next_allowed to Transitions.",
        )
    return mine, masks[episodes.following]


def advice_on_gaps(roles: Roles) -> str:
    """Return what to do about decisions without an action or a reward."""
    return ROW_ADVICE if roles.episode is None else ADVICE


def _check_known(known: Any, name: str, table: Table, rows: Ints, advice: str) -> None:
    if not known.all():
        row = int(rows[int(known.argmin())])
        raise table.rejection(name, "must not be missing where a decision was taken", row, advice)


def _without_needless_points(values: list[Any], codes: Ints) -> list[Any]:
    """Return whole floats as ints if rows are missing: the missing rows, not the user, turned them into floats."""
    if (codes < 0).any() and all(isinstance(v, float) and v.is_integer() for v in values):
        return [int(v) for v in values]
    return values


def _by_column(allowed: Mapping[Any, str], table: Table, labels: Sequence[Any]) -> Bools:
    """Return masks from one column of flags per action; actions without a column are always allowed."""
    masks = np.ones((table.n_rows, len(labels)), dtype=bool)
    for label, name in allowed.items():
        if label not in labels:
            raise InvalidInputError(
                f"allowed must name known actions; it names the action {label!r}, and the actions are {', '.join(map(repr, labels))}."
            )
        flags = numbers(name, table)
        table.check((flags == 0) | (flags == 1), name, "must be true or false (1 or 0) in each row")
        masks[:, list(labels).index(label)] = flags == 1
    return masks


def _by_label(name: Any, table: Table, labels: Sequence[Any]) -> Bools:
    """Return masks from a column with lists of labels, or with strings of separated labels."""
    column = coded(name, table)
    kinds = np.zeros((len(column.values) + 1, len(labels)), dtype=bool)  # the last row is for missing lists
    by_name = {**{str(label): a for a, label in enumerate(labels)}, **{label: a for a, label in enumerate(labels)}}
    for k, value in enumerate(column.values):
        for label in _listed(value, by_name):
            if label not in by_name:
                row = int((column.codes == k).argmax())
                rule = f"must list known actions; it names the action {label!r}, and the actions are {', '.join(map(repr, labels))}"
                raise table.rejection(
                    name, rule, row, " Pass action_labels with all actions, including those never taken."
                )
            kinds[k, by_name[label]] = True
    return kinds[column.codes]


def _listed(value: Any, known: Mapping[Any, int]) -> Sequence[Any]:
    if isinstance(value, tuple | list | set | frozenset):
        return tuple(value)
    if value in known or not isinstance(value, str):
        return (value,)
    return [part.strip() for part in SEPARATORS.split(value) if part.strip()]
