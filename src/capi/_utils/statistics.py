"""Standard errors, confidence intervals and verdicts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import stats

from capi._utils.randomness import RandomState, as_generator
from capi._utils.validation import Floats, is_real
from capi.errors import InvalidInputError

RESAMPLES = 2000
MANY = 10_000  # with more values the mean is practically normal


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of ``values`` (n,); NaN for a single value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def bootstrap_interval(values: Floats, level: float = 0.95, *, random_state: RandomState = 0) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of ``values`` (n,); NaN for one value, normal for very many."""
    if not is_real(level) or not 0 < level < 1:
        raise InvalidInputError(f"level must lie strictly between 0 and 1; got {level!r}.")
    if len(values) < 2:
        return float("nan"), float("nan")
    if np.ptp(values) == 0:  # every resample has the same mean
        return float(values[0]), float(values[0])
    if len(values) > MANY:
        half = float(stats.norm.ppf((1 + level) / 2)) * standard_error(values)
        return float(np.mean(values)) - half, float(np.mean(values)) + half
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


def t_interval(values: Floats, level: float = 0.95) -> tuple[float, float]:
    """Return Student's interval of the mean of the distribution of ``values`` (n,); NaN for a single value."""
    if len(values) < 2:
        return float("nan"), float("nan")
    mean, half = float(np.mean(values)), float(stats.t.ppf((1 + level) / 2, len(values) - 1)) * standard_error(values)
    return mean - half, mean + half


def is_positive(values: Floats, level: float = 0.95) -> bool | None:
    """Return whether the mean of the distribution of ``values`` (n,) is positive; None if the t interval contains zero."""
    low, high = t_interval(values, level)
    return True if low > 0 else False if high < 0 else None


def all_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether all verdicts hold: False if one is False, otherwise None if one is open."""
    found = list(verdicts)
    return False if False in found else None if None in found or not found else True
