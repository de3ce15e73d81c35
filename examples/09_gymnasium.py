"""Use a Gymnasium environment to collect data and to measure: learn to balance from random pushes alone.

The batch holds the decisions of a random policy in CartPole-v1, where an episode lasts at most 500 steps. Learning uses
nothing but that batch; the environment is used again only to measure. Gymnasium's observations have no names: 0 is the
cart's position and 1 its velocity, 2 the pole's angle and 3 its velocity. Action 0 pushes to the left.
"""

import gymnasium

from capi import CAPI
from capi.evaluators import FittedQ
from capi.policies import Uniform
from capi.policy_spaces import Trees
from capi.simulation import performance, sample_episodes

env = gymnasium.make("CartPole-v1")
batch = sample_episodes(Uniform(2), env, n_episodes=300, max_steps=500, random_state=0)
print(batch)

evaluator, space = FittedQ(n_trees=30, min_samples_leaf=10, n_sweeps=5), Trees(max_depth=2, min_samples_leaf=50)
tree = CAPI(evaluator, space, discount=0.98, n_iterations=20, random_state=0).fit(batch).policy_
print(tree.rules())

for name, policy in {"random": Uniform(2), "the tree": tree}.items():
    found = performance(policy, env, n_episodes=50, max_steps=500, discount=0.98, random_state=2)
    print(f"{name}: {found.lengths.mean():.0f} steps; {found.terminated.sum()} of 50 episodes ended before the limit")
