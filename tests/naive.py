"""Slow and obvious twins of what the library computes fast."""

from itertools import product

import numpy as np


def best_threshold(states, q_values, weights=None):
    """Least gap-weighted loss (a sum) over all features, cuts and pairs of actions, one policy at a time."""
    n, n_actions = q_values.shape
    weights = np.ones(n) if weights is None else weights
    least = np.inf
    for j in range(states.shape[1]):
        cuts = [-np.inf, *np.unique(states[:, j])]
        for cut, low, high in product(cuts, range(n_actions), range(n_actions)):
            least = min(least, policy_loss(q_values, np.where(states[:, j] <= cut, low, high), weights))
    return least


def policy_loss(q_values, actions, weights):
    total = 0.0
    for q, action, weight in zip(q_values, actions, weights, strict=True):
        total += weight * (max(q) - q[action])
    return total


def action_values(P, R, discount, pi, n_sweeps=20_000):
    """Q^pi by many sweeps of plain loops over actions."""
    q = np.zeros_like(R)
    for _ in range(n_sweeps):
        v = (pi * q).sum(axis=1)
        new = np.stack([R[:, a] + discount * P[a] @ v for a in range(R.shape[1])], axis=1)
        if np.abs(new - q).max() < 1e-14:
            return new
        q = new
    return q


def optimal_values(P, R, discount):
    """V* as the best of all deterministic policies, one after the other."""
    n_actions, n_states = R.shape[1], R.shape[0]
    best = np.full(n_states, -np.inf)
    for actions in product(range(n_actions), repeat=n_states):
        P_pi = np.array([P[a][x] for x, a in enumerate(actions)])
        r_pi = np.array([R[x, a] for x, a in enumerate(actions)])
        best = np.maximum(best, np.linalg.solve(np.eye(n_states) - discount * P_pi, r_pi))
    return best


def random_mdp(rng, n_states=5, n_actions=3):
    """Return P (A, S, S) and R (S, A)."""
    P = rng.random((n_actions, n_states, n_states)) * (rng.random((n_actions, n_states, n_states)) < 0.6)
    P += 0.01 * np.eye(n_states)
    return P / P.sum(axis=2, keepdims=True), rng.normal(size=(n_states, n_actions))
