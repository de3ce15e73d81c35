"""Threads over independent pieces of work; results come in the order of the pieces, whatever the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from capi.errors import InvalidInput

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads(n_jobs: int | None) -> int:
    """Return how many threads ``n_jobs`` means: None and 1 are one, -1 is all cores."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0 or n_jobs < -1:
        raise InvalidInput(f"n_jobs must be a positive integer, -1 for all cores, or None for one; got {n_jobs!r}.")
    return available_cores() if n_jobs == -1 else n_jobs


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], n_jobs: int) -> list[Result]:
    """Return ``work(item)`` of each item, done by up to ``n_jobs`` threads."""
    if n_jobs <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(n_jobs, len(items))) as pool:
        return list(pool.map(work, items))
