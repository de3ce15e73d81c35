"""Iterates in a restricted space may oscillate: watch the share of changed decisions, and keep the best iterate.

With few sampled states per round, the best cut changes from round to round. ``keep`` takes a score of each iteration
(here from the true loss; with logged data alone, use an estimate on held-out episodes). ``update`` decides how a new
policy replaces the old one: here only if it is better on more states than the twelve that it was chosen on.
"""

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact
from capi.loss import gap_weighted_loss
from capi.policy_spaces import Thresholds

chain = ChainWalk(variant=1, success=0.7)
mdp = chain.mdp


def few_states(k, policy, rng):
    """Return twelve states."""
    return chain.initial(12, rng)


def score(iteration):
    """Return the score to maximise: minus the loss."""
    return -mdp.performance_loss(iteration.policy)


def careful(old, new, *, q, states, k):
    """Return the new policy if it loses less than the old one over all states, according to the current Q."""
    values = q.values(mdp.states)
    gains = gap_weighted_loss(values, old.act(mdp.states)) - gap_weighted_loss(values, new.act(mdp.states))
    return new if gains > 0 else old


settings = {"discount": 0.99, "n_iterations": 30, "random_state": 1}
last = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), **settings).fit(states=few_states)
best = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), keep=score, **settings).fit(states=few_states)
steady = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), update=careful, **settings).fit(states=few_states)

changed = [f"{numbers['changed']:.0%}" for numbers in last.history_[-8:]]
print("decisions changed in the last rounds:", *changed)
for name, learner in (("last", last), ("best", best), ("careful", steady)):
    print(f"{name}: loses {mdp.performance_loss(learner.policy_):.4g}")
