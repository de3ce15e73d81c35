"""Evaluation of a run's policy on held-out episodes, other tables and folds; and which policy a run keeps."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi import CAPI
from capi.cli import app
from capi.errors import Caveat, InvalidInputError
from capi.files.archive import read_archive
from capi.runs import RunSettings, evaluate_run, fit, fit_run, load_run
from small_runs import OPTIONS, ROLES, interrupted, settings_for

QUICK = {"n_resamples": 5, "n_folds": 2}


def test_episodes_that_are_held_out_are_not_learned_from(table):
    settings = settings_for(table, hold_out=0.4)
    learned, others = settings.batch(), settings.held_out()
    whole = settings_for(table).batch()
    assert set(learned.episodes) | set(others.episodes) == set(whole.episodes)
    assert not set(learned.episodes) & set(others.episodes)
    assert others.n_episodes == round(0.4 * whole.n_episodes)
    assert learned == settings_for(table, hold_out=0.4).batch()  # the same split in every process
    assert learned != settings_for(table, hold_out=0.4, random_state=1).batch()
    with pytest.raises(InvalidInputError, match="no episodes were held out"):
        settings_for(table).held_out()
    with pytest.raises(InvalidInputError, match="hold_out must lie in"):
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
    assert kept == {**found.to_dict(), "policy": fit.digest(run.folder / "policy.capi")}
    assert (found.kind, found.n_episodes) == ("held-out", run.settings.held_out().n_episodes)
    assert not any("learned from" in str(warning) for warning in found.warnings)
    assert found.discount == 0.8


def test_the_learning_table_is_recognised_and_another_one_is_read_with_its_schema(run, table, tmp_path):
    found = evaluate_run(run.folder, table, **QUICK)
    assert any("% of these episodes are among those" in str(warning) for warning in found.warnings)
    assert found.unreliable
    frame = pd.read_csv(table)
    frame["gain"] += 1.0
    only_two = frame[frame["drug"] != "high"]  # fewer actions than were learned from
    only_two.to_csv(tmp_path / "other.csv", index=False)
    found = evaluate_run(run.folder, tmp_path / "other.csv", **QUICK)
    assert not any("learned from" in str(warning) for warning in found.warnings)
    assert 0 < found.n_rows < len(only_two)  # some rows serve only as next state
    frame.drop(columns="dose").to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(InvalidInputError, match="dose"):
        evaluate_run(run.folder, tmp_path / "short.csv")
    with pytest.raises(InvalidInputError, match=r"\.csv or \.parquet"):
        evaluate_run(run.folder, tmp_path / "short.json")


def test_folds_learn_again_and_cannot_be_combined_with_a_table(run, table):
    found = evaluate_run(run.folder, folds=3, n_resamples=5)
    assert (found.kind, found.n_episodes) == ("cross", settings_for(table).batch().n_episodes)
    with pytest.raises(InvalidInputError, match="table and folds cannot be combined"):
        evaluate_run(run.folder, table, folds=3)


def test_a_run_that_held_nothing_out_says_what_to_do(table, tmp_path):
    fit_run(settings_for(table), tmp_path / "run")
    with pytest.raises(InvalidInputError, match="Give a TABLE of other episodes, or --folds 5"):
        evaluate_run(tmp_path / "run")
    assert not (tmp_path / "run" / "evaluation.json").exists()


def test_the_best_round_is_kept(table, tmp_path):
    settings = settings_for(table, space="optimal-trees", keep="best")
    whole = fit_run(settings, tmp_path / "whole")
    history = load_run(tmp_path / "whole").history
    scores = {int(row["k"]): row["score"] for row in history if "score" in row}
    assert sorted(scores) == [0, 1, 2, 3, 4, 5]
    (best,) = (int(row["k"]) for row in history if row.get("kept"))
    assert whole.policy.training.n_iterations == best + 1
    learned = settings.with_rules(settings.batch()).learner().fit(settings.batch())  # the learner that folds use
    assert learned.policy_.rules() == whole.policy.rules()
    assert learned.history_[best]["score"] == scores[best]


@pytest.mark.parametrize("options", [{}, {"state_weights": "occupancy"}, {"accept": "improving"}], ids=str)
@pytest.mark.parametrize("after", [1, 4])
def test_the_best_round_survives_an_interruption(table, tmp_path, monkeypatch, options, after):
    monkeypatch.setattr(fit, "SHARE", np.inf)
    settings = settings_for(table, space="optimal-trees", keep="best", **options)
    fit_run(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings, tmp_path / "cut", shown=interrupted(after))
    fit_run(None, tmp_path / "cut", resume=True)
    for name in ("policy.capi", "history.csv", "values.zip", "settings.toml"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_only_known_ways_to_keep_a_policy_are_accepted(table):
    with pytest.raises(InvalidInputError, match="keep"):
        settings_for(table, keep="first")


def test_settings_with_everything_survive_their_file(table, tmp_path):
    settings = settings_for(table, hold_out=0.25, keep="best")
    (tmp_path / "s.toml").write_text(settings.to_toml())
    again = RunSettings.from_toml(tmp_path / "s.toml")
    assert (again.hold_out, again.keep) == (0.25, "best")


def test_the_command_line(table, tmp_path):
    out = str(tmp_path / "run")
    done = CliRunner().invoke(
        app, ["fit", table, "--out", out, *OPTIONS, "--n-iterations=2", "--space=trees", "--hold-out=0.3"]
    )
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["evaluate", out, "--n-resamples=5"])
    assert done.exit_code == 0, done.output
    assert "doubly-robust" in done.output
    assert "the logged behaviour" in done.output
    done = CliRunner().invoke(app, ["evaluate", out, "--folds=2", "--n-resamples=5", "--json", "--method=weighted"])
    assert json.loads(done.stdout)["method"] == "weighted"


def test_histories_can_be_drawn(run):
    assert len(run.plot_history().axes) == 5


def kinds(found):
    return {caveat.kind for caveat in found.warnings}


def test_learning_episodes_are_recognised_with_and_without_their_table(table, tmp_path):
    """As long as the run's table is there it is compared, then the run's secret, and then nothing can be said."""
    folder, here = tmp_path / "run", tmp_path / "table.csv"
    frame = pd.read_csv(table)
    frame.to_csv(here, index=False)
    settings = settings_for(str(here), hold_out=0.4)
    fit_run(settings, folder)
    learned, held_out = settings.batch(), settings.held_out()
    share = learned.n_episodes / (learned.n_episodes + held_out.n_episodes)
    frame.to_csv(tmp_path / "same.csv", index=False)
    frame.assign(more=1).to_csv(tmp_path / "more.csv", index=False)
    for other in ("same.csv", "more.csv"):
        found = evaluate_run(folder, tmp_path / other, **QUICK)
        assert [c.share for c in found.warnings if c.kind == "seen-episodes"] == [pytest.approx(share)]
    assert not kinds(evaluate_run(folder, **QUICK)) & {"seen-episodes", "unchecked-episodes"}
    here.unlink()
    found = evaluate_run(folder, tmp_path / "more.csv", **QUICK)
    assert [c.share for c in found.warnings if c.kind == "seen-episodes"] == [pytest.approx(share, abs=0.1)]
    (folder / "secret.json").write_text("{}")
    with pytest.raises(InvalidInputError, match=r"secret\.json cannot be read"):
        evaluate_run(folder, tmp_path / "more.csv", **QUICK)
    (folder / "secret.json").unlink()
    assert "unchecked-episodes" in kinds(evaluate_run(folder, tmp_path / "more.csv", **QUICK))


def test_categories_that_the_policy_has_never_seen_are_reported(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"sex": rng.choice(["f", "m"], 60), "drug": rng.choice(["a", "b"], 60), "gain": rng.random(60)}
    )
    frame["gain"] += 2.0 * ((frame["sex"] == "f") == (frame["drug"] == "a"))  # so that the policy uses the column
    frame.to_csv(tmp_path / "one.csv", index=False)
    settings = RunSettings(
        str(tmp_path / "one.csv"), {"state": ["sex"], "action": "drug", "reward": "gain"}, discount=0.0, n_iterations=1,
        space="trees", evaluator_options={"n_trees": 3},
    )  # fmt: skip
    fit_run(settings, tmp_path / "run")
    frame.loc[:14, "sex"] = "unknown"
    frame.loc[15:20, "sex"] = None
    for name in ("two.csv", "two.parquet"):
        frame.to_csv(tmp_path / name, index=False) if name.endswith("csv") else frame.to_parquet(tmp_path / name)
        found = evaluate_run(tmp_path / "run", tmp_path / name, **QUICK)
        assert "column sex: 25 % of the values are unknown to the policy" in found.warnings[0].text
        fields = found.warnings[0].to_dict()
        assert [fields[name] for name in ("kind", "severity", "column", "count", "share")] == [
            "unknown-categories", "severe", "sex", 15, 0.25,
        ]  # fmt: skip
        assert not re.search(r"\d", fields["text_without_counts"])
        kept = json.loads((tmp_path / "run" / "evaluation.json").read_text())
        assert [Caveat.from_dict(record) for record in kept["warnings"]] == list(found.warnings)
        assert found.unreliable


@pytest.mark.parametrize(
    ("n_unknown", "column", "severity"), [(1, "sex", "warning"), (30, "sex", "severe"), (30, "city", "warning")]
)
def test_unknown_categories_are_severe_only_if_they_are_many_and_in_a_column_that_is_used(
    tmp_path, n_unknown, column, severity
):
    rng = np.random.default_rng(0)
    sex, drug = rng.choice(["f", "m"], 200), rng.choice(["a", "b"], 200)
    frame = pd.DataFrame({"sex": sex, "city": "x", "drug": drug, "gain": ((sex == "f") == (drug == "a")) * 1.0})
    frame.loc[:99, "city"] = "y"
    frame.to_csv(tmp_path / "one.csv", index=False)
    roles = {"state": ["sex", "city"], "action": "drug", "reward": "gain"}
    settings = RunSettings(
        str(tmp_path / "one.csv"), roles, discount=0.0, n_iterations=1, space="trees", space_options={"max_depth": 1},
        evaluator_options={"n_trees": 3},
    )  # fmt: skip
    fit_run(settings, tmp_path / "run")
    frame.loc[50 : 49 + n_unknown, column] = "unknown"
    frame.to_csv(tmp_path / "two.csv", index=False)
    found = evaluate_run(tmp_path / "run", tmp_path / "two.csv", **QUICK).warnings[0]
    assert (found.kind, found.column, found.severity) == ("unknown-categories", column, severity)


def test_a_new_policy_has_no_old_evaluation_and_settings_are_not_lost(table, tmp_path):
    fit_run(settings_for(table, hold_out=0.4), tmp_path / "run")
    evaluate_run(tmp_path / "run", **QUICK)
    (tmp_path / "run" / "policy.capi").unlink()
    fit_run(None, tmp_path / "run", resume=True)
    assert not (tmp_path / "run" / "evaluation.json").exists()
    (tmp_path / "run" / "policy.capi").unlink()
    text = (tmp_path / "run" / "settings.toml").read_text()
    (tmp_path / "run" / "settings.toml").write_text(text.replace("max_depth = 2", "max_leaf_nodes = 1"))
    with pytest.raises(InvalidInputError, match="max_leaf_nodes"):
        fit_run(None, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "settings.toml").exists()


def test_a_run_without_options_makes_the_rounds_that_the_library_makes(table, tmp_path):
    settings = RunSettings(table, ROLES, discount=0.5)
    whole = fit_run(settings, tmp_path / "run")
    learner = CAPI(discount=0.5, random_state=0).fit(settings.batch())
    numbers = ("k", "loss", "changed", "value", "score", "kept")
    assert [[row.get(n) for n in numbers] for row in whole.history] == [
        [row.get(n) for n in numbers] for row in learner.history_
    ]
    assert len(whole.history) < whole.settings.n_iterations  # it stopped when nothing moved
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings, tmp_path / "cut", shown=interrupted(after=4))
    resumed = fit_run(None, tmp_path / "cut", resume=True)
    assert [row["value"] for row in resumed.history] == [row["value"] for row in whole.history]
    text = (tmp_path / "run" / "settings.toml").read_text()
    assert "until_settled = true" in text
    again = RunSettings.from_toml(tmp_path / "run" / "settings.toml", {"learning": {"n_iterations": 30}})
    assert again.with_rules(again.batch()).until_settled is False
