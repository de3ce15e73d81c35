"""The log for evaluation: its episodes, their folds, and the behaviour probabilities."""

from __future__ import annotations

from collections.abc import Sequence
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
from capi._utils.row_ops import chosen_entries
from capi._utils.threads import n_threads
from capi._utils.validation import Floats, Ints, as_discount
from capi.data.summary.coverage import SimilarStates, counts_by_leaf
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.offline.behaviour import Behaviour, behaviour_of
from capi.offline.episodes import Episodes
from capi.offline.evidence import METHODS
from capi.offline.fitted_q import Regression
from capi.policies.behaviour import FoldModel, mixed
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
class FromSample:
    """What the parts of a large log have in common, found on a sample of its episodes."""

    groups: SimilarStates
    models: (
        Sequence[FoldModel] | None
    )  # of the logged actions, without each of the folds; None if the log has probabilities
    edges: list[Floats] | None  # of the bins in which their predictions are checked


@dataclass(frozen=True, eq=False)
class Log:
    """The episodes, their folds, and the settings of the evaluation."""

    episodes: Episodes
    settings: Settings
    seeds: np.random.SeedSequence
    fold_of_episode: Ints  # (E,)
    from_sample: FromSample | None = None  # of a part of a log

    @property
    def batch(self) -> Transitions:
        """The transitions of the log."""
        return self.episodes.batch

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return min(self.settings.n_folds, self.episodes.extent.n_episodes)

    @cached_property
    def fold_of_row(self) -> Ints:
        """The fold of each row (n,)."""
        return self.fold_of_episode[self.episodes.of_row]

    @cached_property
    def behaviour(self) -> Behaviour:
        """The probabilities of the logged actions."""
        s = self.settings
        if self.from_sample is not None:
            logged = (
                self.batch.propensities
                if self.predicted is None
                else chosen_entries(self.predicted, self.batch.actions)
            )
            return Behaviour(np.asarray(logged), self.predicted is None, np.nan, np.nan, np.nan)
        return behaviour_of(self.batch, self.fold_of_row, s.behaviour, self.rng(BEHAVIOUR), s.n_jobs)

    @cached_property
    def predicted(self) -> Floats | None:
        """The probabilities of all actions (n, A) by the models of the sample, each without the row's fold; None without such models."""
        models = None if self.from_sample is None else self.from_sample.models
        if models is None:
            return None
        found = np.empty((len(self.batch), self.batch.n_actions))
        for k, model in enumerate(models):
            rows = np.flatnonzero(self.fold_of_row == k)
            if len(rows):
                found[rows] = model.frequencies(self.batch.states[rows])
        return mixed(found, self.batch.allowed)

    @cached_property
    def by_leaf(self) -> tuple[Ints, Floats]:
        """The group of similar states of each row (n,), and how often each action was taken in each group."""
        if self.from_sample is None:
            return counts_by_leaf(self.batch)
        leaves = self.from_sample.groups.leaves(self.batch.states)
        return leaves, self.from_sample.groups.counts(self.batch, leaves)

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
