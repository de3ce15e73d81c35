"""The command that learns a policy from a table."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from capi import runs
from capi._utils.executors import dask_client
from capi._utils.rescue import rescued_by
from capi.cli.app import CommandWithRenamedOptions, app
from capi.cli.clusters import Dask
from capi.cli.columns import (
    ACTION,
    REWARD,
    STATE,
    Cost,
    DiscountPer,
    Episode,
    Except,
    Ordered,
    Propensity,
    Terminated,
    Time,
    Truncated,
    Weight,
    changes_of,
    check_table,
    checked_settings,
    given_options,
    settings_here,
)
from capi.cli.interrupts import exit_code
from capi.cli.progress import shown_work
from capi.data.table_files import one_table
from capi.errors import InvalidInputError
from capi.runs.settings_file import changed

MOST_NUMBERS = 10  # of iterations in a note
OSCILLATING = 0.05  # share of decisions changed in the last iteration above which a note is printed


@app.command(
    cls=CommandWithRenamedOptions,
    epilog="Example: capi fit patients.csv --out run --episode patient --time day --state age --state cd4 --action drug --reward gain\n\n"
    "Example with the settings of capi init: capi fit",
)
def fit(
    context: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help='CSV or Parquet file of logged decisions, a folder of Parquet files, or a pattern such as "log/*.parquet".',
            show_default="that of capi.toml",
        ),
    ] = None,
    out: Annotated[str, typer.Option(metavar="RUN", help="Run folder.")] = "run",
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="TOML",
            help="Read settings from a file, such as a run's settings.toml; options given as well take precedence.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the run folder.")] = False,
    action: Annotated[str | None, ACTION] = None,
    reward: Annotated[str | None, REWARD] = None,
    cost: Cost = None,
    state: Annotated[list[str] | None, STATE] = None,
    episode: Episode = None,
    time: Time = None,
    terminated: Terminated = None,
    truncated: Truncated = None,
    propensity: Propensity = None,
    weight: Weight = None,
    ordered: Ordered = None,
    left_out: Except = None,
    discount: Annotated[float, typer.Option(help="Discount factor.")] = 0.99,
    discount_per: DiscountPer = None,
    n_iterations: Annotated[
        int | None,
        typer.Option(
            help="Number of iterations (evaluation, then improvement).",
            show_default="enough to see as far ahead as the discount and the episodes need",
        ),
    ] = None,
    random_state: Annotated[int, typer.Option(help="Random seed; the same seed gives the same policy.")] = 0,
    evaluator: Annotated[str, typer.Option(help="Policy evaluator: fitted-q or kernel-fitted-q.")] = "fitted-q",
    n_sweeps: Annotated[
        int | None,
        typer.Option(
            help="Sweeps of the evaluator per iteration.", show_default="chosen with the number of iterations"
        ),
    ] = None,
    space: Annotated[
        str,
        typer.Option(help="Policy space: optimal-trees, trees, forests, thresholds, linear, neighbors or reweighted."),
    ] = "optimal-trees",
    max_depth: Annotated[
        int | None, typer.Option(help="Maximum tree depth.", show_default="3, forests: no limit")
    ] = None,
    min_samples_leaf: Annotated[
        int | None,
        typer.Option(
            help="Least number of states in a leaf.",
            show_default="optimal-trees: 5 or 0.2 % of the rows, trees: at most 5, forests: 1",
        ),
    ] = None,
    n_thresholds: Annotated[
        int | None,
        typer.Option(
            help="Most cut points per column that optimal-trees considers.",
            show_default="up to 1,000 rows as many as are affordable, otherwise 64",
        ),
    ] = None,
    leaf_penalty: Annotated[
        float | None,
        typer.Option(
            help="Least gain in mean value per state for which optimal-trees makes another split.", show_default="0"
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds of search for an optimal tree in each iteration; the tree found by then depends on the machine. Replaces the "
            "limit by work.",
            show_default="none",
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Search all optimal trees to the end; by default, long searches are cut short (reproducibly).",
        ),
    ] = False,
    hold_out: Annotated[float, typer.Option(help="Share of episodes held out for evaluation.")] = 0.0,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Policy to keep: that of the last iteration, or the best of up to twenty in episodes made of the table's steps "
            "(small trees can oscillate between iterations).",
            show_default="best with fitted-q, otherwise last",
        ),
    ] = None,
    state_weights: Annotated[
        str | None,
        typer.Option(
            help="States on which policies are improved: batch (all alike), occupancy (those that the policy visits) or mixture.",
            show_default="mixture with fitted-q, otherwise batch",
        ),
    ] = None,
    accept: Annotated[
        str,
        typer.Option(
            help="Accept any new policy, or only one whose value in a model of the table is higher: improving."
        ),
    ] = "any",
    support: Annotated[
        float | None,
        typer.Option(
            help="Choose only among actions that the table takes at least this many times as often as the most frequent one in similar "
            "states, for example 0.3.",
            show_default="all actions that the table takes more than a few times",
        ),
    ] = None,
    support_depth: Annotated[
        int | None,
        typer.Option(
            help="With --support: judge that by a single tree of this depth, so that the policy remains one tree that every export shows.",
            show_default="many deep trees",
        ),
    ] = None,
    select: Annotated[
        bool,
        typer.Option(
            "--select/--no-select",
            help="Choose evaluator, space and sizes, and test the result on held-out episodes (--hold-out, 0.3 by default): if it is not better than what "
            "was done, or if the table cannot tell, the result is what was done.",
        ),
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="With --select: leave candidates out that do not fit into this time.",
            show_default="none",
        ),
    ] = None,
    always_learn: Annotated[
        bool,
        typer.Option(
            "--always-learn/--no-always-learn",
            help="With --select: the result is a learned policy, whatever its test says.",
        ),
    ] = False,
    with_states: Annotated[
        bool,
        typer.Option(
            "--with-states/--without-states",
            help="Allow rows of the table in the policy file; --space neighbors needs them. Everyone who gets the file gets these rows.",
        ),
    ] = False,
    min_category_rows: Annotated[
        int,
        typer.Option(
            help="Categories with fewer rows become one, because the policy file holds their names; 1 keeps all names."
        ),
    ] = 5,
    sample_rows: Annotated[
        int | None,
        typer.Option(
            help="Learn from the table part by part, and grow trees on a sample of episodes with about so many rows; their averages are of all rows.",
            show_default="100000 for tables with more than a million rows",
        ),
    ] = None,
    dask: Dask = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn a policy from a table of logged decisions, and save it with everything needed to repeat the run.

    After Ctrl-C or a crash, `capi fit --resume --out RUN` resumes and ends with the same policy.
    """
    table = one_table(tables) if tables else None
    changes = changes_of(context, table)
    if changes["learning"].get("select") and changes["learning"].get("hold_out") == 0:
        raise InvalidInputError(
            "--hold-out must be above 0 with --select, which tests its result on those episodes. Omit it for 0.3."
        )
    if resume:
        _check_resumed(context, out)
    elif settings is None:
        settings = settings_here(changes)
        if settings is not None and table is not None:
            typer.echo(f"settings  {settings}, for {table}", err=True)
    if settings is not None:
        checked_settings(settings, table)
    elif not resume:
        if table is None:
            raise InvalidInputError(
                "TABLE, --settings or --resume must be given, because this folder has no capi.toml. capi init TABLE writes one."
            )
        check_table(table)

    def chosen() -> runs.RunSettings | None:
        if resume:
            return None
        if settings is not None:
            return runs.RunSettings.from_toml(settings, changes)
        return runs.RunSettings.from_sections(changed({}, changes))

    try:
        with (
            rescued_by(lambda: runs.state_of_interrupted(out)),  # while a cluster is closed, which can take seconds
            dask_client(dask) as client,
            shown_work(f"reading {table or 'the table'}") as work,
        ):
            result = runs.fit_run(
                chosen(),  # here, because it imports the compiler, which can take seconds
                out,
                resume=resume,
                executor=client,
                shown=lambda rounds, done, total: work.steps(
                    rounds, total, step="fit" if select else "iteration", done=done
                ),
            )
    except KeyboardInterrupt:
        typer.echo(runs.state_of_interrupted(out), err=True)
        raise typer.Exit(exit_code()) from None
    if as_json:
        found: dict[str, Any] = {"run": str(result.folder), "history": result.history, "rules": result.rules()}
        if result.selection is not None:
            found["selection"] = result.selection.to_dict()
        typer.echo(json.dumps(found, default=str))
        return
    if result.selection is not None:
        typer.echo(f"{result.selection}\n")
    typer.echo(result.rules())
    if note := _sampled(result):
        typer.echo(note)
    if dask is not None and result.settings.sample_rows is None and not select:
        typer.echo(
            "note    the table has at most a million rows, so it was learned from in memory, without the cluster (--sample-rows)"
        )
    if note := _cut_short(result):
        typer.echo(note)
    if result.settings.keep == "last" and len(result.history) > 1 and result.history[-1]["changed"] > OSCILLATING:
        share = f"{100 * result.history[-1]['changed']:.0f} %"
        typer.echo(
            f"note    the last iteration still changed {share} of the decisions; "
            "--keep best keeps the best of twenty policies, by a score"
        )
    typer.echo(f"policy  {result.folder / 'policy.capi'}")
    if result.settings.hold_out:
        typer.echo(f"next    capi evaluate {result.folder}, then capi report {result.folder}")


def _check_resumed(context: typer.Context, out: str) -> None:
    """Refuse options that a resumed run would ignore."""
    free = {"out", "resume", "as_json", "quiet", "verbose", "dask"}
    others = [name for name in context.params if name in given_options(context) - free]
    if others:
        named = {"left_out": "--except", "tables": "TABLE"}.get(others[0], f"--{others[0].replace('_', '-')}")
        raise InvalidInputError(
            f"{named} must not be given with --resume: a resumed run keeps the settings that are in {out}. "
            "Omit it, or start a new run in another folder (--out)."
        )


def _sampled(result: runs.RunResult) -> str | None:
    """Return a note about what a run learned from a sample of its table, and what from all rows."""
    wanted, n_rows = result.settings.sample_rows, getattr(getattr(result.policy, "training", None), "n_rows", None)
    if wanted is None or n_rows is None:
        return None
    if result.settings.select:
        total = runs.n_rows_of(result.settings.table)
        return f"note    everything was learned from {n_rows:,} of the {total:,} rows of the table (--sample-rows {wanted}, --hold-out)"
    if result.learned_from_all_rows:
        return f"note    all {n_rows:,} rows were learned from, part by part"
    on_all = any("loss_on_all_rows" in row for row in result.history)
    policy = "the actions of the policy are the best on all rows" if on_all else "the policy was searched on the sample"
    return (
        f"note    trees were grown on a sample of about {wanted:,} of the {n_rows:,} rows (--sample-rows); values are averages of all rows, "
        f"{policy}"
    )


def _cut_short(result: runs.RunResult) -> str | None:
    """Return a note about the iterations whose search for an optimal tree was cut short."""
    numbers = [int(row["k"]) + 1 for row in result.history if row.get("cut_short")]
    if not numbers:
        return None
    which = ", ".join(map(str, numbers[:MOST_NUMBERS])) + (", ..." if len(numbers) > MOST_NUMBERS else "")
    kept = next((int(row["k"]) + 1 for row in result.history if row.get("kept")), len(result.history))
    own = f"{'also' if kept in numbers else 'not'} in iteration {kept}, whose policy is kept"
    return (
        f"note    the search for the best tree was cut short in {len(numbers)} of {len(result.history)} iterations ({which}), "
        f"{own}; --exact searches to the end, which can take much longer"
    )
