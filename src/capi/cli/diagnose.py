"""The command that says where the loss of a run's learner comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from capi import runs
from capi._utils.executors import dask_client
from capi.cli.app import app
from capi.cli.clusters import Dask
from capi.cli.progress import shown_work


@app.command(epilog="Example: capi diagnose run")
def diagnose(
    run: Annotated[str, typer.Argument(help="Folder of a finished run.")],
    n_refits: Annotated[
        int, typer.Option(help="Refits on resampled episodes, and as many on halves of the episodes.")
    ] = 10,
    random_state: Annotated[int, typer.Option(help="Random seed; the same seed gives the same numbers.")] = 0,
    dask: Dask = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say where a policy loses: by the estimated values, the policy space, the sample or by leaving the log; and how stable its rules are.

    The learner is fitted again many times. The result is saved in the run folder and shown in the report.
    """
    with dask_client(dask) as client, shown_work(f"fitting {run} again") as work:
        found = runs.diagnose_run(
            run,
            n_refits=n_refits,
            random_state=random_state,
            executor=client,
            shown=lambda items: work.steps(items, len(items), step="refit"),
        )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    typer.echo(str(found))
    typer.echo(f"diagnosis  {Path(run) / 'diagnosis.json'}")
