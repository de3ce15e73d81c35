"""The words of the table: what the columns of a state and the actions are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi.errors import InvalidInput
from capi.validation import Ints, as_names


@dataclass(frozen=True, slots=True)
class Schema:
    """Names of the state's features and labels of the actions, in the order of their codes.

    Parameters
    ----------
    feature_names : tuple of str, d of them
    action_labels : tuple, A of them
        Anything that can be told apart: ``("none", "RTI")``, ``(0.0, 2.5)``. Action ``a`` of the
        library is ``action_labels[a]`` of the user.
    """

    feature_names: tuple[str, ...]
    action_labels: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        n_features: int,
        n_actions: int,
        feature_names: Sequence[str] | None = None,
        action_labels: Sequence[Any] | None = None,
    ) -> Schema:
        """Return a checked schema; by default features are x0, x1, ... and actions 0, 1, ..."""
        features = tuple(f"x{j}" for j in range(n_features)) if feature_names is None else feature_names
        labels = tuple(range(n_actions)) if action_labels is None else action_labels
        names = as_names(features, "feature_names", n_features)
        for j, name in enumerate(names):
            if not isinstance(name, str):
                raise InvalidInput(f"feature_names must be strings; feature_names[{j}] = {name!r}.")
        return cls(names, as_names(labels, "action_labels", n_actions))

    def labels_of(self, actions: Ints) -> NDArray[Any]:
        """Return the user's labels of ``actions`` (n,)."""
        if all(type(label) is type(self.action_labels[0]) for label in self.action_labels):
            labels = np.array(self.action_labels)
            if labels.ndim == 1:
                return labels[actions]
        labels = np.empty(len(self.action_labels), dtype=object)
        labels[:] = self.action_labels
        return labels[actions]
