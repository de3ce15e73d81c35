"""Learning episodes are recognised by their content or number, look-alikes are not, and what is written is slow to search."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from capi import Transitions
from capi.data import learned_episodes
from capi.data.learned_episodes import EVERY, LearnedEpisodes, SealedEpisodes, episode_digests


def log(n=30, length=3, seed=0, values=None):
    """Return ``n`` episodes of ``length`` rows, with continuous columns or a few ``values``."""
    rng = np.random.default_rng(seed)
    rows = n * length
    x = rng.normal(size=(rows, 2)) if values is None else rng.integers(values, size=(rows, 2)).astype(float)
    rewards = rng.normal(size=rows) if values is None else rng.integers(2, size=rows).astype(float)
    ends = np.arange(rows) % length == length - 1
    return Transitions(x, rng.integers(2, size=rows), rewards, x, ends, episodes=np.arange(rows) // length)


def part(batch, first, end):
    return batch.subset((batch.episodes >= first) & (batch.episodes < end))


def digests_of(batch):
    return batch.episode_digests()


def test_equal_episodes_have_equal_digests_wherever_they_stand():
    batch = log()
    digests = digests_of(batch)
    assert len(set(digests.tolist())) == 30
    order = np.random.default_rng(1).permutation(30)
    rows = (3 * order[:, None] + np.arange(3)).ravel()
    moved = episode_digests(batch.states[rows], batch.actions[rows], batch.rewards[rows], batch.episode_starts)
    np.testing.assert_array_equal(moved, digests[order])


@pytest.mark.parametrize("change", ["state", "action", "reward", "order", "columns", "shorter"])
def test_any_other_content_has_another_digest(change):
    states, actions, rewards = np.random.default_rng(0).normal(size=(3, 2)), np.array([0, 1, 0]), np.array([1.0, 2, 3])
    starts = np.array([0])
    before = episode_digests(states, actions, rewards, starts)
    if change == "state":
        states[1, 0] += 1e-6
    elif change == "action":
        actions = np.array([0, 1, 1])
    elif change == "reward":
        rewards[2] += 1e-6
    elif change == "order":
        states, actions, rewards = states[[0, 2, 1]], actions[[0, 2, 1]], rewards[[0, 2, 1]]
    elif change == "columns":
        states = states[:, ::-1]
    else:
        states, actions, rewards = states[:2], actions[:2], rewards[:2]
    assert episode_digests(states, actions, rewards, starts) != before


def test_single_precision_a_minus_before_a_zero_and_kinds_of_missing_make_no_difference():
    actions, starts = np.array([0]), np.array([0])
    one = episode_digests(np.array([[0.0, np.nan, 0.1]]), actions, np.array([0.0]), starts)
    other = np.array([[-0.0, -np.nan, np.float64(np.float32(0.1))]])
    assert one == episode_digests(other, actions, np.array([-0.0]), starts)


def shares(learned, batch):
    """Return the shares found in memory, and by the sealed form."""
    known = LearnedEpisodes.of(learned)
    return known.share_in(batch), known.sealed().share_in(batch)


@pytest.mark.parametrize(("first", "end", "share"), [(0, 20, 1.0), (10, 30, 0.5), (20, 40, 0.0), (17, 37, 0.15)])
def test_the_share_of_known_episodes(first, end, share):
    batch = log(40)
    assert shares(part(batch, 0, 20), part(batch, first, end)) == (share, share)


def test_a_sample_of_many_episodes_is_sealed(monkeypatch):
    monkeypatch.setattr(learned_episodes, "KEPT", 100)
    batch = log(1200, length=2)
    known = LearnedEpisodes.of(part(batch, 0, 600)).sealed()
    assert (len(known.sealed), known.n_episodes, known.n_twins) == (100, 100, 0)
    assert known.bound < EVERY
    assert known.share_in(part(batch, 300, 900)) == pytest.approx(0.5, abs=0.15)
    assert known.share_in(part(batch, 0, 600)) == 1
    assert known.share_in(part(batch, 600, 1200)) == 0


def longer_then_shorter():
    """Return ten episodes of two rows, then ten of one."""
    x = np.random.default_rng(0).normal(size=(30, 1))
    episodes = np.r_[np.repeat(np.arange(10), 2), 10 + np.arange(10)]
    return Transitions(
        x, np.arange(30) % 2, x[:, 0], x, np.ones(30, dtype=bool) & (np.arange(30) % 2 == 1), episodes=episodes
    )


def test_episodes_of_one_row_are_never_sealed():
    rows = log(50, length=1)
    known = LearnedEpisodes.of(rows)
    assert known.share_in(rows) == 1
    assert known.sealed() is None
    longer = LearnedEpisodes.of(log(20, length=2)).sealed()
    assert longer.share_in(rows) is None, "there is nothing to compare"
    first = longer_then_shorter()
    assert len(LearnedEpisodes.of(first).sealed().sealed) == 10


def test_sealing_needs_the_secret_and_takes_a_slow_function(monkeypatch):
    batch = log(5, length=2)
    known = LearnedEpisodes.of(batch)
    one, two = known.sealed(), known.sealed()
    assert one.secret != two.secret
    assert not one.sealed & two.sealed
    wrong = SealedEpisodes(two.secret, one.bound, one.sealed, one.n_episodes, one.n_twins)
    assert wrong.share_in(batch) == 0
    monkeypatch.setattr(learned_episodes.hashlib, "scrypt", lambda *args, **settings: pytest.fail("slow"))
    with pytest.raises(pytest.fail.Exception, match="slow"):
        one.share_in(batch)


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("values", [2, 4, 8, 16, 40])
@pytest.mark.parametrize(("n_known", "n_tested"), [(300, 300), (3000, 300), (300, 3000), (50, 500)])
def test_look_alikes_are_not_taken_for_each_other(length, values, n_known, n_tested):
    """Drawn from few kinds, honest test episodes have their like among the learning episodes; that proves nothing."""
    wrong = 0
    for seed in range(5):
        batch = log(n_known + n_tested, length, seed, values)
        known = LearnedEpisodes.of(part(batch, 0, n_known))
        wrong += known.share_in(part(batch, n_known, n_known + n_tested)) > 0
    assert wrong == 0


def test_disjoint_patients_are_not_among_the_learning_ones():
    """Age, sex, score and outcome, one row a patient: 1 to 2 % of disjoint patients have a double among the others."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = 1500
        columns = [rng.integers(20, 100, n), rng.integers(2, size=n), rng.integers(0, 60, n)]
        x = np.stack(columns, axis=1).astype(float)
        batch = Transitions(
            x, rng.integers(2, size=n), rng.integers(4, size=n), x, np.ones(n, dtype=bool), episodes=np.arange(n)
        )
        learned, tested = batch.split(0.7, random_state=seed)
        assert np.isin(digests_of(tested), digests_of(learned)).sum() > 0
        assert LearnedEpisodes.of(learned).share_in(tested) == 0


def test_a_few_that_look_alike_do_not_hide_the_rest():
    rows = np.r_[np.zeros(10, dtype=int), np.arange(200)]  # the first one eleven times
    x = np.random.default_rng(0).normal(size=(200, 2))[rows]
    batch = Transitions(x, np.zeros(210, dtype=int), x[:, 0], x, np.ones(210, dtype=bool), n_actions=2)
    assert LearnedEpisodes.of(batch).share_in(batch) == 1


def test_parts_of_one_table_are_compared_by_their_numbers():
    """All rows are equal, so only their numbers tell the patients apart."""
    frame = pd.DataFrame({"patient": np.repeat(np.arange(20), 2), "x": 1.0, "a": "no", "r": 0.0})
    batch = Transitions.from_frame(
        frame, episode="patient", state=["x"], action="a", reward="r", action_labels=["no", "yes"]
    )
    known = LearnedEpisodes.of(part(batch, 0, 10))
    assert known.share_in(part(batch, 0, 10)) == 1
    assert known.share_in(part(batch, 5, 15)) == 0.5
    assert known.share_in(part(batch, 10, 20)) == 0
    again = Transitions.from_frame(frame, episode="patient", state=["x"], action="a", reward="r", schema=batch.schema)
    assert known.share_in(part(again, 0, 10)) == 0, "of another table, nothing can be said"


def test_pickling_forgets_and_copying_does_not():
    known = LearnedEpisodes.of(log())
    assert pickle.loads(pickle.dumps(known)) is None
    assert copy.deepcopy(known) is known
    assert copy.copy(known) is known


def test_no_digest_is_written_without_being_sealed():
    """Files, runs and reports do not call `episode_digests`: digests of small rows can be found by trying all rows."""
    source = Path(learned_episodes.__file__).parents[1]
    for folder in ("files", "runs", "report", "cli"):
        for path in (source / folder).rglob("*.py"):
            assert "episode_digests" not in path.read_text(encoding="utf-8"), path
