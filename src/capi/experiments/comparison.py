"""Paired differences with intervals, and what they decide.

A verdict needs five seeds and a 95 % t interval of the paired differences; the same differences are shown with one standard error, as in
the paper, and with a percentile bootstrap interval of their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from capi._utils.statistics import bootstrap_interval, is_positive, standard_error
from capi._utils.validation import Floats

FEWEST_SEEDS = 5  # with fewer no claim is decided
Verdict: TypeAlias = Literal["holds", "holds in part", "fails", "open"]


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and what they say about their part of a claim."""

    mean: float
    standard_error: float | None  # None with a single seed, like the ends of the interval
    low: float | None  # 95 % bootstrap interval
    high: float | None
    n_seeds: int
    supports: bool | None  # None if they do not decide it


def positive(values: Floats) -> bool | None:
    """Return whether the mean is positive; None if there are few seeds, or the t interval contains zero."""
    return is_positive(values) if len(values) >= FEWEST_SEEDS else None


def changed(values: Floats) -> bool | None:
    """Return True if the mean differs from zero; otherwise None, because seeds cannot show that there is no difference."""
    return None if positive(values) is None else True


Judge: TypeAlias = Callable[[Floats], bool | None]


def differences(by_name: Mapping[str, Floats], judge: Judge = positive) -> dict[str, Difference]:
    """Return the difference of every name that has seeds, judged by whether it is positive unless stated otherwise."""
    return {name: _difference(values, judge) for name, values in by_name.items() if len(values)}


def _difference(values: Floats, judge: Judge) -> Difference:
    mean, supports = float(np.mean(values)), judge(values)
    if len(values) < 2:
        return Difference(mean, None, None, None, len(values), supports)
    low, high = bootstrap_interval(np.asarray(values, dtype=float))
    return Difference(mean, standard_error(values), low, high, len(values), supports)


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Floats:
    """Return first - second for the seeds that both have, in the order of the seeds."""
    return np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())], dtype=float)


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
