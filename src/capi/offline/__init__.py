"""Off-policy evaluation: the value of a policy estimated from logged data alone, with intervals, caveats and a comparison to the logged behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.offline.estimate import Estimate as Estimate
    from capi.offline.evaluation import compare as compare
    from capi.offline.evaluation import cross_evaluate as cross_evaluate
    from capi.offline.evaluation import evaluate as evaluate
    from capi.offline.evidence import METHODS as METHODS
    from capi.offline.evidence import BestAction as BestAction
    from capi.offline.evidence import Comparison as Comparison
    from capi.offline.evidence import Evidence as Evidence
    from capi.offline.score import fitted_value as fitted_value
    from capi.offline.sensitivity import Sensitivity as Sensitivity
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "METHODS": "evidence",
            "BestAction": "evidence",
            "Comparison": "evidence",
            "Estimate": "estimate",
            "Evidence": "evidence",
            "Sensitivity": "sensitivity",
            "compare": "evaluation",
            "cross_evaluate": "evaluation",
            "evaluate": "evaluation",
            "fitted_value": "score",
        },
    )
