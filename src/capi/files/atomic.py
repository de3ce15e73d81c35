"""Atomic writing: files are written under a temporary name in their folder, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from capi.errors import InvalidInputError


def result_folder(path: str | Path) -> Path:
    """Return ``path`` as a folder that exists and is writable, or raise an error that says why it is not."""
    if not str(path):
        raise InvalidInputError("the folder for the results must have a name; got an empty one. Pass a path.")
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInputError(
            f"{folder} must be a folder, but it or a parent of it is a file. Choose another path."
        ) from error
    except OSError as error:
        raise InvalidInputError(
            f"the folder {folder} cannot be created: {error.strerror}. Choose another path."
        ) from error
    if not os.access(folder, os.W_OK):
        raise InvalidInputError(f"the folder {folder} is not writable. Choose another path, or change its permissions.")
    return folder


@contextmanager
def written_together(folder: Path, names: Sequence[str]) -> Iterator[dict[str, Path]]:
    """Yield a temporary path in ``folder`` for each of ``names``.

    When all files are written, they are renamed one right after the other; if anything fails before that, all of
    them are deleted and existing files stay.
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
                    f"{folder / name} must be a file, but a folder of that name exists. Choose another path."
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
    """Yield a temporary path for the file ``path``, which is renamed when it is complete; its folder is created if needed."""
    target = Path(path)
    with written_together(result_folder(target.parent), [target.name]) as places:
        yield places[target.name]


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` to the file ``path`` as UTF-8, with the same line endings on all systems."""
    with written_whole(path) as place:
        encode_text(place, text)


def encode_text(place: Path, text: str) -> None:
    """Write ``text`` to a temporary path of `written_together`."""
    place.write_text(text, encoding="utf-8", newline="\n")
