"""Runs on bad days: a table that changes, a disk that is full, processes that were killed, searches that are cut short."""

import errno
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi.cli import app
from capi.errors import CheckpointWarning, InvalidInputError, TableWarning
from capi.files.archive import write_archive
from capi.runs import RunSettings, checkpoint, fit, fit_run, load_run, state_of_interrupted
from small_runs import OPTIONS, ROLES, interrupted, settings_for


@pytest.fixture
def killed(table, tmp_path, monkeypatch):
    """Return the folder of a run that was killed in its first round, and its table."""
    copy = shutil.copy(table, tmp_path / "copy.csv")

    def kill(settings, batch, digest, folder, *_):
        shutil.copytree(folder, tmp_path / "killed")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fit, "_run", kill)
        with pytest.raises(KeyboardInterrupt):
            fit_run(settings_for(str(copy)), tmp_path / "run")
    return tmp_path / "killed", copy


def test_a_table_that_changed_before_the_first_checkpoint_is_refused(killed):
    folder, table = killed
    text = table.read_text()
    table.write_text(text.replace("none", "nothing"))
    with pytest.raises(InvalidInputError, match=r"has changed since the run in .* began"):
        fit_run(None, folder, resume=True)
    table.write_text(text)
    assert fit_run(None, folder, resume=True).policy.n_actions == 3
    assert not (folder / "table.sha256").exists()


def test_leftovers_of_killed_processes_are_removed_under_the_lock(killed):
    folder, _ = killed
    assert (folder / ".lock").exists()
    for name in ("checkpoint.zip", "policy.capi", "table.sha256"):
        (folder / f".{name}.99999.part").write_bytes(b"half")
    others = folder / ".evaluation.json.99999.part"  # evaluate does not take the lock
    others.write_bytes(b"half")
    fit_run(None, folder, resume=True)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [others.name, "history.csv", "policy.capi", "secret.json", "settings.toml", "values.zip"]
    )


def test_a_checkpoint_that_cannot_be_written_is_a_warning(table, tmp_path, monkeypatch):
    whole = fit_run(settings_for(table), tmp_path / "whole")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fit, "SHARE", np.inf)
    monkeypatch.setattr(checkpoint, "write_archive", full)
    with pytest.warns(CheckpointWarning, match=r"cannot be saved: .*No space left on device\. The run continues"):
        other = fit_run(settings_for(table), tmp_path / "other")
    assert (other.folder / "policy.capi").read_bytes() == (whole.folder / "policy.capi").read_bytes()


def test_after_a_failed_checkpoint_the_next_one_is_written(table, tmp_path, monkeypatch):
    calls = []

    def full_at_first(*arguments, **options):
        calls.append(None)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_archive(*arguments, **options)

    monkeypatch.setattr(fit, "SHARE", np.inf)
    monkeypatch.setattr(checkpoint, "write_archive", full_at_first)
    with pytest.warns(CheckpointWarning), pytest.raises(KeyboardInterrupt):
        fit_run(settings_for(table), tmp_path / "run", shown=interrupted(2))
    assert "resumes from this point" in state_of_interrupted(tmp_path / "run")
    assert len(fit_run(None, tmp_path / "run", resume=True).history) == 6


def test_an_interruption_saves_the_last_iteration_whenever_checkpoints_are_due(table, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "SHARE", 1e-12)  # after the first, the next checkpoint would be due in years
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings_for(table), tmp_path / "run", shown=interrupted(3))
    done = []
    fit_run(None, tmp_path / "run", resume=True, shown=lambda rounds, n, total: done.append(n) or rounds)
    assert done == [4]


@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_fit_leaves_no_folder(table, tmp_path, existing):
    if existing:
        (tmp_path / "results").mkdir()
    for bad in (
        RunSettings(table, {**ROLES, "state": ["height"]}),
        RunSettings(str(tmp_path / "none.csv"), ROLES),
    ):
        with pytest.raises(InvalidInputError):
            fit_run(bad, tmp_path / "results" / "deep" / "run")
    assert [path.name for path in tmp_path.iterdir()] == (["results"] if existing else [])
    assert not existing or not list((tmp_path / "results").iterdir())


def test_an_interrupted_first_round_promises_nothing(table, tmp_path):
    def at_once(rounds, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_run(settings_for(table), tmp_path / "run", shown=at_once)
    assert not (tmp_path / "run").exists()
    assert "nothing was saved" in state_of_interrupted(tmp_path / "run")


@pytest.mark.compiled
def test_iterations_that_were_cut_short_are_told(table, tmp_path):
    run = tmp_path / "run"
    limited = RunSettings(
        table,
        ROLES,
        discount=0.8,
        n_iterations=3,
        evaluator_options={"n_trees": 4, "n_sweeps": 2},
        space_options={"work_limit": 1},
    )
    (tmp_path / "s.toml").write_text(limited.to_toml())
    told = CliRunner().invoke(app, ["fit", "--settings", str(tmp_path / "s.toml"), "--out", str(run)]).stdout
    kept = next(int(row["k"]) + 1 for row in load_run(run).history if row.get("kept"))
    assert (
        f"was cut short in 3 of 3 iterations (1, 2, 3), also in iteration {kept}, whose policy is kept; --exact" in told
    )
    assert (run / "history.csv").read_text().splitlines()[
        0
    ] == "k,loss,changed,value,score,careful_score,kept,effective_rows,cut_short,remaining_gap"
    assert [row["cut_short"] for row in load_run(run).history] == [1.0] * 3
    again = fit_run(limited, tmp_path / "again")
    assert (again.folder / "policy.capi").read_bytes() == (run / "policy.capi").read_bytes()


@pytest.mark.compiled
@pytest.mark.parametrize("exact", [True, False])
def test_the_command_line_limits_the_search_unless_told_otherwise(table, tmp_path, exact):
    options = ["--n-iterations=1", "--max-depth=1", "--json", *(["--exact"] if exact else [])]
    done = CliRunner().invoke(app, ["fit", table, "--out", str(tmp_path / "run"), *OPTIONS, *options])
    assert "cut_short" not in json.loads(done.stdout)["history"][0]
    written = (tmp_path / "run" / "settings.toml").read_text()
    assert ("\nwork_limit = 500000000\n" in written) is not exact
    assert ("\nlate_work_limit = 5000000000\n" in written) is not exact
    again = RunSettings.from_toml(tmp_path / "run" / "settings.toml")
    again = again.with_rules(again.batch())  # as when a run is resumed
    assert (again.parts.space.work_limit is None) is exact
    assert (again.parts.space.late_work_limit is None) is exact


@pytest.mark.compiled
def test_a_limit_that_the_user_sets_holds_in_all_iterations(table):
    limited = RunSettings(table, ROLES, discount=0.8, space_options={"work_limit": 7})
    space = limited.with_rules(limited.batch()).parts.space
    assert (space.work_limit, space.late_work_limit) == (7, None)


@pytest.mark.compiled
def test_later_iterations_may_search_longer(table, tmp_path):
    settings = RunSettings(
        table,
        ROLES,
        discount=0.8,
        n_iterations=5,
        evaluator_options={"n_trees": 4, "n_sweeps": 2},
        space_options={"work_limit": 1, "late_work_limit": 10**9},
    )
    run = fit_run(settings, tmp_path / "run")
    assert [row.get("cut_short", 0.0) for row in run.history] == [1.0, 1.0, 0.0, 0.0, 0.0]
    (tmp_path / "s.toml").write_text(settings.to_toml())
    told = CliRunner().invoke(app, ["fit", "--settings", str(tmp_path / "s.toml"), "--out", str(tmp_path / "again")])
    kept = next(int(row["k"]) + 1 for row in run.history if row.get("kept"))
    also = "also" if kept <= 2 else "not"
    assert f"in 2 of 5 iterations (1, 2), {also} in iteration {kept}, whose policy is kept;" in told.stdout


@pytest.mark.compiled
def test_the_command_line_sets_the_sizes_and_the_time_of_the_search(table, tmp_path):
    options = ["--n-thresholds=3", "--leaf-penalty=0.5", "--time-limit=60", "--n-iterations=1", "--json"]
    done = CliRunner().invoke(app, ["fit", table, "--out", str(tmp_path / "run"), *OPTIONS, *options])
    assert json.loads(done.stdout)["history"][0]["remaining_gap"] >= 0
    space = load_run(tmp_path / "run").settings.parts.space
    assert (space.n_thresholds, space.leaf_penalty, space.time_limit, space.work_limit) == (3, 0.5, 60.0, None)
    refused = CliRunner().invoke(app, ["fit", table, *OPTIONS, "--space=linear", "--time-limit=1"])
    assert "Linear has no option 'time_limit'" in str(refused.exception)


@pytest.mark.parametrize(
    "options", [{"space": "linear"}, {"space": "thresholds"}, {"evaluator": "kernel-fitted-q"}], ids=str
)
def test_parts_that_need_complete_tables_name_the_column_and_the_row(table, tmp_path, options):
    frame = pd.read_csv(table)
    frame.loc[3, "dose"] = np.nan
    frame.to_csv(tmp_path / "holes.csv", index=False)
    settings = RunSettings(str(tmp_path / "holes.csv"), ROLES, discount=0.8, n_iterations=2, **options)
    with pytest.raises(InvalidInputError, match=r"column 'dose' must have no missing values for .*; row 3 has one"):
        fit_run(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_in_place_of_the_checkpoint_does_not_stop_a_run(table, tmp_path):
    def in_the_way(rounds, done, total):
        for iteration in rounds:
            (tmp_path / "run" / "checkpoint.zip").mkdir(exist_ok=True)
            yield iteration

    with pytest.warns(CheckpointWarning, match="cannot be saved"):
        assert fit_run(settings_for(table), tmp_path / "run", shown=in_the_way).rules()


def test_a_run_that_does_not_exist_is_named_as_such(tmp_path):
    with pytest.raises(InvalidInputError, match=r"folder of a finished run \(capi fit makes one\); .* is not a folder"):
        load_run(tmp_path / "nowhere")


def test_a_fit_names_columns_that_give_the_outcome_away_before_it_learns(table, tmp_path):
    """Once, and not again when it resumes."""
    frame = pd.read_csv(table)
    frame.assign(copy=frame["gain"]).to_csv(tmp_path / "t.csv", index=False)
    settings = settings_for(str(tmp_path / "t.csv"))
    settings = replace(settings, roles={**settings.roles, "state": ["age", "dose", "copy"]})

    def stopped(rounds, done, total):
        assert [str(one.message) for one in found] == [
            "column copy equals the reward: if it was measured after the decision, a policy must not see it. capi describe lists everything that looks wrong."
        ]
        yield next(rounds)
        raise KeyboardInterrupt

    with pytest.warns(TableWarning) as found, pytest.raises(KeyboardInterrupt):
        fit_run(settings, tmp_path / "run", shown=stopped)
    fit_run(None, tmp_path / "run", resume=True)  # any warning would be an error
