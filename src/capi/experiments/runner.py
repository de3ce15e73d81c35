"""Run tasks in worker processes: keep finished records, record failures with their tracebacks, and continue with the others."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TextIO, cast

from capi._utils.executors import completed
from capi._utils.threads import available_cores, n_threads
from capi._utils.versions import versions
from capi.errors import CapiError
from capi.experiments import worker
from capi.experiments.experiment import Experiment, Record
from capi.experiments.records import Records, is_finished, key_of
from capi.experiments.setting import Setting

MOST_ERROR_OUTPUT = 2000  # characters of a process that ended unexpectedly
POLL = 0.5  # seconds between two looks at the pause file and at runs of other processes
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")  # of BLAS per worker


@dataclass(frozen=True)
class Task:
    """A setting to run with a seed, and where its record belongs."""

    experiment: Experiment
    setting: Setting
    seed: int
    records: Records

    def __str__(self) -> str:
        return f"{self.setting.name} seed {self.seed}"


@dataclass(frozen=True)
class Progress:
    """How far the tasks are."""

    n_tasks: int
    n_finished: int
    n_failed: int
    running: tuple[str, ...]
    n_elsewhere: int  # computed by other processes at the moment
    seconds_left: float | None  # None if no run has finished yet
    paused: bool
    event: str = ""  # what happened last

    def __str__(self) -> str:
        left = "unknown" if self.seconds_left is None else duration(self.seconds_left)
        elsewhere = f" ({self.n_elsewhere} more elsewhere)" if self.n_elsewhere else ""
        return (
            f"{self.n_finished} of {self.n_tasks} finished, {len(self.running)} running{elsewhere}, "
            f"{self.n_failed} failed, time left {left}"
        )


@dataclass
class Outcome:
    """What became of the tasks."""

    finished: list[Task] = field(default_factory=list)
    failed: list[Task] = field(default_factory=list)


def run_tasks(
    tasks: Sequence[Task],
    *,
    jobs: int = -1,
    pause: Path | None = None,
    executor: Any = None,
    report: Callable[[Progress], object] = lambda _: None,
) -> Outcome:
    """Compute the records of all tasks that have none, in this order, and add them to their folders.

    Parameters
    ----------
    tasks : sequence of Task
        Tasks whose record exists are skipped. A run that failed earlier is tried again.
    jobs : int
        Number of runs at the same time, -1 for one per core. Each gets its share of the cores; records do not depend on it.
    pause : Path, optional
        While this file exists, no run starts, and those that are running wait.
    executor : concurrent.futures.Executor, dask.distributed.Client or name of a joblib backend, optional
        Where the runs are computed, with one thread each; by default in processes of this machine. Records are written here, and a
        run whose worker is lost is computed again. Runs elsewhere do not see the pause file; no new ones start.
    report : callable
        Called with the `Progress` whenever it changes.
    """
    runner = _Runner(tasks, n_threads(jobs, "jobs"), pause, report)
    return runner.run() if executor is None else runner.run_on(executor)


class _Runner:
    """The state of `run_tasks`."""

    def __init__(
        self, tasks: Sequence[Task], jobs: int, pause: Path | None, report: Callable[[Progress], object]
    ) -> None:
        self.n_tasks, self.pause, self.report = len(tasks), pause, report
        self.outcome = Outcome()
        self.times = _Times(tasks)
        self.waiting: deque[Task] = deque()
        for task in tasks:
            (self.outcome.finished if self.times.has(task) else self.waiting).append(task)
        self.jobs = min(jobs, max(1, len(self.waiting)))
        self.n_threads = max(1, available_cores() // self.jobs)
        self.elsewhere: list[Task] = []  # reserved by other processes
        self.free: list[_Worker] = []
        self.running: dict[_Worker, _Run] = {}
        self.replies: queue.Queue[tuple[_Worker, Record | None]] = queue.Queue()
        self.started = _now()
        self.was_paused = False

    def run(self) -> Outcome:
        try:
            self._tell()
            while self.waiting or self.running or self.elsewhere:
                self._start_runs()
                with suppress(queue.Empty):
                    self._hear(*self.replies.get(timeout=POLL))
        finally:
            for run in self.running.values():
                run.release()
            for process in [*self.running, *self.free]:
                process.end()
        return self.outcome

    def run_on(self, executor: Any) -> Outcome:
        """Compute the runs on an executor."""
        begun: dict[int, _Run] = {}  # by the number of the task

        def requests() -> Iterator[tuple[dict[str, Any]]]:
            for number in count():
                while self.pause is not None and self.pause.exists():
                    sleep(POLL)
                claimed = self._claimed()
                if claimed is None:
                    return
                begun[number] = _Run(*claimed, monotonic())
                self._tell(f"started {claimed[0]}")
                yield (request_of(claimed[0], 1),)

        self._tell()
        try:
            while self.waiting or self.elsewhere:
                for number, reply in completed(worker.compute, requests(), executor):
                    self._keep(begun.pop(number), reply)
                if self.elsewhere:
                    sleep(POLL)
        finally:
            for run in begun.values():
                run.release()
        return self.outcome

    def _keep(self, run: _Run, reply: Record) -> None:
        """Write the record of a run."""
        task = run.task
        record = {"setting": task.setting.name, "seed": task.seed, "values": dict(task.setting.values), **reply}
        task.records.add(record)
        run.release()
        self._conclude(task, record)

    def _start_runs(self) -> None:
        """Start runs until all workers are busy or no task is left for this process."""
        paused = self.pause is not None and self.pause.exists()
        if paused != self.was_paused:
            self.was_paused = paused
            self._tell(f"paused until {self.pause} is deleted" if paused else "resumed")
        while not paused and len(self.running) < self.jobs:
            claimed = self._claimed()
            if claimed is None:
                return
            task, release = claimed
            process = self._worker()
            self.running[process] = _Run(task, release, monotonic())
            process.start(task, self.n_threads)
            self._tell(f"started {task}")

    def _worker(self) -> _Worker:
        """Return a worker that is free and alive, or start one."""
        while self.free:
            process = self.free.pop()
            if process.process.poll() is None:
                return process
            process.end()
        return _Worker(self.replies, self.pause)

    def _claimed(self) -> tuple[Task, Callable[[], None]] | None:
        """Return the next task that no other process has finished or is computing, reserved for this process."""
        self.waiting.extendleft(reversed(self.elsewhere))
        self.elsewhere = []
        while self.waiting:
            task = self.waiting.popleft()
            release = task.records.claim(task.setting, task.seed)
            if release is None:
                self.elsewhere.append(task)
                continue
            record = task.records.find(task.setting, task.seed)
            if record is None or ("error" in record and record["run"]["finished"] < self.started):
                return task, release
            release()
            self._conclude(task, record)
        return None

    def _hear(self, process: _Worker, reply: Record | None) -> None:
        """Act on the reply of a process; None means that it has ended."""
        run = self.running.get(process)
        if run is None:  # it ended while it was free
            return
        if reply is not None and "ready" in reply:
            process.is_ready = True
            return
        if reply is not None and "started" in reply:
            run.begun = True
            return
        del self.running[process]
        if reply is not None:
            self.free.append(process)
        else:
            reply = process.end()
            reply["run"]["code"] = worker.code_of(run.task.experiment.run.__module__)
            if not process.is_ready:
                run.release()
                raise CapiError(f"a process for runs cannot be started. {reply['error']}")
            if not run.begun:  # it ended for another reason than this run
                run.release()
                self.waiting.appendleft(run.task)
                return
        self._keep(run, reply)

    def _conclude(self, task: Task, record: Record) -> None:
        finished = is_finished(record)
        (self.outcome.finished if finished else self.outcome.failed).append(task)
        if finished:
            self.times.add(task, record)
        self._tell(f"{'finished' if finished else 'FAILED'} {task} ({record['run']['cpu_seconds']:.1f} CPU seconds)")

    def _tell(self, event: str = "") -> None:
        now = monotonic()
        begun = [(run.task, now - run.started) for run in self.running.values()]
        ahead = [(task, 0.0) for task in (*self.waiting, *self.elsewhere)]
        self.report(
            Progress(
                n_tasks=self.n_tasks,
                n_finished=len(self.outcome.finished),
                n_failed=len(self.outcome.failed),
                running=tuple(str(task) for task, _ in begun),
                n_elsewhere=len(self.elsewhere),
                seconds_left=self.times.left([*begun, *ahead], self.jobs),
                paused=self.was_paused,
                event=event,
            )
        )


@dataclass
class _Run:
    task: Task
    release: Callable[[], None]
    started: float
    begun: bool = False  # whether the process has read the request


def request_of(task: Task, n_jobs: int) -> dict[str, Any]:
    """Return what a worker must know to compute a task."""
    run: Any = task.experiment.run
    request = {"module": run.__module__, "function": run.__name__, "values": dict(task.setting.values)}
    return {**request, "seed": task.seed, "n_jobs": n_jobs}


class _Worker:
    """A worker process; a thread passes on its replies, and None when it has ended."""

    def __init__(self, replies: queue.Queue[tuple[_Worker, Record | None]], pause: Path | None) -> None:
        self.is_ready = False
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in end()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", worker.__name__, *([] if pause is None else [str(pause)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            encoding="utf-8",
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(place or os.getcwd() for place in sys.path)},
            start_new_session=True,  # Ctrl-C reaches only this process, which ends its workers
        )
        self.requests, self.answers = cast(TextIO, self.process.stdin), cast(TextIO, self.process.stdout)
        threading.Thread(target=self._listen, args=(replies,), daemon=True).start()

    def start(self, task: Task, n_jobs: int) -> None:
        with suppress(BrokenPipeError):  # it has ended, which the other thread tells
            self.requests.write(json.dumps(request_of(task, n_jobs)) + "\n")
            self.requests.flush()

    def _listen(self, replies: queue.Queue[tuple[_Worker, Record | None]]) -> None:
        for line in self.answers:
            replies.put((self, json.loads(line)))
        replies.put((self, None))

    def end(self) -> Record:
        """End the process; return the reply to a request that it has not answered."""
        if self.errors.closed:
            return self.last_words
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.requests, self.answers):
            with suppress(OSError):  # a request that was never read
                pipe.close()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace")[-MOST_ERROR_OUTPUT:]
        self.errors.close()
        error = f"The process of the run ended with exit code {code}, perhaps because memory ran out.\n{said}"
        run = {"versions": versions(), "cpu_seconds": 0.0, "seconds": 0.0, "finished": _now()}
        self.last_words: Record = {"error": error, "run": run}
        return self.last_words


class _Times:
    """The records that exist, and how long runs take, from those of the same setting with other seeds."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.finished: set[tuple[Path, str, int]] = set()
        self.seconds: dict[tuple[Path, str], list[float]] = {}
        for records in {task.records.folder: task.records for task in tasks}.values():
            for record in records:
                if is_finished(record):
                    self.finished.add((records.folder, key_of(record["values"]), record["seed"]))
                    self._add((records.folder, record["setting"]), record)

    def has(self, task: Task) -> bool:
        """Return whether the task's record existed at the start."""
        return (task.records.folder, key_of(task.setting.values), task.seed) in self.finished

    def add(self, task: Task, record: Record) -> None:
        self._add((task.records.folder, task.setting.name), record)

    def _add(self, case: tuple[Path, str], record: Record) -> None:
        self.seconds.setdefault(case, []).append(record["run"]["seconds"])

    def left(self, tasks: Sequence[tuple[Task, float]], jobs: int) -> float | None:
        """Return the seconds that tasks need, given for how long each is running; None if no run has finished yet."""
        if not tasks:
            return 0.0
        means = {case: sum(seconds) / len(seconds) for case, seconds in self.seconds.items()}
        if not means:
            return None
        typical = sum(means.values()) / len(means)
        expected = ((means.get((task.records.folder, task.setting.name), typical), passed) for task, passed in tasks)
        return sum(max(0.0, seconds - passed) for seconds, passed in expected) / jobs


def duration(seconds: float) -> str:
    """Return a duration in its largest units.

    Examples
    --------
    >>> duration(7384)
    '2 h 03 min'
    """
    minutes = round(seconds / 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min" if minutes else f"{round(seconds)} s"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
