"""The command that runs the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from capi._utils.suggestions import did_you_mean
from capi.cli.app import app
from capi.cli.output import Json, print_json
from capi.errors import InvalidInputError


@app.command(epilog="Example: capi bench optimal_trees")
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks to run; all by default.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the benchmarks and exit.")] = False,
    as_json: Json = False,
) -> None:
    """Run benchmarks against other libraries; needs the source repository."""
    folder = Path(__file__).parents[3] / "benchmarks"
    known = sorted(path.stem for path in folder.glob("*.py") if path.stem != "timing")
    if not known:
        raise InvalidInputError(
            "benchmarks are in the source repository, not in the installed package. Clone the repository and run make bench."
        )
    if unknown := set(names or []) - set(known):
        raise InvalidInputError(
            f"unknown benchmark {min(unknown)!r}. Choose from {', '.join(known)}.{did_you_mean(min(unknown), known)}"
        )
    chosen = known if listed else names or known
    for name in chosen:
        if not as_json:
            typer.echo(name)
        output = sys.stderr if as_json else None  # standard output is for the JSON object
        if (
            not listed
            and subprocess.run([sys.executable, folder / f"{name}.py"], check=False, stdout=output).returncode
        ):
            raise InvalidInputError(
                f"the benchmark {name} failed. pip install -e '.[bench]' installs the libraries it needs."
            )
    if as_json:
        print_json({"benchmarks": list(chosen), "run": not listed})
