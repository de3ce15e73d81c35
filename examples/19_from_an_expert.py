"""Learn a small tree from an expert's values on the states that the tree itself visits (as VIPER and AggreVaTe do).

Both are settings of the loop: the evaluator returns the expert's action values in every round, whatever the policy is, and the
states of a round are those that all policies so far have visited. The loss weights each state by what a wrong action costs
there, in the expert's values.
"""

import numpy as np

from capi import CAPI
from capi.domains import ChainWalk
from capi.finite.mdp import TabularQ
from capi.policies import Constant
from capi.policy_spaces import Thresholds

chain = ChainWalk(variant=1, success=0.7)
mdp = chain.mdp


class Expert:
    """An evaluator that returns the values of the best policy."""

    def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
        """Return the expert's values."""
        return TabularQ(mdp.optimal_action_values)


def visited(n_walks=20, n_steps=100):
    """Return a function of (k, policy, rng) that collects the states that the policies visit."""
    seen = []

    def states(k, policy, rng):
        x = chain.initial(n_walks, rng)
        for _ in range(n_steps):
            seen.append(x)
            x, _, _ = chain.step(x, policy.act(x), rng)
        return np.vstack(seen)

    return states


for loss in ("gap", "zero-one"):
    for where, states in (("visited", visited()), ("all", mdp.states)):
        first = Constant(0, 2)
        learner = CAPI(Expert(), Thresholds(), 0.99, 10, initial_policy=first, loss=loss, random_state=0)
        policy = learner.fit(states=states).policy_
        print(f"{loss} loss, {where} states: loses {mdp.performance_loss(policy):.4g}")
