"""The table of a run: the roles of its columns, and its rows as a batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.validation import check_choice
from capi.data.schema import Schema
from capi.data.table_files import format_of
from capi.data.transitions import Transitions
from capi.errors import LEAST_SHOWN, InvalidInputError

ROLES = ("episode", "time", "state", "action", "reward", "terminated", "truncated", "propensity", "weight")
ORDERED = "ordered"  # not a role: the ordered categories among the state columns


def check_roles(roles: Mapping[str, Any]) -> None:
    """Refuse unknown roles, and require state, action and reward."""
    for role in roles:
        check_choice(role, "a role", (*ROLES, ORDERED))
    for role in ("state", "action", "reward"):
        if not roles.get(role):
            raise InvalidInputError(f"the {role} column{'s' if role == 'state' else ''} must be named: --{role} COL.")


def read_decisions(
    table: str | Path,
    roles: Mapping[str, Any],
    discount: float,
    schema: Schema | None = None,
    *,
    discount_per: float | str | None = None,
    min_category_rows: int = LEAST_SHOWN,
) -> Transitions:
    """Return the decisions of a CSV or Parquet file.

    Parameters
    ----------
    table : str or Path
    roles : mapping
        From some of `ROLES` to column names; a list for state. "ordered" maps state columns to their values in order.
    discount : float in [0, 1)
    schema : Schema, optional
        Encodings and actions of an earlier table, to reuse.
    discount_per : float or str, optional
        The time that the discount refers to, to discount by elapsed time; as in `Transitions.from_frame`.
    min_category_rows : int
        Categories with fewer rows become one.
    """
    reader = Transitions.from_csv if format_of(table) == "csv" else Transitions.from_parquet
    names: dict[str, Any] = {role: list(name) if role == "state" else name for role, name in roles.items()}
    if schema is not None:
        names.pop(ORDERED, None)  # the schema knows the orders
    return reader(
        table,
        **names,
        discount=discount,
        discount_per=discount_per,
        schema=schema,
        min_category_rows=min_category_rows,
    )


def check_several_actions(batch: Transitions) -> None:
    """Refuse to learn from a batch in which every row takes the same action."""
    taken = np.unique(batch.actions)
    if len(taken) == 1:
        label = batch.schema.action_labels[int(taken[0])]
        raise InvalidInputError(
            f"at least two actions must be taken in the table; every row takes action {label!r}, so there is nothing to compare it "
            "with and nothing can be learned. Check the action column and how the rows were filtered."
        )
