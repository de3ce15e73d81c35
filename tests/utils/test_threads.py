import threading
import time

import numpy as np
import pytest
import threadpoolctl

from capi._utils.threads import _openmp, in_threads, one_blas_thread, openmp_threads_for


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


def test_blas_has_one_thread_until_the_last_of_overlapping_blocks_ends():
    def n_blas_threads():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        before, first, second = n_blas_threads(), one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(n_blas_threads()) <= {1}
        second.__exit__(None, None, None)
        assert n_blas_threads() == before


def test_few_rows_are_handled_by_one_thread_of_openmp():
    import sklearn.ensemble  # noqa: F401  loads OpenMP

    _openmp.cache_clear()  # other tests may have loaded other libraries since

    def most():
        return max(
            library["num_threads"] for library in threadpoolctl.ThreadpoolController().select(user_api="openmp").info()
        )

    before = most()
    with openmp_threads_for(1_000):
        assert most() == 1
    with openmp_threads_for(1_000_000):
        assert most() == before
    assert most() == before
