"""`capi init`: the roles of ten different tables, and a settings file with which `capi fit` needs no options."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi.cli import app, init
from capi.runs import RunSettings, guess_roles, settings_text

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
        {"episode": "machine", "time": "timestamp", "action": "decision", "reward": "cost", "state": ["temperature"]},
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
    "odd names": (
        pd.DataFrame({'unit "id"\n': ID, "tag, Uhrzeit": Z, "day": STEP, "treatment given": ACT, "gain (EUR)": X, "größe": Z, "leer": np.nan}),
        {"episode": 'unit "id"\n', "time": "day", "action": "treatment given", "reward": "gain (EUR)", "state": ["day", "tag, Uhrzeit", "größe"]},
        {"leer"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_roles_of_ten_tables(name, tmp_path):
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
    assert "episode     PatientID  (40 values, 6 to 6 rows each)" in done.stdout
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
        "the action column is unclear; it could be therapy or drug. Name it: --action COL, or accept therapy with --yes."
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
    assert capi("init", "visits.csv").exit_code == 0
    assert "max-depth is already set by capi.toml. Change it there." in str(capi("fit", "--max-depth", "2").exception)
