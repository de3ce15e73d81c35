"""capi: decision policies from a fixed batch of logged decisions.

Classification-based approximate policy iteration: estimate the action values of the current policy with
any evaluator, choose in a policy space the policy that loses the least value, repeat.

Names are imported when they are first used, so ``import capi`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capi.data.transitions import Transitions
    from capi.files.policy_file import load_policy, save_policy
    from capi.finite.mdp import FiniteMDP
    from capi.learning import CAPI

__version__ = "0.1.0"

__all__ = ["CAPI", "FiniteMDP", "Transitions", "load_policy", "save_policy"]

_HOMES = {
    "CAPI": "capi.learning",
    "FiniteMDP": "capi.finite.mdp",
    "Transitions": "capi.data.transitions",
    "load_policy": "capi.files.policy_file",
    "save_policy": "capi.files.policy_file",
}
_PARTS = {
    "baselines",
    "domains",
    "errors",
    "evaluators",
    "experiments",
    "files",
    "loss",
    "policies",
    "policy_spaces",
    "testing",
    "trees",
    "types",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _PARTS:
        return import_module(f"capi.{name}")
    raise AttributeError(f"module 'capi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PARTS})
