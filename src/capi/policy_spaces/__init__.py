"""Policy spaces: the sets of policies from which (states, action values) select one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.policy_spaces.classifier import Classifier as Classifier
    from capi.policy_spaces.constrained import Constrained as Constrained
    from capi.policy_spaces.linear.kernel import KernelPolicies as KernelPolicies
    from capi.policy_spaces.linear.linear import Linear as Linear
    from capi.policy_spaces.neighbors.local_averages import LocalAverages as LocalAverages
    from capi.policy_spaces.neighbors.neighbors import Neighbors as Neighbors
    from capi.policy_spaces.partition import Partition as Partition
    from capi.policy_spaces.reweighted import Reweighted as Reweighted
    from capi.policy_spaces.thresholds import Thresholds as Thresholds
    from capi.policy_spaces.trees.forests import Forests as Forests
    from capi.policy_spaces.trees.greedy import Trees as Trees
    from capi.policy_spaces.trees.optimal import OptimalTrees as OptimalTrees
    from capi.policy_spaces.unrestricted import Unrestricted as Unrestricted
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Classifier": "classifier",
            "Constrained": "constrained",
            "Forests": "trees.forests",
            "KernelPolicies": "linear.kernel",
            "Linear": "linear.linear",
            "LocalAverages": "neighbors.local_averages",
            "Neighbors": "neighbors.neighbors",
            "OptimalTrees": "trees.optimal",
            "Partition": "partition",
            "Reweighted": "reweighted",
            "Thresholds": "thresholds",
            "Trees": "trees.greedy",
            "Unrestricted": "unrestricted",
        },
    )
