import threading
import warnings
from time import sleep

import pytest

from capi._utils.own_filters import NEEDLESS, own_filters


def test_filters_are_restored_even_if_emptied_in_place():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        before = list(warnings.filters)
        with own_filters():
            warnings.filters[:] = []
        assert list(warnings.filters) == before


def test_only_the_needless_warning_is_dropped():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with own_filters():
            warnings.warn(NEEDLESS + " a class", UserWarning, stacklevel=1)
            warnings.warn("the fit did not converge", RuntimeWarning, stacklevel=1)
    assert [str(one.message) for one in caught] == ["the fit did not converge"]


def test_an_ignored_warning_stays_ignored():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        with own_filters():
            warnings.warn("the fit did not converge", RuntimeWarning, stacklevel=1)
    assert caught == []


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_is_raised():
    with pytest.raises(RuntimeWarning, match="converge"), own_filters():
        warnings.warn("the fit did not converge", RuntimeWarning, stacklevel=1)


def test_blocks_of_threads_do_not_overlap():
    inside, most = 0, 0

    def fit():
        nonlocal inside, most
        for _ in range(50):
            with own_filters():
                inside += 1
                most = max(most, inside)
                sleep(0)
                inside -= 1

    before = list(warnings.filters)
    threads = [threading.Thread(target=fit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert list(warnings.filters) == before
