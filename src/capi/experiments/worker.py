"""A process that computes runs: requests arrive on its input and replies leave on its output, one JSON object per line.

It ends as soon as its input ends, that is, also when the process that started it was killed. While the pause file exists,
it stops between two steps of Python code (on systems that have interval timers).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time, sleep
from types import ModuleType
from typing import Any, TextIO

import llvmlite.binding

from capi._utils.sources import PACKAGE, digest_of
from capi._utils.versions import versions

PAUSE_CHECK = 0.5  # seconds between two looks at the pause file


class Pause:
    """Stops the main thread while a file exists, and counts the time."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seconds = 0.0
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, self._wait)
            self._look_later()

    def _look_later(self) -> None:
        # Once: a timer that repeats would interrupt its own handler during a pause, until the stack is full.
        signal.setitimer(signal.ITIMER_REAL, PAUSE_CHECK)

    def _wait(self, *_: object) -> None:
        started = perf_counter()
        while self.file.exists():
            sleep(PAUSE_CHECK)
            self.seconds += perf_counter() - started
            started = perf_counter()
        self._look_later()


def compute(request: Mapping[str, Any], pause: Pause | None = None) -> dict[str, Any]:
    """Return the results of a run, or the traceback of its failure, with what it cost and which code it used."""
    started, cpu, paused = perf_counter(), process_time(), pause.seconds if pause else 0.0
    code = code_of(request["module"])  # before the run: the sources may change during it
    try:
        module = _prepared(request["module"])
        started, cpu, paused = perf_counter(), process_time(), pause.seconds if pause else 0.0
        results = getattr(module, request["function"])(request["values"], request["seed"], request["n_jobs"])
        outcome: dict[str, Any] = {"results": plain(results)}
    except Exception:
        outcome = {"error": traceback.format_exc()}
    paused = (pause.seconds if pause else 0.0) - paused
    run = {
        "versions": versions(),
        "code": code,
        "processor": llvmlite.binding.get_host_cpu_name(),
        "n_jobs": request["n_jobs"],
        "cpu_seconds": round(process_time() - cpu, 3),
        "seconds": round(perf_counter() - started - paused, 3),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    return {**outcome, "run": run}


def plain(value: Any) -> Any:
    """Return ``value`` with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@cache
def _prepared(name: str) -> ModuleType:
    """Return a module after it has done, in its function ``prepare``, what should not count as time of a run."""
    module = import_module(name)
    getattr(module, "prepare", lambda: None)()
    return module


@cache
def code_of(module: str) -> str:
    """Return the start of a digest of the sources that a run depends on; outside the package, of its own file alone."""
    if module.partition(".")[0] == PACKAGE:
        return digest_of(module)[:16]
    spec = find_spec(module)
    return "" if spec is None or spec.origin is None else sha256(Path(spec.origin).read_bytes()).hexdigest()[:16]


def main() -> None:
    """Compute what is requested until the input ends; also say when it is ready, and when it has started a run."""
    replies = _taken_output()
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    pause = Pause(Path(sys.argv[1])) if len(sys.argv) > 1 else None
    _lower_priority()
    _reply(replies, {"ready": True})
    while True:
        request = json.loads(requests.get())
        _reply(replies, {"started": True})
        _reply(replies, compute(request, pause))


def _lower_priority() -> None:
    """Make the inherited niceness count: Linux may weigh sessions, and a worker's session would weigh as much as any other."""
    if hasattr(os, "nice") and os.nice(0) > 0:
        with contextlib.suppress(OSError):  # systems without such groups
            Path("/proc/self/autogroup").write_text(str(os.nice(0)))


def _reply(replies: TextIO, reply: Mapping[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _taken_output() -> TextIO:
    """Return the output for replies alone; whatever a run prints goes to the error output."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


def _listen(requests: queue.SimpleQueue[str]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in sys.stdin:
            requests.put(line)
    os._exit(0)  # at once: the main thread may be in the middle of a run


if __name__ == "__main__":
    main()
