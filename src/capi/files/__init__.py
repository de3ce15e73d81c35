"""Files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capi.errors import InvalidInput


def result_folder(path: str | Path) -> Path:
    """Return ``path`` as a folder that exists and can be written to, or say why not."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInput(f"{folder} must be a folder, but a file is in the way. Choose another place.") from error
    except OSError as error:
        raise InvalidInput(f"the folder {folder} cannot be made: {error.strerror}. Choose another place.") from error
    if not os.access(folder, os.W_OK):
        raise InvalidInput(f"the folder {folder} cannot be written to. Choose another place or change its rights.")
    return folder


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a place beside ``path`` to write to; on success it takes the name ``path``, on failure it goes."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, whole."""
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")
