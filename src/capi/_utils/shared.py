"""Parts that several learners have in common, made once.

Learners of one batch with the same seed begin with the same first policy and the same models of what was done. In a block `sharing` each of these is
made once, so that comparing many learners takes less time. Results are the same as without it, because each part has random numbers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

Part = TypeVar("Part")
_made: ContextVar[dict[Any, tuple[Any, Any]] | None] = ContextVar("made", default=None)


@contextmanager
def sharing(*, enabled: bool = True) -> Iterator[None]:
    """Keep the parts that this thread makes in the block in memory, until the block ends; within another one, until that one ends."""
    outer = _made.get()
    token = _made.set(({} if outer is None else outer) if enabled else None)
    try:
        yield
    finally:
        _made.reset(token)


def shared(make: Callable[[], Part], batch: Any, *settings: Any) -> Part:
    """Return what ``make`` returns for a batch and settings; in a block `sharing` it is called once for the same ones.

    ``settings`` must determine the result; a SeedSequence counts by its numbers. Those that cannot be hashed are not shared.
    """
    made = _made.get()
    if made is None:
        return make()
    named = tuple(_numbers(setting) for setting in settings)
    key = id(batch), named, repr(named)  # the text distinguishes 1 and 1.0
    try:
        known = made.get(key)
    except TypeError:
        return make()
    if known is None:
        known = made[key] = batch, make()  # no other batch gets its id while it is here
    part: Part = known[1]
    return part


def _numbers(setting: Any) -> Any:
    if not isinstance(setting, np.random.SeedSequence):
        return setting
    return repr(setting.entropy), setting.spawn_key
