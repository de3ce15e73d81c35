"""What is run for pole balancing.

The paper prints neither the reward nor the discount, the limits, the starts, the iterations or whose states rollouts start
from. Whether leaving the track is a failure decides the whole figure: the main runs have no track, others have one of 2.4 m.
"""

from typing import Any, Literal

METHODS = (  # and the smallest node of a policy tree that may split
    ("Tree-FQI", None),
    ("Tree-CAPI", 20),
    ("Tree-CAPI", 500),
    ("Tree-DPI", 20),
    ("Tree-DPI", 100),
    ("Tree-DPI", 500),
)
SAMPLES = (500, 1_000, 3_000, 10_000, 15_000, 30_000)
ROLLOUT_SAMPLES = (100_000, 1_000_000, 10_000_000, 30_000_000)  # further ones for rollouts, which need more
SEEDS = 50
LEARNING = {"n_trees": 30, "eta_v": 20, "n_iterations": 300, "refresh_every": 10}
ROLLOUTS = {"horizon": 50, "rollout_iterations": 5}
MAX_STEPS = 3000  # one minute
TESTS = 50  # episodes


def settings(size: Literal["quick", "full"]) -> list[dict[str, Any]]:
    """Return one run a method, number of samples, seed and track."""
    samples, seeds = ((1_000, 3_000, 10_000), range(1)) if size == "quick" else (SAMPLES, range(SEEDS))
    further = ROLLOUT_SAMPLES[:2] if size == "quick" else ROLLOUT_SAMPLES
    return [
        {"method": method, "eta_pi": eta, "n_samples": n, "seed": seed, "track_limit": track, **LEARNING, **ROLLOUTS}
        for seed in seeds
        for track in (None, 2.4)
        for method, eta in METHODS
        for n in (*samples, *(further if method == "Tree-DPI" else ()))
    ]
