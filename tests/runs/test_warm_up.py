"""`capi warm-up` compiles everything that the other commands use."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from capi.cli import app
from capi.runs import parts_to_compile
from small_runs import OPTIONS

USE = """
import sys
from capi._utils import compiling

def refuse(**_):
    raise SystemExit("something is compiled after warm-up")

compiling.started = refuse
from capi.cli import main
main()
"""


@pytest.mark.compiled
def test_it_names_its_parts_and_where_the_machine_code_is(monkeypatch):
    few = {name: use for name, use in parts_to_compile().items() if name in ("trees and forests", "simulators")}
    monkeypatch.setattr("capi.runs.warm_up.parts_to_compile", lambda: few)
    done = CliRunner().invoke(app, ["warm-up"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == list(few)
    assert lines[2].startswith("cache  ")
    assert lines[2].endswith(" MB")


@pytest.mark.slow
@pytest.mark.compiled
def test_afterwards_nothing_is_compiled(table, tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def capi(*arguments, code=USE):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = capi("warm-up", code="from capi.cli import main; main()")
    assert str(tmp_path / "cache") in told
    for space in ("optimal-trees", "trees", "forests", "thresholds", "linear", "neighbors"):
        run = f"run-{space}"
        capi(
            "fit",
            table,
            "--out",
            run,
            *OPTIONS,
            "--n-iterations=3",
            f"--space={space}",
            "--hold-out=0.3",
            "--keep=best",
        )
        capi("evaluate", run, "--n-resamples=20")
        capi("predict", run, table, "--out", f"{space}.csv")
    capi("report", "run-trees")
    capi("evaluate", "run-trees", "--folds=2", "--n-resamples=20")
