"""Settings of pole balancing.

The paper does not state the reward, the discount, the limits, the starts, the number of iterations or the states from which
rollouts start. The whole figure depends on whether leaving the track is a failure: the main runs have no track limit, others
have one of 2.4 m.
"""

from typing import Any, Literal

METHODS = (  # each with the smallest node of a policy tree that may split
    ("Tree-FQI", None),
    ("Tree-CAPI", 20),
    ("Tree-CAPI", 500),
    ("Tree-DPI", 20),
    ("Tree-DPI", 100),
    ("Tree-DPI", 500),
)
SAMPLES = (500, 1_000, 3_000, 10_000, 15_000, 30_000)
ROLLOUT_SAMPLES = (100_000, 1_000_000, 10_000_000, 30_000_000)  # in addition for rollouts, which need more
SEEDS = 50
LEARNING = {"n_trees": 30, "eta_v": 20, "n_iterations": 300, "refresh_every": 10}
ROLLOUTS = {"horizon": 50, "rollout_iterations": 5}
MAX_STEPS = 3000  # one minute
TESTS = 50  # test episodes


def settings(size: Literal["quick", "full"]) -> list[dict[str, Any]]:
    """Return one setting per method, number of samples, seed and track."""
    samples, seeds = ((1_000, 3_000, 10_000), range(1)) if size == "quick" else (SAMPLES, range(SEEDS))
    further = ROLLOUT_SAMPLES[:2] if size == "quick" else ROLLOUT_SAMPLES
    return [
        {"method": method, "eta_pi": eta, "n_samples": n, "seed": seed, "track_limit": track, **LEARNING, **ROLLOUTS}
        for seed in seeds
        for track in (None, 2.4)
        for method, eta in METHODS
        for n in (*samples, *(further if method == "Tree-DPI" else ()))
    ]
