"""`capi warm-up` compiles everything that the other commands use."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from capi.cli import app
from capi.runs import parts_to_compile
from small_runs import OPTIONS

RECORD = """
import shlex
import sys
from pathlib import Path
from capi._utils import kernel_cache
from capi._utils.compile import VARIANT

kind, asked = kernel_cache._cache_class(VARIANT), set()
load = kind.load_overload

def recorded(self, signature, context):
    asked.add(f"{self._py_func.__module__}.{self._py_func.__qualname__}{signature}")
    return load(self, signature, context)

kind.load_overload = recorded
from typer.testing import CliRunner
from capi.cli import app

for line in sys.stdin:
    done = CliRunner().invoke(app, shlex.split(line))
    if done.exit_code:
        raise SystemExit(f"{line}{done.output}{done.exception!r}")
Path(sys.argv[1]).write_text("\\n".join(sorted(asked)))
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


def kernels(folder, *commands):
    """Return the kernels that these commands ask for, with their signatures, in a process of their own.

    Whether they are stored already does not matter, so nothing is compiled for this test alone.
    """
    script = [sys.executable, "-c", RECORD, "asked.txt"]
    done = subprocess.run(script, cwd=folder, input="\n".join(commands), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set((folder / "asked.txt").read_text().splitlines())


def variants(table, folder):
    """Write the table with missing values and with categories, too, and return the names of all files."""
    plain = pd.read_csv(table)
    missing, categories = plain.copy(), plain.copy()
    missing.loc[::7, "age"] = np.nan
    categories["age"] = np.array(["young", "adult", "old", "very old"])[np.arange(len(plain)) % 4]
    tables = {"plain": plain, "missing": missing, "categories": categories}
    for name, frame in tables.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return tables


@pytest.mark.slow
@pytest.mark.compiled
def test_afterwards_nothing_is_compiled(table, tmp_path):
    options, later = " ".join(OPTIONS), []
    for name in variants(table, tmp_path):
        later.append(f"fit {name}.csv --out {name} {options}")
        later.append(f"fit {name}.csv --out {name}-one-step {options} --discount=0")
    for space in ("optimal-trees", "trees", "forests", "thresholds", "linear", "neighbors --with-states"):
        run = f"run-{space.split()[0]}"
        later.append(f"fit plain.csv --out {run} {options} --n-iterations=3 --hold-out=0.3 --keep=best --space={space}")
        later.append(f"evaluate {run} --n-resamples=20")
        later.append(f"predict {run} plain.csv --out {run}.csv")
    later += ["report run-trees", "evaluate run-trees --folds=2 --n-resamples=20"]
    compiled = kernels(tmp_path, "warm-up")  # first: a kernel that is compiled asks for those that it calls, too
    assert sorted(kernels(tmp_path, *later) - compiled) == []
