"""How an experiment looks in a terminal: progress while it runs, then its table and its claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from capi._utils.heartbeat import LINE_EVERY, Heartbeat
from capi._utils.late import rich

if TYPE_CHECKING:
    from capi.experiments.driver import Result
    from capi.experiments.runner import Progress

MIN_WIDTH = 130  # of tables written to a file or a pipe
MOST_RUNNING = 4  # runs that are named in a line
MOST_FAILURES = 5  # that are printed


@contextmanager
def shown_progress(name: str) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress on standard error: a bar in a terminal, otherwise a line every few seconds."""
    console = rich.console.Console(stderr=True)
    if not console.is_terminal:
        lines = ProgressLines(name)
        with lines.heartbeat.beating():
            yield lines
        return
    columns = (rich.progress.BarColumn(20), rich.progress.TextColumn("{task.description}"))
    with rich.progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None)

        def show(progress: Progress) -> None:
            text = rich.markup.escape(f"{name}: {progress}")
            bar.update(task, total=progress.n_tasks, completed=progress.n_finished, description=text)

        yield show


class ProgressLines:
    """Prints progress as lines: every failure, the last run, and otherwise one line every few seconds, whatever happens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.printed = -LINE_EVERY
        self.last: Progress | None = None
        self.heartbeat = Heartbeat(self._repeat, LINE_EVERY)

    def __call__(self, progress: Progress) -> None:
        """Print a line if it is time."""
        self.last = progress
        last = progress.n_finished + progress.n_failed == progress.n_tasks
        important = last or progress.event.startswith("FAILED")
        if important or monotonic() - self.printed >= LINE_EVERY:
            self.printed = monotonic()
            self.heartbeat.spoken()
            event = f"; {progress.event}" if progress.event else ""
            typer.echo(f"{self.name}: {progress}{event}", err=True)

    def _repeat(self) -> None:
        """Print what is running, because nothing has happened for a while."""
        counts = "" if self.last is None else f"{self.last}; "
        running = "" if self.last is None else ", ".join(self.last.running[:MOST_RUNNING])
        typer.echo(f"{self.name}: {counts}still running {running or 'the experiment'}", err=True)


def print_result(result: Result) -> None:
    """Print the table and the claims of an experiment, where its files are, and what failed."""
    console = _console()
    _print_table(console, result.title, result.headings, result.lines)
    verdicts = {True: "[green]true[/]", False: "[red]false[/]", None: "null"}
    lines = [
        [rich.markup.escape(key), verdicts[claim.holds], rich.markup.escape(_numbers(claim.numbers))]
        for key, claim in result.claims.items()
    ]
    _print_table(console, "Claims of the paper", ["claim", "holds", "numbers"], lines, wrap=True)
    for figure in result.figures:
        typer.echo(f"figure   {figure}")
    typer.echo(f"numbers  {result.folder / 'table.csv'}, claims.json, records")
    if result.n_other_code:
        typer.echo(
            f"note     {result.n_other_code} of {result.n_finished} finished runs were computed by another version of the code. "
            f"To compute them again, delete {result.folder / 'records'}."
        )
    for record in result.failed[:MOST_FAILURES]:
        reason = record["error"].strip().splitlines()[-1]
        typer.echo(f"failed   {record['setting']} seed {record['seed']}: {reason}", err=True)
    if result.failed:
        typer.echo(
            f"failed   {len(result.failed)} of {len(result.failed) + result.n_finished} runs. "
            "Their tracebacks are in the records; the same command tries them again.",
            err=True,
        )


def _console() -> rich.console.Console:
    console = rich.console.Console()
    return console if console.is_terminal else rich.console.Console(width=max(console.width, MIN_WIDTH))


def _print_table(
    console: rich.console.Console,
    title: str,
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    wrap: bool = False,
) -> None:
    table = rich.table.Table(header_style="bold", box=None, pad_edge=False)
    for i, heading in enumerate(headings):
        numeric = not wrap and i >= 3
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold", no_wrap=not wrap)
    for line in lines:
        table.add_row(*line)
    console.print(f"[italic]{rich.markup.escape(title)}[/]")
    console.print(table)


def _numbers(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{key} {json.dumps(_rounded(value))}" for key, value in numbers.items())


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
