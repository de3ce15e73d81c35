"""Fitted Q iteration with LightGBM: what many would write themselves. One regressor per action, fitted anew in each sweep."""

from time import process_time

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor

LEAST_SHARE = 0.3  # of the most frequent action's probability, for an action to be allowed
OPTIONS = {"n_jobs": 1, "verbose": -1}  # the rest by default: 100 trees of up to 31 leaves


def fitted_q(log, world, seed, budgets, restricted):
    """Yield (sweeps, policy, CPU seconds so far) for each number of sweeps in ``budgets``; the policy is greedy.

    With ``restricted``, both the policy and the targets only choose among the actions whose probability, by a classifier of the
    logged actions, is at least 0.3 of the most probable one's, as discrete BCQ does.
    """
    started, paused = process_time(), 0.0
    states, following = np.asarray(log["states"], dtype=np.float64), np.asarray(log["next_states"], dtype=np.float64)
    actions, rewards, goes_on = log["actions"], log["rewards"], ~log["terminated"]
    rows = [np.flatnonzero(actions == a) for a in range(world.n_actions)]
    allowed = allowed_by(behaviour(states, actions, seed)) if restricted else everything
    may_follow = allowed(following)
    targets = rewards
    for sweep in range(1, max(budgets) + 1):
        models = [LGBMRegressor(random_state=seed, **OPTIONS).fit(states[mine], targets[mine]) for mine in rows]
        values = np.where(may_follow, q_values(models, following), -np.inf).max(axis=1)
        targets = rewards + world.discount * goes_on * values
        if sweep in budgets:
            seconds = process_time() - started - paused
            before = process_time()
            yield sweep, greedy(models, allowed), seconds
            paused += process_time() - before


def imitation(log, world, seed):
    """Yield the policy of the most probable logged action."""
    started = process_time()
    classifier = behaviour(np.asarray(log["states"], dtype=np.float64), log["actions"], seed)
    yield None, classifier.predict, process_time() - started


def behaviour(states, actions, seed):
    """Return a classifier of the logged actions."""
    return LGBMClassifier(random_state=seed, **OPTIONS).fit(states, actions)


def everything(states):
    """Allow all actions."""
    return True


def allowed_by(classifier):
    """Return the function that says which actions are frequent enough in given states, (n, n_actions)."""

    def allowed(states):
        shares = classifier.predict_proba(states)
        return shares >= LEAST_SHARE * shares.max(axis=1, keepdims=True)

    return allowed


def greedy(models, allowed):
    """Return the policy of the largest value among the allowed actions."""
    return lambda states: np.where(allowed(states), q_values(models, states), -np.inf).argmax(axis=1)


def q_values(models, states):
    """Return the action values (n, n_actions)."""
    return np.column_stack([model.predict(states) for model in models])
