"""Where tasks run: in this process, in others, or on a cluster.

Independent tasks go through `completed`, whatever the user's executor is. Work on the parts of a large batch goes through a
`Crew`, which keeps results where they were computed and moves only sums.
"""

from __future__ import annotations

import errno
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures  # imports its executors when they are named
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from threading import Event, Thread
from time import monotonic
from typing import Any, Protocol, TypeAlias, TypeVar

from capi._utils.late import joblib
from capi._utils.threads import available_cores, in_threads, n_threads, one_blas_thread
from capi.errors import CapiError, ClusterError, ClusterWarning, InvalidInputError, MissingPackageError

Result = TypeVar("Result")
ExecutorLike: TypeAlias = Any  # concurrent.futures.Executor, dask.distributed.Client, name of a joblib backend, or None

AHEAD = 2  # tasks that wait for each worker, so that none is idle
MERGED_TOGETHER = 4  # results that one task merges
CONNECT_SECONDS = 10
LOOK_SECONDS, WAIT_SECONDS = (
    3,
    300,
)  # how often a waiting caller looks whether there are workers, and how long it waits for one
DISCONNECTED = {
    "CommClosedError",
    "FutureCancelledError",
    "FuturesCancelledError",
    "CancelledError",
}  # what Dask raises
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}  # the disk, or the user's share of it, is full
NOT_SENT = {"PicklingError", "AttributeError", "TypeError"}  # what pickling raises


class _Limited:
    """A function that runs with one BLAS thread: workers side by side would wait for each other."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        with one_blas_thread():
            return self.function(*arguments)


def is_dask_client(executor: Any) -> bool:
    """Return whether ``executor`` is a client of a Dask cluster; Dask is not imported for that."""
    return type(executor).__module__.partition(".")[0] == "distributed" and hasattr(executor, "get_executor")


def check_executor(executor: ExecutorLike, name: str = "executor") -> None:
    """Refuse what cannot run tasks."""
    if executor is None or isinstance(executor, Executor) or is_dask_client(executor):
        return
    if isinstance(executor, str):
        if executor in {"threading", "loky", "multiprocessing", "sequential", *joblib.parallel.EXTERNAL_BACKENDS}:
            return
        if executor in joblib.parallel.BACKENDS:
            return
    raise InvalidInputError(
        f"{name} must be a concurrent.futures.Executor, a dask.distributed.Client, the name of a joblib backend ('loky', "
        f"'threading', 'dask', 'ray', ...) or None; got {executor!r}."
    )


@contextmanager
def dask_client(address: str | None) -> Iterator[Any]:
    """Yield a client of the Dask cluster at ``address``; "local" starts one on this machine, and None yields None."""
    if address is None:
        yield None
        return
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise MissingPackageError(
            "--dask needs the package dask[distributed], which is not installed. Install capi[dask]."
        ) from error
    if address == "local":
        with (
            distributed.LocalCluster(
                n_workers=available_cores(),
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                preload="capi._utils.worker_setup",
                silence_logs=logging.CRITICAL,  # what a task raises is raised here
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        encrypted = address.startswith(("tls:", "wss:"))
        raise InvalidInputError(
            "--dask must be local or the address of a running Dask scheduler, such as tcp://10.0.0.1:8786; "
            + (
                f"{address!r} cannot be reached. Name the certificates in Dask's configuration (distributed.comm.tls.client)."
                if encrypted
                else f"nothing answers at {address!r}."
            )
        ) from error
    with _quiet("distributed", "distributed.client", "distributed.core", "distributed.batched"), client:
        yield client


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Keep libraries from logging errors that the command explains in its own words."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _workers_awaited(client: Any, cancel: Callable[[], None]) -> Iterator[None]:
    """While the block waits for results of a cluster, warn if it has no workers; if none comes, ``cancel`` what the block waits for, and say so."""
    ended, waited = Event(), Event()
    address = getattr(getattr(client, "scheduler", None), "address", "unknown")
    ended_by_us = f"the Dask cluster at {address} had no workers for {WAIT_SECONDS} s. Start some (dask worker {address}), and repeat the call."

    def watch() -> None:
        since, has_warned = None, False
        while not ended.wait(LOOK_SECONDS):
            try:
                some = bool(client.nthreads())
            except Exception:  # the block finds out what is wrong
                return
            now = monotonic()
            since = None if some else now if since is None else since
            if since is None:
                has_warned = False
            elif now - since >= WAIT_SECONDS:
                waited.set()
                cancel()
                return
            elif not has_warned:
                has_warned = True
                text = f"no workers at {address}; waiting up to {WAIT_SECONDS} s for one (dask worker {address})."
                with suppress(ClusterWarning):  # if warnings are errors: this thread has no one to raise it to
                    warnings.warn(text, ClusterWarning, stacklevel=2)

    Thread(target=watch, daemon=True).start()
    try:
        yield
    except Exception as error:
        if waited.is_set():
            raise ClusterError(ended_by_us) from error
        raise
    finally:
        ended.set()
    if waited.is_set():
        raise ClusterError(ended_by_us)


def completed(
    function: Callable[..., Result],
    tasks: Iterable[tuple[Any, ...]],
    executor: ExecutorLike = None,
    n_jobs: int | None = None,
) -> Iterator[tuple[int, Result]]:
    """Yield the number and the result of each task, ``function(*task)``, as they are completed.

    Tasks are taken from the iterable when a worker is about to need them. With ``executor=None`` they run one after another, or,
    with several ``n_jobs``, in processes. If the caller stops, tasks that have not begun are cancelled.
    """
    check_executor(executor)
    if executor is None and n_threads(n_jobs) > 1:
        executor = "loky"
    if executor is None:
        for i, task in enumerate(tasks):
            yield i, function(*task)
    elif isinstance(executor, str):
        yield from _by_joblib(_Limited(function), tasks, executor, n_jobs)
    else:
        client = executor if is_dask_client(executor) else None
        pool = executor if client is None else client.get_executor(pure=False)
        yield from _by_futures(_Limited(function), tasks, pool, AHEAD * _width(executor), client)


def ordered(
    function: Callable[..., Result],
    tasks: Iterable[tuple[Any, ...]],
    executor: ExecutorLike = None,
    n_jobs: int | None = None,
) -> Iterator[Result]:
    """Yield the results of `completed` in the order of the tasks."""
    waiting: dict[int, Result] = {}
    following = 0
    for i, result in completed(function, tasks, executor, n_jobs):
        waiting[i] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


@contextmanager
def lost_workers_explained(executor: ExecutorLike, **sent: Any) -> Iterator[None]:
    """Turn what executors raise if workers die, or cannot be sent a task, into errors that say what to do.

    ``sent`` are the user's objects that tasks contain. Errors of the tasks themselves stay as they are.
    """
    if executor is None or executor in ("sequential", "threading"):
        yield
        return
    try:
        yield
    except CapiError:
        raise
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if kinds & {"BrokenExecutor", "KilledWorker"}:
            raise ClusterError(
                "workers died while they ran tasks: their memory was full, they could not import what was sent to them, or the code that "
                "they ran ended its process; their output says which. Use fewer workers or workers with more memory, or correct that code."
            ) from error
        if kinds & DISCONNECTED:
            raise ClusterError(
                "the executor cancelled tasks, or the connection to its cluster was lost. Start it again, and repeat the call."
            ) from error
        if kinds & NOT_SENT and not isinstance(executor, futures.ThreadPoolExecutor):
            for name, value in sent.items():
                if (reason := _why_not_sent(value, executor)) is not None:
                    raise InvalidInputError(
                        f"{name} must be picklable to be sent to other processes: {reason}. Define its class, and those of what it "
                        "contains, at the top of a module, or use executor='threading'."
                    ) from error
        raise


def _why_not_sent(value: Any, executor: ExecutorLike) -> Exception | None:
    """Return the error of pickling ``value`` as ``executor`` does, or None: a task may raise errors of the same kinds.

    Pools of the standard library use its pickle, others cloudpickle.
    """
    if executor == "multiprocessing" or isinstance(executor, futures.ProcessPoolExecutor):
        pickler = import_module("multiprocessing.reduction").ForkingPickler
    else:
        pickler = import_module("joblib.externals.loky.backend.reduction")
    try:
        pickler.dumps(value)
    except Exception as error:
        return error
    return None


def _numbered(function: Callable[..., Result], i: int, task: tuple[Any, ...]) -> tuple[int, Result]:
    return i, function(*task)


def _by_joblib(
    function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], backend: str, n_jobs: int | None
) -> Iterator[tuple[int, Result]]:
    with joblib.parallel_config(backend, n_jobs=-1 if n_jobs is None else n_jobs):
        parallel = joblib.Parallel(return_as="generator_unordered")
        yield from parallel(joblib.delayed(_numbered)(function, i, task) for i, task in enumerate(tasks))


def _by_futures(
    function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], pool: Executor, ahead: int, client: Any = None
) -> Iterator[tuple[int, Result]]:
    numbers: dict[Future[Result], int] = {}

    def cancel() -> None:
        for future in list(numbers):
            future.cancel()

    left = enumerate(tasks)
    try:
        while True:
            while len(numbers) < ahead and (following := next(left, None)) is not None:
                with nullcontext() if client is None else _explained(client):
                    future = pool.submit(function, *following[1])
                numbers[future] = following[0]
            if not numbers:
                return
            with nullcontext() if client is None else _workers_awaited(client, cancel):
                done = wait(numbers, return_when=FIRST_COMPLETED).done
            for future in done:
                yield numbers.pop(future), future.result()
    finally:
        cancel()


def _width(executor: Any) -> int:
    """Return how many tasks an executor runs at a time, as far as it tells."""
    if is_dask_client(executor):
        with suppress(Exception):  # a client that has lost its scheduler says so when it is used
            return max(1, sum(executor.nthreads().values()))
    return int(getattr(executor, "_max_workers", None) or available_cores())


# -- work on parts of a batch ------------------------------------------------------------------------


class Crew(Protocol):
    """Those who work on the parts of a batch. Handles stand for results that stay where they were computed."""

    def shared(self, value: Any) -> Any:
        """Return a handle of a value that all will need."""

    def each(self, function: Callable[..., Any], parts: Sequence[Any], *others: Any) -> list[Any]:
        """Return handles of ``function(part, *others)`` for each part; ``others`` that are lists have one entry per part."""

    def results(self, handles: Sequence[Any]) -> list[Any]:
        """Return the results behind some handles."""

    def merged(self, merge: Callable[[Any, Any], Any], handles: Sequence[Any]) -> Any:
        """Return all results merged into one, two at a time."""


def crew_of(executor: ExecutorLike, n_jobs: int | None = -1) -> Crew:
    """Return those who work on the parts of a batch: threads of this process, or the workers of a Dask cluster."""
    check_executor(executor)
    if executor is None or executor == "threading":
        return Threads(n_threads(n_jobs))
    if is_dask_client(executor):
        return Cluster(executor)
    raise InvalidInputError(
        "the executor of a partitioned batch must be None (threads of this process) or a dask.distributed.Client, because what "
        f"is kept with a partition must stay where it is; got {executor!r}."
    )


class Threads:
    """The threads of this process; a handle is the result itself."""

    def __init__(self, n_jobs: int = 1) -> None:
        self.n_jobs = n_jobs

    def shared(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def each(self, function: Callable[..., Any], parts: Sequence[Any], *others: Any) -> list[Any]:
        """Return the results for all parts."""
        with one_blas_thread():
            return in_threads(lambda call: function(*call), _calls(parts, others), self.n_jobs)

    def results(self, handles: Sequence[Any]) -> list[Any]:
        """Return the handles, which are the results."""
        return list(handles)

    def merged(self, merge: Callable[[Any, Any], Any], handles: Sequence[Any]) -> Any:
        """Return all results merged into one, in the order in which a cluster merges them."""
        return _in_groups(handles, lambda group: _merged(merge, *group))[0]


class Cluster:
    """The workers of a Dask cluster; a handle is a future, whose result a lost worker's successor computes again."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def shared(self, value: Any) -> Any:
        """Return a future of the value. It is the result of a task, because Dask cannot restore scattered data whose workers died."""
        large = import_module("dask.config").set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})
        with large, _explained(self.client):
            return self.client.submit(_itself, _Carried(value), pure=False)

    def each(self, function: Callable[..., Any], parts: Sequence[Any], *others: Any) -> list[Any]:
        """Return futures of the results for all parts."""
        limited, handles = _Limited(function), []
        with _explained(self.client):
            for call in _calls(parts, others):
                kept = getattr(call[0], "kept", ())
                task = (
                    (_with_kept, [one.key for one in kept], [one.future for one in kept], limited)
                    if kept
                    else (limited,)
                )
                handles.append(self.client.submit(*task, *call, pure=False))
        return handles

    def results(self, handles: Sequence[Any]) -> list[Any]:
        """Fetch the results behind some futures."""
        awaited = list(handles)
        with _explained(self.client), _workers_awaited(self.client, lambda: self.client.cancel(awaited)):
            return list(self.client.gather(awaited))

    def merged(self, merge: Callable[[Any, Any], Any], handles: Sequence[Any]) -> Any:
        """Merge all results on the workers, a few at a time, and fetch what remains."""
        with _explained(self.client):
            merged = _in_groups(handles, lambda group: self.client.submit(_merged, merge, *group, pure=False))
            with _workers_awaited(self.client, lambda: self.client.cancel(merged)):
                return merged[0].result()


@contextmanager
def _explained(client: Any) -> Iterator[None]:
    """Turn what Dask raises if workers or the scheduler are lost into an error that says what to do."""
    try:
        yield
    except CapiError:
        raise
    except Exception as error:
        kind = type(error).__name__
        if kind == "KilledWorker":
            raise ClusterError(
                "workers died again and again while they worked on the same partition, most likely because their memory or disk "
                "was full. Use smaller partitions (rows_per_partition), fewer trees, or workers with more memory; their logs say more."
            ) from error
        if kind == "ClosedClientError":
            raise ClusterError("the Dask client is closed. Open a client, and pass it as executor.") from error
        if kind in DISCONNECTED:
            raise ClusterError(
                f"the connection to the Dask scheduler at {client.scheduler.address if client.scheduler else 'unknown'} was "
                "lost. Start the cluster again; capi fit --resume resumes after the last checkpoint."
            ) from error
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise ClusterError(
                f"a disk is full on a worker ({error}): what does not fit into its memory is written to its local directory. Use workers with more memory, "
                "more workers, or a larger disk (dask worker --local-directory); capi fit --resume resumes after the last checkpoint."
            ) from error
        raise


def _in_groups(handles: Sequence[Any], merge: Callable[[Sequence[Any]], Any]) -> list[Any]:
    """Return one handle: that of a few merged, of a few of these merged, and so on."""
    level = list(handles)
    while len(level) > 1:
        groups = [level[i : i + MERGED_TOGETHER] for i in range(0, len(level), MERGED_TOGETHER)]
        level = [group[0] if len(group) == 1 else merge(group) for group in groups]
    return level


class Kept:
    """A result that the workers of a Dask cluster keep.

    `Cluster.each` sends it along with a part that has it among its ``kept`` ones; the part itself is sent without it.
    """

    def __init__(self, future: Any) -> None:
        self.future, self.key = future, str(future.key)

    def compute(self, **_: Any) -> Any:
        """Return the result: on a worker the one that was sent along, in the process of the client that of the future."""
        return _SENT.get()[self.key] if self.future is None else self.future.result()

    def __getstate__(self) -> dict[str, Any]:
        return {"future": None, "key": self.key}


_SENT: ContextVar[dict[str, Any]] = ContextVar("sent")


def _with_kept(keys: Sequence[str], results: Sequence[Any], function: Callable[..., Result], *call: Any) -> Result:
    token = _SENT.set(dict(zip(keys, results, strict=True)))
    try:
        return function(*call)
    finally:
        _SENT.reset(token)


@dataclass(frozen=True, eq=False)
class _Carried:
    """A value that Dask sends as it is, without looking for futures in it."""

    value: Any


def _itself(carried: _Carried) -> Any:
    return carried.value


def _merged(merge: Callable[[Any, Any], Any], *results: Any) -> Any:
    return reduce(merge, results)


def _calls(parts: Sequence[Any], others: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the arguments for each part."""
    return [(part, *(o[i] if isinstance(o, list) else o for o in others)) for i, part in enumerate(parts)]
