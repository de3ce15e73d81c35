"""Numbers with their uncertainty."""

from __future__ import annotations

import numpy as np
from scipy import stats

from capi.errors import InvalidInput
from capi.randomness import RandomState, as_generator
from capi.validation import Floats, is_real

RESAMPLES = 2000


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of ``values`` (n,); NaN for a single one."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def bootstrap_interval(values: Floats, level: float = 0.95, *, random_state: RandomState = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of ``values`` (n,); NaN for a single one."""
    if not is_real(level) or not 0 < level < 1:
        raise InvalidInput(f"level must lie strictly between 0 and 1; got {level!r}.")
    if len(values) < 2:
        return float("nan"), float("nan")
    if np.ptp(values) == 0:  # every resample has the same mean
        return float(values[0]), float(values[0])
    result = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=max(1, 10_000_000 // len(values)),
        confidence_level=level,
        method="percentile",
        rng=as_generator(random_state),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)
