"""The log for evaluation: its episodes, their folds, and the behaviour probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import (
    Constraints,
    at_least,
    check_parameters,
    one_of,
    optional,
    satisfying,
    strictly_between,
)
from capi._utils.randomness import RandomState, numbered_rng, seed_sequence
from capi._utils.threads import n_threads
from capi._utils.validation import Floats, Ints, as_discount
from capi.data.summary.coverage import counts_by_leaf
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.offline.behaviour import Behaviour, behaviour_of
from capi.offline.episodes import Episodes
from capi.offline.evidence import METHODS
from capi.offline.fitted_q import Regression
from capi.types import PolicyEvaluator

FOLDS, BEHAVIOUR, VALUES, LOGGED_VALUES, FITTED, RESAMPLES = range(6)  # random-number streams


@dataclass(frozen=True)
class Settings:
    """Settings of an evaluation; `evaluate` documents each of them."""

    discount: float
    method: str = "auto"
    methods: tuple[str, ...] = METHODS
    behaviour: Any = None
    evaluator: PolicyEvaluator | None = None
    n_folds: int = 5
    n_resamples: int = 200
    level: float = 0.95
    random_state: RandomState = 0
    n_jobs: int | None = None
    regression: Regression = field(default_factory=Regression)

    _constraints: ClassVar[Constraints] = {
        "discount": as_discount,
        "method": one_of("auto", *METHODS),
        "evaluator": optional(satisfying(lambda e: isinstance(e, PolicyEvaluator), "be a PolicyEvaluator")),
        "n_folds": at_least(2),
        "n_resamples": at_least(1),
        "level": strictly_between(0, 1),
        "n_jobs": n_threads,
    }

    def __post_init__(self) -> None:
        check_parameters(self)


@dataclass(frozen=True, eq=False)
class Log:
    """The episodes, their folds, and the settings of the evaluation."""

    episodes: Episodes
    settings: Settings
    seeds: np.random.SeedSequence
    fold_of_episode: Ints  # (E,)

    @property
    def batch(self) -> Transitions:
        """The transitions of the log."""
        return self.episodes.batch

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.fold_of_episode.max()) + 1

    @cached_property
    def fold_of_row(self) -> Ints:
        """The fold of each row (n,)."""
        return self.fold_of_episode[self.episodes.of_row]

    @cached_property
    def behaviour(self) -> Behaviour:
        """The probabilities of the logged actions."""
        s = self.settings
        return behaviour_of(self.batch, self.fold_of_row, s.behaviour, self.rng(BEHAVIOUR), s.n_jobs)

    @cached_property
    def by_leaf(self) -> tuple[Ints, Floats]:
        """The group of similar states of each row (n,), and how often each action was taken in each group."""
        return counts_by_leaf(self.batch)

    def rng(self, *numbers: int) -> np.random.Generator:
        """Return the random generator of the stream and substreams given by ``numbers``."""
        return numbered_rng(self.seeds, *numbers)


def log_of(batch: Transitions, settings: Settings) -> Log:
    """Return the log of a batch, with its episodes assigned to folds at random; episodes without weight are dropped."""
    if not isinstance(batch, Transitions):
        raise InvalidInputError(f"batch must be a Transitions; got {type(batch).__name__}.")
    episodes, seeds = Episodes.counted(batch, settings.discount), seed_sequence(settings.random_state)
    n_episodes = len(episodes)
    if n_episodes < 2:
        raise InvalidInputError(
            "evaluation needs at least two episodes with positive weight; this batch has one. Name the episode column, or collect more episodes."
        )
    fold = np.empty(n_episodes, dtype=np.int64)
    order = numbered_rng(seeds, FOLDS).permutation(n_episodes)
    fold[order] = np.arange(n_episodes) % min(settings.n_folds, n_episodes)
    return Log(episodes, settings, seeds, fold)
