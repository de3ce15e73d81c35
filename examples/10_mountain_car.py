"""Kernel values and nearest-neighbour policies: the paper's second family of experiments on one screen.

The batch holds random pushes in Mountain-Car, where the car must first drive away from its goal. RFQI takes the action
that is best according to its kernel estimate of Q. KNN-CAPI lets the 75 nearest states of the batch decide together, each
weighted by what it can lose. Both evaluate with the same kernel regression, one sweep per round.
"""

import numpy as np

from capi import CAPI
from capi.baselines import RFQI
from capi.domains import MountainCar
from capi.evaluators import KernelFittedQ
from capi.features.kernels import Gaussian
from capi.policies import Uniform
from capi.policy_spaces import Neighbors
from capi.simulation import performance, sample_episodes

car = MountainCar()
batch = sample_episodes(None, car, n_episodes=20, max_steps=100, random_state=0)
print(batch)

evaluator = KernelFittedQ(Gaussian(0.1), ridge=0.01, scale=car.box)
rfqi = RFQI(evaluator, discount=0.98, n_iterations=60).fit(batch)
knn = CAPI(evaluator, Neighbors(75, scale=car.box), discount=0.98, n_iterations=60, random_state=0).fit(batch)

policies = {"random": Uniform(3), "RFQI": rfqi.policy_, "KNN-CAPI": knn.policy_, "by hand": car.energy_pumping()}
starts = car.initial(300, np.random.default_rng(1))
for name, policy in policies.items():
    found = performance(policy, car, starts=starts, max_steps=200)
    print(f"{name}: {found.lengths.mean():.0f} steps to the goal (at most 200)")
