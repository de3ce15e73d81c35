"""What is saved before a process is ended that does not answer: machine code that runs or is compiled cannot be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_rescues: list[Callable[[], str | None]] = []


@contextmanager
def rescued_by(save: Callable[[], str | None]) -> Iterator[None]:
    """Register ``save`` while the block runs: it is called, in another thread, if the process is ended within the block.

    It saves what exists, and returns a sentence for the user or None.
    """
    _rescues.append(save)
    try:
        yield
    finally:
        _rescues.remove(save)


def rescue() -> list[str]:
    """Call all registered functions, the innermost first, and return their sentences, each once."""
    sentences = []
    for save in reversed(_rescues):
        with suppress(Exception):  # the process ends either way
            sentences.append(save())
    return [sentence for sentence in dict.fromkeys(sentences) if sentence]
