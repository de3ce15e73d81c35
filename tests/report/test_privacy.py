"""Without cases the page tells nothing that stands for fewer than five rows, directly or by subtraction."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from capi.data import Column
from capi.data.summary import warnings as table_caveats
from capi.errors import Caveat
from capi.files.archive import write_archive
from capi.offline import caveats as doubts
from capi.policies import Constant
from capi.policy_spaces.thresholds import Thresholds
from capi.report import report_record, write_report
from capi.report.columns import (
    column_record,
    day_scale,
    histogram,
    range_of_most,
    rare_renamed,
    scale_of,
    without_rare_words,
)
from capi.report.evaluation import evaluation_record
from capi.report.wording import shown_caveat, shown_cells, shown_counts, shown_share
from capi.runs import RunSettings, evaluate_run
from capi.runs import evaluate as run_evaluating
from report.tables import fitted, visits, with_policy

ROLES = {"state": ["age"], "action": "do", "reward": "gain"}


def simple(n, **columns):
    """Return a table of n rows, ages 0 to n - 1, in which every second row was treated."""
    ages = np.arange(float(n))
    treated = ages.astype(int) % 2 == 0
    frame = pd.DataFrame({"age": ages, "do": np.where(treated, "treat", "wait"), "gain": treated * (ages - n / 2)})
    return frame.assign(**columns)


def decided(tmp_path, frame, values, roles=ROLES):
    """Return a run on a table whose policy and action values come from ``values`` (n, A)."""
    run = fitted(tmp_path, frame, roles, "thresholds")
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    policy = Thresholds().improve(batch.states[:, :1], values)
    folder = with_policy(run, tmp_path / "known", policy, batch)
    write_archive(folder / "values.zip", {"format": "capi values"}, {"values": np.asarray(values, dtype=np.float64)})
    return folder


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ([9, 9], [9, 9]), ([0, 9], [0, 9]), ([3, 9], [None, None]), ([3, 9, 7], [None, 9, None]),
        ([3, 2, 9], [None, None, 9]), ([3, 0], [None, None]), ([4], [None]), ([5], [5]),
    ],
)  # fmt: skip
def test_one_hidden_count_hides_another(counts, shown):
    assert shown_counts(counts) == shown


def test_hidden_cells_cannot_be_computed_from_the_sums():
    cells = [[20, 3, 8], [9, 30, 7], [6, 11, 40]]
    shown = shown_cells(cells)
    assert shown[0][1] is None
    for line in [*shown, *zip(*shown, strict=True)]:
        assert list(line).count(None) != 1
    assert shown[2][2] == 40
    assert shown_cells([[9, 8], [7, 6]]) == [[9, 8], [7, 6]]


def test_shares_of_few_are_not_told_on_either_side():
    assert shown_share(10, 40) == 0.25
    assert shown_share(0, 40) == 0.0
    assert [shown_share(k, 40) for k in (1, 4, 36, 39)] == [None] * 4
    assert shown_share(5, 40) == 0.125


def test_ends_of_scales_have_five_rows_beyond():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(40, 60, 400), [-987.0, 1234.0]])
    scale = scale_of(x)
    assert (scale["low"], scale["high"]) == (40.0, 60.0)
    edges = histogram(Column("x"), x[:, None])["edges"]
    assert (edges[0], edges[-1]) == (40.0, 60.0)
    assert scale_of(np.arange(10.0))["high"] == 10.0  # of few rows a power of ten is all that is told


def test_the_earliest_and_the_latest_day_are_not_told(tmp_path):
    frame = visits(missing=False, n=400)
    frame["since"] = pd.to_datetime(frame["since"])
    frame.loc[0, "since"] = pd.Timestamp("1931-07-23")
    frame.loc[1, "since"] = pd.Timestamp("2077-11-19")
    run = fitted(tmp_path, frame, max_depth=4)
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    number = batch.schema.feature_names.index("since")
    values = np.stack([batch.states[:, number], np.full(400, np.median(batch.states[:, number])), np.zeros(400)], 1)
    run = with_policy(run, tmp_path / "dates", Thresholds(feature=number).improve(batch.states, values), batch)
    path = write_report(run)
    text = path.read_text(encoding="utf-8")
    assert "1931" not in text
    assert "2077" not in text
    record = report_record(run)
    column = record["panel"]["columns"][0]
    assert "origin" not in column
    origin = (np.datetime64("1931-07-23") - np.datetime64("1970-01-01")).astype(int)
    plain = json.dumps(record)
    assert str(origin) not in plain
    assert not re.search(r"\b" + str(origin * 86_400_000), plain)
    assert column["typical"].endswith("-01")  # the first of a month
    assert all(example[0].endswith("-01") for example in record["panel"]["examples"])


def test_dates_are_rounded_by_their_range():
    column = Column("d", "date", origin="2020-01-15")
    days = np.arange(0, 400.0)
    assert day_scale(column, days)["ends"] == ["2020-01-01", "2021-03-01"]
    assert day_scale(column, 20 * days)["ends"] == ["2020-01-01", "2042-01-01"]
    assert column_record(column, days[:, None], 0)["typical"] == "2020-08-01"
    assert column_record(column, 20 * days[:, None], 0)["typical"] == "2030-01-01"
    assert day_scale(column, days[:3])["ends"][0] == "1970-01-01"


def test_rare_actions_are_neither_counted_nor_named(tmp_path):
    frame = simple(60, do=["Jane's trial"] * 2 + ["treat", "wait"] * 29)
    values = np.stack([np.full(60, -9.0), frame["age"] - 29.5, np.zeros(60)], axis=1)
    run = decided(tmp_path, frame, values)
    record = report_record(run)
    rare, treat, wait = record["data"]["actions"]
    assert (rare["action"], rare["rows"], rare["share"]) == ("(rare action 1)", None, None)
    assert rare["effective"] is None
    assert rare["covered"] is None
    assert [treat["rows"], wait["rows"]].count(None) == 1  # else the sum would give it away
    text = write_report(run).read_text(encoding="utf-8")
    assert "Jane" not in text
    assert "effective sample of fewer than 5 rows" in text
    assert not re.search(r"effective sample of only [0-4](\.\d+)? rows", text)


def test_a_rare_action_that_the_policy_takes_keeps_its_name(tmp_path):
    frame = simple(60, do=["rare one"] * 2 + ["treat", "wait"] * 29)
    values = np.stack([frame["age"] - 29.5, np.zeros(60), np.full(60, -9.0)], axis=1)
    assert report_record(decided(tmp_path, frame, values))["head"]["actions"] == ["rare one", "treat", "wait"]


def test_counts_in_warnings_are_told_from_five_on(tmp_path):
    frame = simple(60)
    frame = pd.concat([frame, frame.iloc[:3]], ignore_index=True)
    warnings = report_record(fitted(tmp_path / "three", frame, ROLES, "thresholds"))["data"]["warnings"]
    assert any(w["text"].startswith("A few rows repeat an earlier row in state") for w in warnings)
    assert not any(w["text"].startswith("3 ") for w in warnings)
    frame = pd.concat([frame, frame.iloc[:6]], ignore_index=True)
    warnings = report_record(fitted(tmp_path / "nine", frame, ROLES, "thresholds"))["data"]["warnings"]
    assert any(w["text"].startswith("9 rows repeat") for w in warnings)


def reworded(kind, text, severity, **fields):
    """Make a caveat in words that no reader knows, with its count in them."""
    return Caveat(kind, f"Achtung: genau <{fields.get('count')}> von {kind}", severity, **fields)


def test_a_reworded_warning_of_the_table_hides_the_same_counts(tmp_path, monkeypatch):
    frame = simple(60, do=["Jane's trial"] * 2 + ["treat", "wait"] * 29)
    frame = pd.concat([frame, frame.iloc[10:13]], ignore_index=True)
    frame["age"] += 0.5  # not like an id
    values = np.stack([np.full(63, -9.0), frame["age"] - 29.5, np.zeros(63)], axis=1)
    run = decided(tmp_path, frame, values)
    before = report_record(run)["data"]["warnings"]
    monkeypatch.setattr(table_caveats, "Caveat", reworded)
    record = report_record(run)
    assert {w["kind"]: (w["count"], w["share"]) for w in record["data"]["warnings"]} == {
        "small-effective-sample": (None, None),
        "repeated-rows": (None, None),
    }
    assert record["data"]["warnings"] == before  # the same words as before
    page = write_report(run).read_text(encoding="utf-8")
    assert "A few rows repeat an earlier row" in page
    assert "effective sample of fewer than 5 rows" in page
    for shown in (page, json.dumps(record)):
        assert "Achtung" not in shown
        assert "genau" not in shown


def test_a_reworded_warning_of_many_rows_is_shown_in_its_words(tmp_path, monkeypatch):
    frame = simple(60)
    run = fitted(tmp_path, pd.concat([frame, frame.iloc[:9]], ignore_index=True), ROLES, "thresholds")
    monkeypatch.setattr(table_caveats, "Caveat", reworded)
    (found,) = report_record(run)["data"]["warnings"]
    assert found["text"] == "Achtung: genau <9> von repeated-rows."
    assert (found["kind"], found["severity"], found["count"], found["share"]) == ("repeated-rows", "warning", 9, 9 / 69)
    assert "Achtung: genau &lt;9&gt; von repeated-rows." in write_report(run).read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::capi.errors.TableWarning")  # made-up columns may tell the reward
@pytest.mark.parametrize("words", ["own", "other"])
def test_warnings_of_the_evaluation_hide_small_counts_in_any_words(tmp_path, monkeypatch, words):
    columns = {"who": ["a", "b"] * 30, "gain": np.random.default_rng(0).random(60)}
    run = fitted(tmp_path / "run", simple(60, **columns), {**ROLES, "state": ["age", "who"]}, "trees")
    other = simple(60, **columns).iloc[:4].assign(gain=[0.1, 0.2, 0.3, 0.4], who=["a", "b", "new", "new"])
    other.to_parquet(tmp_path / "other.parquet")
    if words == "other":
        monkeypatch.setattr(doubts, "Caveat", reworded)
        monkeypatch.setattr(run_evaluating, "Caveat", reworded)
    found = evaluate_run(run, tmp_path / "other.parquet", n_resamples=5, n_folds=2)
    assert {c.kind: c.count for c in found.warnings if c.kind in ("few-episodes", "unknown-categories")} == {
        "few-episodes": 4,
        "unknown-categories": 2,
    }
    record = report_record(run)
    shown = {w["kind"]: w for w in record["evaluation"]["warnings"]}
    assert shown["few-episodes"]["text"] == "There are fewer than 5 episodes: intervals from so few are too short."
    assert shown["unknown-categories"]["text"].startswith("Column who: some of the values are unknown to the policy")
    assert shown["unknown-categories"]["column"] == "who"
    hidden = [c for c in found.warnings if c.count]
    assert all((shown[c.kind]["count"], shown[c.kind]["share"]) == (None, None) for c in hidden)
    facts = dict(record["evaluation"]["facts"])
    assert (facts["Decisions"], facts["Episodes"], facts["Effective episodes"]) == ("<5", "<5", "<5")
    page = write_report(run).read_text(encoding="utf-8")
    for caveat in hidden:
        assert caveat.text_without_counts, caveat.kind
        assert caveat.text not in page
        assert caveat.text not in json.dumps(record, ensure_ascii=False)


def test_shares_in_warnings_hide_few_rows_and_few_others():
    for count, hidden in (
        (1, True),
        (4, True),
        (4.9, True),
        (5, False),
        (35, False),
        (36, True),
        (39, True),
        (40, False),
    ):
        shown = shown_caveat(
            Caveat("a-kind", "the number", "note", count=count, share=count / 40, text_without_counts="some")
        )
        assert shown["text"] == ("Some." if hidden else "The number.")
        assert (shown["count"], shown["share"]) == ((None, None) if hidden else (count, count / 40))
    assert shown_caveat(Caveat("a-kind", "the number", "note", count=0, share=0.0))["text"] == "The number."
    assert shown_caveat(Caveat("a-kind", "of the value", "note", share=0.01))["share"] == 0.01
    assert shown_caveat(Caveat("a-kind", "of the value", "note", count=5, share=5e-324))["count"] == 5


def test_a_small_count_without_other_words_is_not_shown():
    shown = shown_caveat(Caveat("a-kind", "two rows", "severe", column="age", count=2))
    assert "two" not in json.dumps(shown)
    assert shown["text"] == "A-kind: its numbers are hidden, because they are based on fewer than 5 rows or episodes."
    assert (shown["kind"], shown["severity"], shown["column"], shown["count"]) == ("a-kind", "severe", "age", None)


@pytest.mark.parametrize(
    ("n_rows", "share", "text"), [(40, 0.125, "12.5 %"), (40, 0.1, "hidden"), (40, 0.95, "hidden"), (40, 0.0, "0.0 %")]
)
def test_shares_of_an_evaluation_that_stand_for_few_decisions_are_hidden(n_rows, share, text):
    found = evaluation_record({"n_rows": n_rows, "overlap": {"rarely_taken_share": share}, "effective_episodes": 4.9})
    assert dict(found["facts"]) == {
        "Decisions": "40",
        "Effective episodes": "<5",
        "Decisions rarely taken in the log": text,
    }


@pytest.mark.filterwarnings("ignore::capi.errors.TableWarning")  # made-up columns may tell the reward
def test_warnings_do_not_name_rare_categories(tmp_path):
    frame = simple(60, who=["Jane Doe"] * 2 + ["a", "b"] * 29)
    frame["gain"] = (frame["who"] == "Jane Doe") * 1.0
    run = fitted(tmp_path, frame, {**ROLES, "state": ["age", "who"]}, "thresholds")
    record = report_record(run)
    assert any("equals the reward" in w["text"] for w in record["data"]["warnings"])
    assert "Jane" not in json.dumps(record)


@pytest.mark.parametrize("rows", [4, 5])
def test_words_of_four_rows_are_hidden_and_of_five_told(rows):
    values = ("a", "b", "rare")
    column = Column("c", "one-hot", values)
    states = np.eye(3)[[0] * 30 + [1] * 30 + [2] * rows]
    assert without_rare_words(column, states).values[2] == ("rare" if rows == 5 else "(rare value 3)")
    codes = Column("c", "codes", (*(f"w{i:02d}" for i in range(29)), "rare"))
    states = np.array([i for i in range(29) for _ in range(6)] + [29] * rows, dtype=np.float64)[:, None]
    assert without_rare_words(codes, states).values[29] == ("rare" if rows == 5 else "(rare value 30)")


def test_substitutes_are_nobodys_name():
    words = ("(rare value 2)", "x", "((rare value 2))")
    assert rare_renamed(words, np.array([False, True, False]), "rare value")[1] == "(((rare value 2)))"
    assert rare_renamed(("(rare value 2)", "x"), np.array([True, True]), "rare value") == (
        "(rare value 1)",
        "(rare value 2)",
    )


def test_the_rest_of_a_histogram_is_never_a_few():
    column = Column("c", "boolean")
    found = histogram(column, np.array([1.0] * 57 + [0.0] * 3)[:, None])
    assert found["words"] == ["others (2)"]
    words = Column("c", "one-hot", ("a", "b", "c"))
    found = histogram(words, np.eye(3)[[0] * 30 + [1] * 20 + [2] * 2])
    assert dict(zip(found["words"], found["shares"], strict=True)) == {"a": 30 / 52, "others (2)": 22 / 52}


def test_missing_values_of_few_rows_are_not_counted():
    x = np.arange(60.0)[:, None]
    x[:3] = np.nan
    found = histogram(Column("x"), x)
    assert found["share_missing"] is None
    assert found["n_known"] is None


@pytest.mark.parametrize("n", [3, 12, 19])
def test_tiny_tables_are_told_without_numbers(n, tmp_path):
    frame = simple(n, gain=np.arange(n) % 2 * 123.25)
    run = fitted(tmp_path, frame, ROLES, "thresholds")
    record = report_record(run)
    assert record["tiny"]
    assert record["data"]["rewards"] is None
    assert record["data"]["histograms"] == []
    assert record["differences"] is None
    assert record["stakes"] is None
    assert all(leaf["share"] is None for leaf in record["leaves"])
    assert record["panel"]["examples"] == []
    text = write_report(run).read_text(encoding="utf-8")
    assert "fewer than 20 decisions" in text
    assert "no shares or means of it" in text
    assert "only numbers based on at least five rows" not in text
    assert "Mean reward" not in text
    assert "of rows)" not in text


@pytest.mark.filterwarnings("ignore::capi.errors.RareActionWarning")
def test_gains_and_agreement_of_few_differences_are_not_told(tmp_path):
    frame = simple(60, do=["treat"] * 60)
    frame.loc[:1, "do"] = "wait"
    values = np.stack([np.full(60, 1.0), np.zeros(60)], axis=1)
    run = decided(tmp_path, frame, values)
    batch = RunSettings.from_toml(run / "settings.toml").batch()
    run2 = with_policy(run, tmp_path / "always", Constant(0, 2), batch)
    found = report_record(run2)
    assert found["differences"]["agreement"] is None
    assert found["differences"]["mean_gain"] is None
    assert found["leaves"][0]["differs"] is None
    assert found["leaves"][0]["at_stake"] is None
    assert "almost always, or almost never;" in write_report(run2).read_text(encoding="utf-8")


def test_what_is_at_stake_for_one_row_is_not_told(tmp_path):
    frame = simple(60, do=["wait"] * 30 + ["treat"] * 30)
    frame.loc[[0, 1, 2, 3, 4, 5, 30], "do"] = ["treat"] * 6 + ["wait"]
    values = np.stack([np.where(frame["age"] > 29.5, 7.0, -2.0), np.zeros(60)], axis=1)
    low, high = report_record(decided(tmp_path, frame, values))["leaves"]
    assert low["at_stake"] == 2.0
    assert low["differs"] == 0.2
    assert high["at_stake"] is None
    assert high["differs"] is None


def test_examples_come_from_leaves_of_five_rows_and_more(tmp_path):
    frame = simple(60)
    values = np.stack([frame["age"] - 55.5, np.zeros(60)], axis=1)
    assert len(report_record(decided(tmp_path, frame, values))["panel"]["examples"]) == 1


def test_ends_of_episodes_of_few_rows_are_hidden(tmp_path):
    frame = visits(missing=False, n=400)
    frame["dead"] = frame["dead"] & (frame["id"] >= 3)
    frame["cut"] = (frame["id"] != frame["id"].shift(-1)) & ~frame["dead"]
    roles = {
        "episode": "id",
        "state": ["age"],
        "action": "drug",
        "reward": "gain",
        "terminated": "dead",
        "truncated": "cut",
    }
    data = report_record(fitted(tmp_path, frame, roles, max_depth=2))["data"]
    assert (data["n_terminated"], data["n_truncated"]) == (None, None)


def test_the_range_of_rewards_includes_both_rare_outcomes_and_no_value_beyond_them():
    rewards = np.zeros(2000)
    rewards[:60], rewards[60:400] = -15.0, 15.0  # 3 % died, 17 % survived
    assert range_of_most(rewards) == {"low": -15.0, "high": 15.0}
    assert range_of_most(np.full(50, 3.0)) == {"low": 3.0, "high": 3.0}


def test_an_end_of_the_rewards_that_few_rows_share_is_rounded_inwards():
    rewards = np.random.default_rng(0).normal(size=500)
    ends = range_of_most(rewards)
    assert np.sort(rewards)[4] <= ends["low"] < ends["high"] <= np.sort(rewards)[-5]
    assert not np.isin([ends["low"], ends["high"]], rewards).any()
    rewards[:4] = -100.0  # of four people
    assert range_of_most(rewards)["low"] > -5


def test_the_range_of_skewed_rewards_includes_nearly_all_of_them():
    costs = np.random.default_rng(0).lognormal(4, 2, size=600)  # half of them below 55, the largest in the thousands
    for sign in (1, -1):
        ends = range_of_most(sign * costs)
        within = (sign * costs >= ends["low"]) & (sign * costs <= ends["high"])
        assert 0.9 <= within.mean() < 1
        assert not np.isin([ends["low"], ends["high"]], sign * costs).any()


def test_the_extremes_of_rewards_are_not_told(tmp_path):
    frame = simple(60)
    frame.loc[7, "gain"] = 98765.0
    run = fitted(tmp_path, frame, ROLES, "thresholds")
    rewards = report_record(run)["data"]["rewards"]
    assert set(rewards) == {"low", "high", "mean"}
    assert -40 <= rewards["low"] < rewards["high"] <= 40
    shutil.rmtree(run)
