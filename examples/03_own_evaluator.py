"""Plug in your own evaluator, and give evaluation and improvement different data.

The evaluator below averages Bellman targets over the logged rows of each state and action. It learns from one
batch, and the policy is improved on the states of another.
"""

from dataclasses import dataclass

import numpy as np

from capi import CAPI, Transitions
from capi.domains import ChainWalk
from capi.finite import TabularQ
from capi.policy_spaces import Thresholds
from capi.testing import check_evaluator


@dataclass(frozen=True)
class AveragedTargets:
    """Q(x, a) <- mean of r + discount * Q(x', pi(x')) over the rows with (x, a); 0 where there are none."""

    n_states: int
    n_sweeps: int = 1

    def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
        """Return the table after some sweeps, starting from the previous one."""
        t, A = transitions, transitions.n_actions
        q = np.zeros((self.n_states, A)) if previous is None else previous.table
        pair = t.states[:, 0].astype(int) * A + t.actions
        rows = np.bincount(pair, minlength=q.size)
        for _ in range(self.n_sweeps):
            following = (policy.probabilities(t.next_states) * q[t.next_states[:, 0].astype(int)]).sum(axis=1)
            target = t.rewards + discount * np.where(t.terminated, 0.0, following)
            q = (np.bincount(pair, target, minlength=q.size) / np.maximum(rows, 1)).reshape(q.shape)
        return TabularQ(q)


def logged(domain, n, rng):
    """Return n transitions from uniform states and actions."""
    states, actions = domain.initial(n, rng), rng.integers(domain.n_actions, size=n)
    following, rewards, ends = domain.step(states, actions, rng)
    return Transitions(states, actions, rewards, following, ends, action_labels=domain.action_labels)


chain, rng = ChainWalk(variant=2), np.random.default_rng(0)
check_evaluator(AveragedTargets(200), transitions=logged(chain, 500, rng), discount=0.99)

for_evaluation, for_improvement = logged(chain, 20_000, rng), logged(chain, 300, rng)
learner = CAPI(AveragedTargets(200, n_sweeps=20), Thresholds(), discount=0.99, n_iterations=20)
learner.fit(for_evaluation, states=for_improvement.states)
print(learner.policy_.rules())
print(f"loses {chain.mdp.performance_loss(learner.policy_):.4g}")
