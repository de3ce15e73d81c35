"""Settings of Mountain-Car.

The paper states the discount, the kernel, the ridge, the step limits and kappa = 75. It does not state the numbers of
samples, the other kappas, the number of iterations, the units of the states, the threshold of the dictionary or the starts
from which policies are tested. Here states are scaled to the unit square, for the kernel and for neighbours, and a policy
is tested from uniform starts that depend on the seed alone: methods share them, but seeds do not, so the standard error
over runs includes their variation.
"""

from typing import Any, Literal

KAPPA = 75  # the number of neighbours in the paper's comparison
KAPPAS = (1, 10, 25, 50, 75, 100, 200, 400, 1_000)  # only those up to half the number of samples are run
SAMPLES = (200, 500, 1_000, 2_000, 5_000)
SEEDS = 50
LEARNING = {  # sigma^2 = 1e-2; the ridge is the paper's lambda = 0.01 / n, times n
    "bandwidth": 0.1,
    "ridge": 0.01,
    "threshold": 1e-3,
    "n_iterations": 100,
    "n_last": 5,  # last iterates whose mean is recorded in addition to the final one, because they oscillate
}
TRAJECTORY_STEPS = 100  # step limit of the random policy that collects the data
MAX_STEPS = 200  # also the number of steps recorded for a test that does not reach the goal
TESTS = 300  # test episodes


def settings(size: Literal["quick", "full"]) -> list[dict[str, Any]]:
    """Return one setting per number of samples, seed and kappa (None is RFQI)."""
    samples, kappas, seeds = (SAMPLES, KAPPAS, SEEDS) if size == "full" else ((200, 500, 2_000), (10, 75, 200), 2)
    return [
        {"method": "RFQI" if kappa is None else "KNN-CAPI", "kappa": kappa, "n_samples": n, "seed": seed, **LEARNING}
        for seed in range(seeds)
        for n in samples
        for kappa in (None, *kappas)
        if kappa is None or 2 * kappa <= n
    ]
