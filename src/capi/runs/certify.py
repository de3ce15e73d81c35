"""Certify the learner of a finished run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from capi.files.atomic import write_text
from capi.runs.diagnose import batch_of_run
from capi.runs.fit import POLICY, digest, load_run
from capi.theory import Certificate, certificate

CERTIFICATE = "certificate.json"
FORMAT, VERSION = "capi certificate", 1


def certify_run(run: str | Path, **settings: Any) -> Certificate:
    """Bound the loss of the last improvement of a run's learner, and save the bounds in the run folder as ``certificate.json``.

    Parameters
    ----------
    run : str or Path
        Folder of a finished run; its table must still be where the run read it.
    settings : further keywords
        As in `capi.theory.certificate`.
    """
    result = load_run(run)
    found = certificate(result.settings.learner(), batch_of_run(result), **settings)
    record = {"format": FORMAT, "version": VERSION, **found.to_dict(), "policy": digest(result.folder / POLICY)}
    write_text(result.folder / CERTIFICATE, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return found
