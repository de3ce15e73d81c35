"""Paired differences with intervals, and what they decide.

A verdict needs five seeds and a 95 % t interval of the paired differences, which is shown with the limits that it is compared with; the same
differences are shown with one standard error, as in the paper, and with a percentile bootstrap interval of their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from capi._utils.statistics import all_hold, bootstrap_interval, is_positive, standard_error, t_interval
from capi._utils.validation import Floats
from capi.experiments.experiment import Claim

FEWEST_SEEDS = 5  # with fewer no claim is decided
Verdict: TypeAlias = Literal["holds", "holds in part", "fails", "open"]


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and what they say about their part of a claim."""

    mean: float
    standard_error: float | None  # None with a single seed, like the ends of the intervals
    low: float | None  # 95 % t interval, which decides
    high: float | None
    n_seeds: int
    supports: bool | None  # None if they do not decide it
    needed: str = "above 0"  # where the t interval must be for the claim to hold
    bootstrap: tuple[float, float] | None = None  # 95 % percentile interval


def positive(values: Floats) -> bool | None:
    """Return whether the mean is positive; None if there are few seeds, or the t interval contains zero."""
    return is_positive(values) if len(values) >= FEWEST_SEEDS else None


def changed(values: Floats) -> bool | None:
    """Return True if the mean differs from zero; otherwise None, because seeds cannot show that there is no difference."""
    return None if positive(values) is None else True


@dataclass(frozen=True)
class Between:
    """Judges whether the mean lies between limits: the whole t interval must lie inside to hold, and outside to fail.

    Examples
    --------
    >>> str(Between(0.0)), str(Between(1.5, 3.0)), str(Between(high=2.0))
    ('above 0', '1.5 to 3', 'below 2')
    >>> Between(1.5, 3.0)(np.array([1.9, 2.0, 2.1, 2.2, 1.8]))
    True
    """

    low: float | None = None
    high: float | None = None

    def __call__(self, values: Floats) -> bool | None:
        """Return whether the mean lies between the limits; None if the values cannot decide it."""
        sides = [] if self.low is None else [positive(values - self.low)]
        return all_hold(sides if self.high is None else [*sides, positive(self.high - values)])

    def __str__(self) -> str:
        """Return the limits in words."""
        if self.low is not None and self.high is not None:
            return f"{number_text(self.low)} to {number_text(self.high)}"
        return f"below {number_text(self.high)}" if self.high is not None else f"above {number_text(self.low or 0.0)}"


@dataclass(frozen=True)
class Moved:
    """Judges whether the mean differs from zero; it does not if the whole t interval lies within ``least`` of zero and contains it."""

    least: float

    def __call__(self, values: Floats) -> bool | None:
        """Return whether the mean differs from zero; None if the values cannot decide it."""
        return changed(values) or (False if Between(-self.least, self.least)(values) else None)

    def __str__(self) -> str:
        """Return what holds and what fails in words."""
        return f"not 0; fails within {number_text(self.least)} of it"


Judge: TypeAlias = Callable[[Floats], bool | None]
POSITIVE = Between(0.0)


def differences(by_name: Mapping[str, Floats], judge: Judge = POSITIVE) -> dict[str, Difference]:
    """Return the difference of every name that has seeds, judged by whether it is positive unless stated otherwise."""
    return {name: _difference(values, judge) for name, values in by_name.items() if len(values)}


def _difference(values: Floats, judge: Judge) -> Difference:
    mean, supports = float(np.mean(values)), judge(values)
    needed = str(judge) if isinstance(judge, Between | Moved) else "not 0"
    if len(values) < 2:
        return Difference(mean, None, None, None, len(values), supports, needed)
    given = np.asarray(values, dtype=float)
    low, high = t_interval(given)
    return Difference(mean, standard_error(given), low, high, len(values), supports, needed, bootstrap_interval(given))


def paired(first: Mapping[Any, float], second: Mapping[Any, float]) -> Floats:
    """Return first - second for the seeds, or other names of runs, that both have, in their order."""
    return np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())], dtype=float)


def values_of(by_seed: Mapping[int, float]) -> Floats:
    """Return the values in the order of the seeds."""
    return np.array([by_seed[seed] for seed in sorted(by_seed)], dtype=float)


def runs_text(numbers: Iterable[int]) -> str:
    """Return the number of runs, or the range if it differs.

    Examples
    --------
    >>> runs_text([10, 10]), runs_text([1, 10]), runs_text([])
    ('10', '1 to 10', '0')
    """
    found = sorted(numbers) or [0]
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def verdict_of(parts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on a sentence from those on its parts.

    A sentence holds if all parts do, holds in part if some do, is open if none does and some are open, and fails otherwise.

    Examples
    --------
    >>> verdict_of(["holds", "open"]), verdict_of(["fails", "open"]), verdict_of([])
    ('holds in part', 'open', 'open')
    """
    found = set(parts)
    if found == {"holds"}:
        return "holds"
    if found & {"holds", "holds in part"}:
        return "holds in part"
    return "fails" if found == {"fails"} else "open"


def number_text(value: float) -> str:
    """Return a number with three or four digits: enough to read, and the same on every processor.

    Examples
    --------
    >>> number_text(2836.34), number_text(-0.03456), number_text(6.8123e8), number_text(0.0)
    ('2,836', '-0.0346', '6.81e8', '0')
    """
    if abs(value) >= 1e5:
        return f"{value:.2e}".replace("e+0", "e").replace("e+", "e")
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-12 else "0"


def mean_text(values: Iterable[float]) -> str:
    """Return the mean of values, one per seed, with its standard error; empty without values.

    Examples
    --------
    >>> mean_text([2800.0, 3000.0]), mean_text([0.5]), mean_text([])
    ('2,900 (100)', '0.5', '')
    """
    found = np.array(list(values), dtype=float)
    if not len(found):
        return ""
    error = standard_error(found)
    return number_text(float(found.mean())) + ("" if np.isnan(error) else f" ({number_text(float(f'{error:.2g}'))})")


def claim_of(
    statement: str,
    where: str,
    parts: Mapping[str, Floats],
    judge: Judge = POSITIVE,
    *,
    numbers: dict[str, Any] | None = None,
) -> Claim:
    """Return the claim that holds if all of its parts do, each judged by paired differences; parts without seeds stay open."""
    return Claim(
        statement,
        where,
        all_hold(judge(values) for values in parts.values()),
        numbers or {},
        differences(parts, judge),
        tuple(name for name, values in parts.items() if not len(values)),
    )
