"""The values of finished fits, kept in a file so that an interrupted selection continues."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
        digest = hashlib.sha256(batch.episode_digests().tobytes())
        digest.update(json.dumps([discount, seed, versions()], sort_keys=True).encode())
        memory = cls(digest.hexdigest(), result_folder(folder) / NAME)
        if memory.path is not None and memory.path.is_file():
            try:
                found = json.loads(memory.path.read_text(encoding="utf-8"))
                origin, memory.results = found["origin"], dict(found["results"])
            except (OSError, ValueError, KeyError, TypeError) as error:
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
