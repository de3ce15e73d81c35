"""Rules that no policy may break: where an action is forbidden, how often it may be taken, how large the mean cost may be.

The log has 30,000 decisions on simulated HIV patients (log10 of six counts, four treatments). Values come from fitted Q
iteration; then one improvement finds the best tree of depth 2, first without rules, then with them. A pointwise rule
holds in every state, a cap on the sample that the tree was learned from; `report` measures it on held-out patients.
"""

from dataclasses import replace

from capi.baselines import FittedQIteration
from capi.datasets import load_hiv_batch
from capi.evaluators import FittedQ
from capi.policy_spaces import Constrained, OptimalTrees
from capi.policy_spaces.rules import Cap, Never

train, test = load_hiv_batch().split(0.5, random_state=0)
learner = FittedQIteration(FittedQ(n_trees=20, n_jobs=-1), 0.98, 40, random_state=0).fit(train)
values = learner.q_.values(train.states)

trees = OptimalTrees(max_depth=2, n_thresholds=32)
rules = [Never("RTI+PI", when="log10 E > 2.5"), Cap("RTI", at_most=0.2)]
for name, space in {"free": trees, "with rules": Constrained(trees, rules, train.schema)}.items():
    policy = replace(space.improve(train.states, values), schema=train.schema)  # learners attach names and labels
    print(f"{name}:")
    print(policy.rules())
    actions = policy.act(test.states)
    shares = [f"{label} {(actions == a).mean():.0%}" for a, label in enumerate(test.schema.action_labels)]
    print("held-out patients get " + ", ".join(shares))
for entry in policy.report(test.states):
    print(f"{entry['rule']}: {entry['mean']:.1%} on held-out patients")
