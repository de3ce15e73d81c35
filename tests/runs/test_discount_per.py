"""Runs that discount by elapsed time: settings, commands, evaluation and report."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi import load_policy
from capi.cli import app
from capi.errors import InvalidInputError
from capi.report import write_report
from capi.runs import RunSettings, evaluate_run, fit_run
from capi.testing import random_batch
from small_runs import interrupted

ROLES = {"episode": "id", "time": "day", "state": ["age", "dose"], "action": "drug", "reward": "gain"}
OPTIONS = [f"--{role}={name}" for role, names in ROLES.items() for name in (names if role == "state" else [names])]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Visits on dates with gaps of 1 to 20 days."""
    batch, rng = random_batch(3, n_episodes=30), np.random.default_rng(0)
    frame = pd.DataFrame(batch.states, columns=["age", "dose"])
    frame["drug"], frame["gain"], frame["id"] = (
        np.array(["none", "low", "high"])[batch.actions],
        batch.rewards,
        batch.episodes,
    )
    gaps = pd.Series(rng.integers(1, 21, size=len(frame)))
    frame["number"] = gaps.groupby(frame["id"]).cumsum()
    frame["day"] = pd.to_datetime("2024-01-01") + pd.to_timedelta(frame["number"], unit="D")
    path = tmp_path_factory.mktemp("data") / "visits.csv"
    frame.to_csv(path, index=False, date_format="%Y-%m-%d")
    return str(path)


def settings(table, **options):
    return RunSettings(
        table, ROLES, discount=0.9, n_iterations=2, space="trees", hold_out=0.4,
        evaluator_options={"n_trees": 4, "n_sweeps": 3}, space_options={"max_depth": 2}, **options,
    )  # fmt: skip


@pytest.mark.parametrize(("per", "kept"), [("7 days", "7 days"), ("week", "1 week")])
def test_settings_come_back_from_their_file(table, tmp_path, per, kept):
    chosen = settings(table, discount_per=per)
    (tmp_path / "settings.toml").write_text(chosen.to_toml())
    again = RunSettings.from_toml(tmp_path / "settings.toml")
    assert again.to_toml() == chosen.to_toml()
    assert again.discount_per == kept
    np.testing.assert_array_equal(again.batch().elapsed, chosen.batch().elapsed)


def test_a_number_is_kept_as_a_number(table, tmp_path):
    chosen = replace(settings(table), roles={**ROLES, "time": "number"}, discount_per="7")
    (tmp_path / "settings.toml").write_text(chosen.to_toml())
    assert "discount_per = 7.0\n" in chosen.to_toml()
    assert RunSettings.from_toml(tmp_path / "settings.toml").discount_per == 7.0


def test_without_it_settings_files_are_as_before(table):
    assert "discount_per" not in settings(table).to_toml()
    assert settings(table).batch().elapsed is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discount_per": "soon"}, "discount_per must be a positive number"),
        ({"discount_per": 0}, "discount_per must be a positive number"),
        ({"discount_per": 1, "roles": {r: n for r, n in ROLES.items() if r != "time"}}, "must be given with time"),
    ],
)
def test_bad_settings_are_refused_before_the_table_is_read(table, change, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(settings("missing.csv"), **change)


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "weekly"
    fit_run(settings(table, discount_per="7 days"), folder)
    return folder


def test_the_value_of_what_was_done_is_that_discounted_by_hand(run, table):
    """The mean over the episodes of the rewards, each discounted by the weeks since the first visit."""
    found = evaluate_run(run, table, n_resamples=2)
    frame = pd.read_csv(table)
    weeks = (frame["number"] - frame.groupby("id")["number"].transform("first")) / 7
    by_hand = (frame["gain"] * 0.9**weeks).groupby(frame["id"]).sum().mean()
    assert found.behaviour.value == pytest.approx(by_hand, rel=1e-12)
    assert "discount 0.9 per 7 days)" in str(found)


def test_the_policy_file_records_the_unit(run):
    assert load_policy(run / "policy.capi").training.discount_per == "7 days"


def test_the_evaluation_and_the_page_name_the_unit(run):
    assert evaluate_run(run, n_resamples=2).discount_per == "7 days"
    assert json.loads((run / "evaluation.json").read_text())["discount_per"] == "7 days"
    page = write_report(run).read_text()
    assert page.count("<dt>Discount</dt><dd>0.9 per 7 days</dd>") == 2


@pytest.mark.slow
def test_folds_and_resumed_runs_discount_alike(run, table, tmp_path):
    assert evaluate_run(run, folds=2, n_resamples=2).discount_per == "7 days"
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings(table, discount_per="7 days"), tmp_path / "cut", shown=interrupted(0))
    fit_run(None, tmp_path / "cut", resume=True)
    assert (tmp_path / "cut" / "policy.capi").read_bytes() == (run / "policy.capi").read_bytes()


def test_the_commands_have_the_option(table, tmp_path):
    run = CliRunner().invoke(app, ["describe", table, *OPTIONS, "--discount-per", "7 days"])
    assert run.exit_code == 0
    assert "times 7 days, median" in run.stdout
    small = ["--n-iterations=1", "--space=trees", "--max-depth=1", "--n-sweeps=1"]
    run = CliRunner().invoke(
        app, ["fit", table, *OPTIONS, *small, "--discount-per=1 week", f"--out={tmp_path / 'run'}"]
    )
    assert run.exit_code == 0, run.output
    assert 'discount_per = "1 week"' in (tmp_path / "run" / "settings.toml").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--discount-per=7"], "discount_per must be a length of time"),
        (["--discount-per=1 month"], "Months and years vary in length"),
    ],
)
def test_the_commands_say_what_is_wrong(table, options, message):
    run = CliRunner().invoke(app, ["describe", table, *OPTIONS, *options])
    assert run.exit_code != 0
    assert message in str(run.exception or run.output)


def test_a_learner_reads_a_table_with_it(table):
    chosen = settings(table)
    frame = pd.read_csv(table, parse_dates=["day"])
    learner = chosen.learner().fit(frame, **ROLES, discount_per="7 days")
    plain = chosen.learner().fit(frame, **ROLES)
    assert learner.history_[-1]["value"] != plain.history_[-1]["value"]
    assert learner.score(frame) != learner.score(frame, **ROLES)  # by default with the roles given to fit
