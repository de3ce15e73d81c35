"""Says that kernels are being compiled, which takes long the first time and shows nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 60  # all kernels of a default `capi fit`, measured on one core of 2023

_listeners: list[Callable[[str], None]] = []
_said = False


def started(*, kept: bool) -> None:
    """Tell the listener, once per process, that a kernel is compiled; ``kept``: its machine code will be stored."""
    global _said
    if _listeners and not _said:
        _said = True
        _listeners[-1](f"compiling ({'once, ' if kept else ''}about {SECONDS} s)")


@contextmanager
def announced(say: Callable[[str], None]) -> Iterator[None]:
    """Call ``say`` with a short text when the first kernel is compiled while the block runs."""
    _listeners.append(say)
    try:
        yield
    finally:
        _listeners.remove(say)
