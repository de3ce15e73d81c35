"""Linear policies for the gap-weighted loss.

Peers in the same process: scikit-learn's LogisticRegression and LinearSVC on the greedy actions, weighted by the gaps to the
second-best action. With two actions and no polishing the logistic problem is the same; with more, their labels contain no
information about how much the other actions differ. Values are linear in the states plus a curved part, which no linear
policy can represent, and noise.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from timing import best_of

from capi.loss import gap_weighted_loss, greedy, regrets
from capi.policy_spaces import Linear

SPACES = {
    "logistic": Linear(polish=False),
    "logistic, l1": Linear(polish=False, penalty="l1"),
    "hinge": Linear(polish=False, surrogate="hinge"),
    "exponential": Linear(polish=False, surrogate="exponential"),
    "logistic, polished": Linear(),
}
PEERS = {"LogisticRegression": LogisticRegression(), "LinearSVC": LinearSVC()}


def problem(n, d, n_actions):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(n, d))
    curved = states[:, :1] ** 2 * np.arange(n_actions)
    return states, 0.3 * states @ rng.normal(size=(d, n_actions)) + 0.3 * curved + rng.normal(size=(n, n_actions))


def main():
    print(f"{'rows x features x actions':28}{'method':22}{'time':>10}{'loss':>12}")
    for n, d, n_actions in ((100_000, 10, 2), (100_000, 10, 4)):
        states, q = problem(n, d, n_actions)
        labels, gaps = greedy(q), np.sort(regrets(q), axis=1)[:, 1]
        runs = {name: (lambda space=space: space.improve(states, q).act(states)) for name, space in SPACES.items()}  # noqa: B023
        runs |= {
            name: (lambda model=model: model.fit(states, labels, gaps).predict(states))  # noqa: B023
            for name, model in PEERS.items()
        }
        for name, run in runs.items():
            seconds, actions = best_of(run)
            print(f"{f'{n} x {d} x {n_actions}':28}{name:22}{seconds:8.3f} s{gap_weighted_loss(q, actions):12.5f}")


if __name__ == "__main__":
    main()
