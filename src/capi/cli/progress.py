"""What a long command is doing, on standard error: a bar in a terminal, otherwise a line at least every ten seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import typer

from capi._utils.heartbeat import FIRST_LINE, LINE_EVERY, Heartbeat, seconds_left
from capi._utils.late import rich

EVERY_SECOND = 1.0


class Work:
    """A task of several steps: what it is doing, since when, and how long the rest will take."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.step = "step"
        self.done, self.total = 0, 0
        self.started = monotonic()
        self.ends: list[float] = []
        self.changed: Callable[[], None] = lambda: None

    def steps(self, items: Iterable[Any], total: int, *, step: str, done: int = 0) -> Iterator[Any]:
        """Yield ``items``; each is a ``step``, such as an iteration, of which ``done`` were done before."""
        self.step, self.done, self.total, self.text = step, done, total, ""
        self.changed()
        for item in items:
            self.done += 1
            self.ends.append(monotonic())
            if hasattr(item, "loss"):
                self.text = f"loss {item.loss:.4g}"
            self.changed()
            yield item

    def __str__(self) -> str:
        now = monotonic()
        parts = [self.text] if self.text else []
        if self.total:
            parts.insert(0, f"{self.step} {min(self.done + 1, self.total)} of {self.total}")
        parts.append(_duration(now - self.started))
        left = seconds_left(self.ends, self.total, self.done, now)
        if left is not None and left >= 1:  # 0 if a step takes longer than those before
            parts.append(f"about {_duration(left)} left")
        return ", ".join(parts)


@contextmanager
def shown_work(text: str) -> Iterator[Work]:
    """Show what the block does, starting with ``text``; the block tells the steps of its work to the object it gets."""
    work = Work(text)
    console = rich.console.Console(stderr=True)
    if not console.is_terminal:
        with Heartbeat(lambda: typer.echo(str(work), err=True), LINE_EVERY, FIRST_LINE).beating():
            yield work
        return
    columns = (rich.progress.BarColumn(20), rich.progress.TextColumn("{task.description}", markup=False))
    with rich.progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(text, total=None)

        def show() -> None:
            total = work.total if work.ends else None  # a moving bar until the first step is done
            bar.update(task, total=total, completed=work.done, description=str(work))

        work.changed = show
        with Heartbeat(show, EVERY_SECOND).beating():
            yield work


def _duration(seconds: float) -> str:
    """Return a duration, in minutes from two minutes on.

    Examples
    --------
    >>> _duration(64.2), _duration(305)
    ('64 s', '5 min 05 s')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
