"""Diagnose the learner of a finished run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.executors import is_dask_client
from capi.data.table_files import is_there
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.files.atomic import write_text
from capi.learning.capi import CAPI
from capi.policies import described
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
    executor = settings.get("executor")
    learner = learner_of_run(result, batch, executor if is_dask_client(executor) else None)
    found = diagnose(learner, batch, shown=shown, **settings)
    n_rows = getattr(getattr(result.policy, "training", None), "n_rows", None) or 0
    if n_rows > len(batch):
        note = f"the run learned from {n_rows:,} rows in parts; the refits and all numbers here are of its sample of {len(batch):,} rows."
        found = replace(found, notes=(note, *found.notes))
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


def learner_of_run(result: RunResult, batch: Transitions, client: Any = None) -> CAPI:
    """Return the learner of a run, fitted again, because the run's folder does not hold its trees.

    A run that learned from parts is fitted again from them, by the Dask ``client`` if there is one; ``batch`` is then its sample.
    """
    learner, parts = result.settings.learner(), result.settings.partitions(batch.schema, client)
    learner.fit(batch if parts is None else parts)
    same = np.mean(learner.policy_.act(batch.states, batch.allowed) == result.policy.act(batch.states, batch.allowed))
    if same < 1:
        raise InvalidInputError(
            f"the settings of {result.folder} must give its policy again; {100 * (1 - same):.2g} % of its decisions are others, perhaps because "
            "other versions of the libraries made it. Fit again, and diagnose that run."
        )
    policy: Any = learner.policy_
    learner.policy_ = described(policy, policy.schema, replace(policy.training, n_rows=len(batch)))
    return learner
