"""The command that learns a policy from a table."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from capi import runs
from capi._utils.late import rich
from capi.cli.app import CommandWithRenamedOptions, app
from capi.cli.columns import (
    ACTION,
    REWARD,
    STATE,
    DiscountPer,
    Episode,
    Propensity,
    Terminated,
    Time,
    Truncated,
    Weight,
    check_table,
    roles_of,
)
from capi.data.table_files import existing
from capi.errors import InvalidInputError

OSCILLATING = 0.05  # share of decisions changed in the last iteration above which a note is printed


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
    discount_per: DiscountPer = None,
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
        check_table(table)
        depth = {} if max_depth is None else {"max_depth": max_depth}
        chosen = runs.RunSettings(
            table,
            roles_of(context),
            discount,
            n_iterations,
            random_state,
            evaluator,
            space,
            {"n_sweeps": n_sweeps},
            depth,
            hold_out,
            keep,
            discount_per,
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
