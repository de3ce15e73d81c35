"""Errors of estimates from a log in parts and from the same log in memory, beside their standard errors.

    python benchmarks/intervals_in_parts.py [LOGS]     default 40 simulated logs of 1,500 episodes that are cut off after 5 steps

Models and cuts come from a sample of a tenth of the episodes.
"""

import sys
import warnings

import numpy as np

from capi import PartitionedTransitions, Transitions
from capi.offline import compare
from capi.offline.fitted_q import Regression


class Damped:
    """A policy that mostly pushes the first column towards zero."""

    n_actions = 2

    def probabilities(self, states, allowed=None):
        share = np.where(states[:, 0] > 0, 0.2, 0.8)
        return np.column_stack([1 - share, share])

    def act(self, states, allowed=None):
        return self.probabilities(states).argmax(axis=1)


def pushed(n, n_steps, rng, policy=None):
    """Return states, actions, rewards and next states (n, steps, ...) of a system that two actions push in opposite directions."""
    x, found = rng.normal(size=(n, 3)), []
    for _ in range(n_steps):
        share = 0.5 if policy is None else policy.probabilities(x)[:, 1]
        actions = (rng.random(n) < share).astype(int)
        following = 0.8 * x + np.outer(actions - 0.5, [1, 0, 0]) + 0.3 * rng.normal(size=x.shape)
        found.append((x, actions, 0.1 * rng.normal(size=n) - np.abs(x[:, 0]), following))
        x = following
    return [np.stack(column, axis=1) for column in zip(*found, strict=True)]


def intervals(n_logs, n=1500, n_steps=5, discount=0.8):
    """Return bias, spread and mean standard error of each estimate, over logs whose episodes are cut off."""
    future = pushed(200_000, 60, np.random.default_rng(10**6), Damped())[2]
    truth = float((future @ discount ** np.arange(60)).mean())
    found = {}
    for seed in range(int(n_logs)):
        columns = [c.reshape(n * n_steps, *c.shape[2:]) for c in pushed(n, n_steps, np.random.default_rng(seed))]
        log = Transitions(
            *columns,
            np.zeros(n * n_steps, dtype=bool),
            episodes=np.repeat(np.arange(n), n_steps),
            propensities=np.full(n * n_steps, 0.5),
        )
        parts = PartitionedTransitions.of(log, 2 * n, sample_rows=n * n_steps // 10)
        for where, batch in (("memory", log), ("partitions", parts)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                settings = {"methods": ["doubly-robust", "weighted", "fitted-q"], "regression": Regression(n_trees=10)}
                mine = compare({"it": Damped()}, batch, discount=discount, n_resamples=20, **settings)["it"]
            for method, one in mine.estimates.items():
                found.setdefault(f"{where}, {method}", []).append((one.value - truth, one.standard_error))
    return {
        name: {
            "bias": float(np.mean(pairs, axis=0)[0]),
            "spread": float(np.std(pairs, axis=0, ddof=1)[0]),
            "error": float(np.mean(pairs, axis=0)[1]),
        }
        for name, pairs in found.items()
    }


if __name__ == "__main__":
    for what, numbers in intervals(*(sys.argv[1:] or (40,))).items():
        print(what, ", ".join(f"{key} {value:.4f}" for key, value in numbers.items()))
