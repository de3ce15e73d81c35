"""Options on the command line take precedence over capi.toml, and the run folder has the result."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import tomli_w
from typer.testing import CliRunner

from capi.cli import app
from capi.errors import InvalidInputError, SettingsWarning
from capi.runs import RunSettings

ROLES = {"episode": "id", "state": ["age", "dose"], "action": "drug", "reward": "gain", "terminated": "dead"}


def capi(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(table, tmp_path, monkeypatch):
    pd.read_csv(table).assign(loss=1.0).to_csv(tmp_path / "visits.csv", index=False)
    write(tmp_path / "capi.toml", space={"kind": "trees", "max_depth": 2})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, data=(), **sections):
    learning = {"discount": 0.5, "n_iterations": 2, **sections.pop("learning", {})}
    data = {"table": "visits.csv", **ROLES, **dict(data)}
    path.write_text(tomli_w.dumps({"data": data, "learning": learning, **sections}))


@pytest.fixture
def chosen(monkeypatch):
    """The settings that `capi fit` chooses, instead of a run."""
    found = []

    def stop(settings, out, **options):
        found.append(settings)
        raise InvalidInputError("far enough.")

    monkeypatch.setattr("capi.runs.fit.fit_run", stop)
    monkeypatch.setattr("capi.runs.fit_run", stop, raising=False)

    def of(*arguments):
        found.clear()
        done = capi("fit", *arguments)
        assert found, (done.output, done.exception)
        return found[0]

    return of


def test_options_take_precedence_and_the_run_has_the_result(folder):
    done = capi("fit", "--max-depth", 1, "--hold-out", 0.2, "--n-sweeps", 3, "--out", "mine")
    assert done.exit_code == 0, (done.output, done.exception)
    found = RunSettings.from_toml("mine/settings.toml")
    assert (found.space, found.space_options["max_depth"]) == ("trees", 1)
    assert (found.hold_out, found.discount, found.n_iterations) == (0.2, 0.5, 2)
    assert found.evaluator_options["n_sweeps"] == 3
    assert found.roles == ROLES


def test_every_kind_of_option_takes_precedence(folder, chosen):
    assert chosen("--random-state", 5, "--support", 0.3, "--discount", 0.0).random_state == 5
    assert chosen("--cost", "loss").roles == {**{k: v for k, v in ROLES.items() if k != "reward"}, "cost": "loss"}
    assert chosen("--state", "age").roles["state"] == ["age"]
    other = chosen("--space", "forests")
    assert (other.space, dict(other.space_options)) == ("forests", {}), "the options were those of trees"
    same = chosen("--space", "trees", "--min-samples-leaf", 7)
    assert dict(same.space_options) == {"max_depth": 2, "min_samples_leaf": 7}
    assert dict(chosen("--exact").space_options) == {"max_depth": 2}
    assert chosen("--space", "optimal-trees", "--exact").space_options == {"work_limit": "none"}
    given = chosen("--settings", "capi.toml", "--keep", "last")
    assert (given.keep, given.space_options["max_depth"]) == ("last", 2)


def test_options_apply_to_the_settings_of_a_run_as_well(folder, chosen):
    write(folder / "s.toml", space={"kind": "optimal-trees", "work_limit": 5, "late_work_limit": 50})
    assert chosen("--settings", "s.toml", "--exact").space_options == {"work_limit": "none"}


def test_a_section_without_a_kind_has_the_default_kind(folder, chosen):
    """As in the comment of capi.toml without its first line; the option was ignored."""
    write(folder / "capi.toml", space={"max_depth": 1})
    assert chosen().space_options == {"max_depth": 1}


def test_a_table_takes_the_roles_of_the_settings_here(folder, chosen):
    pd.read_csv("visits.csv").to_csv("later.csv", index=False)
    found = chosen("later.csv", "--support", 0.3)
    assert (found.table, found.roles, found.support) == ("later.csv", ROLES, 0.3)
    assert "settings  capi.toml, for later.csv" in capi("describe", "later.csv").stderr


def test_a_table_with_its_own_roles_needs_no_settings(folder, chosen):
    own = ["--state", "age", "--action", "drug", "--reward", "gain"]
    found = chosen("visits.csv", *own)
    assert (found.discount, found.roles) == (0.99, {"state": ["age"], "action": "drug", "reward": "gain"})


def test_an_option_that_breaks_a_rule_is_not_blamed_on_the_file_alone(folder):
    assert "capi.toml with the given options: max_depth must be" in str(capi("fit", "--max-depth", 0).exception)


def test_describe_takes_options_as_well(folder):
    found = json.loads(capi("describe", "--state", "age", "--json").stdout)
    assert [column["name"] for column in found["columns"]] == ["age"]
    other = json.loads(capi("describe", "--discount", "0.9", "--json").stdout)
    assert other != json.loads(capi("describe", "--discount", "0", "--json").stdout)


def test_a_resumed_run_keeps_its_settings(folder):
    assert capi("fit").exit_code == 0
    refused = str(capi("fit", "--resume", "--max-depth", 1).exception)
    assert refused == (
        "--max-depth must not be given with --resume: a resumed run keeps the settings that are in run. "
        "Omit it, or start a new run in another folder (--out)."
    )


def test_selection_ignores_what_the_file_says_about_its_choices(folder, chosen):
    write(folder / "capi.toml", learning={"support": 0.1, "support_depth": 3, "hold_out": 0.4})
    with pytest.warns(SettingsWarning, match="n_iterations, support, support_depth have no effect, because select"):
        found = chosen("--select", "--budget", 1)
    assert (found.select, found.budget, found.hold_out, found.support) == (True, 1.0, 0.4, None)
    write(folder / "capi.toml", learning={"select": True, "budget": 2.0, "support": 0.1}, space={"kind": "trees"})
    with pytest.warns(SettingsWarning, match=r"n_iterations, support, \[space\] have no effect"):
        assert RunSettings.from_toml("capi.toml").space == "optimal-trees"
    plain = chosen("--no-select")
    assert (plain.select, plain.budget, plain.support, plain.space) == (False, None, 0.1, "trees")


def test_what_is_on_the_command_line_is_not_ignored_by_a_selection(folder):
    refused = str(capi("fit", "--select", "--support", 0.3).exception)
    assert "support must not be given with select" in refused


def test_the_table_may_be_relative_to_the_settings(folder, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = capi("fit", "--settings", folder / "capi.toml")
    assert done.exit_code == 0, (done.output, done.exception)
    assert RunSettings.from_toml("run/settings.toml").table == str(folder / "visits.csv")
    (folder / "visits.csv").unlink()
    assert str(capi("fit", "--settings", folder / "capi.toml").exception) == "visits.csv: there is no such file."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data\n", "cannot be read as settings"),
        ("[learning]\nsuport = 0.1\n", "Did you mean 'support'?"),
        ("[data]\nepisod = 'id'\n", "Did you mean 'episode'?"),
        ("[lerning]\n", "Did you mean 'learning'?"),
    ],
)
def test_mistakes_in_settings_are_found_before_anything_slow_is_imported(folder, text, message):
    Path("capi.toml").write_text(text)
    code = """
import sys
from capi.cli import app
try:
    app(["fit"], standalone_mode=False)
except Exception as error:
    print(error, *sorted(set(sys.modules) & {"numpy", "pyarrow", "numba"}), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    [line] = done.stdout.splitlines()
    assert message in line
