# %% [markdown]
# # A map of decisions: Mountain-Car
#
# *A simulator.* A car must swing to get out of a valley. Forests learn the values from random steps, and a small tree the decisions; the map shows them over position and velocity.

# %%
import numpy as np

from capi import CAPI
from capi.domains import MountainCar
from capi.evaluators import FittedQ
from capi.policies import Uniform
from capi.policy_spaces import Trees
from capi.simulation import performance, sample_steps

car = MountainCar()
states = np.random.default_rng(0).uniform(*car.box, size=(6000, 2))
batch = sample_steps(None, car, states, random_state=0)
learner = CAPI(FittedQ(n_trees=20), Trees(max_depth=5), discount=0.99, random_state=0).fit(batch)
for name, policy in {"the tree": learner.policy_, "at random": Uniform(3)}.items():
    print(
        f"{name}: {performance(policy, car, n_episodes=100, max_steps=300, random_state=0).lengths.mean():.0f} steps on average (at most 300)"
    )
learner.policy_.plot_decisions(batch.states)

# %%
learner.plot_history()

# %% [markdown]
# **What the map cannot tell**: how good the decisions are. Two maps that look alike can differ by a factor of two in the number of steps.
