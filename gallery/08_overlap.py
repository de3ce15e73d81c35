# %% [markdown]
# # When the log rarely does what the rule says
#
# *Simulated data.* A log in which almost everyone with a high score was treated. The value of not treating them is a guess, and the evaluation says so.

# %%
import warnings

import numpy as np

from capi import Transitions
from capi.errors import EvidenceWarning
from capi.offline import compare
from capi.plotting import name_axes, new_figure
from capi.policies import Constant

rng = np.random.default_rng(0)
n = 2000
score = rng.random(n)
chance = 1 / (1 + np.exp(-14 * (score - 0.4)))
treated = rng.random(n) < chance
outcome = score + np.where(treated, 0.3 - 0.5 * score, 0.0) + rng.normal(0, 0.2, n)
batch = Transitions(
    score[:, None],
    treated.astype(int),
    outcome,
    score[:, None],
    np.ones(n, dtype=bool),
    propensities=np.where(treated, chance, 1 - chance),
    feature_names=["score"],
    action_labels=["wait", "treat"],
)
figure, [axes] = new_figure(6, 3)
axes.hist([score[~treated], score[treated]], bins=25, stacked=True, label=["wait", "treat"])
axes.legend(frameon=False)
name_axes(axes, x="score", y="patients", title="Above 0.7, almost no one waited")
figure

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", EvidenceWarning)
    found = compare({"treat everyone": Constant(1, 2), "treat no one": Constant(0, 2)}, batch, discount=0.0)
for name in ("treat everyone", "treat no one"):
    evidence = found[name]
    print(f"{name}: {evidence.estimate:.3f}, {evidence.effective_episodes:.0f} effective of {n} patients")
    print("\n".join(f"  - {warning}" for warning in evidence.warnings))
print(f"the truth: treat everyone {np.mean(score + 0.3 - 0.5 * score):.3f}, treat no one {score.mean():.3f}")
found.plot()

# %% [markdown]
# **What these data cannot tell**: the value of waiting at high scores. The interval is honest only if the model happens to extrapolate well.
