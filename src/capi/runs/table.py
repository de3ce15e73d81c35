"""The table of a run: the roles of its columns, and its rows as a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.validation import check_choice
from capi.data.partitions import SAMPLE_ROWS, PartitionedTransitions
from capi.data.readers.arrow import header_of
from capi.data.readers.pieces import parquet_files
from capi.data.schema import Schema
from capi.data.table_files import format_of, is_many
from capi.data.transitions import Transitions
from capi.errors import LEAST_SHOWN, InvalidInputError
from capi.runs.settings_file import ALL_OTHERS, EXCEPT, ORDERED, ROLES

MANY_ROWS = 1_000_000  # tables with more are learned from part by part
READ_AT_ONCE = 2**22


def resolved_roles(table: str | Path, roles: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked roles whose state is a list of columns of the table.

    A state may be one text, such as "age,sex", and may hold "*" for all columns without another role except those that
    the entry "except" lists. A column whose name has a comma or is "*" takes precedence. The table is opened only if needed.
    """
    check_roles(roles)
    state, left_out = _listed(roles["state"], "state"), _listed(roles.get(EXCEPT) or [], EXCEPT)
    kept = {role: name for role, name in roles.items() if role != EXCEPT and name}
    others = {role: name for role, name in kept.items() if role not in ("state", ORDERED)}
    has_commas = any("," in name for name in (*state, *left_out))
    if left_out or ALL_OTHERS in state or (has_commas and (is_many(table) or Path(table).exists())):
        state = _columns_of_state(table, state, left_out, others)
    return {**kept, "state": state}


def check_roles(roles: Mapping[str, Any]) -> None:
    """Refuse unknown roles and values that are not column names, and require state, action and either reward or cost."""
    for role, name in roles.items():
        check_choice(role, "a role", (*ROLES, EXCEPT, ORDERED))
        if role not in ("state", EXCEPT, ORDERED) and not isinstance(name, str | None):
            raise InvalidInputError(f"{role} must name one column as text; got {name!r}.")
    for role in ("state", "action", "reward"):
        if not roles.get(role) and not (role == "reward" and roles.get("cost")):
            also = ", or --cost COL if smaller is better" if role == "reward" else ""
            raise InvalidInputError(
                f"the {role} column{'s' if role == 'state' else ''} must be named: --{role} COL{also}."
            )
    if roles.get("reward") and roles.get("cost"):
        raise InvalidInputError("reward and cost must not both be given. Name the column that decisions are judged by.")
    for role in ("state", EXCEPT):
        _listed(roles.get(role) or [], role)


def _listed(names: Any, role: str) -> list[str]:
    """Return one column or several as a list."""
    listed: list[Any] = [names] if isinstance(names, str) else list(names) if isinstance(names, Sequence) else [None]
    if not all(isinstance(name, str) for name in listed):
        raise InvalidInputError(f"{role} must name columns, as text or a list of texts; got {names!r}.")
    return listed


def _columns_of_state(
    table: str | Path, state: Sequence[str], left_out: Sequence[str], others: Mapping[str, str]
) -> list[str]:
    header = header_of(table)
    named = split_at_commas(state, header.names)
    without = split_at_commas(left_out, header.names)
    if ALL_OTHERS not in named or ALL_OTHERS in header.names:
        if without:
            raise InvalidInputError('except must be given with --state "*": other states are listed one by one.')
        return named
    header.check_names([*(name for name in named if name != ALL_OTHERS), *without, *others.values()])
    taken = {*named, *without, *others.values()}
    rest = [name for name in header.names if name not in taken]
    at = named.index(ALL_OTHERS)
    found = [name for name in (*named[:at], *rest, *named[at + 1 :]) if name != ALL_OTHERS]
    if not found:
        raise InvalidInputError(f'state "*" must leave at least one column; {table} has no other columns.')
    return found


def split_at_commas(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the names with "a,b" as two, unless it is the name of a column."""
    split: list[str] = []
    for name in names:
        parts = [name] if name in known else [part.strip() for part in name.split(",")]
        split += [part for part in parts if part]
    return split


def read_decisions(
    table: str | Path,
    roles: Mapping[str, Any],
    discount: float,
    schema: Schema | None = None,
    discount_per: float | str | None = None,
    min_category_rows: int = LEAST_SHOWN,
) -> Transitions:
    """Return the decisions of a CSV or Parquet file.

    Parameters
    ----------
    table : str or Path
    roles : mapping
        From some of `ROLES` to column names; `resolved_roles` says what state may be. "ordered" maps state columns to their
        values in order.
    discount : float in [0, 1)
    schema : Schema, optional
        Encodings and actions of an earlier table, to reuse.
    discount_per : float or str, optional
        The time that the discount refers to, to discount by elapsed time; as in `Transitions.from_frame`.
    min_category_rows : int
        Categories with fewer rows become one.
    """
    reader = Transitions.from_csv if format_of(table) == "csv" else Transitions.from_parquet
    names: dict[str, Any] = resolved_roles(table, roles)
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


def is_large(table: str | Path) -> bool:
    """Return whether a table has so many rows that it is learned from part by part."""
    if not has_many_bytes(table):
        return False
    if format_of(table) == "csv":
        return n_lines(table) > MANY_ROWS + 1
    return parquet_files(table, [])[-1].end > MANY_ROWS


def n_rows_of(table: str | Path) -> int:
    """Return the number of rows of a table; of a compressed CSV file it is a guess."""
    return n_lines(table) - 1 if format_of(table) == "csv" else parquet_files(table, [])[-1].end


def has_many_bytes(table: str | Path) -> bool:
    """Return whether a table can have many rows at all: few bytes are quickly seen."""
    path = Path(table)
    return is_many(table) or (path.is_file() and path.stat().st_size > MANY_ROWS)


def n_lines(path: str | Path) -> int:
    """Return the number of lines of a file; of a compressed file, of its bytes."""
    with Path(path).open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(READ_AT_ONCE), b""))


def read_partitions(
    table: str | Path,
    sample_rows: int | None,
    executor: Any,
    roles: Mapping[str, Any],
    discount: float,
    schema: Schema | None = None,
    discount_per: float | str | None = None,
    min_category_rows: int = LEAST_SHOWN,
) -> PartitionedTransitions:
    """Return the decisions of a table in parts; a CSV file is read into memory first."""
    settings: dict[str, Any] = {
        "executor": executor,
        "sample_rows": SAMPLE_ROWS if sample_rows is None else sample_rows,
    }
    if format_of(table) == "csv":
        whole = read_decisions(
            table, roles, discount, schema, discount_per=discount_per, min_category_rows=min_category_rows
        )
        return PartitionedTransitions.of(whole, **settings)
    names: dict[str, Any] = resolved_roles(table, roles)
    if schema is not None:
        names.pop(ORDERED, None)
    names |= {
        "discount": discount,
        "discount_per": discount_per,
        "schema": schema,
        "min_category_rows": min_category_rows,
    }
    return PartitionedTransitions.from_parquet(table, **settings, **names)


def read_all(
    table: str | Path,
    executor: Any = None,
    *,
    sample_rows: int | None = None,
    roles: Mapping[str, Any],
    discount: float,
    **reading: Any,
) -> Transitions | PartitionedTransitions:
    """Return the decisions of a table, in parts, which the ``executor`` reads, if they are many."""
    if not is_large(table):
        return read_decisions(table, roles, discount, **reading)
    return read_partitions(table, sample_rows, executor, roles, discount, **reading)


def check_several_actions(batch: Transitions) -> None:
    """Refuse to learn from a batch in which every row takes the same action."""
    taken = np.unique(batch.actions)
    if len(taken) == 1:
        label = batch.schema.action_labels[int(taken[0])]
        raise InvalidInputError(
            f"at least two actions must be taken in the table; every row takes action {label!r}, so there is nothing to compare it "
            "with and nothing can be learned. Check the action column and how the rows were filtered."
        )


def check_complete(batch: Transitions | PartitionedTransitions, part: str) -> None:
    """Refuse missing values, which ``part`` of the settings cannot handle; the message names the column and the first row."""
    if isinstance(batch, PartitionedTransitions):
        return batch.check_complete(part)
    missing = np.isnan(batch.states)
    if missing.any():
        row, column = (int(number) for number in np.argwhere(missing)[0])
        raise InvalidInputError(
            f"column {batch.schema.feature_names[column]!r} must have no missing values for {part}; row {row} has one. "
            "Fill them in, leave the column out, or use fitted-q with optimal-trees, trees or forests, which handle them."
        )
