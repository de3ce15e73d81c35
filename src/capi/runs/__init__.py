"""Runs: from settings and a table to a folder with a policy, which survives interruptions.

settings.toml      everything that the run depends on; `capi fit --settings` repeats it
history.csv        loss, changed decisions and estimated value of each iteration
policy.capi        the policy, when the run is finished
values.zip         the action values from which it was chosen, at each decision of the table
evaluation.json    what it is worth, by the last `capi evaluate`
checkpoint.zip     while it is not: the last iteration that was kept, from which the run goes on to the same bytes
"""

from capi.runs.evaluate import evaluate_run
from capi.runs.fit import RunResult, fit_run, load_run
from capi.runs.settings import RunSettings

__all__ = ["RunResult", "RunSettings", "evaluate_run", "fit_run", "load_run"]
