"""Value pursuit with a dictionary that grows: the values of earlier rounds become features of the next ones.

Value pursuit iteration (Farahmand and Precup 2012) selects a few functions from a dictionary in each round, and adds what it
found to the dictionary. Two of fifty bumps are far too few for the chain's values; but if the values of the last round are
in the dictionary, too, each round can add to them. The evaluator is a function of the round.
"""

import numpy as np
from sklearn.linear_model import OrthogonalMatchingPursuit
from sklearn.pipeline import make_pipeline, make_union

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import FittedQ
from capi.features import RadialGrid, ValueFeatures
from capi.policies import Constant
from capi.policy_spaces import Thresholds
from capi.simulation.sampling import sample_steps

chain = ChainWalk(variant=2)
rng = np.random.default_rng(0)
batch = sample_steps(None, chain, chain.initial(4_000, rng), random_state=rng)


def learned(growing, n_rounds=30):
    """Return the loss after each round, with the last values in the dictionary or without."""
    earlier = []

    def evaluator(k, policy, rng):
        dictionary = make_union(RadialGrid(50), ValueFeatures(earlier[-1:] if growing else []))
        pursuit = make_pipeline(dictionary, OrthogonalMatchingPursuit(n_nonzero_coefs=2))
        return FittedQ(regressor=pursuit, n_sweeps=1)

    def remember(old, new, *, q, states, k):
        earlier.append(q)
        return new

    learner = CAPI(evaluator, Thresholds(), 0.99, n_rounds, initial_policy=Constant(0, 2), update=remember)
    return [chain.mdp.performance_loss(done.policy) for done in learner.iterate(batch)]


for name, growing in (("fixed", False), ("growing", True)):
    losses = learned(growing)
    print(f"{name} dictionary: loses {losses[9]:.3g} after 10 rounds, {losses[-1]:.3g} after {len(losses)}")
