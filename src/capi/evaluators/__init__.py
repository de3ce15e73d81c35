"""(policy, data) -> Q: the ways to estimate the action values of a policy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from capi.evaluators.exact import Exact
from capi.evaluators.rollouts import Rollouts, RolloutsWithCritic

if TYPE_CHECKING:
    from capi.evaluators.bellman_residual import BellmanResidual
    from capi.evaluators.fitted_q import FittedQ
    from capi.evaluators.kernel_fitted_q import KernelFittedQ
    from capi.evaluators.lasso_td import LassoTD
    from capi.evaluators.lstd import LSTDQ
    from capi.evaluators.td import GTD, GTD2, TD, TDC

__all__ = [
    "GTD",
    "GTD2",
    "LSTDQ",
    "TD",
    "TDC",
    "BellmanResidual",
    "Exact",
    "FittedQ",
    "KernelFittedQ",
    "LassoTD",
    "Rollouts",
    "RolloutsWithCritic",
]

_LAZY = {
    "FittedQ": "fitted_q",
    "KernelFittedQ": "kernel_fitted_q",
    "LassoTD": "lasso_td",
    "LSTDQ": "lstd",
    "BellmanResidual": "bellman_residual",
    **dict.fromkeys(("TD", "GTD", "GTD2", "TDC"), "td"),
}


def __getattr__(name: str) -> Any:
    """Import what needs the compiler (numba) or scikit-learn when it is first used."""
    if name in _LAZY:
        return getattr(import_module(f"capi.evaluators.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'capi.evaluators' has no attribute {name!r}")
