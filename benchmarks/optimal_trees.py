"""Optimal decision trees of a given depth, with certificates.

Values: sines of random directions of normal states, a bonus per action where the first two features have the same sign, and
noise with standard deviation 0.3. Peer: STreeD (pystreed), instance-cost-sensitive task with its defaults, in the same
process, on the same cut points as binary features and with the regrets as costs; converting the costs is not timed. It uses
one thread, ours two. At depth three, both use half the rows and 32 thresholds in that row. policytree (R) is not run: its
authors report about 90 s for the size of the last row.
"""

import sys
from unittest.mock import MagicMock

import numpy as np
from timing import best_of

from capi.loss import gap_weighted_loss, regrets
from capi.policy_spaces import OptimalTrees, Trees
from capi.policy_spaces.trees._binned import Binned


def problem(n, d, n_actions, seed=0):
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, d))
    values = np.sin(states @ rng.normal(size=(d, n_actions)) / max(1.0, np.sqrt(d / 6)))
    values += 0.5 * (states[:, :1] * states[:, 1:2] > 0) * rng.normal(size=n_actions)
    return states, values + 0.3 * rng.normal(size=(n, n_actions))


def streed(states, values, depth, n_thresholds):
    """Return the seconds and the mean loss of STreeD's tree."""
    for name in ("sksurv", "sksurv.util", "sksurv.tree", "sksurv.tree._criterion", "sksurv.tree.tree"):
        sys.modules.setdefault(
            name, MagicMock()
        )  # needed by another of its tasks, and not available for every scikit-learn
    from pystreed import CostVector, STreeDInstanceCostSensitiveClassifier  # noqa: PLC0415

    binned = Binned.of(states, n_thresholds)
    above = [binned.codes[:, v, None] > np.arange(n - 1) for v, n in enumerate(binned.n_bins)]
    features = np.concatenate(above, axis=1).astype(np.intc)
    costs = [CostVector(row) for row in regrets(values)]
    model = STreeDInstanceCostSensitiveClassifier(max_depth=depth, time_limit=3600)
    seconds, _ = best_of(lambda: model.fit(features, costs), repeats=1)
    return seconds, gap_weighted_loss(values, model.predict(features).astype(int))


def row(n, d, n_actions, depth, n_thresholds, *, peer=False, repeats=3):
    states, values = problem(n, d, n_actions)
    space = OptimalTrees(depth, n_thresholds=n_thresholds, n_jobs=2)
    seconds, policy = best_of(lambda: space.improve(states, values), repeats)
    loss = gap_weighted_loss(values, policy.act(states))
    greedy = gap_weighted_loss(values, Trees(max_depth=depth).improve(states, values).act(states))
    size = f"{n} x {d} x {n_actions}, depth {depth}, {n_thresholds} cuts"
    text = f"{size:42}{seconds:9.3f} s{loss:11.6f}{greedy:11.6f}  {'optimal' if policy.optimal else 'not proved'}"
    if peer:
        theirs, its_loss = streed(states, values, depth, n_thresholds)
        text += f"{theirs:9.2f} s{theirs / seconds:8.0f}x{its_loss:11.6f}"
    print(text, flush=True)


def main():
    OptimalTrees(4, n_thresholds=3).improve(*problem(200, 3, 2))  # compile
    OptimalTrees(2).improve(*problem(200, 3, 2))
    Trees(max_depth=2).improve(*problem(200, 3, 2))
    print(
        f"{'rows x features x actions':42}{'capi':>11}{'loss':>11}{'greedy':>11}{'':9}{'STreeD':>11}{'ratio':>9}{'its loss':>11}"
    )
    row(60_000, 6, 4, 2, 64, peer=True, repeats=5)
    row(30_000, 6, 4, 3, 32, peer=True)
    row(60_000, 6, 4, 3, 64)
    row(60_000, 6, 4, 4, 16, repeats=1)
    row(1_000, 30, 20, 2, 999, repeats=1)


if __name__ == "__main__":
    main()
