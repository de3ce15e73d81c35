"""Long tasks say something at least every few seconds, and the time left is that of the rounds after the first."""

import threading
from types import SimpleNamespace

from capi._utils.heartbeat import Heartbeat, seconds_left
from capi.cli import progress
from capi.cli.progress import Work, shown_work
from capi.experiments import terminal
from capi.experiments.runner import Progress


def test_it_speaks_while_nothing_happens_and_stops_at_the_end():
    said = []
    twice = threading.Event()

    def speak():
        said.append(threading.current_thread())
        if len(said) == 2:
            twice.set()

    with Heartbeat(speak, every=0.01).beating():
        assert twice.wait(300)
    n = len(said)
    assert threading.current_thread() not in said
    assert not any(thread.is_alive() for thread in said)
    assert len(said) == n


def test_after_the_first_time_it_waits_longer():
    said, spoken = [], threading.Event()

    def speak():
        said.append(1)
        spoken.set()

    with Heartbeat(speak, every=3600, first=0.01).beating():
        assert spoken.wait(300)
    assert len(said) == 1


def test_the_time_left_is_unknown_until_the_second_step_and_ignores_the_first():
    assert seconds_left([], 10, 0, 5.0) is None
    assert seconds_left([60.0], 10, 1, 61.0) is None, "the first step compiles"
    assert seconds_left([60.0, 62.0], 10, 2, 62.0) == 16.0
    assert seconds_left([60.0, 62.0], 10, 2, 63.0) == 15.0, "it counts down within a step"
    assert seconds_left([60.0, 62.0], 10, 2, 1000.0) == 0.0
    assert seconds_left([60.0, 62.0], 100, 82, 62.0) == 36.0, "80 steps were done by an earlier process"


def test_a_line_says_what_is_done_and_how_long_the_rest_takes(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    work = Work("reading patients.csv")
    now[0] += 3
    assert str(work) == "reading patients.csv, 3 s"
    lines = []
    for _ in work.steps([SimpleNamespace(loss=0.5), SimpleNamespace(loss=0.25)], 4, step="iteration", done=1):
        lines.append(str(work))
        now[0] += 60
    assert lines == ["iteration 3 of 4, loss 0.5, 3 s", "iteration 4 of 4, loss 0.25, 63 s, about 60 s left"]


def test_without_a_terminal_lines_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST_LINE", 0.01)
    printed = threading.Event()
    echo = progress.typer.echo
    monkeypatch.setattr(progress.typer, "echo", lambda *a, **k: (echo(*a, **k), printed.set()))
    with shown_work("evaluating run"):
        assert printed.wait(300)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("evaluating run, ")


def test_an_experiment_names_the_runs_that_take_long(capsys):
    lines = terminal.ProgressLines("chain")
    lines(
        Progress(
            n_tasks=4,
            n_finished=1,
            n_failed=0,
            running=("tree seed 1", "tree seed 2"),
            n_elsewhere=0,
            seconds_left=None,
            paused=False,
        )
    )
    lines._repeat()
    counts = "1 of 4 finished, 2 running, 0 failed, time left unknown"
    assert capsys.readouterr().err.splitlines()[-1] == f"chain: {counts}; still running tree seed 1, tree seed 2"
