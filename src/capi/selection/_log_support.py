"""How often a policy takes actions that the log rarely takes, and what it expects to gain by them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from capi._utils.randomness import numbered_rng, shuffled_folds
from capi._utils.validation import Floats
from capi.policies.behaviour import cross_fitted
from capi.selection._parts import Task
from capi.selection._refits import BEHAVIOUR

RARE = 0.05  # probability below which the log rarely takes an action
MOST_FOLDS = 5


class OfLog(NamedTuple):
    """Decisions that the log rarely takes."""

    by_visits: float  # their share, weighted by the policy's visits
    by_rows: float  # their share of the rows
    at_stake: float  # what the policy expects to gain by them over the best action that the log does take, per episode


def of_log(task: Task) -> OfLog:
    """Return how far the policy leaves the log, by probabilities from trees that have not seen the row's episode."""
    t, n_folds = task.batch, min(MOST_FOLDS, task.batch.n_episodes)
    folds = np.repeat(shuffled_folds(t.n_episodes, n_folds, numbered_rng(task.seeds, BEHAVIOUR, 0)), t.episode_lengths)
    here, after = cross_fitted(t, folds, None, numbered_rng(task.seeds, BEHAVIOUR, 1), task.n_jobs, following=True)
    actions = task.policy.act(t.states, t.allowed)
    taken = np.take_along_axis(here, actions[:, None], axis=1)[:, 0]
    if t.propensities is not None:
        taken = np.where(actions == t.actions, t.propensities, taken)
    by_rows = float(np.average(taken < RARE, weights=t.weights))
    by_visits, at_stake = _visited(task, here, np.empty(0) if after is None else after)
    return OfLog(by_visits, by_rows, at_stake)


def _visited(task: Task, here: Floats, after: Floats) -> tuple[float, float]:
    """Return the share of visits with a rarely taken action, and what is at stake there."""
    t, (points, weights) = task.batch, task.visited(task.under)
    first = t.episode_starts if t.weights is None else t.episode_starts[t.weights[t.episode_starts] > 0]
    of_starts = here[first] if task.starts is None else np.full((len(points.starts.states), t.n_actions), np.nan)
    shares = np.concatenate([of_starts, after[points.going_on]])
    kept = (weights > 0) & ~np.isnan(shares[:, 0])  # given start states are no rows of the log
    if not kept.any():
        return math.nan, math.nan
    states, shares, weights = points.states[kept], shares[kept], weights[kept]
    allowed = None if points.allowed is None else points.allowed[kept]
    actions = task.policy.act(states, allowed)[:, None]
    values = task.under.action_values.values(states)
    left = np.take_along_axis(shares, actions, axis=1)[:, 0] < RARE
    known = (shares >= RARE) | (shares == shares.max(axis=1, keepdims=True))  # with many actions, all may be rare
    best_known = np.where(known, values, -np.inf).max(axis=1)
    gains = np.maximum(np.take_along_axis(values, actions, axis=1)[:, 0] - best_known, 0.0)
    return float(weights @ left / weights.sum()), float((weights * gains) @ left)
