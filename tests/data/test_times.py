"""Caveats about time: unequal steps, dates after the decision, and columns shifted by a row."""

import numpy as np
import pandas as pd
import pytest

from capi import Transitions
from capi.data.origin import TimeSteps
from capi.data.summary.times import steps_as_text

E, L = 40, 6
N = E * L
KINDS = ("unequal-steps", "after-the-decision", "equals-next-state")


def visits(**columns):
    rng = np.random.default_rng(0)
    plain = {
        "who": np.arange(N) // L,
        "day": np.tile(np.arange(L), E),
        "age": rng.normal(size=N),
        "pulse": rng.normal(size=N),
        "arm": rng.integers(2, size=N),
        "gain": rng.normal(size=N),
    }
    return pd.DataFrame({**plain, **columns})


def caught(frame, state=("age", "pulse"), **roles):
    roles = {"episode": "who", "time": "day", **roles}
    batch = Transitions.from_frame(frame, state=list(state), action="arm", reward="gain", **roles)
    return [caveat for caveat in batch.describe().warnings if caveat.kind in KINDS]


def dates(days):
    return pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")


def test_equal_steps_months_and_one_step_problems_are_silent():
    assert caught(visits()) == []
    months = pd.to_datetime([f"2020-{1 + i % L:02}-01" for i in range(N)])
    assert caught(visits(day=months)) == []
    uneven = np.tile([0, 1, 2, 5, 9, 30], E)
    assert caught(visits(day=uneven), discount=0) == []
    late_once = visits()
    late_once.loc[L - 1, "day"] = 99
    assert caught(late_once) == [], "one step of 200"


def test_unequal_steps_say_how_unequal_and_what_to_do():
    """Steps 1, 1, 3, 4 and 21 in each episode: the median is 3, and four of five differ by more than a fifth."""
    days = np.tile([0, 1, 2, 5, 9, 30], E)
    (found,) = caught(visits(day=days))
    n = E * (L - 1)
    assert (found.kind, found.severity, found.column) == ("unequal-steps", "warning", "day")
    assert (found.count, found.share) == (4 * E, 0.8)
    assert f"typically 3, but from 1 to 21; {4 * E} of {n} steps (80 %)" in found.text
    assert "discount_per" in found.text
    assert "160" not in found.text_without_counts
    (found,) = caught(visits(day=dates(days)).sample(frac=1, random_state=0))
    assert "typically 3 days, but from 1 to 21 days" in found.text


@pytest.mark.parametrize(
    ("seconds", "typical", "extreme"),
    [
        (7 * 86_400, "7 days", "14 days"),
        (86_400, "1 day", "2 days"),
        (5400, "1.5 hours", "3 hours"),
        (90, "1.5 minutes", "3 minutes"),
        (0.5, "0.5 seconds", "1 seconds"),
    ],
)
def test_steps_of_dates_have_units(seconds, typical, extreme):
    text = steps_as_text(TimeSteps("t", 2, 1, 0.0, seconds, 2 * seconds, True))
    assert text == f"typically {typical}, but from 0 to {extreme}"
    assert steps_as_text(TimeSteps("t", 2, 1, 1, 2.0, 30)) == "typically 2, but from 1 to 30"


def test_dates_after_the_row():
    days = np.tile(np.arange(L), E)
    frame = visits(day=dates(days), died=dates(days + 30), born=dates(days - 9000), today=dates(days))
    frame.loc[: N // 2 - 1, "died"] = pd.NaT
    (found,) = caught(frame, ("age", "died", "born", "today"))
    assert (found.kind, found.severity, found.column) == ("after-the-decision", "warning", "died")
    assert (found.count, found.share) == (N // 2, 1.0)
    assert f"in {N // 2} of {N // 2} rows" in found.text


def test_a_time_of_day_is_not_later_than_its_day():
    days = np.tile(np.arange(L), E)
    measured = dates(days) + pd.Timedelta(hours=14)
    assert caught(visits(day=dates(days), measured=measured), ("age", "measured")) == []
    at_noon = visits(day=dates(days) + pd.Timedelta(hours=12), measured=measured)
    assert [found.column for found in caught(at_noon, ("age", "measured"))] == ["measured"]


def shifted(frame, by):
    return frame.groupby("who")["pulse"].shift(by)


def test_a_column_that_holds_the_next_value_of_another():
    frame = visits()
    (found,) = caught(frame.assign(soon=shifted(frame, -1)), ("age", "soon", "pulse"))
    assert (found.kind, found.severity, found.column) == ("equals-next-state", "warning", "soon")
    assert (found.count, found.share) == (E * (L - 1), 1.0)
    assert "column soon equals column pulse of the next row in 200 of 200 rows" in found.text


@pytest.mark.parametrize("fill", [np.nan, 0.0, "own"])
def test_the_previous_value_is_known_and_fine(fill):
    frame = visits()
    before = shifted(frame, 1)
    before = before.fillna(frame["pulse"]) if fill == "own" else before.fillna(fill)
    assert caught(frame.assign(before=before), ("age", "before", "pulse")) == []


def test_flags_and_constants_do_not_look_shifted():
    rng = np.random.default_rng(1)
    on = rng.integers(2, size=N)
    frame = visits(
        on=on, off=1 - on, sex=np.repeat(rng.integers(2, size=E), L), same=np.repeat(rng.integers(2, size=E), L)
    )
    assert caught(frame, ("age", "on", "off", "sex", "same")) == []
