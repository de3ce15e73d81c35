"""Episodes are known again by their content, and only by it."""

import numpy as np
import pytest

from capi import Transitions
from capi.data.sketch import KEPT, episode_hashes, share_known, sketch


def random_log(n=30, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.normal(size=n), np.arange(0, n, 3)


def test_equal_episodes_have_equal_numbers_wherever_they_stand():
    states, rewards, starts = random_log()
    hashes = episode_hashes(states, rewards, starts)
    assert len(set(hashes.tolist())) == len(starts)
    order = np.random.default_rng(1).permutation(10)
    rows = (3 * order[:, None] + np.arange(3)).ravel()
    np.testing.assert_array_equal(episode_hashes(states[rows], rewards[rows], starts), hashes[order])


@pytest.mark.parametrize("change", ["state", "reward", "order", "columns", "shorter"])
def test_any_other_content_has_another_number(change):
    states, rewards, _ = random_log(3)
    starts = np.array([0])
    before = episode_hashes(states, rewards, starts)
    if change == "state":
        states[1, 0] += 1e-6
    elif change == "reward":
        rewards[2] += 1e-6
    elif change == "order":
        states, rewards = states[[0, 2, 1]], rewards[[0, 2, 1]]
    elif change == "columns":
        states = states[:, ::-1]
    else:
        states, rewards = states[:2], rewards[:2]
    assert episode_hashes(states, rewards, starts) != before


def test_a_minus_before_a_zero_and_kinds_of_missing_make_no_difference():
    states, rewards, starts = np.array([[0.0, np.nan]]), np.array([0.0]), np.array([0])
    other = np.array([[-0.0, -np.nan]])
    assert episode_hashes(states, rewards, starts) == episode_hashes(other, -rewards, starts)


def test_numbers_do_not_change_from_version_to_version():
    """Policies on disk hold them."""
    batch = Transitions([[1.0, np.nan], [2.5, 3.0]], [0, 1], [0.5, -1.0], [[0.0, 0.0]] * 2, [True, True])
    assert [f"{int(h):016x}" for h in batch.episode_hashes()] == ["db778f8e4b1d2d4f", "74b8c3aad4628377"]


def test_numbers_are_spread_evenly():
    hashes = episode_hashes(np.arange(20_000.0)[:, None], np.zeros(20_000), np.arange(20_000))
    counts = np.bincount((hashes >> np.uint64(60)).astype(int), minlength=16)
    assert counts.min() > 0.85 * 1250
    assert counts.max() < 1.15 * 1250


def test_a_sketch_holds_the_smallest_numbers_as_text():
    hashes = np.array([5, 3, 3, 2**64 - 1], dtype=np.uint64)
    assert sketch(hashes) == ("0000000000000003", "0000000000000005", "ffffffffffffffff")
    many = np.random.default_rng(0).integers(2**63, size=3000).astype(np.uint64)
    kept = sketch(many)
    assert len(kept) == KEPT
    assert [int(text, 16) for text in kept] == sorted(many.tolist())[:KEPT]


def numbers(n, seed=0):
    return episode_hashes(np.random.default_rng(seed).normal(size=(n, 1)), np.zeros(n), np.arange(n))


@pytest.mark.parametrize("n_known", [100, KEPT - 1, KEPT, KEPT + 1, 5000])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_known_episodes(n_known, share):
    mine, others = numbers(n_known), numbers(n_known, seed=1)
    n_seen = round(share * n_known)
    seen = np.concatenate([mine[:n_seen], others[n_seen:]])
    expected = pytest.approx(share, abs=0.01 if n_known <= KEPT or share in (0.0, 1.0) else 0.07)
    assert share_known(mine, sketch(seen)) == expected


def test_nothing_is_known_without_a_sketch_or_without_episodes_to_compare():
    assert share_known(numbers(10), ()) == 0
    large = np.full(3, 2**64 - 1, dtype=np.uint64)
    assert share_known(large, sketch(numbers(5000))) == 0


@pytest.mark.parametrize("n_kinds", [10, 300, 3000])
@pytest.mark.parametrize("n_known", [300, 3000])
def test_episodes_that_look_alike_are_no_evidence(n_kinds, n_known):
    """Drawn from few kinds, honest test episodes have their like among the learning episodes, as they have it among themselves."""
    kinds = numbers(n_kinds)
    rng = np.random.default_rng(0)
    learned, tested = rng.choice(kinds, n_known), rng.choice(kinds, 300)
    assert np.isin(tested, learned).mean() > 0.05
    assert share_known(tested, sketch(learned)) == 0


def test_a_few_that_look_alike_do_not_hide_the_rest():
    mine = numbers(200)
    mine[:10] = mine[0]
    assert share_known(mine, sketch(mine)) == 1


def test_tables_in_single_precision_and_rows_that_stand_twice_are_recognised():
    states, rewards, starts = random_log(600)
    single = episode_hashes(states.astype(np.float32).astype(float), rewards.astype(np.float32).astype(float), starts)
    learned = sketch(episode_hashes(states, rewards, starts))
    assert share_known(single, learned) == 1
    assert share_known(np.append(single[:100], single[0]), learned) == 1
