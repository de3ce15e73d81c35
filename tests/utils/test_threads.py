import threading
import time

import pytest

from capi._utils.threads import in_threads


@pytest.mark.parametrize("n_jobs", [1, 2, 7])
def test_results_come_in_the_order_of_the_pieces(n_jobs):
    assert in_threads(lambda i: i * i, list(range(50)), n_jobs) == [i * i for i in range(50)]


def test_several_threads_work_at_once():
    both_are_here = threading.Barrier(2, timeout=300)
    assert in_threads(lambda _: both_are_here.wait() >= 0, [1, 2], 2) == [True, True]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_error_reaches_the_caller_and_ends_the_work(n_jobs):
    done = []

    def work(i):
        if i == 5:
            raise ValueError("the fifth")
        if i > 5:
            time.sleep(0.001)  # the other threads cannot do everything before this one is heard
        done.append(i)

    with pytest.raises(ValueError, match="the fifth"):
        in_threads(work, list(range(100_000)), n_jobs)
    assert len(done) < 100_000 - 1
