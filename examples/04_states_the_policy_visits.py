"""Let the state distribution follow the policy: add the states that each pi_k visits to the earlier ones.

The paper leaves this open ("similar to Ross, Gordon and Bagnell"). The function below receives the current policy,
runs it in the domain, and returns all states visited so far.
"""

import numpy as np

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact
from capi.policy_spaces import Thresholds

chain = ChainWalk(variant=1, success=0.7)
mdp = chain.mdp


def aggregated(n_walks, n_steps):
    """Return a function of (k, policy, rng) that collects the states that the policies visit."""
    seen = []

    def states(k, policy, rng):
        x = chain.initial(n_walks, rng)
        for _ in range(n_steps):
            seen.append(x)
            x, _, _ = chain.step(x, policy.act(x), rng)
        return np.vstack(seen)

    return states


learner = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), discount=0.99, n_iterations=20, random_state=0)
visited = learner.fit(states=aggregated(n_walks=20, n_steps=30)).policy_
uniform = learner.fit(states=mdp.states).policy_
for name, policy in (("visited states", visited), ("all states equally", uniform)):
    print(f"{name}: {policy.rules()!r} loses {mdp.performance_loss(policy):.4g}")
