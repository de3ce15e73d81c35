"""Algorithms to compare with, as settings of the same loop wherever that is what they are."""

from capi.baselines.finite import ModifiedPolicyIteration, PolicyIteration, ValueIteration

__all__ = ["ModifiedPolicyIteration", "PolicyIteration", "ValueIteration"]
