"""Policies that need no learning, and the base classes of all policies."""

from capi.policies.base import Described, Deterministic, Training, decided, described
from capi.policies.behaviour import ClassifiedBehaviour, ClonedBehaviour, cloned
from capi.policies.composite import EpsilonGreedy, Mixture, NonStationary, changes_with_time
from capi.policies.decisions import (
    Decisions,
    check_masks_given,
    first_allowed,
    first_in_mask,
    in_blocks,
    one_hot,
    permitted,
    value_of,
)
from capi.policies.simple import Constant, Greedy, Tabular, Uniform

__all__ = [
    "ClassifiedBehaviour",
    "ClonedBehaviour",
    "Constant",
    "Decisions",
    "Described",
    "Deterministic",
    "EpsilonGreedy",
    "Greedy",
    "Mixture",
    "NonStationary",
    "Tabular",
    "Training",
    "Uniform",
    "changes_with_time",
    "check_masks_given",
    "cloned",
    "decided",
    "described",
    "first_allowed",
    "first_in_mask",
    "in_blocks",
    "one_hot",
    "permitted",
    "value_of",
]
