"""The command that runs the paper's experiments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capi import experiments
from capi._utils.executors import dask_client
from capi._utils.late import rich
from capi._utils.rescue import rescued_by
from capi.cli.app import app, print_error
from capi.cli.clusters import Dask
from capi.cli.interrupts import exit_code
from capi.cli.output import Json, print_json
from capi.errors import CapiError, InvalidInputError
from capi.experiments import NAMES
from capi.experiments.experiment import load_experiment
from capi.experiments.setting import Size
from capi.experiments.terminal import print_result, shown_progress

if TYPE_CHECKING:
    from capi.experiments.driver import Result

STOPPED = "stopped; finished runs are kept, and the same command continues with the rest."


@app.command(epilog="Example: capi reproduce chain --out results/chain")
def reproduce(
    name: Annotated[
        str, typer.Argument(help="; ".join(f"{key}: {what}" for key, what in NAMES.items()) + "; all: all of them")
    ],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Output folder; with all, one subfolder each.",
            show_default="results/NAME or results/NAME-full",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Run at the paper's size (may take days), or take a few minutes.")
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of seeds; 0 only shows what is finished.",
            show_default="1 or 2; 50 if full",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Number of runs at the same time; -1 for one per core.")] = -1,
    only: Annotated[
        tuple[str, int] | None,
        typer.Option(metavar="SETTING SEED", help="Compute one record alone, whether or not it is finished."),
    ] = None,
    dask: Dask = None,
    as_json: Json = False,
) -> None:
    """Run an experiment from the paper; write and print its records, table, claims and figures; with all, also a page of all of them.

    Finished runs are kept and never computed again: if interrupted, the same command continues with the rest. A run that
    fails is recorded with its traceback, does not stop the others, and is tried again by the same command.
    """
    if name != "all":
        load_experiment(name)
    elif only is not None:
        raise InvalidInputError("--only needs the name of one experiment; got all.")
    names = NAMES if name == "all" else (name,)
    folders: dict[str, str | Path] = {key: _results_of(key, full) if out is None else Path(out) / key for key in names}
    if out is not None and name != "all":
        folders[name] = out
    try:
        with rescued_by(lambda: STOPPED):  # ending the processes of the runs may take a while
            if only is not None:
                _recompute(name, folders[name], *only)
                return
            results: list[Result] = []
            show = results.append if as_json else print_result
            with dask_client(dask) as client:
                finished = [
                    _reproduced(key, folders[key], full, runs, jobs, client, show, alone=name != "all") for key in names
                ]
    except KeyboardInterrupt:
        rich.console.Console(stderr=True).print(STOPPED)
        raise typer.Exit(exit_code()) from None
    poster = _poster(folders, out, full) if name == "all" else None
    if as_json:
        print_json({"experiments": [_record(result) for result in results], "poster": poster})
    elif poster is not None:
        typer.echo(f"poster   {poster}")
    if not all(finished):
        raise typer.Exit(1)


def _poster(folders: dict[str, str | Path], out: str | None, full: bool) -> Path | None:
    target = _results_of("poster", full).with_suffix(".html") if out is None else Path(out) / "poster.html"
    return experiments.write_poster(folders, target)


def _record(result: Result) -> dict[str, Any]:
    return {
        "title": result.title,
        "folder": result.folder,
        "table": result.folder / "table.csv",
        "figures": result.figures,
        "claims": {key: claim.holds for key, claim in result.claims.items()},
        "finished": result.n_finished,
        "failed": len(result.failed),
    }


def _reproduced(
    name: str,
    folder: str | Path,
    full: bool,
    runs: int | None,
    jobs: int,
    client: Any,
    show: Callable[[Result], None],
    *,
    alone: bool,
) -> bool:
    """Run an experiment and show its results; return whether all runs finished. If it is not alone, print its errors."""
    try:
        with shown_progress(name) as report:
            size: Size = "full" if full else "quick"
            result = experiments.reproduce(name, folder, size, runs=runs, jobs=jobs, executor=client, report=report)
    except CapiError as error:
        if alone:
            raise
        print_error(error)
        return False
    show(result)
    return not result.failed


def _recompute(name: str, folder: str | Path, setting: str, seed: int) -> None:
    """Compute one record, print it, and say whether it equals the former one."""
    with shown_progress(name) as report:
        found = experiments.recompute(name, folder, setting, seed, report=report)
    typer.echo(json.dumps(found.record, indent=2))
    if "error" in found.record:
        typer.echo(found.record["error"], err=True)
        raise typer.Exit(1)
    if found.former is None:
        typer.echo("There was no finished record to compare it with.", err=True)
    elif found.differences:
        typer.echo(f"It differs from the former record in {', '.join(found.differences)}.", err=True)
    else:
        typer.echo("It equals the former record, timings aside.", err=True)


def _results_of(name: str, full: bool) -> Path:
    return Path("results") / (f"{name}-full" if full else name)
