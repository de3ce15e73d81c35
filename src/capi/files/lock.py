"""Locks that keep two processes from working in one folder; the system frees them when the process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from capi.errors import InvalidInputError

HOLDER = ".pid"  # added to the name of a lock: the file that says who holds it, since a locked file cannot be read on each system


@contextmanager
def locked(path: Path, refusal: Callable[[str], str]) -> Iterator[None]:
    """Hold the lock ``path`` while the block runs, or raise ``refusal`` of the process that holds it.

    Parameters
    ----------
    path : Path
        The file of the lock. It and the file beside it that names the holder are there only while the lock is held, or until
        the next holder after a process that was killed.
    refusal : callable
        From the id of the process that holds the lock, or "unknown", to the sentence that says what to do.
    """
    holder = path.with_name(path.name + HOLDER)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InvalidInputError(refusal(_id_in(holder))) from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}. Choose another place.") from error
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        for file in (holder, path):  # while it is locked, so that the file of another process is never removed
            with suppress(OSError):  # Windows refuses to remove an open file, and filelock removes it later
                file.unlink(missing_ok=True)
        lock.release()


def _id_in(holder: Path) -> str:
    try:
        return holder.read_text().strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"
