# %% [markdown]
# # A confounder that no one recorded
#
# *Simulated data.* Doctors see how frail patients are and treat the robust ones. The table lacks frailty. Treatment does nothing, but looks good.

# %%
import warnings

import numpy as np

from capi import Transitions
from capi.errors import EvidenceWarning
from capi.offline import evaluate
from capi.plotting import name_axes, new_figure
from capi.policies import Constant

rng = np.random.default_rng(0)
n = 1500
age, frail = rng.uniform(40, 80, n), rng.random(n) < 0.4
treated = rng.random(n) < np.where(frail, 0.35, 0.65)
outcome = 10 - 0.05 * age - 2.0 * frail + rng.normal(0, 1, n)
batch = Transitions(
    age[:, None],
    treated.astype(int),
    outcome,
    age[:, None],
    np.ones(n, dtype=bool),
    feature_names=["age"],
    action_labels=["wait", "treat"],
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", EvidenceWarning)
    found = evaluate(Constant(1, n_actions=2), batch, discount=0.0)
print(found.verdict)
print(found.sensitivity_text)

# %% [markdown]
# The verdict is wrong: the true difference is 0. The sensitivity analysis says how strong a confounder would have to be to undo it. Here it was stronger: given age alone, the odds of treatment are 1.13; for frail patients they are 0.54, less by a factor of 2.1.

# %%
rows = found.sensitivity.to_dict()["bounds"]
figure, [axes] = new_figure(6, 3)
gamma = [row["gamma"] for row in rows]
axes.fill_between(gamma, [row["low"] for row in rows], [row["high"] for row in rows], alpha=0.3)
axes.axhline(0.0, color="black", linewidth=0.8)
name_axes(
    axes,
    x="odds of treatment off by at most this factor",
    y="difference from the log",
    title="What an unrecorded confounder can do",
)
figure

# %% [markdown]
# **What these data cannot tell**: whether there is such a confounder. Only knowledge of how decisions were taken can.
