"""A real scheduler with two worker processes: the same bytes as in threads, whatever happens to the workers."""

import errno
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from threading import Timer

import numpy as np
import pytest
import threadpoolctl

import toy_experiment
from capi import CAPI, PartitionedTransitions, Transitions
from capi._utils import executors
from capi._utils.executors import Cluster, completed, dask_client, ordered
from capi.domains import ChainWalk
from capi.errors import ClusterError, ClusterWarning, InvalidInputError, MissingPackageError
from capi.evaluators import LSTDQ, FittedQ, Rollouts
from capi.experiments.records import Records, without_timings
from capi.experiments.runner import Task, run_tasks
from capi.features.bases import Polynomial
from capi.offline import cross_evaluate
from capi.policies import Constant, Uniform
from capi.policy_spaces import Trees, Unrestricted
from capi.selection import choose
from scale.conftest import log
from scale.test_partitions import ROLES, table, written

SETTINGS = {
    "evaluator": FittedQ(n_trees=4, n_sweeps=2, min_samples_split=10), "space": Trees(max_depth=2), "n_iterations": 2,
    "discount": 0.9, "random_state": 0, "state_weights": "batch", "keep": "last",
}  # fmt: skip


def parts_of(batch, executor=None):
    """Return partitions of very different sizes."""
    ends = [0, 10, 1500, 1510, 1700, 1800, 2900, len(batch)]
    parts = [batch.subset(np.arange(a, b)) for a, b in pairwise(ends)]
    return PartitionedTransitions(parts, executor=executor, sample_rows=600)


def bytes_of(learner, batch):
    return learner.q_.values(batch.states).tobytes(), learner.policy_.act(batch.states).tobytes()


def kill_a_worker(client):
    pid = next(iter(client.run(os.getpid).values()))
    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def expected(batch):
    return bytes_of(CAPI(**SETTINGS).fit(parts_of(batch)), batch)


def test_a_cluster_gives_the_same_bytes_as_threads(batch, client, expected):
    assert bytes_of(CAPI(**SETTINGS).fit(parts_of(batch, client)), batch) == expected


def test_a_worker_that_dies_in_the_middle_of_a_sweep_changes_nothing(batch, client, expected, monkeypatch):
    part = parts_of(batch, client)
    each, calls = part.crew.each, []

    def counted(*arguments):
        calls.append(1)
        handles = each(*arguments)
        if len(calls) == 7:
            kill_a_worker(client)
        return handles

    monkeypatch.setattr(part.crew, "each", counted)
    assert bytes_of(CAPI(**SETTINGS).fit(part), batch) == expected
    assert len(calls) > 7


def test_what_all_workers_need_survives_all_workers(client):
    crew = Cluster(client)
    handle = crew.shared({"big": np.arange(10.0)})
    assert crew.results(crew.each(_total, [1, 2], handle)) == [46.0, 47.0]
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    assert crew.results(crew.each(_total, [1, 2, 3], handle)) == [46.0, 47.0, 48.0]


def _total(part, shared):
    return part + shared["big"].sum()


def test_files_and_frames_are_read_by_the_workers(tmp_path, client):
    frame = table(60)
    folder = written(frame, tmp_path, [77, 200])
    whole = Transitions.from_frame(frame, **ROLES)
    import dask.dataframe as dd

    of_files = PartitionedTransitions.from_parquet(folder, rows_per_partition=50, executor=client, **ROLES)
    of_frame = PartitionedTransitions.from_dask(dd.from_pandas(frame, npartitions=3), executor=client, **ROLES)
    expected = PartitionedTransitions.of(whole, 100).sample(100, random_state=0)
    assert of_files.sample(100, random_state=0) == of_frame.sample(100, random_state=0) == expected
    assert sum(of_files.each(len)) == len(whole)


FRAMES = {
    "persisted": lambda frame: frame.persist(),
    "shuffled": lambda frame: frame.shuffle(on="unit"),
    "shuffled by tasks": lambda frame: frame.shuffle(on="unit", shuffle_method="tasks"),
    "shuffled and persisted": lambda frame: frame.shuffle(on="unit").persist(),
    "indexed": lambda frame: frame.set_index("unit"),
    "filtered": lambda frame: frame[frame["day"] >= 0],
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_whose_partitions_need_the_scheduler(client, name):
    import dask.dataframe as dd

    frame = table(30, 10)
    given = FRAMES[name](dd.from_pandas(frame, npartitions=4))
    whole = PartitionedTransitions.of(Transitions.from_frame(frame, **ROLES), 100)
    for executor in (client, None):
        found = PartitionedTransitions.from_dask(given, executor=executor, **ROLES)
        assert found.sample(50, random_state=0) == whole.sample(50, random_state=0)
        assert sum(found.each(len)) == len(frame)
        assert len(found.load(0)) == found.each(len)[0]
        assert len(found.split(0.5, random_state=0)[0].sample(1000, random_state=0)) < len(frame)


def test_kept_partitions_survive_a_worker(client):
    import dask.dataframe as dd

    frame = table(30, 10)
    found = PartitionedTransitions.from_dask(
        dd.from_pandas(frame, npartitions=4).shuffle(on="unit"), executor=client, **ROLES
    )
    before = found.sample(50, random_state=0)
    kill_a_worker(client)
    assert found.sample(50, random_state=0) == before
    assert sum(found.each(len)) == len(frame)


def test_moments_and_errors_come_back_from_workers(batch, client, tmp_path):
    evaluator, policy = LSTDQ(Polynomial(2)), Constant(1, 3)
    found = evaluator.evaluate(policy, parts_of(batch, client), discount=0.9).values(batch.states)
    here = evaluator.evaluate(policy, parts_of(batch), discount=0.9).values(batch.states)
    assert found.tobytes() == here.tobytes()
    learners = [
        CAPI(LSTDQ(Polynomial(1), n_sweeps=2), Unrestricted(), 0.9, 2, random_state=0, keep="last").fit(parts)
        for parts in (parts_of(batch, client), parts_of(batch))
    ]
    assert learners[0].q_.weights.tobytes() == learners[1].q_.weights.tobytes()
    frame = table()
    frame.loc[120, "gain"] = np.inf
    part = PartitionedTransitions.from_parquet(written(frame, tmp_path, [100]), executor=client, **ROLES)
    with pytest.raises(InvalidInputError, match="column 'gain', row"):
        part.sample()


def refuse(batch, path):
    with open(path, "a") as file:
        file.write("x")
    raise InvalidInputError("row 3 is bad")


def test_a_task_that_fails_is_not_tried_again(batch, client, tmp_path):
    part = PartitionedTransitions([batch], executor=client)
    with pytest.raises(InvalidInputError, match="row 3 is bad"):
        part.each(refuse, str(tmp_path / "calls"))
    assert (tmp_path / "calls").read_text() == "x"


@pytest.mark.parametrize(
    ("kind", "said"),
    [("KilledWorker", "Use smaller partitions"), ("CommClosedError", r"scheduler at tcp://10\.0\.0\.1:1 was lost")],
)
def test_what_a_cluster_loses_is_explained(kind, said):
    class Client:
        scheduler = type("Scheduler", (), {"address": "tcp://10.0.0.1:1"})

        def gather(self, futures):
            raise type(kind, (OSError,), {})("low-level words")

        def submit(self, *arguments, **options):
            return self

        def result(self):
            return self.gather([])

    crew = Cluster(Client())
    for call in (lambda: crew.results([1]), lambda: crew.merged(max, [1, 2])):
        with pytest.raises(ClusterError, match=said):
            call()


def test_workers_that_do_not_come_are_not_waited_for_for_ever(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(executors, "WAIT_SECONDS", 0.5)
    with (
        distributed.LocalCluster(
            n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
        ) as none,
        distributed.Client(none) as client,
    ):
        crew = Cluster(client)
        for call in (
            lambda: crew.results(crew.each(_total, [1], {"big": np.ones(1)})),
            lambda: crew.merged(max, crew.each(_total, [1, 2], {"big": np.ones(1)})),
            lambda: list(completed(slow, [(1, 0)], client)),
        ):
            with (
                pytest.warns(ClusterWarning, match=r"no workers at tcp://127\.0\.0\.1:\d+; waiting up to 0\.5 s"),
                pytest.raises(ClusterError, match=r"had no workers for 0\.5 s"),
            ):
                call()


def test_a_closed_client_is_named(batch, client):
    import distributed

    other = distributed.Client(client.scheduler.address)
    part = PartitionedTransitions([batch], executor=other)
    other.close()
    for call in (part.sample, lambda: list(completed(slow, [(1, 0)], other))):
        with pytest.raises(ClusterError, match="the Dask client is closed"):
            call()


def two_blas_threads():
    threadpoolctl.threadpool_limits(limits=2, user_api="blas")


def blas_threads(*_):
    return max(
        (pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"), default=1
    )


def test_tasks_run_with_one_blas_thread(batch, client):
    on_each_worker(client, two_blas_threads)
    assert set(client.run(blas_threads).values()) == {2}
    try:
        assert parts_of(batch, client).each(blas_threads) == [1] * 7
        assert [n for _, n in completed(blas_threads, [(i,) for i in range(4)], client)] == [1] * 4
        assert set(client.run(blas_threads).values()) == {2}
    finally:
        on_each_worker(client, one_blas_thread_again)


def on_each_worker(client, function):
    """Run a function in the thread of the tasks: threadpoolctl lets one thread at a time set the limit."""
    for address in client.nthreads():
        client.submit(function, workers=[address], pure=False).result()


def one_blas_thread_again():
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")


def no_space(batch):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_of_a_worker_is_explained(batch, client):
    """As Dask raises it in a task if what it spills does not fit."""
    with pytest.raises(ClusterError, match=r"a disk is full on a worker \(.*No space left.*--local-directory"):
        PartitionedTransitions([batch], executor=client).each(no_space)


def test_without_dask_the_option_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPackageError, match=r"Install capi\[dask\]"), dask_client("local"):
        pass


def slow(i, seconds):
    time.sleep(seconds if i == 0 else 0)
    return i


def waits_if_first(i, folder):
    """Task 0 ends when the five others have ended, or after a minute."""
    if i:
        (folder / str(i)).touch()
    else:
        ends = time.monotonic() + 60
        while len(list(folder.iterdir())) < 5 and time.monotonic() < ends:
            time.sleep(0.05)
    return i


def test_a_slow_task_does_not_hold_up_the_others(client, tmp_path):
    folder = tmp_path / "ended"
    folder.mkdir()
    order = [i for i, _ in completed(waits_if_first, [(i, folder) for i in range(6)], client)]
    assert sorted(order) == list(range(6))
    assert order[0] != 0
    assert len(list(folder.iterdir())) == 5
    assert list(ordered(slow, [(i, 0.2) for i in range(4)], client)) == [0, 1, 2, 3]


@pytest.fixture(autouse=True)
def obeyed(tmp_path, monkeypatch):
    """The folder whose files the runs of the toy experiment obey."""
    (tmp_path / "obeyed").mkdir()
    monkeypatch.setattr(toy_experiment, "folder", tmp_path / "obeyed")


def tasks(folder, n_seeds=4):
    records = Records(folder)
    return [
        Task(toy_experiment, setting, seed, records)
        for seed in range(n_seeds)
        for setting in toy_experiment.settings("quick")
    ]


def test_an_experiment_survives_a_worker(tmp_path, client):
    here, there = tmp_path / "here", tmp_path / "there"
    run_tasks(tasks(here), jobs=1)
    seen = []

    def report(progress):
        if "finished" in progress.event:
            seen.append(1)
            if len(seen) == 2:
                kill_a_worker(client)

    outcome = run_tasks(tasks(there), executor=client, report=report)
    assert not outcome.failed

    def comparable(folder):
        return sorted((r["setting"], r["seed"], str(without_timings(r))) for r in Records(folder))

    assert comparable(there) == comparable(here)


def test_an_interrupted_experiment_keeps_its_records(tmp_path):
    def report(progress):
        if "finished" in progress.event:
            raise KeyboardInterrupt

    folder = tmp_path / "records"
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            run_tasks(tasks(folder), executor=pool, report=report)
        assert len(list(Records(folder))) == 1
        assert not run_tasks(tasks(folder), executor=pool).failed
    assert len(list(Records(folder))) == len(tasks(folder)) == len(set(toy_experiment.calls()))


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")  # so few episodes prove nothing
@pytest.mark.parametrize("executor", ["threading", "pool", "dask"])
def test_selection_and_cross_evaluation_do_not_depend_on_where_they_run(client, executor):
    batch = log(40, 3, seed=2)
    learner = CAPI(FittedQ(n_trees=3, n_sweeps=2), Trees(max_depth=1), 0.9, 2, random_state=0)
    candidates = {"one": learner, "two": CAPI(FittedQ(n_trees=3), Trees(max_depth=2), 0.9, 2, random_state=0)}
    with ThreadPoolExecutor(2) as pool:
        there = {"threading": "threading", "pool": pool, "dask": client}[executor]
        chosen = choose(batch, 0.9, candidates=candidates, executor=there)
        found = cross_evaluate(learner, batch, n_folds=2, n_resamples=20, executor=there)
    here = choose(batch, 0.9, candidates=candidates)
    assert [(t.name, t.value) for t in chosen.selection_.tried] == [(t.name, t.value) for t in here.selection_.tried]
    assert chosen.policy_.act(batch.states).tobytes() == here.policy_.act(batch.states).tobytes()
    assert str(found) == str(cross_evaluate(learner, batch, n_folds=2, n_resamples=20))


@dataclass(frozen=True)
class Slow(Uniform):
    """Decides at random, and takes its time."""

    n_actions: int = 2

    def probabilities(self, states, allowed=None):
        time.sleep(0.2)
        return super().probabilities(states, allowed)


def test_rollouts_on_a_cluster_survive_a_worker(client):
    def run(executor, policy):
        rollouts = Rollouts(ChainWalk(), n_rollouts=20, horizon=3, executor=executor)
        q = rollouts.evaluate(policy, None, discount=0.9, states=np.arange(200.0)[:, None])
        return q.table.tobytes(), q.counts.tolist(), q.n_transitions

    here = run("sequential", Uniform(2))
    assert here[2] == 200 * 2 * 20 * 3
    assert run(client, Uniform(2)) == here
    killer = Timer(0.3, kill_a_worker, [client])
    killer.start()
    assert run(client, Slow()) == here
    killer.join()


def test_an_executor_that_is_none_is_refused():
    with pytest.raises(InvalidInputError, match="executor must be"):
        list(completed(slow, [(0, 0)], executor=3))
    with pytest.raises(InvalidInputError, match="executor must be"):
        list(completed(slow, [(0, 0)], executor="no such backend"))


def test_a_client_that_goes_away_leaves_the_cluster_usable(batch, client, expected):
    import distributed

    with distributed.Client(client.scheduler.address) as other:
        part = parts_of(batch, other)
        next(CAPI(**SETTINGS).iterate(part))
    assert bytes_of(CAPI(**SETTINGS).fit(parts_of(batch, client)), batch) == expected


def spilled(dask_worker):
    return len(dask_worker.data.slow)


def test_what_does_not_fit_is_spilled_to_disk(batch, expected):
    import dask
    import distributed

    with (
        dask.config.set({"distributed.worker.memory.target": 1e-5}),  # of the limit: ten kilobytes
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit="1GiB",
        ) as cluster,
        distributed.Client(cluster) as small,
    ):
        rounds = CAPI(**SETTINGS).iterate(parts_of(batch, small))
        next(rounds)
        assert max(small.run(spilled).values()) > 0
        assert bytes_of(CAPI(**SETTINGS).fit(parts_of(batch, small)), batch) == expected
