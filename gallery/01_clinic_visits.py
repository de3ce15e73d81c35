# %% [markdown]
# # A trial with four visits: whom to treat, and when
#
# *Simulated data.* 600 patients come four times; a coin decides whether they are treated. Treatment lowers the severity of the disease and raises a
# liver value. Because a visit's decision changes the next state, the best rule is not the one with the best immediate result.

# %%
import pandas as pd

from capi import CAPI, Transitions
from capi.datasets import clinic_table
from capi.offline import evaluate
from capi.policy_spaces import OptimalTrees

visits = pd.read_csv(clinic_table())
roles = {"episode": "patient", "time": "week", "action": "treatment", "reward": "wellbeing", "propensity": "propensity"}
batch = Transitions.from_frame(visits, state=["week", "age", "sex", "severity", "liver"], **roles)
learning, test = batch.split(0.7, random_state=0)
learner = CAPI(space=OptimalTrees(max_depth=2), discount=0.99, random_state=0).fit(learning)
learner.policy_.plot()

# %% [markdown]
# On the patients that were kept aside, the tree is compared with what was done and with treating everyone:

# %%
found = evaluate(learner.policy_, test)
print(found.verdict)
print(found.best_action_verdict)
found.plot()

# %% [markdown]
# Where the choice matters: the gap between the values of the two actions, over the logged states.

# %%
learner.plot_gap(learning.states)

# %% [markdown]
# **What these data cannot tell**: anything beyond the fourth visit. The tree treats in the last visits as if the liver did not matter afterwards.
