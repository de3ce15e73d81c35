"""The commands that produce evidence: an evaluation, and a page for all readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from capi import report as pages
from capi import runs
from capi._utils.executors import dask_client
from capi.cli.app import CommandWithRenamedOptions, app
from capi.cli.clusters import Dask
from capi.cli.columns import check_table
from capi.cli.output import Json, print_json
from capi.cli.progress import shown_work


@app.command(cls=CommandWithRenamedOptions, epilog="Example: capi evaluate run later_patients.csv")
def evaluate(
    run: Annotated[str, typer.Argument(help="Folder of a finished run.")],
    table: Annotated[
        str | None,
        typer.Argument(
            help="CSV or Parquet file of other episodes.", show_default="the episodes held out by capi fit --hold-out"
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Cross-evaluate: split the run's table into N folds, refit without each fold, and evaluate on it.",
            metavar="N",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="Main estimate: doubly-robust, weighted-doubly-robust, fitted-q, weighted, per-decision or "
            "weighted-per-decision; auto is doubly-robust, or fitted-q if policy and log overlap too little."
        ),
    ] = "auto",
    n_resamples: Annotated[int, typer.Option(help="Bootstrap resamples (of whole episodes).")] = 200,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    random_state: Annotated[int, typer.Option(help="Random seed; the same seed gives the same numbers.")] = 0,
    dask: Dask = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate the value of a policy from logged data, with intervals, comparisons with the log and with the best single action, and caveats.

    The estimates are saved in the run folder and shown in the report.
    """
    if table is not None:
        check_table(table)
    settings = {
        "method": method,
        "n_resamples": n_resamples,
        "level": level,
        "random_state": random_state,
        "n_jobs": -1,
    }
    with dask_client(dask) as client, shown_work(f"evaluating {run}") as work:
        found = runs.evaluate_run(
            run,
            table,
            folds=folds,
            executor=client,
            shown=lambda items: work.steps(items, len(items), step="fold"),
            **settings,
        )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    typer.echo(str(found))
    typer.echo(f"rows        {found.source}")
    typer.echo(f"evaluation  {Path(run) / 'evaluation.json'}")


@app.command(epilog="Example: capi report run")
def report(
    run: Annotated[str, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Output file.", show_default="RUN/report.html")
    ] = None,
    include_cases: Annotated[
        bool,
        typer.Option(
            "--include-cases",
            help="Embed a sample of logged rows, to show the nearest cases; everyone who gets the page gets these rows.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write an HTML page about a run: data, rules, where decisions matter, estimated value, and a panel to try the policy.

    The page works offline, and contains no row of the table without --include-cases.
    """
    page = pages.write_report(run, out, include_cases=include_cases)
    if as_json:
        print_json({"report": page})
    else:
        typer.echo(f"report  {page}")
