import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from capi.errors import InvalidInputError
from capi.loss import (
    action_gap,
    expected_loss,
    gap_weighted_loss,
    greedy,
    negligible_gap,
    regrets,
    second_best_gap,
    summed_regrets,
    two_action_loss,
    zero_one_loss,
    zero_one_values,
)

Q2 = np.array([[1.0, 3.0], [2.0, 2.5], [4.0, 4.0]])
Q3 = np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]])

# Values on a grid of quarters: their sums are exact, so tests can compare for equality.
quarters = st.integers(-40, 40).map(lambda k: k / 4)


def tables(n_actions):
    return st.integers(1, 12).flatmap(lambda n: arrays(np.float64, (n, n_actions), elements=quarters))


def test_action_gap_of_two_actions_by_hand():
    np.testing.assert_array_equal(action_gap(Q2), [2.0, 0.5, 0.0])


def test_action_gap_refuses_three_actions_and_names_the_remedy():
    with pytest.raises(InvalidInputError, match="use regrets"):
        action_gap(Q3)


def test_regrets_by_hand():
    np.testing.assert_array_equal(regrets(Q3), [[2.0, 0.0, 1.0], [0.0, 0.0, 5.0]])


def test_regrets_with_masks_compare_with_the_best_allowed_action():
    allowed = [[True, False, True], [True, True, True]]
    np.testing.assert_array_equal(regrets(Q3, allowed), [[1.0, np.inf, 0.0], [0.0, 0.0, 5.0]])


def test_second_best_gap_by_hand():
    np.testing.assert_array_equal(second_best_gap(Q3), [1.0, 0.0])
    np.testing.assert_array_equal(second_best_gap([[-1.0, -5.0, -3.0, -9.0]]), [2.0])


def test_second_best_gap_looks_at_allowed_actions_and_is_infinite_if_there_is_only_one():
    allowed = [[True, True, False], [False, True, False]]
    np.testing.assert_array_equal(second_best_gap(Q3, allowed), [2.0, np.inf])
    np.testing.assert_array_equal(second_best_gap([[1.0], [2.0]]), [np.inf, np.inf])


@given(tables(2))
def test_second_best_gap_of_two_actions_is_the_action_gap(q):
    np.testing.assert_array_equal(second_best_gap(q), action_gap(q))


@given(tables(4))
def test_second_best_gap_is_the_difference_of_the_largest_two_values(q):
    ordered = np.sort(q, axis=1)
    np.testing.assert_array_equal(second_best_gap(q), ordered[:, -1] - ordered[:, -2])


def test_negligible_gap_is_one_per_cent_of_the_inner_range():
    values = np.arange(101.0)
    assert negligible_gap(values[:, None]) == pytest.approx(0.9)
    values[-1] = 1e9
    assert negligible_gap(values[:, None]) == pytest.approx(0.9), "an extreme value changes nothing"


def test_negligible_gap_counts_the_allowed_only_and_falls_back_to_the_whole_range():
    assert negligible_gap([[0.0, 1.0, 100.0]], [[True, True, False]]) == pytest.approx(0.009)
    rare = np.zeros((100, 1))
    rare[0] = 50.0
    assert negligible_gap(rare) == pytest.approx(0.5)
    assert negligible_gap(np.full((3, 2), 7.0)) == 0.0


def test_greedy_takes_the_lowest_of_equal_actions():
    np.testing.assert_array_equal(greedy(Q3), [1, 0])
    np.testing.assert_array_equal(greedy(Q3, [[True, False, True], [False, True, True]]), [2, 1])


@given(tables(4), st.data())
def test_greedy_is_the_first_of_the_largest_allowed_values(q, data):
    np.testing.assert_array_equal(greedy(q), q.argmax(axis=1))
    allowed = data.draw(arrays(np.bool_, q.shape))
    allowed[:, 2] |= ~allowed.any(axis=1)
    np.testing.assert_array_equal(greedy(q, allowed), np.where(allowed, q, -np.inf).argmax(axis=1))


def test_values_too_far_apart_are_refused_only_if_they_are_of_one_state():
    far = np.array([[1e308, 1e308], [-1e308, -1.5e308]])
    assert greedy(far).tolist() == [0, 0]
    assert gap_weighted_loss(far, [1, 1]) == 0.25e308
    for measure in (greedy, regrets, lambda q: gap_weighted_loss(q, [0, 0])):
        with pytest.raises(InvalidInputError, match=r"must not differ by more than float64 can represent; row 1"):
            measure(far * [[1.0, 1.0], [1.0, -1.0]])


def test_gap_weighted_loss_by_hand():
    assert gap_weighted_loss(Q3, [0, 2]) == (2.0 + 5.0) / 2
    assert gap_weighted_loss(Q3, [2, 1]) == 0.5
    assert gap_weighted_loss(Q3, [1, 0]) == 0.0


def test_gap_weighted_loss_weighs_rows():
    assert gap_weighted_loss(Q3, [0, 2], weights=[3.0, 1.0]) == (3 * 2.0 + 5.0) / 4


def test_two_action_loss_by_hand():
    assert two_action_loss(Q2, [0, 0, 1]) == pytest.approx(2.5 / 3)


def test_two_action_loss_weighs_rows():
    assert two_action_loss(Q2, [0, 0, 1], weights=[3.0, 1.0, 1.0]) == pytest.approx(6.5 / 5)


def test_zero_one_loss_compares_with_the_best_allowed_action():
    allowed = [[True, False, True], [True, True, True]]
    assert zero_one_loss(Q3, [2, 0], allowed=allowed) == 0.0
    assert zero_one_loss(Q3, [0, 0], allowed=allowed) == 0.5
    np.testing.assert_array_equal(zero_one_values(Q3, allowed), [[0, 0, 1], [1, 1, 0]])


def test_expected_loss_by_hand():
    assert expected_loss(Q3, [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]) == (1.0 + 5.0) / 2
    assert expected_loss(Q3, [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], weights=[3.0, 1.0]) == (3 * 1.0 + 5.0) / 4
    allowed = [[True, False, True], [True, True, True]]
    assert expected_loss(Q3, [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]], allowed=allowed) == 0.25


def test_zero_one_loss_counts_a_tie_as_right():
    assert zero_one_loss(Q3, [0, 1]) == 0.5
    assert zero_one_loss(Q3, [0, 2]) == 1.0


def test_zero_one_values_mark_every_maximiser():
    np.testing.assert_array_equal(zero_one_values(Q3), [[0, 1, 0], [1, 1, 0]])


@given(tables(2), st.randoms(use_true_random=False))
def test_two_action_form_equals_the_general_one(q, random):
    """Equation (1) is the general loss with two actions: the gap where the policy errs, else zero."""
    actions = np.array([random.randrange(2) for _ in q])
    assert two_action_loss(q, actions) == gap_weighted_loss(q, actions)


@given(tables(4), st.randoms(use_true_random=False))
def test_zero_one_values_turn_one_loss_into_the_other(q, random):
    actions = np.array([random.randrange(4) for _ in q])
    assert gap_weighted_loss(zero_one_values(q), actions) == zero_one_loss(q, actions)


@given(tables(3))
def test_least_regret_in_a_cell_is_the_largest_summed_value(q):
    """Section 3: argmin_a sum of gaps where a errs = argmin_a sum of regrets = argmax_a sum of Q."""
    sums = summed_regrets(q)
    np.testing.assert_array_equal(sums == sums.min(), q.sum(axis=0) == q.sum(axis=0).max())
    by_definition = [sum(row.max() - row[a] for row in q if row[a] != row.max()) for a in range(3)]
    np.testing.assert_array_equal(sums, by_definition)


@given(tables(3), st.randoms(use_true_random=False))
def test_adding_a_function_of_the_state_changes_no_loss(q, random):
    actions = np.array([random.randrange(3) for _ in q])
    offset = np.array([[random.randrange(-9, 9)] for _ in q], dtype=float)
    assert gap_weighted_loss(q + offset, actions) == gap_weighted_loss(q, actions)
    np.testing.assert_array_equal(greedy(q + offset), greedy(q))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gap_weighted_loss(Q3, [0]), r"actions must have shape \(2,\)"),
        (lambda: gap_weighted_loss(Q3, [0, 3]), r"actions\[1\] = 3"),
        (
            lambda: gap_weighted_loss(Q3, [0, 0], allowed=[[False, True, True], [True] * 3]),
            r"allowed.*actions\[0\] = 0",
        ),
        (lambda: greedy([[np.nan, 1.0]]), r"q_values must be finite.*q_values\[0, 0\]"),
        (
            lambda: expected_loss(Q3, [[5.0, -4.0, 0.0], [1.0, 0.0, 0.0]]),
            r"distribution over actions.*probabilities\[0\]",
        ),
        (
            lambda: expected_loss(Q3, [[0.0, 1.0, 0.0]] * 2, allowed=[[True, False, True]] * 2),
            "must be zero for actions that are not allowed",
        ),
        (lambda: greedy([1.0, 2.0]), "two dimensions"),
        (lambda: greedy(np.zeros((0, 2))), "at least one row"),
        (lambda: greedy([[1.0, 2.0]], [[False, False]]), "must allow at least one action"),
        (lambda: gap_weighted_loss(Q3, [0, 0], weights=[0.0, 0.0]), "positive, finite sum"),
        (lambda: gap_weighted_loss(Q3, [0, 0], weights=[1.0, -1.0]), r"weights\[1\] = -1"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()
