# %% [markdown]
# # An operations log: when to pump, when to service the pump
#
# *Simulated data*, because no public log of such decisions could be shipped. A tank fills at random, its pump wears out. Every hour someone waits,
# pumps or services the pump. The log comes from random decisions.

# %%
import numpy as np

from capi import CAPI, Transitions
from capi.evaluators import FittedQ
from capi.policies import Constant, Uniform
from capi.policy_spaces import OptimalTrees


def step(states, actions, rng):
    level, wear = states.T
    drained = np.where(actions == 1, 3.0 * (1 - wear), 0.0)
    new_level = np.clip(level + rng.gamma(1.0, size=len(level)) - drained, 0, 10)
    new_wear = np.where(actions == 2, 0.0, np.clip(wear + 0.05 * (actions == 1), 0, 1))
    reward = -2.0 * (new_level >= 10) - np.choose(actions, [0.0, 0.1, 1.0])
    return np.column_stack([new_level, new_wear]), reward


def logged(n_episodes, length, policy, rng):
    x = np.column_stack([rng.uniform(0, 10, n_episodes), rng.uniform(0, 1, n_episodes)])
    rows = []
    for _ in range(length):
        actions = (policy.probabilities(x).cumsum(axis=1) < rng.random((n_episodes, 1))).sum(axis=1)
        following, reward = step(x, actions, rng)
        rows.append((x, actions, reward, following))
        x = following
    x, a, r, y = (np.stack(column, axis=1).reshape(n_episodes * length, -1) for column in zip(*rows, strict=True))
    names = {"feature_names": ["level", "wear"], "action_labels": ["wait", "pump", "service"]}
    return Transitions(
        x, a[:, 0], r[:, 0], y, np.zeros(len(x), dtype=bool), episodes=np.repeat(np.arange(n_episodes), length), **names
    )


batch = logged(100, 50, Uniform(3), np.random.default_rng(0))
evaluator = FittedQ(n_trees=30, min_samples_split=20)
tree = CAPI(evaluator, OptimalTrees(max_depth=3), discount=0.95, n_iterations=10, random_state=0).fit(batch)
tree.policy_.plot_decisions(batch.states)

# %% [markdown]
# The simulator says what the rules are worth; a log alone could not.

# %%
for name, policy in {"the tree": tree.policy_, "always pump": Constant(1, 3), "at random": Uniform(3)}.items():
    print(f"{name}: {logged(300, 200, policy, np.random.default_rng(1)).rewards.mean():.3f} per hour")
tree.plot_history()

# %% [markdown]
# **What a log like this cannot tell**: what happens under conditions that it lacks, such as a flood. Random decisions are a luxury; a real log follows habits, and says little about what no one did.
