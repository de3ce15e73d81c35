"""Files that hold tables: their formats, and whether they exist.

This module imports nothing slow, so that a misspelt name is reported at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape, glob, has_magic
from pathlib import Path
from typing import Any, Literal

from capi.errors import InvalidInputError

FORMATS: dict[str, Literal["csv", "parquet"]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
COMPRESSED = (".gz", ".bz2", ".zst")
ONE_TABLE = "Put several CSV files together into one, or write each as Parquet; several Parquet files can be one table."
OF_OTHERS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "Save the sheet as CSV."),
    **dict.fromkeys((".dta", ".sav", ".sas7bdat", ".xpt"), "Write it as CSV, or read it with pandas and use Transitions.from_frame."),
    **dict.fromkeys((".feather", ".arrow", ".json", ".jsonl"), "Read it with pandas or polars, and write it as Parquet."),
}  # fmt: skip


def format_of(path: str | Path, name: str = "table", *, written: bool = False) -> Literal["csv", "parquet"]:
    """Return the format of a file by its extension; errors call the file ``name``. Compressed CSV files are read, but not ``written``.

    Examples
    --------
    >>> format_of("patients.PQ"), format_of("patients.csv.gz")
    ('parquet', 'csv')
    """
    if not isinstance(path, str | Path):
        raise InvalidInputError(f"{name} must be the path of a .csv or .parquet file, as text; got {path!r}.")
    if is_many(path):
        if FORMATS.get(Path(path).suffix.lower()) == "csv" or Path(path).suffix.lower() in COMPRESSED:
            raise InvalidInputError(f"{name} must be one CSV file, or Parquet files; got {str(path)!r}. {ONE_TABLE}")
        return "parquet"
    ending = Path(path).suffix.lower()
    if ending in COMPRESSED and not written and FORMATS.get(Path(Path(path).stem).suffix.lower()) == "csv":
        return "csv"
    if ending not in FORMATS:
        advice = f" {OF_OTHERS[ending]}" if ending in OF_OTHERS and not written else ""
        raise InvalidInputError(f"{name} must be a .csv or .parquet file; got {str(path)!r}.{advice}")
    return FORMATS[ending]


def is_many(path: str | Path) -> bool:
    """Return whether a path is a folder or a pattern, such as ``"log/*.parquet"``, and not one file."""
    return Path(path).is_dir() or (has_magic(str(path)) and not Path(path).exists())


def is_there(path: str | Path) -> bool:
    """Return whether a file or folder exists, or some file of a pattern."""
    return Path(path).exists() or (has_magic(str(path)) and bool(glob(str(path), recursive=True)))


def file_name(path: str | Path) -> str:
    """Return the name of a table without the folders that lead to it; that of a folder as a pattern."""
    name = Path(path).name
    return f"{name}/*.parquet" if Path(path).is_dir() else name


def one_table(paths: Sequence[str]) -> str:
    """Return one name for several paths, which a shell makes of a pattern: their folder, if they are all of its Parquet files."""
    if len(paths) == 1:
        return paths[0]
    folders = {Path(path).parent for path in paths}
    if len(folders) == 1:
        folder, given = folders.pop(), set(map(Path, paths))
        if given == set(folder.rglob("*.parquet")):
            return str(folder)
        if given == set(folder.glob("*.parquet")):  # other files are in folders below
            return str(Path(escape(str(folder))) / "*.parquet")
    if any(FORMATS.get(Path(path).suffix.lower()) != "parquet" for path in paths):
        raise InvalidInputError(f"one table must be given; got {len(paths)} files. {ONE_TABLE}")
    raise InvalidInputError(
        f"one table must be given; got {len(paths)} files. Name the folder of the Parquet files, or put the pattern in quotes."
    )


def existing(path: Any) -> str:
    """Return the path of a file or folder, which must exist."""
    if not isinstance(path, str | Path):
        raise InvalidInputError(f"path must be a string or a Path; got a {type(path).__name__}.")
    if has_magic(str(path)) and glob(str(path), recursive=True):
        return str(path)
    if not Path(path).exists():
        raise InvalidInputError(f"{path}: there is no such file.")
    return str(path)
