"""Locks that keep two processes from working in one folder; the system releases them when the process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from capi.errors import InvalidInputError

HOLDER = ".pid"  # suffix of the file that names the holder of a lock, because not every system can read a locked file


@contextmanager
def locked(path: Path, refusal: Callable[[str], str]) -> Iterator[None]:
    """Hold the lock ``path`` while the block runs; if another process holds it, raise the error of ``refusal``.

    Parameters
    ----------
    path : Path
        The lock file. It and the file next to it that names the holder exist only while the lock is held, or, if the process was
        killed, until the lock is next released.
    refusal : callable
        Maps the id of the process that holds the lock, or "unknown", to an error message that says what to do.
    """
    holder = path.with_name(path.name + HOLDER)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InvalidInputError(refusal(_id_in(holder))) from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}. Choose another folder.") from error
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        for file in (holder, path):  # before the release, so that the file of another process is never removed
            with suppress(OSError):  # Windows refuses to remove an open file; filelock removes it later
                file.unlink(missing_ok=True)
        lock.release()


def _id_in(holder: Path) -> str:
    try:
        return holder.read_text().strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"
