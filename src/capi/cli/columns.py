"""Options that name the columns of a table, shared by the commands that read one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from capi.data.table_files import existing, format_of
from capi.errors import InvalidInputError
from capi.runs.settings_file import LEARNING, NO_LIMIT, ROLES, located, read_sections


def _column(help_text: str) -> Any:
    """Return an option that names a column of the table."""
    return typer.Option(metavar="COL", help=help_text, rich_help_panel="Columns of the table")


SETTINGS_FILE = "capi.toml"  # written by capi init
SIZES = ("max_depth", "min_samples_leaf", "n_thresholds", "leaf_penalty", "time_limit")

# Columns that `roles_of` collects from the command's context.
ACTION = _column("Action taken.")
REWARD = _column("Reward of that action; larger is better.")
Cost = Annotated[str | None, _column("Instead of --reward: cost of that action; smaller is better.")]
STATE = _column(
    'State variable; repeat the option or separate names by commas; "*" for all columns without another role.'
)
Episode = Annotated[str | None, _column("Episode identifier.")]
Time = Annotated[str | None, _column("Time within the episode.")]
Terminated = Annotated[str | None, _column("Whether the process ended after this row.")]
Truncated = Annotated[str | None, _column("Whether only the recording ended after this row.")]
Propensity = Annotated[str | None, _column("Probability of the action taken.")]
Except = Annotated[
    list[str] | None,
    typer.Option(
        "--except",
        metavar="COL",
        help='Column that --state "*" leaves out; repeat or separate by commas.',
        rich_help_panel="Columns of the table",
    ),
]
Weight = Annotated[str | None, _column("Weight of the row.")]
Ordered = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COL=A,B,...",
        help='Ordered category and its values from lowest to highest, such as "age=<18,18-64,65+"; repeat the option for each.',
        rich_help_panel="Columns of the table",
    ),
]

DiscountPer = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help='Discount by elapsed time: the time that the discount refers to, as a number in the units of --time or, for dates, such as "7 days".',
        show_default="each row is one step",
    ),
]


def roles_of(context: typer.Context) -> dict[str, Any]:
    """Return the columns named by the options, by role."""
    options = {**context.params, "except": context.params.get("left_out")}
    named = {role: options[role] for role in (*ROLES, "except") if options.get(role)}
    orders = dict(_order(text) for text in context.params.get("ordered") or ())
    return {**named, "ordered": orders} if orders else named


def _order(text: str) -> tuple[str, list[str]]:
    """Return the column and the values of an ordered category."""
    name, equals, values = text.partition("=")
    listed = [value.strip() for value in values.split(",")]
    if not name or not equals or not all(listed):
        raise InvalidInputError(
            f'--ordered must be a column and its values, such as "age=<18,18-64,65+"; got {text!r}.'
        )
    return name.strip(), listed


def given_options(context: typer.Context) -> set[str]:
    """Return the names of the parameters that are on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def changes_of(context: typer.Context, table: str | None) -> dict[str, dict[str, Any]]:
    """Return what the command line says about a table and how to learn from it, as sections of a settings file."""
    options, given = context.params, given_options(context)
    sizes = {name: options[name] for name in SIZES if options.get(name) is not None}
    if options.get("exact") or "time_limit" in sizes:
        sizes["work_limit"] = NO_LIMIT
    kinds = {part: {"kind": options[part]} if part in given else {} for part in ("evaluator", "space")}
    n_sweeps = options.get("n_sweeps")
    return {
        "data": {**({} if table is None else {"table": table}), **roles_of(context)},
        "learning": {name: options[name] for name in LEARNING if name in given},
        "evaluator": {**kinds["evaluator"], **({} if n_sweeps is None else {"n_sweeps": n_sweeps})},
        "space": {**kinds["space"], **sizes},
    }


def settings_here(changes: dict[str, dict[str, Any]]) -> str | None:
    """Return the settings file in this folder, capi.toml, unless the command line names a table and all that must be known of it."""
    data = changes["data"]
    complete = {"table", "state", "action"} <= set(data) and ("reward" in data or "cost" in data)
    return SETTINGS_FILE if not complete and Path(SETTINGS_FILE).is_file() else None


def checked_settings(path: str, table: str | None) -> None:
    """Refuse settings with unknown names and a missing table, before any slow import; ``table`` replaces that of the file."""
    named = read_sections(existing(path)).get("data", {}).get("table")
    if table is not None:
        check_table(table)
    elif isinstance(named, str):
        check_table(located(named, path))


def check_table(table: str) -> None:
    """Refuse a table that is missing or has an unknown format, before any slow import."""
    format_of(table)
    existing(table)
