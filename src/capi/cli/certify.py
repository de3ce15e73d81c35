"""The command that bounds what the last improvement of a run's learner loses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from capi import runs
from capi.cli.app import app
from capi.cli.progress import shown_work


@app.command(epilog="Example: capi certify run --delta 0.1")
def certify(
    run: Annotated[str, typer.Argument(help="Folder of a finished run.")],
    delta: Annotated[float, typer.Option(help="Probability with which some bound may fail.")] = 0.05,
    units: Annotated[
        str, typer.Option(help="What is independent: episodes, or rows (as the paper's analysis assumes).")
    ] = "episodes",
    n_draws: Annotated[int, typer.Option(help="Draws of random signs, for policies with one cut.")] = 100,
    random_state: Annotated[int, typer.Option(help="Random seed; the same seed gives the same numbers.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Bound the loss of a run's last improvement with confidence, and say whether sample, policy space or values limit it.

    The learner is fitted again on half of the episodes. The result is saved in the run folder and shown in the report.
    """
    with shown_work(f"fitting half of {run} again"):
        found = runs.certify_run(run, delta=delta, units=units, n_draws=n_draws, random_state=random_state)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    typer.echo(str(found))
    typer.echo(f"certificate  {Path(run) / 'certificate.json'}")
