"""The command that compares the policies of runs."""

from __future__ import annotations

from typing import Annotated

import typer

from capi import runs
from capi.cli.app import app
from capi.cli.columns import check_table
from capi.cli.output import Json, print_json
from capi.cli.progress import shown_work
from capi.data.table_files import existing


@app.command(epilog="Example: capi compare run run-without-age")
def compare(
    folders: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Folders of finished runs.")],
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="CSV or Parquet file of other episodes.",
            show_default="the episodes that all runs held out",
        ),
    ] = None,
    discount: Annotated[
        float | None, typer.Option(help="Discount factor.", show_default="that of the runs, if they agree")
    ] = None,
    n_resamples: Annotated[int, typer.Option(help="Bootstrap resamples (of whole episodes).")] = 200,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    random_state: Annotated[int, typer.Option(help="Random seed; the same seed gives the same numbers.")] = 0,
    as_json: Json = False,
) -> None:
    """Estimate the values of several runs' policies on the same episodes, and say which is better and how often they decide alike."""
    for folder in folders:
        existing(folder)
    if table is not None:
        check_table(table)
    settings = {"n_resamples": n_resamples, "level": level, "random_state": random_state, "n_jobs": -1}
    if discount is not None:
        settings["discount"] = discount
    with shown_work("comparing"):
        found = runs.compare_runs(folders, table, **settings)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
