"""The command that shows how a table is read."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from capi import runs
from capi._utils.executors import dask_client
from capi.cli.app import app
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
    roles_of,
    settings_here,
)
from capi.data.table_files import one_table
from capi.errors import InvalidInputError


@app.command(
    epilog="Example: capi describe patients.csv --episode patient --time day --state age --state cd4 --action drug --reward gain"
)
def describe(
    context: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help='CSV or Parquet file of logged decisions, a folder of Parquet files, or a pattern such as "log/*.parquet".',
            show_default="that of capi.toml",
        ),
    ] = None,
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
    discount: Annotated[
        float, typer.Option(help="Discount factor; 0 if decisions affect only their own reward.")
    ] = 0.99,
    discount_per: DiscountPer = None,
    dask: Dask = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how a table is read: episodes, actions, missing values, coverage and warnings."""
    table = one_table(tables) if tables else None
    changes = changes_of(context, table)
    settings = settings_here(changes)
    if settings is not None:
        checked_settings(settings, table)
    elif table is None:
        raise InvalidInputError(
            "TABLE must be given, because this folder has no capi.toml. capi init TABLE writes one."
        )
    else:
        check_table(table)
    with dask_client(dask) as client:
        if settings is not None:
            if table is not None:
                typer.echo(f"settings  {settings}, for {table}", err=True)
            chosen = runs.RunSettings.from_toml(settings, changes)
            batch = chosen.read_all(chosen.table, executor=client)
        else:
            batch = runs.read_all(
                str(table), client, roles=roles_of(context), discount=discount, discount_per=discount_per
            )
        found = batch.describe()
    typer.echo(json.dumps(found.to_dict(), default=str) if as_json else str(found))
