"""What a run's policy is worth: held-out episodes, other tables, folds; and which policy a run keeps."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi.cli import app
from capi.errors import InvalidInput
from capi.files.archive import read_archive
from capi.offline import fitted_value
from capi.runs import RunSettings, evaluate_run, fit_run, load_run, running
from small_runs import OPTIONS, interrupted, settings_for

QUICK = {"n_resamples": 5, "n_folds": 2}


def test_episodes_that_are_held_out_are_not_learned_from(table):
    settings = settings_for(table, hold_out=0.4)
    learned, others = settings.batch(), settings.held_out()
    whole = settings_for(table).batch()
    assert set(learned.episode) | set(others.episode) == set(whole.episode)
    assert not set(learned.episode) & set(others.episode)
    assert others.n_episodes == round(0.4 * whole.n_episodes)
    assert learned == settings_for(table, hold_out=0.4).batch()  # the same in each process
    with pytest.raises(InvalidInput, match="nothing was held out"):
        settings_for(table).held_out()
    with pytest.raises(InvalidInput, match="hold_out must lie in"):
        settings_for(table, hold_out=1.0)


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    return fit_run(settings_for(table, hold_out=0.4), tmp_path_factory.mktemp("runs") / "run")


def test_the_values_of_the_kept_round_are_kept(run):
    header, arrays = read_archive(run.folder / "values.zip")
    assert header["format"] == "capi values"
    batch, values = run.settings.batch(), arrays["values"]
    assert values.shape == (len(batch), 3)
    assert values.dtype == np.float32
    learner = run.settings.learner().fit(batch)
    np.testing.assert_array_equal(values, learner.q_.values(batch.states).astype(np.float32))
    assert run.history[-1]["value"] == pytest.approx(learner.history_[-1]["value"])


def test_held_out_episodes_are_evaluated_and_the_numbers_kept(run):
    found = evaluate_run(run.folder, **QUICK)
    kept = json.loads((run.folder / "evaluation.json").read_text())
    assert kept == found.to_dict()
    assert (found.kind, found.n_episodes) == ("held-out", run.settings.held_out().n_episodes)
    assert not any("learned from" in warning for warning in found.warnings)


def test_the_learning_table_is_recognised_and_another_one_is_read_by_its_words(run, table, tmp_path):
    found = evaluate_run(run.folder, table, **QUICK)
    assert any("% of these episodes are among those" in warning for warning in found.warnings)
    assert found.doubtful
    frame = pd.read_csv(table)
    frame["gain"] += 1.0
    only_two = frame[frame["drug"] != "high"]  # fewer actions than were learned from
    only_two.to_csv(tmp_path / "other.csv", index=False)
    found = evaluate_run(run.folder, tmp_path / "other.csv", **QUICK)
    assert not any("learned from" in warning for warning in found.warnings)
    assert 0 < found.n_rows < len(only_two)  # some rows serve only as next state
    frame.drop(columns="dose").to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(InvalidInput, match="dose"):
        evaluate_run(run.folder, tmp_path / "short.csv")
    with pytest.raises(InvalidInput, match=r"\.csv or \.parquet"):
        evaluate_run(run.folder, tmp_path / "short.txt")


def test_folds_learn_again_and_exclude_a_table(run, table):
    found = evaluate_run(run.folder, folds=3, n_resamples=5)
    assert (found.kind, found.n_episodes) == ("cross", settings_for(table).batch().n_episodes)
    with pytest.raises(InvalidInput, match="exclude each other"):
        evaluate_run(run.folder, table, folds=3)


def test_a_run_that_held_nothing_out_says_what_to_do(table, tmp_path):
    fit_run(settings_for(table), tmp_path / "run")
    with pytest.raises(InvalidInput, match="give a TABLE of them, or --folds 5"):
        evaluate_run(tmp_path / "run")
    assert not (tmp_path / "run" / "evaluation.json").exists()


def test_the_best_of_the_last_rounds_is_kept(table, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "SHARE", np.inf)  # a checkpoint each iteration
    monkeypatch.setattr(running, "CANDIDATES", 4)
    settings = settings_for(table, space="optimal-trees", keep="best")
    whole = fit_run(settings, tmp_path / "whole")
    scores = {int(row["k"]): row["score"] for row in load_run(tmp_path / "whole").history if "score" in row}
    assert sorted(scores) == [2, 3, 4, 5]
    best = max(scores, key=scores.get)
    assert whole.policy.training.n_iterations == best + 1
    again = fitted_value(whole.policy, settings.batch(), discount=0.8, random_state=0)
    assert again == pytest.approx(scores[best])
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings, tmp_path / "cut", shown=interrupted(4))
    fit_run(None, tmp_path / "cut", resume=True)
    for name in ("policy.capi", "history.csv", "values.zip"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    with pytest.raises(InvalidInput, match="keep"):
        settings_for(table, keep="first")


def test_settings_with_everything_survive_their_file(table, tmp_path):
    settings = settings_for(table, hold_out=0.25, keep="best")
    (tmp_path / "s.toml").write_text(settings.to_toml())
    again = RunSettings.from_toml(tmp_path / "s.toml")
    assert (again.hold_out, again.keep) == (0.25, "best")


def test_the_command_line(table, tmp_path):
    out = str(tmp_path / "run")
    done = CliRunner().invoke(
        app, ["fit", table, "--out", out, *OPTIONS, "--iterations=2", "--space=trees", "--hold-out=0.3"]
    )
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["evaluate", out, "--resamples=5"])
    assert done.exit_code == 0, done.output
    assert "doubly-robust" in done.output
    assert "what was done" in done.output
    done = CliRunner().invoke(app, ["evaluate", out, "--folds=2", "--resamples=5", "--json", "--method=weighted"])
    assert json.loads(done.stdout)["method"] == "weighted"


def test_histories_can_be_drawn(run):
    assert len(run.plot_history().axes) == 3
