"""Small problems and slow twins that the tests of the theory share."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from capi import FiniteMDP


def random_mdp(seed, n_states=4, n_actions=2, discount=0.8, reward_scale=1.0):
    """Return an MDP with random transitions, some of them impossible, and random rewards of both signs."""
    rng = np.random.default_rng(seed)
    P = rng.random((n_actions, n_states, n_states)) * (rng.random((n_actions, n_states, n_states)) < 0.7)
    P[:, :, 0] += 0.05
    start = rng.random(n_states) + 0.1
    rewards = reward_scale * rng.normal(size=(n_states, n_actions))
    return FiniteMDP(P / P.sum(axis=2, keepdims=True), rewards, discount, start=start / start.sum())


def all_policies(mdp):
    """Return the actions of all deterministic policies (A ** S, S)."""
    return np.array(list(product(range(mdp.n_actions), repeat=mdp.n_states)))


def loss_in_values(mdp, judged_by, policy, nu):
    """Return the loss of a policy in the values of another, state by state."""
    q = mdp.action_values(judged_by)
    return sum(nu[x] * (q[x].max() - q[x, policy[x]]) for x in range(mdp.n_states))


def future_sum(mdp, policies, k, rho, nu, n_steps):
    """Return sum_m discount ** m max over policies and states of (rho (P*)^k (P^pi)^m / nu), by matrix powers."""
    best = mdp.transition_matrix(mdp.optimal_policy)
    start = rho @ np.linalg.matrix_power(best, k)
    total = 0.0
    for m in range(n_steps):
        ratios = [(start @ np.linalg.matrix_power(mdp.transition_matrix(pi), m) / nu).max() for pi in policies]
        total += mdp.discount**m * max(ratios)
    return total


seeds = st.integers(0, 10**6)
