"""From a table of treated patients to a policy that one can read, and what it is worth.

    python demo/hiv.py [ITERATIONS] [FOLDER]

Loads the table of simulated HIV patients that comes with the package (30,000 decisions), learns policies from it, prints the
rules of a small tree, measures everybody in the simulator and draws what becomes of one patient.
"""

import sys
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from capi import CAPI
from capi.baselines import FittedQIteration
from capi.datasets import load_hiv_batch
from capi.domains import HIV
from capi.evaluators import FittedQ
from capi.performance import performance
from capi.policies import Constant
from capi.policy_spaces import Forests, OptimalTrees, Trees
from capi.sampling import sample_episodes

DAYS_A_STEP, SHOWN_STEPS, RETURN_STEPS = 5, 200, 1000
COLOURS = {"no drugs": "#999999", "both drugs": "#0072B2", "forest to tree of depth 6": "#D55E00"}


def learned(batch, n_iterations):
    """Yield (name, policy) of each method; values by 30 extra-trees over state and action, as in the paper.

    The tree of depth 3, the best there is for the values, is what every round improves to. The one of depth 6 takes over from the forest in the last round:
    a space may change with the rounds.
    """
    values = FittedQ(n_trees=30, min_samples_split=50, actions="input", n_jobs=-1)
    common = {"discount": 0.98, "n_iterations": n_iterations, "random_state": 0}
    forest = Forests(30, min_samples_split=20, refresh_every=10, n_jobs=-1)
    yield "Tree-FQI", FittedQIteration(values, **common).fit(batch).policy_
    yield "CAPI, forest", CAPI(values, forest, **common).fit(batch).policy_
    small = OptimalTrees(max_depth=3, n_thresholds=32, min_samples_leaf=50, n_jobs=-1)
    larger = Trees(max_depth=6, min_samples_leaf=50)
    yield "CAPI, tree of depth 3", CAPI(values, small, **common).fit(batch).policy_
    at_last = CAPI(values, lambda k, policy, rng: larger if k == n_iterations - 1 else forest, **common)
    yield "CAPI, forest to tree", at_last.fit(batch).policy_


def drawing(hiv, policies):
    """Return a figure of one patient's virus and defence under each policy."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    figure.suptitle("One patient, 1000 days from the unhealthy state")
    panels = figure.subplots(1, 2)
    for name, policy in policies.items():
        path = sample_episodes(hiv, policy, n_episodes=1, max_steps=SHOWN_STEPS)
        days = np.arange(SHOWN_STEPS) * DAYS_A_STEP
        for axes, column in zip(panels, (4, 5), strict=True):
            axes.plot(days, path.states[:, column], label=name, color=COLOURS[name])
    for axes, title in zip(panels, ("free virus (log10 copies/ml)", "defence (log10 cells/ml)"), strict=True):
        axes.set(title=title, xlabel="day")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].legend(frameon=False)
    return figure


def main(n_iterations=100, folder="results/demo"):
    started = time.perf_counter()
    batch, hiv = load_hiv_batch(), HIV()
    print(batch, "\n")
    policies = {f"always {label}": Constant(a, 4) for a, label in enumerate(hiv.action_labels)}
    for name, policy in learned(batch, n_iterations):
        policies[name] = policy
        print(f"{time.perf_counter() - started:5.0f} s  learned {name}", flush=True)
    print("\nThe tree of depth 3 (its rounds take turns between three trees, two of which reach the healthy state):")
    print(policies["CAPI, tree of depth 3"].rules(), "\n")
    print(
        f"The tree of depth 6 that took over from the forest has {policies['CAPI, forest to tree'].n_leaves} rules.\n"
    )
    print("Discounted return over 5000 days from the unhealthy state; above 1e8 the patient is in the healthy state:")
    for name, policy in policies.items():
        print(f"  {name:24} {performance(policy, hiv, n_episodes=1, max_steps=RETURN_STEPS).mean:10.3g}", flush=True)
    shown = ("always none", "always RTI+PI", "CAPI, forest to tree")
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    drawing(hiv, dict(zip(COLOURS, (policies[name] for name in shown), strict=True))).savefig(
        out / "patient.png", dpi=150
    )
    print(f"\n{time.perf_counter() - started:.0f} s; picture {out / 'patient.png'}")


if __name__ == "__main__":
    main(*(convert(text) for convert, text in zip((int, str), sys.argv[1:], strict=False)))
