"""Time saved by disabling reference counting in the kernels that grow trees (`capi._utils.compile.COUNTS_REFERENCES`).

Uses two copies of the package, one with reference counting, each with its own machine code. They run alternately, each time
in a new process, five times each; a run measures the CPU time of fits on one thread. Run it on an idle machine: CPU time also
depends on what else uses the caches.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).parent.parent / "src" / "capi"
SWITCH = "COUNTS_REFERENCES = False"
N_RUNS, TREES, SPLIT = 5, 30, 50
SIZES = {6_000: 20, 60_000: 4}  # rows: number of fits, of which the fastest counts
RUN = f"""
import sys, time
import numpy as np
from capi.trees import ExtraTreesRegressor

n, n_fits = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
X = rng.normal(size=(n, 7))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
seconds = []
for _ in range(n_fits + 1):  # the first one compiles, or loads compiled code
    started = time.process_time()
    ExtraTreesRegressor({TREES}, min_samples_split={SPLIT}, n_jobs=1, random_state=0).fit(X, y)
    seconds.append(time.process_time() - started)
print(min(seconds[1:]))
"""


def copy_of_package(folder, counts):
    """Return a folder with a copy of the package, with or without reference counting."""
    copy = shutil.copytree(PACKAGE, folder / "capi", ignore=shutil.ignore_patterns("__pycache__"))
    homes = [path for path in Path(copy).rglob("*.py") if SWITCH in path.read_text()]
    if len(homes) != 1:
        sys.exit(f"exactly one file must contain the line {SWITCH!r}; got {[str(path) for path in homes]}")
    homes[0].write_text(homes[0].read_text().replace(SWITCH, f"COUNTS_REFERENCES = {counts}"))
    return folder


def seconds(folder, n, n_fits):
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", RUN, str(n), str(n_fits)]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main():
    with tempfile.TemporaryDirectory() as name:
        folders = [copy_of_package(Path(name) / str(counts), counts) for counts in (True, False)]
        for folder in folders:
            seconds(folder, 100, 1)  # compile
        for n, n_fits in SIZES.items():
            pairs = [[seconds(folder, n, n_fits) for folder in folders] for _ in range(N_RUNS)]
            savings = [100 * (1 - without / counting) for counting, without in pairs]
            counting, without = (median(column) for column in zip(*pairs, strict=True))
            print(
                f"fit {n} x 7, {TREES} trees: {counting * 1e3:.1f} ms with counting, {without * 1e3:.1f} ms without; "
                f"saved {median(savings):.1f} % (median), {min(savings):.1f} to {max(savings):.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
