"""Policies, logs and short ways to evaluate, for the tests of `capi.offline`."""

import re
import warnings
from dataclasses import dataclass

import numpy as np

from capi import Transitions
from capi.errors import EvidenceWarning
from capi.offline import METHODS, compare
from capi.offline.episodes import Episodes
from capi.offline.fitted_q import Regression
from capi.offline.importance_weights import Weights
from capi.offline.log import Log, Settings
from capi.offline.nuisances import Quantities, estimators_of

WEIGHTINGS = tuple(method for method in METHODS if method != "fitted-q")
SAMPLING = ("weighted", "per-decision", "weighted-per-decision")


@dataclass(frozen=True, eq=False)
class Table:
    """A policy by its probabilities in each of finitely many states (S, A)."""

    shares: np.ndarray

    @property
    def n_actions(self):
        return self.shares.shape[1]

    def probabilities(self, states, allowed=None):
        return self.shares[states[:, 0].astype(int)]

    def act(self, states, allowed=None):
        return self.probabilities(states).argmax(axis=1)


def quick(policy, batch, **settings):
    """Evaluate with few trees and resamples."""
    return quickly({"the policy": policy}, batch, **settings)["the policy"]


def quickly(policies, batch, **settings):
    small = {"regression": Regression(n_trees=3), "n_resamples": 20, "discount": 0.9}
    return compare(policies, batch, **{**small, **settings})


def hushed(policy, batch, **settings):
    """Evaluate as `quick` does, for tests that are not about warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        return quick(policy, batch, **settings)


def told(policy, batch, **settings):
    """Evaluate as `quick` does, and check that Python was warned of all that the result warns of, and of nothing else."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = quick(policy, batch, **settings)
    assert [(w.category, str(w.message)) for w in caught] == [
        (EvidenceWarning, f"the policy: {line}") for line in found.warnings
    ]
    assert len({caveat.kind for caveat in found.warnings}) == len(found.warnings)
    for caveat in found.warnings:
        assert not caveat.count or caveat.text_without_counts, f"{caveat.kind} has a count, and no words without it"
    for method, estimate in found.estimates.items():
        assert np.isfinite(estimate.value) or found.unreliable, f"{method} has no number, and nothing says why"
    return found


def warned_of(found, words):
    """Whether a warning has these words, which a regular expression may give."""
    return any(re.search(words, caveat.text) for caveat in found.warnings)


def estimators(batch, discount, ratios, start_values, taken_values, next_values):
    """Return the estimators of ``methods`` with given action values instead of fitted ones."""
    e = Episodes(batch, discount)
    log = Log(e, Settings(discount, methods=WEIGHTINGS), np.random.SeedSequence(0), np.arange(len(e)) % 2)
    pi = np.full((len(batch), batch.n_actions), np.nan)
    return estimators_of(Quantities(Weights(e, ratios), pi, start_values, taken_values, next_values), None, log)


def of_model(batch, q, pi):
    """Return what ``q`` and ``pi`` (S, A) say of a log of finite states: start values (E,), taken and next values (n,)."""
    x, y = batch.states[:, 0].astype(int), batch.next_states[:, 0].astype(int)
    v = (pi * q).sum(axis=1)
    return v[x[batch.episode_starts]], q[x, batch.actions], np.where(batch.terminated, 0.0, v[y])


def ratios_of(batch, pi, behaviour):
    x = batch.states[:, 0].astype(int)
    return pi[x, batch.actions] / behaviour[x, batch.actions]


def bandit(n=200, n_actions=2, seed=0, **columns):
    """One-step episodes: x uniform, rewards x + a + noise, actions by known probabilities that depend on x."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 1))
    b = np.linspace(1, 2, n_actions) ** np.where(x > 0.5, 1.0, -1.0)
    b /= b.sum(axis=1, keepdims=True)
    actions = (b.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    rewards = x[:, 0] + actions + 0.3 * rng.normal(size=n)
    made = {"propensities": b[np.arange(n), actions], "n_actions": n_actions, **columns}
    return Transitions(x, actions, rewards, x, np.ones(n, dtype=bool), **made)


def walks(n_episodes=60, longest=4, seed=0, ends=0.7, n_actions=2, **columns):
    """Random walks in the plane with a coin that decides, episodes of up to ``longest`` rows, a share of them truncated."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=n_episodes)
    n = int(lengths.sum())
    states = rng.normal(size=(n, 2))
    actions = rng.integers(n_actions, size=n)
    last = np.zeros(n, dtype=bool)
    last[np.cumsum(lengths) - 1] = True
    made = {"propensities": np.full(n, 1 / n_actions), "n_actions": n_actions, **columns}
    return Transitions(
        states,
        actions,
        states[:, 0] + 0.5 * actions + 0.2 * rng.normal(size=n),
        states + rng.normal(size=(n, 2)),
        last & (rng.random(n) < ends),
        episodes=np.repeat(np.arange(n_episodes), lengths),
        **made,
    )


def remade(batch, **columns):
    """Return the same batch with other columns."""
    names = ("states", "actions", "rewards", "next_states", "terminated", "n_actions")
    extra = ("allowed", "next_allowed", "episodes", "propensities", "weights", "elapsed")
    kept = {name: getattr(batch, name) for name in (*names, *extra)}
    return Transitions(**{**kept, **columns})


def repeated(batch, counts):
    """Return the batch with each episode ``counts`` (E,) times, one copy after the other."""
    starts, lengths = batch.episode_starts, batch.episode_lengths
    rows, episode = [], []
    for start, length, count in zip(starts, lengths, counts, strict=True):
        for _ in range(int(count)):
            episode += [episode[-1] + 1 if episode else 0] * length
            rows += range(start, start + length)
    columns = {name: getattr(batch, name)[rows] for name in batch._columns() if name not in ("episodes", "weights")}
    return Transitions(**columns, n_actions=batch.n_actions, episodes=episode)
