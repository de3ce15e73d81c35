"""What every command has: --quiet, --verbose, --json; and CSV files with quotes only where they are needed."""

import json
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

import toy_experiment as toy
from capi.cli import app
from capi.cli.app import App
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.experiments import NAMES
from capi.files.csv_text import without_formulas, write_csv
from capi.policies import Constant

COMMANDS = [command.callback.__name__.replace("_", "-") for command in app.registered_commands]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def policy(tmp_path):
    schema = Schema.from_dict(
        {"columns": [{"name": "sex", "kind": "one-hot", "values": ["f", "m"]}], "action_labels": ["wait", "treat"]}
    )
    Constant(1, 2, schema=schema).save(tmp_path / "policy.capi")
    pd.DataFrame({"name": ["=1+1", "a,b", "-5"], "sex": ["f", "x", None]}).to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "policy.capi"


def test_python_m_capi_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "capi", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("capi ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_quiet_verbose_and_read_by_programs(command):
    options = {name for parameter in typer.main.get_command(app).commands[command].params for name in parameter.opts}
    assert options >= {"--quiet", "--verbose", "--json"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command):
    assert f"capi {command}" in typer.main.get_command(app).commands[command].epilog.partition("Example")[2]


def test_the_version_says_what_a_bug_report_needs():
    lines = run("--version").stdout.splitlines()
    assert {line.split()[0] for line in lines} >= {"capi", "python", "platform", "numpy", "numba", "pyarrow"}


def test_predict_prints_one_object_and_names_the_unseen_categories(policy):
    out = policy.parent / "out.csv"
    done = run("predict", policy, policy.parent / "new.csv", "--out", out, "--json")
    record = json.loads(done.stdout)
    assert (record["rows"], record["decisions"]) == (3, str(out))
    [warning] = record["warnings"]
    assert "column 'sex' has 'x' (1 of 3 rows, first in row 2 counted from 1)" in warning
    assert done.stderr == f"warning: {warning}\n"
    assert out.read_text() == 'name,sex,decision\n=1+1,f,treat\n"a,b",x,treat\n-5,,treat\n'


def test_spreadsheets_run_nothing(policy):
    out = policy.parent / "out.csv"
    run("predict", policy, policy.parent / "new.csv", "--out", out, "--spreadsheet-safe")
    assert out.read_text() == 'name,sex,decision\n\'=1+1,f,treat\n"a,b",x,treat\n-5,,treat\n'


def test_exports_are_printed_as_one_object(policy):
    assert json.loads(run("export", policy, "--to", "text", "--json").stdout) == {
        "format": "text",
        "export": "always treat",
    }
    out = policy.parent / "rules.txt"
    done = run("export", policy, "--to", "text", "--out", out, "--json")
    assert json.loads(done.stdout) == {"format": "text", "out": str(out)}
    assert out.read_text() == "always treat\n"


def test_benchmarks_are_listed_as_one_object():
    record = json.loads(run("bench", "--list", "--json").stdout)
    assert "trees" in record["benchmarks"]
    assert record["run"] is False


def test_an_experiment_is_one_object(tmp_path, monkeypatch):
    monkeypatch.setitem(NAMES, "toy", "squares")
    monkeypatch.setitem(sys.modules, "capi.experiments.toy", toy)
    monkeypatch.setattr(toy, "folder", tmp_path)
    done = run("reproduce", "toy", "--out", tmp_path / "out", "--runs", 1, "--jobs", 1, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["poster"] is None, "only of all experiments together"
    [record] = printed["experiments"]
    assert record["folder"] == str(tmp_path / "out")
    assert (record["finished"], record["failed"]) == (3, 0)
    assert done.stderr == ""


def noisy():
    application = App(pretty_exceptions_enable=False)

    @application.command()
    def speak(code: int = 0, bad: bool = False):
        """Print a result and a message, then end as requested."""
        typer.echo("result")
        typer.echo("message", err=True)
        if bad:
            raise InvalidInputError("this must not be.")
        raise typer.Exit(code)

    application.callback()(lambda: None)
    return application


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "message\n"),
        (("--quiet",), ""),
        (("--quiet", "--code=3"), "message\n"),
        (("--quiet", "--bad"), "message\n"),
    ],
)
def test_a_quiet_command_prints_messages_only_if_it_fails(arguments, message):
    done = CliRunner().invoke(noisy(), ["speak", *arguments])
    assert (done.stdout, done.stderr) == ("result\n", message)


def test_a_verbose_command_prints_versions_time_and_traceback():
    done = CliRunner().invoke(noisy(), ["speak", "--verbose", "--bad"])
    assert "versions  capi " in done.stderr
    assert "Traceback (most recent call last):" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("time      ")
    assert done.stdout == "result\n"
    both = CliRunner().invoke(noisy(), ["speak", "--verbose", "--quiet"])
    assert isinstance(both.exception, InvalidInputError)


@pytest.mark.parametrize(
    ("table", "quoted"),
    [
        ({"a": ["x", "", None], "b": [1.5, -2.0, None], "c": [True, False, None]}, False),
        ({"a,b": ["x", 'say "hi"', "two\nlines"], "b": ["é", ",", " "]}, True),
        ({"a": pa.array(["x", None]).dictionary_encode(), "b": pa.array([0, 86_400], pa.timestamp("s"))}, False),
    ],
)
def test_csv_is_quoted_where_needed_and_reads_back(table, quoted, tmp_path):
    write_csv(pa.table(table), tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_text(encoding="utf-8")
    assert ('"' in text) == quoted
    found = pd.read_csv(tmp_path / "t.csv", keep_default_na=False, dtype=str)
    expected = pa.table({name: pa.array(column) for name, column in table.items()})
    assert list(found.columns) == list(table)
    for name in table:
        kept = expected[name].to_pylist()
        texts = ["" if v is None else str(v).lower() if isinstance(v, bool) else v for v in kept]
        if all(isinstance(text, str) for text in texts):
            assert found[name].tolist() == texts


def test_csv_refuses_lists_with_a_remedy(tmp_path):
    with pytest.raises(
        InvalidInputError, match=r"column 'a' cannot be written as CSV: it holds map.*Write a \.parquet"
    ):
        write_csv(pa.table({"a": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))}), tmp_path / "t.csv")


def test_only_text_that_would_run_gets_an_apostrophe():
    cells = ["=A1", "+1", "-2.5e3", "+cmd", "@x", "plain", None, "", "-", "\tx"]
    table = without_formulas(pa.table({"=name": cells, "n": [-1.0] * 10}))
    assert table.column_names == ["'=name", "n"]
    assert table["'=name"].to_pylist() == ["'=A1", "+1", "-2.5e3", "'+cmd", "'@x", "plain", None, "", "'-", "'\tx"]
    assert table["n"].to_pylist() == [-1.0] * 10
