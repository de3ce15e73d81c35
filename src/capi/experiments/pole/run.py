"""One method with one number of samples: how long its policy balances the pole, and how long learning took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from capi._utils.randomness import numbered_rng, seed_sequence
from capi._utils.validation import Floats
from capi.baselines import DPI, FittedQIteration
from capi.data.transitions import Transitions
from capi.domains import CartPole
from capi.evaluators import FittedQ
from capi.experiments.pole.settings import MAX_STEPS, TESTS
from capi.learning.capi import CAPI
from capi.policy_spaces import Forests
from capi.simulation.returns import performance
from capi.simulation.sampling import sample_episodes
from capi.types import Policy

EPISODES_AT_ONCE = 50


def run(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of one setting; random streams depend on its seed alone, so methods learn from the same data."""
    pole = CartPole(track_limit=setting["track_limit"], n_jobs=-1)
    seeds = seed_sequence(setting["seed"])
    _compiled()
    learn = _by_rollouts if setting["method"] == "Tree-DPI" else _from_batch
    policy, n_used, seconds = learn(setting, pole, seeds)
    result = performance(policy, pole, n_episodes=TESTS, max_steps=MAX_STEPS, random_state=numbered_rng(seeds, 9))
    steps, value = float(result.lengths.mean()), result.mean
    return {**setting, "steps": steps, "return": value, "n_used": n_used, "seconds": seconds}


def batch_of(pole: CartPole, n_samples: int, rng: np.random.Generator) -> Transitions:
    """Return ``n_samples`` transitions of a random policy from starts near balance; the last episode is truncated."""
    batches: list[Transitions] = []
    n = 0
    while n < n_samples:
        batches.append(sample_episodes(None, pole, n_episodes=EPISODES_AT_ONCE, max_steps=MAX_STEPS, random_state=rng))
        n += len(batches[-1])
    return Transitions.concat(batches, renumber_episodes=True).subset(np.arange(n_samples))


def _from_batch(setting: Mapping[str, Any], pole: CartPole, seeds: np.random.SeedSequence) -> tuple[Policy, int, float]:
    batch = batch_of(pole, setting["n_samples"], numbered_rng(seeds, 0))
    evaluator = FittedQ(
        n_trees=setting["n_trees"],
        min_samples_split=setting["eta_v"],
        refresh_every=setting["refresh_every"],
        n_jobs=-1,
    )
    common: dict[str, Any] = {
        "discount": pole.discount,
        "n_iterations": setting["n_iterations"],
        "random_state": numbered_rng(seeds, 1),
    }
    started = perf_counter()
    if setting["method"] == "Tree-FQI":
        policy = FittedQIteration(evaluator, **common).fit(batch).policy_
    else:
        policy = CAPI(evaluator, _space(setting, setting["refresh_every"]), **common).fit(batch).policy_
    return policy, len(batch), perf_counter() - started


def _by_rollouts(
    setting: Mapping[str, Any], pole: CartPole, seeds: np.random.SeedSequence
) -> tuple[Policy, int, float]:
    """Run direct policy iteration from widely spread states until as many transitions are simulated as a batch would have.

    The length of rollouts is known only afterwards. Each round spends its share of the remaining budget and assumes that its
    rollouts last as long as those of the previous round; the first round assumes that none ends early.
    """
    n_rounds, horizon, budget = setting["rollout_iterations"], setting["horizon"], setting["n_samples"]
    wide = replace(pole, starts="wide")
    learner = DPI(wide, _space(setting, 1), n_iterations=n_rounds, horizon=horizon, random_state=numbered_rng(seeds, 1))
    n_used, length = 0, float(horizon)

    def draw(k: int, policy: Policy, rng: np.random.Generator) -> Floats:  # noqa: ARG001
        share = (budget - n_used) / (n_rounds - k)
        return wide.initial(max(1, int(share / (length * pole.n_actions))), rng)

    started = perf_counter()
    for iteration in learner.iterate(states=draw):
        n_simulated = int(iteration.numbers()["n_transitions"])
        n_used += n_simulated
        length = n_simulated / iteration.q.values(iteration.q.states).size  # type: ignore[attr-defined]
        policy = iteration.policy
    return policy, n_used, perf_counter() - started


@cache
def _compiled() -> None:
    """Compile everything once, so that no run's time includes compilation."""
    setting = {"n_samples": 200, "n_trees": 2, "eta_v": 20, "eta_pi": 20, "n_iterations": 2, "refresh_every": 1}
    rounds = {"rollout_iterations": 1, "horizon": 2}
    for method, learn in (("Tree-FQI", _from_batch), ("Tree-CAPI", _from_batch), ("Tree-DPI", _by_rollouts)):
        learn({**setting, **rounds, "method": method}, CartPole(), seed_sequence(0))


def _space(setting: Mapping[str, Any], refresh_every: int) -> Forests:
    return Forests(setting["n_trees"], min_samples_split=setting["eta_pi"], refresh_every=refresh_every, n_jobs=-1)
