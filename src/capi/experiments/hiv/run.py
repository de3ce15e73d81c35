"""The protocol on simulated patients: rounds of treatment, learning after each round, and the return of the learned policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from time import process_time
from typing import Any

from capi._utils.randomness import numbered_rng, seed_sequence
from capi.baselines import FittedQIteration
from capi.data.transitions import Transitions
from capi.datasets import load_hiv_batch
from capi.domains import HIV
from capi.evaluators import FittedQ
from capi.experiments.hiv.settings import RETURN_STEPS
from capi.experiments.setting import ALGORITHM_1
from capi.learning.capi import CAPI
from capi.learning.learner import Learner
from capi.policies import EpsilonGreedy, Uniform
from capi.policy_spaces import Forests
from capi.simulation.returns import performance
from capi.simulation.sampling import sample_episodes
from capi.types import Policy


@dataclass(frozen=True)
class Learned:
    """The final policy of a learner, the returns of its last iterates, the final one's last, and what it cost."""

    policy: Policy
    last_returns: list[float]
    learning_cpu_seconds: float
    decision_cpu_seconds: float  # of one decision, in a batch of as many as there are transitions


Learn = Callable[[Transitions, int], Learned]  # a batch and a round -> what was learned


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:
    """Return the returns and costs of a method: by round if it collects its own data, otherwise a single round's."""
    hiv = HIV(n_jobs=n_jobs)
    learn = learner(values, seed, n_jobs)
    if values["data"] == "own":
        batch, found = rounds(hiv, learn, values, seed)
    else:
        batch = load_hiv_batch() if values["data"] == "embedded" else shared_batch(values, seed, n_jobs)
        found = [learn(batch, 0)]
    return {
        "returns": [one.last_returns[-1] for one in found],
        "last_returns": [one.last_returns for one in found],
        "n_transitions": len(batch),
        "learning_cpu_seconds": [one.learning_cpu_seconds for one in found],
        "decision_cpu_seconds": [one.decision_cpu_seconds for one in found],
    }


def shared_batch(values: Mapping[str, Any], seed: int, n_jobs: int) -> Transitions:
    """Return the batch that Tree-FQI collects in its own rounds, whatever the method that learns from it."""
    return _collected(json.dumps({**values, "eta_pi": None, "n_last": 1}), seed, n_jobs)


@lru_cache(maxsize=1)  # methods with the same seed run one after another
def _collected(values: str, seed: int, n_jobs: int) -> Transitions:
    fqi = json.loads(values)
    return rounds(HIV(n_jobs=n_jobs), learner(fqi, seed, n_jobs), fqi, seed)[0]


def learner(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> Learn:
    """Return Tree-FQI if eta_pi is None, otherwise Tree-CAPI with policy trees whose nodes need ``eta_pi`` states to split."""
    evaluator = FittedQ(
        n_trees=values["n_trees"],
        min_samples_split=values["eta_v"],
        actions="input",
        refresh_every=values["refresh_every"],
        n_jobs=n_jobs,
    )
    space = Forests(
        values["n_trees"],
        min_samples_split=values["eta_pi"] or 2,
        refresh_every=values["refresh_every"],
        n_jobs=n_jobs,
    )

    def learn(batch: Transitions, k: int) -> Learned:
        common = {
            "discount": 0.98,
            "n_iterations": values["n_iterations"],
            "random_state": int(numbered_rng(seed_sequence(seed), 1, k).integers(2**31)),
        }
        fqi = values["eta_pi"] is None
        method: Learner = (
            FittedQIteration(evaluator, **common) if fqi else CAPI(evaluator, space, **common, **ALGORITHM_1)
        )
        return _measured(method, batch, values, n_jobs)

    return learn


def _measured(method: Learner, batch: Transitions, values: Mapping[str, Any], n_jobs: int) -> Learned:
    """Run a learner and measure its last iterates: the final one, and those every ``last_every`` iterations before it."""
    hiv, last = HIV(n_jobs=n_jobs), values["n_iterations"] - 1
    chosen = {last - i * values["last_every"] for i in range(values["n_last"])}
    returns: list[float] = []
    started, measuring = process_time(), 0.0
    for iteration in method.iterate(batch):
        if iteration.k in chosen:
            before = process_time()
            returns.append(worth(iteration.policy, hiv))
            measuring += process_time() - before
    learning = process_time() - started - measuring
    policy = iteration.policy
    started = process_time()
    policy.act(batch.states)
    return Learned(policy, returns, learning, (process_time() - started) / len(batch))


def rounds(hiv: HIV, learn: Learn, values: Mapping[str, Any], seed: int) -> tuple[Transitions, list[Learned]]:
    """Treat patients in rounds; after each round, learn from all rounds so far.

    The drugs of the first round are random; later rounds follow the learned policy with exploration. Return all transitions
    and what was learned after each round. Random streams depend on the seed and the round alone, so methods are paired.
    """
    seeds = seed_sequence(seed)
    policy: Policy = Uniform(hiv.n_actions)
    batches: list[Transitions] = []
    found: list[Learned] = []
    for k in range(values["n_rounds"]):
        behaviour = policy if k == 0 else EpsilonGreedy(policy, values["exploration"])
        batches.append(
            sample_episodes(
                behaviour,
                hiv,
                n_episodes=values["n_patients"],
                max_steps=values["n_steps"],
                random_state=numbered_rng(seeds, 0, k),
            )
        )
        batch = Transitions.concat(batches, renumber_episodes=True)
        found.append(learn(batch, k))
        policy = found[-1].policy
    return batch, found


def worth(policy: Policy, hiv: HIV) -> float:
    """Return the discounted return over 5000 days from the unhealthy state; it is deterministic."""
    return performance(policy, hiv, n_episodes=1, max_steps=RETURN_STEPS).mean


def prepare() -> None:
    """Compile everything once, so that no run's time includes compilation."""
    values = {"n_patients": 2, "n_steps": 5, "n_rounds": 2, "exploration": 0.15, "n_trees": 2, "eta_v": 2}
    values |= {"n_iterations": 2, "refresh_every": 2, "n_last": 1, "last_every": 1}
    for eta in (None, 2):
        rounds(HIV(), learner({**values, "eta_pi": eta}, 0), values, 0)
