"""Growing and evaluating forests, and fitted Q iteration with them.

Peers in the same process, all on two cores: scikit-learn's ExtraTreesRegressor with the same settings, econml's PolicyForest,
which stops growing far earlier than ours, and LightGBM with its defaults, for orientation. The loop over a peer is the usual
one: fit on states and action, predict all actions at the next states, take the maximum.
"""

import threading
import time
from pathlib import Path

import numpy as np
from econml.policy import PolicyForest
from lightgbm import LGBMRegressor
from sklearn.ensemble import ExtraTreesRegressor as Peer
from timing import best_of

from capi import Transitions
from capi.baselines import FittedQIteration
from capi.evaluators import FittedQ
from capi.policy_spaces import Forests
from capi.trees import ExtraTreesRegressor

N_JOBS, TREES, SPLIT = 2, 30, 50


def line(name, ours, theirs=None):
    peer = "" if theirs is None else f"{theirs * 1e3:11.1f} ms{theirs / ours:7.1f}x"
    print(f"{name:58}{ours * 1e3:10.1f} ms{peer}", flush=True)


def regression(n, rng):
    X = rng.normal(size=(n, 7))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)


def batch(n, rng, n_actions=4):
    """Return transitions of a noisy linear system in six dimensions with four pushes and a quadratic reward."""
    states, actions = rng.normal(size=(n, 6)), rng.integers(n_actions, size=n)
    push = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])[actions]
    following = 0.8 * states + 0.1 * rng.normal(size=(n, 6))
    following[:, :2] += 0.5 * push - 0.25
    rewards = -np.square(states).sum(axis=1) - 0.1 * push.sum(axis=1)
    return Transitions(states, actions, rewards, following, np.zeros(n, dtype=bool), n_actions=n_actions)


def extra_trees(k):
    return Peer(TREES, min_samples_split=SPLIT, n_jobs=N_JOBS, random_state=k)


def boosted(k):
    return LGBMRegressor(n_jobs=N_JOBS, random_state=k, verbose=-1)


def peer_iterations(t, n_iterations, discount, model):
    """Return the seconds of fitted Q iteration with a loop over a peer's models."""
    inputs = np.column_stack([t.states, t.actions])
    every = [np.column_stack([t.next_states, np.full(len(t), a)]) for a in range(t.n_actions)]
    started, q = time.perf_counter(), None
    for k in range(n_iterations):
        targets = t.rewards if q is None else t.rewards + discount * np.max([q.predict(x) for x in every], axis=0)
        q = model(k).fit(inputs, targets)
    return time.perf_counter() - started


def our_iterations(t, n_iterations, discount, **options):
    evaluator = FittedQ(n_trees=TREES, min_samples_split=SPLIT, n_jobs=N_JOBS, **options)
    started = time.perf_counter()
    FittedQIteration(evaluator, discount, n_iterations, random_state=0).fit(t)
    return time.perf_counter() - started


def memory_during(work):
    """Return the result of ``work()`` and the peak number of bytes in use, minus those in use before."""

    def in_use():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before, most, done = in_use(), 0, threading.Event()

    def watch():
        nonlocal most
        while not done.wait(0.002):
            most = max(most, in_use() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return work(), most
    finally:
        done.set()
        watcher.join()


def growth():
    """Print how time and memory grow with the rows; the stored leaf of each row in each tree is shown separately."""
    print("rows            time   per tree, row and log2 of rows   memory beyond the input   remembered leaves")
    for n in (6_000, 60_000, 600_000, 6_000_000):
        X, y = regression(n, np.random.default_rng(0))
        model = ExtraTreesRegressor(2, min_samples_split=SPLIT, n_jobs=N_JOBS, random_state=0)
        started = time.perf_counter()
        _, most = memory_during(lambda: model.fit(X, y))  # noqa: B023
        seconds = time.perf_counter() - started
        leaves = sum(tree.leaf_of_row.nbytes for tree in model.forest_.trees)
        each = seconds / n / np.log2(n) * 1e9  # two trees on two threads: sequentially it would take twice the time
        print(f"{n:9} {seconds:8.2f} s {each:27.1f} ns {most / X.nbytes:22.1f}x {leaves / X.nbytes:18.2f}x", flush=True)


def main():
    started = time.perf_counter()
    ExtraTreesRegressor(2, n_jobs=N_JOBS).fit(np.eye(9), np.arange(9.0)).predict(np.eye(9))
    print(f"first call, including compilation or loading its cache: {time.perf_counter() - started:.1f} s")
    print(f"{'':58}{'capi':>13}{'peer':>14}{'ratio':>8}")
    for n in (6_000, 60_000):
        X, y = regression(n, np.random.default_rng(0))
        Z, _ = regression(4 * n, np.random.default_rng(1))
        settings = {"min_samples_split": SPLIT, "n_jobs": N_JOBS, "random_state": 0}
        ours, model = best_of(lambda: ExtraTreesRegressor(TREES, **settings).fit(X, y))  # noqa: B023
        theirs, peer = best_of(lambda: Peer(TREES, **settings).fit(X, y))  # noqa: B023
        line(f"fit {n} x 7, {TREES} trees", ours, theirs)
        line(f"predict {4 * n} states", best_of(lambda: model.predict(Z))[0], best_of(lambda: peer.predict(Z))[0])  # noqa: B023

    t = batch(60_000, np.random.default_rng(0))
    loop = peer_iterations(t, 5, 0.95, extra_trees) * 20
    print("(the loops over peers are timed for 5 iterations and scaled to 100)")
    line(
        "100 Tree-FQI iterations, 60000 rows, one forest, new trees",
        our_iterations(t, 100, 0.95, actions="input", refresh_every=1),
        loop,
    )
    default = our_iterations(t, 100, 0.95)
    line("100 Tree-FQI iterations, 60000 rows, defaults", default, loop)
    line("the same; peer LightGBM with its defaults", default, peer_iterations(t, 5, 0.95, boosted) * 20)

    rng = np.random.default_rng(0)
    states = rng.normal(size=(60_000, 6))
    values = np.column_stack([np.sin(states[:, :3]), np.full(60_000, 0.2)]) + 0.1 * rng.normal(size=(60_000, 4))
    grown, policy = best_of(lambda: Forests(TREES, min_samples_split=20, n_jobs=N_JOBS).improve(states, values))
    peer = PolicyForest(TREES, honest=False, max_samples=0.99, min_samples_split=20, n_jobs=N_JOBS, random_state=0)
    theirs = best_of(lambda: peer.fit(states, values), 2)[0]
    line("policy forest 60000 x 6, 4 actions; peer econml", grown, theirs)
    peer_leaves = sum(tree.tree_.n_leaves for tree in peer)
    print(f"(leaves: ours {policy.forest.leaf_starts[-1]}, the peer's {peer_leaves})")
    many = rng.normal(size=(1_000_000, 6))
    line("its decisions in 1000000 states", best_of(lambda: policy.act(many))[0])
    one = states[:1]
    single = best_of(lambda: [policy.act(one) for _ in range(1000)])[0] / 1000
    print(f"{'its decision in one state':58}{single * 1e6:10.1f} us")
    growth()


if __name__ == "__main__":
    main()
