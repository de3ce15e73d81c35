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
    t, e = log.batch, log.episodes
    if t.n_actions < 2:
        return "there is only one action"
    everywhere = np.ones(t.n_actions, dtype=bool) if t.allowed is None else t.allowed.all(axis=0)
    if t.allowed is not None and not e.one_step:
        everywhere &= np.asarray(t.next_masks()).all(axis=0)
    if not everywhere.any():
        return "no action is allowed in every state"
    if log.settings.evaluator is not None and not e.one_step:
        return "with several steps and evaluator= it would take one more evaluation per action"
    numbers = {int(a): values for a in np.flatnonzero(everywhere) if (values := _numbers(int(a), q, log)) is not None}
    if not numbers:
        steps = "" if e.one_step else " throughout"
        return f"too few episodes took a single action{steps}"
    return _chosen(np.array(list(numbers)), np.stack(list(numbers.values()), axis=1), log)


def _chosen(candidates: Ints, numbers: Floats, log: Log) -> SingleAction:
    """Return the choice among ``candidates`` (C,), which are worth ``numbers`` (E, C) in each episode."""
    counts = log.episodes.weights
    best = np.empty(log.n_folds, dtype=np.int64)
    for k in range(log.n_folds):
        others = log.fold_of_episode != k
        best[k] = np.argmax(counts[others] @ numbers[others])
    own = numbers[np.arange(len(numbers)), best[log.fold_of_episode]]
    whole = int(np.argmax(counts @ numbers))
    return SingleAction(int(candidates[whole]), candidates[best], candidates, MeanOfEpisodes(own))


def _numbers(action: int, q: Quantities, log: Log) -> Floats | None:
    """Return the doubly robust (or, without fitted values, per-decision) estimate of an action in each episode (E,); None without overlap."""
    t, e = log.batch, log.episodes
    taken = t.actions == action
    with np.errstate(over="ignore"):
        weights = Weights(e, taken / log.behaviour.probability)
    if weights.overflows or not enough_overlap(weights.effective_episodes, len(e)):
        return None
    if e.one_step:
        w, rewards = weights.of_rows[e.starts], t.rewards[e.starts]
        if q.first_values is None:
            return np.asarray(w * rewards)
        of_taken = q.first_values[np.arange(len(e)), t.actions[e.starts]]
        return np.asarray(q.first_values[:, action] + w * (rewards - of_taken))
    if not has_models(log):
        mine = replace(q, weights=weights)
    else:
        mine = quantities_on_trees(Constant(action, t.n_actions), q.evaluations, log)
    method = "doubly-robust" if has_models(log) else "per-decision"
    only = replace(log, settings=replace(log.settings, methods=(method,)))
    found = estimators_of(mine, None, only)[method]
    return found.numbers if isinstance(found, MeanOfEpisodes) else None
