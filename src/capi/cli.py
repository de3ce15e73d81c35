"""The command-line interface: from a table to a policy, and the paper's experiments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from capi import experiments, files, runs
from capi import report as pages
from capi._utils.late import rich
from capi._utils.versions import __version__
from capi.data.table_files import existing, format_of
from capi.errors import CapiError, InvalidInputError
from capi.experiments import NAMES
from capi.experiments.experiment import load_experiment
from capi.experiments.setting import Size
from capi.experiments.terminal import print_result, shown_progress

OSCILLATING = 0.05  # share of decisions changed in the last iteration above which a note is printed

RENAMED_OPTIONS = {
    "--iterations": "--n-iterations",
    "--seed": "--random-state",
    "--sweeps": "--n-sweeps",
    "--resamples": "--n-resamples",
}


class CommandWithRenamedOptions(TyperCommand):
    """A command that refuses renamed options with an error that gives the new name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse renamed options, then parse the arguments."""
        known = {name for parameter in self.params for name in parameter.opts}
        for argument in args:
            old = argument.partition("=")[0]
            if RENAMED_OPTIONS.get(old) in known:
                ctx.fail(f"{old} is now called {RENAMED_OPTIONS[old]}.")
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="capi",
    help="Learn decision policies from a fixed batch of logged decisions.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"capi {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn decision policies from a fixed batch of logged decisions."""


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
) -> None:
    """Run an experiment from the paper; write and print its records, table, claims and figures.

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
        if only is not None:
            _recompute(name, folders[name], *only)
            return
        finished = [_reproduced(key, folders[key], full, runs, jobs, alone=name != "all") for key in names]
    except KeyboardInterrupt:
        rich.console.Console(stderr=True).print(
            "stopped; finished runs are kept, and the same command continues with the rest."
        )
        raise typer.Exit(130) from None
    if not all(finished):
        raise typer.Exit(1)


def _reproduced(name: str, folder: str | Path, full: bool, runs: int | None, jobs: int, *, alone: bool) -> bool:
    """Run an experiment and print its results; return whether all runs finished. If it is not alone, print its errors."""
    try:
        with shown_progress(name) as report:
            size: Size = "full" if full else "quick"
            result = experiments.reproduce(name, folder, size, runs=runs, jobs=jobs, report=report)
    except CapiError as error:
        if alone:
            raise
        _print_error(error)
        return False
    print_result(result)
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


def _column(help_text: str) -> Any:
    """Return an option that names a column of the table."""
    return typer.Option(metavar="COL", help=help_text, rich_help_panel="Columns of the table")


# Columns that `_roles` collects from the command's context.
ACTION = _column("Action taken.")
REWARD = _column("Reward of that action.")
STATE = _column("State variable; repeat the option for each.")
Episode = Annotated[str | None, _column("Episode identifier.")]
Time = Annotated[str | None, _column("Time within the episode.")]
Terminated = Annotated[str | None, _column("Whether the process ended after this row.")]
Truncated = Annotated[str | None, _column("Whether only the recording ended after this row.")]
Propensity = Annotated[str | None, _column("Probability of the action taken.")]
Weight = Annotated[str | None, _column("Weight of the row.")]


def _roles(context: typer.Context) -> dict[str, Any]:
    """Return the columns named by the options, by role."""
    return {role: context.params[role] for role in runs.ROLES if context.params.get(role)}


@app.command(
    epilog="Example: capi describe patients.csv --episode patient --time day --state age --state cd4 --action drug --reward gain"
)
def describe(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="CSV or Parquet file of logged decisions.")],
    action: Annotated[str, ACTION],
    reward: Annotated[str, REWARD],
    state: Annotated[list[str], STATE],
    episode: Episode = None,
    time: Time = None,
    terminated: Terminated = None,
    truncated: Truncated = None,
    propensity: Propensity = None,
    weight: Weight = None,
    discount: Annotated[
        float, typer.Option(help="Discount factor; 0 if decisions affect only their own reward.")
    ] = 0.99,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how a table is read: episodes, actions, missing values, coverage and warnings."""
    _check_table(table)
    found = runs.read_decisions(table, _roles(context), discount).describe()
    typer.echo(json.dumps(found.to_dict(), default=str) if as_json else str(found))


@app.command(
    cls=CommandWithRenamedOptions,
    epilog="Example: capi fit patients.csv --out run --episode patient --time day --state age --state cd4 --action drug --reward gain",
)
def fit(
    context: typer.Context,
    table: Annotated[str | None, typer.Argument(help="CSV or Parquet file of logged decisions.")] = None,
    out: Annotated[str, typer.Option(metavar="RUN", help="Run folder.")] = "run",
    settings: Annotated[
        str | None, typer.Option(metavar="TOML", help="Read all settings from a file, such as a run's settings.toml.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the run folder.")] = False,
    action: Annotated[str | None, ACTION] = None,
    reward: Annotated[str | None, REWARD] = None,
    state: Annotated[list[str] | None, STATE] = None,
    episode: Episode = None,
    time: Time = None,
    terminated: Terminated = None,
    truncated: Truncated = None,
    propensity: Propensity = None,
    weight: Weight = None,
    discount: Annotated[float, typer.Option(help="Discount factor.")] = 0.99,
    n_iterations: Annotated[int, typer.Option(help="Number of iterations (evaluation, then improvement).")] = 50,
    random_state: Annotated[int, typer.Option(help="Random seed; the same seed gives the same policy.")] = 0,
    evaluator: Annotated[str, typer.Option(help="Policy evaluator: fitted-q or kernel-fitted-q.")] = "fitted-q",
    n_sweeps: Annotated[int, typer.Option(help="Sweeps of the evaluator per iteration.")] = 5,
    space: Annotated[
        str, typer.Option(help="Policy space: optimal-trees, trees, forests, thresholds, linear or neighbors.")
    ] = "optimal-trees",
    max_depth: Annotated[int | None, typer.Option(help="Maximum tree depth.", show_default="3")] = None,
    hold_out: Annotated[float, typer.Option(help="Share of episodes held out for evaluation.")] = 0.0,
    keep: Annotated[
        str,
        typer.Option(
            help="Policy to keep: last, or best of the last ten iterations by fitted Q evaluation "
            "(small trees can oscillate between iterations)."
        ),
    ] = "last",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn a policy from a table of logged decisions, and save it with everything needed to repeat the run.

    After Ctrl-C or a crash, `capi fit --resume --out RUN` resumes and ends with the same policy.
    """
    chosen: runs.RunSettings | None = None
    if settings is not None or resume:
        free = {"out", "settings" if not resume else "", "resume", "as_json"}
        sources = {name: context.get_parameter_source(name) for name in context.params}
        given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
        if others := [name for name in given if name not in free]:
            where = "the run" if resume else settings
            raise InvalidInputError(f"{others[0].replace('_', '-')} is already set by {where}. Change it there.")
    if settings is not None:
        existing(settings)
        chosen = runs.RunSettings.from_toml(settings)
    elif not resume:
        if table is None:
            raise InvalidInputError("TABLE, --settings or --resume must be given.")
        _check_table(table)
        depth = {} if max_depth is None else {"max_depth": max_depth}
        chosen = runs.RunSettings(
            table,
            _roles(context),
            discount,
            n_iterations,
            random_state,
            evaluator,
            space,
            {"n_sweeps": n_sweeps},
            depth,
            hold_out,
            keep,
        )
    try:
        result = runs.fit_run(chosen, out, resume=resume, shown=_shown_rounds)
    except KeyboardInterrupt:
        rich.console.Console(stderr=True).print(
            f"stopped; capi fit --resume --out {rich.markup.escape(out)} resumes from this point."
        )
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(
            json.dumps({"run": str(result.folder), "history": result.history, "rules": result.rules()}, default=str)
        )
        return
    typer.echo(result.rules())
    if result.settings.keep == "last" and len(result.history) > 1 and result.history[-1]["changed"] > OSCILLATING:
        share = f"{100 * result.history[-1]['changed']:.0f} %"
        typer.echo(
            f"note    the last iteration still changed {share} of the decisions; "
            "--keep best keeps the best policy of the last ten"
        )
    typer.echo(f"policy  {result.folder / 'policy.capi'}")


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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate the value of a policy from logged data, with intervals, a comparison with the log, and caveats.

    The estimates are saved in the run folder and shown in the report.
    """
    if table is not None:
        _check_table(table)
    settings = {
        "method": method,
        "n_resamples": n_resamples,
        "level": level,
        "random_state": random_state,
        "n_jobs": -1,
    }
    with rich.console.Console(stderr=True).status("evaluating") if folds is None else nullcontext():
        found = runs.evaluate_run(run, table, folds=folds, shown=_tracked_folds, **settings)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    typer.echo(str(found))
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
) -> None:
    """Write an HTML page about a run: data, rules, where decisions matter, estimated value, and a panel to try the policy.

    The page works offline, and contains no row of the table without --include-cases.
    """
    typer.echo(f"report  {pages.write_report(run, out, include_cases=include_cases)}")


@app.command(epilog="Example: capi predict run new_patients.csv --out decisions.csv")
def predict(
    run: Annotated[str, typer.Argument(help="Folder of a finished run, or a policy file.")],
    table: Annotated[str, typer.Argument(help="CSV or Parquet file with the state columns.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="Output file: .csv or .parquet.")],
) -> None:
    """Decide for each row of a table, and write the table with an added column `decision`."""
    existing(run)
    _check_table(table)
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
    states = runs.load_run(run).settings.batch().states if imitate and Path(run).is_dir() else None
    text = files.export_policy(runs.policy_of(run), to, imitate=imitate, states=states)  # type: ignore[arg-type]  # which refuses unknown formats
    if out is not None:
        runs.write_result(out, text)
    elif isinstance(text, bytes):
        sys.stdout.buffer.write(text)
    else:
        typer.echo(text)


@app.command(epilog="Example: capi bench optimal_trees")
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks to run; all by default.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the benchmarks and exit.")] = False,
) -> None:
    """Run benchmarks against other libraries; needs the source repository."""
    folder = Path(__file__).parents[2] / "benchmarks"
    known = sorted(path.stem for path in folder.glob("*.py") if path.stem != "timing")
    if not known:
        raise InvalidInputError(
            "benchmarks are in the source repository, not in the installed package. Clone the repository and run make bench."
        )
    if unknown := set(names or []) - set(known):
        raise InvalidInputError(f"there is no benchmark {min(unknown)!r}; available: {', '.join(known)}.")
    for name in known if listed else names or known:
        typer.echo(name)
        if not listed and subprocess.run([sys.executable, folder / f"{name}.py"], check=False).returncode:
            raise InvalidInputError(
                f"the benchmark {name} failed. pip install -e '.[bench]' installs the libraries it needs."
            )


def _shown_rounds(rounds: Any, done: int, total: int) -> Any:
    """Yield the iterations and show a progress bar with the remaining time and the loss on standard error."""
    parts = rich.progress
    columns = (
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeRemainingColumn(),
        parts.TextColumn("{task.description}"),
    )
    with parts.Progress(*columns, console=rich.console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, completed=done)
        for iteration in rounds:
            bar.update(task, completed=iteration.k + 1, description=f"loss {iteration.loss:.4g}")
            yield iteration


def _check_table(table: str) -> None:
    """Refuse a table that is missing or has an unknown format, before any slow import."""
    format_of(table)
    existing(table)


def _tracked_folds(items: Sequence[Any]) -> Iterable[Any]:
    return rich.progress.track(
        items,
        description=f"learning on {len(items)} folds",
        console=rich.console.Console(stderr=True),
        transient=True,
    )


def main() -> None:
    """Run the command line; expected errors print one sentence and exit with code 1."""
    try:
        app()
    except CapiError as error:
        _print_error(error)
        sys.exit(1)


def _print_error(error: CapiError) -> None:
    typer.echo(f"{typer.style('error:', fg='red', bold=True)} {error}", err=True)


if __name__ == "__main__":
    main()
