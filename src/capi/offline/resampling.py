"""Bootstrap over episodes: whole episodes are drawn, because rows within an episode are dependent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capi._utils.randomness import numbered_rng
from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints
from capi.offline.estimators import Estimator
from capi.offline.fitted_q import FittedStart

MOST_COUNTS = 10_000_000  # held in memory at once


def resampled(
    estimators: Sequence[Estimator],
    weights: Floats,
    n_resamples: int,
    seeds: np.random.SeedSequence,
    stream: int,
    n_jobs: int,
) -> list[Floats]:
    """Return each estimate on the same resampled episodes (B,); each resample has its own seed.

    ``weights`` (E,) are the positive weights of the episodes.
    """
    n = len(weights)
    at_once = max(1, MOST_COUNTS // n)
    blocks = [np.arange(first, min(first + at_once, n_resamples)) for first in range(0, n_resamples, at_once)]
    out = [np.empty(n_resamples) for _ in estimators]

    def counts_of(numbers: Ints) -> Floats:
        counts = np.empty((len(numbers), n))
        for row, b in zip(counts, numbers, strict=True):
            drawn = numbered_rng(seeds, stream, int(b)).integers(n, size=n)
            row[:] = np.bincount(drawn, minlength=n) * weights
        return counts

    def of_block(numbers: Ints) -> None:
        counts = counts_of(numbers)
        for values, estimator in zip(out, estimators, strict=True):
            if not isinstance(estimator, FittedStart):  # which uses its own threads
                values[numbers] = estimator.values(counts)

    in_threads(of_block, blocks, n_jobs)
    for values, estimator in zip(out, estimators, strict=True):
        if isinstance(estimator, FittedStart):
            for numbers in blocks:
                values[numbers] = estimator.values(counts_of(numbers))
    return out
