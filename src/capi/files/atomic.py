"""Files appear whole or not at all: they are written beside their place, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from capi.errors import InvalidInputError


def result_folder(path: str | Path) -> Path:
    """Return ``path`` as a folder that exists and can be written to, or say why not."""
    if not str(path):
        raise InvalidInputError("the folder for the results must have a name; got an empty one.")
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInputError(
            f"{folder} must be a folder, but a file is in the way. Choose another place."
        ) from error
    except OSError as error:
        raise InvalidInputError(
            f"the folder {folder} cannot be made: {error.strerror}. Choose another place."
        ) from error
    if not os.access(folder, os.W_OK):
        raise InvalidInputError(f"the folder {folder} cannot be written to. Choose another place or change its rights.")
    return folder


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
                raise InvalidInputError(
                    f"{folder / name} must be a file, but a folder is in the way. Choose another place."
                )
        for name, place in places.items():
            place.replace(folder / name)
    except OSError as error:
        raise InvalidInputError(f"the results cannot be written to {folder}: {error.strerror or error}.") from error
    finally:
        for place in places.values():
            place.unlink(missing_ok=True)


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Give a place to write the file ``path`` to, which takes its name when it is complete; its folder is made if need be."""
    target = Path(path)
    with written_together(result_folder(target.parent), [target.name]) as places:
        yield places[target.name]


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` to the file ``path``: UTF-8 with the same line ends on each system."""
    with written_whole(path) as place:
        encode_text(place, text)


def encode_text(place: Path, text: str) -> None:
    """Write ``text`` to a place that `written_together` gave."""
    place.write_text(text, encoding="utf-8", newline="\n")
