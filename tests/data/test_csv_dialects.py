"""CSV files as programs of many countries write them, and costs instead of rewards."""

import numpy as np
import pandas as pd
import pytest

from capi import CAPI, Transitions
from capi.data.readers.arrow import CsvFile
from capi.data.readers.dialect import decimal_of, delimiter_of
from capi.data.table_files import format_of
from capi.errors import InvalidInputError
from capi.runs import fit_run, predict_table
from capi.runs.settings import RunSettings

TABLE = pd.DataFrame(
    {
        "patient": [1, 1, 2, 2, 3, 3],
        "day": [0, 1] * 3,
        "dose, mg": [0.5, 1.25, -3.0, 1e-3, 2.0, 7.5],
        "drug": ["a;b", "c", "c", "a;b", "a;b", "c"],
        "gain": [1.5, -2.5, 0.0, 3.25, 1.0, 2.0],
    }
)
ROLES = {"episode": "patient", "time": "day", "state": "dose, mg", "action": "drug", "reward": "gain"}


def same(batch, other):
    for name in ("states", "actions", "rewards", "next_states", "terminated", "episodes"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(other, name))
    assert batch.schema == other.schema


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_separators_and_decimals_are_seen(separator, decimal, tmp_path):
    if separator == decimal:
        return
    path = tmp_path / "t.csv"
    TABLE.to_csv(path, index=False, sep=separator, decimal=decimal)
    same(Transitions.from_csv(path, **ROLES), Transitions.from_frame(TABLE, **ROLES))


def test_a_separator_must_divide_all_rows_alike():
    assert delimiter_of(["x (a;b;c),y\n", "1,2\n"]) == ","
    assert delimiter_of(["x\n", "1\n"]) == ","
    assert delimiter_of(['"x;y";z\n', '"1,2,3";4\n']) == ";"
    assert decimal_of(["1,5;2.5\n"], ";") == "."  # a point shows what the decimals are


def test_dates_with_points_are_dates_and_versions_are_not(tmp_path):
    path = tmp_path / "t.csv"
    dates = pd.to_datetime(["2024-12-31", "2025-02-01"] * 3)
    TABLE.assign(day=dates.strftime("%d.%m.%Y")).to_csv(path, index=False, sep=";", decimal=",")
    same(Transitions.from_csv(path, **ROLES), Transitions.from_frame(TABLE.assign(day=dates), **ROLES))
    versions = TABLE.assign(gain=["1.2.3", "1.12.3"] * 3, day=dates.strftime("%d.%m.%Y"))
    versions.to_csv(path, index=False)
    found = CsvFile.opened(path).table(["gain", "day"])
    assert found.column("gain").to_pylist() == list(versions["gain"])
    assert found.column("day").to_pylist() == list(versions["day"])  # text, so that no code is taken for a date


@pytest.mark.parametrize(
    ("clock", "read"),
    [("31.12.2024 9:05", "2024-12-31 09:05:00"), ("1.2.2024 23:59:58", "2024-02-01 23:59:58")],
)
def test_dates_with_points_may_have_a_time(clock, read, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"when,x\n{clock},1\n", encoding="utf-8")
    assert CsvFile.opened(path).table(["when"]).column("when").to_pylist() == [pd.Timestamp(read)]


def test_lines_above_the_header_are_named_as_a_cause(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("# exported by the registry\n" + TABLE.to_csv(index=False), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"Expected 1 columns, got 5.*Remove lines above the header"):
        CsvFile.opened(path).table(CsvFile.opened(path).header)


def test_endings(tmp_path):
    assert [format_of(f"t.{ending}") for ending in ("tsv", "txt", "csv.gz", "TSV.zst")] == ["csv"] * 4
    with pytest.raises(
        InvalidInputError, match=r"must be a .csv or .parquet file; got 't.xlsx'. Save the sheet as CSV."
    ):
        format_of("t.xlsx")
    with pytest.raises(InvalidInputError, match=r"out must be a .csv or .parquet file"):
        format_of("t.csv.gz", "out", written=True)


def test_decisions_keep_the_dialect_of_the_table(tmp_path):
    path = tmp_path / "t.csv"
    TABLE.to_csv(path, index=False, sep=";", decimal=",")
    fit_run(RunSettings(str(path), ROLES, discount=0.5, n_iterations=2), tmp_path / "run")
    predict_table(tmp_path / "run", path, tmp_path / "out.csv")
    decided = pd.read_csv(tmp_path / "out.csv", sep=";", decimal=",")
    pd.testing.assert_frame_equal(decided.drop(columns="decision"), TABLE)
    assert set(decided["decision"]) <= {"a;b", "c"}


def test_a_cost_is_a_negative_reward(tmp_path):
    roles = {name: column for name, column in ROLES.items() if name != "reward"}
    costs = Transitions.from_frame(TABLE, **roles, cost="gain")
    same(costs, Transitions.from_frame(TABLE.assign(gain=0.0 - TABLE["gain"]), **ROLES))
    assert not np.signbit(costs.rewards[costs.rewards == 0]).any()
    learner = CAPI(discount=0.5, n_iterations=2, random_state=0)
    same_policy = learner.fit(costs).policy_.rules()
    assert learner.fit(TABLE, **roles, cost="gain").policy_.rules() == same_policy
    with pytest.raises(InvalidInputError, match="reward and cost must not both be given"):
        Transitions.from_frame(TABLE, **ROLES, cost="gain")
    with pytest.raises(InvalidInputError, match="reward must name one column"):
        Transitions.from_frame(TABLE, **roles)
    with pytest.raises(InvalidInputError, match="cost must name one column"):
        Transitions.from_frame(TABLE, **roles, cost=3)


def test_a_run_that_minimises_a_cost(tmp_path):
    path = tmp_path / "t.parquet"
    TABLE.to_parquet(path)
    roles = {name: column for name, column in ROLES.items() if name != "reward"} | {"cost": "gain"}
    settings = RunSettings(str(path), roles, discount=0.5, n_iterations=2)
    assert settings.batch().rewards.max() == 2.5
    (tmp_path / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    assert RunSettings.from_toml(tmp_path / "settings.toml").roles["cost"] == "gain"
    with pytest.raises(InvalidInputError, match=r"the reward column must be named: --reward COL, or --cost COL"):
        RunSettings(str(path), {"state": "day", "action": "drug"})
    with pytest.raises(InvalidInputError, match="reward and cost must not both be given"):
        RunSettings(str(path), {**ROLES, "cost": "day"})
