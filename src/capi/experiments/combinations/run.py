"""One evaluator with one policy space: how soon the policy reaches the goal, and what learning cost."""

from __future__ import annotations

from collections.abc import Mapping
from time import process_time
from typing import Any

import numpy as np

from capi._utils.late import sklearn
from capi._utils.randomness import numbered_rng, seed_sequence
from capi._utils.validation import Floats
from capi.domains import MountainCar
from capi.evaluators import (
    GTD,
    GTD2,
    LSTDQ,
    TD,
    TDC,
    AdvantageLearning,
    BellmanResidual,
    BoostedQ,
    FittedQ,
    KernelFittedQ,
    LassoTD,
    Pessimistic,
    Rollouts,
    RolloutsWithCritic,
)
from capi.experiments.mountain_car.run import batch_of
from capi.experiments.mountain_car.settings import MAX_STEPS, TESTS
from capi.experiments.setting import ALGORITHM_1
from capi.features import Fourier
from capi.learning.capi import CAPI
from capi.policy_spaces import (
    Classifier,
    Forests,
    KernelPolicies,
    Linear,
    LocalAverages,
    Neighbors,
    OptimalTrees,
    Partition,
    Reweighted,
    Thresholds,
    Trees,
    Unrestricted,
)
from capi.simulation.returns import performance
from capi.types import PolicyEvaluator, PolicySpace


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:
    """Return the mean steps of the learned policy and the time of learning."""
    cars, seeds = MountainCar(), seed_sequence(seed)
    batch = batch_of(cars, values["n_samples"], numbered_rng(seeds, 0))
    learner = CAPI(
        evaluator_of(values, cars, n_jobs),
        space_of(values, cars, n_jobs),
        cars.discount,
        values["n_iterations"],
        random_state=numbered_rng(seeds, 1),
        **ALGORITHM_1,
    )
    started = process_time()
    policy = learner.fit(batch).policy_
    seconds = process_time() - started
    starts = cars.initial(TESTS, numbered_rng(seeds, 9))
    result = performance(policy, cars, starts=starts, max_steps=MAX_STEPS, random_state=numbered_rng(seeds, 8))
    return {"steps": float(result.lengths.mean()), "learning_cpu_seconds": seconds}


def evaluator_of(values: Mapping[str, Any], cars: MountainCar, n_jobs: int) -> PolicyEvaluator:
    """Return the evaluator with its name; linear ones have Fourier features of the unit square."""
    fitted = FittedQ(n_jobs=n_jobs)
    features = Fourier(values["order"], scale=cars.box)
    made: dict[str, PolicyEvaluator] = {
        "FittedQ": fitted,
        "BoostedQ": BoostedQ(engine="scikit-learn"),
        "KernelFittedQ": KernelFittedQ(scale=cars.box),
        "LSTDQ": LSTDQ(features),
        "BellmanResidual": BellmanResidual(features),
        "LassoTD": LassoTD(features),
        "TD": TD(features),
        "GTD": GTD(features),
        "GTD2": GTD2(features),
        "TDC": TDC(features),
        "AdvantageLearning": AdvantageLearning(fitted),
        "Pessimistic": Pessimistic(fitted, spread="trees"),
        "Rollouts": Rollouts(cars),
        "RolloutsWithCritic": RolloutsWithCritic(cars, fitted),
    }
    return made[values["evaluator"]]


def space_of(values: Mapping[str, Any], cars: MountainCar, n_jobs: int) -> PolicySpace:
    """Return the policy space with its name; trees have a fixed depth, the partition is a grid."""
    low, high = np.asarray(cars.box, dtype=float)
    n = values["n_cells"]

    def cell_of(states: Floats) -> Any:
        places = np.clip(((states - low) / (high - low) * n).astype(int), 0, n - 1)
        return places[:, 0] * n + places[:, 1]

    made: dict[str, PolicySpace] = {
        "Trees": Trees(max_depth=values["depth"]),
        "OptimalTrees": OptimalTrees(max_depth=2, n_thresholds=32, n_jobs=n_jobs),
        "Forests": Forests(n_jobs=n_jobs),
        "Neighbors": Neighbors(scale=cars.box, n_jobs=n_jobs),
        "LocalAverages": LocalAverages(scale=cars.box, n_jobs=n_jobs),
        "Linear": Linear(),
        "KernelPolicies": KernelPolicies(scale=cars.box),
        "Classifier": Classifier(sklearn.tree.DecisionTreeClassifier(max_depth=values["depth"], random_state=0)),
        "Thresholds": Thresholds(),
        "Partition": Partition(cell_of),
        "Reweighted": Reweighted(),
        "Unrestricted": Unrestricted(),
    }
    return made[values["space"]]
