"""Policy evaluators, (policy, data) -> Q: estimates of the action values of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.evaluators.advantage_learning import AdvantageLearning as AdvantageLearning
    from capi.evaluators.bellman_residual import BellmanResidual as BellmanResidual
    from capi.evaluators.boosted_q import BoostedQ as BoostedQ
    from capi.evaluators.exact import Exact as Exact
    from capi.evaluators.fitted_q import FittedQ as FittedQ
    from capi.evaluators.kernel_fitted_q import KernelFittedQ as KernelFittedQ
    from capi.evaluators.lasso_td import LassoTD as LassoTD
    from capi.evaluators.lstd import LSTDQ as LSTDQ
    from capi.evaluators.pessimistic import Pessimistic as Pessimistic
    from capi.evaluators.rollouts import Rollouts as Rollouts
    from capi.evaluators.rollouts import RolloutsWithCritic as RolloutsWithCritic
    from capi.evaluators.td import GTD as GTD
    from capi.evaluators.td import GTD2 as GTD2
    from capi.evaluators.td import TD as TD
    from capi.evaluators.td import TDC as TDC
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "AdvantageLearning": "advantage_learning",
            "GTD": "td",
            "GTD2": "td",
            "LSTDQ": "lstd",
            "TD": "td",
            "TDC": "td",
            "BellmanResidual": "bellman_residual",
            "BoostedQ": "boosted_q",
            "Exact": "exact",
            "FittedQ": "fitted_q",
            "KernelFittedQ": "kernel_fitted_q",
            "LassoTD": "lasso_td",
            "Pessimistic": "pessimistic",
            "Rollouts": "rollouts",
            "RolloutsWithCritic": "rollouts",
        },
    )
