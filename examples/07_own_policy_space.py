"""Plug in your own policy space: intervals, "one action inside, another outside".

A space receives the states and the whole matrix of action values and returns its policy with the lowest loss. On a
chain with a reward in the middle and a smaller one at the right end, one cut cannot serve both; an interval can.
"""

from dataclasses import dataclass

import numpy as np

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact
from capi.loss import regrets, weighted
from capi.policies import Deterministic, permitted
from capi.policy_spaces import Thresholds
from capi.testing import check_policy_space


@dataclass(frozen=True, eq=False)
class IntervalPolicy(Deterministic):
    """Take ``inside`` where low < x0 <= high, and ``outside`` elsewhere."""

    low: float
    high: float
    inside: int
    outside: int
    n_actions: int

    def act(self, states, allowed=None):
        """Return the action of each state."""
        within = (states[:, 0] > self.low) & (states[:, 0] <= self.high)
        return permitted(np.where(within, self.inside, self.outside), allowed, self.n_actions)


@dataclass(frozen=True)
class Intervals:
    """All intervals on the first feature; tries every pair of ends."""

    def improve(self, states, q_values, *, q=None, previous=None, allowed=None, weights=None, rng=None):
        """Return the interval with the least gap-weighted loss."""
        order = np.argsort(states[:, 0])
        x = states[order, 0]
        edges = np.flatnonzero(np.diff(x, prepend=-np.inf, append=np.inf))  # an interval cannot separate equal values
        sums = np.vstack([np.zeros(q_values.shape[1]), weighted(regrets(q_values), weights)[order].cumsum(axis=0)])[
            edges
        ]
        inside = sums[None, :, :] - sums[:, None, :]  # (i, j, A): regrets between edges i and j
        total = np.where(np.tri(len(edges), k=-1), np.inf, inside.min(axis=2) + (sums[-1] - inside).min(axis=2))
        i, j = np.unravel_index(total.argmin(), total.shape)
        ends = np.append(-np.inf, x)[edges]
        actions = int(inside[i, j].argmin()), int((sums[-1] - inside[i, j]).argmin())
        return IntervalPolicy(float(ends[i]), float(ends[j]), *actions, q_values.shape[1])


check_policy_space(Intervals())
mdp = ChainWalk(state_rewards=[0.0] * 40 + [1.0] * 5 + [0.0] * 100 + [0.8] * 5, success=0.7).mdp
for space in (Thresholds(), Intervals()):
    policy = CAPI(Exact(mdp), space, discount=0.99, n_iterations=20).fit().policy_
    print(f"{policy} loses {mdp.performance_loss(policy):.4g}")
