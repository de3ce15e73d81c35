"""Every reader, every rule on how episodes end, and every refusal."""

import datetime as dt
import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capi import CAPI, Transitions
from capi.data.readers.spaces import observation_names
from capi.data.schema import Schema
from capi.errors import InvalidInputError, UnseenCategoryWarning
from capi.evaluators import FittedQ
from capi.policy_spaces import Trees

ROLES = {"episode": "who", "time": "day", "state": ["x", "sex"], "action": "drug", "reward": "gain"}


def patients(**changes):
    """Two patients, three days and one; the second's row stands between the first's."""
    columns = {
        "who": ["b", "a", "b", "b"],
        "day": [2, 5, 1, 3],
        "x": [2.0, 9.0, 1.0, 3.0],
        "sex": ["m", "f", "m", "m"],
        "drug": ["hi", "lo", "lo", "hi"],
        "gain": [20.0, 90.0, 10.0, 30.0],
    }
    return pd.DataFrame({**columns, **changes})


def read(frame, **changes):
    return Transitions.from_frame(frame, **{**ROLES, "min_category_rows": 1, **changes})


def test_rows_are_sorted_by_episode_and_time_and_columns_are_encoded():
    batch = read(patients())
    assert batch.schema.feature_names == ("x", "sex=f", "sex=m")
    assert batch.schema.action_labels == ("hi", "lo")
    np.testing.assert_array_equal(batch.states, [[9, 1, 0], [1, 0, 1], [2, 0, 1], [3, 0, 1]])
    np.testing.assert_array_equal(batch.next_states, [[9, 1, 0], [2, 0, 1], [3, 0, 1], [3, 0, 1]])
    np.testing.assert_array_equal(batch.rewards, [90, 10, 20, 30])
    np.testing.assert_array_equal(batch.actions, [1, 1, 0, 0])
    np.testing.assert_array_equal(batch.episodes, [0, 1, 1, 1])
    assert batch.origin.episode_ids.tolist() == ["a", "b"]
    np.testing.assert_array_equal(batch.terminated, [True, False, False, True])


def test_the_order_of_rows_does_not_matter_if_there_is_a_time():
    assert read(patients()) == read(patients().sample(frac=1.0, random_state=3))


def test_without_a_time_the_order_of_rows_is_the_order():
    batch = read(patients(), time=None)
    np.testing.assert_array_equal(batch.states[:, 0], [9, 2, 1, 3])


def odd_table():
    return pd.DataFrame(
        {
            "who": ["p", "p", "q", "q", "q"],
            "day": pd.to_datetime(["2021-01-01", "2021-01-02", "2021-01-01", "2021-01-02", "2021-01-03"]),
            "x": [1.5, None, -3.0, 0.1, 1e300],
            "n": [1, 2, 3, 4, 5],
            "smoker": [True, False, True, True, False],
            "seen": pd.to_datetime(["2020-02-29", None, "2020-03-01", "2021-03-01", "2020-03-05"]),
            "sex": ["m", None, "f", "f", "m"],
            "drug": [1, 2, 1, 1, 2],
            "gain": [0.5, 1.0, 1.5, 2.0, 2.5],
            "end": [False, True, False, False, True],
            "prob": [0.5, 0.25, 0.5, 1.0, 0.5],
        }
    )


ODD = {
    "episode": "who",
    "time": "day",
    "state": ["x", "n", "smoker", "seen", "sex"],
    "action": "drug",
    "reward": "gain",
    "terminated": "end",
    "propensity": "prob",
    "min_category_rows": 1,
}


def written(kind, folder):
    frame = odd_table()
    if kind == "pandas":
        return Transitions.from_frame(frame, **ODD)
    if kind == "arrow":
        return Transitions.from_frame(pa.Table.from_pandas(frame, preserve_index=False), **ODD)
    if kind == "record batch":
        return Transitions.from_frame(pa.RecordBatch.from_pandas(frame, preserve_index=False), **ODD)
    if kind == "polars":
        polars = pytest.importorskip("polars")
        return Transitions.from_frame(polars.from_pandas(frame), **ODD)
    if kind == "polars categories":
        polars = pytest.importorskip("polars")
        table = polars.from_pandas(frame).with_columns(polars.col("sex").cast(polars.Categorical))
        return Transitions.from_frame(table, **ODD)
    if kind == "mapping":
        return Transitions.from_frame({name: frame[name].to_numpy() for name in frame}, **ODD)
    if kind == "categories":
        return Transitions.from_frame(frame.assign(sex=frame["sex"].astype("category")), **ODD)
    if kind == "csv":
        frame.to_csv(folder / "t.csv", index=False)
        return Transitions.from_csv(folder / "t.csv", **ODD)
    if kind == "csv.gz":
        frame.to_csv(folder / "t.csv.gz", index=False, sep=";")
        return Transitions.from_csv(folder / "t.csv.gz", delimiter=";", **ODD)
    if kind == "folder":
        (folder / "parts").mkdir()
        frame[:2].to_parquet(folder / "parts" / "0.parquet")
        frame[2:].to_parquet(folder / "parts" / "1.parquet")
        return Transitions.from_parquet(folder / "parts", **ODD)
    frame.to_parquet(folder / "t.parquet")
    return Transitions.from_parquet(str(folder / "t.parquet"), **ODD)


READERS = ["pandas", "arrow", "record batch", "polars", "polars categories", "mapping", "categories"]
READERS += ["csv", "csv.gz", "parquet", "folder"]


@pytest.mark.parametrize("kind", READERS)
def test_every_reader_understands_the_same(kind, tmp_path):
    batch = written(kind, tmp_path)
    nan = np.nan
    assert batch.schema.feature_names == ("x", "n", "smoker", "seen", "sex=f", "sex=m")
    expected = [
        [1.5, 1, 1, 59, 0, 1],
        [nan, 2, 0, nan, nan, nan],
        [-3, 3, 1, 60, 1, 0],
        [0.1, 4, 1, 425, 1, 0],
        [1e300, 5, 0, 64, 0, 1],
    ]
    np.testing.assert_array_equal(batch.states, expected)
    assert batch.schema.action_labels == (1, 2)
    np.testing.assert_array_equal(batch.propensities, odd_table()["prob"])
    assert batch == written("pandas", tmp_path)
    assert not batch.states.flags.writeable


@pytest.mark.parametrize("kind", READERS)
def test_what_was_encoded_can_be_decoded(kind, tmp_path):
    batch = written(kind, tmp_path)
    columns = batch.schema.decode(batch.states)
    assert columns["sex"].tolist() == ["m", None, "f", "f", "m"]
    assert columns["smoker"].tolist() == [True, False, True, True, False]
    assert str(columns["seen"][3]) == "2021-03-01"
    assert np.isnat(columns["seen"][1])
    np.testing.assert_array_equal(batch.schema.encode(columns), batch.states)


def flagged(rows, **changes):
    """One column of states 0, 1, ... in the episodes ``rows``."""
    return pd.DataFrame({"who": rows, "x": np.arange(len(rows)) * 1.0, "drug": 0, "gain": 1.0, **changes})


FLAGGED = {"episode": "who", "state": "x", "action": "drug", "reward": "gain"}


def kept(frame, **roles):
    batch = Transitions.from_frame(frame, **FLAGGED, **roles)
    return batch.states[:, 0].tolist(), batch.next_states[:, 0].tolist(), batch.terminated.tolist()


def test_without_flags_the_last_row_counts_as_terminated():
    assert kept(flagged([1, 1, 2])) == ([0, 1, 2], [1, 1, 2], [False, True, True])


def test_an_episode_that_does_not_end_terminated_is_truncated():
    frame = flagged([1, 1, 2, 2], end=[0, 1, 0, 0])
    assert kept(frame, terminated="end") == ([0, 1, 2], [1, 1, 3], [False, True, False])


def test_the_last_row_of_a_truncated_episode_need_not_have_a_decision():
    frame = flagged([1, 1, 2, 2], end=[0, 1, 0, 0], drug=["a", "b", "a", None], gain=[1.0, 2.0, 3.0, np.nan])
    assert kept(frame, terminated="end")[0] == [0, 1, 2]
    whole = flagged([1, 1, 2, 2], end=[0, 1, 0, 0], drug=[5.0, 7.0, 5.0, np.nan])
    labels = Transitions.from_frame(whole, **FLAGGED, terminated="end").schema.action_labels
    assert labels == (5, 7)
    assert isinstance(labels[0], int)


def test_a_truncated_episode_keeps_its_last_row_if_its_next_state_is_known_or_nobody_asks():
    frame = flagged([1, 1, 2, 2], end=[0, 1, 0, 0], y=[1.0, np.nan, 3.0, 8.0])
    assert kept(frame, terminated="end", next_state="y") == ([0, 1, 2, 3], [1, 1, 3, 8], [False, True, False, False])
    assert kept(frame, terminated="end", discount=0) == ([0, 1, 2, 3], [1, 1, 3, 3], [False, True, False, False])
    assert kept(frame, terminated="end", discount=0.9)[0] == [0, 1, 2]


def test_with_truncated_only_the_other_episodes_are_taken_as_terminated():
    frame = flagged([1, 1, 2, 2], cut=[0, 0, 0, 1])
    assert kept(frame, truncated="cut") == ([0, 1, 2], [1, 1, 3], [False, True, False])


def test_both_flags_mean_terminated_and_none_means_truncated():
    frame = flagged([1, 1, 2, 2, 3, 3], end=[0, 1, 0, 0, 0, 0], cut=[0, 1, 0, 1, 0, 0])
    assert kept(frame, terminated="end", truncated="cut") == ([0, 1, 2, 4], [1, 1, 3, 5], [False, True, False, False])


def test_the_contextual_case_needs_neither_episodes_nor_ends():
    batch = Transitions.from_frame(flagged([1, 1, 2]), state="x", action="drug", reward="gain", discount=0)
    assert batch.episodes is None
    assert batch.terminated.all()
    np.testing.assert_array_equal(batch.next_states, batch.states)


def test_rows_without_episodes_but_with_next_states_are_transitions():
    frame = flagged([1, 1, 2], y=[5.0, 6.0, np.nan], end=[False, False, True])
    batch = Transitions.from_frame(
        frame, state="x", next_state="y", action="drug", reward="gain", terminated="end", discount=0.9
    )
    np.testing.assert_array_equal(batch.next_states[:, 0], [5, 6, 2])
    with pytest.raises(InvalidInputError, match="terminated must be given with next_state"):
        Transitions.from_frame(frame, state="x", next_state="y", action="drug", reward="gain")


def test_categories_of_the_next_state_count_too():
    frame = flagged([1, 2], s=["a", "b"], t=["b", "c"], end=[0, 0])
    roles = {**FLAGGED, "state": ["s"], "next_state": ["t"], "terminated": "end", "min_category_rows": 1}
    batch = Transitions.from_frame(frame, **roles)
    assert batch.schema.feature_names == ("s=a", "s=b", "s=c")
    np.testing.assert_array_equal(batch.next_states, [[0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    "column",
    [
        [["lo", "hi"], ["lo"], ["lo"], ["hi", "lo"]],
        ["lo; hi", "lo", "lo", "hi|lo"],
        [{"lo", "hi"}, {"lo"}, {"lo"}, {"lo", "hi"}],
    ],
    ids=["lists", "strings", "sets"],
)
def test_allowed_actions_from_one_column(column):
    batch = read(patients(may=column), allowed="may")
    np.testing.assert_array_equal(batch.allowed, [[0, 1], [0, 1], [1, 1], [1, 1]])
    np.testing.assert_array_equal(batch.next_allowed, [[0, 1], [1, 1], [1, 1], [1, 1]])


def test_allowed_actions_from_a_column_each():
    batch = read(patients(may=[True, False, False, True]), allowed={"hi": "may"})
    np.testing.assert_array_equal(batch.allowed, [[0, 1], [0, 1], [1, 1], [1, 1]])


def test_labels_in_the_given_order_and_actions_never_taken():
    batch = read(patients(), action_labels=["lo", "mid", "hi"])
    assert batch.n_actions == 3
    np.testing.assert_array_equal(batch.actions, [0, 0, 2, 2])


def test_ids_and_labels_may_be_anything_that_can_be_told_apart():
    ids = pd.Series([("b", 1), "a", ("b", 1), ("b", 1)], dtype=object)
    drugs = pd.Series(["hi", 0, 0, "hi"], dtype=object)
    batch = read(patients(who=ids, drug=drugs))
    assert batch.n_episodes == 2
    assert batch.schema.action_labels == ("hi", 0)
    assert batch.schema.labels_of(batch.actions).tolist() == [0, "hi", "hi", 0]


def test_numbers_of_episodes_are_kept():
    batch = read(patients(who=[7.0, 3.0, 7.0, 7.0]))
    np.testing.assert_array_equal(batch.episodes, [3, 7, 7, 7])
    assert batch.origin.episode_ids is None


def test_a_second_table_takes_the_encodings_of_the_first():
    first = read(patients())
    second = read(patients(sex=["x", "f", "f", "m"]), schema=first.schema)
    assert second.schema == first.schema
    assert np.isnan(second.states[2]).tolist() == [False, True, True]
    with pytest.raises(InvalidInputError, match="state must be the columns of the schema"):
        read(patients(), state=["sex", "x"], schema=first.schema)
    with pytest.raises(InvalidInputError, match="Pass only one of the two"):
        read(patients(), schema=first.schema, action_labels=["hi", "lo"])


def test_more_than_twenty_categories_have_codes_in_their_order():
    wards = [f"w{i:02}" for i in range(25)]
    frame = flagged(range(25), ward=wards[::-1])
    batch = Transitions.from_frame(frame, **{**FLAGGED, "state": "ward"}, min_category_rows=1)
    assert batch.schema.columns[0].kind == "codes"
    np.testing.assert_array_equal(batch.states[:, 0], np.arange(25)[::-1])
    sizes = pd.Categorical(["S", "L", "M"], categories=["S", "M", "L", "XL"], ordered=True)
    ordered = Transitions.from_frame(flagged(range(3), size=sizes), **{**FLAGGED, "state": "size"})
    assert ordered.schema.columns[0].values == ("S", "M", "L", "XL"), "one that did not occur has its place, too"
    np.testing.assert_array_equal(ordered.states, [[0], [2], [1]])


def with_wards(**counts):
    """Return a table with so many rows of each ward, in order."""
    wards = [ward for ward, count in counts.items() for _ in range(count)]
    return flagged(range(len(wards)), ward=wards)


WARDS = {**FLAGGED, "state": "ward"}


def test_categories_with_fewer_than_five_rows_become_one():
    batch = Transitions.from_frame(with_wards(east=5, north=4, west=6, south=1), **WARDS)
    column = batch.schema.columns[0]
    assert (column.values, column.rest, column.listed) == (("east", "west", "other"), True, ("east", "west"))
    np.testing.assert_array_equal(batch.states.sum(axis=0), [5, 6, 5])
    assert Schema.from_dict(json.loads(json.dumps(batch.schema.to_dict()))) == batch.schema
    unseen = batch.schema.encode({"ward": ["east", "south", "elsewhere", None]})
    np.testing.assert_array_equal(unseen, [[1, 0, 0], [0, 0, 1], [0, 0, 1], [np.nan] * 3])
    assert batch.schema.decode(unseen)["ward"].tolist() == ["east", "other", "other", None]
    plain = Transitions.from_frame(with_wards(east=5, west=5), **WARDS)
    assert not plain.schema.columns[0].rest
    assert np.isnan(plain.schema.encode({"ward": ["north"]})).all(), "without rare ones, unseen ones are missing"


def test_rare_categories_of_every_type_and_order():
    sizes = pd.Categorical(["L"] * 6 + ["S"] * 5 + ["M"], categories=["S", "M", "L"])
    found = Transitions.from_frame(flagged(range(12), ward=sizes), **WARDS)
    assert found.schema.columns[0].values == ("L", "S", "other")
    scale = Transitions.from_frame(flagged(range(12), ward=sizes.as_ordered()), **WARDS)
    assert scale.schema.columns[0].values == ("S", "M", "L"), "the values of a declared scale do not point at people"
    numbers = pd.Categorical([3] * 6 + [1] * 5 + [2])
    found = Transitions.from_frame(flagged(range(12), ward=numbers), **WARDS)
    assert found.schema.columns[0].values == (1, 3, "other")
    np.testing.assert_array_equal(found.states[[0, 6, 11]], [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    many = Transitions.from_frame(with_wards(**{f"w{i}": 5 for i in range(30)}, rare=1), **WARDS).schema.columns[0]
    assert (many.kind, len(many.values), many.values[-1]) == ("codes", 31, "other")


def test_a_category_called_other_is_not_the_rest():
    batch = Transitions.from_frame(with_wards(other=5, north=2), **WARDS)
    assert batch.schema.columns[0].values == ("other", "other values")
    np.testing.assert_array_equal(batch.states.sum(axis=0), [5, 2])


def test_rare_names_are_kept_on_request():
    frame = with_wards(east=5, north=1)
    assert Transitions.from_frame(frame, **WARDS, min_category_rows=1).schema.columns[0].values == ("east", "north")
    with pytest.raises(InvalidInputError, match="min_category_rows must be"):
        Transitions.from_frame(frame, **WARDS, min_category_rows=0)


def test_points_in_time_keep_their_microseconds():
    times = pd.to_datetime(["2021-03-04 13:45:10.123456", "1999-12-31 23:59:59.999999", None])
    for column in (times, times.tz_localize("UTC")):
        batch = Transitions.from_frame(flagged(range(3), seen=column), **{**FLAGGED, "state": "seen"})
        assert batch.schema.columns[0].origin == "1999-01-01T00:00:00"
        decoded = batch.schema.decode(batch.states)["seen"]
        np.testing.assert_array_equal(decoded, times.to_numpy(dtype="datetime64[us]"))


def test_from_arrays_follows_the_same_rules():
    batch = Transitions.from_arrays(
        [[2.0], [9.0], [1.0]], ["hi", "lo", "lo"], [1, 2, 3], episodes=list("bab"), time=[2, 5, 1], feature_names=["x"]
    )
    np.testing.assert_array_equal(batch.states[:, 0], [9, 1, 2])
    given_next = Transitions.from_arrays([[1.0], [2.0]], [0, 1], [0, 0], next_states=[[5.0], [6.0]], terminated=[0, 0])
    np.testing.assert_array_equal(given_next.next_states[:, 0], [5, 6])
    for unknown in ("terminal", "state", "schema"):
        with pytest.raises(InvalidInputError, match=f"no argument '{unknown}'"):
            Transitions.from_arrays([[1.0]], [0], [0], **{unknown: [1]})


def test_predict_takes_the_tables_words():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=80), "sex": rng.choice(["f", "m"], 80), "drug": rng.choice(["a", "b"], 80)}
    )
    frame["gain"] = (frame["sex"] == "m") * (frame["drug"] == "a") * 1.0
    batch = Transitions.from_frame(frame, state=["x", "sex"], action="drug", reward="gain", discount=0)
    learner = CAPI(FittedQ(n_trees=5), Trees(max_depth=2), discount=0.0, n_iterations=1, random_state=0).fit(batch)
    on_table = learner.predict(frame[["sex", "x", "gain"]])
    np.testing.assert_array_equal(on_table, learner.predict(batch.states))
    np.testing.assert_array_equal(on_table, learner.predict(pa.Table.from_pandas(frame)))
    with pytest.warns(UnseenCategoryWarning, match="unheard of"):
        assert learner.predict({"x": [0.0, None], "sex": ["m", "unheard of"]}).shape == (2,)
    with pytest.raises(InvalidInputError, match="column 'sex' does not exist"):
        learner.predict(frame[["x"]])


REFUSED = {
    "missing action": (
        {"drug": ["hi", None, "lo", "hi"]},
        {},
        r"column 'drug', row 1 \(the first is 0\): must not be missing",
    ),
    "missing reward": ({"gain": [1.0, 2.0, np.nan, 3.0]}, {}, r"column 'gain', row 2 .*finite number.*got None"),
    "infinite reward": ({"gain": [1.0, 2.0, np.inf, 3.0]}, {}, r"column 'gain', row 2 .*got inf"),
    "text reward": ({"gain": ["1", "2", "three", "4"]}, {}, r"column 'gain', row 2 .*must be numbers; got 'three'"),
    "infinite state": ({"x": [1.0, 2.0, 3.0, -np.inf]}, {}, r"column 'x', row 3 .*must not be infinite.*-inf"),
    "duplicate key": ({"day": [1, 5, 2, 1]}, {}, r"rows 0 and 3 \(the first is 0\) have the same 'who' and 'day'"),
    "missing episode": ({"who": ["a", None, "b", "b"]}, {}, r"column 'who', row 1 .*must not be missing"),
    "missing time": ({"day": [1.0, 5.0, None, 1.0]}, {}, r"column 'day', row 2 .*must not be missing"),
    "text time": ({"day": ["a", "b", "c", "d"]}, {}, r"column 'day': must be numbers or dates; it holds"),
    "unknown label": (
        {},
        {"action_labels": ["lo"]},
        r"column 'drug', row 0 .*must be one of action_labels, 'lo'; got 'hi'",
    ),
    "no such column": ({}, {"reward": "score"}, r"the table: column 'score' does not exist; the columns are who, day"),
    "odd type": (
        {"x": [pd.Timedelta(days=1)] * 4},
        {},
        r"column 'x': must be numbers, booleans, dates or strings; it holds duration",
    ),
    "mixed kinds": ({"x": pd.Series([1, 2, "c", 4], dtype=object)}, {}, r"column 'x', row 2 .*values of one kind"),
    "propensity": (
        {"p": [0.5, 0.5, 0.0, 1.0]},
        {"propensity": "p"},
        r"column 'p', row 2 .*must lie in \(0, 1\]; got 0.0",
    ),
    "weight": ({"w": [0.5, -1.0, 0.0, 1.0]}, {"weight": "w"}, r"column 'w', row 1 .*at least 0; got -1.0"),
    "no weight": ({"w": [0.0] * 4}, {"weight": "w"}, r"column 'w': must be positive in some rows"),
    "flag": ({"e": [0, 2, 0, 0]}, {"terminated": "e"}, r"column 'e', row 1 .*true or false.*got 2"),
    "early flag": ({"e": [1, 0, 0, 0]}, {"terminated": "e"}, r"column 'e', row 0 .*before the last row of an episode"),
    "not allowed": (
        {"m": ["hi", "hi", "lo", "hi"]},
        {"allowed": "m"},
        r"column 'm', row 1 .*allow the action that was taken; got 'hi'",
    ),
    "nothing allowed": ({"m": ["hi", "", "lo", "hi"]}, {"allowed": "m"}, r"column 'm', row 1 .*at least one action"),
    "unheard of": (
        {"m": ["hi", "lo,no", "lo", "hi"]},
        {"allowed": "m"},
        r"column 'm', row 1 .*must list known actions; it names the action 'no'",
    ),
    "unheard of label": ({}, {"allowed": {"no": "x"}}, "allowed must name known actions; it names the action 'no'"),
    "too many next": ({}, {"next_state": ["x"]}, "next_state must name one column for each of the 2 state columns"),
    "kinds differ": (
        {"y": ["a"] * 4},
        {"state": ["x"], "next_state": ["y"]},
        r"column 'y': must be of the same kind as 'x'",
    ),
    "time alone": ({}, {"episode": None}, "time must be given with episode"),
    "no state": ({}, {"state": []}, "state must name at least one column"),
    "same state": ({}, {"state": ["x", "x"]}, "state must be distinct"),
    "discount": ({}, {"discount": 1.5}, "discount must lie in"),
    "not a name": ({}, {"action": 3}, "column names must be strings; got 3"),
}


@pytest.mark.parametrize(("changes", "roles", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_name_column_row_and_rule(changes, roles, words):
    with pytest.raises(InvalidInputError, match=words):
        read(patients(**changes), **roles)


def test_refusals_of_files_name_the_file_and_count_rows_from_one(tmp_path):
    file = tmp_path / "trial.csv"
    patients(gain=[1.0, 2.0, np.nan, 3.0]).to_csv(file, index=False)
    with pytest.raises(
        InvalidInputError, match=r"trial\.csv, column 'gain', row 3 \(the first is 1\): must be a finite"
    ):
        Transitions.from_csv(file, **ROLES)
    patients(day=[1, 5, 2, 1]).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InvalidInputError, match=r"t\.parquet, column 'day': .*rows 1 and 4 \(the first is 1\)"):
        Transitions.from_parquet(tmp_path / "t.parquet", **ROLES)
    for read_file in (Transitions.from_csv, Transitions.from_parquet):
        with pytest.raises(InvalidInputError, match=r"nowhere.* no such file"):
            read_file(tmp_path / "nowhere", **ROLES)
        (tmp_path / "broken").write_bytes(b'\xff\xfe"\x00\x01,\nPAR')
        with pytest.raises(InvalidInputError, match="broken"):
            read_file(tmp_path / "broken", **ROLES)
        with pytest.raises(InvalidInputError, match="path must be"):
            read_file(5, **ROLES)
    with pytest.raises(InvalidInputError, match=r"trial\.csv: column 'score' does not exist"):
        Transitions.from_csv(file, **{**ROLES, "reward": "score"})
    (tmp_path / "ragged.csv").write_text("x,drug,gain\n1,a,2\n1,a\n")
    with pytest.raises(InvalidInputError, match=r"ragged\.csv: cannot be read as CSV"):
        Transitions.from_csv(tmp_path / "ragged.csv", state="x", action="drug", reward="gain")


def test_empty_tables_and_things_that_are_none():
    with pytest.raises(InvalidInputError, match="at least one row"):
        read(patients()[:0])
    with pytest.raises(InvalidInputError, match="at least one row"):
        read(pa.Table.from_pandas(patients()[:0]))
    for thing in (5, "table", None, [[1, 2]], np.zeros((3, 2))):
        with pytest.raises(InvalidInputError, match="a table must be a pandas"):
            read(thing)
    with pytest.raises(InvalidInputError, match="column 'x' appears more than once"):
        read(pd.concat([patients(), patients()[["x"]]], axis=1))
    with pytest.raises(InvalidInputError, match="must have 2 rows like the other columns; it has 1"):
        Transitions.from_frame({"x": [1, 2], "a": [1, 2], "r": [1]}, state="x", action="a", reward="r")
    with pytest.raises(InvalidInputError, match="at least one decision must remain"):
        read(patients(end=0).drop_duplicates("who"), terminated="end")


def test_one_row_is_a_batch():
    assert len(read(patients()[:1])) == 1


def lazy():
    polars = pytest.importorskip("polars")
    return polars.from_pandas(patients()).lazy()


def test_a_lazy_frame_must_be_collected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InvalidInputError, match="Collect or fetch it"):
            read(lazy())


words = st.text(max_size=3)
cell = {
    "number": st.one_of(
        st.none(), st.floats(allow_infinity=False), st.sampled_from([1e308, -1e308, 5e-324, 0.0, -0.0])
    ),
    "whole": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    "boolean": st.one_of(st.none(), st.booleans()),
    "date": st.one_of(st.none(), st.dates()),
    "moment": st.one_of(st.none(), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
    "word": st.one_of(st.none(), words),
}


@st.composite
def tables(draw):
    n = draw(st.integers(1, 12))
    kinds = draw(st.lists(st.sampled_from(list(cell)), min_size=1, max_size=4))
    table = {f"s{j}": draw(st.lists(cell[kind], min_size=n, max_size=n)) for j, kind in enumerate(kinds)}
    table["who"] = draw(st.lists(st.one_of(st.integers(0, 3)), min_size=n, max_size=n))
    table["what"] = draw(st.lists(st.sampled_from(["a", "b"]), min_size=n, max_size=n))
    table["gain"] = draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=n, max_size=n))
    return [f"s{j}" for j in range(len(kinds))], table


@settings(max_examples=150, deadline=None)
@given(tables())
def test_encoding_is_reversible_whatever_the_table_holds(drawn):
    state, table = drawn
    batch = Transitions.from_frame(table, episode="who", state=state, action="what", reward="gain", min_category_rows=1)
    schema = Schema.from_dict(json.loads(json.dumps(batch.schema.to_dict())))
    assert schema == batch.schema
    assert hash(schema) == hash(batch.schema)
    columns = schema.decode(batch.states)
    np.testing.assert_array_equal(schema.encode(columns), batch.states)
    order = np.argsort(table["who"], kind="stable")
    for name in state:
        for i, original in zip(range(len(batch)), (table[name][j] for j in order), strict=True):
            found = columns[name][i]
            missing = original is None or original != original
            assert missing == (found is None or found != found)
            if isinstance(original, dt.datetime):
                apart = found.astype("datetime64[us]") - np.datetime64(original, "us")
                assert abs(apart) <= np.timedelta64(1, "us")  # days since an origin a century away have no finer number
            elif isinstance(original, dt.date):
                assert found == np.datetime64(original)
            elif not missing:
                assert found == (
                    float(original) if isinstance(original, int | float) and type(original) is not bool else original
                )


def test_dates_that_python_does_not_have_are_refused_with_a_sentence():
    table = {"who": [dt.date(2000, 1, 1), -719163], "x": [1.0, 2.0], "what": [0, 1], "gain": [0.0, 1.0]}
    with pytest.raises(InvalidInputError, match="column 'who': must hold values that Python can represent"):
        Transitions.from_frame(table, episode="who", state="x", action="what", reward="gain")


rubbish = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    words,
    st.dates(),
    st.binary(max_size=2),
    st.lists(st.integers(), max_size=2),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["who", "day", "x", "sex", "drug", "gain"]), st.lists(rubbish, max_size=5)))
def test_whatever_comes_is_taken_or_refused_with_a_sentence(changes):
    table = {**{name: column.tolist() for name, column in patients().items()}, **changes}
    try:
        batch = read(table)
    except InvalidInputError as error:
        assert "the table" in str(error) or "names of" in str(error)  # noqa: PT017  both outcomes are legal
    else:
        assert np.isfinite(batch.rewards).all()
        assert len(batch) == 4


def minari_data_set(folder, monkeypatch, observation_space, observe, action_start=0):
    """Three episodes of 1, 2 and 3 steps, of which the last is truncated, made on the spot."""
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    spaces = pytest.importorskip("gymnasium").spaces
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    episodes = [
        minari.data_collector.EpisodeBuffer(
            observations=observe(10 * length, length + 1),
            actions=[np.int64(action_start + t % 2) for t in range(length)],
            rewards=[float(length)] * length,
            terminations=[False] * (length - 1) + [length < 3],
            truncations=[False] * (length - 1) + [length == 3],
        )
        for length in (1, 2, 3)
    ]
    actions = spaces.Discrete(3, start=action_start)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about authors and such
        return minari.create_dataset_from_buffers(
            "made/spot-v0", episodes, observation_space=observation_space, action_space=actions
        )


def test_minari_data_sets_of_boxes(tmp_path, monkeypatch):
    box = pytest.importorskip("gymnasium").spaces.Box(-100.0, 100.0, (2,))
    made = minari_data_set(
        tmp_path, monkeypatch, box, lambda start, n: [np.array([start + t, 0.5], dtype=np.float32) for t in range(n)], 4
    )
    batch = Transitions.from_minari(made)
    assert batch.episode_lengths.tolist() == [1, 2, 3]
    assert batch.schema == Schema(("obs_0", "obs_1"), (4, 5, 6))
    np.testing.assert_array_equal(batch.actions, [0, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(batch.states[:, 0], [10, 20, 21, 30, 31, 32])
    np.testing.assert_array_equal(batch.next_states, batch.states + np.array([1, 0]))
    np.testing.assert_array_equal(batch.terminated, [True, False, True, False, False, False])
    assert Transitions.from_minari("made/spot-v0") == batch


def test_minari_data_sets_of_dictionaries(tmp_path, monkeypatch):
    spaces = pytest.importorskip("gymnasium").spaces
    both = spaces.Dict({"at": spaces.Discrete(50), "speed": spaces.Box(-1, 1, (2,), dtype=np.float32)})
    made = minari_data_set(
        tmp_path,
        monkeypatch,
        both,
        lambda start, n: {"at": list(range(start, start + n)), "speed": [np.zeros(2, dtype=np.float32)] * n},
    )
    batch = Transitions.from_minari(made)
    assert batch.schema.feature_names == ("at", "speed0", "speed1")
    np.testing.assert_array_equal(batch.next_states[:, 0] - batch.states[:, 0], 1)


def test_minari_and_gymnasium_call_columns_alike():
    import gymnasium as gym

    from capi.simulation.gymnasium import words_of

    space = gym.spaces.Dict({"at": gym.spaces.Box(-9, 9, (1,)), "speed": gym.spaces.Box(-9, 9, (2,))})
    for each in (space, gym.spaces.Box(-9, 9, (2,))):
        env = gym.Env()
        env.observation_space, env.action_space = each, gym.spaces.Discrete(2)
        assert words_of(env)["feature_names"] == tuple(observation_names(each))


def test_a_minari_data_set_that_is_not_there_is_one_sentence():
    pytest.importorskip("minari")
    with pytest.raises(
        InvalidInputError, match=r"the Minari data set 'no/such-v0' cannot be loaded: .* minari download no/such-v0"
    ):
        Transitions.from_minari("no/such-v0")


def test_what_is_no_minari_data_set_is_refused():
    with pytest.raises(InvalidInputError, match="dataset must be the id"):
        Transitions.from_minari(5)


@pytest.mark.parametrize(
    "text",
    [
        "x,drug,gain\n1,a,2\n3,b,4\n",
        "\ufeffx,drug,gain\n1,a,2\n3,b,4\n",
        "\n\nx,drug,gain\n1,a,2\n\n3,b,4\n",
        "x,drug,gain\r\n1,a,2\r\n3,b,4\r\n",
        '"x","drug",gain\n1,"a",2\n3,b,4\n',
        'x,"two\nlines",drug,gain\n1,0,a,2\n3,0,b,4\n',
    ],
    ids=["plain", "byte order mark", "empty lines", "Windows", "quoted", "line end in a name"],
)
def test_headers_of_any_form_are_found(text, tmp_path):
    (tmp_path / "t.csv").write_bytes(text.encode())
    batch = Transitions.from_csv(tmp_path / "t.csv", state="x", action="drug", reward="gain", discount=0)
    assert batch.states.ravel().tolist() == [1.0, 3.0]
    assert batch.rewards.tolist() == [2.0, 4.0]
    assert batch.schema.action_labels == ("a", "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as CSV"),
        (b"x,drug,gain\n", "at least one row"),
        (b"x,drug,gain,x\n1,a,2,3\n", "column 'x' appears more than once"),
        (b"\xe4,drug,gain\n1,a,2\n", "cannot be read as CSV"),
        (b'"' + b"x" * 200_000 + b'",drug,gain\n1,a,2\n', "cannot be read as CSV"),
    ],
    ids=["empty", "header only", "twice", "not UTF-8", "endless name"],
)
def test_headers_that_cannot_be_used_are_refused(content, message, tmp_path):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InvalidInputError, match=rf"t\.csv.*{message}"):
        Transitions.from_csv(tmp_path / "t.csv", state="x", action="drug", reward="gain")


@pytest.mark.parametrize("column", ["drug", "gain"])
def test_gaps_in_a_table_without_episodes_are_no_matter_of_episodes(column):
    frame = pd.DataFrame({"age": [1.0, 2, 3], "drug": ["a", "b", "a"], "gain": [1.0, 2, 3]})
    frame[column] = frame[column].where(frame.index != 2)
    with pytest.raises(InvalidInputError, match=rf"'{column}', row 2 .*Fill it in, or leave such rows out\.$"):
        Transitions.from_frame(frame, state=["age"], action="drug", reward="gain", discount=0)


def test_a_file_and_a_table_in_each_others_place_are_refused_in_short():
    with pytest.raises(InvalidInputError, match=r"got a str\. Transitions\.from_csv and from_parquet read files\.$"):
        Transitions.from_frame("visits.csv", state=["x"], action="drug", reward="gain")
    with pytest.raises(InvalidInputError, match=r"path must be a string or a Path; got a DataFrame\.$"):
        Transitions.from_csv(pd.DataFrame({"x": range(100)}), state=["x"], action="drug", reward="gain")
