"""Classification-based modified policy iteration (Scherrer et al. 2015): rollouts of one step that end in an m-step critic.

The critic makes m sweeps of the Bellman operator of the current policy, from its own values of the round before: its
horizon grows with the rounds. m = 1 is value iteration, m = infinity is policy iteration, and in between a round costs
little while few rounds are needed. Here the model is known, so that the effect of m is all that one sees; from data the
critic would be FittedQ(n_sweeps=m).
"""

import numpy as np

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact, RolloutsWithCritic
from capi.policy_spaces import Unrestricted

rewards = np.zeros(60)
rewards[10], rewards[40:50] = 1.0, 0.2  # the best state, and a place that looks good from near
chain = ChainWalk(state_rewards=rewards, success=1.0)  # nothing is random: one rollout tells all

for m in (1, 5, 20, None):
    evaluator = RolloutsWithCritic(chain, Exact(chain.mdp, n_sweeps=m), horizon=1)
    learner = CAPI(evaluator, Unrestricted(), discount=0.99, n_iterations=60, random_state=0)
    losses = [chain.mdp.performance_loss(done.policy) for done in learner.iterate(states=chain.mdp.states)]
    rounds = next((k + 1 for k, loss in enumerate(losses) if loss < 1e-9), None)
    print(f"m = {m}: " + (f"optimal after {rounds} rounds" if rounds else f"loses {losses[-1]:.4g} after 60 rounds"))
