"""Algorithms to compare with, as settings of the same loop wherever that is what they are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from capi.baselines.finite import ModifiedPolicyIteration, PolicyIteration, ValueIteration
from capi.baselines.rollouts import DPI, DPICritic

if TYPE_CHECKING:
    from capi.baselines.fitted import FittedQIteration

__all__ = ["DPI", "DPICritic", "FittedQIteration", "ModifiedPolicyIteration", "PolicyIteration", "ValueIteration"]

_COMPILED = {"FittedQIteration": "capi.baselines.fitted"}


def __getattr__(name: str) -> Any:
    """Import what needs the compiler (numba) when it is first used."""
    if name in _COMPILED:
        return getattr(import_module(_COMPILED[name]), name)
    raise AttributeError(f"module 'capi.baselines' has no attribute {name!r}")
