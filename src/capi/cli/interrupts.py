"""Ctrl-C (SIGINT) and SIGTERM end every command within two seconds, whatever it is doing.

Python runs signal handlers in the main thread, between two steps of Python code. Machine code that runs there, or that LLVM
compiles there, can take minutes. So a thread waits for signals, too: if the command has not ended a moment after a signal, the
thread saves what can be saved (`capi._utils.rescue`) and ends the process. A second signal ends it at once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

from capi._utils.rescue import rescue

GRACE = 0.5  # seconds in which a command may end by itself; the rest of the two seconds is for saving
MOST_SECONDS = 10.0  # for saving; files are renamed when they are complete, so ending earlier does no harm
POLLING = 0.02
SHOW_CURSOR = "\x1b[?25h"  # progress bars hide it
ANSWERED = (signal.SIGINT, signal.SIGTERM)

_received: list[int] = []


def exit_code() -> int:
    """Return the exit code of an interrupted command: 143 after SIGTERM, otherwise 130."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def end_interrupted() -> None:
    """End the process if a signal asked for it, without Python's shutdown: it can take long, and no thread runs to cut it short."""
    if _received:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # no one reads it any more
                stream.flush()
        os._exit(exit_code())


def answer_signals() -> None:
    """Make this process answer SIGINT and SIGTERM, unless its parent asked it to ignore them."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in ANSWERED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    if os.name != "posix":
        return  # no pipe that a signal can write to; Ctrl-C still ends Python code
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt


def _watch(reader: int) -> None:
    """Wait for a signal, then for the end of the process, and end it if it does not come."""
    while (number := os.read(reader, 1)[0]) not in ANSWERED:
        pass
    _received.append(number)
    if not _arrives(reader, GRACE):
        done = threading.Event()
        sentences: list[str] = []

        def save() -> None:
            sentences.extend(rescue())
            done.set()

        threading.Thread(target=save, daemon=True).start()
        waited = 0.0
        while not done.is_set() and waited < MOST_SECONDS and not _arrives(reader, POLLING):
            waited += POLLING
        _say(sentences or ["stopped."])
    os._exit(128 + number)


def _arrives(reader: int, seconds: float) -> bool:
    """Return whether another signal arrives within some seconds."""
    if not select.select([reader], [], [], seconds)[0]:
        return False
    return os.read(reader, 1)[0] in ANSWERED


def _say(sentences: list[str]) -> None:
    """Print sentences without the locks of `sys.stderr`, which another thread may hold."""
    cursor = SHOW_CURSOR if os.isatty(2) else ""
    with suppress(OSError):  # no one reads standard error any more
        os.write(2, (cursor + "".join(f"{sentence}\n" for sentence in sentences)).encode())
