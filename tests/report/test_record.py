"""What the report says, against numbers by hand; what it must not say; and what it refuses."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from capi.data import Column
from capi.data.schema import Schema
from capi.errors import Caveat, InvalidInputError
from capi.files import load_policy
from capi.files.archive import write_archive
from capi.files.codecs import CLASSES
from capi.files.exports import export_policy
from capi.files.exports.program import program_of
from capi.policies import Constant, EpsilonGreedy, Mixture
from capi.policy_spaces.imitation import imitation
from capi.policy_spaces.thresholds import Thresholds
from capi.policy_spaces.trees.forests import Forests
from capi.report import panel as panels
from capi.report import report_record, write_report
from capi.report.columns import _merged
from capi.report.drawings import wrapped
from capi.report.page import script_json
from capi.report.program_record import program_record
from capi.report.record import KINDS
from capi.report.sources import read_sources
from capi.report.svg import ticks
from capi.report.wording import conditions, exact_text, number_text
from capi.runs import RunSettings, load_run
from report.tables import fitted, visits, with_policy

EVALUATION = {
    "format": "capi evaluation", "version": 1, "source": "/home/me/secret/held.csv", "kind": "held-out", "n_rows": 40, "n_episodes": 20,
    "discount": 0.5, "level": 0.95, "n_resamples": 1000, "method": "doubly robust", "estimate": 1.25, "interval": [0.5, 2.0],
    "estimates": [
        {"policy": "policy", "method": "doubly robust", "estimate": 1.25, "standard_error": 0.4, "low": 0.5, "high": 2.0},
        {"policy": "policy", "method": "fitted Q", "estimate": None, "standard_error": None, "low": None, "high": None},
    ],
    "behaviour": {"policy": "behaviour", "method": "mean return", "estimate": 1.0, "standard_error": 0.1, "low": 0.8, "high": 1.2},
    "difference": {"policy": "policy", "method": "doubly robust", "estimate": 0.25, "standard_error": 0.2, "low": -0.1, "high": 0.6},
    "effective_episodes": 11.5, "overlap": {"share_hardly_taken": 0.125},
    "behaviour_model": {"given": False, "calibration_error": 0.03, "text": "Estimated by a forest."},
    "warnings": ["few episodes <b>"], "verdict": "It may be better.",
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Ages 0 to 39; the policy treats above 19.5. Every third decision was "treat"; values are known."""
    ages = np.arange(40.0)
    treated = ages.astype(int) % 3 == 0
    frame = pd.DataFrame({"age": ages, "do": np.where(treated, "treat", "wait"), "gain": treated * (ages - 19.5)})
    roles = {"state": ["age"], "action": "do", "reward": "gain"}
    run = fitted(tmp_path_factory.mktemp("small"), frame, roles, "thresholds")
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    assert batch.schema.action_labels == ("treat", "wait")
    values = np.stack([np.where(ages > 19.5, 4.0, 0.0), np.full(40, 1.0)], axis=1)
    values[30:] = 2.0  # the last ten decisions do not matter
    policy = Thresholds().improve(batch.states, np.stack([ages - 19.5, np.zeros(40)], axis=1))
    folder = with_policy(run, run.parent / "known", policy, batch)
    write_archive(folder / "values.zip", {"format": "capi values"}, {"values": values.astype(np.float32)})
    return folder


def changed(small, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(small, folder)
    return folder


def test_the_numbers_are_those_by_hand(small):
    record = report_record(small)
    assert record["head"]["n_rows"] == 40
    assert record["learned"]["rules"]["text"].splitlines()[0] == "if age ≤ 19.5:"
    stakes = record["stakes"]
    assert stakes["mean"] == pytest.approx((20 * 1 + 10 * 3) / 40)
    assert stakes["share_hardly"] == 0.25
    assert sum(stakes["shares"]) == pytest.approx(1)
    low, high = record["leaves"]
    assert (low["where"], low["decision"], low["rows"], low["gap"]) == (["age ≤ 19.5"], "wait", 20, 1.0)
    assert (high["where"], high["decision"], high["gap"]) == (["age > 19.5"], "treat", 1.5)
    assert high["share_hardly"] == 0.5
    assert low["differs"] == pytest.approx(7 / 20)  # 0, 3, .., 18
    assert high["differs"] == pytest.approx(13 / 20)
    assert low["at_stake"] == 1.0
    differences = record["differences"]
    assert differences["agreement"] == 0.5
    assert differences["cells"] == [[7, 7], [13, 13]]  # logged treat, wait x policy treat, wait
    assert differences["logged"] == [14 / 40, 26 / 40]
    assert differences["decided"] == [0.5, 0.5]
    gains = 7 * 1.0 + sum(3.0 for age in range(20, 30) if age % 3)
    assert differences["mean_gain"] == pytest.approx(gains / 40)
    json.dumps(record, allow_nan=False)


@pytest.mark.filterwarnings("ignore::capi.errors.TableWarning")  # made-up columns may tell the reward
def test_the_page_says_where_the_policy_leaves_the_log(tmp_path, monkeypatch):
    """The log never treats below 500; the policy always does, and so leaves the log in half of its decisions, all of them there."""
    ages = np.arange(1000.0)
    do = np.where((ages >= 500) & (ages.astype(int) % 2 == 0), "treat", "wait")
    frame = pd.DataFrame({"age": ages, "do": do, "gain": ages})
    run = fitted(tmp_path / "fitted", frame, {"state": ["age"], "action": "do", "reward": "gain"}, "thresholds")
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    policy = Thresholds().improve(batch.states, np.stack([ages - 499.5, np.zeros(1000)], axis=1))  # treats above
    record = report_record(with_policy(run, tmp_path / "inside", policy, batch))
    assert record["differences"]["leaves_log"] == 0.0
    opposite = Thresholds().improve(batch.states, np.stack([499.5 - ages, np.zeros(1000)], axis=1))  # treats below
    folder = with_policy(run, tmp_path / "outside", opposite, batch)
    record = report_record(folder)
    assert record["differences"]["leaves_log"] == pytest.approx(0.5, abs=0.08)
    low, high = record["leaves"]
    assert (low["decision"], high["decision"]) == ("treat", "wait")
    assert low["leaves_log"] == pytest.approx(1.0, abs=0.15)
    assert high["leaves_log"] == 0.0
    page = write_report(folder, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "of the decisions it leaves the log" in page
    assert "In a sample of" not in page
    monkeypatch.setattr("capi.report.sources.MOST_COMPARED", 400)  # of a large table, a sample of episodes
    sampled = report_record(folder)["differences"]
    assert sampled["n_compared"] == 400
    assert sampled["leaves_log"] == pytest.approx(0.5, abs=0.12)
    assert "In a sample of 400 decisions" in write_report(folder, tmp_path / "page.html").read_text(encoding="utf-8")
    page = write_report(tmp_path / "inside", tmp_path / "page.html").read_text(encoding="utf-8")
    assert "It stays within the log" in page
    assert "Leaves the log" not in page


def test_panel_of_a_cut(small):
    panel = report_record(small)["panel"]
    assert panel["exact"]
    assert panel["columns"][0]["low"] == 5.0  # five of 0 .. 39 lie below, and five above the other end
    assert panel["columns"][0]["high"] == 35.0
    assert panel["policy"]["trees"] == [{"f": [0, -1, -1], "t": [19.5, 0, 0], "m": [0, 0, 0], "c": [1, 0, 1]}]
    assert panel["policy"]["rankings"] == [[1], [0]]
    assert panel["cases"] is None


def test_same_run_same_bytes(small, tmp_path):
    first, again = (write_report(small, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == again
    assert write_report(small) == small / "report.html"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_evaluations_with_old_keys_say_the_same(small, tmp_path):
    run = changed(small, tmp_path)
    new = {"unreliable": True, "extrapolated_share": 0.75, "overlap": {"rarely_taken_share": 0.25}}
    old = {"doubtful": True, "beyond": 0.75, "overlap": {"share_hardly_taken": 0.25}}
    records = []
    for keys in (new, old, {**old, "doubtful": False}):
        (run / "evaluation.json").write_text(json.dumps({**EVALUATION, **keys}))
        records.append(report_record(run))
    assert records[0] == records[1]
    facts = dict(records[1]["evaluation"]["facts"])
    assert facts["Share of the value beyond the log's end"] == "75.0 %"
    assert facts["Decisions rarely taken in the log"] == "25.0 %"
    assert [record["head"]["unreliable"] for record in records] == [True, True, False]


def test_old_runs_say_what_they_lack(small, tmp_path):
    run = changed(small, tmp_path)
    (run / "values.zip").unlink()
    (run / "history.csv").write_text("k,loss,changed\n0,1.5,1.0\n1,1.0,0.25\n")
    record = report_record(run)
    assert record["stakes"] is None
    assert record["leaves"][0]["gap"] is None
    assert set(record["convergence"]) == {"k", "loss", "changed", "kept", "candidates", "in_episodes"}
    text = write_report(run).read_text()
    assert "kept no estimated action values" in text
    assert "Not evaluated yet" in text
    assert "the policy had not converged" in text
    assert "as estimated by the learner" not in text


def test_the_evaluation_is_told(small, tmp_path):
    run = changed(small, tmp_path)
    (run / "evaluation.json").write_text(json.dumps(EVALUATION))
    found = report_record(run)["evaluation"]
    assert [row["kind"] for row in found["rows"]] == ["headline", "", "behaviour"]
    assert found["rows"][1]["estimate"] is None
    assert ("Effective episodes", "11.5") in found["facts"]
    assert ("Decisions rarely taken in the log", "12.5 %") in found["facts"]
    text = write_report(run).read_text()
    assert "It may be better." in text
    assert "Few episodes &lt;b&gt;." in text
    assert "There are warnings" in text
    assert '<span class="figure">1.25</span>' in text
    assert "secret" not in text
    assert "held.csv" in text


BEST = {
    "action": "none <b>", "estimate": 1.125, "standard_error": 0.1, "low": 0.9, "high": 1.3, "verdict": "It is worse than none.",
    "difference": {"estimate": -0.375, "standard_error": 0.1, "low": -0.5, "high": -0.25},
}  # fmt: skip


def test_verdict_and_what_was_done_and_the_best_single_action_stand_in_the_headline(small, tmp_path):
    run = changed(small, tmp_path)
    bounds = [{"gamma": 1.5, "low": -0.75, "high": 0.625, "low_interval": -0.875, "high_interval": 0.8125}]
    sensitive = {"text": "it takes a factor of 1.5", "bounds": bounds}
    (run / "evaluation.json").write_text(json.dumps({**EVALUATION, "best_action": BEST, "sensitivity": sensitive}))
    text = write_report(run).read_text()
    head, rest = text.split("</header>")
    assert "It may be better. It is worse than none." in head
    assert '<span class="figure lesser">1</span>' in head
    assert '<span class="figure lesser">1.125</span>' in head
    assert "<b>none &lt;b&gt;</b>" in head
    assert "It takes a factor of 1.5." in rest
    assert "0.8125" in rest
    assert "Compared with the best single action" in rest
    assert report_record(run)["evaluation"]["rows"][-1]["policy"] == "the best single action (none <b>)"


def test_a_policy_that_cannot_be_compared_has_no_number_in_the_headline(small, tmp_path):
    run = changed(small, tmp_path)
    gone = {
        "difference": None, "not_comparable": "no overlap", "verdict": "it cannot be compared: see the warnings.",
        "best_action": {**BEST, "difference": None, "verdict": "it cannot be compared with none."},
        "sensitivity": {"unavailable": "there is nothing to undo"},
    }  # fmt: skip
    (run / "evaluation.json").write_text(json.dumps({**EVALUATION, **gone}))
    text = write_report(run).read_text()
    head, rest = text.split("</header>")
    assert "It cannot be compared: see the warnings." in head
    assert '<span class="figure">' not in head
    assert "Compared with" not in rest
    assert "There is nothing to undo." in rest


def test_warnings_are_records_and_strings_of_earlier_versions_are_read(small, tmp_path):
    run = changed(small, tmp_path)
    caveat = Caveat("beyond-log", "about 60 % <i>", "severe", share=0.6)
    warnings = ["only 3 episodes <b>", caveat.to_dict()]
    (run / "evaluation.json").write_text(json.dumps({**EVALUATION, "warnings": warnings}))
    old, new = report_record(run)["evaluation"]["warnings"]
    assert old == {
        "kind": "unknown", "text": "Only 3 episodes <b>.", "severity": "warning", "column": None, "count": None, "share": None,
    }  # fmt: skip
    assert new == {**old, "kind": "beyond-log", "text": "About 60 % <i>.", "severity": "severe", "share": 0.6}
    text = write_report(run).read_text()
    assert "<li>Only 3 episodes &lt;b&gt;.</li><li>About 60 % &lt;i&gt;.</li>" in text


def test_no_row_is_in_the_page_unless_asked_for(base, tmp_path):
    frame = visits(missing=True)
    for missing, name in ((True, "with"), (False, "without")):
        text = write_report(base[missing], tmp_path / f"{name}.html").read_text(encoding="utf-8")
        frame = visits(missing)
        for column in ("age", "dose", "gain"):
            for x in frame[column].dropna():
                assert repr(float(x)) not in text
                assert f"{x:#.7g}" not in text
        assert str(base[missing].parent) not in text
    cases = write_report(base[False], tmp_path / "cases.html", include_cases=True).read_text(encoding="utf-8")
    assert sum(f"{x:.12g}" in cases for x in frame["age"]) == len(frame)


def test_rare_words_are_not_told(tmp_path):
    frame = visits(missing=False)
    frame.loc[3, "sex"] = "Jane Doe"
    frame.loc[5, "ward"] = "isolation of John"
    frame.loc[7, "gain"] = 100.0
    run = fitted(tmp_path, frame, max_depth=4)
    text = write_report(run).read_text(encoding="utf-8")
    assert "Jane" not in text
    assert "John" not in text
    (sex,) = [column for column in load_policy(run / "policy.capi").schema.columns if column.name == "sex"]
    assert sex.values == ("female", "male", "other", "other values"), "the table has a category called other"


def test_small_counts_are_hidden(small, tmp_path):
    counts, edges = _merged(np.array([2, 9, 0, 3, 7, 1]), np.arange(7.0))
    assert sum(counts) == 22
    assert all(count == 0 or count >= 5 for count in counts)
    assert (edges[0], edges[-1], len(edges)) == (0.0, 6.0, len(counts) + 1)
    batch = RunSettings.from_toml(small / "settings.toml").batch()
    values = np.stack([batch.states[:, 0] - 36.5, np.zeros(40)], axis=1)
    run = with_policy(small, tmp_path / "few", Thresholds().improve(batch.states, values), batch)
    record = report_record(run)
    assert [leaf["rows"] for leaf in record["leaves"]] == [None, None]  # 40 less 37 would tell of three
    assert record["leaves"][1]["differs"] is None
    assert record["differences"]["cells"] == [[None, None], [None, None]]
    assert record["differences"]["decided"] == [None, None]


def test_a_forest_that_is_too_large_is_told_by_a_tree(run_of, monkeypatch):
    run, _, _ = run_of("forest")
    assert report_record(run)["panel"]["exact"]
    monkeypatch.setattr(panels, "MOST_LETTERS", 1000)
    panel = report_record(run)["panel"]
    assert not panel["exact"]
    assert len(panel["policy"]["trees"]) == 1


def test_policies_without_columns_or_with_chance(small, tmp_path):
    batch = RunSettings.from_toml(small / "settings.toml").batch()
    constant = with_policy(small, tmp_path / "constant", Constant(1, 2), batch)
    record = report_record(constant)
    assert record["panel"]["columns"] == []
    assert record["learned"]["map"] is None
    assert record["learned"]["rules"]["text"] == "always wait"
    assert "always" in write_report(constant).read_text()
    chance = with_policy(small, tmp_path / "chance", EpsilonGreedy(Constant(1, 2), 0.2), batch)
    assert "EpsilonGreedy" in report_record(chance)["head"]["kind"]
    masked = replace(Thresholds().improve(batch.states, np.zeros((40, 2))), masked=True)
    with pytest.raises(InvalidInputError, match="masks of allowed actions"):
        report_record(with_policy(small, tmp_path / "masked", masked, batch))
    mixture = with_policy(small, tmp_path / "mixture", Mixture([Constant(1, 2), Constant(0, 2)], [0.7, 0.3]), batch)
    assert not report_record(mixture)["panel"]["exact"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda run: (run / "policy.capi").unlink(), "not finished"),
        (lambda run: (run / "settings.toml").write_text("nonsense = ["), "cannot be read as settings"),
        (lambda run: (run / "values.zip").write_bytes(b"no zip"), "values.zip cannot be read"),
        (lambda run: write_archive(run / "values.zip", {"format": "capi values"}, {"values": np.zeros((3, 2))}), "must match the table of the run"),
        (lambda run: write_archive(run / "values.zip", {"format": "other"}, {}), "must hold action values"),
        (lambda run: (run / "evaluation.json").write_text("{"), "evaluation.json cannot be read"),
        (lambda run: (run / "evaluation.json").write_text("{}"), "must be a file written by capi evaluate"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(small, tmp_path, spoil, words):
    run = changed(small, tmp_path)
    (run / "report.html").unlink(missing_ok=True)
    spoil(run)
    with pytest.raises(InvalidInputError, match=words):
        write_report(run)
    assert not (run / "report.html").exists()


def test_tables_that_moved_or_changed_are_named(tmp_path):
    frame = visits(missing=False, n=200)
    run = fitted(tmp_path, frame, max_depth=2)
    table = tmp_path / "visits.parquet"
    for other, words in (
        (frame.iloc[:100], "has 100 decisions, the run had 200"),
        (frame.assign(drug=frame["drug"].replace("low", "little")), "its actions are"),
        (frame.assign(sex=frame["sex"].replace("other", "unknown")), "its columns are"),
    ):
        other.to_parquet(table)
        with pytest.raises(InvalidInputError, match=words):
            report_record(run)
    table.unlink()
    with pytest.raises(InvalidInputError, match=r"visits\.parquet, does not exist"):
        report_record(run)


def test_bad_arguments_are_refused(small, tmp_path):
    with pytest.raises(InvalidInputError, match="is not a folder"):
        write_report(tmp_path / "nothing")
    with pytest.raises(InvalidInputError, match="include_cases"):
        write_report(small, include_cases="yes")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidInputError, match=r"out must be a file; .* is a folder"):
        write_report(small, tmp_path / "folder")


def test_words_of_both_sides_of_a_split():
    columns = (
        Column("n"), Column("b", "boolean"), Column("d", "date", origin="2020-01-01"), Column("c", "one-hot", ("x", "y")),
        Column("k", "codes", tuple(f"w{i:02d}" for i in range(30))),
    )  # fmt: skip
    schema = Schema.of_columns(columns, ["a", "b"])
    none = np.zeros(6, dtype=bool)
    assert conditions(schema, 0, 1234.5, False, none) == ("n ≤ 1,234.5", "n > 1,234.5")
    assert conditions(schema, 0, 1.0, True, ~none) == ("n ≤ 1 or is missing", "n > 1")
    assert conditions(schema, 0, np.inf, False, ~none) == ("n is known", "n is missing")
    assert conditions(schema, 1, 0.5, False, none) == ("b is false", "b is true")
    assert conditions(schema, 2, 31.5, False, none) == ("d on or before 2020-02-01", "d after 2020-02-01")
    assert conditions(schema, 4, 0.5, False, none) == ("c is not y", "c is y")
    assert conditions(schema, 5, 0.5, False, none) == ("k in w00", "k not in w00")
    assert conditions(schema, 5, 28.5, False, none) == ("k not in w29", "k in w29")
    assert conditions(schema, 5, 14.5, False, none) == ("k from w00 to w14", "k not from w00 to w14")


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.0, "0"), (1234567.0, "1,235,000"), (-0.05, "\N{MINUS SIGN}0.05"), (1e-9, "1·10⁻⁹"), (2.5e12, "2.5·10¹²"), (None, "\N{EN DASH}")],
)  # fmt: skip
def test_numbers_as_one_would_write_them(x, text):
    assert number_text(x) == text


def test_small_helpers():
    assert exact_text(-421755.25) == "\N{MINUS SIGN}421,755.25"
    assert exact_text(1e-7) == "1e\N{MINUS SIGN}07"
    assert ticks(0.0, 1.0, 5) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert wrapped("one two three four", 8, 2) == ["one two", "three f…"]
    assert wrapped("x" * 30, 10, 2) == ["x" * 10, "x" * 9 + "…"]
    assert "<" not in script_json({"</script>": "\u2028&>"})
    assert json.loads(script_json({"</script>": "\u2028&>"})) == {"</script>": "\u2028&>"}


def test_flat_trees_lead_where_the_policy_does():
    rng = np.random.default_rng(0)
    states, values = rng.normal(size=(300, 3)), rng.normal(size=(300, 3))
    states[rng.random(states.shape) < 0.1] = np.nan
    policy = Forests(n_trees=1, min_samples_leaf=5).improve(states, values)
    program = program_of(policy)
    tree = program.trees[0]
    decided = [tree.actions[leaf][0] for leaf in tree.leaf_of(states)]
    np.testing.assert_array_equal(decided, policy.act(states))
    record = program_record(program)
    assert len(record["trees"][0]["f"]) == len(tree)
    assert sorted(tree.leaves) == [i for i, left in enumerate(tree.left) if left < 0]
    json.dumps(record, allow_nan=False)


def test_neighbors_are_called_a_vote_of_known_cases(run_of):
    assert report_record(run_of("neighbors")[0])["head"]["kind"] == "a vote of the nearest known cases"


def test_every_kind_that_has_words_is_a_class_that_runs_can_have():
    classes = {name.rsplit(".")[-1] for name in CLASSES}
    assert set(KINDS) <= classes


@pytest.mark.parametrize("kind", ["forest", "combined forest", "neighbors"])
def test_report_rules_and_export_show_the_same_tree(run_of, kind):
    run, policy, batch = run_of(kind)
    shown = read_sources(run).shown
    assert not shown.own
    found = imitation(policy, batch.states)
    assert vars(shown.tree) == vars(program_of(found.tree).trees[0])
    assert shown.fidelity == found.fidelity
    assert policy.to_dict(batch.states)["imitation"] == found.tree.to_dict()
    assert policy.rules(batch.states) == load_run(run).rules()
    assert export_policy(policy, "text", imitate=True, states=batch.states).endswith(found.tree.rules())
    assert min(found.tree.tree.counts) >= 5, "a leaf of fewer rows would tell of single cases"


@pytest.mark.parametrize("kind", ["thresholds", "linear", "forest", "neighbors", "constrained forest"])
def test_both_pictures_of_a_policy_choose_the_same_columns(run_of, kind):
    run, policy, batch = run_of(kind)
    axes = policy.plot(batch.states).axes[0]
    shown = [axes.get_xlabel(), axes.get_ylabel()]
    owner = {name: column.name for column in batch.schema.columns for name in column.feature_names}
    drawn = [axis["name"] for axis in report_record(run)["learned"]["map"]["axes"]]
    assert [owner[name] for name in shown if name in owner] == drawn
    assert kind == "thresholds" or len(drawn) == 2
