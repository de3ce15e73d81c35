# %% [markdown]
# # HIV treatment: a rule that only the simulator can confirm
#
# *Simulated data*: 30,000 decisions on 150 patients of a published model, part of the package. A small tree is learned from two thirds of the patients and evaluated on the others.

# %%
import warnings

from capi import CAPI
from capi.datasets import load_hiv_batch
from capi.domains import HIV
from capi.errors import EvidenceWarning
from capi.evaluators import FittedQ
from capi.offline import evaluate
from capi.policy_spaces import OptimalTrees
from capi.simulation import performance

batch = load_hiv_batch()
learning, test = batch.split(2 / 3, random_state=0)
learner = CAPI(FittedQ(n_trees=20), OptimalTrees(max_depth=2), discount=0.98, n_iterations=15, random_state=0).fit(
    learning
)
learner.policy_.plot()

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", EvidenceWarning)
    found = evaluate(learner.policy_, test, methods=["fitted-q", "doubly-robust"], n_resamples=50)
print(found.verdict)
true = performance(learner.policy_, HIV(), discount=0.98, n_episodes=1, max_steps=200).mean
print(f"estimated {found.estimate:.3g}; in the simulator {true:.3g}; what was done {found.behaviour.value:.3g}")
learner.plot_history()

# %% [markdown]
# **What the log cannot tell**: whether the rule is as good as it is. No logged patient was treated like this for more than a few decisions.
