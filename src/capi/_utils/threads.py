"""Threads over independent pieces of work; results keep the order of the pieces for any number of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

from capi._utils.late import threadpoolctl
from capi.errors import InvalidInputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads(n_jobs: int | None, name: str = "n_jobs") -> int:
    """Return the number of threads that ``n_jobs`` means: one for None and 1, all cores for -1."""
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


_blas_lock = threading.Lock()
_blas_limits: list[Any] = []  # what restores the limits, while at least one block is active
_blas_users = 0


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: on short vectors more threads mostly wait, and they change the order of sums.

    The limit holds for the process. Only the first of nested or simultaneous blocks sets it, which takes milliseconds, and the last one to end restores it.
    """
    global _blas_users
    with _blas_lock:
        if _blas_users == 0:
            _blas_limits.append(threadpoolctl.threadpool_limits(limits=1, user_api="blas"))
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limits.pop().restore_original_limits()


FEW_ROWS = 100_000


@cache
def _openmp() -> Any:
    return threadpoolctl.ThreadpoolController().select(user_api="openmp")


@contextmanager
def openmp_threads_for(n_rows: int) -> Iterator[None]:
    """Limit OpenMP of the calling thread to one thread if there are few rows; it must be loaded before the first such block.

    With few rows its threads mostly wait for each other, and they do so without giving up their cores: beside other processes that can take forty times as long.
    """
    with _openmp().limit(limits=1) if n_rows < FEW_ROWS else nullcontext():
        yield


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], n_jobs: int) -> list[Result]:
    """Return ``work(item)`` for each item, using up to ``n_jobs`` threads including the caller's; of several errors raise the first item's."""
    if n_jobs <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    waiting = iter(range(len(items)))

    def drain() -> None:
        i = -1
        try:
            for i in waiting:
                results[i] = work(items[i])
        except BaseException as error:  # re-raised in the caller below
            errors[i if isinstance(error, Exception) else -1] = error  # an interruption comes before any error
            for _ in waiting:  # so that no thread starts another item
                pass

    helpers = [threading.Thread(target=drain) for _ in range(min(n_jobs, len(items)) - 1)]
    for helper in helpers:
        helper.start()
    drain()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[min(errors)]
    return [results[i] for i in range(len(items))]
