"""Locks that keep two processes from working in one folder; the system releases them when the process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from capi.errors import InvalidInputError

HOLDER = ".pid"  # suffix of the file that names the holder of a lock, because not every system can read a locked file


def acquire(path: Path, *, wait: bool = False) -> Callable[[], None] | None:
    """Acquire the lock ``path`` and return the function that releases it, or None if another process holds it.

    Parameters
    ----------
    path : Path
        The lock file. It and the file next to it that names the holder exist only while the lock is held, or, if the process was
        killed, until the lock is next released.
    wait : bool
        Wait until the lock is free.
    """
    holder = path.with_name(path.name + HOLDER)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        return None
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}. Choose another folder.") from error

    def release() -> None:
        for file in (holder, path):  # before the release, so that the file of another process is never removed
            with suppress(OSError):  # Windows refuses to remove an open file; filelock removes it later
                file.unlink(missing_ok=True)
        lock.release()

    try:
        holder.write_text(str(os.getpid()))
    except BaseException:
        release()
        raise
    return release


@contextmanager
def locked(path: Path, refusal: Callable[[str], str] | None = None) -> Iterator[None]:
    """Hold the lock ``path`` while the block runs.

    Parameters
    ----------
    path : Path
        The lock file, as in `acquire`.
    refusal : callable, optional
        Maps the id of the process that holds the lock, or "unknown", to the message of the error that is then raised.
        By default wait until the lock is free.
    """
    release = acquire(path, wait=refusal is None)
    if release is None and refusal is not None:
        raise InvalidInputError(refusal(_id_in(path.with_name(path.name + HOLDER))))
    try:
        yield
    finally:
        if release is not None:
            release()


def _id_in(holder: Path) -> str:
    try:
        return holder.read_text().strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"
