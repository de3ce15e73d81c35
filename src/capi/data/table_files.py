"""Files that hold tables: their formats, and whether they exist.

This module imports nothing slow, so that a misspelt name is reported at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from capi.errors import InvalidInputError

FORMATS: dict[str, Literal["csv", "parquet"]] = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}


def format_of(path: str | Path, name: str = "table") -> Literal["csv", "parquet"]:
    """Return the format of a file by its extension; errors call the file ``name``.

    Examples
    --------
    >>> format_of("patients.PQ")
    'parquet'
    """
    if not isinstance(path, str | Path):
        raise InvalidInputError(f"{name} must be the path of a .csv or .parquet file, as text; got {path!r}.")
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise InvalidInputError(f"{name} must be a .csv or .parquet file; got {str(path)!r}.")
    return FORMATS[ending]


def existing(path: Any) -> str:
    """Return the path of a file or folder, which must exist."""
    if not isinstance(path, str | Path):
        raise InvalidInputError(f"path must be a string or a Path; got {path!r}.")
    if not Path(path).exists():
        raise InvalidInputError(f"{path}: there is no such file.")
    return str(path)
