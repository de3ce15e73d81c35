"""The time to the next state: how it is read from a table, and how it travels with a batch."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

from capi import Transitions
from capi.data.elapsed import TimeUnit
from capi.errors import InvalidInputError

ROLES = {"episode": "patient", "time": "day", "state": "x", "action": "a", "reward": "r"}


def table(**columns):
    """Ann on days 0, 1 and 4, bob on days 10 and 12; the rows are not in order."""
    made = {
        "patient": ["ann", "bob", "ann", "ann", "bob"],
        "day": [4, 10, 0, 1, 12],
        "x": [2.0, 3.0, 0.0, 1.0, 4.0],
        "a": [0, 1, 0, 1, 0],
        "r": [4.0, 8.0, 1.0, 2.0, 16.0],
        "end": [1, 0, 0, 0, 0],
    }
    return pd.DataFrame({**made, **columns})


@pytest.mark.parametrize(
    ("per", "expected"), [(1, [1, 3, 1, 2, 1]), (2.0, [0.5, 1.5, 1, 1, 1]), ("0.5", [2, 6, 1, 4, 1])]
)
def test_steps_are_counted_in_units_and_nothing_follows_terminated_rows(per, expected):
    batch = Transitions.from_frame(table(), **ROLES, discount_per=per)
    np.testing.assert_array_equal(batch.states[:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(batch.elapsed, expected)


@pytest.mark.parametrize("kind", ["datetime64[s]", "datetime64[ns]", "datetime64[us]", "date", "zone", "text"])
@pytest.mark.parametrize(
    ("per", "unit"), [("1 day", 1), ("7 days", 7), ("week", 7), ("12 hours", 0.5), ("1440 minutes", 1)]
)
def test_dates_have_a_length_of_time(kind, per, unit, tmp_path):
    days = pd.to_datetime("2024-02-27") + pd.to_timedelta(table()["day"], unit="D")
    if kind == "text":
        table(day=days.dt.strftime("%Y-%m-%d")).to_csv(tmp_path / "t.csv", index=False)
        batch = Transitions.from_csv(tmp_path / "t.csv", **ROLES, discount_per=per)
    else:
        made = days.dt.date if kind == "date" else days.dt.tz_localize("UTC") if kind == "zone" else days.astype(kind)
        table(day=made).to_parquet(tmp_path / "t.parquet")
        batch = Transitions.from_parquet(tmp_path / "t.parquet", **ROLES, discount_per=per)
    np.testing.assert_allclose(batch.elapsed, np.array([1 / unit, 3 / unit, 1, 2 / unit, 1]), rtol=1e-14)


def test_the_last_row_of_a_truncated_episode_is_only_a_next_state():
    batch = Transitions.from_frame(table(), **ROLES, terminated="end", discount_per=2)
    np.testing.assert_array_equal(batch.elapsed, [0.5, 1.5, 1, 1])


def test_with_next_states_an_open_end_lasts_a_typical_step():
    rows = {
        "patient": [1, 1, 1, 1, 2, 3, 3],
        "day": [0, 1, 4, 9, 0, 0, 7],
        "x": np.arange(7.0),
        "a": [0, 1] * 3 + [0],
        "r": [0.0] * 7,
        "end": [0] * 6 + [1],
    }
    frame = pd.DataFrame({**rows, "y": np.arange(7.0)})
    batch = Transitions.from_frame(frame, **ROLES, next_state="y", terminated="end", discount_per=2)
    np.testing.assert_array_equal(batch.elapsed, np.array([1, 3, 5, 3, 4, 7, 2]) / 2)  # 4 = median of 1, 3, 5 and 7
    alone = Transitions.from_frame(frame[4:5], **ROLES, next_state="y", terminated="end", discount_per=2)
    np.testing.assert_array_equal(alone.elapsed, [1])


def test_arrays_have_the_same_option():
    frame = table()
    batch = Transitions.from_arrays(
        frame[["x"]], frame["a"], frame["r"], episodes=frame["patient"], time=frame["day"], discount_per=2
    )
    np.testing.assert_array_equal(batch.elapsed, [0.5, 1.5, 1, 1, 1])
    assert Transitions.from_arrays(frame[["x"]], frame["a"], frame["r"], episodes=frame["patient"]).elapsed is None


def test_whole_numbers_are_subtracted_exactly():
    day = np.array([2**62 + 7, 1, 2**62, 2**62 + 1, 2], dtype=np.int64)
    assert list(Transitions.from_frame(table(day=day), **ROLES, discount_per=1).elapsed) == [1, 6, 1, 1, 1]
    small = np.array([120, 1, -120, -119, 2], dtype=np.int8)
    assert list(Transitions.from_frame(table(day=small), **ROLES, discount_per=1).elapsed) == [1, 239, 1, 1, 1]


def test_the_column_travels_with_the_rows():
    batch = Transitions.from_frame(table(), **ROLES, discount_per=2)
    ann, bob = batch[:3], batch[3:]
    np.testing.assert_array_equal(ann.elapsed, [0.5, 1.5, 1])
    np.testing.assert_array_equal(batch.subset([1, 3]).elapsed, [1.5, 1])
    assert Transitions.concat([ann, bob]) == batch
    assert sorted(len(part.elapsed) for part in batch.split(0.5, random_state=0)) == [2, 3]
    for again in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert again == batch
        assert not again.elapsed.flags.writeable
    assert "elapsed" in str(batch)
    assert batch != Transitions.from_frame(table(), **ROLES)


def test_batches_with_other_units_are_not_joined():
    days, weeks = (Transitions.from_frame(table(), **ROLES, discount_per=per) for per in (1, 7))
    with pytest.raises(InvalidInputError, match=r"same discount_per; batches\[1\] has 7 units of day"):
        Transitions.concat([days, weeks], renumber_episodes=True)
    with pytest.raises(InvalidInputError, match="must have the same columns"):
        Transitions.concat([days, Transitions.from_frame(table(), **ROLES)], renumber_episodes=True)


def test_batches_pickled_before_the_column_existed_are_read():
    batch = Transitions.from_frame(table(), **ROLES)
    old = object.__new__(Transitions)
    old.__setstate__({name: value for name, value in batch.__dict__.items() if name != "elapsed"})
    assert old.elapsed is None
    assert old == batch
    assert old[:3].elapsed is None


def test_describe_shows_the_steps_and_their_unit():
    shown = str(Transitions.from_frame(table(), **ROLES, discount_per=2).describe())
    assert "  steps      0.5 to 1.5 times 2 units of day, median 1\n" in shown
    dates = pd.to_datetime("2024-01-01") + pd.to_timedelta(table()["day"], unit="D")
    found = Transitions.from_frame(table(day=dates), **ROLES, discount_per="1 day").describe()
    assert "steps      1 to 3 times 1 day, median 2" in str(found)
    assert found.to_dict()["elapsed"] == {"least": 1.0, "median": 2.0, "greatest": 3.0, "unit": "1 day"}
    plain = Transitions.from_frame(table(), **ROLES).describe()
    assert "elapsed" not in plain.to_dict()
    assert "  steps " not in str(plain)


@pytest.mark.parametrize(
    "value", [0, -1, np.nan, np.inf, True, "", "days 7", "1 fortnight", "0 days", "-2 days", [7], "nan days"]
)
def test_a_unit_must_be_a_positive_number_or_a_length_of_time(value):
    with pytest.raises(
        InvalidInputError, match="discount_per must be a positive number in the units of the time column"
    ):
        Transitions.from_frame(table(), **ROLES, discount_per=value)


def test_months_and_years_are_refused_with_the_reason():
    with pytest.raises(InvalidInputError, match=r"got '1 month'. Months and years vary in length: use days."):
        Transitions.from_frame(table(), **ROLES, discount_per="1 month")


def test_numbers_and_dates_are_not_confused():
    with pytest.raises(InvalidInputError, match=r"column 'day': discount_per must be a number, because it holds numbers; got 7 days"):  # fmt: skip
        Transitions.from_frame(table(), **ROLES, discount_per="7 days")
    dates = pd.to_datetime("2024-01-01") + pd.to_timedelta(table()["day"], unit="D")
    with pytest.raises(InvalidInputError, match=r"must be a length of time, such as \"1 day\", because it holds timestamp.*; got 7"):  # fmt: skip
        Transitions.from_frame(table(day=dates), **ROLES, discount_per=7)


def test_without_a_time_column_there_is_no_elapsed_time():
    roles = {role: name for role, name in ROLES.items() if role != "time"}
    with pytest.raises(InvalidInputError, match="discount_per must be given with time"):
        Transitions.from_frame(table(), **roles, discount_per=1)


def test_equal_times_in_an_episode_are_an_error_that_names_the_rows():
    with pytest.raises(InvalidInputError, match=r"column 'day': must differ within an episode; rows 0 and 3 "):
        Transitions.from_frame(table(day=[1, 10, 0, 1, 12]), **ROLES, discount_per=1)


def test_infinite_times_and_absurd_units_are_errors_that_name_the_row():
    with pytest.raises(InvalidInputError, match=r"column 'day', row 3 .*positive, finite number of times discount_per"):
        Transitions.from_frame(table(day=[np.inf, 10, 0, 1, 12]), **ROLES, discount_per=1)
    with pytest.raises(InvalidInputError, match=r"column 'day', row 2 .*positive, finite number of times discount_per"):
        Transitions.from_frame(table(day=[4e-320, 10, 0, 1e-320, 12]), **ROLES, discount_per=1e300)


@pytest.mark.parametrize(
    ("value", "plain", "text"),
    [
        (7, 7.0, "7 units of day"),
        ("1", 1.0, "1 unit of day"),
        ("day", "1 day", "1 day"),
        ("1.5 Hours", "1.5 hours", "1.5 hours"),
        (" 2  weeks ", "2 weeks", "2 weeks"),
    ],
)
def test_units_have_one_spelling_and_come_back_from_it(value, plain, text):
    unit = TimeUnit.of(value)
    assert unit.plain == plain
    assert unit.text("day") == text
    assert TimeUnit.of(unit.plain) == unit
