"""Temporal-difference learning: one pass over 200,000 rows.

Peer: the same updates written in numpy, row by row, in the same process. It is timed on 5,000 rows and scaled up. Both start
from computed features, so only the learning is compared; the peer neither averages nor shuffles.
"""

import numpy as np
from timing import best_of

from capi import Transitions
from capi.evaluators import TD, TDC
from capi.features import Tiles
from capi.features.tables import fitted_features
from capi.policies import Constant

N_ROWS, N_PEER, DISCOUNT = 200_000, 5_000, 0.95


def fifty(states):
    return np.cos(states @ np.random.default_rng(1).normal(size=(4, 50)))


def random_rows(n):
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(size=(n, 4)), rng.integers(3, size=n)
    return Transitions(states, actions, states[:, 0], rng.uniform(size=(n, 4)), np.zeros(n, dtype=bool), n_actions=3)


def passes_of(method, features, batch, n_passes):
    """Return a call that learns for ``n_passes`` passes, with features computed beforehand."""
    evaluator, policy = method(features, n_passes=n_passes), Constant(1, 3)
    first = method(features, n_passes=1).evaluate(policy, batch, discount=DISCOUNT)
    return lambda: evaluator.evaluate(policy, batch, discount=DISCOUNT, previous=first)


def plain_loop(method, table, next_table, batch, step, second_step):
    """Run one pass, row by row; sparse rows are accessed by their columns."""
    theta, w = np.zeros((3, table.shape[1])), np.zeros((3, table.shape[1]))
    for i in range(N_PEER):
        if isinstance(table, np.ndarray):
            now, following, x, y = slice(None), slice(None), table[i], next_table[i]
        else:
            now = table.indices[table.indptr[i] : table.indptr[i + 1]]
            following = next_table.indices[next_table.indptr[i] : next_table.indptr[i + 1]]
            x = table.data[table.indptr[i] : table.indptr[i + 1]]
            y = next_table.data[next_table.indptr[i] : next_table.indptr[i + 1]]
        a = batch.actions[i]
        delta = batch.rewards[i] + DISCOUNT * theta[1, following] @ y - theta[a, now] @ x
        if method is TDC:
            seen = w[a, now] @ x
            w[a, now] += second_step * (delta - seen) * x
            theta[1, following] -= step * DISCOUNT * seen * y
        theta[a, now] += step * delta * x
    return theta


def main():
    batch = random_rows(N_ROWS)
    print(f"{'method, features':24}{'one pass':>10}{'rows / s':>14}{'numpy (scaled)':>16}{'ratio':>9}")
    for name, features in (("50 dense", fifty), ("Tiles", Tiles(8, 4))):
        fitted = fitted_features(features, batch.states)
        tables = [fitted(x[:N_PEER]) for x in (batch.states, batch.next_states)]
        for method in (TD, TDC):
            seconds = [best_of(passes_of(method, features, batch, n))[0] for n in (2, 12)]
            ours = (seconds[1] - seconds[0]) / 10  # one-time costs cancel
            theirs = best_of(lambda: plain_loop(method, *tables, batch, 1e-3, 1e-3))[0] * N_ROWS / N_PEER  # noqa: B023
            label = f"{method.__name__}, {name}"
            print(f"{label:24}{ours:8.3f} s{N_ROWS / ours:14,.0f}{theirs:14.2f} s{theirs / ours:8.0f}x")


if __name__ == "__main__":
    main()
