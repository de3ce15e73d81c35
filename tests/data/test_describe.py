"""What `describe` says, and what it catches."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from capi import Transitions
from capi.data import describe
from capi.data.summary.coverage import covered_shares, effective_rows
from capi.errors import Caveat

N = 200


def trial(**columns):
    rng = np.random.default_rng(0)
    table = {"age": rng.normal(size=N), "arm": rng.integers(2, size=N), "gain": rng.normal(size=N)}
    return pd.DataFrame({**table, **columns})


def described(frame, state=("age",), **roles):
    return Transitions.from_frame(
        frame, state=list(state), action="arm", reward="gain", **{"discount": 0, **roles}
    ).describe()


def test_a_clean_trial_has_no_warnings_and_counts_what_is_there():
    text = described(trial())
    assert text.warnings == ()
    assert text.n_episodes is None
    assert (text.n_rows, text.n_terminated, text.n_truncated) == (N, N, 0)
    assert sum(action.rows for action in text.actions) == N
    assert sum(action.share for action in text.actions) == pytest.approx(1)
    assert all(0.8 * a.rows < a.effective <= a.rows * (1 + 1e-9) for a in text.actions)
    assert all(action.covered == 1 for action in text.actions)


def test_numbers_are_plain_and_the_text_says_them():
    frame = trial(who=np.arange(N) // 4, sex=["m", None] * (N // 2))
    found = described(frame, ["age", "sex"], episode="who")
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["missing"] == {"sex": N // 2}
    assert plain["lengths"] == {"least": 4, "median": 4, "greatest": 4}
    text = str(found)
    for words in (
        "200 decisions",
        "50, of 4 to 4 decisions",
        "missing    sex 100",
        "last row of each episode was taken",
    ):
        assert words in text


def test_how_each_column_was_read_is_a_table():
    frame = trial(
        sex=["m", None] * (N // 2),
        smoker=np.arange(N) % 3 == 0,
        seen=pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N) % 5, unit="D"),
        ward=[f"w{i % 25}" for i in range(N)],
    )
    found = described(frame, ["age", "sex", "smoker", "seen", "ward"])
    assert json.loads(json.dumps(found.to_dict()))["columns"] == [
        {"name": "age", "read_as": "number", "levels": None, "n_features": 1, "missing": 0},
        {"name": "sex", "read_as": "category", "levels": 1, "n_features": 1, "missing": N // 2},
        {"name": "smoker", "read_as": "yes/no", "levels": None, "n_features": 1, "missing": 0},
        {"name": "seen", "read_as": "date", "levels": None, "n_features": 1, "missing": 0},
        {"name": "ward", "read_as": "category", "levels": 25, "n_features": 1, "missing": 0},
    ]
    lines = [line.split() for line in str(found).splitlines()]
    for line in (
        "column missing read as",
        "age 0 number",
        "sex 100 category, 1 level",
        "smoker 0 yes/no",
        "ward 0 category, 25 levels, as codes",
    ):
        assert line.split() in lines


def test_a_wide_table_lists_its_first_columns():
    text = str(describe(Transitions(np.zeros((3, 30)), [0, 1, 0], [0.0] * 3, np.zeros((3, 30)), [True] * 3)))
    assert "  x19 " in text
    assert "... (30 in all)" in text
    assert "  x20 " not in text.split("warnings")[0]


@pytest.mark.parametrize(
    ("roles", "assumed", "ends", "left_out"),
    [
        ({}, "the table has no flag column", (3, 0), 0),
        ({"terminated": "end"}, "", (1, 2), 2),
        ({"truncated": "cut"}, "no column flags terminated", (2, 1), 1),
        ({"terminated": "end", "truncated": "cut"}, "", (1, 2), 2),
    ],
    ids=["none", "terminated", "truncated", "both"],
)
def test_how_episodes_end_and_what_was_assumed(roles, assumed, ends, left_out):
    frame = trial()[:9].assign(who=np.arange(9) // 3, end=[0, 0, 1] + [0] * 6, cut=[0, 0, 0, 0, 0, 1, 0, 0, 0])
    found = described(frame, episode="who", discount=0.9, **roles)
    assert found.assumed.startswith(assumed)
    assert bool(found.assumed) == bool(assumed)
    assert (found.n_terminated, found.n_truncated, found.n_only_next) == (*ends, left_out)


def caught(found, *words):
    return any(all(word in caveat.text for word in words) for caveat in found.warnings)


def test_warnings_are_records_with_fields_for_those_who_do_not_read():
    frame = trial(same=1.0, leak=trial()["gain"])
    frame = pd.concat([frame, frame.iloc[:3]], ignore_index=True)
    found = described(frame, ["age", "same", "leak"], action_labels=[0, 1, 2])
    fields = ("kind", "severity", "column", "count", "share")
    assert [tuple(getattr(caveat, name) for name in fields) for caveat in found.warnings] == [
        ("never-taken", "warning", None, 0, None),
        ("constant-column", "note", "same", None, None),
        ("equals-reward", "severe", "leak", None, None),
        ("repeated-rows", "warning", None, 3, 3 / 203),
    ]
    plain = json.loads(json.dumps(found.to_dict()))["warnings"]
    assert [Caveat.from_dict(record) for record in plain] == list(found.warnings)
    assert all(f"  - {record['text']}\n" in f"{found}\n" for record in plain)


def test_a_small_effective_sample_is_counted():
    (caveat,) = described(trial(arm=[2, 2, 2] + [0, 1] * 98 + [0])).warnings
    assert caveat.kind == "small-effective-sample"
    assert caveat.text == f"action 2 has an effective sample of only {caveat.count:.3g} rows"
    assert 0 < caveat.count <= 3


def test_an_action_never_taken():
    assert caught(described(trial(), action_labels=[0, 1, 2]), "action 2 was never taken")


def test_one_action_in_every_row_teaches_nothing():
    (found,) = described(trial(arm=0)).warnings
    assert (found.kind, found.severity, found.column) == ("one-action", "severe", None)
    assert "action 0 was taken in every row" in found.text
    kinds = [caveat.kind for caveat in described(trial(arm=0), action_labels=[0, 1]).warnings]
    assert kinds == ["never-taken", "one-action"]
    assert "one-action" not in [caveat.kind for caveat in described(trial(arm=[1] + [0] * (N - 1))).warnings]


def test_constant_and_empty_columns():
    found = described(trial(same=1, none=None, few=[1.0, None] * (N // 2)), ["age", "same", "none", "few"])
    assert caught(found, "column same is the same in every row")
    assert caught(found, "column none is missing in every row")
    assert caught(found, "column few is the same in every row in which it is known")


def test_rows_that_are_there_twice():
    frame = trial()
    found = described(pd.concat([frame, frame[:3]]))
    assert caught(found, "3 rows repeat an earlier row")
    assert not caught(described(trial(age=np.arange(N) % 3)), "repeat"), "finite states come back"


def test_columns_that_know_the_action():
    arm = trial()["arm"]
    found = described(trial(treated=arm == 1, name=arm.map({0: "placebo", 1: "drug"})), ["age", "treated", "name"])
    assert caught(found, "column treated is a function of the action")
    assert caught(found, "column name is a function of the action")
    assert not caught(found, "column age is a function")


def test_columns_that_know_the_reward():
    gain = trial()["gain"]
    found = described(trial(outcome=gain.where(gain < 1)), ["age", "outcome"])
    assert caught(found, "column outcome equals the reward")
    later = described(trial(who=0, soon=gain.shift(-1)), ["age", "soon"], episode="who")
    assert caught(later, "column soon equals the reward of the next row")
    before = described(trial(who=0, last=gain.shift(1)), ["age", "last"], episode="who")
    assert not caught(before, "last", "reward"), "the reward before is known when the decision is taken"


def test_columns_that_are_like_ids():
    found = described(trial(number=np.arange(N) * 7, code=[f"p{i}" for i in range(N)]), ["age", "number", "code"])
    assert caught(
        found, "column number is different for almost every row, like an id", "an amount, such as an income, may stay"
    )
    assert caught(found, "column code has only values with fewer than 5 rows", "like an id", "leave it out")
    assert not caught(found, "column code", "the same in every row")
    assert not caught(found, "column age", "id")
    who = np.arange(N) // 4
    assert caught(described(trial(who=who, ward=who + 5), ["age", "ward"], episode="who"), "ward", "like an id")


def test_free_text_among_the_features():
    """Warfarin patients: 1,459 spellings of comorbidities in 5,528 rows."""
    rng = np.random.default_rng(0)
    notes = [f"aspirin {min(rng.zipf(1.3), 10**6)} mg" for _ in range(5 * N)]
    frame = pd.DataFrame(
        {"age": rng.normal(size=5 * N), "arm": rng.integers(2, size=5 * N), "gain": rng.normal(size=5 * N)}
    )
    (found,) = described(frame.assign(notes=notes), ["age", "notes"]).warnings
    counts = pd.Series(notes).value_counts()
    assert (found.kind, found.severity, found.column) == ("free-text", "warning", "notes")
    assert (found.count, found.share) == (len(counts), len(counts) / (5 * N))
    assert f"has {len(counts)} distinct values, {(counts < 5).sum()} of them in fewer than 5 rows" in found.text
    assert "leave it out" in found.text_without_counts
    wards = [f"ward {i % 60} of the house" for i in range(5 * N)]
    assert described(frame.assign(ward=wards), ["age", "ward"]).warnings == (), "60 wards with 16 rows each"


def test_many_categories_with_rare_ones_are_neither_ordered_nor_silent():
    notes = [f"seen {i % 100 if i % 2 else i} times today" for i in range(5 * N)]  # sorted after "other"
    frame = pd.DataFrame({"arm": np.arange(5 * N) % 2, "gain": np.random.default_rng(0).random(5 * N)})
    found = described(frame.assign(notes=notes), ["notes"])
    assert [caveat.kind for caveat in found.warnings] == ["free-text"]
    assert found.columns[0].read_as == "category"


def test_sentences_are_free_text_and_unique_words_are_ids():
    frame = trial(note=[f"came in on day {i}" for i in range(N)], code=[f"p{i}" for i in range(N)])
    kinds = {caveat.column: caveat.kind for caveat in described(frame, ["age", "note", "code"]).warnings}
    assert kinds == {"note": "free-text", "code": "like-an-id"}


def test_effective_rows_are_the_rows_of_an_action_that_was_taken_alike_everywhere():
    np.testing.assert_allclose(effective_rows(np.array([[10.0, 30.0], [5.0, 15.0]])), [15, 45])


def test_effective_rows_by_hand_where_an_action_is_rare_in_one_leaf():
    """Weights are 100 / 1 once and 100 / 99 for 99 rows: (200)^2 / (100^2 + 100^2 / 99)."""
    counts = np.array([[1.0, 99.0], [99.0, 1.0]])
    np.testing.assert_allclose(effective_rows(counts), 200**2 / (100**2 + 100**2 / 99))
    np.testing.assert_allclose(covered_shares(np.array([[0.0, 60.0], [20.0, 20.0]])), [0.4, 1.0])


def test_an_action_that_is_taken_in_half_of_the_states_does_not_cover_the_others():
    frame = trial()
    frame["arm"] = np.where(frame["age"] > 0, frame["arm"], 0)
    treated = described(frame).actions[1]
    assert treated.covered < 0.6
    assert treated.effective <= treated.rows + 1e-9


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tiny_batches_and_huge_numbers(size):
    frame = trial(age=np.array([1e308, -1e308, 5e-324] * N)[:N])[:size]
    assert described(frame).n_rows == size
    assert describe(Transitions.from_frame(frame, state="age", action="arm", reward="gain")).source == "the table"


def test_parts_of_a_batch_remember_the_table():
    batch = Transitions.from_frame(trial(), state="age", action="arm", reward="gain", discount=0)
    assert batch.subset(np.arange(50)).describe().source == "the table"
    assert (
        Transitions(batch.states, batch.actions, batch.rewards, batch.states, batch.terminated).describe().source
        == "arrays"
    )


def actg175():
    spec = find_spec("lifelines")
    file = None if spec is None else Path(spec.submodule_search_locations[0]) / "datasets" / "ACTG175.csv"
    assert file is not None, "lifelines, which ships ACTG175.csv, is not installed: run make setup"
    return file


def test_on_real_patients_it_catches_what_was_measured_after_the_decision():
    """`treat` says whether the arm was other than 0; `at20` is a copy of the outcome."""
    state = ["pidnum", "age", "wtkg", "karnof", "gender", "race", "cd40", "cd80", "treat", "at20"]
    table = pd.read_csv(actg175())
    table = table.assign(at20=table["cd420"])
    batch = Transitions.from_frame(table, state=state, action="arms", reward="cd420", discount=0)
    found = batch.describe()
    assert (found.n_rows, len(found.actions)) == (2139, 4)
    assert caught(found, "column treat is a function of the action")
    assert caught(found, "column at20 equals the reward")
    assert caught(found, "column pidnum", "like an id")
    assert len(found.warnings) == 3
    clean = Transitions.from_csv(actg175(), state=state[1:8], action="arms", reward="cd420", discount=0).describe()
    assert clean.warnings == ()
    assert all(0.9 * a.rows < a.effective for a in clean.actions), "arms were drawn at random"
