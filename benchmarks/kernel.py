"""Regularised fitted Q iteration: 50 sweeps over 5,000 points in the plane, three actions, Gaussian kernel.

Peer: the same iteration with scikit-learn's KernelRidge, refitted for each action in each sweep, in the same process. All its
sweeps take the same time, so three of them are timed and scaled to 50; ``--full`` runs all 50 and compares the final values.
Requirement: at least 10 times as fast, with the same values in the exact form.
"""

import sys

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from timing import best_of

from capi import Transitions
from capi.baselines import RFQI
from capi.evaluators import KernelFittedQ

N, N_ACTIONS, SWEEPS, TIMED, DISCOUNT, SIGMA, RIDGE = 5000, 3, 50, 3, 0.98, 0.1, 0.01


def batch():
    """Return random moves in the unit square with a corner as the goal, scaled so that both sides use the same kernel."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(size=(N, 2)), np.arange(N) % N_ACTIONS
    moves = np.array([[0.1, 0.0], [0.0, 0.1], [-0.05, -0.05]])[actions] + rng.normal(scale=0.02, size=(N, 2))
    following = np.clip(states + moves, 0, 1)
    ends = (following > 0.95).all(axis=1)
    states[:2] = [[0, 0], [1, 1]]
    return Transitions(states, actions, np.where(ends, 0.0, -1.0), following, ends, n_actions=N_ACTIONS)


def refitted(t, n_sweeps):
    """Return the values at the next states after ``n_sweeps`` sweeps of scikit-learn's kernel ridge regression (n, A)."""
    following = np.zeros((N, N_ACTIONS))
    for _ in range(n_sweeps):
        targets = t.rewards + DISCOUNT * np.where(t.terminated, 0.0, following.max(axis=1))
        for a in range(N_ACTIONS):
            rows = t.actions == a
            model = KernelRidge(alpha=RIDGE, kernel="rbf", gamma=0.5 / SIGMA**2).fit(t.states[rows], targets[rows])
            following[:, a] = model.predict(t.next_states)
    return following


def learned(t, n_sweeps, threshold):
    evaluator = KernelFittedQ(ridge=RIDGE, threshold=threshold)
    return RFQI(evaluator, DISCOUNT, n_sweeps).fit(t).q_.values(t.next_states)


def main():
    t, full = batch(), "--full" in sys.argv
    theirs, values = best_of(lambda: refitted(t, SWEEPS if full else TIMED), repeats=1)
    theirs *= 1 if full else SWEEPS / TIMED
    compared = SWEEPS if full else TIMED
    print(
        f"{SWEEPS} sweeps, {N} points; scikit-learn {theirs:.2f} s" + ("" if full else f" (scaled from {TIMED} sweeps)")
    )
    print(
        f"{'form':24}{'capi':>10}{'ratio':>9}{'largest difference':>22}  after {compared} sweeps, |Q| <= {np.abs(values).max():.3g}"
    )
    for name, threshold in (("exact", None), ("sparsified, nu = 1e-3", 1e-3), ("sparsified, nu = 1e-2", 1e-2)):
        ours, _ = best_of(lambda: learned(t, SWEEPS, threshold))  # noqa: B023
        difference = np.abs(learned(t, compared, threshold) - values).max()
        print(f"{name:24}{ours:8.2f} s{theirs / ours:8.1f}x{difference:22.2g}")


if __name__ == "__main__":
    main()
