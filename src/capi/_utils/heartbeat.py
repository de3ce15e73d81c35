"""Signs of life: what a long task is doing, said again and again while nothing else is said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

LINE_EVERY = 10.0  # seconds between two lines of progress in a file or a pipe
FIRST_LINE = 1.5  # seconds: long enough for short tasks to end without a line


class Heartbeat:
    """Calls ``speak`` from a thread whenever ``every`` seconds have passed since the last call or since `spoken`."""

    def __init__(self, speak: Callable[[], None], every: float, first: float | None = None) -> None:
        self._speak, self._every = speak, every
        self._next = monotonic() + (every if first is None else first)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def spoken(self) -> None:
        """Start to wait again, because something was said."""
        self._next = monotonic() + self._every

    def _run(self) -> None:
        while not self._ended.wait(max(0.0, self._next - monotonic())):
            if monotonic() >= self._next:
                self.spoken()
                self._speak()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()  # so that no line follows what the caller prints next


def seconds_left(ends: list[float], total: int, done: int, now: float) -> float | None:
    """Return the time that the rest of ``total`` equal steps needs; None before the second step has ended.

    Parameters
    ----------
    ends : list of float
        The time at the end of each step so far. The first step also compiles, so its duration is not used.
    total, done : int
        Numbers of steps; those that an earlier process has done are not in ``ends``.
    now : float

    Examples
    --------
    >>> seconds_left([100.0, 104.0, 106.0], total=10, done=3, now=107.0)
    20.0
    """
    if len(ends) < 2:
        return None
    a_step = (ends[-1] - ends[0]) / (len(ends) - 1)
    return max(0.0, a_step * (total - done) - (now - ends[-1]))
