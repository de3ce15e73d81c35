"""Classification-based modified policy iteration (Scherrer et al. 2015): one-step rollouts that end in an m-step critic.

The critic makes m sweeps of the Bellman operator of the current policy, starting from its values of the previous round,
so its horizon grows with the rounds. m = 1 is value iteration and m = infinity policy iteration; in between, a round is
cheap and few rounds are needed. The model is known here, so only the effect of m is visible. With logged data, the
critic would be FittedQ(n_sweeps=m).
"""

import numpy as np

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact, RolloutsWithCritic
from capi.policy_spaces import Unrestricted

rewards = np.zeros(60)
rewards[10], rewards[40:50] = 1.0, 0.2  # the best state, and a region that attracts nearby states
chain = ChainWalk(state_rewards=rewards, success=1.0)  # deterministic: one rollout is enough

for m in (1, 5, 20, None):
    evaluator = RolloutsWithCritic(chain, Exact(chain.mdp, n_sweeps=m), horizon=1)
    learner = CAPI(evaluator, Unrestricted(), discount=0.99, n_iterations=60, random_state=0)
    losses = [chain.mdp.performance_loss(done.policy) for done in learner.iterate(states=chain.mdp.states)]
    rounds = next((k + 1 for k, loss in enumerate(losses) if loss < 1e-9), None)
    print(f"m = {m}: " + (f"optimal after {rounds} rounds" if rounds else f"loses {losses[-1]:.4g} after 60 rounds"))
