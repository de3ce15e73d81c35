"""What a run keeps to itself: the digest of its table, and its learning episodes under a random key.

The file ``secret.json`` lets ``capi evaluate`` recognise the learning episodes, even when their table is no longer there. It stays in the
folder of the run: whoever has it can test whether an episode of two or more rows was learned from. Its key is random, so it is the only file
in which two runs with the same settings differ.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from capi.data.learned_episodes import LearnedEpisodes, SealedEpisodes
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.files.atomic import encode_text
from capi.files.metadata import episodes_from_json, episodes_to_json

SECRET = "secret.json"
FORMAT = "capi secret"
ONLY_OWNER = 0o600


@dataclass(frozen=True)
class Secret:
    """The digest of the table that a run was learned from, and its episodes of two or more rows; None if there are none."""

    table: str
    episodes: SealedEpisodes | None


def write_secret(place: Path, batch: Transitions, table: str) -> None:
    """Write the secret of a run that learned from ``batch``; ``table`` is the digest of its table."""
    sealed = LearnedEpisodes.of(batch).sealed()
    record = {"format": FORMAT, "table": table, "episodes": None if sealed is None else episodes_to_json(sealed)}
    place.touch()
    place.chmod(ONLY_OWNER)
    encode_text(place, json.dumps(record, indent=1) + "\n")


def read_secret(folder: Path) -> Secret | None:
    """Return the secret of a run, or None if its folder has none, as after deleting it."""
    path = folder / SECRET
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != FORMAT or not isinstance(record["table"], str):
            raise InvalidInputError("it is not the secret of a run.")
        episodes = record["episodes"]
        return Secret(record["table"], None if episodes is None else episodes_from_json(episodes))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"{path} cannot be read: {error} Delete it to evaluate without it.") from error
