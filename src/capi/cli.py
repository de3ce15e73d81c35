"""The command line: ``capi reproduce NAME --out DIR``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from capi import __version__
from capi.errors import CapiError
from capi.experiments import NAMES

MIN_WIDTH = 130  # of tables that go to a file or a pipe

app = typer.Typer(
    name="capi",
    help="Decision policies from a fixed batch of logged decisions.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"capi {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Decision policies from a fixed batch of logged decisions."""


@app.command(epilog="Example: capi reproduce chain --out results/chain")
def reproduce(
    name: Annotated[str, typer.Argument(help="; ".join(f"{key}: {what}" for key, what in NAMES.items()))],
    out: Annotated[
        str | None, typer.Option(help="Folder for the results.", show_default="results/NAME or results/NAME-full")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's size, which may take hours, or a few minutes' worth.")
    ] = False,
) -> None:
    """Run an experiment of the paper; write records, table, claims and figures, and print them.

    After an interruption the same command goes on behind the runs that were finished.
    """
    from capi.experiments.driver import reproduce as run_experiment  # noqa: PLC0415  keeps --help quick

    try:
        folder = f"results/{name}{'-full' * full}" if out is None else out
        result = run_experiment(name, folder, "full" if full else "quick", _tracked)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; finished runs are kept, and the same command goes on behind them.")
        raise typer.Exit(130) from None
    console = _console()
    console.print(_table(result.title, result.headings, result.lines))
    verdicts = {True: "[green]true[/]", False: "[red]false[/]", None: "null"}
    lines = [[escape(key), verdicts[c.holds], escape(_numbers(c.numbers))] for key, c in result.claims.items()]
    console.print(_table("What the paper says", ["claim", "holds", "numbers"], lines, wrap=True))
    for picture in result.figures:
        typer.echo(f"picture  {picture}")
    typer.echo(f"numbers  {result.folder / 'table.csv'}, claims.json, records.jsonl")


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, MIN_WIDTH))


def _tracked(items: Sequence[Any]) -> Iterable[Any]:
    return track(items, description=f"{len(items)} runs", console=Console(stderr=True), transient=True)


def _table(title: str, headings: Sequence[str], lines: Sequence[Sequence[str]], wrap: bool = False) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for i, heading in enumerate(headings):
        numeric = not wrap and i >= 3
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold", no_wrap=not wrap)
    for line in lines:
        table.add_row(*line)
    return table


def _numbers(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{key} {json.dumps(_rounded(value))}" for key, value in numbers.items())


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Run the command line; errors that we foresee end with one sentence and exit code 1."""
    try:
        app()
    except CapiError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        sys.exit(1)


if __name__ == "__main__":
    main()
