"""What the weights of states are worth to small trees: true returns with each weighting, on finite MDPs and from batches.

    python benchmarks/states.py model --mdps FOLDER       # exact values and occupancies, starting from the optimal policy
    python benchmarks/states.py batch                     # from batches: the records of `dependable.py states`
    python benchmarks/states.py chain                     # the paper's chain walk: exact, and ten batches of random decisions

Rows are problems and depths, columns are weightings; `docs/states.md` has the results. A return is that of the best iterate of
20, by the model, and in parentheses that of the last one; from batches it is that of the policy that ``keep="best"`` returns.
"""

import argparse
import os
from itertools import product
from pathlib import Path

import numpy as np
from dependability.problems import MDPS as FOLDER
from dependability.problems import Finite, log_of
from dependability.settings import DEPTHS, MDPS, WEIGHTINGS
from dependability.table import states_text

from capi import CAPI
from capi.domains import ChainWalk
from capi.evaluators import Exact
from capi.experiments.records import Records
from capi.policy_spaces import OptimalTrees

N_ROUNDS = 20
CHAIN_ROWS, N_SEEDS = 1_000, 10


def model():
    """Print returns with exact values: the loop of CAPI over states with features."""
    print("| MDP | depth | " + " | ".join(WEIGHTINGS) + " | optimum |\n|---|---|" + "---|" * (len(WEIGHTINGS) + 1))
    for name in MDPS:
        problem = Finite(name)
        best = problem.mdp.start @ problem.mdp.optimal_values
        for depth in DEPTHS:
            cells = [returns_of(problem, depth, weighting) for weighting in WEIGHTINGS]
            shown = " | ".join(f"{max(found):.4g} ({found[-1]:.4g})" for found in cells)
            print(f"| {name} | {depth} | {shown} | {best:.4g} |", flush=True)


def returns_of(problem, depth, weighting):
    """Return the exact returns of all iterates."""
    mdp, x = problem.mdp, problem.features
    space = OptimalTrees(max_depth=depth, min_samples_leaf=1, work_limit=300_000_000, n_jobs=-1)
    policy, visits, found = mdp.optimal_policy, np.zeros(len(x)), []
    for _ in range(N_ROUNDS):
        occupancy = mdp.discounted_occupancy(policy)
        visits += occupancy / occupancy.sum()
        weights = {"batch": None, "occupancy": occupancy, "mixture": visits / visits.sum()}[weighting]
        policy = space.improve(x, mdp.action_values(policy), weights=weights).probabilities(x)
        found.append(float(mdp.start @ mdp.values(policy)))
    return found


def batch():
    """Print returns learned from batches, from the records of the group states."""
    records = list(Records(Path(__file__).parent / "records" / "dependable"))
    print(states_text(records))


def chain():
    """Print the losses of trees on the chain walk: with exact values, and the median (worst) of batches of random decisions."""
    print(
        "| variant | depth | learned from | " + " | ".join(WEIGHTINGS) + " |\n|---|---|---|" + "---|" * len(WEIGHTINGS)
    )
    for variant, depth in product((1, 2), DEPTHS):
        walk, space = ChainWalk(variant=variant), OptimalTrees(max_depth=depth)
        settings = {"discount": walk.discount, "keep": "best", "random_state": 0}
        exact = [
            walk.mdp.performance_loss(CAPI(Exact(walk.mdp), space, state_weights=weighting, **settings).fit().policy_)
            for weighting in WEIGHTINGS
        ]
        print(
            f"| {variant} | {depth} | exact values | " + " | ".join(f"{loss:.3g}" for loss in exact) + " |", flush=True
        )
        logs = [log_of(None, walk, 50, CHAIN_ROWS, np.random.default_rng([seed, 0])) for seed in range(N_SEEDS)]
        cells = []
        for weighting in WEIGHTINGS:
            losses = [
                walk.mdp.performance_loss(CAPI(None, space, state_weights=weighting, **settings).fit(log).policy_)
                for log in logs
            ]
            cells.append(f"{np.median(losses):.3g} ({max(losses):.3g})")
        print(f"| {variant} | {depth} | {CHAIN_ROWS:,} rows | " + " | ".join(cells) + " |", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["model", "batch", "chain"], nargs="?", default="chain")
    parser.add_argument("--mdps", type=Path, metavar="FOLDER", help=f"folder of the finite MDPs (default: {FOLDER})")
    options = parser.parse_args(arguments)
    if options.mdps is not None:
        os.environ[FOLDER] = str(options.mdps.resolve())
    if options.part == "model":
        model()
    elif options.part == "batch":
        batch()
    else:
        chain()


if __name__ == "__main__":
    main()
