"""States as bin numbers between cut points: the input of the search for optimal trees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.threads import in_threads
from capi._utils.validation import Bools, Floats, Ints
from capi.errors import InvalidInputError

MOST_BINS = 2**16 - 3
MOST_FEATURES = 2**14 - 1  # a feature with missing values counts twice


@dataclass(frozen=True, eq=False)
class Binned:
    """States as bin numbers between cut points.

    A feature with missing values is stored twice: once with missing values as the last bin, once as the first. Splits
    therefore need no special case for them.
    """

    codes: NDArray[np.uint16]  # (n, V)
    n_bins: Ints  # (V,)
    feature: Ints  # (V,) of the states
    missing_first: Bools  # (V,)
    has_missing: Bools  # (d,)
    thinned: Bools  # (d,)
    divisible: list[Bools]  # (n_bins,) of each of V, whether cuts in a bin were left out
    missing_apart: bool = True  # whether a cut may separate missing values from all others

    @classmethod
    def of(cls, states: Floats, most_cuts: int, n_jobs: int = 1, *, missing_apart: bool = True) -> Binned:
        """Return the bins of ``states`` (n, d) with up to ``most_cuts`` cut points per feature.

        Unless they may be separated from all others, missing values share the last bin, and in the second copy the first one.
        """
        columns = in_threads(lambda column: _bins(np.ascontiguousarray(column), most_cuts), list(states.T), n_jobs)
        has_missing = np.array([missing.any() for _, missing, _ in columns])
        if len(columns) + has_missing.sum() > MOST_FEATURES:
            raise InvalidInputError(
                f"optimal trees take at most {MOST_FEATURES} features, counting those with missing values twice; "
                f"got {len(columns) + has_missing.sum()}. Select fewer features."
            )
        codes: list[NDArray[np.uint16]] = []
        n_bins, feature, first, divisible = [], [], [], []
        for j, (code, missing, several) in enumerate(columns):
            n = len(several)
            own = int(missing_apart and has_missing[j])  # bins of missing values
            last, first_bin, shift = np.uint16(n - 1 + own), np.uint16(0), np.uint16(own)
            both = (
                [np.where(missing, last, code), np.where(missing, first_bin, code + shift)]
                if has_missing[j]
                else [code]
            )
            codes += both
            n_bins += [n + own] * len(both)
            feature += [j] * len(both)
            first += [False, True][: len(both)]
            whole = np.zeros(own, dtype=bool)
            divisible += [np.concatenate([several, whole]), np.concatenate([whole, several])][: len(both)]
        return cls(
            np.stack(codes, axis=1),
            np.array(n_bins),
            np.array(feature),
            np.array(first),
            has_missing,
            np.array([several.any() for *_, several in columns]),
            divisible,
            missing_apart,
        )

    @cached_property
    def as_states(self) -> Floats:
        """The bin numbers as states (n, d), for growing other trees; missing values stay missing if they have their own bins."""
        once = ~self.missing_first
        numbers = self.codes[:, once].astype(np.float64)
        if not self.missing_apart:
            return numbers
        missing = self.has_missing & (numbers == (self.n_bins[once] - 1))
        return np.where(missing, np.nan, numbers)

    def goes_left(self, v: int, t: int, rows: NDArray[Any]) -> Bools:
        """Return which of ``rows`` a split sends left."""
        return self.codes[rows, v] <= t


def _bins(column: Floats, most_cuts: int) -> tuple[NDArray[np.uint16], Bools, Bools]:
    """Return the bin of each value (n,), the missing values, and whether cuts within each bin were left out."""
    order = np.argsort(column)
    ordered, missing = column[order], np.isnan(column)
    n_known = len(column) - int(missing.sum())  # NaN sorts to the end
    known = ordered[:n_known]
    every = ends = np.flatnonzero(known[1:] != known[:-1]) + 1  # number of values below each cut
    if len(every) > most_cuts:
        quantiles = (np.arange(1, most_cuts + 1) * n_known) // (most_cuts + 1)
        places = np.searchsorted(every, quantiles)  # a cut comes after all equal values
        ends = np.unique(every[places[places < len(every)]])
    codes = np.empty(len(column), dtype=np.uint16)
    codes[order] = np.repeat(
        np.arange(len(ends) + 1, dtype=np.uint16), np.diff(np.concatenate([[0], ends, [len(column)]]))
    )
    places = np.concatenate([[-1], np.searchsorted(every, ends), [len(every)]])
    return codes, missing, np.diff(places) > 1
