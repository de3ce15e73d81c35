"""Features as evaluators use them: checked, fitted to a batch, and returned as tables; small tables are cached."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from capi._utils.array_cache import Forgetful, Remembered
from capi._utils.validation import Floats, Ints, as_array, as_states
from capi.errors import InvalidInputError
from capi.features.bases import RKHS

MOST_KEPT = 2**23  # entries of a feature table that is cached for the next iteration: 64 MiB
ROWS_AT_ONCE = 8192
NUMBERS_AT_ONCE = 2**25  # entries of a block of rows: 256 MiB, however many features a file claims

Table: TypeAlias = Floats | sp.csr_array  # (n, p)
Features: TypeAlias = Any  # a callable states -> table, or a transformer with fit and transform


@dataclass(frozen=True, eq=False)
class FittedFeatures:
    """Fitted features: states -> a checked table. Small tables of fixed states are cached."""

    transform: Callable[[Floats], Any]
    n_features: int  # of a state
    n_columns: int  # of the table
    sparse: bool
    known: Remembered[Table] = field(default_factory=Remembered, repr=False)

    def __call__(self, states: Floats) -> Table:
        """Return the features of ``states`` (n, d) -> (n, p)."""
        x = as_states(states, n_features=self.n_features)
        table = self._kept(x) if self.keeps(x) else self.table_of(x)
        if not np.isfinite(table.data if self.sparse else table).all():
            raise InvalidInputError("features(states) must be finite.")
        return table

    def of_rows(self, states: Floats, rows: Ints) -> Table:
        """Return the features of some ``rows`` of a batch's ``states``, from the cached table if it is cached.

        Whether they are finite is not checked here: sums over them reveal it.
        """
        if self.keeps(states):
            return self._kept(states)[rows]
        return self.table_of(np.take(states, rows, axis=0))

    def keeps(self, states: Floats) -> bool:
        """Return whether the table of ``states`` (n, d) is cached: it is small enough, and this is not a worker's copy, which caches nothing."""
        return not isinstance(self.known, Forgetful) and len(states) * self.n_columns <= MOST_KEPT

    def _kept(self, x: Floats) -> Table:
        return self.known.of(x, lambda: self.table_of(x))

    def table_of(self, x: Floats) -> Table:
        """Return the features of ``x`` (n, d), computed anew, and not checked to be finite."""
        table = _as_table(self.transform(x), len(x), sparse=self.sparse)
        if table.shape[1] != self.n_columns:
            raise InvalidInputError(
                f"features must have the same number of columns for all states; they had {self.n_columns} and now have {table.shape[1]}."
            )
        return table

    def product(self, states: Floats, weights: Floats) -> Floats:
        """Return features times ``weights`` (p, A), in blocks of rows unless they are cached; (n, d) -> (n, A)."""
        x = as_states(states, n_features=self.n_features)
        if self.keeps(x):
            return np.asarray(self(x) @ weights)
        size = max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // self.n_columns))
        return np.concatenate([np.asarray(self(x[i : i + size]) @ weights) for i in range(0, len(x), size)])


def check_features(features: Any, name: str = "features") -> None:
    """Refuse features that are neither a function nor a transformer."""
    if isinstance(features, type) or not (callable(features) or _is_transformer(features)):
        hint = f" Did you mean {features.__name__}()?" if isinstance(features, type) else ""
        raise InvalidInputError(
            f"{name} must be a function from states (n, d) to (n, p), or have fit and transform; got {features!r}.{hint}"
        )


def check_features_or_rkhs(features: Any, name: str = "features") -> None:
    """Refuse values that are neither features nor `RKHS`."""
    if not isinstance(features, RKHS):
        check_features(features, name)


def fitted_features(features: Features, states: Floats) -> FittedFeatures:
    """Return ``features`` ready for use; a transformer is copied and fitted to ``states`` (n, d)."""
    check_features(features)
    transform = _copied(features).fit(states).transform if _is_transformer(features) else features
    first = transform(states[:1])
    sparse = sp.issparse(first)
    return FittedFeatures(transform, states.shape[1], _as_table(first, 1, sparse=sparse).shape[1], sparse)


def kept_settings(features: Features) -> Features:
    """Return a copy of the current settings, for `same_features` later: a transformer may be changed."""
    return _copied(features) if _is_transformer(features) else features


def same_features(first: Features, second: Features) -> bool:
    """Whether two features have the same settings: transformers of one type with equal parameters, or the same function."""
    if not _is_transformer(first) or not _is_transformer(second):
        return first is second
    if not hasattr(first, "get_params") or type(first) is not type(second):
        return False
    one, other = (repr(sorted(f.get_params().items(), key=lambda item: item[0])) for f in (first, second))
    return one == other


def same_fitted(first: FittedFeatures, second: FittedFeatures) -> bool:
    """Whether two fitted features compute the same: one transform, or transforms with equal pickles, such as two from one file."""
    if first.transform is second.transform:
        return True
    if (first.n_features, first.n_columns, first.sparse) != (second.n_features, second.n_columns, second.sparse):
        return False
    try:
        return pickle.dumps(first.transform) == pickle.dumps(second.transform)
    except Exception:  # what cannot be pickled did not come from a file
        return False


def _copied(transformer: Any) -> Any:
    return clone(transformer) if hasattr(transformer, "get_params") else deepcopy(transformer)


def _is_transformer(features: Any) -> bool:
    return hasattr(features, "fit") and hasattr(features, "transform")


def _as_table(value: Any, n: int, *, sparse: bool) -> Table:
    """Return the result of features as a checked table of floats (n, p)."""
    if sparse:
        table = sp.csr_array(value, dtype=np.float64)
    else:
        table = as_array(value.toarray() if sp.issparse(value) else value, "features(states)")
        if table.ndim != 2 or table.dtype.kind not in "fiub":
            raise InvalidInputError(
                f"features(states) must be numbers of shape ({n}, p); got {table.dtype} {table.shape}."
            )
        table = table.astype(np.float64, copy=False)
    if table.shape[0] != n or table.shape[1] == 0:
        raise InvalidInputError(f"features(states) must have shape ({n}, p), one row per state; got {table.shape}.")
    return table
