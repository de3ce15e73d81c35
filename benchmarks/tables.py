"""Reading a batch from a Parquet file, and describing it.

Peer: pyarrow reading the same file into one float array, the minimum work for the numbers. Each runs in its own process, to
measure its memory separately. A batch holds the state of each row twice, as state and as next state. The rows are sorted by
episode and time in the first line and shuffled in the second; the third line has strings as episode ids and as actions.

    python benchmarks/tables.py [ROWS]      default 2,000,000; 10,000,000 take about five minutes
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import capi.data.readers.read  # noqa: F401  its imports are not to be timed
from capi import Transitions

STATE = [f"x{j}" for j in range(16)]
ROLES = {"episode": "who", "time": "day", "state": STATE, "action": "drug", "reward": "gain"}
STEPS = 50  # rows per episode


def write(path, n, kind):
    rng = np.random.default_rng(0)
    rows = rng.permutation(n) if kind == "shuffled" else np.arange(n)
    table = {"who": rows // STEPS, "day": rows % STEPS, "drug": rng.integers(4, size=n), "gain": rng.normal(size=n)}
    if kind == "strings":
        table["who"] = pa.array(table["who"]).cast(pa.string())
        table["drug"] = pa.DictionaryArray.from_arrays(table["drug"], ["none", "low", "mid", "high"]).cast(pa.string())
    table.update({name: rng.normal(size=n) for name in STATE})
    pq.write_table(pa.table(table), path)


def read_array(path):
    table = pq.read_table(path)
    numbers = [column for column in table.columns if column.type != "string"]
    array = np.empty((len(table), len(numbers)))
    for j, column in enumerate(numbers):
        array[:, j] = column.to_numpy()
    return array


def read_batch(path):
    return Transitions.from_parquet(path, **ROLES)


def describe(path):
    return read_batch(path).describe()


def measured(job, path):
    """Return the seconds and megabytes of a job in its own process, excluding the memory of its imports."""
    done = subprocess.run([sys.executable, __file__, job, path], capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()))


def child(job, path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    globals()[job](path)
    print(time.perf_counter() - started, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main(n):
    print(f"{'rows x columns':28}{'pyarrow':>18}{'capi':>18}{'time':>8}{'memory':>8}{'describe':>12}")
    for kind in ("sorted", "shuffled", "strings"):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "table.parquet"))
            subprocess.run([sys.executable, __file__, "write", path, str(n), kind], check=True)
            theirs = min(measured("read_array", path) for _ in range(2))
            ours = min(measured("read_batch", path) for _ in range(2))
            described = measured("describe", path)
        ratios = f"{ours[0] / theirs[0]:7.1f}x{ours[1] / theirs[1]:7.1f}x{described[0] - ours[0]:10.1f} s"
        shown = [f"{seconds:7.2f} s {megabytes:5.0f} MB" for seconds, megabytes in (theirs, ours)]
        print(f"{f'{n} x {len(STATE) + 4}, {kind}':28}{shown[0]:>18}{shown[1]:>18}{ratios}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif len(sys.argv) > 2:
        child(sys.argv[1], sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
