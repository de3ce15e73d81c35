"""Optimal decision trees of a given depth, with certificates.

CPU seconds of one thread, medians; compilation is not timed. Each peer runs in the same process on the same table, and both
must find the same optimum. Without a peer, or if it is not installed, its column says so.

- Binary columns: random zeros and ones, losses of each action that depend on some of them. Peer: STreeD (pystreed),
  instance-cost-sensitive task with its defaults; converting the costs is not timed.
- Continuous columns, classification, all cuts: tables of scikit-learn and generated ones, and those of ``--data``, a folder
  with ``bank.txt.gz`` and ``magic.txt.gz`` as the authors of ConTree distribute them. Peer: ConTree (pycontree).
- Real-valued losses on quantiles: sines of random directions of normal states, a bonus per action where the first two
  features have the same sign, and noise. Peer: STreeD, on the same cut points as binary columns; at depth three only with
  half the rows and cuts. policytree (R) is not run: its authors report about 90 s for the size of the last row.
"""

import argparse
import gzip
import statistics
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
from sklearn import datasets

from capi.loss import regrets
from capi.policy_spaces import OptimalTrees
from capi.policy_spaces.trees._binned import Binned

JUDGED = 0.02  # seconds: tables where both are faster are not judged


def problem(n, d, n_actions, seed=0):
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, d))
    values = np.sin(states @ rng.normal(size=(d, n_actions)) / max(1.0, np.sqrt(d / 6)))
    values += 0.5 * (states[:, :1] * states[:, 1:2] > 0) * rng.normal(size=n_actions)
    return states, values + 0.3 * rng.normal(size=(n, n_actions))


def binary_problem(n, d, n_actions, seed=0):
    rng = np.random.default_rng(seed)
    states = (rng.random((n, d)) < 0.5).astype(float)
    return states, -np.rint(1000 * rng.random((n, n_actions)) * (1 + states[:, :n_actions]))


def classified(n, d, classes=2):
    return datasets.make_classification(
        n, d, n_informative=min(d, 5), n_redundant=0, n_classes=classes, flip_y=0.1, random_state=0
    )


def continuous_tables(folder):
    """Yield names, states and classes."""
    rng = np.random.default_rng(0)
    for name in ("breast_cancer", "wine", "iris", "digits"):
        yield name, *getattr(datasets, f"load_{name}")(return_X_y=True)
    for n, d, classes in ((1000, 10, 2), (5000, 8, 2), (20_000, 6, 2), (3000, 12, 4)):
        yield f"classes {classes}", *classified(n, d, classes)
    x, y = datasets.make_moons(4000, noise=0.3, random_state=0)
    yield "moons and noise", np.column_stack([x, rng.normal(size=(4000, 3))]), y
    x = rng.normal(size=(50_000, 4))
    yield "exclusive or", x, ((x[:, 0] > 0.3) ^ (x[:, 1] > -0.5) ^ (rng.random(50_000) < 0.1)).astype(int)
    x = np.round(rng.normal(size=(10_000, 8)), 1)
    yield "rounded", x, (x[:, 0] * x[:, 1] + 0.5 * x[:, 2] > 0.2).astype(int)
    x, y = datasets.make_friedman1(6000, 10, noise=1, random_state=1)
    yield "Friedman 1", x, (y > 14.5).astype(int)
    if folder is not None:
        for name in ("bank", "magic"):
            with gzip.open(folder / f"{name}.txt.gz") as lines:
                table = np.loadtxt(lines)
            yield name, table[:, 1:], table[:, 0].astype(int)


def cpu_seconds(call, repeats):
    """Return the median CPU seconds of several calls, and the result of the last one."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        result = call()
        times.append(time.process_time() - started)
    return statistics.median(times), result


def streed(states, values, depth):
    """Return the CPU seconds and the mean loss of STreeD's tree, or None if it is not installed."""
    for name in ("sksurv", "sksurv.util", "sksurv.tree", "sksurv.tree._criterion", "sksurv.tree.tree"):
        sys.modules.setdefault(name, MagicMock())  # another of its tasks needs it
    try:
        from pystreed import CostVector, STreeDInstanceCostSensitiveClassifier  # noqa: PLC0415
    except ImportError:
        return None
    lost = regrets(values)
    costs = [CostVector(row) for row in lost]
    model = STreeDInstanceCostSensitiveClassifier(max_depth=depth, time_limit=3600)
    seconds, _ = cpu_seconds(lambda: model.fit(states.astype(np.intc), costs), 1)
    chosen = model.predict(states.astype(np.intc)).astype(int)
    return seconds, float(lost[np.arange(len(lost)), chosen].mean())


def on_cuts(states, n_thresholds):
    """Return the cuts between the bins of all features as binary columns."""
    binned = Binned.of(states, n_thresholds)
    return np.concatenate([binned.codes[:, v, None] > np.arange(n - 1) for v, n in enumerate(binned.n_bins)], axis=1)


def contree(states, classes, depth, repeats, limit):
    """Return the CPU seconds and the share of errors of ConTree's tree, or None if it is not installed."""
    try:
        import pandas as pd  # noqa: PLC0415
        from pycontree import ConTree  # noqa: PLC0415
    except ImportError:
        return None
    table, labels = pd.DataFrame(states), pd.Series(classes)
    model = ConTree(max_depth=depth, time_limit=limit)
    seconds, _ = cpu_seconds(lambda: model.fit(table, labels), repeats)
    return seconds, float((np.asarray(model.predict(table)) != classes).mean())


def row(name, space, states, values, peer, repeats=3):
    """Print one row; return the ratio of the CPU seconds, None without a peer or if both are fast."""
    seconds, policy = cpu_seconds(lambda: space.improve(states, values), repeats)
    lost = regrets(values)
    loss = float(lost[np.arange(len(lost)), policy.act(states)].mean())
    proof = "optimal" if policy.optimal else "on cuts" if policy.optimal_on_cuts else policy.stopped_by
    size = f"{name}: {len(states):,} x {states.shape[1]} x {values.shape[1]}, depth {space.max_depth}"
    text = f"{size:48}{seconds:9.3f} s{loss:12.6f}  {proof:10}"
    if peer is None:
        print(f"{text}{'no peer':>12}", flush=True)
        return None
    theirs, its_loss = peer
    same = "same loss" if np.isclose(loss, its_loss) else f"loss {its_loss:.6f}"
    print(f"{text}{theirs:9.3f} s{theirs / seconds:8.2f}x  {same}", flush=True)
    return theirs / seconds if max(seconds, theirs) > JUDGED else None


def summary(ratios):
    judged = [ratio for ratio in ratios if ratio is not None]
    if judged:
        print(
            f"{len(judged)} judged: geometric mean {statistics.geometric_mean(judged):.2f}x, least {min(judged):.2f}x"
        )


def binary_rows():
    sizes = [
        (500, 30, 2, 4),
        (10_000, 30, 2, 3),
        (10_000, 60, 10, 3),
        (1000, 400, 2, 2),
        (1000, 80, 2, 3),
        (1000, 32, 2, 4),
    ]
    ratios = []
    for n, d, n_actions, depth in sizes:
        states, values = binary_problem(n, d, n_actions)
        ratios.append(row("binary", OptimalTrees(depth, None, 1), states, values, streed(states, values, depth)))
    summary(ratios)


def continuous_rows(depth, folder, limit):
    ratios = []
    for name, states, labels in continuous_tables(folder):
        classes = np.unique(labels, return_inverse=True)[1]
        repeats = 5 if depth == 2 else 1
        peer = contree(states, classes, depth, repeats, limit)
        space = OptimalTrees(depth, n_thresholds=65_000, min_samples_leaf=1, time_limit=limit)
        ratios.append(row(name, space, states, np.eye(classes.max() + 1)[classes], peer, repeats))
    summary(ratios)


def quantile_rows():
    sizes = [(60_000, 2, 64, True), (30_000, 3, 32, True), (60_000, 3, 64, False), (60_000, 4, 16, False)]
    for n, depth, cuts, beside in sizes:
        states, values = problem(n, 6, 4)
        peer = streed(on_cuts(states, cuts), values, depth) if beside else None
        row(f"{cuts} cuts", OptimalTrees(depth, cuts, 1), states, values, peer, 1 if depth == 4 else 3)
    states, values = problem(1000, 30, 20)
    row("all cuts", OptimalTrees(2, 999, 1), states, values, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with bank.txt.gz and magic.txt.gz")
    parser.add_argument("--depth-three", action="store_true", help="also all cuts at depth three, which takes minutes")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per table at depth three")
    options = parser.parse_args()
    for depth in (2, 3, 4):  # compile
        OptimalTrees(depth).improve(*binary_problem(200, 6, 2))
        for n_actions in (2, 3):
            OptimalTrees(depth, n_thresholds=30 if depth < 4 else 3).improve(*problem(200, 3, n_actions))
    OptimalTrees(3, n_thresholds=16).improve(*problem(5000, 4, 4))
    print(f"{'rows x features x actions':48}{'capi':>11}{'loss':>12}{'':12}{'peer':>11}{'ratio':>9}")
    binary_rows()
    continuous_rows(2, options.data, options.limit)
    if options.depth_three:
        continuous_rows(3, options.data, options.limit)
    quantile_rows()


if __name__ == "__main__":
    main()
