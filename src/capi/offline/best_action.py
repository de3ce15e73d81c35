"""The best single action: what one action for everybody would be worth, valued on other episodes than those that it was chosen on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.offline.estimators import MeanOfEpisodes
from capi.offline.importance_weights import Weights, enough_overlap
from capi.offline.log import Log
from capi.offline.nuisances import Quantities, estimators_of, has_models, quantities_on_trees
from capi.policies import Constant


@dataclass(frozen=True, eq=False)
class SingleAction:
    """The best single action, as an estimator."""

    action: int  # the best one by all episodes
    of_folds: Ints  # (K,) the best one by the episodes outside each fold
    candidates: Ints  # the actions that could be valued
    estimator: MeanOfEpisodes


def best_single_action(q: Quantities, log: Log) -> SingleAction | str:
    """Return the best single action, or the reason why there is none.

    For each fold the action is the one with the best value on all other folds, and only the fold values it: the maximum over actions that were
    valued on the same episodes would flatter the best one. ``q`` may be of any policy; its trees are used.
    """
    everywhere = valued_actions(log)
    if isinstance(everywhere, str):
        return everywhere
    numbers = {int(a): values for a in everywhere if (values := _numbers(int(a), q, log)) is not None}
    if not numbers:
        return nothing_taken(log)
    candidates, of_episodes = np.array(list(numbers)), np.stack(list(numbers.values()), axis=1)
    counts = log.episodes.weights
    sums = np.stack(
        [counts[log.fold_of_episode == k] @ of_episodes[log.fold_of_episode == k] for k in range(log.n_folds)]
    )
    whole, best = chosen(sums)
    own = of_episodes[np.arange(len(of_episodes)), best[log.fold_of_episode]]
    return SingleAction(int(candidates[whole]), candidates[best], candidates, MeanOfEpisodes(own))


def valued_actions(log: Log) -> Ints | str:
    """Return the actions that could be taken always, or why there are none to be valued."""
    e, extent = log.episodes, log.episodes.extent
    if log.batch.n_actions < 2:
        return "there is only one action"
    everywhere = extent.allowed if e.one_step else extent.allowed & extent.next_allowed
    if not everywhere.any():
        return "no action is allowed in every state"
    if log.settings.evaluator is not None and not e.one_step:
        return "with several steps and evaluator= it would take one more evaluation per action"
    return np.flatnonzero(everywhere)


def nothing_taken(log: Log) -> str:
    """Return why there is no best single action if no action has enough overlap."""
    return f"too few episodes took a single action{'' if log.episodes.one_step else ' throughout'}"


def chosen(sums: Floats) -> tuple[int, Ints]:
    """Return the best candidate by all episodes and, for each fold, by all others (K,); ``sums`` (K, C) are those of the folds."""
    return int(np.argmax(sums.sum(axis=0))), np.argmax(sums.sum(axis=0) - sums, axis=1)


def _numbers(action: int, q: Quantities, log: Log) -> Floats | None:
    """Return the doubly robust (or, without fitted values, per-decision) estimate of an action in each episode (E,); None without overlap."""
    weights = always(action, log)
    if weights.overflows or not enough_overlap(weights.effective_episodes, len(log.episodes)):
        return None
    if log.episodes.one_step:
        return one_step_numbers(action, weights, q, log)
    mine = replace(q, weights=weights)
    if has_models(log):
        mine = quantities_on_trees(Constant(action, log.batch.n_actions), q.evaluations, log)
    method = "doubly-robust" if has_models(log) else "per-decision"
    only = replace(log, settings=replace(log.settings, methods=(method,)))
    found = estimators_of(mine, None, only)[method]
    return found.numbers if isinstance(found, MeanOfEpisodes) else None


def always(action: int, log: Log) -> Weights:
    """Return the importance weights of taking an action always."""
    with np.errstate(over="ignore"):
        return Weights(log.episodes, (log.batch.actions == action) / log.behaviour.probability)


def one_step_numbers(action: int, weights: Weights, q: Quantities, log: Log) -> Floats:
    """Return the estimate of an action in each episode of one decision (E,)."""
    t, e = log.batch, log.episodes
    w, rewards = weights.of_rows[e.starts], t.rewards[e.starts]
    if q.first_values is None:
        return np.asarray(w * rewards)
    of_taken = q.first_values[np.arange(len(e)), t.actions[e.starts]]
    return np.asarray(q.first_values[:, action] + w * (rewards - of_taken))
