"""One method in one case: what its policy is worth, measured as in the base case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from time import process_time
from typing import Any

import numpy as np

from capi._utils.randomness import numbered_rng, seed_sequence
from capi._utils.validation import Bools, Floats, Ints
from capi.baselines import RFQI, FittedQIteration
from capi.data.transitions import Transitions
from capi.domains import HIV, CartPole, MountainCar
from capi.evaluators import FittedQ, KernelFittedQ
from capi.experiments.hiv.run import learner, rounds, worth
from capi.experiments.hiv.run import prepare as prepare_hiv
from capi.experiments.mountain_car.run import batch_of as car_batch
from capi.experiments.mountain_car.settings import MAX_STEPS as CAR_STEPS
from capi.experiments.mountain_car.settings import TESTS as CAR_TESTS
from capi.experiments.pole.run import batch_of as pole_batch
from capi.experiments.pole.run import prepare as prepare_pole
from capi.experiments.pole.settings import MAX_STEPS as POLE_STEPS
from capi.experiments.pole.settings import TESTS as POLE_TESTS
from capi.experiments.sensitivity.settings import BASE
from capi.experiments.setting import ALGORITHM_1
from capi.features.kernels import Gaussian
from capi.learning.capi import CAPI
from capi.learning.learner import Learner
from capi.policy_spaces import Forests, Neighbors
from capi.simulation.returns import performance
from capi.types import Domain, Policy


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:
    """Return the score of a method (a return, or a number of steps) and the time of learning."""
    return {"hiv": _hiv, "mountain-car": _mountain_car, "pole": _pole}[values["problem"]](values, seed, n_jobs)


def _hiv(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:
    batch = collected(seed, n_jobs)
    if values["reward_on"] != "state":
        rewards = HIV(reward_on=values["reward_on"], n_jobs=n_jobs).step(
            batch.states, batch.actions, np.random.default_rng(0)
        )[1]
        batch = changed(batch, rewards=rewards)
    if values["observe"] == "counts":
        states, following = (HIV().counts(each) for each in (batch.states, batch.next_states))
        batch = changed(batch, states=states, next_states=following)
    forest = FittedQ(
        values["n_trees"],
        min_samples_split=values["eta_v"],
        actions="input",
        refresh_every=values["refresh_every"],
        n_jobs=n_jobs,
    )
    policy, seconds = _learned(values, batch, forest, _forests(values, n_jobs), numbered_rng(seed_sequence(seed), 1))
    patient: Any = _as_learned(HIV(observe=values["observe"], n_jobs=n_jobs), values)
    return {"score": worth(policy, patient), "learning_cpu_seconds": seconds}


def collected(seed: int, n_jobs: int, **changes: Any) -> Transitions:
    """Return the HIV batch of a seed: the rounds of Tree-FQI in the base case, with some values changed."""
    base = BASE["hiv"] | changes
    values = base | {"eta_pi": None, "n_iterations": base["collecting_iterations"], "n_last": 1, "last_every": 1}
    return _collected(json.dumps(values), seed, n_jobs)


@lru_cache(maxsize=1)  # methods and cases with the same seed run one after another
def _collected(values: str, seed: int, n_jobs: int) -> Transitions:
    fqi = json.loads(values)
    return rounds(HIV(n_jobs=n_jobs), learner(fqi, seed, n_jobs), fqi, seed)[0]


def _mountain_car(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:  # noqa: ARG001  one BLAS thread
    cars, seeds = MountainCar(), seed_sequence(seed)
    batch = car_batch(cars, values["n_samples"], numbered_rng(seeds, 0))
    if values["goal_reward"] == 0:
        batch = changed(batch, rewards=np.where(batch.terminated, 0.0, batch.rewards))
    scale = cars.box if values["scale"] == "box" else None
    ridge = KernelFittedQ(
        Gaussian(values["bandwidth"]), ridge=values["ridge"], threshold=values["threshold"], scale=scale, n_sweeps=1
    )
    space = Neighbors(values["kappa"], scale=scale)
    policy, seconds = _learned(values, batch, ridge, space, numbered_rng(seeds, 1))
    starts = cars.initial(CAR_TESTS, numbered_rng(seeds, 9))
    result = performance(policy, _as_learned(cars, values), starts=starts, max_steps=CAR_STEPS)
    return {"score": float(result.lengths.mean()), "learning_cpu_seconds": seconds}


def _pole(values: Mapping[str, Any], seed: int, n_jobs: int) -> dict[str, Any]:
    limits = {"track_limit": values["track_limit"], "angle_limit": values["angle_limit"], "n_jobs": n_jobs}
    seeds = seed_sequence(seed)
    logged = CartPole(reward=values["reward"], starts=values["starts"], **limits)
    batch = pole_batch(logged, values["n_samples"], numbered_rng(seeds, 0))
    forest = FittedQ(
        values["n_trees"], min_samples_split=values["eta_v"], refresh_every=values["refresh_every"], n_jobs=n_jobs
    )
    policy, seconds = _learned(values, batch, forest, _forests(values, n_jobs), numbered_rng(seeds, 1))
    result = performance(
        policy,
        _as_learned(CartPole(**limits), values),
        n_episodes=POLE_TESTS,
        max_steps=POLE_STEPS,
        random_state=numbered_rng(seeds, 9),
    )
    return {"score": float(result.lengths.mean()), "learning_cpu_seconds": seconds}


def _forests(values: Mapping[str, Any], n_jobs: int) -> Forests:
    return Forests(
        values["n_trees"],
        min_samples_split=values["eta_pi"],
        refresh_every=values["refresh_every"],
        n_jobs=n_jobs,
    )


def _learned(
    values: Mapping[str, Any], batch: Transitions, evaluator: Any, space: Any, rng: np.random.Generator
) -> tuple[Policy, float]:
    """Return the policy of a method, and how long learning took."""
    if values["ties"] == "last":
        batch = changed(batch, actions=batch.n_actions - 1 - batch.actions)
    common: dict[str, Any] = {"n_iterations": values["n_iterations"], "random_state": rng}
    discount = values["discount"]
    method: Learner
    if values["method"] == "Tree-FQI":
        method = FittedQIteration(evaluator, discount, **common)
    elif values["method"] == "RFQI":
        method = RFQI(evaluator, discount, **common)
    else:
        method = CAPI(evaluator, space, discount, **common, **ALGORITHM_1)
    started = process_time()
    policy = method.fit(batch).policy_
    return policy, process_time() - started


def changed(batch: Transitions, **parts: Any) -> Transitions:
    """Return the batch with other states, actions or rewards."""
    kept = {name: getattr(batch, name) for name in ("states", "actions", "rewards", "next_states", "terminated")}
    return Transitions(**(kept | parts), n_actions=batch.n_actions, episodes=batch.episodes)


def _as_learned(domain: Domain, values: Mapping[str, Any]) -> Domain:
    return Mirrored(domain) if values["ties"] == "last" else domain


@dataclass(frozen=True)
class Mirrored:
    """A domain whose actions are numbered the other way round, so that ties go to the other end."""

    domain: Domain

    @property
    def n_actions(self) -> int:
        """Return the number of actions."""
        return self.domain.n_actions

    @property
    def feature_names(self) -> Any:
        """Return the names of the columns of a state."""
        return self.domain.feature_names

    @property
    def action_labels(self) -> Any:
        """Return the labels of the actions."""
        return self.domain.action_labels[::-1]

    @property
    def discount(self) -> Any:
        """Return the discount of the domain."""
        return self.domain.discount  # type: ignore[attr-defined]

    def initial(self, n: int, rng: np.random.Generator) -> Floats:
        """Return start states (n, d)."""
        return self.domain.initial(n, rng)

    def step(self, states: Floats, actions: Ints, rng: np.random.Generator) -> tuple[Floats, Floats, Bools]:
        """Take the actions; return next states, rewards and terminated."""
        return self.domain.step(states, self.n_actions - 1 - np.asarray(actions), rng)


def prepare() -> None:
    """Compile everything once, so that no run's time includes compilation."""
    prepare_hiv()
    prepare_pole()
