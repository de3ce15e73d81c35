"""Runs: learn a policy from settings and a table, into a folder that survives interruptions.

settings.toml      everything that the run depends on; `capi fit --settings` repeats the run
history.csv        loss, changed decisions, estimated value and effective rows of each iteration, scores, and the one that was kept
policy.capi        the policy, once the run is finished
values.zip         the action values behind the policy, at each decision of the table
secret.json        the learning episodes under a random key, by which `capi evaluate` recognises them; not for others
evaluation.json    the estimated value of the policy, from the last `capi evaluate`
diagnosis.json     where the loss comes from and how stable the rules are, from the last `capi diagnose`
certificate.json   bounds on the loss of the last improvement, from the last `capi certify`
table.sha256       until the run is finished: the digest of the table when the run began
checkpoint.zip     until the run is finished: the last saved iteration, from which the run resumes to the same bytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.runs.certify import certify_run as certify_run
    from capi.runs.column_profiles import sounds_like_a_cost as sounds_like_a_cost
    from capi.runs.compare import compare_runs as compare_runs
    from capi.runs.diagnose import diagnose_run as diagnose_run
    from capi.runs.evaluate import evaluate_run as evaluate_run
    from capi.runs.fit import RunResult as RunResult
    from capi.runs.fit import fit_run as fit_run
    from capi.runs.fit import load_run as load_run
    from capi.runs.fit import state_of_interrupted as state_of_interrupted
    from capi.runs.guess import GuessedRoles as GuessedRoles
    from capi.runs.guess import guess_roles as guess_roles
    from capi.runs.new_settings import settings_text as settings_text
    from capi.runs.new_settings import write_settings as write_settings
    from capi.runs.predict import policy_of as policy_of
    from capi.runs.predict import predict_table as predict_table
    from capi.runs.predict import write_result as write_result
    from capi.runs.settings import RunSettings as RunSettings
    from capi.runs.settings_file import NO_LIMIT as NO_LIMIT
    from capi.runs.settings_file import ROLES as ROLES
    from capi.runs.table import is_large as is_large
    from capi.runs.table import n_rows_of as n_rows_of
    from capi.runs.table import read_all as read_all
    from capi.runs.table import read_decisions as read_decisions
    from capi.runs.warm_up import parts_to_compile as parts_to_compile
    from capi.runs.warm_up import stored_machine_code as stored_machine_code
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "GuessedRoles": "guess",
            "NO_LIMIT": "settings_file",
            "ROLES": "settings_file",
            "RunResult": "fit",
            "RunSettings": "settings",
            "certify_run": "certify",
            "compare_runs": "compare",
            "diagnose_run": "diagnose",
            "evaluate_run": "evaluate",
            "fit_run": "fit",
            "guess_roles": "guess",
            "load_run": "fit",
            "parts_to_compile": "warm_up",
            "policy_of": "predict",
            "predict_table": "predict",
            "is_large": "table",
            "n_rows_of": "table",
            "read_decisions": "table",
            "read_all": "table",
            "settings_text": "new_settings",
            "sounds_like_a_cost": "column_profiles",
            "state_of_interrupted": "fit",
            "stored_machine_code": "warm_up",
            "write_result": "predict",
            "write_settings": "new_settings",
        },
    )
