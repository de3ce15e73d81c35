"""Settings of the combinations: one half of the loop is fixed, the other one varies.

All learn from the same 1,000 transitions of a random policy on Mountain-Car, except rollouts, which simulate. Every part has the
library's defaults apart from what `run` states; nothing is tuned, so the comparison says what one gets without tuning. `Exact` needs
a model, and `Constrained` wraps another space; neither is here.
"""

from capi.experiments.setting import Setting, Size

SEEDS = {"quick": 1, "full": 20}  # a run takes a second
EVALUATOR, SPACE = "FittedQ", "Trees"  # the fixed halves
EVALUATORS = (
    "FittedQ",
    "BoostedQ",
    "KernelFittedQ",
    "LSTDQ",
    "BellmanResidual",
    "LassoTD",
    "TD",
    "GTD",
    "GTD2",
    "TDC",
    "AdvantageLearning",
    "Pessimistic",
    "Rollouts",
    "RolloutsWithCritic",
)
SPACES = (
    "Trees",
    "OptimalTrees",
    "Forests",
    "Neighbors",
    "LocalAverages",
    "Linear",
    "KernelPolicies",
    "Classifier",
    "Thresholds",
    "Partition",
    "Reweighted",
    "Unrestricted",
)
COMMON = {"n_samples": 1_000, "n_iterations": 50, "depth": 4, "order": 8, "n_cells": 10}


def settings(size: Size) -> list[Setting]:
    """Return all evaluators with the fixed space, and all spaces with the fixed evaluator; the quick size has some of each."""
    evaluators, spaces = (EVALUATORS, SPACES) if size == "full" else (EVALUATORS[:4:3], SPACES[:4])
    cases = [(evaluator, SPACE) for evaluator in evaluators]
    cases += [(EVALUATOR, space) for space in spaces if space != SPACE]
    return [
        Setting(f"{_group(*case)}/{case[0]}-{case[1]}", {"evaluator": case[0], "space": case[1], **COMMON})
        for case in cases
    ]


def _group(evaluator: str, space: str) -> str:
    return "evaluators" if space == SPACE else "spaces" if evaluator == EVALUATOR else "others"
