"""Threads over independent pieces of work; results come in the order of the pieces, whatever the number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from capi._utils.late import threadpoolctl
from capi.errors import InvalidInputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads(n_jobs: int | None, name: str = "n_jobs") -> int:
    """Return how many threads ``n_jobs`` means: None and 1 are one, -1 is all cores."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0 or n_jobs < -1:
        raise InvalidInputError(
            f"{name} must be a positive integer, -1 for all cores, or None for one; got {n_jobs!r}."
        )
    return available_cores() if n_jobs == -1 else n_jobs


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread: for vectors that are short, of which more threads make much waiting, and sums in another order."""
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        yield


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], n_jobs: int) -> list[Result]:
    """Return ``work(item)`` of each item, done by up to ``n_jobs`` threads, of which the caller's is one."""
    if n_jobs <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    errors: list[BaseException] = []
    waiting = iter(range(len(items)))

    def drain() -> None:
        try:
            for i in waiting:
                results[i] = work(items[i])
        except BaseException as error:  # told to the caller, below
            errors.append(error)
            for _ in waiting:  # nobody starts anything more
                pass

    helpers = [threading.Thread(target=drain) for _ in range(min(n_jobs, len(items)) - 1)]
    for helper in helpers:
        helper.start()
    drain()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
    return [results[i] for i in range(len(items))]
