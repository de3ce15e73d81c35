"""`capi init` on tables with faults: the role stays with the column that its name says, and a note or an error says what is wrong."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi import Transitions
from capi.cli import app
from capi.datasets import clinic_table
from capi.errors import InvalidInputError
from capi.runs import RunSettings, guess_roles, settings_text

ROLES = {"episode": "patient", "time": "week", "action": "treatment", "reward": "wellbeing"}


@pytest.fixture(scope="module")
def clinic():
    return pd.read_csv(clinic_table()).head(400)


def guessed(frame, tmp_path, **given):
    """Return the guesses about a table, and its path."""
    path = tmp_path / "visits.csv"
    frame.to_csv(path, index=False)
    return guess_roles(path, given), path


def refusal(found, path):
    """Return what the reader says about the table with the guessed roles."""
    settings = path.with_name("capi.toml")
    settings.write_text(settings_text(path, found), encoding="utf-8")
    with pytest.raises(InvalidInputError) as refused:
        RunSettings.from_toml(settings).read(path)
    return str(refused.value)


def init_of(path, *more):
    done = CliRunner().invoke(app, ["init", str(path), "--yes", "--out", str(path.with_name("s.toml")), *more])
    return done.exit_code, str(done.exception)


@pytest.mark.parametrize("name", ["week", "wk"])
def test_duplicated_rows_of_a_shuffled_table_leave_the_time_and_are_counted(name, clinic, tmp_path):
    """A date that no name calls a time is found, too: without the duplicates it orders the rows."""
    frame = pd.concat([clinic, clinic.iloc[[4, 9, 30]]]).sample(frac=1, random_state=0).rename(columns={"week": name})
    if name == "wk":
        frame[name] = pd.to_datetime("2024-01-01") + pd.to_timedelta(7 * frame[name], "D")
    found, path = guessed(frame, tmp_path)
    assert found.roles["time"] == name
    assert name not in found.left_out
    assert found.notes[0].startswith("3 rows repeat an earlier row in all columns (first: rows ")
    first, second = (int(part) for part in found.notes[0].split("rows ")[2].split(")")[0].split(" and "))
    pd.testing.assert_series_equal(frame.iloc[first - 1], frame.iloc[second - 1], check_names=False)
    assert "Remove such duplicates" in found.notes[0]
    said = refusal(found, path)
    assert f"have the same 'patient' and '{name}'" in said
    assert "They are equal in all columns that were read: 3 rows are such duplicates. Remove" in said


def test_repeated_weeks_leave_the_time(clinic, tmp_path):
    found, path = guessed(clinic.assign(week=clinic["week"].replace({4: 0})), tmp_path)
    assert found.roles["time"] == "week"
    assert found.notes == [
        "100 rows have the same patient and week as an earlier row (first: rows 1 and 2). Keep one row of each, or name another column as the time; "
        "if the rows are in order already, leave the time out. capi describe and capi fit refuse rows with the same episode and time."
    ]
    said = refusal(found, path)
    assert "rows 1 and 2 (the first is 1) have the same 'patient' and 'week'" in said
    assert "equal in all columns" not in said


def test_a_number_of_several_rows_per_episode_is_no_time(clinic, tmp_path):
    """A year that most rows of an episode share may well be a state."""
    found, _ = guessed(clinic.drop(columns="week").assign(year=2020 + clinic["patient"] % 2), tmp_path)
    assert "time" not in found.roles
    assert "year" in found.roles["state"]


@pytest.mark.parametrize("grouped", ["1.{:03d},50", "1,{:03d}.50", "1.{:03d},{:02d}"])
def test_numbers_as_text_are_not_an_episode(grouped, tmp_path):
    """Two of the amounts repeat, and a date orders the rows of each; the German form gets the same advice as the American one."""
    n = 300
    rng = np.random.default_rng(0)
    income = [grouped.format(i % 298, i % 90) for i in range(n)]
    dates = (pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), "D")).strftime("%d.%m.%Y")
    frame = pd.DataFrame(
        {"Datum": dates, "Einkommen": income, "Aktion": rng.choice(["a", "b"], n), "Ertrag": rng.random(n)}
    )
    path = tmp_path / "t.csv"
    frame.assign(x=rng.random(n)).to_csv(path, sep=";", decimal=",", index=False)
    found = guess_roles(path)
    assert "episode" not in found.roles
    assert found.left_out["Einkommen"] == "its numbers are text: write them without separators of thousands"


def test_values_of_which_nearly_all_differ_are_not_an_episode_without_a_name(tmp_path):
    rng = np.random.default_rng(0)
    spent = np.append(np.arange(298), [4, 9]) * 3
    frame = pd.DataFrame(
        {"spent": spent, "date": pd.date_range("2024-01-01", periods=300), "action": rng.integers(2, size=300)}
    )
    found, _ = guessed(frame.assign(reward=rng.random(300)), tmp_path)
    assert "episode" not in found.roles
    assert "episode" not in found.unsure


def test_an_action_that_cannot_be_used_is_not_replaced(clinic, tmp_path):
    dose = clinic.assign(treatment=np.linspace(0, 9, len(clinic)))
    found, path = guessed(dose, tmp_path)
    assert found.unsure == {"action": ()}
    assert "treatment has 400 values; an action has 2 to 50 values" in found.unfit["action"]
    code, said = init_of(path)
    assert code == 1
    assert "treatment has 400 values" in said
    _, path = guessed(clinic.assign(treatment="treat"), tmp_path)
    assert "treatment has 1 value" in init_of(path)[1]
    assert init_of(path, "--action", "sex")[0] == 0


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (1.0, "wellbeing has the same value in every row, so it cannot be the reward"),
        (np.nan, "wellbeing is empty"),
        ("good", "wellbeing has the same value in every row"),
        (["good", "bad"] * 200, "it holds text, such as 'good' in row 1. Write it as a number"),
        ([f"1,{i:03d}.5" for i in range(400)], "its numbers are text: write them without separators of thousands"),
    ],
)
def test_a_reward_that_cannot_be_used_is_not_replaced(reward, said, clinic, tmp_path):
    found, path = guessed(clinic.assign(wellbeing=reward), tmp_path)
    assert found.unsure == {"reward": ()}
    code, error = init_of(path)
    assert code == 1
    assert said in error
    assert "--reward COL" in error
    assert not guessed(clinic.assign(score=reward), tmp_path)[0].unfit, "another column is the reward"


def test_missing_ids_leave_the_episode(clinic, tmp_path):
    frame = clinic.astype({"patient": float})
    frame.loc[3:8, "patient"] = np.nan
    found, path = guessed(frame, tmp_path)
    assert found.roles["episode"] == "patient"
    assert found.roles["time"] == "week"
    assert "patient is missing in 6 rows (first: row 4), but it says which episode a row belongs to" in found.notes[0]
    said = refusal(found, path)
    assert "row 4 (the first is 1): must not be missing: it says which episode a row belongs to" in said
    assert "6 rows have no value" in said
    texts = frame.assign(patient=clinic["patient"].map("p{}".format).where(frame["patient"].notna()))
    found, path = guessed(texts, tmp_path)
    assert found.roles["episode"] == "patient"
    assert "6 rows have no value" in refusal(found, path)


def test_a_missing_time_leaves_the_time(clinic, tmp_path):
    found, path = guessed(clinic.assign(week=clinic["week"].where(clinic.index != 6)), tmp_path)
    assert found.roles["time"] == "week"
    assert "week is missing in 1 row (first: row 7), but it says the order of the rows" in found.notes[0]
    assert "row 7" in refusal(found, path)


@pytest.mark.parametrize(("bad", "shown"), [(1.7, "1.7"), (0, "0"), (np.nan, "it is missing")])
def test_an_impossible_propensity_leaves_the_propensity(bad, shown, clinic, tmp_path):
    found, path = guessed(clinic.assign(propensity=np.where(clinic.index == 9, bad, 0.5)), tmp_path)
    assert found.roles["propensity"] == "propensity"
    assert f"must be above 0 and at most 1, but is not in 1 row (first: row 10, {shown})" in found.notes[0]
    assert "row 10 (the first is 1): must lie in (0, 1]" in refusal(found, path)
    percent, _ = guessed(clinic.assign(propensity=50.0 + clinic["week"]), tmp_path)
    assert percent.left_out["propensity"] == "it describes how the data were collected"


def test_rewards_at_the_end_need_zeros_in_the_other_rows(clinic, tmp_path):
    """The advice is for rewards that are missing only in earlier rows."""
    found, path = guessed(clinic.assign(wellbeing=clinic["wellbeing"].where(clinic["week"] == 12)), tmp_path)
    (note,) = found.notes
    assert note.startswith(
        "wellbeing is missing in 300 rows, which capi fit refuses. Rewards only at the end? Put 0 into the other rows"
    )
    assert "docs/howto/late-rewards.md" in note
    assert "Rewards only at the end? Put 0 into the other rows" in refusal(found, path)
    found, path = guessed(clinic.assign(wellbeing=clinic["wellbeing"].where(clinic["week"] == 4)), tmp_path)
    assert "Rewards only at the end?" not in found.notes[0] + refusal(found, path)


def test_equal_rows_in_memory_are_named(clinic):
    table = pd.concat([clinic, clinic.iloc[[8, 2]]], ignore_index=True)
    with pytest.raises(
        InvalidInputError,
        match=r"rows 2 and 401 \(the first is 0\) have the same 'patient' and 'week'.*equal in all columns that were read: 2 rows",
    ):
        Transitions.from_frame(table, state=["age", "severity"], **ROLES)
    table = table.drop(index=400)
    table.loc[401, "severity"] += 1
    with pytest.raises(InvalidInputError, match="have the same 'patient' and 'week'") as refused:
        Transitions.from_frame(table, state=["age", "severity"], **ROLES)
    assert "equal in all columns" not in str(refused.value)


def test_a_reward_with_one_word_among_its_numbers_names_the_word(clinic, tmp_path):
    frame = clinic.assign(wellbeing=(clinic["wellbeing"] // 3).astype(str))
    frame.loc[[6, 9], "wellbeing"] = "n/a?"
    _, path = guessed(frame, tmp_path)
    code, said = init_of(path)
    assert code == 1
    assert "wellbeing cannot be the reward, which is a number: it holds text, such as 'n/a?' in row 7. Write" in said
    frame = clinic.astype({"wellbeing": str})
    frame.loc[[6, 9], "wellbeing"] = "<0"
    _, path = guessed(frame, tmp_path)
    assert (
        "wellbeing cannot be the reward yet: its numbers are text because of entries such as '<0' (row 7)"
        in (init_of(path)[1])
    )
