"""Algorithms to compare with, as settings of the same loop wherever that is what they are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from capi.baselines.finite import ModifiedPolicyIteration, PolicyIteration, ValueIteration
from capi.baselines.rollouts import DPI, DPICritic

if TYPE_CHECKING:
    from capi.baselines.fitted import RFQI, FittedQIteration
    from capi.baselines.linear import LSPI

__all__ = [
    "DPI",
    "LSPI",
    "RFQI",
    "DPICritic",
    "FittedQIteration",
    "ModifiedPolicyIteration",
    "PolicyIteration",
    "ValueIteration",
]

_LAZY = {"FittedQIteration": "fitted", "RFQI": "fitted", "LSPI": "linear"}


def __getattr__(name: str) -> Any:
    """Import what needs the compiler (numba) or scikit-learn when it is first used."""
    if name in _LAZY:
        return getattr(import_module(f"capi.baselines.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'capi.baselines' has no attribute {name!r}")
