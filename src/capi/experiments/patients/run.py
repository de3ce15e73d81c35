"""One method with the records of some patients: what its policy is worth."""

from __future__ import annotations

from collections.abc import Mapping
from time import process_time
from typing import Any

import numpy as np

from capi._utils.randomness import numbered_rng, seed_sequence
from capi.baselines import FittedQIteration
from capi.data.transitions import Transitions
from capi.domains import HIV
from capi.evaluators import FittedQ
from capi.experiments.hiv.run import worth
from capi.experiments.sensitivity.run import collected, prepare
from capi.learning.capi import CAPI
from capi.policy_spaces import Forests, Trees
from capi.selection import choose
from capi.types import Policy

__all__ = ["prepare", "run"]


def run(values: Mapping[str, Any], seed: int, n_jobs: int = 1) -> dict[str, Any]:
    """Return the return of the learned policy, what selection chose, and the time of learning."""
    batch = some_patients(collected(seed, n_jobs), values["n_logged"], seed)
    number = int(numbered_rng(seed_sequence(seed), 1).integers(2**31))
    started = process_time()
    policy, chosen = (_selected if values["method"] == "selection" else _learned)(values, batch, number, n_jobs)
    seconds = process_time() - started
    return {"return": worth(policy, HIV(n_jobs=n_jobs)), "chosen": chosen, "learning_cpu_seconds": seconds}


def some_patients(batch: Transitions, n: int, seed: int) -> Transitions:
    """Return the rows of ``n`` random patients; more patients include those of fewer."""
    patients = np.asarray(batch.episodes)
    kept = numbered_rng(seed_sequence(seed), 7).permutation(np.unique(patients))[:n]
    return batch.subset(np.isin(patients, kept))


def _learned(values: Mapping[str, Any], batch: Transitions, number: int, n_jobs: int) -> tuple[Policy, str]:
    evaluator = _evaluator(values, values["n_trees"], n_jobs)
    common: dict[str, Any] = {"n_iterations": values["n_iterations"], "random_state": number}
    if values["method"] == "Tree-FQI":
        return FittedQIteration(evaluator, values["discount"], **common).fit(batch).policy_, ""
    return CAPI(evaluator, _forest(values, values["n_trees"], n_jobs), values["discount"], **common).fit(
        batch
    ).policy_, ""


def _selected(values: Mapping[str, Any], batch: Transitions, number: int, n_jobs: int) -> tuple[Policy, str]:
    evaluator = _evaluator(values, values["selection_trees"], n_jobs)
    spaces: dict[str, Any] = {f"tree of depth {depth}": Trees(max_depth=depth) for depth in values["depths"]}
    spaces["forest"] = _forest(values, values["selection_trees"], n_jobs)
    candidates = {
        name: CAPI(evaluator, space, values["discount"], values["n_iterations"], random_state=number)
        for name, space in spaces.items()
    }
    learner = choose(batch, values["discount"], candidates=candidates, always_learn=True, random_state=number)
    return learner.policy_, str(learner.selection_.chosen)


def _evaluator(values: Mapping[str, Any], n_trees: int, n_jobs: int) -> FittedQ:
    return FittedQ(
        n_trees,
        min_samples_split=values["eta_v"],
        actions="input",
        refresh_every=values["refresh_every"],
        n_jobs=n_jobs,
    )


def _forest(values: Mapping[str, Any], n_trees: int, n_jobs: int) -> Forests:
    return Forests(n_trees, min_samples_split=values["eta_pi"], refresh_every=values["refresh_every"], n_jobs=n_jobs)
