import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import naive
from capi.errors import InvalidInputError
from capi.policy_spaces import Thresholds
from capi.policy_spaces.thresholds import _best_cut
from capi.testing import check_policy_space

small_problems = st.tuples(st.integers(1, 8), st.integers(1, 3), st.integers(1, 4)).flatmap(
    lambda size: st.tuples(
        arrays(np.float64, size[:2], elements=st.integers(0, 4).map(float)),
        arrays(np.float64, (size[0], size[2]), elements=st.integers(-4, 4).map(float)),
        arrays(np.float64, size[0], elements=st.integers(1, 3).map(float)),
    )
)


def chosen(policy):
    return policy.feature, policy.cut, policy.low, policy.high


def test_keeps_the_contract():
    check_policy_space(Thresholds())
    check_policy_space(Thresholds(feature=1))


@settings(max_examples=400, deadline=None)
@given(small_problems)
def test_finds_the_least_loss_of_all(problem):
    states, q_values, weights = problem
    policy = Thresholds().improve(states, q_values, weights=weights)
    found = naive.policy_loss(q_values, policy.act(states), weights)
    assert found == naive.best_threshold(states, q_values, weights)


@settings(max_examples=200, deadline=None)
@given(small_problems, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(problem, random):
    states, q_values, weights = problem
    order = np.array(random.sample(range(len(states)), len(states)))
    one = Thresholds().improve(states, q_values, weights=weights)
    other = Thresholds().improve(states[order], q_values[order], weights=weights[order])
    assert chosen(one) == chosen(other)


@settings(max_examples=200, deadline=None)
@given(small_problems, st.integers(-5, 5))
def test_a_function_of_the_state_and_a_scale_do_not_matter(problem, k):
    states, q_values, _ = problem
    offset = k * states[:, :1] ** 2
    assert chosen(Thresholds().improve(states, q_values)) == chosen(Thresholds().improve(states, 4 * q_values + offset))


@settings(max_examples=100, deadline=None)
@given(small_problems)
def test_a_weight_is_a_number_of_copies(problem):
    states, q_values, weights = problem
    copies = weights.astype(int)
    weighted = Thresholds().improve(states, q_values, weights=weights)
    repeated = Thresholds().improve(np.repeat(states, copies, axis=0), np.repeat(q_values, copies, axis=0))
    assert chosen(weighted) == chosen(repeated)


X = np.arange(4, dtype=float)[:, None]


def test_without_gaps_the_lowest_constant_action_wins():
    assert chosen(Thresholds().improve(X, np.zeros((4, 3)))) == (0, np.inf, 0, 0)


def test_a_constant_policy_beats_a_cut_of_the_same_loss():
    q = np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    assert chosen(Thresholds().improve(X, q)) == (0, np.inf, 1, 1)


def test_the_lowest_cut_wins_among_equal_ones():
    q = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    assert chosen(Thresholds().improve(X, q)) == (0, 0.5, 0, 1)


def test_the_lowest_action_on_the_low_side_wins_among_equal_ones():
    q = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [9.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    assert chosen(Thresholds().improve(X, q)) == (0, 1.5, 1, 0)


def test_the_lowest_feature_wins_among_equal_ones():
    q = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert Thresholds().improve(np.hstack([X, X, X]), q).feature == 0


def test_differences_at_rounding_are_ties():
    """A constant within 1e-12 of the total gap of the best cut is as good as that."""
    q = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1e-13]])
    assert chosen(Thresholds().improve(X, q)) == (0, np.inf, 0, 0)


TINY = 1e-13  # below 1e-12 of the total gap of these problems


def test_cuts_that_differ_at_rounding_are_ties():
    """The second cut is better by a hair; the lowest wins."""
    q = np.array([[1.0, 0.0], [TINY, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert chosen(Thresholds().improve(X, q)) == (0, 0.5, 0, 1)


def test_features_that_differ_at_rounding_are_ties():
    """The second feature separates all rows, the first all but a hair; the lowest wins."""
    q = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [TINY, 0.0]])
    states = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    assert chosen(Thresholds(feature=1).improve(states, q))[0] == 1
    assert chosen(Thresholds().improve(states, q)) == (0, 1.5, 0, 1)


def test_pairs_of_actions_that_differ_at_rounding_are_ties():
    """On the low side action 1 is better than action 0 by a hair; the lowest wins."""
    q = np.array([[1.0, 1.0 + TINY, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 5.0]])
    assert chosen(Thresholds().improve(X, q)) == (0, 1.5, 0, 2)


def test_a_cut_without_loss_has_exactly_none():
    """Sums of zeros on either side stay zero, whatever was added up on the other."""
    rng = np.random.default_rng(0)
    x = np.arange(500.0)
    gaps = rng.random(500)
    loss = np.where(x < 200, [np.zeros(500), gaps], [gaps, np.zeros(500)])
    assert _best_cut(x, loss, 0, 0.0, 0).loss == 0.0


def test_the_cut_lies_between_neighbours_even_where_no_middle_exists():
    low, high = 1.0, np.nextafter(1.0, 2.0)
    states = np.array([[low], [high]])
    policy = Thresholds().improve(states, np.array([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(policy.act(states), [0, 1])
    huge = np.array([[-1.7e308], [1.7e308]])
    policy = Thresholds().improve(huge, np.array([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(policy.act(huge), [0, 1])


def test_a_chosen_feature_is_the_only_one_cut():
    q = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    states = np.hstack([X, X[::-1] * 10, np.zeros((4, 1))])
    assert chosen(Thresholds(feature=1).improve(states, q)) == (1, 15.0, 1, 0)
    assert chosen(Thresholds(feature=2).improve(states, q)) == (2, np.inf, 0, 0)


def test_rules_state_the_very_policy():
    """Large values that differ late: the printed cut must separate them too."""
    states = np.array([[1700000000.1], [1700000000.2], [1700000000.6], [1700000000.9]])
    policy = Thresholds().improve(states, np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    assert policy.rules() == "if x0 <= 1700000000.4: 0\nelse: 1"


def test_cuts_are_round_numbers():
    policy = Thresholds().improve(np.array([[36.6], [36.7]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert policy.cut == 36.65
    policy = Thresholds().improve(np.array([[1.0], [4.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert policy.cut == 2.0, "the shortest number inside, not the middle"
    policy = Thresholds().improve(np.array([[12.0], [90.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert policy.cut == 50.0, "51, to one digit"


def test_rules_speak():
    policy = Thresholds().improve(X, np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 5.0], [0.0, 5.0]]))
    assert policy.rules() == "if x0 <= 1.5: 0\nelse: 1"
    assert Thresholds().improve(X, np.zeros((4, 2))).rules() == "always 0"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Thresholds().improve(X, np.zeros((3, 2))), "one row per state: 4 rows"),
        (
            lambda: Thresholds().improve(np.full((2, 1), np.nan), np.zeros((2, 2))),
            r"states\[:, 0\] must not be missing",
        ),
        (lambda: Thresholds(feature=3).improve(X, np.zeros((4, 2))), "feature must lie in 0..0; got 3"),
        (lambda: Thresholds(feature="x"), "feature must be an integer"),
        (lambda: Thresholds().improve(X, np.array([[1e308, 0.0]] * 4)), "finite sum"),
        (lambda: Thresholds(monotone={0: 2}), "columns to 1 or -1"),
        (lambda: Thresholds(monotone={3: 1}).improve(X, np.zeros((4, 2))), r"column 3, but states have shape \(n, 1\)"),
        (
            lambda: Thresholds(monotone={0: 1}).improve(X, np.zeros((4, 2)), allowed=[[True, False]] * 4),
            "cannot be guaranteed with masks",
        ),
        (lambda: Thresholds().improve(X, np.zeros((4, 2))).act(np.zeros((1, 2))), "must have 1 columns"),
        (lambda: Thresholds().improve(X, np.full((4, 2), np.nan)), "q_values must be finite"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


@pytest.mark.parametrize("direction", [1, -1])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_monotone_is_the_best_of_all_monotone_ones(direction, seed):
    rng = np.random.default_rng(seed)
    states, q = rng.integers(0, 5, size=(12, 2)).astype(float), rng.normal(size=(12, 3))
    policy = Thresholds(monotone={0: direction}).improve(states, q)
    least = np.inf
    for j in (0, 1):
        for cut in (-np.inf, *np.unique(states[:, j])):
            for low in range(3):
                for high in range(3):
                    if j == 1 or (high - low) * direction >= 0:
                        actions = np.where(states[:, j] <= cut, low, high)
                        least = min(least, naive.policy_loss(q, actions, np.ones(12)))
    assert naive.policy_loss(q, policy.act(states), np.ones(12)) == pytest.approx(least)
    if policy.feature == 0:
        assert (policy.high - policy.low) * direction >= 0


def test_masks_are_kept_and_the_next_best_action_is_played():
    states = np.arange(4.0)[:, None]
    q = np.array([[9.0, 5.0, 0.0], [9.0, 5.0, 0.0], [0.0, 5.0, 9.0], [0.0, 5.0, 9.0]])
    allowed = np.ones((4, 3), dtype=bool)
    allowed[1, 0] = False
    policy = Thresholds().improve(states, q, allowed=allowed)
    np.testing.assert_array_equal(policy.act(states, allowed), [0, 1, 2, 2])
    assert policy.rules() == "if x0 <= 1.5: 0, else 1, else 2\nelse: 2, else 1, else 0"
    with pytest.raises(InvalidInputError, match="learned with masks"):
        policy.act(states)
