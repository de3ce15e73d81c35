"""The fixed list of 36 candidates per problem, whose scores are compared with their true returns.

One ordinary run of the loop gives the action values of three rounds. On each of them trees of depth 1 to 4 are learned, with
three sizes of leaves and three weightings of the states; the rounds are spread evenly over these. The list does not depend on
the defaults under test.
"""

from itertools import product

import numpy as np

from capi import CAPI
from capi.evaluators import FittedQ
from capi.policy_spaces import OptimalTrees

DEPTHS, LEAVES, WEIGHTINGS = (1, 2, 3, 4), (1, 20, 200), ("all", "early", "resampled")
ROUNDS = (9, 19, 29)  # from 0
LIMITS = {"n_thresholds": 32, "work_limit": 300_000_000}
N_SWEEPS = 5


def candidates(problem, data, seed):
    """Return the policies of the list, and the last round of the run that they come from."""
    batch = data.batch
    run = CAPI(
        FittedQ(n_sweeps=N_SWEEPS, n_jobs=1),
        OptimalTrees(max_depth=3, **LIMITS, n_jobs=1),
        discount=problem.discount,
        n_iterations=ROUNDS[-1] + 1,
        random_state=seed,
        keep="last",
        state_weights="batch",
    )
    values = {}
    for step in run.iterate(batch):
        if step.k in ROUNDS:
            values[step.k] = step.q.values(batch.states)
    weights = {name: weights_of(name, batch, problem.discount, seed) for name in WEIGHTINGS}
    found = []
    for (i, depth), (j, leaf), (k, name) in product(*map(enumerate, (DEPTHS, LEAVES, WEIGHTINGS))):
        space = OptimalTrees(max_depth=depth, min_samples_leaf=leaf, **LIMITS, n_jobs=1)
        q_values = values[ROUNDS[(i + j + k) % len(ROUNDS)]]
        found.append(space.improve(batch.states, q_values, weights=weights[name]))
    return found, step


def weights_of(name, batch, discount, seed):
    """Return the weight of each state (n,): all alike; less the later in its episode; or random, one number per episode."""
    if name == "all":
        return None
    lengths = batch.episode_lengths
    if name == "early":
        return discount ** (np.arange(len(batch)) - np.repeat(batch.episode_starts, lengths))
    return np.repeat(np.random.default_rng([seed, 1]).exponential(size=len(lengths)), lengths)
