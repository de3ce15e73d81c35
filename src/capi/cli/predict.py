"""The commands that use a policy: decisions for a table, and exports for other programs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from capi import files, runs
from capi.cli.app import app
from capi.cli.columns import check_table
from capi.cli.output import Json, print_json
from capi.data.table_files import existing
from capi.errors import InvalidInputError, UnseenCategoryWarning


@app.command(epilog="Example: capi predict run new_patients.csv --out decisions.csv")
def predict(
    run: Annotated[str, typer.Argument(help="Folder of a finished run, or a policy file.")],
    table: Annotated[str, typer.Argument(help="CSV or Parquet file with the state columns.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="Output file: .csv or .parquet.")],
    spreadsheet_safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="In CSV, put ' before text that spreadsheets would run as a formula."),
    ] = False,
    random_state: Annotated[int, typer.Option(help="Random seed of policies that draw their actions.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Decide for each row of a table, and write the table with an added column `decision`.

    A policy that draws its actions, such as what was done, draws them here, too: always taking its most probable action would be another policy.
    """
    existing(run)
    check_table(table)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UnseenCategoryWarning)
        n = runs.predict_table(run, table, out, spreadsheet_safe=spreadsheet_safe, random_state=random_state)
    texts = [str(warning.message) for warning in found]
    for text in texts:
        typer.echo(f"{typer.style('warning:', fg='yellow', bold=True)} {text}", err=True)
    if as_json:
        print_json({"rows": n, "decisions": out, "warnings": texts})
    else:
        typer.echo(f"{n} decisions  {out}")


@app.command(epilog="Example: capi export run --to sql")
def export(
    run: Annotated[str, typer.Argument(help="Folder of a finished run, or a policy file.")],
    to: Annotated[str, typer.Option(help="Format: text, json, dot, python, sql or onnx.")],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Output file.", show_default="standard output")
    ] = None,
    imitate: Annotated[bool, typer.Option("--imitate", help="Export a small tree that imitates the policy.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object with the export or, with --out, its file.")
    ] = False,
) -> None:
    """Export a policy for people or for other programs."""
    existing(run)
    states = runs.load_run(run).batch().states if imitate and Path(run).is_dir() else None
    text = files.export_policy(runs.policy_of(run), to, imitate=imitate, states=states)  # type: ignore[arg-type]  # which refuses unknown formats
    if as_json and out is None and isinstance(text, bytes):
        raise InvalidInputError(f"--json cannot hold {to}, which is binary. Give --out a file.")
    if out is not None:
        runs.write_result(out, text)
    if as_json:
        print_json({"format": to, **({"export": text} if out is None else {"out": out})})
    elif out is not None:
        return
    elif isinstance(text, bytes):
        sys.stdout.buffer.write(text)
    else:
        typer.echo(text)
