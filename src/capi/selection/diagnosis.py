"""Where the loss of a learner comes from: its evaluator, its space, its sample or leaving the log; and how stable its rules are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from capi._utils.randomness import RandomState, seed_sequence
from capi._utils.threads import n_threads
from capi._utils.validation import as_int
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError, RareActionWarning
from capi.evaluators.averager import why_not
from capi.learning import rules
from capi.learning.iteration import start_sample
from capi.learning.learner import Learner
from capi.offline.evaluation import check_is_evaluable
from capi.selection._diagnosis_result import Diagnosis
from capi.selection._log_support import of_log
from capi.selection._parts import Task, of_halves, of_seeds
from capi.selection._refits import Refits, counting_episodes
from capi.selection._stability import stability_of
from capi.types import PolicyEvaluator

__all__ = ["Diagnosis", "diagnose"]


def diagnose(
    learner: Learner,
    batch: Transitions,
    *,
    starts: Any = None,
    n_refits: int = 10,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
    executor: Any = None,
    shown: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Diagnosis:
    """Return how much a learner loses by its evaluator, its space, its sample and by leaving the log, and how stable its rules are.

    The learner is refitted, with its own settings, on both halves of ``n_refits // 2`` divisions of the episodes and on ``n_refits`` resamples
    of them: about as much work as ``1.5 * n_refits`` fits. Halves have less data than the learner had, so they overstate
    ``evaluator`` and ``sample``. This helps to choose settings; it is not evidence.

    Parameters
    ----------
    learner : Learner
        Fitted, such as a `CAPI`.
    batch : Transitions
        The batch that it was learned from, with at least two episodes.
    starts : array of shape (m, d), or tuple (states, weights[, allowed]), optional
        As in ``fit``.
    n_refits : int
    random_state : int, Generator or None
    n_jobs : int, optional
        Number of refits at a time, in threads; -1 uses all cores. The result does not depend on it.
    executor : concurrent.futures.Executor, dask.distributed.Client or name of a joblib backend, optional
        Where the refits run instead. The result does not depend on it.
    shown : callable
        Wraps the iteration over refits, for example with a progress bar.

    Examples
    --------
    The best of two arms depends on two columns together, and a single cut knows only one:

    >>> import numpy as np
    >>> from capi import CAPI
    >>> from capi.evaluators import FittedQ
    >>> from capi.policy_spaces import Thresholds
    >>> rng = np.random.default_rng(0)
    >>> x, arms = rng.choice([-1.0, 1.0], (400, 2)), rng.integers(2, size=400)
    >>> rewards = np.where(arms == (x[:, 0] * x[:, 1] > 0), 1.0, 0.0)
    >>> batch = Transitions(x, arms, rewards, x, np.ones(400, dtype=bool))
    >>> learner = CAPI(FittedQ(), Thresholds(), discount=0.0, random_state=0).fit(batch)
    >>> found = diagnose(learner, batch, n_refits=4)
    >>> found.dominant, round(found.space, 1)
    ('space', 0.5)
    """
    policy, q = _checked(learner, batch)
    as_int(n_refits, "n_refits", minimum=1)
    threads, seeds, sample = n_threads(n_jobs), seed_sequence(random_state), start_sample(starts, batch)
    loop = rules.with_rules(learner.loop(), batch, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RareActionWarning)  # the learner has warned already
        excluded = rules.excluded_actions(loop.evaluator, batch)
    task = Task(batch, policy, q, loop.discount, sample, excluded, seeds, threads)
    notes = []
    reason = None if rules.by_trees(loop.evaluator, batch) else why_not(q, batch)
    if reason is not None:
        notes.append(f"{reason.split('. ')[0]}; all but the evaluator was measured in trees grown on its targets.")
    refits = Refits.of(learner, batch, starts, n_refits, seeds, shown, n_jobs, executor)
    if refits.failures:
        notes.append(
            f"{len(refits.failures)} of the refits failed and were left out. The first one: {refits.failures[0]}"
        )
    halves = of_halves(task, refits.halves)
    by_seeds = math.nan
    if isinstance(loop.evaluator, PolicyEvaluator):
        by_seeds = of_seeds(task, loop.evaluator)
    else:
        notes.append("the evaluator is a function of the round, so it was not compared between seeds.")
    left = of_log(task)
    stable = stability_of(policy, batch, refits.resamples)
    model = task.under.model
    return Diagnosis(
        evaluator=halves.evaluator,
        evaluator_seeds=by_seeds,
        space=halves.space,
        space_in_model=model.value(task.best(model)) - task.under.value,
        sample=halves.held_out - halves.learning,
        learning_loss=halves.learning,
        held_out_loss=halves.held_out,
        log=left.at_stake,
        left_by_visits=left.by_visits,
        left_by_rows=left.by_rows,
        same_root=stable.root,
        same_columns=stable.columns,
        same_decisions=stable.decisions,
        same_decisions_by_row=stable.by_row,
        value=task.under.value,
        stakes=task.stakes,
        n_rows=len(batch),
        n_episodes=batch.n_episodes,
        n_refits=len(refits.resamples),
        notes=tuple(notes),
    )


def _checked(learner: Any, batch: Any) -> tuple[Any, Any]:
    """Return the policy and the action values of a fitted learner that fits the batch."""
    if not isinstance(learner, Learner):
        raise InvalidInputError(f"learner must be a fitted learner, such as a CAPI; got {type(learner).__name__}.")
    if not isinstance(batch, Transitions):
        raise InvalidInputError(
            f"batch must be the Transitions that the learner was fitted on; got {type(batch).__name__}."
        )
    policy, q = learner.policy_, learner.q_
    check_is_evaluable("the policy", policy, batch)
    training = getattr(policy, "training", None)
    if training is not None and training.n_rows not in (None, len(batch)):
        raise InvalidInputError(
            f"batch must be the one that the learner was fitted on, with {training.n_rows} rows; it has {len(batch)}."
        )
    n_episodes = int(counting_episodes(batch).sum())
    if n_episodes < 2:
        raise InvalidInputError(
            f"diagnose divides the episodes into halves, so it needs at least two with positive weight; this batch has {n_episodes}. "
            "Name the episode column, or collect more episodes."
        )
    return policy, q
