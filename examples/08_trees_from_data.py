"""Learn a small, readable tree from logged decisions, without a model: fitted Q evaluation and policy trees.

A tank fills at random and its pump wears out. The hourly decision is to wait, to pump (which wears the pump) or to
service the pump. The log comes from random decisions; the simulator is used again only to measure the learned policy.
"""

import numpy as np

from capi import CAPI, Transitions
from capi.baselines import FittedQIteration
from capi.evaluators import FittedQ
from capi.policies import Constant, Uniform
from capi.policy_spaces import Trees

WAIT, PUMP, SERVICE = 0, 1, 2


def step(states, actions, rng):
    """Return the next (level, wear) and the reward: overflow, pumping and service have a cost."""
    level, wear = states.T
    drained = np.where(actions == PUMP, 3.0 * (1 - wear), 0.0)
    new_level = np.clip(level + rng.gamma(1.0, size=len(level)) - drained, 0, 10)
    new_wear = np.where(actions == SERVICE, 0.0, np.clip(wear + 0.05 * (actions == PUMP), 0, 1))
    reward = -2.0 * (new_level >= 10) - np.choose(actions, [0.0, 0.1, 1.0])
    return np.column_stack([new_level, new_wear]), reward


def logged(n_episodes, length, policy, rng):
    """Return episodes of the policy's decisions; a time limit cuts them off, so none terminates."""
    x = np.column_stack([rng.uniform(0, 10, n_episodes), rng.uniform(0, 1, n_episodes)])
    rows = []
    for _ in range(length):
        actions = (policy.probabilities(x).cumsum(axis=1) < rng.random((n_episodes, 1))).sum(axis=1)
        following, reward = step(x, actions, rng)
        rows.append((x, actions, reward, following))
        x = following
    x, a, r, y = (np.stack(column, axis=1).reshape(n_episodes * length, -1) for column in zip(*rows, strict=True))
    names = {"feature_names": ["level", "wear"], "action_labels": ["wait", "pump", "service"]}
    episode = np.repeat(np.arange(n_episodes), length)
    return Transitions(x, a[:, 0], r[:, 0], y, np.zeros(len(x), dtype=bool), episodes=episode, **names)


batch = logged(100, 50, Uniform(3), np.random.default_rng(0))
print(batch)
evaluator = FittedQ(n_trees=30, min_samples_split=20, n_sweeps=10)
tree = CAPI(evaluator, Trees(max_depth=3), discount=0.95, n_iterations=15, random_state=0).fit(batch)
print(tree.policy_.rules())
greedy = FittedQIteration(evaluator, discount=0.95, n_iterations=150, random_state=0).fit(batch)
known = {"the tree": tree.policy_, "fitted Q iteration": greedy.policy_, "always pump": Constant(PUMP, 3)}
for name, policy in known.items():
    rewards = logged(500, 200, policy, np.random.default_rng(1)).rewards
    print(f"{name}: {rewards.mean():.3f} per hour")
