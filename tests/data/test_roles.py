"""Columns that must not have two roles, and actions that are too many."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi import Transitions
from capi.cli import app
from capi.data.partitions import PartitionedTransitions
from capi.errors import InvalidInputError

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.normal(size=60), "drug": RNG.choice(["a", "b"], 60), "gain": RNG.normal(size=60)})


@pytest.mark.parametrize(
    ("state", "roles", "message"),
    [
        (["age", "gain"], {"action": "drug", "reward": "gain"}, "it names 'gain', which is the reward of the same row"),
        (["gain"], {"action": "drug", "cost": "gain"}, "'gain', which is the cost of the same row"),
        (["age", "drug"], {"action": "drug", "reward": "gain"}, "'drug', which is the action of the same row"),
    ],
)
def test_what_was_decided_and_what_came_of_it_are_no_states(state, roles, message, tmp_path):
    with pytest.raises(InvalidInputError, match=f"{message}. Leave it out of state; a column with the"):
        Transitions.from_frame(FRAME, state=state, **roles)
    FRAME.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InvalidInputError, match=message):
        PartitionedTransitions.from_parquet(tmp_path / "t.parquet", state=state, **roles)


def test_the_last_reward_may_be_a_state_and_this_one_its_next_value():
    frame = FRAME.assign(last=FRAME["gain"].shift(fill_value=0.0))
    batch = Transitions.from_frame(
        frame, state=["last"], next_state=["gain"], action="drug", reward="gain", discount=0.0
    )
    np.testing.assert_array_equal(batch.next_states[:, 0], FRAME["gain"])


def test_a_star_leaves_action_and_reward_out_but_does_not_hide_them(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    roles = ["--action", "drug", "--reward", "gain", "--discount", "0"]

    def describe(state):
        return CliRunner().invoke(app, ["describe", str(tmp_path / "t.csv"), "--state", state, *roles, "--json"])

    assert [column["name"] for column in json.loads(describe("*").stdout)["columns"]] == ["age"]
    assert "which is the reward of the same row" in str(describe("*,gain").exception)
