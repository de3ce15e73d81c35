"""Settings of Mountain-Car.

The paper states the discount, the kernel, lambda = 0.01 / n, the step limits and kappa = 75. It does not state whether
lambda multiplies a mean or a sum of squared errors, so both are run: with a mean the ridge is n lambda = 0.01, with a sum
it is 0.01 / n. Nor does it state the numbers of samples, the other kappas, the number of iterations, the units of the
states, the threshold of the dictionary or the starts from which policies are tested. Here states are scaled to the unit
square, for the kernel and for neighbours, and a policy is tested from uniform starts that depend on the seed alone: methods
share them, but seeds do not, so the standard error over runs includes their variation.
"""

from capi.experiments.setting import Setting, Size

LAMBDA = 0.01  # times 1 / n
READINGS = ("mean-loss", "sum-loss")  # what lambda is added to
KAPPA = 75  # the number of neighbours in the paper's comparison
KAPPAS = (1, 10, 25, 50, 75, 100, 200, 400, 1_000)  # only those up to half the number of samples are run
SAMPLES = (200, 500, 1_000, 2_000, 5_000)
SEEDS = {"quick": 2, "full": 50}
LEARNING = {
    "bandwidth": 0.1,  # sigma^2 = 1e-2
    "threshold": 1e-3,
    "n_iterations": 100,
    "n_last": 5,  # last iterates that are recorded in addition to the final one, because they oscillate
}
TRAJECTORY_STEPS = 100  # step limit of the random policy that collects the data
MAX_STEPS = 200  # also the number of steps recorded for a test that does not reach the goal
TESTS = 300  # test episodes


def settings(size: Size) -> list[Setting]:
    """Return one setting per reading of lambda, number of samples and kappa (None is RFQI)."""
    readings, samples, kappas = (
        (READINGS, SAMPLES, KAPPAS) if size == "full" else (READINGS[:1], (200, 500, 2_000), (10, 75, 200))
    )
    return [
        _setting(reading, kappa, n)
        for reading in readings
        for n in samples
        for kappa in (None, *kappas)
        if kappa is None or 2 * kappa <= n
    ]


def _setting(reading: str, kappa: int | None, n_samples: int) -> Setting:
    name = "rfqi" if kappa is None else f"knn-capi-{kappa}"
    ridge = LAMBDA if reading == "mean-loss" else LAMBDA / n_samples
    case = {"method": "RFQI" if kappa is None else "KNN-CAPI", "kappa": kappa, "n_samples": n_samples, "ridge": ridge}
    return Setting(f"{reading}/{name}/{n_samples}", {"group": reading, **case, **LEARNING})
