"""Use every kernel once on a tiny problem, so that its machine code is compiled and stored."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from capi import domains, evaluators, offline, policy_spaces
from capi.data.transitions import Transitions
from capi.errors import KernelCacheWarning
from capi.evaluators.averager import Averager
from capi.features.bases import Polynomial
from capi.learning.capi import CAPI
from capi.policies import Constant
from capi.testing import random_batch
from capi.trees.forest import Growth
from capi.trees.regressor import ExtraTreesRegressor

N_ACTIONS, SEED, DISCOUNT = 3, 0, 0.9
COMPLETE_STATES = policy_spaces.Linear, policy_spaces.Thresholds  # spaces without missing values
KERNELS = ".nbc", ".nbi"  # the files of machine code


def parts_to_compile() -> dict[str, Callable[[], None]]:
    """Return the parts of the library that are compiled, by name, each with a function that compiles it."""
    return {name: partial(_used, use) for name, use in PARTS.items()}


def _used(use: Callable[[], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about tiny problems ...
        warnings.simplefilter("default", KernelCacheWarning)  # ... but not about a cache that cannot be written
        use()


def stored_machine_code() -> dict[str, int]:
    """Return the folders in which this process keeps machine code, and their sizes in bytes."""
    folders = {
        path
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("capi.")
        for value in vars(module).values()
        if (path := getattr(getattr(value, "_cache", None), "cache_path", None)) is not None
    }
    sizes = {
        folder: sum(file.stat().st_size for file in Path(folder).glob("*") if file.suffix in KERNELS)
        for folder in sorted(folders)
    }
    return {folder: size for folder, size in sizes.items() if size}


def _batch(missing: bool = False) -> Transitions:
    batch = random_batch(SEED)
    if not missing:
        return batch
    states = batch.states.copy()
    states[::7, 0] = np.nan
    return Transitions(
        states,
        batch.actions,
        batch.rewards,
        batch.next_states,
        batch.terminated,
        n_actions=N_ACTIONS,
        episodes=batch.episodes,
    )


def _evaluated(evaluator: Any, batch: Transitions | None = None) -> Any:
    """Evaluate a policy twice, as in two rounds; return the second Q."""
    batch, q = _batch() if batch is None else batch, None
    for _ in range(2):
        q = evaluator.evaluate(
            Constant(0, N_ACTIONS),
            batch,
            discount=DISCOUNT,
            states=batch.states,
            previous=q,
            rng=np.random.default_rng(SEED),
        )
        q.values(batch.states)
        q.values(batch.states[:5].copy())
    return q


def _improved(*spaces: Any) -> None:
    """Choose policies in spaces, with and without missing values and masks, and let them decide."""
    rng = np.random.default_rng(SEED)
    for batch in (_batch(), _batch(missing=True)):
        values = rng.normal(size=(len(batch), N_ACTIONS))
        for space in spaces:
            if np.isnan(batch.states).any() and isinstance(space, COMPLETE_STATES):
                continue
            policy = space.improve(batch.states, values, rng=rng)
            policy.act(batch.states)
            policy.act(batch.states[:3].copy())


def _fitted_q() -> None:
    for actions in ("separate", "input"):
        for n_jobs in (None, 2):
            _evaluated(evaluators.FittedQ(n_trees=2, n_sweeps=2, actions=actions, n_jobs=n_jobs))
    _evaluated(evaluators.FittedQ(n_trees=2, n_sweeps=2), _batch(missing=True))
    batch = _batch()
    ExtraTreesRegressor(n_trees=2, random_state=SEED).fit(batch.states, batch.rewards).predict(batch.states)


def _optimal_trees() -> None:
    _improved(
        *(
            policy_spaces.OptimalTrees(max_depth=depth, min_samples_leaf=leaf, n_thresholds=cuts)
            for depth, cuts in ((1, None), (2, None), (2, 8), (3, None), (4, None))  # few cuts: tables, many: passes
            for leaf in (1, 5)
        )
    )


def _linear() -> None:
    _improved(policy_spaces.Linear(), policy_spaces.Thresholds())


def _temporal_differences() -> None:
    for kind in (evaluators.TD, evaluators.GTD, evaluators.GTD2, evaluators.TDC):
        _evaluated(kind(Polynomial(1)))


def _simulators() -> None:
    rng = np.random.default_rng(SEED)
    for domain in (domains.HIV(), domains.CartPole(), domains.MountainCar(), domains.ChainWalk()):
        states = domain.initial(4, rng)
        domain.step(states, np.zeros(4, dtype=np.int64), rng)


def _loop() -> None:
    """Run the default loop, which weighs states by visits and keeps the iterate with the best score."""
    for batch in (_batch(), _batch(missing=True)):
        CAPI(discount=DISCOUNT, n_iterations=2, random_state=SEED).fit(batch)


def _averages() -> None:
    """Solve for values and visits through leaves with many rows, and, after reweighting, through leaves without weight."""
    batch, policy, rng = random_batch(SEED, n_episodes=300), Constant(0, N_ACTIONS), np.random.default_rng(SEED)
    growth = Growth(n_trees=6, min_samples_split=60)
    model = Averager.grown(batch, batch.rewards, growth, rng, discount=DISCOUNT, n_jobs=2)
    few = (np.arange(len(batch)) % 100 == 0).astype(np.float64)
    for each in (model, model.reweighted(few)):
        under = each.under(policy)
        under.value, under.occupancy  # noqa: B018  they are computed when asked for


def _evaluation() -> None:
    offline.evaluate(Constant(1, N_ACTIONS), _batch(), discount=DISCOUNT, n_resamples=20, random_state=SEED, n_jobs=2)


PARTS: dict[str, Callable[[], None]] = {
    "fitted Q": _fitted_q,
    "trees and forests": lambda: _improved(policy_spaces.Trees(max_depth=2), policy_spaces.Forests(n_trees=2)),
    "optimal trees": _optimal_trees,
    "the loop": _loop,
    "averages": _averages,
    "linear policies and thresholds": _linear,
    "temporal differences": _temporal_differences,
    "evaluation": _evaluation,
    "simulators": _simulators,
}
