"""The command that shows how a table is read."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from capi import runs
from capi.cli.app import app
from capi.cli.columns import (
    ACTION,
    REWARD,
    STATE,
    DiscountPer,
    Episode,
    Except,
    Ordered,
    Propensity,
    Terminated,
    Time,
    Truncated,
    Weight,
    check_table,
    roles_of,
)


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
    ordered: Ordered = None,
    left_out: Except = None,
    discount: Annotated[
        float, typer.Option(help="Discount factor; 0 if decisions affect only their own reward.")
    ] = 0.99,
    discount_per: DiscountPer = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how a table is read: episodes, actions, missing values, coverage and warnings."""
    check_table(table)
    found = runs.read_decisions(table, roles_of(context), discount, discount_per=discount_per).describe()
    typer.echo(json.dumps(found.to_dict(), default=str) if as_json else str(found))
