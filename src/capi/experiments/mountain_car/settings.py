"""What is run for Mountain-Car.

The paper prints the discount, the kernel, the ridge, the limits of steps and kappa = 75, and neither the numbers of
samples, the other kappas, the iterations, the units of the states, the threshold of the dictionary nor the starts that
policies are tested from. Here states are scaled to the unit square for the kernel and for neighbours alike, and a policy
is tested from uniform starts that depend on the seed alone: methods meet the same ones, seeds different ones, so that the
standard error over runs has them in.
"""

from typing import Any, Literal

KAPPA = 75  # the number of neighbours in the paper's comparison
KAPPAS = (1, 10, 25, 50, 75, 100, 200, 400, 1_000)  # those up to half the number of samples are run
SAMPLES = (200, 500, 1_000, 2_000, 5_000)
SEEDS = 50
LEARNING = {  # sigma^2 = 1e-2; the paper's lambda = 0.01 / n times n
    "bandwidth": 0.1,
    "ridge": 0.01,
    "threshold": 1e-3,
    "n_iterations": 100,
    "n_last": 5,  # iterates at the end whose mean is recorded beside the final one: they oscillate
}
TRAJECTORY_STEPS = 100  # of the random policy that collects the data
MAX_STEPS = 200  # also the steps of a test that does not reach the goal
TESTS = 300  # episodes


def settings(size: Literal["quick", "full"]) -> list[dict[str, Any]]:
    """Return one run a number of samples, seed and kappa (None is RFQI)."""
    samples, kappas, seeds = (SAMPLES, KAPPAS, SEEDS) if size == "full" else ((200, 500, 2_000), (10, 75, 200), 2)
    return [
        {"method": "RFQI" if kappa is None else "KNN-CAPI", "kappa": kappa, "n_samples": n, "seed": seed, **LEARNING}
        for seed in range(seeds)
        for n in samples
        for kappa in (None, *kappas)
        if kappa is None or 2 * kappa <= n
    ]
