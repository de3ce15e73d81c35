"""`capi fit` on tables in parts: folders, patterns, hold-outs, interruptions, and a cluster."""

import json
import os
import signal
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from capi import PartitionedTransitions, load_policy
from capi._utils.executors import dask_client
from capi._utils.rescue import rescue
from capi.cli import app
from capi.cli.fit import _sampled
from capi.data.table_files import format_of, one_table
from capi.errors import InvalidInputError, UnseenCategoryWarning
from capi.evaluators import LSTDQ
from capi.features.bases import Polynomial
from capi.policies import Constant
from capi.runs import RunResult, RunSettings, diagnose_run, fit, fit_run, predict_table
from capi.runs import table as tables
from scale.test_partitions import table, written

COLUMNS = ["--episode", "unit", "--time", "day", "--state", "x,kind", "--action", "drug", "--reward", "gain"]
SIZES = ["--space", "trees", "--max-depth", "2", "--n-iterations", "3", "--n-sweeps", "2", "--discount", "0.9"]
ROLES = {"episode": "unit", "time": "day", "state": ["x", "kind"], "action": "drug", "reward": "gain"}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "log"
    place.mkdir()
    frame = table(80)
    frame["gain"] += (frame["x"] > 0) == (frame["drug"] == "full")
    return written(frame, place, [113, 250])


def run(*arguments, stream="output"):
    """Return what a command says; progress and remarks go to the standard error, which ``stream="stdout"`` leaves out."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return getattr(result, stream)


def test_a_folder_a_pattern_and_the_files_of_a_pattern_give_the_same_policy(folder, tmp_path):
    files = sorted(map(str, folder.iterdir()))
    for name, given in (("a", [folder]), ("b", [str(folder / "*.parquet")]), ("c", files)):
        said = run("fit", *given, "--out", tmp_path / name, "--sample-rows", 150, *COLUMNS, *SIZES)
        assert "grown on a sample of about 150 of the 400 rows" in said
    policies = {(tmp_path / name / "policy.capi").read_bytes() for name in "abc"}
    assert len(policies) == 1
    assert load_policy(tmp_path / "a" / "policy.capi").training.n_rows == 400
    decided = tmp_path / "decided.parquet"
    assert "400 decisions" in run("predict", tmp_path / "a", folder, "--out", decided)
    assert pq.read_table(decided).column_names[-1] == "decision"


def test_a_policy_whose_leaves_need_several_rows_is_saved(folder, tmp_path):
    """Nodes count all rows, but a file must not show counts of fewer than five rows of the sample."""
    sizes = ["--space", "reweighted", "--n-iterations", "1", "--discount", "0.9"]
    run("fit", folder, "--out", tmp_path / "run", "--sample-rows", 100, *COLUMNS, *sizes)
    assert "Reweighted" in type(load_policy(tmp_path / "run" / "policy.capi")).__name__


@pytest.mark.parametrize("sample_rows", [None, 150])
def test_the_rules_say_which_rows_their_leaves_count(folder, tmp_path, sample_rows):
    settings = RunSettings(str(folder), ROLES, 0.9, 2, space="trees", sample_rows=sample_rows)
    said = fit_run(settings, tmp_path / "run").rules()
    assert ("(states: rows of a sample of the learning table that reach the leaf" in said) == (sample_rows is not None)
    assert ("(states: rows of the learning table that reach the leaf" in said) == (sample_rows is None)


def test_held_out_episodes_evaluate_and_the_report_is_written(folder, tmp_path):
    place = tmp_path / "run"
    run("fit", folder, "--out", place, "--sample-rows", 150, "--hold-out", 0.4, *COLUMNS, *SIZES)
    found = json.loads(run("evaluate", place, "--n-resamples", 20, "--json", stream="stdout"))
    assert found["kind"] == "held-out"
    assert found["source"] == "log/*.parquet"
    assert run("report", place, stream="stdout").startswith("report")
    learned = RunSettings.from_toml(place / "settings.toml")
    rows = [set(map(bytes, part.states)) for part in (learned.batch(), learned.held_out())]
    assert rows[0]
    assert rows[1]
    assert not rows[0] & rows[1]


@pytest.mark.parametrize(
    "options", [{}, {"state_weights": "batch", "space": "optimal-trees", "space_options": {"max_depth": 2}}]
)
def test_an_interrupted_run_resumes_to_the_same_bytes(folder, tmp_path, monkeypatch, options):
    monkeypatch.setattr(fit, "SHARE", np.inf)  # a checkpoint each iteration
    settings = RunSettings(str(folder), ROLES, 0.9, 4, evaluator_options={"n_trees": 4, "n_sweeps": 2}, sample_rows=150, **{"space": "trees", **options})  # fmt: skip

    def interrupted(rounds, done, total):
        for k, one in enumerate(rounds):
            yield one
            if k == 1:
                raise KeyboardInterrupt

    fit_run(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings, tmp_path / "cut", shown=interrupted)
    fit_run(None, tmp_path / "cut", resume=True)
    for name in ("policy.capi", "history.csv", "settings.toml"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_large_tables_are_learned_from_in_parts_by_rule(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MANY_ROWS", 300)
    run("fit", folder, "--out", tmp_path / "many", *COLUMNS, *SIZES)
    assert "sample_rows = 100000" in (tmp_path / "many" / "settings.toml").read_text()
    frame = pd.concat(pd.read_parquet(file) for file in sorted(folder.iterdir()))
    frame.to_csv(tmp_path / "table.csv", index=False)
    run("fit", tmp_path / "table.csv", "--out", tmp_path / "csv", *COLUMNS, *SIZES)
    assert "sample_rows = 100000" in (tmp_path / "csv" / "settings.toml").read_text()
    monkeypatch.setattr(tables, "MANY_ROWS", 400)
    run("fit", folder, "--out", tmp_path / "few", *COLUMNS, *SIZES)
    assert "sample_rows" not in (tmp_path / "few" / "settings.toml").read_text()


def test_a_cluster_gives_the_same_policy(folder, tmp_path, client):
    for name, more in (("here", []), ("there", ["--dask", client.scheduler.address])):
        run("fit", folder, "--out", tmp_path / name, "--sample-rows", 150, *more, *COLUMNS, *SIZES)
    assert (tmp_path / "here" / "policy.capi").read_bytes() == (tmp_path / "there" / "policy.capi").read_bytes()


def test_a_cluster_does_not_change_what_is_learned_from_a_small_table(folder, tmp_path, client):
    here = run("fit", folder, "--out", tmp_path / "here", *COLUMNS, *SIZES)
    there = run("fit", folder, "--out", tmp_path / "there", "--dask", client.scheduler.address, *COLUMNS, *SIZES)
    assert "learned from in memory, without the cluster" in there
    assert "note" not in here
    for name in ("policy.capi", "history.csv", "settings.toml"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_a_run_says_what_its_sample_was_used_for(folder, tmp_path):
    for options, note in (
        (["--sample-rows", 150], "values are averages of all rows, the policy was searched on the sample"),
        (["--sample-rows", 150, "--state-weights", "batch", "--keep", "last"], "the actions of the policy are the best on all rows"),
        (["--sample-rows", 400], "all 400 rows were learned from, part by part"),
    ):  # fmt: skip
        said = run("fit", folder, "--out", tmp_path / str(len(options) + options[1]), *options, *COLUMNS, *SIZES)
        assert note in said
    result = RunSettings(str(folder), ROLES, 0.9, sample_rows=150, select=True)
    training = SimpleNamespace(n_rows=97)
    note = _sampled(RunResult(tmp_path, result, SimpleNamespace(training=training), []))
    assert "everything was learned from 97 of the 400 rows" in note


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_an_evaluation_says_which_rows_it_used(folder, tmp_path, monkeypatch):
    run("fit", folder, "--out", tmp_path / "run", "--sample-rows", 150, *COLUMNS, *SIZES)
    options = ["evaluate", tmp_path / "run", "--folds", 2, "--n-resamples", 20]
    said = run(*options)
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert (found["source"], found["n_rows"]) == (str(folder), 400)
    assert f"rows        {folder}" in said
    monkeypatch.setattr(tables, "MANY_ROWS", 300)
    assert "rows        a sample of the episodes of log/*.parquet" in run(*options)


def test_a_run_folder_may_lie_in_the_folder_of_its_table(folder):
    settings = RunSettings(str(folder), ROLES, 0.9, 2, space="trees")
    with pytest.raises(KeyboardInterrupt):
        fit_run(settings, folder / "run", shown=interrupted_at_once)
    assert fit_run(None, folder / "run", resume=True).policy is not None
    assert run("report", folder / "run", stream="stdout").startswith("report")
    (folder / "more.parquet").write_bytes(sorted(folder.glob("*.parquet"))[0].read_bytes())
    with pytest.raises(InvalidInputError, match="has changed"):
        diagnose_run(folder / "run")


def interrupted_at_once(rounds, done, total):
    for one in rounds:
        yield one
        raise KeyboardInterrupt


@pytest.mark.parametrize("hold_out", [0.0, 0.3])
def test_missing_values_anywhere_are_refused_with_their_file(folder, tmp_path, hold_out):
    second = sorted(folder.iterdir())[1]
    frame = pd.read_parquet(second)
    for row in (7, 60, 100):
        frame.loc[row, "x"] = np.nan
    frame.to_parquet(second, index=False)
    settings = RunSettings(str(folder), ROLES, 0.9, 1, space="thresholds", sample_rows=20, hold_out=hold_out)
    with pytest.raises(InvalidInputError, match=rf"{second}, column 'x', row (8|61|101) \(the first is 1\): must have no missing values for thresholds"):  # fmt: skip
        fit_run(settings, tmp_path / "run")
    whole = PartitionedTransitions.from_parquet(folder, sample_rows=20, **ROLES)
    with pytest.raises(InvalidInputError, match=rf"{second}, column 'x', row 8 .*these features"):
        LSTDQ(Polynomial(1)).evaluate(Constant(0, 2), whole, discount=0.9)


def test_one_table_is_what_the_shell_was_asked_for(folder):
    files = sorted(map(str, folder.iterdir()))
    assert one_table(files) == str(folder)
    (folder / "sub").mkdir()
    (folder / "sub" / "001.parquet").write_bytes((folder / "001.parquet").read_bytes())
    assert one_table(files) == str(folder / "*.parquet")
    with pytest.raises(InvalidInputError, match="put the pattern in quotes"):
        one_table(files[:2])
    for call in (lambda: one_table(["a.csv", "b.csv"]), lambda: format_of(str(folder / "*.csv"))):
        with pytest.raises(
            InvalidInputError, match="Put several CSV files together into one, or write each as Parquet"
        ):
            call()


def test_workers_in_another_folder_find_the_files(folder, client, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (tmp_path / "elsewhere").mkdir()
    client.run(os.chdir, str(tmp_path / "elsewhere"))
    for given in ("log", "log/*.parquet", ["log/000.parquet", "log/001.parquet"]):
        found = PartitionedTransitions.from_parquet(given, executor=client, **ROLES)
        assert sum(found.each(len)) == len(found)


def test_bad_input_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("capi._utils.executors.CONNECT_SECONDS", 0.5)
    for given, said in (
        ([folder, "--dask", "tcp://127.0.0.1:9"], "nothing answers"),
        ([folder, "--dask", "tls://127.0.0.1:9"], "Name the certificates in Dask's configuration"),
        (sorted(folder.iterdir())[:2], "put the pattern in quotes"),
        ([tmp_path / "none" / "*.parquet"], "there is no such file"),
    ):
        result = CliRunner().invoke(app, ["fit", *map(str, given), *COLUMNS])
        assert isinstance(result.exception, InvalidInputError)
        assert said in str(result.exception)


def test_what_an_interrupted_run_leaves_is_said_while_its_cluster_is_closed(tmp_path, monkeypatch):
    said = []

    @contextmanager
    def slow_to_close(address):
        try:
            yield None
        finally:
            said.extend(rescue())

    def interrupted(*_, **__):
        (tmp_path / "selection-fits.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("capi.cli.fit.dask_client", slow_to_close)
    monkeypatch.setattr("capi.runs.fit_run", interrupted)
    result = CliRunner().invoke(app, ["fit", "--resume", "--out", str(tmp_path), "--dask", "local"])
    assert result.exit_code == 130
    assert said == [f"stopped; capi fit --resume --out {tmp_path} resumes from this point."]


def test_workers_on_this_machine_leave_ctrl_c_to_the_command():
    pytest.importorskip("distributed")
    with dask_client("local") as client:
        assert set(client.run(signal.getsignal, signal.SIGINT).values()) == {signal.SIG_IGN}


@pytest.mark.parametrize("options", [{}, {"state_weights": "batch", "keep": "last", "hold_out": 0.3}])
def test_a_run_that_learned_from_parts_is_diagnosed_on_its_sample(folder, tmp_path, options):
    sizes = {"evaluator_options": {"n_trees": 4, "n_sweeps": 2}, "space": "trees", "space_options": {"max_depth": 2}}
    result = fit_run(RunSettings(str(folder), ROLES, 0.9, 3, sample_rows=150, **sizes, **options), tmp_path / "run")
    said = run("diagnose", tmp_path / "run", "--n-refits", 2)
    n_rows = len(result.batch())
    assert n_rows < result.policy.training.n_rows
    assert f"sample of {n_rows} rows" in " ".join(said.split())
    found = json.loads((tmp_path / "run" / "diagnosis.json").read_text())
    assert (found["n_rows"], found["n_refits"]) == (n_rows, 2)


@pytest.fixture
def learned(folder, tmp_path):
    fit_run(RunSettings(str(folder), ROLES, 0.9, 1, space="trees"), tmp_path / "learned")
    return tmp_path / "learned"


def test_decisions_do_not_replace_or_join_the_files_of_their_table(folder, learned, tmp_path):
    before = {file: file.read_bytes() for file in folder.iterdir()}
    first = sorted(folder.iterdir())[0]
    for table_, out, said in (
        (folder, first, "would be overwritten"),
        (folder / "*.parquet", first, "would be overwritten"),
        (folder, folder / "new.parquet", "would become a part"),
        (folder, folder / "sub" / "new.parquet", "would become a part"),
        (folder / "*.parquet", folder / "new.parquet", "would become a part"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            predict_table(learned, table_, out)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    assert predict_table(learned, folder / "0*.parquet", folder / "decided.parquet") == 400
    assert predict_table(learned, folder, tmp_path / "decided.csv") == 800
    (folder / "notes.txt").write_text("not of the table")
    for given in (folder, folder / "*.parquet"):
        assert predict_table(learned, given, tmp_path / "decided.csv") == 800


def test_decisions_for_files_whose_other_columns_differ(folder, learned, tmp_path):
    first, second, _ = sorted(folder.iterdir())
    frame = pd.read_parquet(second)
    frame["day"] = frame["day"].astype(float)
    frame["kind"] = frame["kind"].astype("category")
    frame[frame.columns[::-1]].to_parquet(second, index=False)
    out = tmp_path / "decided.parquet"
    assert predict_table(learned, folder, out) == 400
    found = pd.read_parquet(out)
    assert list(found.columns) == [*pd.read_parquet(first).columns, "decision"]
    assert found["day"].dtype == float
    pd.testing.assert_series_equal(found["x"][113:250].reset_index(drop=True), frame["x"].reset_index(drop=True))
    for changed, said in (
        (frame.assign(more=1), r"001\.parquet: must have the same columns as .*000\.parquet; 'more' is only in one"),
        (frame.drop(columns="gain"), "'gain' is only in one of them"),
        (
            frame.assign(day=frame["day"].astype(str)),
            r"001\.parquet, column 'day': must be of the same kind everywhere",
        ),
    ):
        changed.to_parquet(second, index=False)
        with pytest.raises(InvalidInputError, match=said):
            predict_table(learned, folder, out)
    frame.assign(kind="new").to_parquet(second, index=False)
    with pytest.warns(UnseenCategoryWarning, match=rf"first in row 1 of {second} counted from 1"):
        predict_table(learned, folder, out)
