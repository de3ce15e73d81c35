"""(policy, data) -> Q: the ways to estimate the action values of a policy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from capi.evaluators.exact import Exact
from capi.evaluators.rollouts import Rollouts, RolloutsWithCritic

if TYPE_CHECKING:
    from capi.evaluators.fitted import FittedQ

__all__ = ["Exact", "FittedQ", "Rollouts", "RolloutsWithCritic"]

_COMPILED = {"FittedQ": "capi.evaluators.fitted"}


def __getattr__(name: str) -> Any:
    """Import what needs the compiler (numba) when it is first used."""
    if name in _COMPILED:
        return getattr(import_module(_COMPILED[name]), name)
    raise AttributeError(f"module 'capi.evaluators' has no attribute {name!r}")
