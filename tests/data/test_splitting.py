"""Rows of whole episodes: indexing of batches, and folds."""

import numpy as np
import pytest
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import _num_samples

from capi import EpisodeKFold, Transitions
from capi._utils.validation import as_states
from capi.errors import InvalidInputError
from capi.testing import random_batch

BATCH = random_batch()


def without_episodes(batch):
    return Transitions(batch.states, batch.actions, batch.rewards, batch.next_states, batch.terminated, n_actions=3)


def test_a_batch_has_the_shape_of_its_states():
    assert BATCH.shape == BATCH.states.shape == (len(BATCH), BATCH.n_features)


def test_rows_of_whole_episodes_are_a_batch():
    chosen = np.isin(BATCH.episodes, [0, 5, 6])
    expected = BATCH.subset(chosen)
    assert BATCH[chosen] == expected
    assert BATCH[np.flatnonzero(chosen)] == expected
    assert BATCH[list(np.flatnonzero(chosen))] == expected
    assert BATCH[np.flatnonzero(chosen), ...] == expected
    assert BATCH[:] == BATCH
    end = BATCH.episode_starts[4]
    assert BATCH[:end] == BATCH.subset(np.arange(end))


def test_scikit_learn_indexes_a_batch():
    chosen = np.flatnonzero(BATCH.episodes > 3)
    assert indexable(BATCH, None) == [BATCH, None]
    assert _num_samples(BATCH) == len(BATCH)
    assert _safe_indexing(BATCH, chosen) == BATCH.subset(chosen)


def test_without_episodes_any_rows_are_whole():
    batch = without_episodes(BATCH)
    assert batch[[4, 2]] == batch.subset([4, 2])


def test_the_first_episode_that_is_cut_is_named():
    numbers = BATCH.episodes * 10 + 7
    batch = Transitions(
        BATCH.states, BATCH.actions, BATCH.rewards, BATCH.next_states, BATCH.terminated, n_actions=3, episodes=numbers
    )
    length = BATCH.episode_lengths[3]
    assert length > 1
    keep = np.ones(len(batch), dtype=bool)
    keep[batch.episode_starts[3]] = False
    with pytest.raises(
        InvalidInputError, match=f"of episode 37 they hold {length - 1} of {length} rows. .*EpisodeKFold"
    ):
        batch[keep]


@pytest.mark.parametrize("rows", [3, "a", (1, 2, 3), ([0], 0), 1.5, None, [len(BATCH)], []])
def test_what_does_not_choose_rows_is_refused(rows):
    with pytest.raises(InvalidInputError, match="rows"):
        BATCH[rows]


def test_rows_out_of_order_are_refused():
    with pytest.raises(InvalidInputError, match="rows must increase"):
        BATCH[np.arange(len(BATCH))[::-1]]


def test_a_batch_is_not_a_sequence_of_rows():
    with pytest.raises(TypeError):
        iter(BATCH)
    with pytest.raises(TypeError):
        BATCH in BATCH  # noqa: B015
    assert np.asarray(BATCH).item() is BATCH
    with pytest.raises(InvalidInputError, match="states"):
        as_states(BATCH)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("n_splits", [2, 3, 20])
def test_folds_are_whole_episodes_of_about_the_same_number(shuffle, n_splits):
    folds = EpisodeKFold(n_splits, shuffle=shuffle, random_state=0 if shuffle else None)
    splits = list(folds.split(BATCH))
    assert len(splits) == n_splits == folds.get_n_splits(BATCH, None, None)
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(len(BATCH)))
    sizes = []
    for train, test in splits:
        np.testing.assert_array_equal(np.sort(np.append(train, test)), np.arange(len(BATCH)))
        assert len(BATCH[train]) + len(BATCH[test]) == len(BATCH), "neither cuts an episode"
        sizes.append(BATCH[test].n_episodes)
    assert max(sizes) - min(sizes) <= 1


def test_shuffled_folds_are_those_of_the_batch():
    splits = EpisodeKFold(4, shuffle=True, random_state=3).split(BATCH)
    for (train, test), (rest, fold) in zip(splits, BATCH.folds(4, random_state=3), strict=True):
        assert BATCH[train] == rest
        assert BATCH[test] == fold


def test_without_shuffling_folds_are_blocks():
    for _, test in EpisodeKFold(4).split(BATCH):
        np.testing.assert_array_equal(test, np.arange(test[0], test[-1] + 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_splits": 1}, "n_splits must be an integer, at least 2"),
        ({"shuffle": 1}, "shuffle must be True or False"),
        ({"random_state": 0}, "random_state has no effect without shuffle"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        EpisodeKFold(**settings)


def test_too_many_folds_and_tables_are_refused():
    with pytest.raises(InvalidInputError, match="n_splits must be at most the number of episodes, 20; got 21"):
        next(EpisodeKFold(21).split(BATCH))
    with pytest.raises(InvalidInputError, match=r"X must be Transitions.*got a dict.*GroupKFold"):
        next(EpisodeKFold(2).split({"a": [1, 2]}))
