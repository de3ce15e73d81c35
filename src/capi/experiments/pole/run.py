"""One method on one number of samples: how long its policy balances the pole, and what learning took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from capi.baselines import DPI, FittedQIteration
from capi.domains import CartPole
from capi.evaluators import FittedQ
from capi.experiments.pole.settings import MAX_STEPS, TESTS
from capi.iteration import CAPI
from capi.performance import performance
from capi.policy_spaces import Forests
from capi.randomness import numbered_rng, seed_sequence
from capi.sampling import sample_episodes
from capi.transitions import Transitions
from capi.types import Policy

EPISODES_AT_ONCE = 50


def run(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of one setting. Seeds depend on the setting's seed alone: methods learn from the same data."""
    pole = CartPole(track_limit=setting["track_limit"], n_jobs=-1)
    seeds = seed_sequence(setting["seed"])
    learn = _by_rollouts if setting["method"] == "Tree-DPI" else _from_batch
    policy, n_used, seconds = learn(setting, pole, seeds)
    result = performance(policy, pole, n_episodes=TESTS, max_steps=MAX_STEPS, random_state=numbered_rng(seeds, 9))
    steps, value = float(result.lengths.mean()), result.mean
    return {**setting, "steps": steps, "return": value, "n_used": n_used, "seconds": seconds}


def batch_of(pole: CartPole, n_samples: int, rng: np.random.Generator) -> Transitions:
    """Return ``n_samples`` transitions of a random policy from starts near balance; the last episode is cut off."""
    batches: list[Transitions] = []
    n = 0
    while n < n_samples:
        batches.append(sample_episodes(pole, n_episodes=EPISODES_AT_ONCE, max_steps=MAX_STEPS, random_state=rng))
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
    """Direct policy iteration from states all over; as many of them as the samples pay for if no rollout ends early."""
    rounds, horizon = setting["rollout_iterations"], setting["horizon"]
    learner = DPI(
        replace(pole, starts="wide"),
        _space(setting, 1),
        n_iterations=rounds,
        n_states=max(1, setting["n_samples"] // (rounds * horizon * pole.n_actions)),
        horizon=horizon,
        random_state=numbered_rng(seeds, 1),
    )
    started = perf_counter()
    learner.fit()
    n_used = sum(int(row["n_transitions"]) for row in learner.history_)
    return learner.policy_, n_used, perf_counter() - started


def _space(setting: Mapping[str, Any], refresh_every: int) -> Forests:
    return Forests(setting["n_trees"], min_samples_split=setting["eta_pi"], refresh_every=refresh_every, n_jobs=-1)
