"""Which columns a run reads: lists, commas and "*", on the command line and in settings files."""

import pandas as pd
import pytest
import tomli_w
from typer.testing import CliRunner

from capi.cli import app
from capi.errors import InvalidInputError
from capi.runs.settings import RunSettings
from capi.runs.table import resolved_roles

ROLES = {"episode": "id", "terminated": "dead", "action": "drug", "reward": "gain"}


def state_of(table, state, **others):
    return resolved_roles(table, {**ROLES, "state": state, **others})["state"]


@pytest.mark.parametrize(
    ("state", "others", "expected"),
    [
        ("age", {}, ["age"]),
        ("age,dose", {}, ["age", "dose"]),
        (["dose , age"], {}, ["dose", "age"]),
        ("*", {}, ["age", "dose"]),
        (["dose", "*"], {}, ["dose", "age"]),
        (["dose,*"], {}, ["dose", "age"]),
        ("*", {"except": "dose"}, ["age"]),
        ("*", {"except": ["dose"]}, ["age"]),
        ("*", {"episode": None, "except": "age,dose"}, ["id"]),
    ],
)
def test_states_by_comma_and_star(table, state, others, expected):
    assert state_of(table, state, **others) == expected


def test_columns_with_such_names_take_precedence(tmp_path):
    frame = {"age,dose": [1.0], "*": [2.0], "age": [1.0], "drug": ["a"], "gain": [1.0]}
    roles = {"action": "drug", "reward": "gain"}
    for name in ("odd.csv", "odd.parquet"):
        write = pd.DataFrame.to_csv if name.endswith("csv") else pd.DataFrame.to_parquet
        write(pd.DataFrame(frame), tmp_path / name, index=False)
        for state in (["age,dose"], ["*"], ["*", "age"]):
            assert resolved_roles(tmp_path / name, {**roles, "state": state})["state"] == state


def test_a_table_that_moved_does_not_change_settings_that_name_columns():
    assert state_of("moved.csv", ["age,dose", "x"]) == ["age,dose", "x"]
    with pytest.raises(InvalidInputError, match=r"moved\.csv: there is no such file"):
        state_of("moved.csv", "*")


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"state": "*", "except": "dosis"}, r"column 'dosis' does not exist; .* Did you mean 'dose'\?"),
        ({"state": "age,dosis"}, None),
        ({"state": "age", "except": "dose"}, r'except must be given with --state "\*"'),
        ({"state": "*", "except": "age,dose"}, r'state "\*" must leave at least one column'),
        ({"state": 3}, "state must name columns, as text or a list of texts; got 3"),
        ({"state": ["age", 3]}, "state must name columns"),
        ({"state": "age", "episode": 3}, "episode must name one column as text; got 3"),
        ({"state": "age", "episod": "id"}, r"a role must be one of .* Did you mean 'episode'\?"),
    ],
)
def test_refusals_name_the_role(table, roles, words):
    if words is None:
        with pytest.raises(InvalidInputError, match=r"column 'dosis' does not exist; .* Did you mean 'dose'\?"):
            RunSettings(table, {**ROLES, **roles}).batch()
    else:
        with pytest.raises(InvalidInputError, match=words):
            RunSettings(table, {**ROLES, **roles})


def test_the_run_records_the_columns_that_the_star_meant(table, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps({"data": {"table": table, **ROLES, "state": "*", "except": "dose"}}))
    settings = RunSettings.from_toml(file)
    assert settings.roles["state"] == ["age"]
    assert "except" not in settings.roles
    file.write_text(settings.to_toml())
    assert RunSettings.from_toml(file).roles == settings.roles


def test_describe_understands_commas_and_stars(table):
    roles = [f"--{role}={name}" for role, name in ROLES.items()]
    run = CliRunner().invoke
    both = run(app, ["describe", table, *roles, "--state", "age", "--state", "dose", "--json"])
    assert both.exit_code == 0, both.output
    assert run(app, ["describe", table, *roles, "--state", "age,dose", "--json"]).stdout == both.stdout
    assert run(app, ["describe", table, *roles, "--state", "*", "--json"]).stdout == both.stdout
    one = run(app, ["describe", table, *roles, "--state", "age", "--json"])
    assert run(app, ["describe", table, *roles, "--state", "*", "--except", "dose", "--json"]).stdout == one.stdout


TOML = {
    "a section": ({"learning": 3}, r"learning must be a section, written \[learning\]; got 3"),
    "a misspelt section": ({"learnng": {}}, r"Did you mean 'learning'\?"),
    "the table": ({"data": {"table": 3}}, "table must be the path of a .csv or .parquet file, as text; got 3"),
    "a number for a role": ({"data": {"reward": 1.5}}, "reward must name one column as text; got 1.5"),
    "text for a number": ({"learning": {"n_iterations": "ten"}}, "n_iterations must be an integer, at least 1; got 'ten'"),
    "a misspelt setting": ({"learning": {"discuont": 0.9}}, r"learning takes .* Did you mean 'discount'\?"),
    "a list for a number": ({"space": {"kind": "trees", "max_depth": [3]}}, r"max_depth must be an integer, at least 1; got \(3,\)"),
    "a record for a number": ({"evaluator": {"kind": "fitted-q", "n_trees": {"a": 1}}}, "n_trees must be an integer"),
    "a misspelt option": ({"space": {"kind": "trees", "max_dept": 3}}, r"Trees has no option 'max_dept' .* Did you mean 'max_depth'\?"),
    "a misspelt kind": ({"space": {"kind": "tree"}}, r"space must be one of .* Did you mean 'trees'\?"),
    "a list for the kind": ({"space": {"kind": ["trees"]}}, "space must be one of"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), TOML.values(), ids=TOML)
def test_settings_of_the_wrong_type_get_one_sentence(table, tmp_path, changes, words):
    sections = {"data": {"table": table, "state": "age", **ROLES}}
    for name, part in changes.items():
        sections[name] = {**sections.get(name, {}), **part} if isinstance(part, dict) else part
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps(sections))
    with pytest.raises(InvalidInputError, match=words) as caught:
        RunSettings.from_toml(file)
    assert "\n" not in str(caught.value)
