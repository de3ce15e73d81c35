"""Spend more on later rounds: by the paper's error propagation bound, errors of early rounds are forgotten.

The evaluator and the states are functions of the round: sweeps and samples grow with k. For comparison, the
same total effort is also spread evenly.
"""

import numpy as np

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact
from capi.policy_spaces import Thresholds

K = 11
chain = ChainWalk(variant=1, success=0.7)
mdp = chain.mdp


def mean_loss(n_sweeps, samples, n_seeds=200):
    """Return the mean loss over seeds when round k makes n_sweeps[k] sweeps and draws samples[k] states."""

    def evaluator(k, policy, rng):
        return Exact(mdp, n_sweeps=int(n_sweeps[k]))

    def states(k, policy, rng):
        return chain.initial(int(samples[k]), rng)

    losses = []
    for seed in range(n_seeds):
        settings = {
            "discount": 0.99,
            "n_iterations": K,
            "initial_policy": mdp.greedy(mdp.rewards),
            "random_state": seed,
        }
        learner = CAPI(evaluator, Thresholds(), **settings).fit(states=states)
        losses.append(mdp.performance_loss(learner.policy_))
    return np.mean(losses), np.std(losses) / np.sqrt(n_seeds)


growing = np.arange(1, K + 1)
even = np.full(K, growing.sum() // K)
for name, effort in (("evenly", even), ("more later", growing)):
    mean, error = mean_loss(n_sweeps=effort, samples=10 * effort)
    print(f"{name}: {effort.sum()} sweeps and {10 * effort.sum()} states, loses {mean:.3f} (s.e. {error:.3f})")
