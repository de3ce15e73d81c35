"""Settings of HIV treatment. The paper does not state the number of iterations or whether methods share their data.

"own": each method collects its own rounds, as in the protocol of Ernst et al., with paired seeds; "shared": all methods
learn from the one batch that Tree-FQI's rounds have collected.
"""

from typing import Any, Literal

ETAS = (2, 10, 20, 50, 100, 200, 300, 500, 1000, 2000)  # smallest node of a policy tree that may split
QUICK_ETAS = (20, 500)
SEEDS = 50

PROTOCOL = {"n_patients": 30, "n_steps": 200, "n_rounds": 10, "exploration": 0.15}
LEARNING = {"n_trees": 30, "eta_v": 50, "n_iterations": 400, "refresh_every": 10}
RETURN_STEPS = 1000  # 5000 days


def settings(size: Literal["quick", "full"]) -> list[dict[str, Any]]:
    """Return one setting per seed and method (None is Tree-FQI), and one per seed for a batch that all methods share.

    The quick size learns from the batch that comes with the package: five rounds instead of ten.
    """
    if size == "quick":
        learning = {**LEARNING, "n_iterations": 200}
        embedded = {"data": "shared", "batch": "embedded", "seed": 0}
        return [{**embedded, "methods": [eta], **learning} for eta in (None, *QUICK_ETAS)]
    own: list[dict[str, Any]] = [
        {"data": "own", "seed": seed, "eta_pi": eta, **PROTOCOL, **LEARNING}
        for seed in range(SEEDS)
        for eta in (None, *ETAS)
    ]
    shared: list[dict[str, Any]] = [
        {"data": "shared", "batch": "collected", "seed": seed, "methods": [None, *ETAS], **PROTOCOL, **LEARNING}
        for seed in range(SEEDS)
    ]
    return own + shared
