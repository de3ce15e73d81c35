"""From a table of treated patients to a readable tree, an estimate of its value, and an HTML report.

    python demo/hiv.py [FOLDER]

The demo runs every step on the command line (describe, fit, evaluate, export, report), on the table of simulated HIV patients that comes with
the package (30,000 decisions on 150 patients). Then it uses the simulator that generated the table, which is not available for real data,
to measure how far off the estimates are.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from capi import load_policy
from capi.datasets import COUNTS, hiv_table
from capi.domains import HIV
from capi.policies import Constant
from capi.simulation import performance

SETTINGS = Path(__file__).with_suffix(".toml")
DISCOUNT, STEPS = 0.98, 1000  # of five days each; after that, rewards are discounted to almost nothing


def prepared(path):
    """Write the table with logarithms of the counts, and mark each patient's last row, which holds no decision, as truncated."""
    table = pd.read_parquet(hiv_table())
    table[list(COUNTS)] = np.log10(table[list(COUNTS)])
    table["truncated"] = table.groupby("patient").cumcount(ascending=False) == 0
    table.to_parquet(path)


def capi(*words):
    """Print a command and run it as a user would."""
    print(f"\n$ capi {' '.join(words)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "capi.cli", *words], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main(folder="results/demo"):
    started = time.perf_counter()
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    run, table, settings = out / "run", out / "patients.parquet", out / "hiv.toml"
    shutil.rmtree(run, ignore_errors=True)
    prepared(table)
    settings.write_text(SETTINGS.read_text().replace("results/demo/patients.parquet", table.as_posix()))
    roles = ["--episode", "patient", "--time", "day", "--action", "drugs", "--reward", "reward"]
    roles += ["--propensity", "propensity", "--truncated", "truncated"]
    capi("describe", str(table), *roles, *(word for count in COUNTS for word in ("--state", count)))
    capi("fit", "--settings", str(settings), "--out", str(run))
    capi("evaluate", str(run))
    capi("export", str(run), "--to", "sql", "--out", str(out / "policy.sql"))
    capi("report", str(run))

    tree, hiv = load_policy(run / "policy.capi"), HIV()
    offline = json.loads((run / "evaluation.json").read_text())
    print(
        "\nDiscounted return in the simulator, from the unhealthy state; above 1e8 the patient's own immune response takes over:"
    )
    policies = {f"always {label}": Constant(a, 4) for a, label in enumerate(hiv.action_labels)}
    for name, policy in policies.items():
        print(f"  {name:16} {returned(policy, hiv):10.3g}")
    true = returned(Translated(tree, hiv), hiv)
    low, high = offline["interval"]
    print(f"  {'the tree':16} {true:10.3g}   offline: {offline['estimate']:.3g}, interval {low:.3g} to {high:.3g}")
    print(f"The offline estimate is {offline['estimate'] / true:.2f} times the return in the simulator.")
    print(f"\n{time.perf_counter() - started:.0f} s; open {run / 'report.html'}")


class Translated:
    """Adapts a policy, whose actions are numbered as in the table, to a simulator that numbers them differently."""

    def __init__(self, policy, domain):
        self.policy, self.n_actions = policy, policy.n_actions
        self.number = np.array([domain.action_labels.index(label) for label in policy.schema.action_labels])

    def act(self, states, allowed=None):
        """Return each decision as the simulator numbers it."""
        return self.number[self.policy.act(states)]

    def probabilities(self, states, allowed=None):
        """Return probability 1 for each decision."""
        return np.eye(self.n_actions)[self.act(states)]


def returned(policy, hiv):
    return performance(policy, hiv, n_episodes=1, max_steps=STEPS, discount=DISCOUNT).mean


if __name__ == "__main__":
    main(*sys.argv[1:])
