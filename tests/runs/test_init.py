"""`capi init`: the roles of thirteen different tables, and a settings file with which `capi fit` needs no options."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi.cli import app, init
from capi.runs import RunSettings, fit_run, guess_roles, settings_text

RNG = np.random.default_rng(0)
N, LENGTH = 40, 6
ID, STEP = np.repeat(np.arange(N), LENGTH), np.tile(np.arange(LENGTH), N)
LAST = STEP == LENGTH - 1
X, Z = RNG.normal(size=N * LENGTH), RNG.random(N * LENGTH)
ACT = RNG.integers(3, size=N * LENGTH)
ENDS = LAST & (ID % 4 == 0)


def trial():
    """A one-step trial: one row per patient, a date and free text that must not be states."""
    n = 60
    return pd.DataFrame(
        {
            "patient_id": np.arange(n) + 1000,
            "enrolled": pd.date_range("2020-01-01", periods=n).astype(str),
            "age": RNG.integers(30, 80, n),
            "sex": RNG.choice(["f", "m"], n),
            "arm": RNG.choice(["placebo", "drug"], n),
            "comment": [f"seen by doctor {i}" for i in range(n)],
            "response": RNG.random(n),
        }
    )


TABLES = {
    "plain": (
        pd.DataFrame({"episode": ID, "t": STEP, "x": X, "z": Z, "action": ACT, "reward": X + ACT}),
        {"episode": "episode", "time": "t", "action": "action", "reward": "reward", "state": ["t", "x", "z"]},
        {},
    ),
    "clinic": (
        pd.DataFrame(
            {"PatientID": ID, "VisitDay": STEP * 7, "Weight": 60 + X, "CD4": 100 * Z, "Drug": np.array(["none", "low", "high"])[ACT],
             "Died": ENDS, "QALY": Z}
        ),
        {"episode": "PatientID", "time": "VisitDay", "terminated": "Died", "action": "Drug", "reward": "QALY", "state": ["Weight", "CD4"]},
        {},
    ),
    "trial": (trial(), {"action": "arm", "reward": "response", "state": ["age", "sex"]}, {"patient_id", "enrolled", "comment"}),
    "machines": (
        pd.DataFrame(
            {"Unnamed: 0": np.arange(N * LENGTH), "machine": [f"m{i}" for i in ID], "timestamp": pd.to_datetime("2024-01-01") + pd.to_timedelta(STEP, "h"),
             "temperature": X, "site": "north", "decision": np.array(["run", "service", "stop"])[ACT], "cost": Z}
        ),
        {"episode": "machine", "time": "timestamp", "action": "decision", "cost": "cost", "state": ["temperature"]},
        {"Unnamed: 0", "site"},
    ),
    "gymnasium": (
        pd.DataFrame(
            {"episode": ID, "step": STEP, "observation_0": X, "observation_1": Z, "action": ACT, "reward": Z,
             "next_observation_0": X + 1, "next_observation_1": Z + 1, "terminated": ENDS, "truncated": LAST & ~ENDS}
        ),
        {"episode": "episode", "time": "step", "terminated": "terminated", "truncated": "truncated", "action": "action", "reward": "reward",
         "state": ["observation_0", "observation_1"]},
        {"next_observation_0", "next_observation_1"},
    ),
    "bandit": (
        pd.DataFrame({"user_segment": RNG.choice(["a", "b"], 80), "hour": RNG.integers(24, size=80), "action_id": RNG.integers(4, size=80),
                      "action_prob": np.full(80, 0.25), "clicked": RNG.integers(2, size=80)}),
        {"propensity": "action_prob", "action": "action_id", "reward": "clicked", "state": ["user_segment", "hour"]},
        {},
    ),
    "sepsis": (
        pd.DataFrame({"icustayid": ID, "bloc": STEP + 1, "HR": X, "MeanBP": Z, "action": ACT, "action_name": np.array(["a", "b", "c"])[ACT],
                      "reward": np.where(LAST, X, 0.0), "outcome": ID % 2}).iloc[:-2],
        {"episode": "icustayid", "time": "bloc", "action": "action", "reward": "reward", "state": ["HR", "MeanBP"]},
        {"action_name", "outcome"},
    ),
    "marketing": (
        pd.DataFrame({"customer": ID, "week": STEP, "spent": Z, "visits": RNG.integers(9, size=N * LENGTH), "offer": np.array(["none", "mail"])[ACT % 2],
                      "profit": X, "survey_weight": 1 + Z}).iloc[:-1],
        {"episode": "customer", "time": "week", "weight": "survey_weight", "action": "offer", "reward": "profit", "state": ["spent", "visits"]},
        {},
    ),
    "short names": (
        pd.DataFrame({"id": ID, "t": STEP, "s1": X, "s2": Z, "a": ACT, "r": Z, "done": LAST}),
        {"episode": "id", "time": "t", "terminated": "done", "action": "a", "reward": "r", "state": ["s1", "s2"]},
        {},
    ),
    "misleading names": (
        pd.DataFrame({"case_id": ID, "action_time": STEP * 30, "reward_card": ID % 2, "treatment_center": RNG.choice(["x", "y", "z"], N * LENGTH),
                      "given": np.array(["none", "fluids"])[ACT % 2], "score_before": X, "score_after": X + ACT, "died_in_hospital": np.array(["no", "yes"])[ID % 2]}),
        {"episode": "case_id", "time": "action_time", "action": "given", "reward": "score_after",
         "state": ["action_time", "reward_card", "treatment_center", "score_before"]},
        {"died_in_hospital"},
    ),
    "costs": (
        pd.DataFrame({"run_id": ID, "step": STEP, "queue": RNG.integers(9, size=N * LENGTH), "action": ACT % 2, "prob_action": np.full(N * LENGTH, 0.5),
                      "total_cost": Z}),
        {"episode": "run_id", "time": "step", "propensity": "prob_action", "action": "action", "cost": "total_cost", "state": ["step", "queue"]},
        {},
    ),
    "a date of any name": (
        pd.DataFrame({"CUSTOMER_ID": ID + 10_001, "CONTACT_DT": pd.to_datetime("2024-02-01") + pd.to_timedelta(30 * STEP, "D"), "BALANCE": X,
                      "ACTION_CODE": ACT, "NET_MARGIN": Z}),
        {"episode": "CUSTOMER_ID", "time": "CONTACT_DT", "action": "ACTION_CODE", "reward": "NET_MARGIN", "state": ["BALANCE"]},
        {},
    ),
    "two times that agree": (
        pd.DataFrame({"icustay_id": ID, "bloc": STEP, "charttime": pd.to_datetime("2024-02-01") + pd.to_timedelta(4 * STEP, "h"), "SOFA": X, "action": ACT,
                      "reward": Z, "last_row": (STEP == LENGTH - 1).astype(int)}),
        {"episode": "icustay_id", "time": "bloc", "terminated": "last_row", "action": "action", "reward": "reward", "state": ["SOFA"]},
        {"charttime"},
    ),
    "row names": (
        pd.DataFrame({"": np.arange(1, N * LENGTH + 1), "age": ACT + STEP, "smoker": X > 0, "arms": ACT % 2 == 0, "qol": X}),
        {"action": "arms", "reward": "qol", "state": ["age", "smoker"]},
        {""},
    ),
    "other languages": (
        pd.DataFrame({"Patient:in": ID, "Woche": STEP, "Größe (cm)": 170 + X, "症状の重さ": RNG.integers(5, size=N * LENGTH),
                      "Maßnahme": np.array(["keine", "β-Blocker", "ΔDosis ↑"])[ACT], "Ergebnis": Z}),
        {"episode": "Patient:in", "time": "Woche", "action": "Maßnahme", "reward": "Ergebnis", "state": ["Woche", "Größe (cm)", "症状の重さ"]},
        {},
    ),
    "odd names": (
        pd.DataFrame({'unit "id"\n': ID, "tag, Uhrzeit": Z, "day": STEP, "treatment given": ACT, "gain (EUR)": X, "größe": Z, "leer": np.nan}),
        {"episode": 'unit "id"\n', "time": "day", "action": "treatment given", "reward": "gain (EUR)", "state": ["day", "tag, Uhrzeit", "größe"]},
        {"leer"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_roles_of_many_tables(name, tmp_path):
    frame, roles, left_out = TABLES[name]
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    found = guess_roles(path)
    assert found.roles == roles
    assert set(found.left_out) == set(left_out)
    assert not found.unsure
    (tmp_path / "capi.toml").write_text(settings_text(path, found), encoding="utf-8")
    settings = RunSettings.from_toml(tmp_path / "capi.toml")
    assert settings.roles == roles
    assert settings.discount == (0.0 if "episode" not in roles else 0.99)
    assert len(settings.read(path)) > 0


def test_rows_that_belong_together_are_not_taken_for_single_decisions_without_a_question(tmp_path):
    """No name says episode or time, but the rows of each unit follow each other while another column increases."""
    path = tmp_path / "table.parquet"
    pd.DataFrame({"przypadek": ID, "etap": STEP, "x": X, "action": ACT, "reward": Z}).to_parquet(path)
    assert guess_roles(path).unsure == {"episode": ("przypadek",)}
    with_answer = guess_roles(path, {"episode": "przypadek", "time": "etap"})
    assert not with_answer.unsure
    assert not with_answer.one_step


def test_a_table_with_a_reward_and_a_cost_is_asked_about(tmp_path):
    path = tmp_path / "table.parquet"
    pd.DataFrame({"x": X, "arm": ACT, "response": Z, "expenses": Z[::-1]}).to_parquet(path)
    assert guess_roles(path).unsure == {"reward": ("response", "expenses")}
    assert guess_roles(path, {"reward": None, "cost": "expenses"}).roles == {
        "action": "arm",
        "cost": "expenses",
        "state": ["x"],
    }


def test_decisions_in_columns_are_pointed_out(tmp_path):
    path = tmp_path / "table.parquet"
    pd.DataFrame({"X1": X, "A1": ACT % 2, "X2": Z, "A2": (ACT > 1) + 0, "Y": Z}).to_parquet(path)
    assert "A1 and A2 look like decisions that followed each other" in guess_roles(path).notes[0]
    assert not guess_roles(path, {"action": "A1"}).notes
    done = capi("init", path, "--out", tmp_path / "s.toml")
    assert done.exit_code == 1
    assert "Write one row per decision" in str(done.exception)


def test_a_series_without_episodes_is_pointed_out(tmp_path):
    path = tmp_path / "table.parquet"
    hours = pd.date_range("2024-01-01", periods=N * LENGTH, freq="h")
    pd.DataFrame({"datetime": hours, "price": X, "action": ACT, "profit": Z}).to_parquet(path)
    done = capi("init", path, "--out", tmp_path / "s.toml")
    assert done.exit_code == 0, done.output
    assert "datetime increases from row to row" in done.stdout
    assert "# Note: datetime increases from row to row" in (tmp_path / "s.toml").read_text(encoding="utf-8")
    with_days = guess_roles(path, {"episode": None})
    assert not with_days.notes


@pytest.mark.filterwarnings("ignore::capi.errors.TableWarning")  # made-up columns may tell the reward
def test_rare_actions_restrict_the_policy(tmp_path):
    """A policy must not choose an action of which the table has a few rows; without rare actions nothing is restricted."""
    path, settings = tmp_path / "table.parquet", tmp_path / "s.toml"
    n = 1000
    x, coin = np.linspace(-1, 1, n), np.arange(n) % 2
    action = np.where(np.arange(n) % 50 == 25, 7, coin)
    pd.DataFrame({"x": x, "item": coin, "action": action, "reward": np.where(action == 7, 9.0, x * coin)}).to_parquet(
        path
    )
    done = capi("init", path, "--out", settings)
    assert "rare actions (rows): 7 (20)" in " ".join(done.stdout.split())
    found = RunSettings.from_toml(settings)
    assert (found.support, found.support_depth) == (0.1, 3)
    assert set(fit_run(found, tmp_path / "run").policy.act([[-0.5, 1.0], [0.5, 0.0]])) <= {0, 1}  # of 0, 1 and 7
    assert not guess_roles(path, {"action": "item"}).rare
    capi("init", path, "--action", "item", "--out", settings, "--force")
    assert RunSettings.from_toml(settings).support is None


def test_episodes_without_an_order_and_with_dates_on_a_schedule_are_pointed_out(tmp_path):
    path = tmp_path / "table.parquet"
    frame = pd.DataFrame({"user_id": ID, "x": X, "action": ACT, "reward": Z})
    frame.to_parquet(path)
    assert "no column orders the rows of an episode" in guess_roles(path).notes[0]
    frame.assign(date=pd.to_datetime("2024-01-01") + pd.to_timedelta(STEP, "D")).to_parquet(path)
    assert "all episodes have the same number of rows" in guess_roles(path).notes[0]
    frame.assign(week=STEP).to_parquet(path)
    assert not guess_roles(path).notes  # the week is a state


def test_missing_actions_and_rewards_are_pointed_out(tmp_path):
    """The last row of an episode may hold its last state alone."""
    path = tmp_path / "table.parquet"
    drug = np.array(["a", "b", "c"], dtype=object)[ACT]
    frame = pd.DataFrame(
        {"patient": ID, "week": STEP, "x": X, "drug": np.where(STEP == LENGTH - 1, None, drug), "reward": Z}
    )
    frame.to_parquet(path)
    assert not guess_roles(path).notes
    frame.assign(drug=np.where(STEP == 2, None, drug)).to_parquet(path)
    assert guess_roles(path).notes[0].startswith(f"drug is missing in {N} rows, which capi fit refuses")
    frame.drop(columns=["patient", "week"]).assign(drug=drug, reward=np.where(STEP == 0, np.nan, Z)).to_parquet(path)
    assert guess_roles(path).notes[0].startswith(f"reward is missing in {N} rows")
    assert guess_roles(path).notes[0].endswith("or leave such rows out."), "there are no episodes"
    frame.assign(drug=drug, reward=np.where(np.arange(len(Z)) == 0, np.nan, Z)).to_parquet(path)
    (note,) = guess_roles(path).notes
    assert note.startswith("reward is missing in 1 row, which")
    assert note.endswith("or leave such episodes out.")


@pytest.mark.parametrize(
    ("doses", "found"),
    [(Z, f"dose has {N * LENGTH} values"), (np.zeros(N * LENGTH), "dose has 1 value;"), (ID, "")],
)
def test_a_name_that_says_action_with_other_values_is_explained(doses, found, tmp_path):
    path = tmp_path / "table.parquet"
    pd.DataFrame({"x": X, "dose": doses, "reward": Z}).to_parquet(path)
    guess = guess_roles(path)
    assert ("action" in guess.roles) == (not found)
    if found:
        done = capi("init", path, "--out", tmp_path / "s.toml")
        assert found in str(done.exception)
        assert "Divide amounts into ranges" in str(done.exception)
    else:
        assert not guess.notes


def test_columns_that_were_not_read_as_numbers_or_dates_say_why(tmp_path):
    path = tmp_path / "table.csv"
    n = N * LENGTH
    frame = pd.DataFrame(
        {
            "income": [f"1.{i:03d},50" for i in range(n)],
            "born": [f"{i % 12 + 1}/{i % 28 + 1}/1960" for i in range(n)],
            "fat": [f"{20 + i / 7:.1f} %" for i in range(n)],
            "action": ACT,
            "reward": Z,
        }
    )
    frame.to_csv(path, sep=";", index=False)
    done = capi("init", path, "--out", tmp_path / "s.toml")
    assert done.exit_code == 1
    assert "income, because its numbers are text: write them without separators of thousands" in str(done.exception)
    assert "born, because its dates are text: write them as 2024-12-31" in str(done.exception)
    assert "fat, because its numbers are text: write them without the percent sign" in str(done.exception)


@pytest.mark.parametrize(
    ("odd", "plain"),
    [("<0.5", "0.5"), ("unknown", "12"), (".", "12"), ("V57", None), ("18-30", None)],
)
def test_numbers_that_a_few_entries_make_text_are_no_categories(odd, plain, tmp_path):
    """As categories they would have the order of the alphabet."""
    path = tmp_path / "table.csv"
    marker = (np.arange(len(X)) % 60 / 4).astype(str).astype(object)
    marker[[4, 70]] = odd
    pd.DataFrame({"x": X, "marker": marker, "drug": ACT, "reward": Z}).to_csv(path, index=False)
    guess = guess_roles(path)
    if plain is None:
        assert guess.roles["state"] == ["x", "marker"], "such as codes of diagnoses, or bands"
    else:
        why = f"its numbers are text because of entries such as {odd!r} (row 5): write a number there, or nothing"
        assert guess.left_out == {"marker": why}
        marker[[4, 70]] = plain
        pd.DataFrame({"x": X, "marker": marker, "drug": ACT, "reward": Z}).to_csv(path, index=False)
        assert guess_roles(path).roles["state"] == ["x", "marker"]


@pytest.mark.parametrize("name", [None, "Unnamed: 0"])
def test_an_index_without_a_name_is_no_state_in_whatever_order_its_rows_are(name, tmp_path):
    path = tmp_path / "table.csv"
    frame = pd.DataFrame({"x": X, "drug": ACT, "reward": Z})
    for index in (np.random.default_rng(0).permutation(len(X)), 3 * np.arange(len(X))):
        frame.set_index(index).to_csv(path, index_label=name)
        guess = guess_roles(path)
        assert guess.roles["state"] == ["x"]
        assert guess.left_out == {name or "": "it numbers the rows"}
    frame.set_index(np.arange(len(X)) // 2).to_csv(path, index_label=name)
    assert guess_roles(path).roles["state"] == [name or "", "x"], "a column with repeated values may mean something"


def test_candidates_for_the_action_are_ordered(tmp_path):
    """A flag that is set only where episodes end is the last."""
    path = tmp_path / "table.parquet"
    frame = {
        "run_id": ID,
        "step": STEP,
        "overflow": (STEP == LENGTH - 1) + 0,
        "arrivals": ACT + STEP % 3,
        "open_counter": ACT % 2,
        "total_cost": Z,
    }
    pd.DataFrame(frame).to_parquet(path)
    assert guess_roles(path).unsure == {"action": ("open_counter", "arrivals", "overflow")}


def capi(*arguments, **kwargs):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **kwargs)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    TABLES["clinic"][0].to_csv(tmp_path / "visits.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_after_init_describe_fit_evaluate_and_report_need_no_options(folder):
    done = capi("init", "visits.csv")
    assert done.exit_code == 0, done.output
    assert "episode     PatientID  (40 values, 6 rows each)" in done.stdout
    text = (folder / "capi.toml").read_text()
    assert 'action = "Drug"  # what was chosen: ' in text
    assert "hold_out = 0.3" in text
    assert "PatientID" not in capi("describe").stdout.split("features")[1].splitlines()[0]
    done = capi("fit")
    assert done.exit_code == 0, done.output
    assert "next    capi evaluate run, then capi report run" in done.stdout
    assert RunSettings.from_toml(folder / "run" / "settings.toml").roles["time"] == "VisitDay"
    assert capi("evaluate", "run").exit_code == 0


def test_an_existing_file_is_replaced_only_by_force(folder):
    (folder / "capi.toml").write_text("# mine")
    done = capi("init", "visits.csv")
    assert done.exit_code == 1
    assert "capi.toml exists already" in str(done.exception)
    assert (folder / "capi.toml").read_text() == "# mine"
    assert capi("init", "visits.csv", "--force").exit_code == 0
    assert "[data]" in (folder / "capi.toml").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["capi.toml", "visits.csv"]


def unclear(folder):
    frame = TABLES["plain"][0].rename(columns={"action": "drug", "x": "therapy", "reward": "v"})
    frame["therapy"] = ACT % 2
    frame.to_csv(folder / "unclear.csv", index=False)
    return "unclear.csv"


def test_what_is_unclear_is_refused_without_a_terminal_and_accepted_on_request(folder):
    table = unclear(folder)
    refused = capi("init", table)
    assert refused.exit_code == 1
    assert (
        "the action column is unclear; perhaps therapy or drug. Name it: --action COL, or accept therapy with --yes."
        in str(refused.exception)
    )
    assert not (folder / "capi.toml").exists()
    record = json.loads(capi("init", table, "--action", "drug", "--yes", "--json").stdout)
    assert record["roles"] == {
        "episode": "episode",
        "time": "t",
        "action": "drug",
        "reward": "v",
        "state": ["t", "therapy", "z"],
    }


def test_a_terminal_is_asked(folder, monkeypatch):
    table = unclear(folder)
    monkeypatch.setattr(init.sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(
        init.sys, "stdout", type("Terminal", (), {"isatty": lambda self: True, "write": print, "flush": print})()
    )
    answers = iter(["drugs", "drug", "v"])
    asked = []
    monkeypatch.setattr(init.typer, "prompt", lambda text, default: asked.append((text, default)) or next(answers))
    monkeypatch.setattr(init.typer, "echo", lambda text, err=False: asked.append(str(text)) if err else None)
    app(["init", table], standalone_mode=False)
    assert asked[0] == asked[2] == ("action", "therapy")
    assert "Did you mean 'drug'?" in asked[1]
    assert asked[3:] == [("reward", "v")]
    assert RunSettings.from_toml("capi.toml").roles["action"] == "drug"


def test_a_table_without_a_choice_names_the_option(folder):
    pd.DataFrame({"x": Z, "y2": X}).to_csv("numbers.csv", index=False)
    done = capi("init", "numbers.csv", "--yes")
    assert str(done.exception) == "numbers.csv: no column looks like the action. Name it: --action COL."


def test_a_folder_without_settings_says_how_to_make_them(folder):
    for command in ("fit", "describe"):
        assert "this folder has no capi.toml. capi init TABLE writes one." in str(capi(command).exception)
