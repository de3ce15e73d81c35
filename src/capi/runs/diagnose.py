"""Diagnose the learner of a finished run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capi.data.table_files import is_there
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.files.atomic import write_text
from capi.learning.capi import CAPI
from capi.runs.fit import POLICY, RunResult, digest, load_run
from capi.runs.secret import read_secret
from capi.selection import Diagnosis, diagnose

DIAGNOSIS = "diagnosis.json"
FORMAT, VERSION = "capi diagnosis", 1


def diagnose_run(
    run: str | Path,
    *,
    shown: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    **settings: Any,
) -> Diagnosis:
    """Say where the loss of a run's learner comes from, and save it in the run folder as ``diagnosis.json``.

    Parameters
    ----------
    run : str or Path
        Folder of a finished run; its table must still be where the run read it.
    shown : callable
        Wraps the refits, for a progress bar.
    settings : further keywords
        As in `capi.selection.diagnose`.
    """
    result = load_run(run)
    batch = batch_of_run(result)
    found = diagnose(learner_of_run(result, batch), batch, shown=shown, **settings)
    record = {"format": FORMAT, "version": VERSION, **found.to_dict(), "policy": digest(result.folder / POLICY)}
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(result.folder / DIAGNOSIS, text + "\n")
    return found


def batch_of_run(result: RunResult) -> Transitions:
    """Return the decisions that the run learned from; refuse a table that is gone or has changed."""
    table, secret = result.settings.table, read_secret(result.folder)
    if not is_there(table):
        raise InvalidInputError(f"the table of the run, {table}, does not exist. Restore it, or fit again.")
    if secret is not None and digest(table) != secret.table:
        raise InvalidInputError(f"{table} has changed since the policy was learned. Restore it, or fit again.")
    return result.batch()


def learner_of_run(result: RunResult, batch: Transitions) -> CAPI:
    """Return the learner of a run, fitted again, because the run's folder does not hold its trees."""
    learner = result.settings.learner().fit(batch)
    same = np.mean(learner.policy_.act(batch.states, batch.allowed) == result.policy.act(batch.states, batch.allowed))
    if same < 1:
        raise InvalidInputError(
            f"the settings of {result.folder} must give its policy again; {100 * (1 - same):.2g} % of its decisions are others, perhaps because "
            "other versions of the libraries made it. Fit again, and diagnose that run."
        )
    return learner
