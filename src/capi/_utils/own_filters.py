"""Fits of scikit-learn that leave the warning filters of the process as they were."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()
NEEDLESS = "`sklearn.utils.parallel.delayed` should be used with"


@contextmanager
def own_filters() -> Iterator[None]:
    """Let only one thread at a time into the block, and restore the warning filters after it.

    Threads of scikit-learn each empty the filters of the process and fill them again. Before Python 3.14 threads share them, so a filter may be lost for good, and
    scikit-learn then warns that it was called in a wrong way. Other warnings are passed on when the block ends.
    """
    with _lock, warnings.catch_warnings(record=True) as caught:
        yield
    for one in caught:
        if not str(one.message).startswith(NEEDLESS):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
