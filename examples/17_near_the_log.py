"""A log that almost never tries some actions, and three learners: free, kept to what the log does, and chosen by what the log can tell.

A car is driven up a hill by a heuristic that errs in 5 % of its steps, so the log is good and hardly shows what mistakes cost. True
returns come from the simulator, which a user with a table does not have.
"""

import numpy as np

from capi import CAPI, Support
from capi.domains import MountainCar
from capi.evaluators import FittedQ
from capi.policies import EpsilonGreedy
from capi.policy_spaces import Reweighted, Trees
from capi.selection import Candidate, choose
from capi.simulation import performance, sample_episodes


class Heuristic:
    """Pushes in the direction of motion; the action in the middle, which does nothing, is only taken by mistake."""

    n_actions = 3

    def act(self, states, allowed=None):
        """Return the actions (n,)."""
        return np.where(states[:, 1] > 0, 2, 0)

    def probabilities(self, states, allowed=None):
        """Return certainty (n, 3)."""
        return np.eye(3)[self.act(states)]


world = MountainCar()
log = sample_episodes(EpsilonGreedy(Heuristic(), 0.05), world, n_episodes=30, max_steps=150, random_state=0)


def worth(policy):
    """Return the mean return of 100 drives."""
    return performance(policy, world, n_episodes=100, max_steps=200, random_state=1).undiscounted.mean()


evaluator = FittedQ(n_trees=10, min_samples_leaf=5, n_sweeps=None)
settings = {"discount": world.discount, "n_iterations": 5, "random_state": 0}
free = CAPI(evaluator, Trees(max_depth=3), **settings).fit(log)
near = CAPI(evaluator, Trees(max_depth=3), support=Support(0.3, max_depth=2), **settings).fit(log)
print(f"{len(log)} decisions; returns: free {worth(free.policy_):.0f}, near the log {worth(near.policy_):.0f}")
for name, learner in {"free": free, "near": near}.items():
    left = near.support_.leaving(learner.policy_, log).mean()
    print(f"{name}: {left:.0%} of its decisions are ones that the log takes in less than 5 % of similar states")
print(near.policy_.rules())

candidates = [
    Candidate("free tree", CAPI(evaluator, Trees(max_depth=3), **settings), 8),
    Candidate("log, reweighted", CAPI(evaluator, Reweighted(), world.discount, random_state=0), 20),
]
chosen = choose(log, world.discount, candidates=candidates)
print(chosen.selection_)
