# %% [markdown]
# # Financial aid after prison: help everyone, or some?
#
# *Real data*: 432 men released from prisons in Maryland were randomly given financial aid or not, and followed for 52 weeks (Rossi, Berk and Lenihan,
# 1980). The table comes with the package lifelines (MIT licence). The reward is the number of weeks without an arrest; everyone was followed for
# the whole year, so nothing is censored.

# %%
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from capi import CAPI, Transitions
from capi.evaluators import FittedQ
from capi.offline import cross_evaluate
from capi.policies import Constant
from capi.policy_spaces import OptimalTrees

table = pd.read_csv(Path(find_spec("lifelines").origin).parent / "datasets" / "rossi.csv")
table["aid"], table["chance"] = table["fin"].map({0: "no", 1: "yes"}), 0.5
roles = {"action": "aid", "reward": "week", "propensity": "chance", "discount": 0}
batch = Transitions.from_frame(table, state=["age", "race", "wexp", "mar", "paro", "prio"], **roles)
print(batch)

# %%
values = FittedQ(n_trees=50, min_samples_leaf=20)
tree = CAPI(values, OptimalTrees(max_depth=2, min_samples_leaf=40), discount=0.0, n_iterations=1, random_state=0)
tree.fit(batch).policy_.plot()

# %%
found = cross_evaluate(
    {"the tree": tree, "aid for all": Constant(1, n_actions=2), "aid for none": Constant(0, n_actions=2)}, batch
)
print(found.verdict("aid for all", "aid for none"))
print(found.verdict("the tree", "aid for all"))
found.plot()

# %% [markdown]
# **What these data cannot tell**: with 432 men, an effect of a week or two cannot be told from chance, and a rule for subgroups even less. Learning a tree from such a table always gives a tree; only the evaluation says that it is not worth having.
