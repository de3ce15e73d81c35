"""Learn a policy with a single cut on the paper's chain walk, and measure its loss.

The problem has 200 states in a row and a reward near the left end. The model is known here, so the evaluator
is exact: one sweep of the Bellman operator per round, as in the paper.
"""

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact
from capi.policy_spaces import Thresholds

chain = ChainWalk(variant=2, success=0.9)
learner = CAPI(Exact(chain.mdp, n_sweeps=1), Thresholds(), discount=0.99, n_iterations=6)

for step in learner.iterate():  # fit() runs the same loop and keeps the last policy
    lost = chain.mdp.performance_loss(step.policy)
    print(f"round {step.k + 1}: {step.changed:6.1%} of the decisions changed, the policy loses {lost:.4g}")

print(learner.fit().policy_.rules())
