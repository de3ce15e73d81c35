"""A forest or a tree of one depth: what it is worth, and what trees that replace the forest are worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import process_time
from typing import Any

from capi._utils.randomness import numbered_rng, seed_sequence
from capi.data.transitions import Transitions
from capi.domains import HIV, CartPole
from capi.evaluators import FittedQ
from capi.experiments.hiv.run import worth
from capi.experiments.pole.run import batch_of
from capi.experiments.pole.settings import MAX_STEPS, TESTS
from capi.experiments.sensitivity.run import collected, prepare
from capi.learning.capi import CAPI
from capi.policy_spaces import Forests, Trees
from capi.simulation.returns import performance
from capi.types import Policy, PolicySpace

__all__ = ["prepare", "run"]


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:
    """Return the score of the learned policy (a return, or a number of steps), and of trees that replace it afterwards."""
    batch, score = _problem(values, seed, n_jobs)
    evaluator = FittedQ(
        values["n_trees"],
        min_samples_split=values["eta_v"],
        actions="input" if values["problem"] == "hiv" else "separate",
        refresh_every=values["refresh_every"],
        n_jobs=n_jobs,
    )
    space: PolicySpace = (
        Forests(
            values["n_trees"],
            min_samples_split=values["eta_pi"],
            refresh_every=values["refresh_every"],
            n_jobs=n_jobs,
        )
        if values["depth"] is None
        else Trees(max_depth=values["depth"])
    )
    seeds = seed_sequence(seed)
    started = process_time()
    learner = CAPI(
        evaluator, space, values["discount"], values["n_iterations"], random_state=numbered_rng(seeds, 1)
    ).fit(batch)
    seconds = process_time() - started
    q_values = learner.q_.values(batch.states)
    trees = [
        Trees(max_depth=depth).improve(batch.states, q_values, rng=numbered_rng(seeds, 2, depth))
        for depth in values["depths"]
    ]
    return {
        "score": score(learner.policy_),
        "scores_afterwards": [score(tree) for tree in trees],
        "learning_cpu_seconds": seconds,
    }


def _problem(values: Mapping[str, Any], seed: int, n_jobs: int) -> tuple[Transitions, Callable[[Policy], float]]:
    """Return the batch of a seed, and what measures a policy."""
    if values["problem"] == "hiv":
        return collected(seed, n_jobs), lambda policy: worth(policy, HIV(n_jobs=n_jobs))
    pole, seeds = CartPole(n_jobs=n_jobs), seed_sequence(seed)

    def steps(policy: Policy) -> float:
        rng = numbered_rng(seeds, 9)
        found = performance(policy, pole, n_episodes=TESTS, max_steps=MAX_STEPS, random_state=rng)
        return float(found.lengths.mean())

    return batch_of(pole, values["n_samples"], numbered_rng(seeds, 0)), steps
