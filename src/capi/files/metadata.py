"""The names and labels of a table, and the training summary of a policy, as JSON."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from capi._utils.validation import as_discount, as_int
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.files.packing import json_value
from capi.policies import Training

HASH = re.compile("[0-9a-f]{16}")
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
    """Return the training summary as JSON."""
    if training is None:
        return None
    record = {f.name: json_value(getattr(training, f.name), f"training.{f.name}") for f in fields(training)}
    absent = {name for name in ("episodes", "discount_per") if not getattr(training, name)}
    return {name: value for name, value in record.items() if name not in absent}


def training_from_json(value: Any) -> Training | None:
    """Return the training summary from JSON, checked."""
    if value is None:
        return None
    if not isinstance(value, dict) or not set(value) <= {f.name for f in fields(Training)}:
        raise InvalidInputError("its training summary has entries that this version of capi does not know.")
    try:
        training = Training(**{**value, "episodes": tuple(value.get("episodes", ()))})
        as_discount(training.discount)
        as_int(training.n_iterations, "n_iterations", minimum=0)
        if training.discount_per is not None and not isinstance(training.discount_per, str):
            raise TypeError("discount_per must be text")
        if training.n_rows is not None:
            as_int(training.n_rows, "n_rows", minimum=0)
    except UNREADABLE as error:
        raise InvalidInputError(f"its training summary cannot be read: {error}") from error
    if not all(isinstance(text, str) and HASH.fullmatch(text) for text in training.episodes):
        raise InvalidInputError(
            "its sketch of the training episodes must consist of numbers with 16 hexadecimal digits."
        )
    if not isinstance(training.versions, dict) or not all(isinstance(v, str) for v in training.versions.values()):
        raise InvalidInputError("its training summary must contain the versions of the libraries.")
    return training
