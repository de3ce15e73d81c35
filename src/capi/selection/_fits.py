"""The fits of a selection: what a candidate learns from some episodes, valued on others."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from capi._utils.threads import n_threads
from capi._utils.validation import Floats
from capi.data.transitions import Transitions
from capi.errors import RareActionWarning
from capi.learning.rules import default_evaluator, horizon
from capi.offline.fitted_q import Regression
from capi.offline.score import fitted_value_with_influence
from capi.selection.candidates import Candidate
from capi.selection.result import reason
from capi.selection.scores import doubly_robust
from capi.simulation.logged_steps import Surroundings
from capi.types import Policy

SCORING_TREES, N_SIMULATED = 30, 200  # trees or simulated episodes of a rough value
MORE = 5  # times as many of a final one
RARELY = 0.05  # probability of an action that the log rarely takes


@dataclass(frozen=True, eq=False)
class Task:
    """A fit of a candidate to some episodes, and the others that value it."""

    candidate: Candidate
    rest: Transitions
    fold: Transitions
    half: int | None  # number of the half that values it; None for all episodes
    stage: str  # "rough", "final" or "whole"

    @property
    def key(self) -> tuple[str, str]:
        """What its result is remembered by."""
        settings = hashlib.sha256(repr(self.candidate.learner).encode()).hexdigest()[:16]
        return f"{self.candidate.name} {settings}", self.stage if self.half is None else f"{self.stage} {self.half}"


def valued(
    task: Task,
    logged: Floats | None,
    world: Surroundings | None,
    starts: Transitions,
    discount: float,
    seed: int,
    one_thread: bool,
    usable: Callable[[Policy], None] | None = None,
) -> dict[str, Any]:
    """Return the value of what a candidate learned from the task's episodes, in a model of other episodes, or of all of them."""
    started = perf_counter()
    fold, more = task.fold, 1 if task.stage == "rough" else MORE
    found: dict[str, Any] = {"left": 0.0}
    try:
        if task.half is None:
            policy = task.candidate.learned(task.rest).policy_
            if usable is not None:
                usable(policy)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RareActionWarning)
                policy = task.candidate.fitted(task.rest, quick=task.stage == "rough").policy_
        if world is None:
            regression = Regression(n_trees=SCORING_TREES * more, n_jobs=1 if one_thread else n_threads(-1))
            value, of_episodes = fitted_value_with_influence(policy, fold, discount, regression, seed)
        else:
            value, of_episodes = world.value(policy, starts, N_SIMULATED * more, horizon(world.batch, discount), seed)
        if logged is not None:
            least = min(RARELY, 0.5 / fold.n_actions)
            found["left"] = float(
                (policy.probabilities(fold.states, fold.allowed) * (logged < least)).sum(axis=1).mean()
            )
            if robust := _robust(policy, task.rest, fold, logged, discount):
                found["robust"] = robust
    except Exception as error:  # of a learner that may be anybody's; the others go on
        return {"failed": reason(error), "seconds": perf_counter() - started}
    seconds = perf_counter() - started
    return {**found, "value": value, "of_episodes": of_episodes.tolist(), "seconds": seconds}


def _robust(
    policy: Any, rest: Transitions, fold: Transitions, logged: Floats, discount: float
) -> dict[str, Any] | None:
    """Return the doubly robust value on one half of a policy that was learned from the other one; None where they overlap too little."""
    counts = fold.weights
    if counts is not None and not np.array_equal(counts, np.repeat(counts[fold.episode_starts], fold.episode_lengths)):
        return None  # weights of rows, not of episodes
    probabilities = logged if fold.propensities is None else fold.propensities
    if (counts is not None and not counts.any()) or not doubly_robust(
        policy, None, fold, probabilities, discount=discount
    ).overlaps:
        return None
    q = default_evaluator(rest, discount).evaluate(policy, rest, discount=discount)
    found = doubly_robust(policy, q, fold, probabilities, discount=discount)
    return {"value": found.value, "of_episodes": found.of_episodes.tolist()}
