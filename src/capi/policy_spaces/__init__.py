"""(states, action values) -> policy: the sets of policies to choose from."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from capi.policy_spaces.constrained import Constrained
from capi.policy_spaces.partition import Partition
from capi.policy_spaces.thresholds import Thresholds
from capi.policy_spaces.unrestricted import Unrestricted

if TYPE_CHECKING:
    from capi.policy_spaces.classifier import Classifier
    from capi.policy_spaces.linear.kernel import KernelPolicies
    from capi.policy_spaces.linear.linear import Linear
    from capi.policy_spaces.neighbors.local_averages import LocalAverages
    from capi.policy_spaces.neighbors.neighbors import Neighbors
    from capi.policy_spaces.trees.forests import Forests
    from capi.policy_spaces.trees.greedy import Trees
    from capi.policy_spaces.trees.optimal import OptimalTrees

__all__ = [
    "Classifier",
    "Constrained",
    "Forests",
    "KernelPolicies",
    "Linear",
    "LocalAverages",
    "Neighbors",
    "OptimalTrees",
    "Partition",
    "Thresholds",
    "Trees",
    "Unrestricted",
]

_LAZY = {
    "Classifier": "classifier",
    "Forests": "trees.forests",
    "KernelPolicies": "linear.kernel",
    "Linear": "linear.linear",
    "LocalAverages": "neighbors.local_averages",
    "Neighbors": "neighbors.neighbors",
    "OptimalTrees": "trees.optimal",
    "Trees": "trees.greedy",
}


def __getattr__(name: str) -> Any:
    """Import what needs the compiler (numba) or scikit-learn when it is first used."""
    if name in _LAZY:
        return getattr(import_module(f"capi.policy_spaces.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'capi.policy_spaces' has no attribute {name!r}")
