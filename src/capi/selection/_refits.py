"""Refits of a learner on parts and resamples of its episodes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from capi._utils.executors import ordered
from capi._utils.randomness import numbered_rng
from capi._utils.threads import in_threads, n_threads
from capi._utils.validation import Bools
from capi.data.transitions import Transitions
from capi.errors import CapiError, RareActionWarning
from capi.learning.learner import Learner
from capi.types import Policy, QFunction

HALVES, SEEDS, BEHAVIOUR, MODELS, BOOTSTRAP, FITS = range(6)  # random-number streams


@dataclass(frozen=True, eq=False)
class Refit:
    """What a learner learned from a batch."""

    batch: Transitions
    policy: Policy
    q: QFunction


@dataclass(frozen=True, eq=False)
class Refits:
    """The refits of a learner: two for each division of the episodes into halves, and one for each resample.

    A refit that fails, for example because a half lacks an action that the evaluator needs, is left out.
    """

    halves: list[tuple[Refit, Refit]]
    resamples: list[Refit]
    failures: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        learner: Learner,
        batch: Transitions,
        starts: Any,
        n_refits: int,
        seeds: np.random.SeedSequence,
        shown: Callable[[Sequence[Any]], Iterable[Any]],
        n_jobs: int | None,
        executor: Any = None,
    ) -> Refits:
        """Refit the learner on both halves of ``n_refits // 2`` divisions (at least one) and on ``n_refits`` resamples."""
        n_divisions = max(1, n_refits // 2)
        batches = [half for k in range(n_divisions) for half in _halves(batch, numbered_rng(seeds, HALVES, k))]
        batches += [_resampled(batch, numbered_rng(seeds, BOOTSTRAP, b)) for b in range(n_refits)]
        threads, some = n_threads(n_jobs), {} if starts is None else {"starts": starts}
        calls = [
            (learner, batches[i], some, int(numbered_rng(seeds, FITS, i).integers(2**31))) for i in range(len(batches))
        ]
        found: list[Refit | str] = []
        if executor is not None:
            results = ordered(_refitted, calls, executor)
            found = [next(results) for _ in shown(calls)]
        else:
            for block in shown([calls[i : i + threads] for i in range(0, len(calls), threads)]):
                found += in_threads(lambda call: _refitted(*call), block, threads)
        pairs = zip(found[: 2 * n_divisions : 2], found[1 : 2 * n_divisions : 2], strict=True)
        return cls(
            [(a, b) for a, b in pairs if isinstance(a, Refit) and isinstance(b, Refit)],
            [refit for refit in found[2 * n_divisions :] if isinstance(refit, Refit)],
            [reason for reason in found if isinstance(reason, str)],
        )


def _refitted(learner: Learner, batch: Transitions, starts: dict[str, Any], seed: int) -> Refit | str:
    """Return the refit on a batch, or why it failed."""
    again = clone(learner)
    if "random_state" in again.get_params(deep=False):
        again.set_params(random_state=seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RareActionWarning)  # the learner has warned already, of the whole batch
            again.fit(batch, **starts)
    except CapiError as error:
        return str(error)
    return Refit(batch, again.policy_, again.q_)


def counting_episodes(batch: Transitions) -> Bools:
    """Return which episodes have a row with weight (E,)."""
    if batch.weights is None:
        return np.ones(batch.n_episodes, dtype=bool)
    return np.add.reduceat(batch.weights, batch.episode_starts) > 0


def _halves(batch: Transitions, rng: np.random.Generator) -> tuple[Transitions, Transitions]:
    """Return two batches, each with half of the episodes that have weight."""
    counting = np.flatnonzero(counting_episodes(batch))
    first = np.zeros(batch.n_episodes, dtype=bool)
    first[counting[rng.permutation(len(counting))[: len(counting) // 2]]] = True
    rows = np.repeat(first, batch.episode_lengths)
    return batch.subset(rows), batch.subset(~rows)


def _resampled(batch: Transitions, rng: np.random.Generator) -> Transitions:
    """Return the batch with episodes drawn with replacement: their counts multiply the weights of their rows."""
    counting = np.flatnonzero(counting_episodes(batch))
    drawn = counting[rng.integers(len(counting), size=len(counting))]
    counts = np.repeat(np.bincount(drawn, minlength=batch.n_episodes), batch.episode_lengths)
    part, own = batch.subset(counts > 0), counts[counts > 0].astype(np.float64)
    return part._with({"weights": own if part.weights is None else own * part.weights})
