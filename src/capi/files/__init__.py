"""Files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from capi.errors import InvalidInput

try:
    import fcntl
except ImportError:  # not on Windows, where nobody is kept from a second process
    fcntl = None  # type: ignore[assignment]


def result_folder(path: str | Path) -> Path:
    """Return ``path`` as a folder that exists and can be written to, or say why not."""
    if not str(path):
        raise InvalidInput("the folder for the results must have a name; got an empty one.")
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


def is_ours_alone(file: TextIO) -> bool:
    """Whether no other process holds the lock on an open file; it is ours then, and goes with the process, however it ends."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def written_together(folder: Path, names: Sequence[str]) -> Iterator[dict[str, Path]]:
    """Give a place beside each of ``names`` in ``folder`` to write to.

    When all are written they take their names one right after the other; if anything fails before, all of them
    go, and what was there stays.
    """
    places = {name: folder / f".{name}.{os.getpid()}.part" for name in names}
    try:
        yield places
        for place in places.values():
            with place.open("rb") as file:
                os.fsync(file.fileno())
        for name in names:
            if (folder / name).is_dir():
                raise InvalidInput(f"{folder / name} must be a file, but a folder is in the way. Choose another place.")
        for name, place in places.items():
            place.replace(folder / name)
    except OSError as error:
        raise InvalidInput(f"the results cannot be written to {folder}: {error.strerror or error}.") from error
    finally:
        for place in places.values():
            place.unlink(missing_ok=True)
