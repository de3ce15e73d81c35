r"""Action values that are linear in features: :math:`Q(x, a) = w_a \cdot \varphi(x)`.

The feature vector of a pair, :math:`\phi(x, a)`, has the features of x in the block of a and zeros elsewhere. The next feature
vector averages over the policy, :math:`\phi'_i = \sum_a \pi(a | X'_i)\, \phi(X'_i, a)`, and is zero where the process
terminated. A time limit does not terminate the process: there the next state counts like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from capi._utils.validation import Floats, as_states
from capi.data.partitions import PartitionedTransitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import AnyBatch
from capi.features.tables import Features, FittedFeatures, fitted_features, same_features
from capi.types import QFunction


@dataclass(frozen=True, eq=False)
class LinearValues:
    """Q with one weight vector per action."""

    weights: Floats  # (A, p)
    features: FittedFeatures = field(repr=False)
    source: Any = field(default=None, repr=False)  # the features as given by the user
    origin: Any = field(default=None, repr=False)  # (batch, ...): reused by the next evaluation on it; never pickled

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.weights)

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A)."""
        x = as_states(states, n_features=self.features.n_features)
        return self.features.product(x, self.weights.T)

    def __getstate__(self) -> dict[str, Any]:
        """Return everything except the batch: sharing a policy must not share the data."""
        return {**self.__dict__, "origin": None}


def features_on(features: Features, t: AnyBatch, previous: QFunction | None) -> FittedFeatures:
    """Return ``features`` fitted to the states of a batch, or those of ``previous`` if it used the same batch."""
    known = known_on(features, t, previous)
    if known is not None:
        return known.features
    try:
        return fitted_features(features, t.states if t.weights is None else t.states[t.weights > 0])
    except InvalidInputError:
        if isinstance(t, PartitionedTransitions):
            t.check_complete("these features")
        raise


def known_on(features: Features, t: AnyBatch, previous: QFunction | None) -> LinearValues | None:
    """Return ``previous`` if it has the same features and the same batch, or None; if loaded from a file, it has no batch."""
    if not isinstance(previous, LinearValues) or not same_features(previous.source, features):
        return None
    if previous.n_actions != t.n_actions or previous.features.n_features != t.n_features:
        return None
    return previous if previous.origin is None or previous.origin[0] is t else None
