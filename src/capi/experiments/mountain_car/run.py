"""One method with one number of samples: how soon its policy reaches the goal, and how long learning took."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import process_time
from typing import Any

import numpy as np

from capi._utils.randomness import numbered_rng, seed_sequence
from capi.baselines import RFQI
from capi.data.transitions import Transitions
from capi.domains import MountainCar
from capi.evaluators import KernelFittedQ
from capi.experiments.mountain_car.settings import MAX_STEPS, TESTS, TRAJECTORY_STEPS
from capi.features.kernels import Gaussian
from capi.learning.capi import CAPI
from capi.learning.learner import Learner
from capi.policy_spaces import Neighbors
from capi.simulation.returns import performance
from capi.simulation.sampling import sample_episodes

EPISODES_AT_ONCE = 50


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:  # noqa: ARG001  one BLAS thread
    """Return the results of a method; data and test starts depend on the seed alone, so methods share them."""
    cars, seeds = MountainCar(), seed_sequence(seed)
    batch = batch_of(cars, values["n_samples"], numbered_rng(seeds, 0))
    started = process_time()
    rounds = learner(values, cars, numbered_rng(seeds, 1)).iterate(batch)
    last = deque((iteration.policy for iteration in rounds), maxlen=values["n_last"])
    learning = process_time() - started
    starts = cars.initial(TESTS, numbered_rng(seeds, 9))
    results = [performance(policy, cars, starts=starts, max_steps=MAX_STEPS) for policy in last]
    steps, returns = [float(result.lengths.mean()) for result in results], [result.mean for result in results]
    return {
        "steps": steps[-1],
        "return": returns[-1],
        "last_steps": steps,
        "last_returns": returns,
        "n_goals": int(batch.terminated.sum()),
        "learning_cpu_seconds": learning,
    }


def batch_of(cars: MountainCar, n_samples: int, rng: np.random.Generator) -> Transitions:
    """Return ``n_samples`` transitions of a random policy from uniform starts; the last trajectory is truncated."""
    batches: list[Transitions] = []
    n = 0
    while n < n_samples:
        batches.append(
            sample_episodes(None, cars, n_episodes=EPISODES_AT_ONCE, max_steps=TRAJECTORY_STEPS, random_state=rng)
        )
        n += len(batches[-1])
    return Transitions.concat(batches, renumber_episodes=True).subset(np.arange(n_samples))


def learner(values: Mapping[str, Any], cars: MountainCar, rng: np.random.Generator) -> Learner:
    """Return RFQI if kappa is None, otherwise KNN-CAPI with one sweep of the same regression per iteration."""
    evaluator = KernelFittedQ(
        kernel=Gaussian(values["bandwidth"]),
        ridge=values["ridge"],
        threshold=values["threshold"],
        scale=cars.box,
        n_sweeps=1,
    )
    common: dict[str, Any] = {
        "discount": cars.discount,
        "n_iterations": values["n_iterations"],
        "random_state": rng,
    }
    if values["kappa"] is None:
        return RFQI(evaluator, **common)
    return CAPI(evaluator, Neighbors(values["kappa"], scale=cars.box), **common)
