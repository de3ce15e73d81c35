"""The fixed list of 36 candidates per problem, whose scores are compared with their true returns.

One ordinary run of the loop gives the action values of three rounds. On each of them trees of depth 1 to 4 are learned, with
three sizes of leaves and three weightings of the states; the rounds are spread evenly over these. The list does not depend on
the defaults under test.
"""

from itertools import product

from capi import CAPI
from capi.evaluators import FittedQ
from capi.learning.decision_points import BatchPoints
from capi.learning.iteration import start_sample
from capi.policy_spaces import OptimalTrees

DEPTHS, LEAVES, WEIGHTINGS = (1, 2, 3, 4), (1, 20, 200), ("batch", "half", "occupancy")
ROUNDS = (9, 19, 29)  # from 0
LIMITS = {"n_thresholds": 32, "work_limit": 300_000_000}
N_SWEEPS = 5


def candidates(problem, data, seed):
    """Return the policies of the list, and the last `Iteration` of the run."""
    run = CAPI(
        FittedQ(n_sweeps=N_SWEEPS),
        OptimalTrees(max_depth=3, **LIMITS),
        discount=problem.discount,
        n_iterations=ROUNDS[-1] + 1,
        random_state=seed,
        keep="last",
        state_weights="batch",
    )
    samples = {}
    for step in run.iterate(data.batch):
        if step.k in ROUNDS:
            samples[step.k] = samples_of(step, data, problem.discount)
    found = []
    for (i, depth), (j, leaf), (k, name) in product(*map(enumerate, (DEPTHS, LEAVES, WEIGHTINGS))):
        states, q_values, weights = samples[ROUNDS[(i + j + k) % len(ROUNDS)]][name]
        space = OptimalTrees(max_depth=depth, min_samples_leaf=leaf, **LIMITS)
        found.append(space.improve(states, q_values, weights=weights))
    return found, step


def samples_of(step, data, discount):
    """Return states, action values and weights by weighting: logged states alike, states by visits, and half by visits."""
    points, x = BatchPoints.of(data.batch, start_sample(data.starts, data.batch)), data.batch.states
    visits, _ = points.occupancy(step.q, step.policy, discount)
    q_values = step.q.values(points.states)
    return {
        "batch": (x, step.q.values(x), None),
        "half": (points.states, q_values, (visits + points.even) / 2),
        "occupancy": (points.states, q_values, visits),
    }
