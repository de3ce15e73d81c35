"""Batches larger than memory, and clusters. Each line runs in a process of its own, to measure its memory separately.

    python benchmarks/scale.py table [ROWS]        capi fit on one large table, default 5,000,000 rows x 8 columns, and capi predict
    python benchmarks/scale.py lstd [ROWS]         LSTDQ with 48 weights on Parquet files, default 100,000,000 rows x 10 float32 columns (4 GB)
    python benchmarks/scale.py fitted [ROWS...]    FittedQ + OptimalTrees on two Dask workers of 4 GiB, default 2,000,000 and 20,000,000 rows
    python benchmarks/scale.py overhead            Dask against threads of one process, 1,000,000 rows
    python benchmarks/scale.py peer [SEED...]      a fitted-Q loop with LightGBM, and one with LSTDQ, on the same two workers, 2,000,000 rows, default seeds 0, 1 and 2;
                                                   finished seeds are kept in benchmarks/records/scale
    python benchmarks/scale.py parts               seconds and bytes per row of reading, routing and one sweep, in one thread
    python benchmarks/scale.py evaluate [ROWS]     a policy's value from all rows of a log in parts, default 1,000,000 rows, and a description of it
    python benchmarks/scale.py same [ROWS] [SEEDS] returns of policies from partitions and from memory, default 100,000 rows, 10 seeds
    python benchmarks/scale.py hiv [ROWS] [SEEDS]  the same on simulated HIV patients, default 1,000,000 rows; finished seeds are kept in
                                                   benchmarks/records/scale, and only missing ones are computed

The data are a linear system that four actions push in different directions; rewards fall with the distance from zero.
"""

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dask import delayed
from distributed import Client, LocalCluster, wait
from sklearn.base import BaseEstimator, TransformerMixin

from capi import CAPI, PartitionedTransitions, Transitions, runs
from capi._utils.late import late
from capi.baselines import FittedQIteration
from capi.cli import app
from capi.datasets import load_hiv_batch
from capi.domains import HIV
from capi.evaluators import LSTDQ, FittedQ
from capi.evaluators.over_partitions import OverPartitions, Structure, next_leaves, own_leaves, swept
from capi.offline import evaluate
from capi.policies import Constant, EpsilonGreedy, Greedy
from capi.policy_spaces import OptimalTrees, Unrestricted
from capi.simulation import performance, sample_episodes

lightgbm = late("lightgbm")  # only the peer needs it: pip install capi[boosting]
STEPS, ACTIONS, AT_ONCE = 20, 4, 1_000_000
STATE = [f"x{j}" for j in range(8)]
ROLES = {"episode": "episode", "time": "time", "state": STATE, "action": "action", "reward": "reward"}
GIB = 2**30
HIV_STEPS = 200
RECORDS = Path(__file__).parent / "records" / "scale"


def block(n, seed, first, dtype=np.float64, width=8):
    """Return ``n`` rows of whole episodes as a table."""
    rng = np.random.default_rng([seed, first])
    episodes = n // STEPS
    x = np.empty((episodes, STEPS, width), dtype=dtype)
    x[:, 0] = rng.normal(size=(episodes, width))
    actions = rng.integers(ACTIONS, size=(episodes, STEPS))
    push = 0.5 * np.eye(width)[:ACTIONS]
    for t in range(1, STEPS):
        x[:, t] = 0.9 * x[:, t - 1] + push[actions[:, t - 1]] + 0.2 * rng.normal(size=(episodes, width))
    rewards = -np.abs(x[:, :, :ACTIONS]).sum(axis=2) + x[:, :, ACTIONS] * (actions == 1)
    columns = {
        "episode": np.repeat(np.arange(episodes) + first // STEPS, STEPS),
        "time": np.tile(np.arange(STEPS), episodes),
        **{f"x{j}": x[:, :, j].ravel() for j in range(width)},
        "action": actions.ravel(),
        "reward": rewards.ravel(),
    }
    return pa.table(columns)


def write(folder, n, seed=0, **options):
    """Write ``n`` rows to a folder, one file per million."""
    folder.mkdir(exist_ok=True)
    for first in range(0, n, AT_ONCE):
        pq.write_table(block(min(AT_ONCE, n - first), seed, first, **options), folder / f"{first:012d}.parquet")
    return folder


def alone(name, *arguments):
    """Run one measurement in a process of its own, and return what it found."""
    command = [sys.executable, __file__, "--alone", name, *map(str, arguments)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(found.stdout.splitlines()[-1])


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


# -- measurements ------------------------------------------------------------------------------------


def fit_table(path, out):

    roles = [
        "--episode",
        "episode",
        "--time",
        "time",
        "--state",
        ",".join(STATE),
        "--action",
        "action",
        "--reward",
        "reward",
    ]
    sizes = ["--space", "trees", "--max-depth", "4", "--n-iterations", "5", "--discount", "0.95"]
    started = time.perf_counter()
    app(["fit", path, "--out", out, *roles, *sizes], standalone_mode=False)
    return {"seconds": time.perf_counter() - started, "gib": peak()}


def predict_table(run, path, out):

    runs.predict_table(run, path, out)  # compiles
    started = time.perf_counter()
    n = runs.predict_table(run, path, out)
    return {"rows_per_second": n / (time.perf_counter() - started), "gib": peak()}


def lstd(folder):

    state = [f"x{j}" for j in range(10)]
    started = time.perf_counter()
    n = 0
    for file in sorted(Path(folder).iterdir()):
        n += pq.read_table(file, columns=[*state, "action", "reward", "episode"]).num_rows
    reading = time.perf_counter() - started
    started = time.perf_counter()
    batch = PartitionedTransitions.from_parquet(folder, **{**ROLES, "state": state})
    q = LSTDQ(Affine(12)).evaluate(Constant(1, ACTIONS), batch, discount=0.95)
    return {
        "rows": n,
        "weights": int(q.weights.size),
        "seconds": time.perf_counter() - started,
        "reading": reading,
        "gib": peak(),
    }


class Affine:
    """A constant, the columns, and the square of the first one: 12 features."""

    def __init__(self, width):
        self.width = width

    def __call__(self, states):
        return np.column_stack([np.ones(len(states)), states, states[:, 0] ** 2])


def learner(n_rounds=20):

    return CAPI(
        FittedQ(n_trees=30, n_sweeps=5, min_samples_split=50, n_jobs=-1),
        OptimalTrees(max_depth=3, n_thresholds=64, work_limit=500_000_000, n_jobs=-1),
        discount=0.95,
        n_iterations=n_rounds,
        random_state=0,
        keep="last",
        state_weights="batch",
    )


def cluster(memory="4GiB"):
    return LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", memory_limit=memory, silence_logs=logging.ERROR
    )  # fmt: skip


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def fitted(folder, n_rounds, sample_rows, rows=AT_ONCE, warm=0):

    with cluster() as workers, Client(workers) as client:
        settings = {"rows_per_partition": int(rows), "sample_rows": int(sample_rows), "executor": client}
        if int(warm):  # workers import and load machine code once
            learner(1).fit(PartitionedTransitions.from_parquet(folder, **settings, **ROLES))
        started = time.perf_counter()
        batch = PartitionedTransitions.from_parquet(folder, **settings, **ROLES)
        found = learner(int(n_rounds)).fit(batch)
        seconds = time.perf_counter() - started
        memory = max(client.run(resident).values())
    rounds = [round(row["seconds"], 2) for row in found.history_]
    return {
        "rows": len(batch),
        "seconds": seconds,
        "rounds": rounds,
        "worker_gib": memory,
        "gib": peak(),
        "return": simulated(found),
        "greedy": simulated(Greedy(found.q_).act),
    }


def threads(folder, n_rounds, sample_rows, rows=AT_ONCE, warm=0):

    settings = {"rows_per_partition": int(rows), "sample_rows": int(sample_rows)}
    if int(warm):
        learner(1).fit(PartitionedTransitions.from_parquet(folder, **settings, **ROLES))
    started = time.perf_counter()
    batch = PartitionedTransitions.from_parquet(folder, **settings, **ROLES)
    found = learner(int(n_rounds)).fit(batch)
    rounds = [round(row["seconds"], 2) for row in found.history_]
    return {"seconds": time.perf_counter() - started, "rounds": rounds, "gib": peak(), "return": simulated(found)}


def simulated(found, n=4000, steps=60):
    """Return the discounted return of a policy in the system that made the data."""
    rng = np.random.default_rng(7)
    x, total, push = rng.normal(size=(n, 8)), np.zeros(n), 0.5 * np.eye(8)[:ACTIONS]
    for t in range(steps):
        a = found.policy_.act(x) if hasattr(found, "policy_") else found(x)
        total += 0.95**t * (-np.abs(x[:, :ACTIONS]).sum(axis=1) + x[:, ACTIONS] * (a == 1))
        x = 0.9 * x + push[a] + 0.2 * rng.normal(size=x.shape)
    return float(total.mean())


class Bends(TransformerMixin, BaseEstimator):
    """A constant, the columns, how far each is above some of its quantiles, and the lesser of each pair of scaled columns.

    So values are piecewise linear and may depend on which of two columns is lower. Unlike products, these features grow no faster than the columns
    where good policies go and the log has few rows.
    """

    def fit(self, states, _=None):
        self.knots_ = np.quantile(states, (0.05, 0.3, 0.7), axis=0)
        self.centre_, self.scale_ = states.mean(axis=0), states.std(axis=0)
        return self

    def transform(self, states):
        above = np.tile(states, (1, len(self.knots_))) - self.knots_.ravel()
        scaled = (states - self.centre_) / self.scale_
        one, other = np.triu_indices(states.shape[1], 1)
        lesser = np.minimum(scaled[:, one], scaled[:, other])
        return np.column_stack([np.ones(len(states)), states, np.maximum(above, 0.0), lesser])


def linear(folder, n_rounds, n_sweeps):
    """Time fitted Q iteration with a piecewise linear function of each column and action: some sweeps of LSTDQ per round, and its greedy policy.

    The time has everything from the files to the policy; only the workers have imported the package before.
    """
    with cluster() as workers, Client(workers) as client:
        client.run(import_module, "capi.evaluators.over_partitions")
        started, cpu = time.perf_counter(), cpu_seconds(client)
        batch = PartitionedTransitions.from_parquet(folder, rows_per_partition=AT_ONCE // 2, executor=client, **ROLES)
        found = CAPI(
            LSTDQ(Bends(), n_sweeps=int(n_sweeps)), Unrestricted(), 0.95, int(n_rounds), random_state=0, keep="last", state_weights="batch"
        ).fit(batch)  # fmt: skip
        return {
            "seconds": round(time.perf_counter() - started, 1),
            "cpu_seconds": round(cpu_seconds(client) - cpu, 1),
            "rounds": [round(row["seconds"], 2) for row in found.history_],
            "sweeps_per_round": int(n_sweeps),
            "weights": int(found.q_.weights.size),
            "worker_gib": max(client.run(resident).values()),
            "return": simulated(found),
            "return_of_20000": simulated(found, 20_000),
        }


def cpu_seconds(client):
    """Return the CPU seconds of this process and all workers so far."""
    return time.process_time() + sum(client.run(time.process_time).values())


def peer(folder, n_sweeps):
    """Time sweeps of a fitted-Q iteration with LightGBM's Dask interface, 100 trees of 31 leaves a sweep (its defaults)."""

    with cluster() as workers, Client(workers) as client:
        frame = dd.read_parquet(str(folder)).repartition(npartitions=4).persist()
        wait(frame)
        parts = frame.to_delayed()
        pairs = [client.submit(_pairs, client.compute(part)) for part in parts]
        sizes = client.gather([client.submit(len, pair) for pair in pairs])
        arrays = [
            da.from_delayed(delayed(_itself)(pair), shape=(n, 2 * len(STATE) + 3), dtype=np.float64)
            for pair, n in zip(pairs, sizes, strict=True)
        ]
        table = da.concatenate(arrays).persist()
        wait(table)
        x, following = table[:, : len(STATE) + 1], table[:, len(STATE) + 1 : -2]
        rewards, ends = table[:, -2], table[:, -1]
        targets, times, model = rewards, [], None
        cpu = cpu_seconds(client)
        for _ in range(int(n_sweeps)):
            started = time.perf_counter()
            model = lightgbm.DaskLGBMRegressor(client=client, random_state=0, verbose=-1)
            model.fit(x, targets)
            booster = model.booster_
            best = da.map_blocks(_best, following, booster, dtype=np.float64, drop_axis=1)
            targets = (rewards + 0.95 * (1 - ends) * best).persist()
            wait(targets)
            times.append(round(time.perf_counter() - started, 2))
        cpu = cpu_seconds(client) - cpu
        memory = max(client.run(resident).values())
        value, closer = (simulated(lambda states: _greedy(states, booster), n) for n in (4000, 20_000))
    return {"sweeps": times, "cpu_seconds": round(cpu, 1), "worker_gib": memory, "return": value, "return_of_20000": closer}  # fmt: skip


def _itself(part):
    return part


def _pairs(frame):
    """Return (x, a, x', r, end) of a part."""
    x, a = frame[STATE].to_numpy(), frame[["action"]].to_numpy().astype(float)
    ends = (frame["time"] == STEPS - 1).to_numpy().astype(float)
    return np.column_stack([x, a, np.roll(x, -1, axis=0), frame["reward"], ends])


def _best(states, booster):
    values = [booster.predict(np.column_stack([states, np.full(len(states), float(a))])) for a in range(ACTIONS)]
    return np.max(values, axis=0)


def _greedy(states, booster):
    values = [booster.predict(np.column_stack([states, np.full(len(states), float(a))])) for a in range(ACTIONS)]
    return np.argmax(values, axis=0)


def parts(folder):
    """Time the three things that are done with a part, and count the bytes that stay with it."""

    batch = PartitionedTransitions.from_parquet(folder, n_jobs=1, sample_rows=100_000, **ROLES)
    survey = batch.survey(random_state=0)
    evaluator = OverPartitions(FittedQ(n_trees=30, min_samples_split=50), batch, survey)
    q = evaluator.on_sample.evaluate(Constant(1, ACTIONS), survey.sample, discount=0.95)
    structure, source = Structure.of(q, survey.sample), batch.sources[0]
    found, n = {}, survey.n_rows
    values = np.zeros(int(structure.starts[-1]))

    def timed(name, call):
        call()
        started = time.perf_counter()
        result = call()
        found[name] = 1e9 * (time.perf_counter() - started) / n
        return result

    timed("read", lambda: batch.load(0))
    own = timed("own", lambda: own_leaves(source, structure))
    ahead = timed("next", lambda: next_leaves(source, structure, Constant(1, ACTIONS), 0.95))
    timed("sweep", lambda: swept(own, ahead, values, True, 20))
    kept = [own.rewards, ahead.steps, *(a for part in (*own.asked, *ahead.look_ups.asked) for a in part[:2])]
    kept += [part.shares for part in ahead.look_ups.asked]
    found["bytes"] = sum(array.nbytes for array in kept) / n
    found["leaves"] = int(structure.starts[-1])
    return found


def evaluated(folder):
    """Evaluate a policy on all rows with the defaults, and describe them; CPU seconds."""
    batch = PartitionedTransitions.from_parquet(folder, rows_per_partition=250_000, **ROLES)
    started = time.process_time()
    batch.describe()
    described = time.process_time() - started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.process_time()
        found = evaluate(EpsilonGreedy(Constant(1, ACTIONS), 0.9), batch, discount=0.95, n_jobs=-1)
    return {
        "describe": described,
        "seconds": time.process_time() - started,
        "gib": peak(),
        "rows": found.n_rows,
        "standard_error": found.estimates["doubly-robust"].standard_error,
    }


def same(rows, seed):
    """Return the true returns of two policies, one learned from partitions and one in memory."""
    rows, seed = int(rows), int(seed)
    batch = Transitions.from_frame(block(rows, seed, 0), **ROLES)
    made = {}
    parts_of = PartitionedTransitions.of(batch, rows // 8, sample_rows=rows // 5)
    for name, data in (("memory", batch), ("partitions", parts_of)):
        started = time.perf_counter()
        found = learner(10).set_params(random_state=seed).fit(data)
        made[f"{name}_seconds"] = time.perf_counter() - started
        made[name] = simulated(found)
    return made


HIV_PATHS = ("memory", "partitions")


def hiv(rows, seed, *paths):
    """Return the true returns of policies from a log of HIV patients, one record per path: in memory, or from partitions.

    Doctors take 15 % of their decisions at random, and the others as a policy that was learned from the embedded table. The sample of the
    partitions has the default size, a tenth of a million rows. Both paths keep the best round, as they do by default. The trees of all rounds
    are simulated, too. Times are CPU seconds of one thread.
    """
    rows, seed = int(rows), int(seed)
    evaluator = FittedQ(n_trees=30, min_samples_split=50)
    doctor = FittedQIteration(evaluator, 0.98, 10, random_state=0).fit(load_hiv_batch()).policy_
    batch = sample_episodes(
        EpsilonGreedy(doctor, 0.15), HIV(), n_episodes=rows // HIV_STEPS, max_steps=HIV_STEPS, random_state=seed
    )

    def true_return(policy):
        return performance(policy, HIV(), n_episodes=1, max_steps=1000).mean

    made = []
    for path in paths:
        trees = []

        def noted(_, new, trees=trees, **__):
            trees.append(new)
            return new

        started = time.process_time()
        learner = CAPI(
            FittedQ(n_trees=30, n_sweeps=5, min_samples_split=50, n_jobs=1),
            OptimalTrees(max_depth=3, n_thresholds=32, work_limit=200_000_000, n_jobs=1),
            discount=0.98, n_iterations=10, random_state=seed, keep="best", state_weights="batch", update=noted,
        )  # fmt: skip
        found = learner.fit(batch if path == "memory" else PartitionedTransitions.of(batch, rows // 8, n_jobs=1))
        record = {"rows": len(batch), "seed": seed, "path": path, "keep": "best"}
        record["cpu_seconds"] = round(time.process_time() - started, 1)
        record["tree"], record["greedy"] = true_return(found.policy_), true_return(Greedy(found.q_))
        record["rounds"] = [float(f"{true_return(tree):.4g}") for tree in trees]
        made.append(record)
    return made


MEASURED = {
    f.__name__: f for f in (fit_table, predict_table, lstd, fitted, threads, linear, peer, parts, evaluated, same, hiv)
}


PEER_PATHS = {  # what runs on the log of a seed
    "LSTDQ, 2 rounds of 3 sweeps": lambda log: ("linear", log, 2, 3),
    "LightGBM": lambda log: ("peer", log, 5),
}


def compared(here, there):
    """Return a sentence about paired numbers from memory and from partitions."""
    more = there - here
    return (
        f"memory {here.mean():.2f} (worst {here.min():.2f}), partitions {there.mean():.2f} (worst {there.min():.2f}), "
        f"difference {more.mean():+.3f}, standard error {more.std(ddof=1) / np.sqrt(len(more)):.3f}"
    )


def main(name, *arguments):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if name == "table":
            n = int(arguments[0]) if arguments else 5_000_000
            path = folder / "table.parquet"
            with pq.ParquetWriter(path, block(STEPS, 0, 0).schema) as file:
                for first in range(0, n, AT_ONCE):
                    file.write_table(block(min(AT_ONCE, n - first), 0, first))
            found = alone("fit_table", path, folder / "run")
            print(f"capi fit, {n:,} rows: {found['seconds']:.0f} s, {found['gib']:.1f} GiB")
            found = alone("predict_table", folder / "run", path, folder / "out.parquet")
            print(f"capi predict: {found['rows_per_second'] / 1e6:.2f} million rows a second, {found['gib']:.1f} GiB")
        elif name == "lstd":
            n = int(arguments[0]) if arguments else 100_000_000
            write(folder / "log", n, dtype=np.float32, width=10)
            found = alone("lstd", folder / "log")
            print(
                f"LSTDQ, {found['rows']:,} rows, {found['weights']} weights: {found['seconds']:.0f} s, {found['gib']:.2f} GiB; reading alone {found['reading']:.0f} s"
            )
        elif name == "fitted":
            for n in map(int, arguments or (2_000_000, 20_000_000)):
                found = alone("fitted", write(folder / str(n), n), 20, 1_000_000)
                print(
                    f"fitted, {n:,} rows: {found['seconds']:.0f} s, {1e6 * found['seconds'] / n:.2f} us a row, workers {found['worker_gib']:.2f} GiB, return {found['return']:.3f}"
                )
        elif name == "overhead":
            log = write(folder / "log", 1_000_000)
            here, there = (alone(name, log, 5, 100_000, 250_000, 1) for name in ("threads", "fitted"))
            print(
                f"threads {here['seconds']:.1f} s, Dask {there['seconds']:.1f} s, ratio {there['seconds'] / here['seconds']:.2f}, same return {here['return'] == there['return']}"
            )
        elif name == "peer":
            seeds, records = [int(seed) for seed in arguments or (0, 1, 2)], RECORDS / "peer.jsonl"
            known = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
            for seed in seeds:
                there = {record["path"] for record in known if record["seed"] == seed}
                if missing := [path for path in PEER_PATHS if path not in there]:
                    log = write(folder / f"log{seed}", 2_000_000, seed)
                    for path in missing:
                        known.append({"seed": seed, "path": path, **alone(*PEER_PATHS[path](log))})
                        with records.open("a") as file:
                            file.write(json.dumps(known[-1]) + "\n")
            for record in known:
                if record["seed"] in seeds:
                    closer = (
                        f", of 20,000 episodes {record['return_of_20000']:.2f}" if "return_of_20000" in record else ""
                    )
                    print(
                        f"seed {record['seed']}, {record['path']}: {record['cpu_seconds']:.0f} CPU s, return {record['return']:.2f}{closer}"
                    )
        elif name == "parts":
            found = alone("parts", write(folder / "log", 1_000_000))
            print(", ".join(f"{key} {value:.0f}" for key, value in found.items()), "(ns per row; 30 trees)")
        elif name == "evaluate":
            n = int(arguments[0]) if arguments else 1_000_000
            found = alone("evaluated", write(folder / "log", n))
            print(f"describe and evaluate, {n:,} rows: {json.dumps(found)} (CPU seconds)")
        elif name == "same":
            rows, n = (int(a) for a in (*arguments, *(100_000, 10)[len(arguments) :]))
            for seed in range(n):
                found = alone("same", rows, seed)
                print(seed, json.dumps({key: round(value, 2) for key, value in found.items()}), flush=True)
        elif name == "hiv":
            rows, n = (int(a) for a in (*arguments, *(1_000_000, 10)[len(arguments) :]))
            RECORDS.mkdir(parents=True, exist_ok=True)
            records = RECORDS / "hiv.jsonl"
            known = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
            for seed in range(n):
                there = {record["path"] for record in known if (record["rows"], record["seed"]) == (rows, seed)}
                if missing := [path for path in HIV_PATHS if path not in there]:
                    new = alone("hiv", rows, seed, *missing)
                    known += new
                    with records.open("a") as file:
                        file.writelines(json.dumps(record) + "\n" for record in new)
            mine = {(r["path"], r["seed"]): r for r in known if r["rows"] == rows and r["seed"] < n}
            for kind in ("tree", "greedy", "rounds"):
                of = {
                    path: np.array([np.log10(mine[path, seed][kind]).mean() for seed in range(n)]) for path in HIV_PATHS
                }
                for path in HIV_PATHS[1:]:
                    said = compared(of["memory"], of[path])
                    print(f"{kind}: log10 of the return, {rows:,} rows, {n} seeds, {path}: {said}")
                print(kind, {path: f"median {10 ** np.median(x):.3g}" for path, x in of.items()})
            for path in HIV_PATHS:
                seconds = np.median([mine[path, seed]["cpu_seconds"] for seed in range(n)])
                print(f"{path}: {seconds:.0f} CPU seconds (median)")
        else:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(MEASURED[sys.argv[2]](*sys.argv[3:])))
    else:
        main(*(sys.argv[1:] or [""]))
