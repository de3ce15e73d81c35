import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capi import Transitions
from capi.errors import InvalidInputError
from capi.testing import random_batch


def small(**changes):
    columns = {
        "states": [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]],
        "actions": [0, 1, 1, 2],
        "rewards": [0.0, 1.0, -1.0, 2.0],
        "next_states": [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0], [4.0, 5.0]],
        "terminated": [False, True, False, False],
        "episodes": [5, 5, 9, 9],
    }
    return Transitions(**{**columns, **changes})


def test_knows_its_sizes():
    batch = small()
    assert (len(batch), batch.n_features, batch.n_actions, batch.n_episodes) == (4, 2, 3, 2)
    np.testing.assert_array_equal(batch.episode_lengths, [2, 2])


def test_number_of_actions_comes_from_the_argument_else_the_labels_else_the_data():
    assert small(n_actions=7).n_actions == 7
    assert small(action_labels=["a", "b", "c", "d"]).n_actions == 4
    assert small().n_actions == 3


def test_repr_says_what_was_understood():
    text = repr(small(feature_names=["age", "dose"], action_labels=["none", "half", "full"]))
    assert text.splitlines() == [
        "Transitions: 4 rows, 2 features, 3 actions",
        "  features    age, dose",
        "  actions     none 1 (25.0 %), half 2 (50.0 %), full 1 (25.0 %)",
        "  episodes    2, each of 2 rows",
        "  rewards     -1 to 2, mean 0.5",
        "  terminated  1 row (25.0 %)",
    ]


def test_repr_tells_missing_values_and_extra_columns():
    batch = small(states=[[np.nan, 1.0]] + [[0.0, 1.0]] * 3, weights=[1.0] * 4, episodes=None)
    assert "1 row with NaN in the state" in repr(batch)
    assert "also        weight" in repr(batch)
    assert "each row counts as its own episode" in repr(batch)


def test_cannot_be_changed_in_any_way():
    states = np.zeros((4, 2))
    view = np.zeros((4, 2))[:]
    view.flags.writeable = False
    batch = small(states=states, next_states=view)
    states[0] = 7.0
    assert batch.states[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        batch.states[0] = 7.0
    with pytest.raises(AttributeError):
        batch.rewards = np.ones(4)
    base = np.zeros((4, 2))
    alias = base[:]
    base.flags.writeable = False
    batch = small(states=base)
    alias[0] = 99.0
    assert batch.states[0, 0] == 0.0
    for copied in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch)), batch.subset([0, 1])):
        assert not copied.states.flags.writeable


def test_equality_compares_everything_and_nan_equals_nan():
    missing = [[np.nan, 1.0]] * 4
    assert small() == small()
    assert small(states=missing) == small(states=missing)
    assert small() != small(rewards=[0.0, 1.0, -1.0, 3.0])
    assert small() != small(action_labels=["a", "b", "c"])
    assert small() != small(weights=[1.0] * 4)
    assert small() != "something else"
    with pytest.raises(TypeError):
        hash(small())


def test_subset_takes_a_mask_or_row_numbers():
    by_mask, by_number = small().subset([True, True, False, False]), small().subset([0, 1])
    assert by_mask == by_number
    assert by_mask.n_actions == 3, "the actions stay, even those that no chosen row has"


def test_subset_refuses_to_tear_an_episode_apart():
    for rows in ([0, 2, 1], [1, 0], [0, 0]):
        with pytest.raises(InvalidInputError, match="rows must increase in a batch with episodes"):
            small().subset(rows)
    assert len(small(episodes=None).subset([3, 0, 0])) == 3


def test_split_shares_no_episode_and_loses_no_row():
    batch = random_batch(n_episodes=30)
    train, test = batch.split(0.7, random_state=3)
    assert train.n_episodes == 21
    assert test.n_episodes == 9
    assert not set(train.episodes) & set(test.episodes)
    assert len(train) + len(test) == len(batch)


def test_split_is_reproducible():
    batch = random_batch()
    assert batch.split(random_state=1) == batch.split(random_state=1)
    assert batch.split(random_state=1) != batch.split(random_state=2)


def test_split_without_episodes_draws_rows():
    first, second = small(episodes=None).split(0.5, random_state=0)
    assert len(first) == len(second) == 2


def test_concat_puts_back_together_what_was_taken_apart():
    batch = random_batch()
    half = len(batch) // 2
    start = int(np.flatnonzero(np.diff(batch.episodes))[half // 3]) + 1
    rows = np.arange(len(batch))
    assert Transitions.concat([batch.subset(rows[:start]), batch.subset(rows[start:])]) == batch


def test_concat_of_rounds_with_the_same_numbers_needs_new_ones():
    with pytest.raises(InvalidInputError, match=r"episode 5 is in batches\[0\] and in batches\[1\].*renumber_episodes"):
        Transitions.concat([small(), small()])
    both = Transitions.concat([small(), small()], renumber_episodes=True)
    np.testing.assert_array_equal(both.episodes, [0, 0, 1, 1, 2, 2, 3, 3])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rewards": [0.0, np.nan, 0.0, 0.0]}, r"rewards must be finite; 1 of 4.*rewards\[1\] = nan"),
        ({"rewards": [0.0, 0.0, np.inf, 0.0]}, r"rewards\[2\] = inf"),
        ({"rewards": [0.0, 0.0, 0.0]}, r"rewards must have shape \(4,\) to match the rows of states; got \(3,\)"),
        ({"rewards": [0.0, "high", 0.0, 0.0]}, r"rewards must be numbers.*rewards\[1\] = 'high'"),
        ({"actions": [0, 1, 1, -1]}, r"actions must lie in 0..1.*actions\[3\] = -1"),
        ({"actions": [1, 1, 2, 3], "n_actions": 3}, r"actions\[3\] = 3.*coded 1..3, subtract 1"),
        ({"actions": [0, 1, 1.5, 2]}, r"whole numbers.*actions\[2\] = 1.5"),
        ({"states": np.full((4, 2), np.inf)}, r"states must not be infinite.*states\[0, 0\]"),
        ({"states": [0.0, 1.0, 2.0, 3.0]}, r"states must have two dimensions.*reshape\(-1, 1\)"),
        ({"states": [[0.0], [1.0, 2.0], [2.0], [3.0]]}, "unequal lengths"),
        ({"states": np.zeros((0, 2))}, "at least one row"),
        ({"states": np.zeros((4, 0))}, "at least one column"),
        ({"next_states": np.zeros((4, 3))}, "next_states must have 2 columns"),
        ({"terminated": [0, 1, 2, 0]}, r"terminated must be booleans.*terminated\[2\] = 2"),
        ({"terminated": [True, False, False, False]}, r"not continue after a terminated row.*episodes\[0\] = 5"),
        ({"episodes": [5, 9, 5, 9], "terminated": [False] * 4}, r"must be contiguous; episodes\[2\] = 5"),
        ({"propensities": [0.5, 0.0, 0.5, 1.0]}, r"propensities must lie in \(0, 1\].*propensities\[1\]"),
        ({"weights": [1.0, -2.0, 1.0, 1.0]}, r"weights must not be negative.*weights\[1\] = -2"),
        ({"allowed": [[True, False, True]] * 4}, r"actions must be allowed.*actions\[1\] = 1"),
        ({"next_allowed": [[False] * 3] * 4}, "next_allowed must allow an action unless the row terminates"),
        ({"n_actions": 0}, "n_actions must be an integer, at least 1"),
        ({"action_labels": ["a", "b", "a"]}, r"action_labels must be distinct; action_labels\[2\] = 'a'"),
        ({"feature_names": ["a"]}, "feature_names must have 2 entries; got 1"),
        ({"feature_names": ["a", 1]}, r"feature_names must be strings; feature_names\[1\] = 1"),
        ({"action_labels": 5}, "action_labels must be a sequence"),
        ({"action_labels": [["a"], ["b"], ["c"]]}, "action_labels must be plain values"),
        ({"actions": [0, 10**12, 1, 1]}, r"actions must be coded 0, 1, .*actions\[1\] = 1000000000000"),
        ({"rewards": np.ma.array([0.0, 1.0, 2.0, 3.0], mask=[0, 1, 0, 0])}, "rewards must not have masked entries"),
    ],
)
def test_bad_input_is_named(changes, words):
    with pytest.raises(InvalidInputError, match=words):
        small(**changes)


def test_rows_that_terminate_need_no_next_actions():
    mask = np.ones((4, 3), dtype=bool)
    mask[1] = False
    assert small(next_allowed=mask).next_allowed is not None


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.floats(), max_size=3)
)
columns = st.one_of(anything, st.lists(anything, max_size=5), st.lists(st.lists(anything, max_size=3), max_size=5))


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["states", "actions", "rewards", "next_states", "terminated", "episodes"]), columns)
)
def test_whatever_comes_is_taken_or_refused_with_a_sentence(changes):
    """Nothing crashes with a traceback from the inside."""
    try:
        batch = small(**changes)
    except InvalidInputError as error:
        assert any(name in str(error) for name in changes)  # noqa: PT017  both outcomes are legal
    else:
        assert np.isfinite(batch.rewards).all()
        assert ((batch.actions >= 0) & (batch.actions < batch.n_actions)).all()


def test_folds_share_no_episode_and_hold_each_once():
    batch = random_batch(n_episodes=23)
    folds = list(batch.folds(5, random_state=3))
    assert sorted(fold.n_episodes for _, fold in folds) == [4, 4, 5, 5, 5]
    for rest, fold in folds:
        assert not set(rest.episodes) & set(fold.episodes)
        assert len(rest) + len(fold) == len(batch)
    assert sum(len(fold) for _, fold in folds) == len(batch)
    assert len({number for _, fold in folds for number in fold.episodes}) == 23


def test_folds_are_reproducible_and_checked_at_once():
    batch = random_batch()
    assert list(batch.folds(3, random_state=1)) == list(batch.folds(3, random_state=1))
    assert list(batch.folds(3, random_state=1)) != list(batch.folds(3, random_state=2))
    for n_folds, words in ((1, "at least 2"), (21, "at most the number of episodes, 20")):
        with pytest.raises(InvalidInputError, match=words):
            batch.folds(n_folds)


def test_rewards_whose_sum_overflows_are_shown_without_a_warning():
    batch = Transitions(
        np.zeros((3, 1)), np.array([0, 1, 0]), np.array([1e308, 1e308, 0.0]), np.zeros((3, 1)), np.ones(3, bool)
    )
    assert "rewards     0 to 1e+308, mean 6.667e+307" in str(batch)
