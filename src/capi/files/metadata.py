"""The names and labels of a table, and the training summary of a policy, as JSON."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from capi._utils.validation import as_discount, as_int
from capi.data.learned_episodes import EVERY, KEPT, SEALED_BYTES, SECRET_BYTES, LearnedEpisodes, SealedEpisodes
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.files.packing import json_value
from capi.policies import Training

OLD_HASH = re.compile("[0-9a-f]{16}")
HEX = re.compile("([0-9a-f]{2})*")
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def schema_to_json(schema: Schema | None) -> dict[str, Any] | None:
    """Return the names and labels of a table as JSON."""
    return None if schema is None else json_value(schema.to_dict(), "the names and labels of the table")


def schema_from_json(value: Any) -> Schema | None:
    """Return the names and labels of a table from JSON, checked."""
    try:
        return None if value is None else Schema.from_dict(value)
    except UNREADABLE as error:
        raise InvalidInputError(f"its names and labels of the table cannot be read: {error}") from error


def training_to_json(training: Training | None) -> dict[str, Any] | None:
    """Return the training summary as JSON, without the learning episodes."""
    if training is None:
        return None
    absent = {"episodes"} | ({"discount_per"} if training.discount_per is None else set())
    names = [f.name for f in fields(training) if f.name not in absent]
    return {name: json_value(getattr(training, name), f"training.{name}") for name in names}


def sealed_episodes(training: Training | None) -> SealedEpisodes:
    """Return the learning episodes in a form that is slow to search, for files that are asked to hold them."""
    episodes = None if training is None else training.episodes
    sealed = episodes.sealed() if isinstance(episodes, LearnedEpisodes) else episodes
    if not isinstance(sealed, SealedEpisodes):
        found = "this policy does not know them" if episodes is None else "all of its episodes have one row"
        raise InvalidInputError(
            f"with_episodes=True needs a policy that knows its learning episodes, and episodes of at least two rows; {found}. "
            "Save it without them."
        )
    return sealed


def episodes_to_json(sealed: SealedEpisodes) -> dict[str, Any]:
    """Return sealed episodes as JSON, with their key."""
    return {
        "secret": sealed.secret.hex(),
        "bound": sealed.bound.hex(),
        "sealed": sorted(digest.hex() for digest in sealed.sealed),
        "n_episodes": sealed.n_episodes,
        "n_twins": sealed.n_twins,
    }


def episodes_from_json(value: Any) -> SealedEpisodes | None:
    """Return the learning episodes that `episodes_to_json` wrote, checked; the hashes of version 1 are dropped."""
    if isinstance(value, list) and all(isinstance(text, str) and OLD_HASH.fullmatch(text) for text in value):
        return None
    keys = {"secret", "bound", "sealed", "n_episodes", "n_twins"}
    if not isinstance(value, dict) or set(value) != keys or not isinstance(value["sealed"], list):
        raise InvalidInputError(f"its learning episodes must be a record of {', '.join(sorted(keys))}.")
    texts = [
        (value["secret"], SECRET_BYTES),
        (value["bound"], len(EVERY)),
        *((d, SEALED_BYTES) for d in value["sealed"]),
    ]
    if not all(isinstance(text, str) and len(text) == 2 * size and HEX.fullmatch(text) for text, size in texts):
        raise InvalidInputError("its learning episodes must consist of hexadecimal numbers of fixed length.")
    as_int(value["n_episodes"], "n_episodes", minimum=1)
    as_int(value["n_twins"], "n_twins", minimum=0)
    if len(value["sealed"]) > KEPT:
        raise InvalidInputError(f"it must record at most {KEPT} learning episodes; it has {len(value['sealed'])}.")
    secret, bound, *sealed = (bytes.fromhex(text) for text, _ in texts)
    return SealedEpisodes(secret, bound, frozenset(sealed), value["n_episodes"], value["n_twins"])


def training_from_json(value: Any) -> Training | None:
    """Return the training summary from JSON, checked."""
    if value is None:
        return None
    if not isinstance(value, dict) or not set(value) <= {f.name for f in fields(Training)}:
        raise InvalidInputError("its training summary has entries that this version of capi does not know.")
    try:
        episodes = episodes_from_json(value["episodes"]) if "episodes" in value else None
        training = Training(**{**value, "episodes": episodes})
        as_discount(training.discount)
        as_int(training.n_iterations, "n_iterations", minimum=0)
        if training.discount_per is not None and not isinstance(training.discount_per, str):
            raise TypeError("discount_per must be text")
        if training.n_rows is not None:
            as_int(training.n_rows, "n_rows", minimum=0)
    except UNREADABLE as error:
        raise InvalidInputError(f"its training summary cannot be read: {error}") from error
    if not isinstance(training.versions, dict) or not all(isinstance(v, str) for v in training.versions.values()):
        raise InvalidInputError("its training summary must contain the versions of the libraries.")
    return training
