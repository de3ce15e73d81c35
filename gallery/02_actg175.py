# %% [markdown]
# # A trial on real patients: which of four drugs?
#
# *Real data*: ACTG 175, 2,139 patients with HIV who were randomly assigned one of four treatments (Hammer et al., 1996). The outcome is the CD4 count
# after 20 weeks. The table comes with the package lifelines (MIT licence).
#
# A decision has no consequences beyond its outcome, so the discount is 0.

# %%
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from capi import CAPI, Transitions
from capi.data import describe
from capi.evaluators import FittedQ
from capi.offline import cross_evaluate
from capi.policy_spaces import OptimalTrees, Partition

table = pd.read_csv(Path(find_spec("lifelines").origin).parent / "datasets" / "ACTG175.csv")
table["arm"], table["chance"] = table["arms"].map({0: "ZDV", 1: "ZDV+ddI", 2: "ZDV+Zal", 3: "ddI"}), 0.25
roles = {"action": "arm", "reward": "cd420", "propensity": "chance", "discount": 0}

# %% [markdown]
# A careless choice of columns: `treat` was derived from the arm, and `week20` is a copy of the outcome. `describe` notices.

# %%
careless = Transitions.from_frame(
    table.assign(week20=table["cd420"]), state=["age", "cd40", "treat", "week20"], **roles
)
print("\n".join(f"- {warning}" for warning in describe(careless).warnings))

# %%
before = [
    "age",
    "wtkg",
    "hemo",
    "homo",
    "drugs",
    "karnof",
    "oprior",
    "z30",
    "preanti",
    "race",
    "gender",
    "symptom",
    "cd40",
    "cd80",
]
batch = Transitions.from_frame(table, state=before, **roles)
values = FittedQ(n_trees=50, min_samples_leaf=20)
common = {"discount": 0.0, "n_iterations": 1, "random_state": 0}
tree = CAPI(values, OptimalTrees(max_depth=2, min_samples_leaf=100), **common)
one_arm = CAPI(values, Partition(lambda states: np.zeros(len(states))), **common)
tree.fit(batch).policy_.plot()

# %% [markdown]
# Is the tree better than giving everyone the best single drug? Both are learned without each fifth of the patients and valued on it.

# %%
found = cross_evaluate({"the tree": tree, "the best arm": one_arm}, batch)
print(found.verdict("the tree", "the best arm"))
found.plot()

# %% [markdown]
# **What these data cannot tell**: whether a rule by patient beats the best drug for all. The interval contains zero, so a plain recommendation is as well supported as the tree. And CD4 after 20 weeks is not survival.
