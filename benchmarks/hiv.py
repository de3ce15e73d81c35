"""Tree-FQI on simulated HIV patients: running time, and returns of the learned policies in the simulator.

All methods learn from the dataset in the package, with 30,000 transitions, 100 iterations and 30 trees over state and action;
nodes with at least 50 rows are split. Peers in the same process: a loop over scikit-learn's ExtraTreesRegressor, and one over
LightGBM with its defaults, for orientation. The simulator itself is compared with scipy's solvers, stepped row by row at the
same accuracy.

    python benchmarks/hiv.py [SEEDS] [SEEDS OF THE LOOP OVER SCIKIT-LEARN]
"""

import sys
import time

import numpy as np
from scipy.integrate import odeint, solve_ivp

from capi.baselines import FittedQIteration
from capi.datasets import load_hiv_batch
from capi.domains import HIV
from capi.domains import hiv as model
from capi.evaluators import FittedQ
from capi.policies import Greedy
from capi.simulation import performance
from trees import boosted, extra_trees, line

N_ITERATIONS, DISCOUNT, N_ACTIONS = 100, 0.98, 4
PEER_ROWS = 300


def ours(batch, seed, **options):
    evaluator = FittedQ(n_trees=30, min_samples_split=50, actions="input", n_jobs=2, **options)
    return FittedQIteration(evaluator, DISCOUNT, N_ITERATIONS, random_state=seed).fit(batch).policy_


class PeerQ:
    """A peer's model over states and actions, as a Q-function."""

    n_actions = N_ACTIONS

    def __init__(self, model):
        self.model = model

    def values(self, states):
        return np.column_stack([self.model.predict(with_action(states, a)) for a in range(N_ACTIONS)])


def with_action(states, action):
    return np.column_stack([states, np.full(len(states), float(action))])


def peers(batch, seed, make):
    inputs = np.column_stack([batch.states, batch.actions])
    q = None
    for k in range(N_ITERATIONS):
        following = 0.0 if q is None else PeerQ(q).values(batch.next_states).max(axis=1)
        q = make(1000 * seed + k).fit(inputs, batch.rewards + DISCOUNT * following)
    return Greedy(PeerQ(q))


def measured(name, learn, seeds, hiv):
    seconds, returns = [], []
    for seed in range(seeds):
        started = time.perf_counter()
        policy = learn(seed)
        seconds.append(time.perf_counter() - started)
        returns.append(performance(policy, hiv, n_episodes=1, max_steps=1000).mean)
    shown = " ".join(f"{value:.2g}" for value in returns)
    print(f"{name:34}{np.mean(seconds):8.1f} s   mean return {np.mean(returns):9.3g}   {shown}", flush=True)
    return np.mean(seconds)


def simulator(batch):
    """Compare 60,000 steps of our simulator with scipy's solvers, whose tolerances give about the same error."""
    hiv = HIV(observe="counts", n_jobs=2)
    states = HIV().counts(batch.states)
    rng = np.random.default_rng(0)
    rows, actions = rng.integers(len(states), size=60_000), rng.integers(N_ACTIONS, size=60_000)
    hiv.step(states[:2], actions[:2], rng)
    started = time.perf_counter()
    after, _, _ = hiv.step(states[rows], actions, rng)
    mine = time.perf_counter() - started
    p = hiv.patient

    def rates(x, _, e1, e2):
        T1, T2, I1, I2, V, E = x
        into1, into2, infected = (1 - e1) * p.k1 * T1, (1 - p.f * e1) * p.k2 * T2, I1 + I2
        return (
            p.lambda1 - p.d1 * T1 - into1 * V,
            p.lambda2 - p.d2 * T2 - into2 * V,
            into1 * V - p.delta * I1 - p.m1 * E * I1,
            into2 * V - p.delta * I2 - p.m2 * E * I2,
            (1 - e2) * p.n_virions * p.delta * infected - p.c * V - (p.rho1 * into1 + p.rho2 * into2) * V,
            p.lambda_e
            + (p.b_e * infected / (infected + p.k_b) - p.d_e * infected / (infected + p.k_d) - p.delta_e) * E,
        )

    def by_odeint(x, drugs, rtol):
        return odeint(rates, x, [0, 5], args=drugs, rtol=rtol, atol=1e-12, mxstep=10_000)[-1]

    def by_solve_ivp(x, drugs, rtol):
        return solve_ivp(lambda t, y: rates(y, t, *drugs), (0, 5), x, method="LSODA", rtol=rtol, atol=1e-12).y[:, -1]

    some = range(PEER_ROWS)
    drugs = [tuple(model.EFFICACIES[actions[i]]) for i in some]
    exact = np.array([by_odeint(states[rows[i]], drugs[i], 1e-12) for i in some])

    def error(found):
        return np.abs(found / exact - 1).max()

    print(
        f"60,000 HIV steps; the peers are timed on {PEER_ROWS} and scaled; our largest error {error(after[:PEER_ROWS]):.1e}"
    )
    for name, solve, rtol in (("odeint", by_odeint, 3e-8), ("solve_ivp, LSODA", by_solve_ivp, 3e-8)):
        started = time.perf_counter()
        found = np.array([solve(states[rows[i]], drugs[i], rtol) for i in some])
        seconds = (time.perf_counter() - started) * 60_000 / PEER_ROWS
        line(f"peer {name}, error {error(found):.1e}", mine, seconds)


def main(seeds=10, peer_seeds=10):
    batch, hiv = load_hiv_batch(), HIV()
    simulator(batch)
    ours(batch, 0)  # compiles
    default = measured("capi, kept trees", lambda seed: ours(batch, seed), seeds, hiv)
    new = measured("capi, new trees in every sweep", lambda seed: ours(batch, seed, refresh_every=1), seeds, hiv)
    peer = measured("loop over scikit-learn", lambda seed: peers(batch, seed, extra_trees), peer_seeds, hiv)
    light = measured("loop over LightGBM", lambda seed: peers(batch, seed, boosted), 1, hiv)
    print(
        f"scikit-learn takes {peer / default:.1f}x the time of kept trees and {peer / new:.1f}x that of new trees; LightGBM {light / default:.1f}x that of kept trees"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
