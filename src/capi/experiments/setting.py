"""A setting of an experiment, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Size: TypeAlias = Literal["quick", "full"]
ALGORITHM_1: dict[str, Any] = {  # options of CAPI that make it the paper's loop, whatever its defaults become
    "keep": "last",
    "state_weights": "batch",
}
DEFAULTS = "capi-0.2"  # names the defaults of CAPI of runs that use them: after they change, a new name makes the records of earlier ones stale


@dataclass(frozen=True)
class Setting:
    """The values that a run depends on, apart from its seed."""

    name: str  # unique in its experiment; the part before the first slash names a group of settings
    values: Mapping[str, Any]  # in types that JSON can hold
