"""Kinds of states, and what was done in them."""

import numpy as np
import pytest

from capi import Transitions
from capi.data.summary.coverage import counts_by_leaf, leaf_counts


def log_of(x, actions, **columns):
    x = np.asarray(x, dtype=float).reshape(len(actions), -1)
    return Transitions(x, actions, np.zeros(len(actions)), x, np.ones(len(actions), dtype=bool), **columns)


def test_every_row_is_counted_once_in_its_leaf():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2))
    x[::7, 1] = np.nan
    actions = np.where(x[:, 0] > 0, rng.integers(2, size=500), 2)
    leaves, counts = counts_by_leaf(log_of(x, actions))
    assert leaves.shape == (500,)
    assert counts.shape == (leaves.max() + 1, 3)
    expected = np.zeros_like(counts)
    for leaf, action in zip(leaves, actions, strict=True):
        expected[leaf, action] += 1
    np.testing.assert_array_equal(counts, expected)
    np.testing.assert_array_equal(leaf_counts(log_of(x, actions)), counts[counts.sum(axis=1) > 0])


def test_leaves_tell_apart_where_actions_were_taken():
    x = np.linspace(0, 1, 400)
    actions = np.where(x > 0.7, 1, 0)
    leaves, counts = counts_by_leaf(log_of(x, actions))
    assert not set(leaves[x > 0.72]) & set(leaves[x < 0.68])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    assert (shares[leaves[x > 0.72], 1] > 0.9).all()


def test_rows_count_by_their_weight_and_actions_never_taken_have_none():
    leaves, counts = counts_by_leaf(log_of(np.zeros(4), [0, 1, 1, 0], weights=[1.0, 2.0, 0.5, 0.0], n_actions=3))
    assert set(leaves) == {0}
    np.testing.assert_array_equal(counts, [[1.0, 2.5, 0.0]])


@pytest.mark.parametrize("scale", [1e-30, 1e300])
def test_numbers_beyond_single_precision_are_told_apart(scale):
    x = np.repeat([1.0, 2.0], 100) * scale
    leaves, _ = counts_by_leaf(log_of(x, np.repeat([0, 1], 100)))
    assert len(set(leaves[:100])) == len(set(leaves[100:])) == 1
    assert leaves[0] != leaves[-1]


def test_long_tables_are_cut_on_a_sample_and_counted_whole(monkeypatch):
    monkeypatch.setattr("capi.data.summary.coverage.MOST_ROWS", 200)
    x = np.random.default_rng(0).random(1000)
    leaves, counts = counts_by_leaf(log_of(x, (x > 0.5).astype(int)))
    assert counts.sum() == 1000
    assert not set(leaves[x > 0.55]) & set(leaves[x < 0.45])
