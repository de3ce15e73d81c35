"""One method with one number of samples: how long its policy balances the pole, and how long learning took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np

from capi._utils.randomness import numbered_rng, seed_sequence
from capi._utils.validation import Floats
from capi.baselines import DPI, FittedQIteration
from capi.data.transitions import Transitions
from capi.domains import CartPole
from capi.evaluators import FittedQ
from capi.experiments.pole.settings import MAX_STEPS, TESTS
from capi.experiments.setting import ALGORITHM_1
from capi.learning.capi import CAPI
from capi.policy_spaces import Forests
from capi.simulation.returns import performance
from capi.simulation.sampling import sample_episodes
from capi.types import Policy

EPISODES_AT_ONCE = 50
DECISIONS = 10_000  # that are timed together


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:
    """Return the results of a method; random streams depend on the seed alone, so methods learn from the same data."""
    pole = CartPole(track_limit=values["track_limit"], n_jobs=n_jobs)
    seeds = seed_sequence(seed)
    learn = _by_rollouts if values["method"] == "Tree-DPI" else _from_batch
    policy, n_used, learning = learn(values, pole, seeds, n_jobs)
    result = performance(policy, pole, n_episodes=TESTS, max_steps=MAX_STEPS, random_state=numbered_rng(seeds, 9))
    states = pole.initial(DECISIONS, numbered_rng(seeds, 8))
    started = process_time()
    policy.act(states)
    return {
        "steps": float(result.lengths.mean()),
        "fewest_steps": int(result.lengths.min()),
        "return": result.mean,
        "n_used": n_used,
        "learning_cpu_seconds": learning,
        "decision_cpu_seconds": (process_time() - started) / DECISIONS,
    }


def batch_of(pole: CartPole, n_samples: int, rng: np.random.Generator) -> Transitions:
    """Return ``n_samples`` transitions of a random policy from starts near balance; the last episode is truncated."""
    batches: list[Transitions] = []
    n = 0
    while n < n_samples:
        batches.append(sample_episodes(None, pole, n_episodes=EPISODES_AT_ONCE, max_steps=MAX_STEPS, random_state=rng))
        n += len(batches[-1])
    return Transitions.concat(batches, renumber_episodes=True).subset(np.arange(n_samples))


def _from_batch(
    values: Mapping[str, Any], pole: CartPole, seeds: np.random.SeedSequence, n_jobs: int
) -> tuple[Policy, int, float]:
    batch = batch_of(pole, values["n_samples"], numbered_rng(seeds, 0))
    evaluator = FittedQ(
        n_trees=values["n_trees"],
        min_samples_split=values["eta_v"],
        refresh_every=values["refresh_every"],
        n_jobs=n_jobs,
    )
    common: dict[str, Any] = {
        "discount": pole.discount,
        "n_iterations": values["n_iterations"],
        "random_state": numbered_rng(seeds, 1),
    }
    started = process_time()
    if values["method"] == "Tree-FQI":
        policy = FittedQIteration(evaluator, **common).fit(batch).policy_
    else:
        space = _space(values, values["refresh_every"], n_jobs)
        policy = CAPI(evaluator, space, **common, **ALGORITHM_1).fit(batch).policy_
    return policy, len(batch), process_time() - started


def _by_rollouts(
    values: Mapping[str, Any], pole: CartPole, seeds: np.random.SeedSequence, n_jobs: int
) -> tuple[Policy, int, float]:
    """Run direct policy iteration from widely spread states until as many transitions are simulated as a batch would have.

    The length of rollouts is known only afterwards. Each round spends its share of the remaining budget and assumes that its
    rollouts last as long as those of the previous round; the first round assumes that none ends early.
    """
    n_rounds, horizon, budget = values["rollout_iterations"], values["horizon"], values["n_samples"]
    wide = replace(pole, starts="wide")
    space = _space(values, 1, n_jobs)
    learner = DPI(wide, space, n_iterations=n_rounds, horizon=horizon, random_state=numbered_rng(seeds, 1))
    n_used, length = 0, float(horizon)

    def draw(k: int, policy: Policy, rng: np.random.Generator) -> Floats:  # noqa: ARG001
        share = (budget - n_used) / (n_rounds - k)
        return wide.initial(max(1, int(share / (length * pole.n_actions))), rng)

    started = process_time()
    for iteration in learner.iterate(states=draw):
        n_simulated = int(iteration.numbers()["n_transitions"])
        n_used += n_simulated
        length = n_simulated / iteration.q.values(iteration.q.states).size  # type: ignore[attr-defined]
        policy = iteration.policy
    return policy, n_used, process_time() - started


def prepare() -> None:
    """Compile everything once, so that no run's time includes compilation."""
    values = {"n_samples": 200, "n_trees": 2, "eta_v": 20, "eta_pi": 20, "n_iterations": 2, "refresh_every": 1}
    rounds = {"rollout_iterations": 1, "horizon": 2}
    for method, learn in (("Tree-FQI", _from_batch), ("Tree-CAPI", _from_batch), ("Tree-DPI", _by_rollouts)):
        learn({**values, **rounds, "method": method}, CartPole(), seed_sequence(0), 1)


def _space(values: Mapping[str, Any], refresh_every: int, n_jobs: int) -> Forests:
    return Forests(values["n_trees"], min_samples_split=values["eta_pi"], refresh_every=refresh_every, n_jobs=n_jobs)
