"""The command that writes a first settings file for a table."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from capi import runs
from capi.cli.app import app
from capi.cli.columns import (
    ACTION,
    REWARD,
    SETTINGS_FILE,
    STATE,
    Cost,
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
    cost: Cost = None,
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
        unfit = [guess.unfit[role]] if role in guess.unfit else []
        notes = unfit or (guess.notes if role == "action" else ())
        answered = {**given, **_asked(role, candidates, table, notes, "can be" if unfit else "looks like")}
        try:
            given, guess = answered, runs.guess_roles(table, answered)
        except InvalidInputError as error:  # a column that does not exist: ask again
            typer.echo(error, err=True)
    runs.write_settings(out, table, guess, force=force)
    if as_json:
        print_json({"settings": out, "roles": guess.roles, "left_out": guess.left_out, "notes": list(guess.notes)})
        return
    for role, name in guess.roles.items():
        columns = name if isinstance(name, str) else ", ".join(name)
        smaller = "; smaller is better" if role == "cost" else ""
        _say(role, columns + (f"  ({guess.reasons[role]}{smaller})" if role in guess.reasons else ""))
    for name, reason in guess.left_out.items():
        _say("left out", f"{name or '(no name)'}: {reason}")
    for note in guess.notes:
        _say("note", note)
    _say("settings", out)
    then = "capi describe and capi fit" if out == SETTINGS_FILE else f"capi fit --settings {out}"
    _say("next", f"check {out}, then run {then}")


def _say(what: str, text: str) -> None:
    """Print a line of the answer, broken at spaces to the width of the terminal."""
    width = max(80, shutil.get_terminal_size((120, 24)).columns)
    lines = textwrap.wrap(
        f"{what:<10}  {text}", width, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False
    )
    typer.echo("\n".join(lines))


def _asked(role: str, candidates: tuple[str, ...], table: str, notes: Sequence[str], looks_like: str) -> dict[str, Any]:
    """Return the column that the user names for a role; without a terminal, raise an error that says what to do.

    A reward whose name says that it is a cost becomes the cost.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        if not candidates:
            hints = "".join(f" {note}" for note in notes)
            raise InvalidInputError(f"{table}: no column {looks_like} the {role}. Name it: --{role} COL.{hints}")
        accept = f", or accept {candidates[0]} with --yes"
        other = " (or --cost COL, if smaller is better)" if role == "reward" else ""
        raise InvalidInputError(
            f"{table}: the {role} column is unclear; perhaps {_listed(candidates)}. Name it: --{role} COL{other}{accept}."
            + "".join(f" {note}" for note in notes)
        )
    for note in notes:
        _say("note", note)
    if candidates:
        typer.echo(f"Which column is the {role}? Perhaps {_listed(candidates)}.")
    optional = role not in ("action", "reward")
    hint = f" ({NONE} if there is no such column)" if optional else ""
    answer = typer.prompt(f"{role}{hint}", default=candidates[0] if candidates else None)
    if role == "reward" and runs.sounds_like_a_cost(answer):
        return {"reward": None, "cost": answer}
    return {role: None if optional and answer == NONE else answer}


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
