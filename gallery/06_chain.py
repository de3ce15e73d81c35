# %% [markdown]
# # The paper's chain: one cut, one sweep per round
#
# *A known model.* 200 states in a row, a reward near the left end. One sweep of policy evaluation per round is enough to find the best policy with a single cut.

# %%
import numpy as np

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact
from capi.plotting import name_axes, new_figure
from capi.policy_spaces import Thresholds

mdp = ChainWalk(variant=2).mdp
learner = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), discount=0.99, n_iterations=6)
lost = [mdp.performance_loss(step.policy) for step in learner.iterate()]
print("lost after each round:", ", ".join(f"{x:.4g}" for x in lost))

# %%
figure, [axes] = new_figure(6, 3)
axes.semilogy(np.arange(1, len(lost) + 1), np.maximum(lost, 1e-3), "o-")
name_axes(axes, x="round", y="loss of the policy (0.001 stands for 0)", title="The policy is optimal after four rounds")
figure

# %% [markdown]
# **What a model cannot tell**: whether it is right. With a log instead of a model, the same loop runs on `FittedQ`.
