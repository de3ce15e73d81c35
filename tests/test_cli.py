import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import toy_experiment as toy
from capi.cli import app
from capi.experiments import NAMES
from capi.experiments.records import FOLDER, Records


def capi(*arguments, cwd=None):
    command = [sys.executable, "-m", "capi.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False)


def test_version_and_help():
    assert capi("--version").stdout.startswith("capi ")
    help_text = capi("reproduce", "--help").stdout
    assert "Example: capi reproduce chain --out results/chain" in help_text


def test_an_unknown_experiment_is_one_sentence_and_exit_code_1():
    done = capi("reproduce", "nothing")
    assert done.returncode == 1
    assert done.stderr == f"error: the experiment must be one of {', '.join(NAMES)}; got 'nothing'.\n"


def test_a_file_in_the_way_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("keep me")
    done = capi("reproduce", "chain", "--out", tmp_path / "file" / "below")
    assert done.returncode == 1
    assert "must be a folder, but it or a parent of it is a file" in done.stderr
    assert (tmp_path / "file").read_text() == "keep me"


WITH_TOY = """
import sys
from pathlib import Path
import toy_experiment as toy
from capi.cli import main
from capi.experiments import NAMES
NAMES["toy"], sys.modules["capi.experiments.toy"] = "squares", toy
toy.folder = Path(sys.argv.pop(1))
main()
"""


def test_an_interruption_is_one_sentence_and_keeps_what_is_finished(tmp_path):
    (tmp_path / "wait-2").touch()  # the second run cannot end
    arguments = [tmp_path, "reproduce", "toy", "--jobs", "1", "--out", tmp_path / "out[/b]"]
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_TOY, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(toy.__file__).parent), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    try:
        while process.poll() is None and not (tmp_path / "beat-2").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == ""
    assert "stopped; finished runs are kept, and the same command continues with the rest." in err
    assert [path.name for path in (tmp_path / "out[/b]").iterdir()] == [FOLDER]
    assert [record["setting"] for record in Records(tmp_path / "out[/b]" / FOLDER)] == ["numbers/1"]


def test_reproduce_shows_progress_results_and_failures(tmp_path, monkeypatch):
    monkeypatch.setitem(NAMES, "toy", "squares")
    monkeypatch.setitem(sys.modules, "capi.experiments.toy", toy)
    monkeypatch.setattr(toy, "folder", tmp_path)
    command = ["reproduce", "toy", "--out", str(tmp_path / "out"), "--runs", "2", "--jobs", "2"]
    (tmp_path / "fail-2").touch()
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "squares" in done.stdout
    assert f"numbers  {tmp_path / 'out' / 'table.csv'}, claims.json, records" in done.stdout
    assert "4 of 6 finished, 0 running, 2 failed" in done.stderr
    assert "failed   numbers/2 seed 1: ArithmeticError: cannot square 2" in done.stderr
    assert (
        "failed   2 of 6 runs. Their tracebacks are in the records; the same command tries them again." in done.stderr
    )
    (tmp_path / "fail-2").unlink()
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    assert "failed  " not in done.stderr
    assert len(toy.calls()) == 8
    done = CliRunner().invoke(app, [*command[:4], "--only", "numbers/3", "1"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["results"]["square"] == 9
    assert "It equals the former record, timings aside." in done.stderr
    (tmp_path / "shifted").touch()
    assert (
        "differs from the former record in square"
        in CliRunner().invoke(app, [*command[:4], "--only", "numbers/3", "1"]).stderr
    )
    (tmp_path / "fail-3").touch()
    done = CliRunner().invoke(app, [*command[:4], "--only", "numbers/3", "1"])
    assert done.exit_code == 1
    assert "cannot square 3" in done.stderr


@pytest.fixture
def no_experiments():
    """Without the paper's experiments, which come back in their order."""
    names = dict(NAMES)
    NAMES.clear()
    yield
    NAMES.clear()
    NAMES.update(names)


@pytest.mark.usefixtures("no_experiments")
def test_all_experiments_follow_one_another_even_if_one_fails(tmp_path, monkeypatch):
    for name in ("toy", "other-toy"):
        monkeypatch.setitem(NAMES, name, "squares")
        monkeypatch.setitem(sys.modules, f"capi.experiments.{name.replace('-', '_')}", toy)
    monkeypatch.setattr(toy, "folder", tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "toy").write_text("a file in the way")
    done = CliRunner().invoke(app, ["reproduce", "all", "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "must be a folder" in done.stderr
    assert (tmp_path / "out" / "other-toy" / "table.csv").exists()
    poster = tmp_path / "out" / "poster.html"
    assert f"poster   {poster}" in done.stdout.replace("\n", "")
    assert 'id="other-toy"' in poster.read_text(encoding="utf-8")
    refused = capi("reproduce", "all", "--only", "a", "0")
    assert refused.stderr == "error: --only needs the name of one experiment; got all.\n"


def test_a_wrong_option_is_usage_and_exit_code_2():
    done = capi("reproduce", "chain", "--output", "x")
    assert done.returncode == 2
    assert "--output" in done.stderr


HEAVY = {"numba", "matplotlib", "pandas", "sklearn", "pyarrow", "gymnasium", "jinja2", "rich", "threadpoolctl"}
ROLES = ["--action=a", "--reward=r", "--state=s"]


@pytest.mark.parametrize(
    "statement",
    [
        "import capi",
        "import capi.evaluators, capi.policy_spaces, capi.baselines, capi.domains, capi.offline, capi.runs, capi.report, capi.files",
        "from capi import CAPI, FiniteMDP, Transitions",
        "from capi.runs import RunSettings",
        "import capi.cli",
    ],
)
def test_heavy_libraries_are_imported_only_when_used(statement):
    code = f"{statement}; import sys; print(*sorted(set(sys.modules) & {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "no.csv", *ROLES],
        ["fit", "no.csv", *ROLES],
        ["fit", "--settings", "no.csv"],
        ["predict", "no.csv", "no.csv", "--out", "o.csv"],
        ["evaluate", "run", "no.csv"],
    ],
)
def test_a_missing_file_is_reported_before_anything_heavy_is_imported(arguments, tmp_path):
    code = f"""
import sys
from capi.cli import app
try:
    app({arguments!r}, standalone_mode=False)
except Exception as error:
    print(error, *sorted(set(sys.modules) & {HEAVY | {"numpy"}!r}), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "no.csv: there is no such file.\n"


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("fit", "--iterations", "--n-iterations"),
        ("fit", "--seed", "--random-state"),
        ("fit", "--sweeps", "--n-sweeps"),
        ("evaluate", "--resamples", "--n-resamples"),
        ("evaluate", "--seed", "--random-state"),
    ],
)
@pytest.mark.parametrize("form", ["{}=3", "{} 3"])
def test_an_old_option_is_refused_with_the_new_one(command, old, new, form):
    done = CliRunner().invoke(app, [command, "run", *form.format(old).split()])
    assert done.exit_code == 2
    assert f"{old} is now called {new}." in done.output


def test_an_option_that_a_command_never_had_is_refused_as_before():
    done = CliRunner().invoke(app, ["report", "run", "--seed=3"])
    assert done.exit_code == 2
    assert "is now called" not in done.output


def test_help_imports_nothing_heavy_except_the_library_that_prints_it():
    code = f"""
import sys
from capi.cli import app
try:
    app(["fit", "--help"])
except SystemExit:
    print(*sorted(set(sys.modules) & {HEAVY - {"rich"} | {"numpy"}!r}), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Example: capi fit" in done.stdout
    assert done.stderr.strip() == ""
