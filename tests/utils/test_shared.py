"""Parts that learners have in common: made once in a block, never mixed up."""

import threading

import numpy as np
import pytest

from capi._utils.shared import shared, sharing


class Counter:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.calls


def test_outside_of_a_block_everything_is_made_each_time():
    assert [shared(make, "batch") for make in [Counter()] * 2] == [1, 2]
    with sharing(enabled=False):
        assert [shared(make, "batch") for make in [Counter()] * 2] == [1, 2]


def test_in_a_block_a_part_is_made_once():
    make, batch = Counter(), object()
    with sharing():
        assert [shared(make, batch, "name", 3) for _ in range(3)] == [1, 1, 1]
    with sharing():
        assert shared(make, batch, "name", 3) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "b"),
        (1, 1.0),  # equal numbers that may mean different things, as in max_features
        (np.random.SeedSequence(0), np.random.SeedSequence(1)),
        (np.random.SeedSequence(0), np.random.SeedSequence(0, spawn_key=(1,))),
    ],
)
def test_other_settings_are_other_parts(one, other):
    make, batch = Counter(), object()
    with sharing():
        assert [shared(make, batch, setting) for setting in (one, other, one)] == [1, 2, 1]


def test_equal_seeds_are_the_same_setting():
    make, batch = Counter(), object()
    with sharing():
        assert [shared(make, batch, np.random.SeedSequence(5)) for _ in range(2)] == [1, 1]


def test_equal_batches_are_different_batches():
    make = Counter()
    with sharing():
        assert [shared(make, np.zeros(3)) for _ in range(20)] == list(range(1, 21))


def test_settings_without_a_hash_are_not_shared():
    make, batch = Counter(), object()
    with sharing():
        assert [shared(make, batch, [3]) for _ in range(2)] == [1, 2]


def test_a_part_that_cannot_be_made_is_tried_again():
    batch = object()
    with sharing():
        with pytest.raises(ZeroDivisionError):
            shared(lambda: 1 / 0, batch)
        assert shared(lambda: 1, batch) == 1


def test_a_block_in_another_one_has_its_parts():
    make, batch = Counter(), object()
    with sharing():
        with sharing():
            shared(make, batch)
        assert shared(make, batch) == 1
        with sharing(enabled=False):
            assert shared(make, batch) == 2
        assert shared(make, batch) == 1
    assert shared(make, batch) == 3


def test_a_block_ends_with_an_error():
    make, batch = Counter(), object()

    def fails():
        with sharing():
            shared(make, batch)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert shared(make, batch) == 2


def test_other_threads_make_their_own():
    make, batch = Counter(), object()
    with sharing():
        shared(make, batch)
        other = threading.Thread(target=shared, args=(make, batch))
        other.start()
        other.join()
    assert make.calls == 2
