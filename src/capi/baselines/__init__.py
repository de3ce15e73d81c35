"""Algorithms to compare with, as settings of the same loop wherever that is what they are.

Policy iteration by plain classification, which counts every state alike whatever is lost in it, has no class of its own: it is
`CAPI` with the 0/1 loss. With all policies to choose from the loss makes no difference, since one policy is best in each state.
In a restricted space it does. Here one action must do for three states, and the two that hardly matter outvote the one that does:

>>> from capi import CAPI, FiniteMDP
>>> from capi.evaluators import Exact
>>> from capi.policy_spaces import Partition
>>> mdp = FiniteMDP(P=[[[1 / 3] * 3] * 3] * 2, R=[[1.0, 0.0], [1.0, 0.0], [0.0, 9.0]], discount=0.5)
>>> everywhere = Partition(lambda states: 0 * states[:, 0])
>>> for loss in ("gap", "zero-one"):
...     learner = CAPI(Exact(mdp), everywhere, discount=0.5, n_iterations=3, loss=loss).fit()
...     print(f"{loss}: loses {mdp.performance_loss(learner.policy_):.3f}")
gap: loses 1.333
zero-one: loses 6.000
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from capi.baselines.cpi import CPI
from capi.baselines.dpi import DPI, DPICritic
from capi.baselines.dynamic_programming import ModifiedPolicyIteration, PolicyIteration, ValueIteration
from capi.baselines.psdp import PSDP

if TYPE_CHECKING:
    from capi.baselines.fitted_q_iteration import RFQI, FittedQIteration
    from capi.baselines.lspi import LSPI

__all__ = [
    "CPI",
    "DPI",
    "LSPI",
    "PSDP",
    "RFQI",
    "DPICritic",
    "FittedQIteration",
    "ModifiedPolicyIteration",
    "PolicyIteration",
    "ValueIteration",
]

_LAZY = {"FittedQIteration": "fitted_q_iteration", "RFQI": "fitted_q_iteration", "LSPI": "lspi"}


def __getattr__(name: str) -> Any:
    """Import what needs the compiler (numba) or scikit-learn when it is first used."""
    if name in _LAZY:
        return getattr(import_module(f"capi.baselines.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'capi.baselines' has no attribute {name!r}")
