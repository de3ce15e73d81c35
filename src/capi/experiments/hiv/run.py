"""The protocol on simulated patients: rounds of treatment, learning after each round, and the return of the learned policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from capi._utils.randomness import numbered_rng, seed_sequence
from capi.baselines import FittedQIteration
from capi.data.transitions import Transitions
from capi.datasets import load_hiv_batch
from capi.domains import HIV
from capi.evaluators import FittedQ
from capi.experiments.hiv.settings import RETURN_STEPS
from capi.learning.capi import CAPI
from capi.policies import EpsilonGreedy, Uniform
from capi.policy_spaces import Forests
from capi.simulation.returns import performance
from capi.simulation.sampling import sample_episodes
from capi.types import Policy

Learn = Callable[[Transitions, int], Policy]  # a batch and a round -> a policy


def run(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of one setting: returns by method, or by round if the method collects its own data."""
    started = perf_counter()
    hiv = HIV(n_jobs=-1)
    if setting["data"] == "own":
        learn = learner(setting, setting["eta_pi"])
        batch, returns = rounds(hiv, learn, setting)
        found: dict[str, Any] = {"returns_by_round": returns, "n_transitions": len(batch)}
    else:
        if setting["batch"] == "embedded":
            batch = load_hiv_batch()
        else:
            batch, _ = rounds(hiv, learner(setting, None), setting)
        values = [worth(learner(setting, eta)(batch, 0), hiv) for eta in setting["methods"]]
        found = {"returns": values, "n_transitions": len(batch)}
    return {**setting, **found, "seconds": perf_counter() - started}


def learner(setting: Mapping[str, Any], eta_pi: int | None) -> Learn:
    """Return Tree-FQI for None, otherwise Tree-CAPI with policy trees whose nodes need ``eta_pi`` states to split."""
    evaluator = FittedQ(
        n_trees=setting["n_trees"],
        min_samples_split=setting["eta_v"],
        actions="input",
        refresh_every=setting["refresh_every"],
        n_jobs=-1,
    )

    def learn(batch: Transitions, k: int) -> Policy:
        seed = int(numbered_rng(seed_sequence(setting["seed"]), 1, k).integers(2**31))
        common = {"discount": 0.98, "n_iterations": setting["n_iterations"], "random_state": seed}
        if eta_pi is None:
            return FittedQIteration(evaluator, **common).fit(batch).policy_
        space = Forests(setting["n_trees"], min_samples_split=eta_pi, refresh_every=setting["refresh_every"], n_jobs=-1)
        return CAPI(evaluator, space, **common).fit(batch).policy_

    return learn


def rounds(hiv: HIV, learn: Learn, setting: Mapping[str, Any]) -> tuple[Transitions, list[float]]:
    """Treat patients in rounds; after each round, learn from all rounds so far.

    The drugs of the first round are random; later rounds follow the learned policy with exploration. Return all transitions and
    the return of the policy after each round. Seeds depend on the setting's seed and the round alone, so methods are paired.
    """
    seeds = seed_sequence(setting["seed"])
    policy: Policy = Uniform(hiv.n_actions)
    batches: list[Transitions] = []
    returns = []
    for k in range(setting["n_rounds"]):
        behaviour = policy if k == 0 else EpsilonGreedy(policy, setting["exploration"])
        batches.append(
            sample_episodes(
                behaviour,
                hiv,
                n_episodes=setting["n_patients"],
                max_steps=setting["n_steps"],
                random_state=numbered_rng(seeds, 0, k),
            )
        )
        batch = Transitions.concat(batches, renumber_episodes=True)
        policy = learn(batch, k)
        returns.append(worth(policy, hiv))
    return batch, returns


def worth(policy: Policy, hiv: HIV) -> float:
    """Return the discounted return over 5000 days from the unhealthy state; it is deterministic."""
    return performance(policy, hiv, n_episodes=1, max_steps=RETURN_STEPS).mean
