"""Columns of other libraries' types: those that are supported, and one sentence for each of the others."""

import datetime as dt
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capi import CAPI, Transitions
from capi.data.readers.foreign import is_missing
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.policy_spaces import Trees

ROLES = {"state": "x", "action": "a", "reward": "r", "episode": "e", "time": "t"}
UUIDS = [uuid.UUID(int=i // 2) for i in range(6)]
BINS = ("(0.994, 3.0]", "(3.0, 5.0]", "(5.0, 7.0]")


def columns(**changes):
    plain = {
        "x": [1.0, 7.0, 3.0, 4.0, 5.0, 6.0],
        "a": [0, 1] * 3,
        "r": [0.5] * 6,
        "e": [1, 1, 2, 2, 3, 3],
        "t": [1, 2] * 3,
    }
    return {**plain, **changes}


def binned():
    return pd.cut(pd.Series(columns()["x"]), 3)


def read(**changes):
    return Transitions.from_frame(columns(**changes), **ROLES)


FORMS_OF_INTERVALS = {
    "categories": binned,
    "objects": lambda: list(binned()),
    "interval dtype": lambda: binned().astype(pd.IntervalDtype("float64")),
}


@pytest.mark.parametrize("form", FORMS_OF_INTERVALS.values(), ids=FORMS_OF_INTERVALS)
def test_intervals_are_categories_in_their_order(form):
    batch = read(x=form())
    assert batch.schema.columns[0].values == BINS
    assert batch.states.tolist() == [[0], [2], [0], [1], [1], [2]]
    again = batch.schema.encode({"x": [str(interval) for interval in form()]})  # as a CSV file holds them
    np.testing.assert_array_equal(again, batch.states)


def test_intervals_keep_their_order_beyond_nine():
    values = np.arange(24.0)
    cut = pd.cut(pd.Series(values), np.arange(-1.0, 24.0))
    table = {"x": cut, "a": [0, 1] * 12, "r": values}
    batch = Transitions.from_frame(table, state="x", action="a", reward="r", discount=0)
    assert batch.schema.columns[0].kind == "codes"
    np.testing.assert_array_equal(batch.states[:, 0], values)


def test_a_missing_interval_is_a_missing_value():
    batch = read(x=pd.cut(pd.Series([1.0, 7.0, np.nan, 4.0, 5.0, 6.0]), 3))
    assert np.isnan(batch.states[2]).all()
    assert not np.isnan(batch.states[[0, 1, 3, 4, 5]]).any()


@pytest.mark.parametrize(
    "values", [UUIDS, pd.Series(pd.Categorical(UUIDS)), pa.array([u.bytes for u in UUIDS], pa.uuid())]
)
def test_uuids_are_text(values):
    texts = tuple(str(uuid.UUID(int=i)) for i in range(3))
    named = Transitions.from_frame(columns(x=values), **ROLES, min_category_rows=1)
    assert named.schema.columns[0].values == texts
    assert read(a=values).schema.action_labels == texts
    assert read(e=values).episodes.tolist() == [0, 0, 1, 1, 2, 2]


def test_intervals_may_be_actions_and_episodes():
    assert read(a=binned()).schema.action_labels == BINS
    assert read(e=pd.cut(pd.Series([1, 1, 2, 2, 3, 3]), 3)).episodes.tolist() == [0, 0, 1, 1, 2, 2]


def test_floats_of_16_bits_may_play_any_role():
    halves = np.array([0, 1] * 3, dtype=np.float16)
    assert read(a=halves).schema.action_labels == (0.0, 1.0)
    np.testing.assert_array_equal(read(x=halves).states[:, 0], halves)
    np.testing.assert_array_equal(read(r=halves, t=np.arange(6, dtype=np.float16)).rewards, halves)
    assert read(e=np.array([1, 1, 2, 2, 3, 3], dtype=np.float16)).episodes.tolist() == [1, 1, 2, 2, 3, 3]


def test_durations_order_rows():
    assert read(t=pd.to_timedelta([2, 1] * 3, unit="D")).states[:, 0].tolist() == [7, 1, 4, 3, 6, 5]


def test_128_bit_integers_of_polars_are_read_if_they_fit():
    pl = pytest.importorskip("polars")
    wide = pl.Series("x", [1, 7, 3, 4, 5, 6], dtype=pl.Int128)
    frame = pl.DataFrame(columns()).with_columns(wide)
    np.testing.assert_array_equal(Transitions.from_frame(frame, **ROLES).states[:, 0], columns()["x"])
    frame = frame.with_columns(pl.Series("x", [1, 7, 2**100, 4, 5, 6], dtype=pl.Int128))
    with pytest.raises(
        InvalidInputError, match=r"column 'x', row 2 .*64 bits can represent; got 1267650600228229401496703"
    ):
        Transitions.from_frame(frame, **ROLES)


def test_objects_in_polars_are_read_by_value():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({**columns(), "x": pl.Series(UUIDS, dtype=pl.Object)})
    assert len(Transitions.from_frame(frame, **ROLES, min_category_rows=1).schema.columns[0].values) == 3


@pytest.mark.parametrize("form", ["categories in memory", "interval dtype in Parquet", "text in CSV"])
def test_a_policy_of_intervals_decides_for_new_tables(form, tmp_path):
    learner = CAPI(FittedQ(n_sweeps=1, n_trees=2), Trees(max_depth=2), discount=0.5, n_iterations=1, random_state=0)
    learner.fit(pd.DataFrame(columns(x=binned(), r=[0.0, 1.0, 0.0, -1.0, 0.0, 1.0])), **ROLES)
    frame = pd.DataFrame({"x": binned()})
    if form == "interval dtype in Parquet":
        frame.astype(pd.IntervalDtype("float64")).to_parquet(tmp_path / "new.parquet")
        frame = pq.read_table(tmp_path / "new.parquet")
    elif form == "text in CSV":
        frame.to_csv(tmp_path / "new.csv", index=False)
        frame = pd.read_csv(tmp_path / "new.csv")
    np.testing.assert_array_equal(learner.predict(frame), learner.predict({"x": list(map(str, binned()))}))


def test_intervals_in_parquet_files(tmp_path):
    file = tmp_path / "bins.parquet"
    pd.DataFrame(columns(x=binned().astype(pd.IntervalDtype("float64")))).to_parquet(file)
    assert Transitions.from_parquet(file, **ROLES).schema.columns[0].values == BINS


WIDE = np.zeros((6, 2))
PERIODS = pd.Series(pd.period_range("2020", periods=6, freq="M"))
REFUSED = {
    "text for a column": ({"x": "abcdef"}, "column 'x': must be a list or an array with one value per row; got the text 'abcdef'"),
    "number for a column": ({"r": 3}, "column 'r': must be a list or an array with one value per row; got 3"),
    "no column": ({"x": None}, "column 'x': must be a list .* got None"),
    "a set": ({"x": {1, 2, 3, 4, 5, 6}}, "column 'x': must be a list .* got a set"),
    "array of no dimension": ({"x": np.array(3.0)}, r"column 'x': must be a list .* got an array of shape \(\)"),
    "two dimensions": ({"a": WIDE}, r"column 'a': .* got an array of shape \(6, 2\)\. Give each of its columns a name"),
    "a frame": ({"r": pd.DataFrame(WIDE)}, r"column 'r': .* got an array of shape \(6, 2\)"),
    "no rewards": ({"r": []}, "column 'r': must have 6 rows like the other columns; it has 0"),
    "mixed types": ({"x": [1, 2, "three", 4, 5, 6]}, r"column 'x', row 2 .*values of one kind.*got 'three' after numbers"),
    "mixed objects": ({"r": [1.0, None, {}, [], "a", 6]}, r"column 'r', row 2 .*values of one kind.*got \{\} after numbers"),
    "large integers": ({"x": [1, 10**30] * 3}, r"column 'x', row 1 .*64 bits can represent; got 1000000000"),
    "objects": ({"x": [object()] * 6}, "column 'x': must hold values of one kind.*got values of type object"),
    "complex numbers": ({"r": np.arange(6) * 1j}, "column 'r': must hold values of one kind.*got values of type complex"),
    "periods": ({"r": PERIODS}, "column 'r': must hold values of one kind.*got values of type Period"),
    "lists in cells": ({"x": [[1, 2]] * 6}, "column 'x': must be numbers, booleans, dates or strings; it holds list"),
    "records as actions": ({"a": [{"k": 1}] * 6}, "column 'a': must hold hashable values"),
    "intervals as rewards": ({"r": binned()}, r"column 'r', row 0 .*must be numbers; got '\(0\.994, 3\.0\]'"),
    "intervals as times": ({"t": binned()}, "column 't': must be numbers or dates; it holds string. Strings have no reliable"),
    "times of day as times": ({"t": [dt.time(h) for h in range(6)]}, r"column 't': must be numbers or dates; it holds time64\[us\]\.$"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_gets_one_sentence(changes, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        read(**changes)
    assert "\n" not in str(caught.value)
    assert ".." not in str(caught.value).replace("...", "")


@pytest.mark.parametrize("role", ["action", "reward", "episode", "time", "weight"])
@pytest.mark.parametrize("name", [[], ["a"], 3, {"a": 1}])
def test_a_role_names_one_column(role, name):
    with pytest.raises(InvalidInputError, match=f"{role} must name one column"):
        Transitions.from_frame(columns(), **{**ROLES, role: name})


def test_arrays_that_numpy_cannot_read_are_named():
    pl = pytest.importorskip("polars")
    wide = pl.Series([1, 2], dtype=pl.Int128)
    with pytest.raises(InvalidInputError, match="actions must be an array; NumPy cannot read it"):
        Transitions([[0.0], [1.0]], wide, [0.0, 1.0], [[0.0], [1.0]], [True, True])
    with pytest.raises(InvalidInputError, match="rewards must be an array with one entry per row of states; got None"):
        Transitions.from_arrays([[0.0]], [0], None)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_parquet_files_are_refused_in_one_sentence(share, tmp_path):
    file = tmp_path / "cut.parquet"
    pd.DataFrame(columns()).to_parquet(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        InvalidInputError, match=r"cut\.parquet: cannot be read as Parquet: .*write it again\.$"
    ) as caught:
        Transitions.from_parquet(file, **ROLES)
    assert "\n" not in str(caught.value)


def test_csv_files_that_are_not_utf_8_say_so(tmp_path):
    """A spreadsheet writes Latin-1 by default in many countries."""
    file = tmp_path / "t.csv"
    lines = ["x,drug,gain", *["Ulm,0,1"] * 20_000, "Köln,1,2"]
    file.write_bytes("\n".join([lines[0], *lines[-2:]]).encode("latin-1"))
    with pytest.raises(InvalidInputError, match=r"must be UTF-8 text, but has the byte 0xf6\. Save the file as UTF-8"):
        Transitions.from_csv(file, state="x", action="drug", reward="gain")
    file.write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(InvalidInputError, match=r"column 'x', row 20001 .*: must be UTF-8 text; got b'K.xf6ln'\. Save"):
        Transitions.from_csv(file, state="x", action="drug", reward="gain")


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00x", b"x,a,r,e,t\n1,2\n", b"x,a,r,e,t\n\xff,1,2,3,4\n", b"\x1f\x8b\x08broken"]
)
def test_damaged_csv_files_are_refused_in_one_sentence(content, tmp_path):
    file = tmp_path / ("cut.csv.gz" if content[:1] == b"\x1f" else "cut.csv")
    file.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"cut\.csv.*") as caught:
        Transitions.from_csv(file, **ROLES)
    assert "\n" not in str(caught.value)


def test_every_missing_value_is_recognised():
    assert all(map(is_missing, [None, np.nan, float("nan"), pd.NA, pd.NaT, np.datetime64("NaT", "us")]))
    assert not any(map(is_missing, [0, "", False, [], np.zeros(2), pd.Series([1.0, 2.0])]))
