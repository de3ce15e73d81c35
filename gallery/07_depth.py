# %% [markdown]
# # How large should the tree be?
#
# *Simulated data* (the clinic visits). Deeper trees fit the learning patients better; on the others, the gain ends soon, and short rules are easier to check.

# %%
import pandas as pd

from capi import CAPI, Transitions
from capi.datasets import clinic_table
from capi.offline import compare
from capi.plotting import name_axes, new_figure
from capi.policy_spaces import OptimalTrees

roles = {"episode": "patient", "time": "week", "action": "treatment", "reward": "wellbeing", "propensity": "propensity"}
batch = Transitions.from_frame(pd.read_csv(clinic_table()), state=["week", "age", "sex", "severity", "liver"], **roles)
learning, test = batch.split(0.7, random_state=0)
trees = {
    f"depth {d}": CAPI(space=OptimalTrees(max_depth=d), discount=0.99, random_state=0).fit(learning).policy_
    for d in (1, 2, 3)
}
found = compare(trees, test)
print(found.summary().round(2).to_string())

# %%
figure, [axes] = new_figure(6, 3)
for depth, name in enumerate(trees, 1):
    low, high = found[name].interval
    axes.errorbar(
        depth,
        found[name].estimate,
        yerr=[[found[name].estimate - low], [high - found[name].estimate]],
        fmt="o",
        capsize=4,
    )
axes.axhline(found["depth 1"].behaviour.value, linestyle="--", color="grey")
axes.set_xticks([1, 2, 3])
name_axes(axes, x="depth of the tree", y="estimated value", title="On held-out patients; dashed: what was done")
figure

# %%
print(found.verdict("depth 2", "depth 1"))
print(found.verdict("depth 3", "depth 2"))

# %% [markdown]
# **What this cannot tell**: whether a third question per patient helps; that difference is within chance. Then the shorter rule is the more useful one. And the best of several was picked on the same patients, so its estimate is a little flattering.
