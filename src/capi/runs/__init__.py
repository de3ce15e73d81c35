"""Runs: from settings and a table to a folder with a policy, which survives interruptions.

settings.toml      everything that the run depends on; `capi fit --settings` repeats it
history.csv        loss, changed decisions and seconds of each iteration
policy.capi        the policy, when the run is finished
checkpoint.zip     while it is not: the last iteration that was kept, from which the run goes on to the same bytes
"""

from capi.runs.running import RunResult, fit_run, load_run
from capi.runs.settings import RunSettings

__all__ = ["RunResult", "RunSettings", "fit_run", "load_run"]
