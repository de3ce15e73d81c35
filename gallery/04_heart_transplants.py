# %% [markdown]
# # A cohort that cannot answer: heart transplants
#
# *Real data*: the Stanford heart transplant programme, 103 patients, 1967 to 1974 (Crowley and Hu, 1977), from the package lifelines (MIT licence).
# Patients wait for a donor; some get a heart, some die before. Each row is a period with or without a transplant. It is tempting to ask: who should
# get one? The reward is the length of the period in days.

# %%
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from capi import CAPI, Transitions
from capi.data import describe
from capi.offline import evaluate
from capi.policies import Constant
from capi.policy_spaces import OptimalTrees

table = pd.read_csv(Path(find_spec("lifelines").origin).parent / "datasets" / "stanford_heart.csv")
table["days"] = table["stop"] - table["start"]
table["transplanted"] = table["transplant"].map({0: "waiting", 1: "transplant"})
batch = Transitions.from_frame(
    table,
    episode="id",
    time="start",
    state=["age", "year", "surgery"],
    action="transplanted",
    reward="days",
    terminated="event",
    discount=0.99,
)
print(describe(batch))

# %%
learner = CAPI(space=OptimalTrees(max_depth=1, min_samples_leaf=10), discount=0.99, random_state=0).fit(batch)
learner.policy_.plot()

# %%
import warnings

from capi.errors import EvidenceWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore", EvidenceWarning)
    found = evaluate(Constant(0, n_actions=2), batch, discount=0.99)
print(found)

# %% [markdown]
# **What these data cannot tell**: nearly everything. No one chose between a transplant and waiting at the time of each row: a heart became available or not, and a patient had to live long enough to get one. Periods after a transplant are
# longer because only survivors get them (immortal time). A policy needs a decision that was really taken, and what was known at that moment.
