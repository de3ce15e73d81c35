"""How long `capi fit` with default settings takes on two tables that people bring, in a process of its own.

- stays: 33,000 hourly rows of intensive-care-like stays of 3 to 30 steps; six numbers, two categories, missing values, four
  actions, and a reward at the end only; 30 % of the stays are held out.
- patients: 2,700 rows, 148 numbers, three actions, one decision each (discount 0).

Both are simulated. Kernels are compiled before (`capi warm-up`). There is no peer: no other tool learns a tree policy from such a table.

    python benchmarks/first_fit.py [stays] [patients]
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STAYS, PATIENTS = 2_000, 2_700
TO_REACH = {"stays": 60, "patients": 10}  # seconds
WARDS, UNITS = ("medical", "surgical", "cardiac", "trauma"), ("north", "south", "east")


def stays(path):
    """Write stays in which pressure and oxygen drift, doses shift them, and both decide how a stay ends."""
    rng = np.random.default_rng(0)
    columns = {
        name: []
        for name in ("stay", "hour", "dose", "outcome", "age", "pressure", "oxygen", "lactate", "rate", "urine")
    }
    wards, units = [], []
    for stay in range(STAYS):
        n, age, severity = int(rng.integers(3, 31)), rng.uniform(20, 90), rng.normal()
        pressure, oxygen = 65 - 4 * severity, 93 - severity
        for hour in range(n):
            dose = int(rng.integers(4)) if rng.random() < 0.5 else int(np.clip((70 - pressure) / 6, 0, 3))
            row = {
                "stay": stay,
                "hour": hour,
                "dose": dose,
                "age": age,
                "pressure": pressure + rng.normal(),
                "oxygen": oxygen + rng.normal(scale=0.5),
                "lactate": np.exp(0.3 * severity + 0.2 * rng.normal()),
                "rate": 80 + 5 * severity + 5 * rng.normal(),
                "urine": max(0.0, 40 + 10 * rng.normal() - 5 * severity),
            }
            severity += 0.15 * rng.normal() + 0.02 * (dose - 1.5) * (pressure - 68) / 5
            pressure += 1.5 * dose - 2 - 0.5 * severity + rng.normal()
            oxygen += 0.1 * (95 - oxygen) - 0.2 * severity + 0.3 * rng.normal()
            row["outcome"] = float(100 * (rng.random() < 1 / (1 + np.exp(severity)))) if hour == n - 1 else 0.0
            for name, value in row.items():
                columns[name].append(value)
        wards += [WARDS[int(rng.integers(4))]] * n
        units += [UNITS[int(rng.integers(3))]] * n
    for name in ("oxygen", "lactate", "urine"):
        measured = np.array(columns[name])
        measured[rng.random(len(measured)) < 0.2] = np.nan
        columns[name] = pa.array(measured, from_pandas=True)
    pq.write_table(pa.table({**columns, "ward": wards, "unit": units}), path)
    named = ["--episode", "stay", "--time", "hour", "--action", "dose", "--reward", "outcome", "--state", "*"]
    return [*named, "--hold-out", "0.3"]


def patients(path):
    """Write one decision per patient, whose effect depends on three of the columns."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(PATIENTS, 148))
    drug = rng.integers(3, size=PATIENTS)
    gain = np.choose(drug, [x[:, 3], x[:, 70] * (x[:, 3] > 0), 0.5 - x[:, 120]]) + rng.normal(size=PATIENTS)
    pq.write_table(pa.table({**{f"x{j}": x[:, j] for j in range(148)}, "drug": drug, "gain": gain}), path)
    return ["--action", "drug", "--reward", "gain", "--state", "*", "--discount", "0"]


def main():
    subprocess.run([sys.executable, "-m", "capi.cli", "warm-up", "--quiet"], check=True)
    print(f"{'table':10}{'rows':>8}{'seconds':>10}{'CPU s':>8}{'to reach':>10}   cores: {len(os.sched_getaffinity(0))}")
    for name in sys.argv[1:] or TO_REACH:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.parquet"
            options = {"stays": stays, "patients": patients}[name](path)
            started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [
                sys.executable,
                "-m",
                "capi.cli",
                "fit",
                str(path),
                "--out",
                f"{folder}/run",
                "--quiet",
                *options,
            ]
            subprocess.run(command, check=True)
            seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{name:10}{pq.read_metadata(path).num_rows:8}{seconds:10.1f}{cpu:8.1f}{TO_REACH[name]:10}", flush=True
            )


if __name__ == "__main__":
    main()
