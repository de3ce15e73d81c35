"""Simulate one HIV patient for a policy of another Python: states and rewards to standard output, decisions from standard input.

Each line out is a JSON list of the state (None after the last decision) and the reward of the decision before it (None at first).
"""

import json

import numpy as np

from capi.domains import HIV

N_DECISIONS = 1_000

domain, rng = HIV(), np.random.default_rng(0)
state, reward = domain.initial(1, rng), None
for _ in range(N_DECISIONS):
    print(json.dumps([state[0].tolist(), reward]), flush=True)
    state, rewards, _ = domain.step(state, np.array([int(input())]), rng)
    reward = float(rewards[0])
print(json.dumps([None, reward]), flush=True)
