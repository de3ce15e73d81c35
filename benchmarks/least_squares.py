"""LSTD-Q with 500 weights on a million transitions.

Peers in the same process: the products of features that no implementation can avoid, as single BLAS calls on tables in
memory (features of the rows with themselves and with next features, once for all actions), and the dense formula on the whole
pair features, Phi^T (Phi - gamma Phi'), which does A times the work and is timed on a twentieth of the rows. Features are the
columns of the states, so computing them means gathering rows; that time is measured separately and not included in the
ratios. Memory is the peak in addition to the batch.
"""

import tracemalloc

import numpy as np
from timing import best_of

from capi import Transitions
from capi.evaluators import LSTDQ
from capi.evaluators import _linear_model as linear
from capi.features.tables import fitted_features

DISCOUNT = 0.95


class Parity:
    """A policy with decisions spread over all actions."""

    def __init__(self, n_actions):
        self.n_actions = n_actions

    def act(self, states, allowed=None):
        return (states[:, 0] * 1e6).astype(np.int64) % self.n_actions

    def probabilities(self, states, allowed=None):
        return np.eye(self.n_actions)[self.act(states)]


def batch_of(n, p, n_actions):
    rng = np.random.default_rng(0)
    x, y = rng.random((2, n, p))
    return Transitions(x, rng.integers(n_actions, size=n), rng.random(n), y, rng.random(n) < 0.01)


def dense_formula(batch, policy):
    """Time Phi^T (Phi - gamma Phi') on a part of the rows."""
    rows = slice(0, len(batch) // 20)
    a, b = batch.actions[rows], policy.act(batch.next_states[rows])
    shape = (len(a), batch.n_actions, batch.n_features)
    now, then = np.zeros(shape), np.zeros(shape)
    now[np.arange(len(a)), a] = batch.states[rows]
    then[np.arange(len(a)), b] = batch.next_states[rows]
    now, difference = now.reshape(len(a), -1), (now - DISCOUNT * then).reshape(len(a), -1)
    return 20 * best_of(lambda: now.T @ difference)[0]


def feature_time(batch):
    """Time gathering all rows and next rows, in the order and pieces in which they are used."""
    features = fitted_features(identity, batch.states)

    def gather():
        for rows in linear._pieces(np.argsort(batch.actions, kind="stable"), batch.n_features):
            features.of_rows(batch.states, rows)
            features.of_rows(batch.next_states, rows)

    return best_of(gather)[0]


def identity(states):
    return states


def main():
    names = ("capi", "features", "products", "ratio", "dense", "ratio", "memory")
    print(f"{'rows x weights, actions':28}" + "".join(f"{name:>10}" for name in names))
    for n, weights, n_actions in ((1_000_000, 500, 2), (1_000_000, 500, 4)):
        batch, policy = batch_of(n, weights // n_actions, n_actions), Parity(n_actions)
        x, y = batch.states, batch.next_states
        evaluator = LSTDQ(identity)
        ours, _ = best_of(lambda: evaluator.evaluate(policy, batch, discount=DISCOUNT))  # noqa: B023
        features = feature_time(batch)
        products, _ = best_of(lambda: (x.T @ x, x.T @ y))  # noqa: B023
        dense = dense_formula(batch, policy)
        tracemalloc.start()
        evaluator.evaluate(policy, batch, discount=DISCOUNT)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        size, net = f"{n} x {weights}, {n_actions}", ours - features
        print(
            f"{size:28}{ours:8.2f} s{features:8.2f} s{products:8.2f} s{net / products:9.2f}x"
            f"{dense:8.2f} s{net / dense:9.2f}x{peak:6.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
