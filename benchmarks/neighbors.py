"""Nearest-neighbour policies.

Peer: scikit-learn's KNeighborsClassifier with the same numbers of neighbours and threads, fitted to the greedy actions of
the same points, in the same process. It finds the same neighbours and counts votes where we sum regrets; it breaks ties in
distance arbitrarily. Requirement: at least as fast.

The benchmark then measures an iteration once the neighbours of its states are known, and the time and recall of an
approximate index on 50 features that lie near a surface of 8 dimensions. The index compiles for minutes on its first use in
a process, so it is built once before it is timed.
"""

import sys
from importlib.util import find_spec

import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from timing import best_of

from capi.loss import greedy
from capi.policy_spaces import Neighbors

KAPPA = 75


def in_turns(*calls, repeats=4):
    """Return the least seconds of each call; calls alternate, so other load on the machine affects all of them equally."""
    return [
        min(times) for times in zip(*([best_of(call, 1)[0] for call in calls] for _ in range(repeats)), strict=True)
    ]


def beside_scikit_learn(n_jobs):
    print(f"{'sample, queries x features':30}{'capi':>10}{'scikit-learn':>14}{'ratio':>8}")
    for d in (2, 6):
        rng = np.random.default_rng(0)
        points, q, x = rng.random((20_000, d)), rng.normal(size=(20_000, 3)), rng.random((100_000, d))
        policy = Neighbors(KAPPA, n_jobs=n_jobs).improve(points, q)
        peer = KNeighborsClassifier(KAPPA, n_jobs=n_jobs).fit(points, greedy(q))
        ours, theirs = in_turns(lambda: policy.act(x), lambda: peer.predict(x))  # noqa: B023
        print(f"{f'20000, 100000 x {d}':30}{ours:8.2f} s{theirs:12.2f} s{theirs / ours:7.1f}x", flush=True)


def iterations(n_jobs):
    print(f"\n{'improve and act on the batch':30}{'first':>10}{'next':>14}{'ratio':>8}")
    for d in (2, 6):
        rng = np.random.default_rng(0)
        states, q, space = rng.random((20_000, d)), rng.normal(size=(20_000, 3)), Neighbors(KAPPA, n_jobs=n_jobs)
        states.flags.writeable = False

        def improved(previous=None, space=space, states=states, q=q):
            policy = space.improve(states, q, previous=previous)
            policy.act(states)
            return policy

        first, policy = best_of(improved)
        following, _ = best_of(lambda: improved(policy))  # noqa: B023
        print(f"{f'20000 x {d}':30}{first:8.3f} s{following:12.4f} s{first / following:7.0f}x", flush=True)


def approximate(n_jobs):
    print(f"\n{'20000, 20000 x 50':30}{'build':>10}{'act':>14}{'recall':>8}")
    rng = np.random.default_rng(0)
    surface = np.tanh(rng.normal(size=(40_000, 8)) @ rng.normal(size=(8, 50)) * 0.3)
    points, x = np.split(surface + 0.05 * rng.normal(size=surface.shape), 2)
    q, exact = rng.normal(size=(20_000, 3)), None
    for algorithm in ("exact", "approximate"):
        if algorithm == "approximate" and find_spec("pynndescent") is None:
            print("approximate: skipped, because pynndescent is not installed (pip install capi[ann])")
            continue
        space = Neighbors(KAPPA, algorithm=algorithm, n_jobs=n_jobs)
        space.improve(points, q).act(x[:100])
        building, policy = best_of(lambda: space.improve(points, q), repeats=1)  # noqa: B023
        policy.act(x[:100])
        acting, _ = best_of(lambda: policy.act(x), repeats=2)  # noqa: B023
        rows = policy.nearest.of(policy.nearest.sample.scaling(x[:2000]))[0]
        exact = rows if exact is None else exact
        recall = np.mean([len(np.intersect1d(*pair)) / KAPPA for pair in zip(exact, rows, strict=True)])
        print(f"{algorithm:30}{building:8.2f} s{acting:12.2f} s{recall:8.3f}", flush=True)


def main(n_jobs=2):
    beside_scikit_learn(n_jobs)
    iterations(n_jobs)
    approximate(n_jobs)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
