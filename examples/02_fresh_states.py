"""Improve on fresh states X_i ~ nu in every round instead of on the same states.

``states`` may be a function of (k, policy, rng): k is the round, policy the current policy, and rng a generator
for this round alone, so the same ``random_state`` gives the same result.
"""

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact
from capi.policy_spaces import Thresholds

chain = ChainWalk(variant=2)
mdp = chain.mdp


def uniform_draws(k, policy, rng):
    """Return forty states from the uniform distribution."""
    return chain.initial(40, rng)


for name, states in (("all states", mdp.states), ("40 fresh states per round", uniform_draws)):
    learner = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), discount=0.99, n_iterations=20, random_state=0)
    policy = learner.fit(states=states).policy_
    print(f"{name}: cut at {policy.cut}, loses {mdp.performance_loss(policy):.4g}")
