"""(states, action values) -> policy: the sets of policies to choose from."""

from capi.policy_spaces.partition import Partition
from capi.policy_spaces.thresholds import Thresholds
from capi.policy_spaces.unrestricted import Unrestricted

__all__ = ["Partition", "Thresholds", "Unrestricted"]
