"""The command that writes a first settings file for a table."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from capi import runs
from capi.cli.app import app
from capi.cli.columns import (
    ACTION,
    REWARD,
    SETTINGS_FILE,
    STATE,
    Episode,
    Propensity,
    Terminated,
    Time,
    Truncated,
    Weight,
    check_table,
    roles_of,
)
from capi.cli.output import Json, print_json
from capi.errors import InvalidInputError

NONE = "none"  # the answer that no column has a role


@app.command(epilog="Example: capi init patients.csv")
def init(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="CSV or Parquet file of logged decisions.")],
    out: Annotated[str, typer.Option(metavar="TOML", help="Settings file to write.")] = SETTINGS_FILE,
    action: Annotated[str | None, ACTION] = None,
    reward: Annotated[str | None, REWARD] = None,
    state: Annotated[list[str] | None, STATE] = None,
    episode: Episode = None,
    time: Time = None,
    terminated: Terminated = None,
    truncated: Truncated = None,
    propensity: Propensity = None,
    weight: Weight = None,
    yes: Annotated[bool, typer.Option("--yes", help="Accept all guesses without asking.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing settings file.")] = False,
    as_json: Json = False,
) -> None:
    """Guess the roles of a table's columns from their names and values, and write a commented settings file.

    In the folder of that file, `capi describe` and `capi fit` need no options. Roles that are given are not guessed; those that
    remain unclear are asked for.
    """
    check_table(table)
    given = roles_of(context)
    guess = runs.guess_roles(table, given)
    while guess.unsure and not (yes and all(guess.unsure.values())):
        role, candidates = next(pair for pair in guess.unsure.items() if not (yes and pair[1]))
        answered = {**given, role: _asked(role, candidates, table)}
        try:
            given, guess = answered, runs.guess_roles(table, answered)
        except InvalidInputError as error:  # a column that does not exist: ask again
            typer.echo(error, err=True)
    runs.write_settings(out, table, guess, force=force)
    if as_json:
        print_json({"settings": out, "roles": guess.roles, "left_out": guess.left_out})
        return
    for role, name in guess.roles.items():
        columns = name if isinstance(name, str) else ", ".join(name)
        typer.echo(f"{role:<10}  {columns}" + (f"  ({guess.reasons[role]})" if role in guess.reasons else ""))
    for name, reason in guess.left_out.items():
        typer.echo(f"{'left out':<10}  {name}: {reason}")
    typer.echo(f"{'settings':<10}  {out}")
    if out == SETTINGS_FILE:
        typer.echo(f"{'next':<10}  check {out}, then run capi describe and capi fit")
    else:
        typer.echo(f"{'next':<10}  check {out}, then run capi fit --settings {out}")


def _asked(role: str, candidates: tuple[str, ...], table: str) -> Any:
    """Return the column that the user names for a role; without a terminal, raise an error that says what to do."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        if not candidates:
            raise InvalidInputError(f"{table}: no column looks like the {role}. Name it: --{role} COL.")
        accept = f", or accept {candidates[0]} with --yes" if candidates else ""
        raise InvalidInputError(
            f"{table}: the {role} column is unclear; it could be {_listed(candidates)}. Name it: --{role} COL{accept}."
        )
    if candidates:
        typer.echo(f"Which column is the {role}? It could be {_listed(candidates)}.")
    optional = role not in ("action", "reward")
    hint = f" ({NONE} if there is no such column)" if optional else ""
    answer = typer.prompt(f"{role}{hint}", default=candidates[0] if candidates else None)
    return None if optional and answer == NONE else answer


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
