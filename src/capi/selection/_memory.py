"""The values of finished fits, kept in a file so that an interrupted selection continues."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.versions import versions
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.files.atomic import result_folder, write_text

NAME = "selection-fits.json"


@dataclass
class Memory:
    """Results by candidate and fit; with a path, every new one is written at once."""

    origin: str = ""  # fingerprint of the batch and the settings
    path: Path | None = None
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: str | Path | None, batch: Transitions, discount: float, seed: int) -> Memory:
        """Return the memory in a folder; one of another batch, of other settings or versions is refused."""
        if folder is None:
            return cls()
        digest = hashlib.sha256()
        for part in fields(batch):
            value = getattr(batch, part.name)
            if isinstance(value, np.ndarray):
                digest.update(f"{part.name} {value.dtype} {value.shape}".encode())
                digest.update(np.ascontiguousarray(value).tobytes())
        digest.update(json.dumps([discount, seed, versions()], sort_keys=True).encode())
        memory = cls(digest.hexdigest(), result_folder(folder) / NAME)
        if memory.path is not None and memory.path.is_file():
            try:
                found = json.loads(memory.path.read_text(encoding="utf-8"))
                origin, memory.results = found["origin"], _checked(found["results"])
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InvalidInputError(f"{memory.path} cannot be read: {error}. Delete it to start again.") from error
            if origin != memory.origin:
                raise InvalidInputError(
                    f"{memory.path} belongs to another batch, discount, seed or version. Choose another folder, or delete it."
                )
        return memory

    def get(self, candidate: str, fit: str) -> dict[str, Any] | None:
        """Return the result of a fit, if it is known."""
        return self.results.get(candidate, {}).get(fit)

    def put(self, candidate: str, fit: str, result: dict[str, Any]) -> None:
        """Remember the result of a fit."""
        self.results.setdefault(candidate, {})[fit] = result
        if self.path is not None:
            write_text(self.path, json.dumps({"origin": self.origin, "results": self.results}))


def _checked(results: Any) -> dict[str, dict[str, Any]]:
    """Return the results of a file, or raise an error if they do not have the form that `put` gives them."""
    for fits in dict(results).values():
        for result in dict(fits).values():
            failed = isinstance(result.get("failed"), str)
            numbers = [result.get(name) for name in ("value", "left")]
            influences = result.get("of_episodes")
            fine = all(isinstance(v, float | int) for v in numbers) and isinstance(influences, list)
            if not isinstance(result.get("seconds"), float | int) or not (failed or fine):
                raise ValueError("a fit has no value")
            if fine:
                np.asarray(influences, dtype=np.float64)
    return {str(name): dict(fits) for name, fits in results.items()}
