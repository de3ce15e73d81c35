"""The commands that use a policy: decisions for a table, and exports for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from capi import files, runs
from capi.cli.app import app
from capi.cli.columns import check_table
from capi.data.table_files import existing


@app.command(epilog="Example: capi predict run new_patients.csv --out decisions.csv")
def predict(
    run: Annotated[str, typer.Argument(help="Folder of a finished run, or a policy file.")],
    table: Annotated[str, typer.Argument(help="CSV or Parquet file with the state columns.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="Output file: .csv or .parquet.")],
) -> None:
    """Decide for each row of a table, and write the table with an added column `decision`."""
    existing(run)
    check_table(table)
    n = runs.predict_table(run, table, out)
    typer.echo(f"{n} decisions  {out}")


@app.command(epilog="Example: capi export run --to sql")
def export(
    run: Annotated[str, typer.Argument(help="Folder of a finished run, or a policy file.")],
    to: Annotated[str, typer.Option(help="Format: text, json, dot, python, sql or onnx.")],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Output file.", show_default="standard output")
    ] = None,
    imitate: Annotated[bool, typer.Option("--imitate", help="Export a small tree that imitates the policy.")] = False,
) -> None:
    """Export a policy for people or for other programs."""
    existing(run)
    states = runs.load_run(run).batch().states if imitate and Path(run).is_dir() else None
    text = files.export_policy(runs.policy_of(run), to, imitate=imitate, states=states)  # type: ignore[arg-type]  # which refuses unknown formats
    if out is not None:
        runs.write_result(out, text)
    elif isinstance(text, bytes):
        sys.stdout.buffer.write(text)
    else:
        typer.echo(text)
