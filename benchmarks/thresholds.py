"""The best single cut for the gap-weighted loss.

Peer: scikit-learn's DecisionTreeClassifier(max_depth=1) on the greedy actions with the gaps as weights, in the
same process. It does the same kind of work, sorting and scanning, but minimises the weighted Gini impurity; the
losses show the difference.
"""

import numpy as np
from sklearn.tree import DecisionTreeClassifier
from timing import best_of

from capi.loss import gap_weighted_loss, greedy, regrets
from capi.policy_spaces import Thresholds


def main():
    print(
        f"{'rows x features x actions':28}{'capi':>10}{'scikit-learn':>14}{'ratio':>8}{'our loss':>12}{'its loss':>12}"
    )
    for n, d, n_actions in ((10_000, 1, 2), (100_000, 6, 4), (1_000_000, 6, 4)):
        rng = np.random.default_rng(0)
        states, q = rng.normal(size=(n, d)), rng.normal(size=(n, n_actions))
        q[:, 0] += 2 * (states[:, 0] > 0.7)
        labels = greedy(q)
        gaps = np.sort(regrets(q), axis=1)[:, 1]
        ours, policy = best_of(lambda: Thresholds().improve(states, q))  # noqa: B023
        theirs, tree = best_of(lambda: DecisionTreeClassifier(max_depth=1).fit(states, labels, gaps))  # noqa: B023
        losses = [gap_weighted_loss(q, actions) for actions in (policy.act(states), tree.predict(states).astype(int))]
        size = f"{n} x {d} x {n_actions}"
        print(f"{size:28}{ours:8.3f} s{theirs:12.3f} s{theirs / ours:7.1f}x{losses[0]:12.5f}{losses[1]:12.5f}")


if __name__ == "__main__":
    main()
