"""`capi describe` and what `capi fit` refuses or takes over from it."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi.cli import app

BANDS = "<18,18-64,65+"


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.choice(BANDS.split(","), 90), "arm": rng.choice(["a", "b"], 90), "gain": rng.normal(size=90)}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.assign(arm="a").to_csv(tmp_path / "one.csv", index=False)
    return tmp_path


def run(command, file, *more):
    columns = ["--state", "age", "--action", "arm", "--reward", "gain", "--discount", "0"]
    return CliRunner().invoke(app, [command, str(file), *columns, *more])


def test_describe_shows_how_columns_were_read_and_how_to_declare_an_order(table):
    plain = run("describe", table / "t.csv")
    assert "category, 3 levels" in plain.output
    assert f'--ordered "age={BANDS}"' in plain.output
    found = json.loads(run("describe", table / "t.csv", "--ordered", f"age={BANDS}", "--json").output)
    assert found["columns"] == [
        {"name": "age", "read_as": "ordered category", "levels": 3, "n_features": 1, "missing": 0}
    ]
    assert found["warnings"] == []


@pytest.mark.parametrize("text", ["age", "=a,b", "age=", "age=a,,b"])
def test_an_order_that_cannot_be_read(table, text):
    shown = run("describe", table / "t.csv", "--ordered", text)
    assert shown.exit_code != 0
    assert "--ordered must be a column and its values" in str(shown.exception)


def test_one_action_is_said_by_describe_and_refused_by_fit(table):
    assert "action a was taken in every row" in run("describe", table / "one.csv").output
    shown = run("fit", table / "one.csv", "--out", str(table / "run"))
    assert shown.exit_code != 0
    assert "every row takes action 'a'" in str(shown.exception)
    assert not (table / "run" / "settings.toml").exists()


def test_fit_takes_the_order(table):
    more = ["--ordered", f"age={BANDS}", "--n-iterations", "1", "--space", "trees", "--max-depth", "1"]
    shown = run("fit", table / "t.csv", "--out", str(table / "run"), *more)
    assert shown.exit_code == 0, shown.output
    assert 'age = [\n    "<18",' in (table / "run" / "settings.toml").read_text()
