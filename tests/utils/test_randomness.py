import numpy as np
import pytest

from capi._utils.randomness import as_generator, numbered_rng, seed_sequence
from capi.errors import InvalidInputError


def test_the_same_int_gives_the_same_numbers():
    assert as_generator(7).random() == as_generator(7).random()
    assert as_generator(7).random() != as_generator(8).random()


def test_a_generator_is_used_as_it_is_and_advanced():
    rng = np.random.default_rng(0)
    assert as_generator(rng) is rng
    first, second = seed_sequence(rng), seed_sequence(rng)
    assert first.entropy != second.entropy


def test_a_step_draws_the_same_whatever_was_drawn_before():
    seeds = seed_sequence(3)
    expected = numbered_rng(seeds, 5, 1).random(4)
    for k in range(5):
        numbered_rng(seeds, k, 1).random(100)
    np.testing.assert_array_equal(numbered_rng(seeds, 5, 1).random(4), expected)
    assert numbered_rng(seeds, 5, 2).random() != expected[0]


@pytest.mark.parametrize("bad", ["seed", -1, 1.5, True])
def test_other_things_are_refused(bad):
    with pytest.raises(InvalidInputError, match="random_state must be"):
        as_generator(bad)
