"""Signals end every command, in every phase, also while machine code runs that hears no signal."""

import hashlib
import os
import signal
import subprocess
import sys
import time

import pytest

from capi.runs import fit_run, load_run
from small_runs import settings_for

DEAF = """
import hashlib, pathlib, sys

def deaf(*_, **__):
    '''Run machine code for many minutes.'''
    pathlib.Path("deaf").touch()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

class Third:
    '''Calls a method, and is deaf at the third call.'''
    def __init__(self, owner, name):
        self.method, self.calls = getattr(owner, name), 0
        setattr(owner, name, lambda *a, **k: self(*a, **k))
    def __call__(self, *arguments, **options):
        self.calls += 1
        return deaf() if self.calls == 3 else self.method(*arguments, **options)

{patch}
from capi.cli import main
main()
"""
IMPORT = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numba":
            deaf()
sys.meta_path.insert(0, Finder())
"""
COMPILE = """
from capi._utils import compiling
say = compiling.started
compiling.started = lambda **kept: (say(**kept), deaf())
"""
SEARCH = "from capi.policy_spaces.trees._search import Search; Search.run = deaf"
THIRD_SEARCH = "from capi.policy_spaces.trees._search import Search; Third(Search, 'run')"
CHECKPOINT = "from capi.runs import checkpoint; checkpoint.write_archive = deaf"
EVALUATE = "from capi.runs import evaluate; evaluate.evaluate = deaf"
READ = "from capi.runs.settings import RunSettings; RunSettings.batch = deaf"
NOTHING = "stopped before the first iteration was finished; nothing was saved.\n"


def sent(number, patch, arguments, folder, **environment):
    """Run a command until it is deaf, send it a signal; return its exit code and what it printed on standard error."""
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF.format(patch=patch), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    )
    while process.poll() is None and not (folder / "deaf").exists():
        time.sleep(0.02)
    process.send_signal(number)
    try:
        _, err = process.communicate(timeout=300)  # deafness lasts much longer
    finally:
        process.kill()
    return process.returncode, err


@pytest.fixture(scope="module")
def settings(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("settings") / "s.toml"
    path.write_text(settings_for(table, "optimal-trees", n_iterations=6).to_toml())
    return path


@pytest.mark.parametrize(
    ("patch", "number"),
    [
        (IMPORT, signal.SIGINT),
        pytest.param(READ, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(COMPILE, signal.SIGTERM, marks=pytest.mark.compiled),
        pytest.param(SEARCH, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(CHECKPOINT, signal.SIGTERM, marks=pytest.mark.slow),
    ],
    ids=["import", "read", "compile", "search", "checkpoint"],
)
def test_a_first_round_that_is_interrupted_leaves_nothing(settings, tmp_path, patch, number):
    arguments = ["fit", "--settings", settings, "--out", "deep/run"]
    empty_cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")} if patch == COMPILE else {}
    code, err = sent(number, patch, arguments, tmp_path, **empty_cache)
    assert code == 128 + number
    assert "Traceback" not in err
    assert err.endswith("stopped.\n" if patch == IMPORT else NOTHING)
    assert not (tmp_path / "deep").exists()
    assert ("compiling (once, about" in err) is (patch == COMPILE)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_later_round_that_is_interrupted_keeps_the_ones_before(settings, tmp_path, number):
    code, err = sent(number, THIRD_SEARCH, ["fit", "--settings", settings, "--out", "run"], tmp_path)
    assert code == 128 + number
    assert err.endswith("stopped; capi fit --resume --out run resumes from this point.\n")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "checkpoint.zip",
        "settings.toml",
        "table.sha256",
    ]
    done = []
    fit_run(None, tmp_path / "run", resume=True, shown=lambda rounds, n, total: done.append(n) or rounds)
    assert done == [2]


@pytest.mark.slow
def test_an_interrupted_evaluation_leaves_the_run_as_it_was(table, tmp_path):
    fit_run(settings_for(table, hold_out=0.3, n_iterations=1), tmp_path / "run")
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "run").iterdir()}
    code, err = sent(signal.SIGINT, EVALUATE, ["evaluate", "run"], tmp_path)
    assert (code, err.splitlines()[-1]) == (130, "stopped.")
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "run").iterdir()} == before
    assert load_run(tmp_path / "run").history


@pytest.mark.slow
def test_python_code_is_interrupted_without_force(settings, tmp_path):
    slow = (
        "import time; from capi.runs import fit; fit.digest = lambda _: (pathlib.Path('deaf').touch(), time.sleep(600))"
    )
    code, err = sent(signal.SIGTERM, slow, ["fit", "--settings", settings, "--out", "run"], tmp_path)
    assert code == 143
    assert err.endswith(NOTHING)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_a_command_starts_has_its_exit_code(tmp_path, number):
    slow = "import time; from typer.core import TyperGroup; TyperGroup.parse_args = lambda *_: (pathlib.Path('deaf').touch(), time.sleep(600))"
    code, err = sent(number, slow, ["--help"], tmp_path)
    assert code == 128 + number
    assert "Traceback" not in err


def test_an_interrupted_command_does_not_wait_for_the_shutdown_of_python(tmp_path):
    slow = (
        "import atexit, time; from capi.cli.app import InterruptibleGroup; "
        "atexit.register(lambda: pathlib.Path('shutdown').touch()); "
        "InterruptibleGroup.invoke = lambda *_: (pathlib.Path('deaf').touch(), time.sleep(600))"
    )
    assert sent(signal.SIGTERM, slow, ["warm-up"], tmp_path)[0] == 143
    assert not (tmp_path / "shutdown").exists()


def test_a_process_that_shall_ignore_interrupts_ignores_them(tmp_path):
    code = "import os, signal; from capi.cli.interrupts import answer_signals; answer_signals(); os.kill(os.getpid(), 2); print(1)"
    command = [sys.executable, "-c", f"import signal; signal.signal(2, signal.SIG_IGN); {code}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1\n"
