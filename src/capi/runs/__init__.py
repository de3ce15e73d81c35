"""Runs: from settings and a table to a folder with a policy, which survives interruptions.

settings.toml      everything that the run depends on; `capi fit --settings` repeats it
history.csv        loss, changed decisions and estimated value of each iteration
policy.capi        the policy, when the run is finished
values.zip         the action values from which it was chosen, at each decision of the table
evaluation.json    what it is worth, by the last `capi evaluate`
checkpoint.zip     while it is not: the last iteration that was kept, from which the run goes on to the same bytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.runs.evaluate import evaluate_run as evaluate_run
    from capi.runs.fit import RunResult as RunResult
    from capi.runs.fit import fit_run as fit_run
    from capi.runs.fit import load_run as load_run
    from capi.runs.predict import policy_of as policy_of
    from capi.runs.predict import predict_table as predict_table
    from capi.runs.predict import write_result as write_result
    from capi.runs.settings import RunSettings as RunSettings
    from capi.runs.table import ROLES as ROLES
    from capi.runs.table import read_decisions as read_decisions
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "ROLES": "table",
            "RunResult": "fit",
            "RunSettings": "settings",
            "evaluate_run": "evaluate",
            "fit_run": "fit",
            "load_run": "fit",
            "policy_of": "predict",
            "predict_table": "predict",
            "read_decisions": "table",
            "write_result": "predict",
        },
    )
