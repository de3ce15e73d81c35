"""Functions that were learned earlier as features, for dictionaries that grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin

from capi._utils.validation import Floats, as_q_values, as_states
from capi.errors import InvalidInputError

MOST_TABLES = 4  # of states whose values are remembered: learning and next states, of two actions


class ValueFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The action values of given Q-functions as features: one per function and action.

    Value pursuit iteration (Farahmand and Precup 2012) adds the values of earlier rounds to the dictionary from which a sparse
    regression selects: use them next to a fixed basis, in a ``FeatureUnion``, in the ``regressor`` of `capi.evaluators.FittedQ` as a
    function of the round (``examples/18_growing_dictionary.py``).

    Parameters
    ----------
    functions : sequence of QFunction
        May be empty: then there are no features.

    References
    ----------
    .. [1] A.-m. Farahmand, D. Precup, "Value pursuit iteration", NIPS 2012.

    Examples
    --------
    >>> from capi.finite.mdp import TabularQ
    >>> ValueFeatures([TabularQ(np.array([[1.0, 2.0], [3.0, 4.0]]))]).fit_transform([[1.0], [0.0]])
    array([[3., 4.],
           [1., 2.]])
    """

    def __init__(self, functions: Sequence[Any] = ()) -> None:
        self.functions = functions

    def __sklearn_clone__(self) -> ValueFeatures:
        """Return a copy that shares the functions, which never change."""
        return ValueFeatures(self.functions)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002
        """Check the functions on the states ``X`` (n, d)."""
        if not isinstance(self.functions, Sequence):
            raise InvalidInputError(
                f"functions must be a sequence of Q-functions; got a {type(self.functions).__name__}."
            )
        for i, function in enumerate(self.functions):
            if not callable(getattr(function, "values", None)):
                raise InvalidInputError(
                    f"functions must be Q-functions, with the method values; functions[{i}] is a {type(function).__name__}."
                )
        self.n_features_in_ = as_states(X).shape[1]
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return the values of all functions and actions; (n, d) -> (n, p)."""
        x = as_states(X)
        tables = [
            as_q_values(_values(q, x), n_rows=len(x), name=f"functions[{i}]") for i, q in enumerate(self.functions)
        ]
        return np.concatenate([np.empty((len(x), 0)), *tables], axis=1)


# Values of a round may be features of the next one, and so on. One regressor per action asks each of them once per action, so without memory the
# number of evaluations would double from round to round.
_known: WeakKeyDictionary[Any, list[tuple[Floats, Floats]]] = WeakKeyDictionary()


def _values(function: Any, states: Floats) -> Floats:
    """Return the values of a function, which never changes, and remember them for the last few tables of states."""
    try:
        kept = _known.setdefault(function, [])
    except TypeError:  # without weak references, or without a hash
        return function.values(states)
    for known, values in kept:
        if known.shape == states.shape and np.array_equal(known, states, equal_nan=True):
            return values
    values = function.values(states)
    kept.insert(0, (states.copy(), values))
    del kept[MOST_TABLES:]
    return values
