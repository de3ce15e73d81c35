"""From a table to a policy file: settings, runs that survive, and the command line around them."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
from typer.testing import CliRunner

from capi._utils.parameters import at_least
from capi._utils.versions import versions
from capi.cli import app
from capi.data.readers import arrow
from capi.errors import InvalidInputError
from capi.files.archive import read_archive, write_archive
from capi.files.policy_file import load_policy, save_policy
from capi.policies import described
from capi.policy_spaces import Constrained, Forests, Trees
from capi.policy_spaces.rules import Never
from capi.runs import RunSettings, fit, fit_run, load_run
from small_runs import OPTIONS, ROLES, interrupted, settings_for


def test_settings_survive_their_file(table, tmp_path):
    settings = settings_for(table, random_state=7)
    (tmp_path / "s.toml").write_text(settings.to_toml())
    again = RunSettings.from_toml(tmp_path / "s.toml")
    assert again.to_toml() == settings.to_toml()
    assert "refresh_every = 25" in settings.to_toml()  # today's defaults are written down
    assert again.learner().get_params(deep=False) == settings.learner().get_params(deep=False)


OLD_LAYOUT = """[data]
table = {table}
episode = "id"
state = ["age", "dose"]
action = "drug"
reward = "gain"
terminated = "dead"

[learning]
discount = 0.8
iterations = 6
seed = 0
hold_out = 0.0
keep = "last"

[evaluator]
kind = "fitted-q"
n_trees = 4
min_samples_split = 5
min_samples_leaf = 1
actions = "separate"
sweeps = 2
refresh_every = 25
n_jobs = -1

[space]
kind = "trees"
max_depth = 2
min_samples_split = 2
min_samples_leaf = 1
"""


def test_a_run_started_with_the_old_layout_of_its_settings_resumes(table, tmp_path, monkeypatch):
    """Older versions wrote lists on one line; checkpoints hold a fingerprint of that text."""
    monkeypatch.setattr(fit, "SHARE", np.inf)
    settings, old = settings_for(table, keep="last", state_weights="batch"), OLD_LAYOUT.format(table=json.dumps(table))
    written = {**settings.evaluator_options, "projections": 0, "min_samples_leaf": 1}  # all options were written
    settings = replace(settings, evaluator_options=written, space_options={"max_depth": 2, "min_samples_leaf": 1})
    whole, run = fit_run(settings, tmp_path / "whole"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings, run, shown=interrupted(2))
    assert RunSettings.from_toml(run / "settings.toml").to_toml() != old
    (run / "settings.toml").write_text(old, encoding="utf-8")
    assert RunSettings.from_toml(run / "settings.toml").to_toml() == settings.to_toml()
    header, arrays = read_archive(run / "checkpoint.zip")
    header["origin"] = hashlib.sha256(old.encode() + fit.digest(table).encode()).hexdigest()
    (run / "checkpoint.zip").unlink()
    write_archive(run / "checkpoint.zip", header, arrays)
    fit_run(None, run, resume=True)
    assert (run / "policy.capi").read_bytes() == (whole.folder / "policy.capi").read_bytes()
    assert (run / "settings.toml").read_text(encoding="utf-8") == old  # the file is not rewritten


def test_trees_without_a_depth_in_an_older_settings_file_have_no_limit(table, tmp_path):
    """Trees had no limit by default, and None was not written."""
    old = OLD_LAYOUT.format(table=json.dumps(table)).replace("max_depth = 2\n", "")
    (tmp_path / "s.toml").write_text(old, encoding="utf-8")
    found = RunSettings.from_toml(tmp_path / "s.toml")
    assert found.parts.space == Trees(max_depth=None, min_samples_leaf=1)
    assert 'max_depth = "none"\n' in found.to_toml()
    (tmp_path / "s.toml").write_text(found.to_toml(), encoding="utf-8")
    assert RunSettings.from_toml(tmp_path / "s.toml").parts == found.parts


def test_trees_of_runs_are_small_by_default(table, tmp_path):
    new = RunSettings(table, ROLES, space="trees")
    assert new.parts.space == Trees(max_depth=3)
    assert "max_depth = 3\n" in new.to_toml()
    (tmp_path / "s.toml").write_text(new.to_toml(), encoding="utf-8")
    assert RunSettings.from_toml(tmp_path / "s.toml").parts == new.parts


def test_old_names_in_a_settings_file_are_translated(table, tmp_path):
    (tmp_path / "s.toml").write_text(OLD_LAYOUT.format(table=json.dumps(table)) + "n_jobs = 1\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="Trees has no option 'n_jobs'"):
        RunSettings.from_toml(tmp_path / "s.toml")
    old = (
        OLD_LAYOUT.replace("seed = 0", "seed = 4").split("[space]")[0]
        + '[space]\nkind = "neighbors"\nindex = "exact"\n'
    )
    (tmp_path / "s.toml").write_text(old.format(table=json.dumps(table)), encoding="utf-8")
    found = RunSettings.from_toml(tmp_path / "s.toml")
    assert (found.n_iterations, found.random_state, found.parts.evaluator.n_sweeps) == (6, 4, 2)
    assert found.parts.space.algorithm == "exact"
    written = found.to_toml()
    assert "n_sweeps = 2\n" in written
    assert not re.search(r"^(iterations|seed|sweeps|index) = ", written, re.MULTILINE)


def test_an_old_name_next_to_the_new_one_in_a_settings_file_is_refused(table, tmp_path):
    both = OLD_LAYOUT.format(table=json.dumps(table)).replace("seed = 0", "seed = 0\nrandom_state = 1")
    (tmp_path / "s.toml").write_text(both, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"seed is now called random_state, and both are given; remove seed\."):
        RunSettings.from_toml(tmp_path / "s.toml")


def test_old_names_of_options_in_python_are_refused_with_the_new_ones(table):
    with pytest.raises(InvalidInputError, match=r"sweeps is now called n_sweeps; write FittedQ\(n_sweeps=3\)\."):
        RunSettings(table, ROLES, evaluator_options={"sweeps": 3})
    with pytest.raises(
        InvalidInputError, match=r"index is now called algorithm; write Neighbors\(algorithm='exact'\)\."
    ):
        RunSettings(table, ROLES, space="neighbors", space_options={"index": "exact"})


GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def old_run(tmp_path, monkeypatch):
    """A folder with a table and a run started by version 0.1: settings and checkpoint have the old option names."""
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)  # settings refer to the table in the folder
    checkpoint = tmp_path / "old-names" / "checkpoint.zip"
    header, arrays = read_archive(checkpoint)
    checkpoint.unlink()
    write_archive(checkpoint, {**header, "versions": versions()}, arrays)  # the libraries may be newer by now
    return tmp_path / "old-names"


def test_a_run_started_with_old_names_of_settings_resumes_to_the_same_policy(old_run):
    text = (old_run / "settings.toml").read_text(encoding="utf-8")
    assert "\niterations = 6\n" in text
    whole = fit_run(RunSettings.from_toml(old_run / "settings.toml"), "whole")
    done = []
    fit_run(None, old_run, resume=True, shown=lambda rounds, already, total: done.append((already, total)) or rounds)
    assert done == [(3, 6)]
    for name in ("policy.capi", "history.csv", "values.zip"):
        assert (old_run / name).read_bytes() == (whole.folder / name).read_bytes(), name
    assert (old_run / "settings.toml").read_text(encoding="utf-8") == text


def test_a_run_started_with_old_names_may_be_interrupted_again(old_run, monkeypatch):
    monkeypatch.setattr(fit, "SHARE", np.inf)
    whole = fit_run(RunSettings.from_toml(old_run / "settings.toml"), "whole")
    with pytest.raises(KeyboardInterrupt):
        fit_run(None, old_run, resume=True, shown=interrupted(4))
    fit_run(None, old_run, resume=True)
    assert (old_run / "policy.capi").read_bytes() == (whole.folder / "policy.capi").read_bytes()


def test_settings_build_their_parts_once_and_check_options_before(table, monkeypatch):
    made = []
    real = Trees.__post_init__ if hasattr(Trees, "__post_init__") else None

    def counted(self):
        made.append(self)
        if real is not None:
            real(self)

    monkeypatch.setattr(Trees, "__post_init__", counted, raising=False)
    settings = settings_for(table)
    settings.to_toml()
    settings.to_toml()
    assert settings.learner() is not settings.learner()
    assert len(made) == 1
    monkeypatch.setattr(Trees, "_constraints", {"max_depth": at_least(2)}, raising=False)
    made.clear()
    with pytest.raises(InvalidInputError, match="max_depth must be an integer, at least 2; got 1"):
        RunSettings("t.csv", ROLES, space="trees", space_options={"max_depth": 1})
    assert not made  # the table of constraints is enough


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("[space]\nkind = 'trees'\nmax_depth = 0", "max_depth must be"),
        (
            "[space]\nkind = 'trees'\ndepth = 1",
            "Trees has no option 'depth' in run settings; the space takes max_depth",
        ),
        ("[evaluator]\nkind = 'magic'", "evaluator must be one of"),
        ("[learning]\nn_iterations = 0", "n_iterations must be an integer, at least 1; got 0"),
    ],
)
def test_errors_in_a_settings_file_name_the_file(section, message, tmp_path):
    text = f"[data]\ntable = 't.csv'\nstate = ['s']\naction = 'a'\nreward = 'r'\n{section}\n"
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InvalidInputError, match=rf"mine\.toml: {message}"):
        RunSettings.from_toml(tmp_path / "mine.toml")


def test_numbers_and_lists_survive_their_file(tmp_path):
    settings = RunSettings(
        "t.csv", ROLES, discount=1e-300, evaluator="kernel-fitted-q", evaluator_options={"ridge": 0.1 + 0.2}
    )
    (tmp_path / "s.toml").write_text(settings.to_toml(), encoding="utf-8")
    again = RunSettings.from_toml(tmp_path / "s.toml")
    assert (again.discount, again.evaluator_options["ridge"]) == (1e-300, 0.1 + 0.2)
    assert again.learner().evaluator == settings.learner().evaluator


@pytest.mark.parametrize("command", ["describe", "fit", "predict"])
def test_the_header_of_a_table_is_read_once(table, tmp_path, monkeypatch, command):
    run, opened = str(tmp_path / "run"), []
    if command == "predict":
        fit_run(settings_for(table, n_iterations=1), run)
    real = arrow.CsvFile.opened.__func__
    monkeypatch.setattr(
        arrow.CsvFile, "opened", classmethod(lambda cls, *given: (opened.append(given), real(cls, *given))[1])
    )
    monkeypatch.setattr(pyarrow.csv, "open_csv", None)  # the other way to read a header
    arguments = {
        "describe": [table, *OPTIONS],
        "fit": [table, *OPTIONS, "--out", run, "--n-iterations=1", "--space=trees"],
        "predict": [run, table, "--out", str(tmp_path / "out.csv")],
    }
    done = CliRunner().invoke(app, [command, *arguments[command]])
    assert done.exit_code == 0, done.output
    assert len(opened) == 1


def test_hostile_names_survive_their_file(tmp_path):
    names = ['a"b', "back\\slash", "new\nline", "ümläut", "tab\t", "#[x]"]
    settings = RunSettings("t.csv", {"state": names, "action": "a", "reward": "r"})
    (tmp_path / "s.toml").write_text(settings.to_toml(), encoding="utf-8")
    assert RunSettings.from_toml(tmp_path / "s.toml").roles["state"] == names


@pytest.mark.parametrize(
    ("space", "evaluator"),
    [(space, "fitted-q") for space in ("trees", "forests", "optimal-trees", "thresholds", "linear", "neighbors")]
    + [("trees", "kernel-fitted-q")],
)
def test_an_interrupted_run_resumes_to_the_same_bytes(table, tmp_path, monkeypatch, space, evaluator):
    monkeypatch.setattr(fit, "SHARE", np.inf)  # a checkpoint each iteration
    settings = settings_for(table, space, evaluator, with_states=space == "neighbors")
    whole = fit_run(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings, tmp_path / "cut", shown=interrupted(2))
    assert not (tmp_path / "cut" / "policy.capi").exists()
    seen = []
    fit_run(None, tmp_path / "cut", resume=True, shown=lambda rounds, done, total: (seen.append(done), rounds)[1])
    assert seen == [3]
    for name in ("policy.capi", "history.csv", "settings.toml"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "cut" / "checkpoint.zip").exists()
    assert len(whole.history) == 6
    secrets = [(tmp_path / name / "secret.json").read_bytes() for name in ("cut", "whole")]
    assert secrets[0] != secrets[1], "each run has a key of its own"


def test_a_run_of_forests_with_combinations_resumes_to_the_same_bytes(table, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "SHARE", np.inf)
    settings = replace(settings_for(table, "forests"), space_options={"n_trees": 3, "projections": 4})
    assert "projections = 4" in settings.to_toml().split("[space]")[1]
    (tmp_path / "s.toml").write_text(settings.to_toml())
    whole = fit_run(RunSettings.from_toml(tmp_path / "s.toml"), tmp_path / "whole")
    assert len(whole.policy.forest.projections) == 4
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings, tmp_path / "cut", shown=interrupted(2))
    fit_run(None, tmp_path / "cut", resume=True)
    assert (tmp_path / "cut" / "policy.capi").read_bytes() == (tmp_path / "whole" / "policy.capi").read_bytes()
    with pytest.raises(InvalidInputError, match="projections must be"):
        replace(settings, space_options={"projections": -1})


def test_a_space_that_holds_rows_of_the_table_must_be_asked_for(table, tmp_path):
    with pytest.raises(InvalidInputError, match=r"everyone who gets it would get these rows\. Pass --with-states"):
        fit_run(settings_for(table, "neighbors"), tmp_path / "run")
    assert not (tmp_path / "run" / "settings.toml").exists()
    asked = settings_for(table, "neighbors", with_states=True)
    assert "with_states = true\n" in asked.to_toml()
    assert fit_run(asked, tmp_path / "run").rules() == load_run(tmp_path / "run").rules()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_reads_the_secret(table, tmp_path):
    fit_run(settings_for(table), tmp_path / "run")
    assert (tmp_path / "run" / "secret.json").stat().st_mode & 0o777 == 0o600


def test_a_finished_run_is_opened_and_not_run_again(table, tmp_path):
    result = fit_run(settings_for(table), tmp_path / "run")
    again = fit_run(None, tmp_path / "run", resume=True)
    states = settings_for(table).batch().states
    np.testing.assert_array_equal(again.policy.act(states), result.policy.act(states))
    assert again.policy.training.discount == 0.8
    assert load_run(tmp_path / "run").history[-1]["k"] == 5
    with pytest.raises(InvalidInputError, match="already has a run"):
        fit_run(settings_for(table), tmp_path / "run")


def test_rules_of_a_saved_constrained_forest_are_compared_on_the_states_of_the_table(table, tmp_path):
    run = fit_run(settings_for(table, "forests"), tmp_path / "run")
    batch = run.settings.batch()
    values = np.stack([np.zeros(len(batch)), batch.states[:, 0], batch.states[:, 1]], axis=1)
    space = Constrained(Forests(n_trees=3), [Never("low", when="age > 1")], batch.schema)
    policy = space.improve(batch.states, values, rng=np.random.default_rng(0))
    policy = described(policy, batch.schema, run.policy.training)
    save_policy(policy, tmp_path / "run" / "policy.capi")
    rules = load_run(tmp_path / "run").rules()
    assert rules == policy.rules(batch.states)
    assert str(Never("low", when="age > 1")) in rules


def test_a_changed_table_or_checkpoint_is_not_resumed(table, tmp_path):
    copy = tmp_path / "copy.csv"
    copy.write_text(Path(table).read_text())
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings_for(str(copy)), tmp_path / "run", shown=interrupted(2))
    text = copy.read_text()
    copy.write_text(text.replace("none", "nothing"))
    with pytest.raises(InvalidInputError, match="other settings or another table"):
        fit_run(None, tmp_path / "run", resume=True)
    copy.write_text(text)
    checkpoint = tmp_path / "run" / "checkpoint.zip"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match="cannot be resumed"):
        fit_run(None, tmp_path / "run", resume=True)


def test_a_checkpoint_of_an_earlier_version_says_so(table, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings_for(table), tmp_path / "run", shown=interrupted(2))
    checkpoint = tmp_path / "run" / "checkpoint.zip"
    header, arrays = read_archive(checkpoint)
    header["age"] = header.pop("sweeps")[0]
    checkpoint.unlink()
    write_archive(checkpoint, header, arrays)
    with pytest.raises(InvalidInputError, match=r"earlier version of capi\. Start a new run\."):
        fit_run(None, tmp_path / "run", resume=True)


def test_a_table_that_cannot_be_read_makes_no_run(table, tmp_path):
    bad = RunSettings(table, {**ROLES, "state": ["height"]})
    with pytest.raises(InvalidInputError, match="height"):
        fit_run(bad, tmp_path / "run")
    assert not (tmp_path / "run" / "settings.toml").exists()


def command(*arguments):
    return [sys.executable, "-m", "capi.cli", *map(str, arguments)]


def test_a_killed_process_loses_nothing_and_a_second_one_is_refused(table, tmp_path):
    (tmp_path / "s.toml").write_text(settings_for(table, n_iterations=1_000_000).to_toml())
    first = subprocess.Popen(
        command("fit", "--settings", tmp_path / "s.toml", "--out", tmp_path / "run"), stderr=subprocess.DEVNULL
    )
    checkpoint = tmp_path / "run" / "checkpoint.zip"
    try:
        while first.poll() is None and not checkpoint.exists():
            time.sleep(0.02)
        first.send_signal(signal.SIGSTOP)  # so that it cannot end, however long the second one takes
        second = subprocess.run(
            command("fit", "--resume", "--out", tmp_path / "run"), capture_output=True, text=True, check=False
        )
    finally:
        first.kill()
        first.wait()
    assert second.returncode == 1
    assert f"another process (id {first.pid}) is using" in " ".join(second.stderr.split())
    assert not (tmp_path / "run" / "policy.capi").exists()
    done = []

    def few_more(rounds, already, total):
        done.append(already)
        for iteration in rounds:
            yield iteration
            if iteration.k >= already + 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_run(None, tmp_path / "run", resume=True, shown=few_more)
    assert done[0] >= 1


def test_the_command_line_from_table_to_sql(table, tmp_path):
    runner = CliRunner()
    run = str(tmp_path / "run")
    described = runner.invoke(app, ["describe", table, *OPTIONS, "--json"])
    assert described.exit_code == 0, described.output
    assert json.loads(described.stdout)["n_rows"] > 100
    fitted = runner.invoke(
        app, ["fit", table, "--out", run, *OPTIONS, "--n-iterations", "3", "--space", "trees", "--max-depth", "2"]
    )
    assert fitted.exit_code == 0, fitted.output
    assert "policy.capi" in fitted.stdout
    out = str(tmp_path / "decisions.parquet")
    predicted = runner.invoke(app, ["predict", run, table, "--out", out])
    assert predicted.exit_code == 0, predicted.output
    decisions, frame = pd.read_parquet(out), pd.read_csv(table)
    policy = load_policy(f"{run}/policy.capi")
    labels = policy.schema.labels_of(policy.act(policy.schema.encode(frame)))
    assert decisions["decision"].tolist() == labels.tolist()
    for to, words in {
        "text": "states, regret",
        "sql": "CASE WHEN",
        "python": "def decide",
        "dot": "digraph",
        "json": "{",
    }.items():
        exported = runner.invoke(app, ["export", run, "--to", to])
        assert exported.exit_code == 0, exported.output
        assert words in exported.stdout or to == "text"
    runner.invoke(app, ["export", run, "--to", "python", "--out", str(tmp_path / "policy.py")])
    namespace = {}
    exec((tmp_path / "policy.py").read_text(), namespace)
    by_code = [namespace["decide"](row) for row in frame[["age", "dose"]].to_dict("records")]
    assert by_code == labels.tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RunSettings("t.xls", ROLES), "must be a .csv or .parquet file"),
        (lambda: RunSettings("t.csv", {"state": ["a"], "reward": "r"}), "the action column must be named"),
        (lambda: RunSettings("t.csv", {**ROLES, "colour": "x"}), "a role must be one of"),
        (lambda: RunSettings("t.csv", ROLES, space="magic"), "space must be one of"),
        (lambda: RunSettings("t.csv", ROLES, space_options={"depth": 3}), "OptimalTrees has no option 'depth'"),
        (lambda: RunSettings("t.csv", ROLES, space_options={"max_depth": 9}), "max_depth must be at most 6"),
        (lambda: RunSettings("t.csv", ROLES, discount=1.0), "discount must lie in"),
        (lambda: RunSettings.from_toml("nowhere.toml"), "cannot be read as settings"),
        (lambda: fit_run(None, "somewhere-else-entirely", resume=True), "has no run"),
    ],
)
def test_bad_settings_are_named(make, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_benchmarks_are_listed_and_unknown_ones_refused():
    runner = CliRunner()
    listed = runner.invoke(app, ["bench", "--list"])
    files = {path.stem for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py")} - {"timing"}
    assert {"tables", "intervals", "trees"} <= files
    assert set(listed.stdout.split()) == files
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert "$(BIN)/capi bench  #" in makefile, "all of them"
    refused = runner.invoke(app, ["bench", "magic"])
    assert isinstance(refused.exception, InvalidInputError)
    assert "unknown benchmark 'magic'. Choose from averager, cart_pole, " in str(refused.exception)


def test_predict_uses_the_categories_and_labels_of_the_learning_table(tmp_path, monkeypatch):
    """A category that looks like a number stays text, and the other columns are unchanged."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    zips, arms = rng.choice(["01234", "02345", "X1"], 300), rng.choice(["A", "B"], 300)
    gains = np.where((zips == "01234") == (arms == "A"), 1.0, 0.0)
    pd.DataFrame({"zip": zips, "a": arms, "r": gains}).to_csv("t.csv", index=False)
    settings = RunSettings(
        "t.csv",
        {"state": ["zip"], "action": "a", "reward": "r"},
        discount=0.0,
        n_iterations=2,
        space="trees",
        space_options={"max_depth": 2},
    )
    fit_run(settings, "run")
    Path("new.csv").write_text('id,zip,note\n007,01234,"two\nlines"\n008,02345,\n')
    runner = CliRunner()
    done = runner.invoke(app, ["predict", "run", "new.csv", "--out", "out.csv"])
    assert done.exit_code == 0, done.output
    out = pd.read_csv("out.csv", dtype=str, keep_default_na=False)
    assert out.to_dict("list") == {
        "id": ["007", "008"],
        "zip": ["01234", "02345"],
        "note": ["two\nlines", ""],
        "decision": ["A", "B"],
    }
    same = runner.invoke(app, ["predict", "run", "new.csv", "--out", "new.csv"])
    assert "would be overwritten" in str(same.exception)
    Path("folder.csv").mkdir()
    refused = runner.invoke(app, ["predict", "run", "folder.csv", "--out", "o.csv"])
    assert isinstance(refused.exception, InvalidInputError)


def test_a_fit_that_fails_leaves_the_folder_free(table, tmp_path):
    frame = pd.read_csv(table)
    frame.loc[0, "age"] = np.nan
    frame.to_csv(tmp_path / "holes.csv", index=False)
    with pytest.raises(InvalidInputError, match="no missing values for linear"):
        fit_run(settings_for(str(tmp_path / "holes.csv"), "linear"), tmp_path / "run")
    assert fit_run(settings_for(str(tmp_path / "holes.csv"), "trees"), tmp_path / "run").policy.n_actions == 3


def test_options_that_would_be_ignored_are_refused(table, tmp_path):
    (tmp_path / "s.toml").write_text(settings_for(table).to_toml())
    runner = CliRunner()
    for arguments in (["--settings", str(tmp_path / "s.toml")], ["--n-iterations", "9"]):
        refused = runner.invoke(app, ["fit", "--resume", *arguments, "--out", str(tmp_path / "run")])
        assert f"{arguments[0]} must not be given with --resume" in str(refused.exception)
    gone = runner.invoke(app, ["fit", "--resume", "--out", str(tmp_path / "typo")])
    assert "has no run" in str(gone.exception)
    assert not (tmp_path / "typo").exists()


def test_a_run_without_its_history_says_so(table, tmp_path):
    fit_run(settings_for(table), tmp_path / "run")
    (tmp_path / "run" / "history.csv").unlink()
    with pytest.raises(InvalidInputError, match=r"history\.csv cannot be read"):
        load_run(tmp_path / "run")


def test_policies_that_must_be_imitated_are_compared_on_the_states_of_the_table(table, tmp_path):
    (tmp_path / "s.toml").write_text(settings_for(table, "forests").to_toml())
    runner, run = CliRunner(), str(tmp_path / "run")
    first = runner.invoke(app, ["fit", "--settings", str(tmp_path / "s.toml"), "--out", run])
    again = runner.invoke(app, ["fit", "--resume", "--out", run])
    assert "A vote of 3 trees" in first.stdout
    assert again.stdout == first.stdout
    imitated = runner.invoke(app, ["export", run, "--to", "sql", "--imitate"])
    assert "CASE WHEN" in imitated.stdout, imitated.output
    told = runner.invoke(app, ["fit", "--resume", "--out", run, "--json"])
    assert "This tree makes the same decision" in json.loads(told.stdout)["rules"]
