"""Runs survive everything: failures, kills, pauses, and several runners in one folder."""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

import toy_experiment as toy
from capi.errors import CapiError, InvalidInputError
from capi.experiments import runner as runner_module
from capi.experiments.records import FILE, LOCKS, Records, flat, is_finished, without_timings
from capi.experiments.runner import Task, duration, run_tasks
from capi.experiments.setting import Setting
from capi.experiments.worker import compute

pytestmark = pytest.mark.usefixtures("toy_folder")

TESTS = Path(__file__).parents[1]
PATIENCE = 300  # seconds; only a failure takes that long, on a busy machine too
RUNNER = """
import os
import sys
from pathlib import Path
import toy_experiment as toy
from capi.experiments.records import Records
from capi.experiments.runner import Task, run_tasks
toy.folder = Path(sys.argv[1])
os.nice(int(sys.argv[5]))
records, jobs = Records(sys.argv[2]), int(sys.argv[3])
tasks = [Task(toy, setting, seed, records) for seed in range(int(sys.argv[4])) for setting in toy.settings("quick")]
outcome = run_tasks(tasks, jobs=jobs)
print(len(outcome.finished), len(outcome.failed))
"""


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "records")


def tasks(records, n_seeds=1):
    return [Task(toy, setting, seed, records) for seed in range(n_seeds) for setting in toy.settings("quick")]


def runner(records, jobs=1, n_seeds=1, niceness=0):
    """Start a runner in a process of its own."""
    command = [sys.executable, "-c", RUNNER, toy.folder, records.folder, jobs, n_seeds, niceness]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    return subprocess.Popen(list(map(str, command)), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(condition):
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.01)


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return not Path("/proc/self/stat").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait(name):
    (toy.folder / f"wait-{name}").touch()


def go_on(name):
    (toy.folder / f"wait-{name}").unlink()


def test_finished_records_are_never_computed_again(records):
    run_tasks(tasks(records), jobs=2)
    assert sorted(toy.calls()) == [(1, 0), (2, 0), (3, 0)]
    before = [path.read_bytes() for path in sorted(records.folder.glob("*.gz"))]
    outcome = run_tasks(tasks(records), jobs=2)
    assert len(outcome.finished) == 3
    assert len(toy.calls()) == 3
    run_tasks(tasks(records, 2), jobs=1)
    assert sorted(toy.calls()[3:]) == [(1, 1), (2, 1), (3, 1)]
    assert [path.read_bytes() for path in sorted(records.folder.glob("*.gz"))][:1] == before


def test_a_record_says_what_it_comes_from(records):
    run_tasks(tasks(records)[1:2])
    [record] = records
    assert (record["setting"], record["seed"], record["values"]["x"]) == ("numbers/2", 0, 2)
    assert record["results"]["square"] == 4
    assert record["results"]["nothing"] is None, "JSON has no number for NaN"
    run = record["run"]
    assert list(run["versions"]) == ["capi", "numpy", "scipy", "scikit-learn", "numba"]
    assert len(run["code"]) == 16
    assert run["processor"]
    assert run["n_jobs"] >= 1
    assert run["cpu_seconds"] >= 0
    assert flat(record)["square"] == 4
    assert set(without_timings(record)) == {"setting", "x", "folder", "seed", "square", "nothing"}


def test_a_failing_run_is_recorded_and_does_not_stop_the_others(records):
    (toy.folder / "fail-1").touch()
    events = []
    outcome = run_tasks(tasks(records), jobs=1, report=lambda progress: events.append(str(progress)))
    assert [task.setting.name for task in outcome.failed] == ["numbers/1"]
    assert len(outcome.finished) == 2
    failed = records.find(toy.settings("quick")[0], 0)
    assert not is_finished(failed)
    assert "in run\n" in failed["error"]
    assert "ArithmeticError: cannot square 1" in failed["error"]
    assert events[-1] == "2 of 3 finished, 0 running, 1 failed, time left 0 s"
    (toy.folder / "fail-1").unlink()
    assert not run_tasks(tasks(records)).failed
    assert toy.calls() == [(1, 0), (2, 0), (3, 0), (1, 0)]
    assert is_finished(records.find(toy.settings("quick")[0], 0))


def test_a_run_that_kills_its_process_is_recorded_too(records):
    (toy.folder / "die-2").touch()
    outcome = run_tasks(tasks(records), jobs=1)
    assert [task.setting.name for task in outcome.failed] == ["numbers/2"]
    assert len(outcome.finished) == 2
    died, other = (records.find(toy.settings("quick")[i], 0) for i in (1, 2))
    assert "ended with exit code -9" in died["error"]
    assert died["run"]["code"] == other["run"]["code"]


def test_a_free_process_that_was_killed_is_replaced(records):
    def kill(progress):
        if progress.event.startswith("finished numbers/1"):
            [pid] = toy.processes()
            os.kill(pid, signal.SIGKILL)
            until(lambda: not is_alive(pid))

    outcome = run_tasks(tasks(records), jobs=1, report=kill)
    assert (len(outcome.finished), len(toy.processes())) == (3, 2)


def test_processes_that_cannot_start_are_an_error_not_a_failure_of_every_run(records, monkeypatch):
    monkeypatch.setattr(runner_module.worker, "__name__", "capi.no_such_module")
    with pytest.raises(
        CapiError, match=r"(?s)a process for runs cannot be started.*No module named capi.no_such_module"
    ):
        run_tasks(tasks(records))
    assert list(records) == []
    assert not list((records.folder / LOCKS).glob("*"))


def test_killed_and_continued(records):
    """SIGKILL in the middle of the second run: the first stays, its workers end, the rest follows."""
    wait(2)
    process = runner(records)
    until((toy.folder / "beat-2").exists)
    process.kill()
    process.communicate()
    until(lambda: not any(is_alive(pid) for pid in toy.processes()))
    assert [record["setting"] for record in records] == ["numbers/1"]
    first = records.find(toy.settings("quick")[0], 0)
    go_on(2)
    outcome = run_tasks(tasks(records))
    assert len(outcome.finished) == 3
    assert sorted(toy.calls()) == [(1, 0), (2, 0), (2, 0), (3, 0)]
    assert records.find(toy.settings("quick")[0], 0) == first
    assert not list((records.folder / LOCKS).glob("*")), "locks that were left over are gone"


def test_an_interruption_ends_the_workers_and_keeps_what_is_finished(records):
    wait(2)

    def interrupt(progress):
        if progress.event == "started numbers/2 seed 0":
            until((toy.folder / "beat-2").exists)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks(records), jobs=1, report=interrupt)
    until(lambda: not any(is_alive(pid) for pid in toy.processes()))
    assert [record["setting"] for record in records] == ["numbers/1"]


def test_two_runners_at_once_do_not_compute_the_same_record(records):
    both = [runner(records, jobs=2, n_seeds=8) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=PATIENCE)
        assert (out, err) == ("24 0\n", ""), "each ends when everything is finished"
    assert sorted(toy.calls()) == [(x, seed) for x in toy.NUMBERS for seed in range(8)]
    assert sum(map(is_finished, records)) == 24


def test_a_runner_waits_for_what_another_one_computes(records):
    wait(1)
    first = runner(records)
    until((toy.folder / "beat-1").exists)
    seen = []

    def watch(progress):
        seen.append(progress)
        if progress.n_finished == 2:
            go_on(1)

    outcome = run_tasks(tasks(records), jobs=1, report=watch)
    assert len(outcome.finished) == 3
    assert any(progress.n_elsewhere == 1 for progress in seen)
    first.communicate(timeout=PATIENCE)
    assert sorted(toy.calls()) == [(1, 0), (2, 0), (3, 0)]


def test_what_fails_elsewhere_is_not_tried_twice(records):
    (toy.folder / "fail-1").touch()
    wait(1)
    both = [runner(records) for _ in range(2)]
    until(lambda: len(list(records)) == 2)  # one waits with the first run, the other one has done the rest
    go_on(1)
    answers = [process.communicate(timeout=PATIENCE)[0] for process in both]
    assert answers == ["2 1\n", "2 1\n"]
    assert toy.calls().count((1, 0)) == 1


def test_a_killed_runner_leaves_its_run_to_another(records):
    wait(1)
    first = runner(records)
    until((toy.folder / "beat-1").exists)
    second = runner(records)
    until(lambda: len(list(records)) == 2)
    first.kill()
    first.communicate()
    go_on(1)
    assert second.communicate(timeout=PATIENCE)[0] == "3 0\n"
    assert toy.calls().count((1, 0)) == 2


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="a part of Linux that weighs sessions")
def test_low_priority_reaches_the_sessions_of_the_workers(records):
    wait(1)
    process = runner(records, niceness=7)
    until((toy.folder / "beat-1").exists)
    [pid] = toy.processes()
    lowered = min(19, os.nice(0) + 7)
    assert os.getpriority(os.PRIO_PROCESS, pid) == lowered
    assert Path(f"/proc/{pid}/autogroup").read_text().split()[-2:] == ["nice", str(lowered)]
    go_on(1)
    process.communicate(timeout=PATIENCE)


def test_while_the_pause_file_exists_nothing_runs(records, tmp_path):
    pause = tmp_path / "PAUSE"
    pause.touch()
    seen = []
    thread = threading.Thread(
        target=run_tasks,
        args=(tasks(records),),
        kwargs={"jobs": 1, "pause": pause, "report": seen.append},
        daemon=True,
    )
    thread.start()
    until(lambda: any(progress.paused for progress in seen))
    assert toy.calls() == []
    wait(1)
    pause.unlink()
    until((toy.folder / "beat-1").exists)

    def beat():
        return (toy.folder / "beat-1").read_text()

    pause.touch()
    until(lambda: beat() == (time.sleep(1.0), beat())[1])  # a run in progress stands still
    stopped = beat()
    pause.unlink()
    until(lambda: beat() != stopped)
    go_on(1)
    thread.join(timeout=PATIENCE)
    assert sum(map(is_finished, records)) == 3
    assert seen[-1].paused is False


def test_the_time_of_a_pause_does_not_count(monkeypatch):
    pause = SimpleNamespace(seconds=1.0)

    def run(values, seed, n_jobs):
        pause.seconds += 10_000.0
        return {}

    monkeypatch.setattr(toy, "run", run)
    request = {"module": toy.__name__, "function": "run", "values": {}, "seed": 0, "n_jobs": 1}
    assert compute(request, pause)["run"]["seconds"] < 0


LONG_PAUSE = """
import time
from capi.experiments import worker

class File:
    looks = 0
    def exists(self):
        self.looks += 1
        return self.looks % 3000 != 0

worker.PAUSE_CHECK = 0.0005
file = File()
pause = worker.Pause(file)
while file.looks < 6000:
    time.sleep(0.001)
print(pause.seconds > 2)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="runs in progress are paused by interval timers")
def test_a_pause_may_be_long():
    """Thousands of looks at the file in each of two pauses, as in a pause of an hour."""
    command = [sys.executable, "-c", LONG_PAUSE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_results_do_not_depend_on_the_number_of_runs_at_once(tmp_path):
    found = []
    for jobs in (1, 3):
        records = Records(tmp_path / f"records-{jobs}")
        run_tasks(tasks(records, 2), jobs=jobs)
        found.append([without_timings(record) for record in records])
    assert found[0] == found[1]


def test_progress_tells_what_is_running_and_how_long_it_takes(records):
    seen = []
    run_tasks(tasks(records), jobs=1, report=seen.append)
    assert seen[0].seconds_left is None
    assert str(seen[0]) == "0 of 3 finished, 0 running, 0 failed, time left unknown"
    assert seen[1].running == ("numbers/1 seed 0",)
    assert seen[2].event.startswith("finished numbers/1 seed 0 (")
    assert [progress.n_finished for progress in seen] == sorted(progress.n_finished for progress in seen)
    assert seen[-1].seconds_left == 0
    assert all(progress.seconds_left >= 0 for progress in seen[2:])


def test_time_left_comes_from_other_seeds_of_the_same_setting(records):
    for x, seconds in ((1, 100.0), (2, 10.0)):
        setting = toy.settings("quick")[x - 1]
        run = {"seconds": seconds, "cpu_seconds": 1.0, "finished": "2026-01-01T00:00:00+00:00"}
        records.add(
            {"setting": setting.name, "seed": 0, "values": dict(setting.values), "results": {"square": 1}, "run": run}
        )
    seen = []
    run_tasks(tasks(records, 2), jobs=1, report=seen.append)
    assert seen[0].seconds_left == pytest.approx(55 + 100 + 10 + 55), "unknown settings count as typical ones"


def test_time_left_does_not_come_from_failures(records):
    seen = []
    for x in toy.NUMBERS:
        (toy.folder / f"die-{x}").touch()
    run_tasks(tasks(records), jobs=1, report=seen.append)
    assert [progress.seconds_left for progress in seen if progress.n_failed < 3] == [None] * (len(seen) - 1)
    assert str(seen[-1]) == "0 of 3 finished, 0 running, 3 failed, time left 0 s"


def test_durations():
    assert [duration(seconds) for seconds in (0, 31, 89, 3599, 7384)] == [
        "0 s",
        "1 min",
        "1 min",
        "1 h 00 min",
        "2 h 03 min",
    ]


def test_a_number_of_jobs_that_is_none_is_refused(records):
    with pytest.raises(InvalidInputError, match="jobs must be a positive integer"):
        run_tasks(tasks(records), jobs=0)
    assert toy.calls() == []


class TestRecords:
    def record(self, x, seed=0, **outcome):
        values = {"x": x}
        return {"setting": f"numbers/{x}", "seed": seed, "values": values, "run": {}, **(outcome or {"results": {}})}

    def test_files_do_not_depend_on_the_order_of_runs(self, tmp_path):
        one, other = Records(tmp_path / "one"), Records(tmp_path / "other")
        for x in (1, 2, 3):
            one.add(self.record(x))
            other.add(self.record(4 - x))
        name = FILE.format(seed=0)
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()
        lines = gzip.decompress((one.folder / name).read_bytes()).decode().splitlines()
        assert [json.loads(line)["values"]["x"] for line in lines] == [1, 2, 3]

    def test_a_record_takes_the_place_of_an_earlier_one(self, records):
        records.add(self.record(1, error="it broke"))
        records.add(self.record(1, results={"square": 1}))
        assert [record["results"] for record in records] == [{"square": 1}]

    def test_it_is_the_values_that_count_not_the_name(self, records):
        records.add(self.record(1, results={"square": 1}))
        assert records.find(Setting("another name", {"x": 1}), 0) is not None
        assert records.find(Setting("numbers/1", {"x": 1, "y": 2}), 0) is None
        assert records.find(Setting("numbers/1", {"x": 1}), 1) is None

    @pytest.mark.parametrize(
        "content",
        [
            b"not gzip",
            gzip.compress(b"not json\n"),
            gzip.compress(b'{"setting": "a"}\n'),
            gzip.compress(b"[1, 2]\n"),
            gzip.compress(b'{"setting": "a", "seed": 0, "values": {}, "run": {}}\n'),
            gzip.compress(b'{"setting": "a", "seed": 0, "values": {}, "run": {}, "results": {}}\n')[:-9],
        ],
        ids=[
            "not gzip",
            "not json",
            "no record",
            "a list",
            "no results",
            "cut off",
        ],  # compressed bytes contain the time
    )
    def test_a_file_that_is_not_one_of_records_is_named_and_kept(self, records, content):
        path = records.folder / FILE.format(seed=0)
        path.parent.mkdir()
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"seed-000.jsonl.gz must contain one record per line"):
            records.add(self.record(1))
        assert path.read_bytes() == content


def test_the_digest_is_that_of_the_code_that_ran(tmp_path, monkeypatch):
    source = "from pathlib import Path\ndef run(values, seed, n_jobs):\n    Path(__file__).write_text('changed')\n    return {}\n"
    (tmp_path / "changed_by_its_run.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    reply = compute({"module": "changed_by_its_run", "function": "run", "values": {}, "seed": 0, "n_jobs": 1})
    assert (tmp_path / "changed_by_its_run.py").read_text() == "changed"
    assert reply["run"]["code"] == sha256(source.encode()).hexdigest()[:16]


def test_a_module_that_cannot_be_imported_is_a_failure_not_an_end():
    reply = compute({"module": "no_such_module", "function": "run", "values": {}, "seed": 0, "n_jobs": 1})
    assert "No module named 'no_such_module'" in reply["error"]
