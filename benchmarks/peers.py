"""Other libraries on the same logs: true returns and CPU times of d3rlpy and of fitted Q iteration with LightGBM.

    python benchmarks/peers.py                                       # print the table from the records; runs nothing
    python benchmarks/peers.py logs [PROBLEM ...] --logs FOLDER      # make the logs; needs capi
    python benchmarks/peers.py run [PROBLEM ...] --logs FOLDER       # run what is missing; needs d3rlpy, not capi

d3rlpy pins an older Gymnasium, so that it gets an environment of its own; LunarLander needs Box2D in both:

    python -m venv peers && peers/bin/pip install d3rlpy==2.8.1 gymnasium==1.0.0 Box2D lightgbm
    python -m venv lunar && lunar/bin/pip install -e . "gymnasium[box2d]" lightgbm
    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    lunar/bin/python benchmarks/peers.py logs --logs FOLDER
    nice -n 15 peers/bin/python benchmarks/peers.py run --logs FOLDER [--capi lunar/bin/python]

The logs have 5,000 rows (LunarLander also 20,000), and half of their decisions are random, the others those of a heuristic; HIV
is the table of the package. All methods learn from the same files, and play the same test episodes (100, LunarLander 50) in the
Gymnasium of d3rlpy, whose LunarLander-v3 takes the same steps as the current one. Finished runs are in benchmarks/records/peers and are
never computed again. Policies with a small budget come from the same run as those with a large one. CPU times are those of
learning only, on one thread; a gradient step takes 3 to 4 ms, so that the large budget is 30,000. Besides its defaults, d3rlpy also
runs with the learning rate and the target updates of its tutorial on CartPole (2.5e-4, every 100 steps). HIV (--capi: a Python that has capi simulates the patient) only runs if it is named.
"""

import argparse
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from comparison.records import Records
from comparison.table import text
from comparison.worlds import HEURISTICS, WORLDS, log_path, logged_returns, random_actions, returns_of

FOLDER = Path(__file__).parent / "records" / "peers"
METHODS = {  # budgets, which one run gives: sweeps of LightGBM, gradient steps of d3rlpy
    "random": (None,),
    "log": (None,),
    "heuristic": (None,),
    "imitation": (None,),
    "lightgbm": (20, 50),
    "lightgbm-restricted": (20, 50),
    "cql": (10_000, 30_000),
    "double-dqn": (10_000, 30_000),
    "cql-tutorial": (10_000, 30_000),
    "double-dqn-tutorial": (10_000, 30_000),
}
NAMED = [name for name in WORLDS if name != "HIV"]
PACKAGES = ("d3rlpy", "torch", "lightgbm", "gymnasium", "numpy")


def policies(method, log, world, seed):
    """Yield (budget, policy, CPU seconds) of a method."""
    if method == "random":
        yield None, random_actions(world, seed), 0.0
    elif method == "heuristic":
        yield None, HEURISTICS[world.name], 0.0
    elif method in ("imitation", "lightgbm", "lightgbm-restricted"):
        from comparison import boosting  # noqa: PLC0415 - not in every environment

        if method == "imitation":
            yield from boosting.imitation(log, world, seed)
        else:
            yield from boosting.fitted_q(log, world, seed, METHODS[method], restricted=method == "lightgbm-restricted")
    else:
        from comparison import networks  # noqa: PLC0415 - not in every environment

        algorithm = method.removesuffix("-tutorial")
        settings = "defaults" if method == algorithm else "tutorial"
        yield from networks.trained(log, world, seed, METHODS[method], algorithm, settings)


def run(world, n_rows, seed, options, records):
    """Run the methods that have no records yet, and add their records."""
    with np.load(log_path(world, n_rows, seed, options.logs)) as file:
        log = {name: file[name] for name in file.files}
    for method in options.methods:
        if world.name == "HIV" and method == "heuristic":
            continue  # there is none
        of = {"problem": world.name, "rows": n_rows, "method": method}
        if all(records.has({**of, "budget": budget}, seed) for budget in METHODS[method]):
            continue
        if method == "log":
            found = [(None, logged_returns(log, world), 0.0)]
        else:
            found = (
                (budget, returns_of(policy, world, options.capi), seconds)
                for budget, policy, seconds in policies(method, log, world, seed)
            )
        for budget, returns, seconds in found:
            results = {
                "return": float(f"{returns.mean():.6g}"),
                "standard_error": float(f"{returns.std() / np.sqrt(len(returns)):.3g}"),
                "n_episodes": len(returns),
                "cpu_seconds": round(seconds, 2),
            }
            records.add({**of, "budget": budget}, seed, results, versions())
            print(world.name, n_rows, seed, method, budget, results, flush=True)


def versions():
    """Return the versions of what computes the results."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("table", "logs", "run"), default="table")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=f"problems: {', '.join(WORLDS)}")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="folder of the logs")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--capi", metavar="PYTHON", default=sys.executable, help="a Python that has capi, for HIV")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the records")
    options = parser.parse_args(arguments)
    if unknown := set(options.problems) - set(WORLDS):
        parser.error(f"unknown problem {min(unknown)!r}: choose from {', '.join(WORLDS)}.")
    if options.command == "table":
        print(text(Records(options.folder)))
        return
    if options.logs is None:
        parser.error("the folder of the logs must be given: --logs FOLDER.")
    worlds = [WORLDS[name] for name in options.problems or NAMED]
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for world in worlds:
            for n_rows in world.sizes:
                if options.command == "logs":
                    from comparison.logs import make_log  # noqa: PLC0415 - needs capi, which d3rlpy's environment lacks

                    make_log(world, n_rows, seed, options.logs)
                else:
                    run(world, n_rows, seed, options, Records(options.folder))


if __name__ == "__main__":
    main()
