"""An experiment that squares numbers, and obeys files in a folder: how its runs fail, wait or die.

Worker processes import it, so it talks to tests through files alone.
"""

import os
import signal
import sys
import time
from pathlib import Path

from capi.experiments.experiment import Claim
from capi.experiments.setting import Setting

COLUMNS = ("x", "seed", "square")
SEEDS = {"quick": 1, "full": 3}
NUMBERS = (1, 2, 3)

folder = None  # set by tests before settings() is called


def settings(size):
    return [Setting(f"numbers/{x}", {"x": x, "folder": str(folder)}) for x in NUMBERS]


def run(values, seed, n_jobs):
    x, place = values["x"], Path(values["folder"])
    with (place / "calls").open("a") as calls:  # one short write: lines of several processes do not mix
        calls.write(f"{x} {seed} {os.getpid()}\n")
    while (place / f"wait-{x}").exists():
        (place / f"beat-{x}").write_text(str(time.perf_counter()))
        time.sleep(0.01)
    if (place / f"fail-{x}").exists():
        raise ArithmeticError(f"cannot square {x}")
    if (place / f"die-{x}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write("what a run prints must not disturb the replies\n")
    return {"square": x * x + (place / "shifted").exists(), "nothing": float("nan"), "seconds": time.perf_counter()}


def table(records):
    return [{name: record[name] for name in COLUMNS} for record in records]


def summary(rows):
    return "squares", ["x"], [[str(row["x"])] for row in rows]


def figures(rows):
    return {}


def claims(records):
    numbers = {"n": len(records), "se": float("nan"), "list": [float("inf"), 1.0]}
    return {"grows": Claim("They grow.", "nowhere", None, numbers)}


def calls():
    """Return the numbers and seeds that were run so far, in order."""
    path = folder / "calls"
    return [tuple(map(int, line.split()[:2])) for line in path.read_text().splitlines()] if path.exists() else []


def processes():
    """Return the ids of the processes that have run something."""
    return {int(line.split()[2]) for line in (folder / "calls").read_text().splitlines()}
