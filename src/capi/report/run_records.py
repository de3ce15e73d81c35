"""Records that commands save in a run's folder beside its policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from capi.errors import InvalidInputError
from capi.runs.fit import POLICY, digest


def read_run_record(folder: Path, name: str, kind: str, command: str) -> dict[str, Any] | None:
    """Return the record of a format ``kind`` that ``command`` saved under ``name``, or None if there is none, or one of another policy."""
    path = folder / name
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}. Run {command} again, or delete it.") from error
    if not isinstance(found, dict) or found.get("format") != kind:
        raise InvalidInputError(f"{path} must be a file written by {command}. Run it again, or delete the file.")
    return found if found.get("policy") == digest(folder / POLICY) else None
