"""capi fit --select: chooses, tests, writes a run that all other commands understand, and continues after an interruption."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi import CAPI
from capi.cli import app
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.policy_spaces import Neighbors, Reweighted, Trees
from capi.report import report_record, write_report
from capi.report.wording import number_text
from capi.runs import RunSettings, compare_runs, evaluate_run, fit_run, load_run, select
from capi.runs.fit import EVALUATION, FITS
from capi.runs.select import SELECTION
from capi.selection import Candidate

ROLES = {"state": ["x", "y"], "action": "drug", "reward": "gain"}


def few(batch, discount, *, random_state):
    evaluator = FittedQ(n_trees=5, min_samples_leaf=5)
    return [
        Candidate("tree", CAPI(evaluator, Trees(max_depth=1), discount, 1, random_state=random_state), 2),
        Candidate("reweighted", CAPI(evaluator, Reweighted(), discount, random_state=random_state), 9),
    ]


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    monkeypatch.setattr(select, "default_candidates", few)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("tables")
    x, y, treated = rng.normal(size=500), rng.normal(size=500), rng.random(500) < 0.5
    for name, gain in (("gain", 2.0), ("none", 0.0)):
        reward = gain * (treated == (x > 0)) + rng.normal(size=500)
        drug = np.where(treated, "drug", "none")
        pd.DataFrame({"x": x, "y": y, "drug": drug, "gain": reward}).to_csv(folder / f"{name}.csv", index=False)
    return folder


def settings(tables, name="gain", **options):
    return RunSettings(str(tables / f"{name}.csv"), ROLES, discount=0.0, select=True, **options)


def test_a_selected_run_is_one_that_all_commands_understand(tables, tmp_path):
    run = tmp_path / "run"
    result = fit_run(settings(tables), run)
    found = json.loads((run / SELECTION).read_text())
    assert found["returned"] == "tree"
    assert found["gate"]["verdict"] == "better"
    assert "chosen" in str(result.selection)
    assert not (run / FITS).exists()
    assert load_run(run).settings == settings(tables)
    for command in (["evaluate", str(run)], ["export", str(run), "--to", "sql"], ["report", str(run)]):
        told = CliRunner().invoke(app, command)
        assert told.exit_code == 0, told.output
    record = report_record(run)["selection"]
    assert record["rows"][0]["name"] == "tree"
    assert record["sentence"] == found["gate"]["sentence"]
    page = write_report(run).read_text()
    table = page[page.index('aria-label="Candidates"') :]
    head, body = (
        table[: table.index("</thead>")],
        table[table.index("<tbody>") : table.index("</tr>", table.index("<tbody>"))],
    )
    assert head.count("<th ") == body.count("<th ") + body.count("<td")  # a column for every number
    assert "Values: doubly robust." in page


def test_without_room_for_improvement_the_run_returns_what_was_done(tables, tmp_path):
    result = fit_run(settings(tables, "none"), tmp_path / "run")
    assert "What was done" in result.rules()
    assert "The result is what was done" in str(result.selection)
    assert "What was tried" in write_report(tmp_path / "run").read_text()
    learned = fit_run(settings(tables, "none", always_learn=True), tmp_path / "learned")
    assert learned.rules().startswith("if ")


OPTIONS = ["--state", "x", "--state", "y", "--action", "drug", "--reward", "gain", "--discount", "0", "--select"]


def test_the_command_prints_what_was_tried(tables, tmp_path):
    table = str(tables / "gain.csv")
    told = CliRunner().invoke(app, ["fit", table, "--out", str(tmp_path / "run"), *OPTIONS])
    assert told.exit_code == 0, told.output
    assert "tree is better than what was done" in " ".join(told.stdout.split())
    told = CliRunner().invoke(app, ["fit", table, "--out", str(tmp_path / "json"), *OPTIONS, "--json"])
    found = json.loads(told.stdout)["selection"]
    written = json.loads((tmp_path / "json" / SELECTION).read_text())
    assert found == {name: value for name, value in written.items() if name != "format"}
    assert (found["returned"], found["gate"]["verdict"]) == ("tree", "better")
    assert "max_depth=1" in next(one["settings"] for one in found["tried"] if one["name"] == "tree")


def test_what_a_file_cannot_hold_is_not_the_result(tables, tmp_path, monkeypatch):
    def with_neighbours(batch, discount, *, random_state):
        near = CAPI(FittedQ(n_trees=5, min_samples_leaf=5), Neighbors(5), discount, 1, random_state=random_state)
        leaves = FittedQ(n_trees=5)  # with fewer than five rows
        small = CAPI(leaves, Reweighted(), discount, random_state=random_state)
        return [Candidate("neighbours", near, 3), Candidate("small leaves", small, 4)]

    monkeypatch.setattr(select, "default_candidates", with_neighbours)
    result = fit_run(settings(tables), tmp_path / "run")
    fates = {one.name: one.fate for one in result.selection.tried}
    assert "neighbours" not in fates
    assert "cannot be saved without values of single rows" in fates["small leaves"]
    assert result.selection.returned == "what was done"
    shared = fit_run(settings(tables, with_states=True), tmp_path / "with states")
    assert "neighbours" in {one.name for one in shared.selection.tried}


def test_a_selection_needs_enough_episodes(tables, tmp_path):
    frame = pd.read_csv(tables / "gain.csv")
    for n, more, message in (
        (8, [], "selection needs at least 10 episodes, for learning, comparing and testing; there are 8"),
        (60, ["--hold-out", "0.999"], "at least 3 episodes must be left for learning and for the test; got 1 and 59"),
        (60, ["--hold-out", "0"], "--hold-out must be above 0 with --select"),
    ):
        frame[:n].to_csv(tmp_path / "few.csv", index=False)
        told = CliRunner().invoke(
            app, ["fit", str(tmp_path / "few.csv"), "--out", str(tmp_path / "run"), *OPTIONS, *more]
        )
        assert told.exit_code == 1
        assert message in str(told.exception)
        assert not (tmp_path / "run").exists()
    frame[:30].assign(id=1).to_csv(tmp_path / "one.csv", index=False)
    told = CliRunner().invoke(
        app, ["fit", str(tmp_path / "one.csv"), "--episode", "id", "--out", str(tmp_path / "run"), *OPTIONS]
    )
    assert "--select needs at least two episodes; the table has one" in str(told.exception)


def test_an_interrupted_selection_continues_to_the_same_policy(tables, tmp_path):
    def interrupting(tasks, done, total):
        for number, task in enumerate(tasks):
            if number == 3:
                raise KeyboardInterrupt
            yield task

    with pytest.raises(KeyboardInterrupt):
        fit_run(settings(tables), tmp_path / "run", shown=interrupting)
    assert (tmp_path / "run" / FITS).exists()
    again = fit_run(None, tmp_path / "run", resume=True)
    plain = fit_run(settings(tables), tmp_path / "plain")
    assert (again.folder / "policy.capi").read_bytes() == (plain.folder / "policy.capi").read_bytes()


def test_an_interruption_before_the_first_fit_leaves_nothing(tables, tmp_path):
    def at_once(tasks, done, total):
        raise KeyboardInterrupt
        yield from tasks

    with pytest.raises(KeyboardInterrupt):
        fit_run(settings(tables), tmp_path / "run", shown=at_once)
    assert not (tmp_path / "run").exists()


def test_policies_that_draw_are_applied_by_drawing(tables, tmp_path):
    mine = RunSettings(
        str(tables / "gain.csv"), ROLES, discount=0.0, space="reweighted", evaluator_options={"n_trees": 5}
    )
    fit_run(mine, tmp_path / "run")
    decided = []
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        out = tmp_path / f"{name}.csv"
        told = CliRunner().invoke(
            app,
            [
                "predict",
                str(tmp_path / "run"),
                str(tables / "gain.csv"),
                "--out",
                str(out),
                "--random-state",
                str(seed),
            ],
        )
        assert told.exit_code == 0, told.output
        decided.append(pd.read_csv(out, keep_default_na=False)["decision"])
    policy = load_run(tmp_path / "run").policy
    assert decided[0].equals(decided[1])
    assert not decided[0].equals(decided[2])
    states = policy.schema.states_of(pd.read_csv(tables / "gain.csv", keep_default_na=False))
    expected = policy.probabilities(states)[:, list(policy.schema.action_labels).index("drug")]
    assert abs((decided[0] == "drug").mean() - expected.mean()) < 0.08


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": "trees"}, "space must not be given with select"),
        ({"evaluator_options": {"n_trees": 5}}, "n_trees must not be given"),
        ({"support": 0.3}, "support must not be given"),
        ({"budget": 0.0}, "budget"),
    ],
)
def test_what_select_chooses_must_not_be_given(tables, options, message):
    with pytest.raises(InvalidInputError, match=message):
        settings(tables, **options)


def test_options_of_select_need_it(tables):
    with pytest.raises(InvalidInputError, match="budget must come with select"):
        RunSettings(str(tables / "gain.csv"), ROLES, budget=3.0)


def test_a_selected_run_cannot_be_refitted(tables, tmp_path):
    fit_run(settings(tables), tmp_path / "run")
    told = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--folds", "3"])
    assert "chose its learner among candidates" in str(told.exception)


def test_a_damaged_record_is_refused(tables, tmp_path):
    fit_run(settings(tables), tmp_path / "run")
    (tmp_path / "run" / SELECTION).write_text("{")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        report_record(tmp_path / "run")
    (tmp_path / "run" / SELECTION).write_text('{"format": "other"}')
    with pytest.raises(InvalidInputError, match="must be a file written by"):
        report_record(tmp_path / "run")


def test_supported_runs_resume_and_export(tables, tmp_path):
    mine = RunSettings(
        str(tables / "gain.csv"),
        ROLES,
        discount=0.0,
        evaluator_options={"n_trees": 5},
        support=0.3,
        support_depth=2,
    )
    result = fit_run(mine, tmp_path / "run")
    assert load_run(tmp_path / "run").settings.support == 0.3
    assert result.rules().startswith("if ")
    told = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--to", "sql"])
    assert told.exit_code == 0, told.output
    assert "often enough in similar states" in write_report(tmp_path / "run").read_text()
    with pytest.raises(InvalidInputError, match="support_depth must come with support"):
        RunSettings(str(tables / "gain.csv"), ROLES, support_depth=2)


def test_what_was_done_is_not_compared_with_itself(tables, tmp_path):
    """Its one number is the mean of the log; the value of its model has another name."""
    run = fit_run(settings(tables, "none"), tmp_path / "run").folder
    found = evaluate_run(run)
    then = {**json.loads((run / EVALUATION).read_text()), **replace(found, is_behaviour=False).to_dict()}
    del then["is_behaviour"]
    (run / EVALUATION).write_text(json.dumps(then))  # as of earlier versions
    old = write_report(run).read_text()
    assert found.is_behaviour
    assert (found.estimate, found.interval) == (found.behaviour.value, found.behaviour.bootstrap)
    assert found.verdict.startswith("the policy is what was done, so there is nothing to compare: ")
    assert "a model of what was done, doubly-robust" in str(found)
    assert "\n  difference, " not in str(found)
    assert found.to_dict()["difference"] is None
    assert not evaluate_run(run, tables / "gain.csv").is_behaviour  # it is a policy from elsewhere there
    evaluate_run(run)
    for page in (old, write_report(run).read_text()):
        head, rest = page.split("</header>")
        assert "The result is what was done: no learned policy is known to be better" in head
        assert head.count('class="figure"') == 1
        assert "estimated value of following it" not in head
        assert f'<span class="figure">{number_text(found.behaviour.value)}</span>' in head
        assert "Compared with the logged behaviour" not in rest
        assert "nothing changes" in rest
    fates = {one["name"]: one["fate"] for one in json.loads((run / SELECTION).read_text())["tried"]}
    assert fates["what was done"] == "the result, not chosen"
    assert "chosen, not better" in fates.values()


def test_what_was_done_has_one_value_in_a_comparison(tables, tmp_path):
    run = fit_run(settings(tables, "none"), tmp_path / "run").folder
    learned = fit_run(settings(tables, "none", always_learn=True), tmp_path / "learned").folder
    found = compare_runs([run, learned]).values
    lines = {line["policy"]: line["estimate"] for line in found._lines()}
    assert lines[f"{run} (what was done)"] == lines["the logged behaviour"]
    assert lines[f"{run} - {learned}"] == -lines[f"{learned} - the logged behaviour"]
    assert f"{run} - the logged behaviour" not in lines
