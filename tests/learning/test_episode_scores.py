"""Scores in episodes that are put together from the steps of a batch: which policy is best, and when there are none."""

import numpy as np
import pytest

from capi import Transitions
from capi.learning import episode_scores as module
from capi.learning.episode_scores import EpisodeScores, episode_scores
from capi.policies import Constant, Deterministic, NonStationary
from capi.types import StateSample

STEP, DISCOUNT = 0.05, 0.95


def walk(n_episodes=60, seed=0):
    """Return episodes of a walk on a line: action 1 goes right and 0 left, by 0.05; each step costs 1 until the position is 1 or more."""
    rng, rows = np.random.default_rng(seed), []
    for episode in range(n_episodes):
        x = rng.uniform(-0.05, 0.05)
        for _ in range(60):
            action = int(rng.random() < 0.7)
            y = x + STEP * (2 * action - 1) + rng.normal(scale=0.001)
            rows.append(([x], action, -1.0, [y], y >= 1, episode))
            x = y
            if y >= 1:
                break
    states, taken, rewards, following, ends, episodes = zip(*rows, strict=True)
    return Transitions(states, taken, rewards, following, ends, episodes=episodes)


class Right(Deterministic):
    """Goes right except in a strip, in which it goes left."""

    n_actions = 2

    def __init__(self, low=2.0, high=2.0):
        self.low, self.high = low, high

    def act(self, states, allowed=None):
        return np.where((states[:, 0] >= self.low) & (states[:, 0] < self.high), 0, 1)


def scores(policies, batch=None, starts=None, seed=0):
    return episode_scores(policies, walk() if batch is None else batch, DISCOUNT, starts, seed)


def test_a_policy_that_turns_back_in_a_narrow_strip_is_found_out():
    never = -(1 - DISCOUNT**59) / (1 - DISCOUNT)
    found = scores([Right(0.45, 0.55), Right(), Constant(0, 2)])
    assert found.best == 1
    means = found.plain.mean(axis=1)
    assert means[0] == pytest.approx(never, rel=0.05)
    assert means[1] == pytest.approx(-(1 - DISCOUNT**20.5) / (1 - DISCOUNT), rel=0.06)


def test_the_same_seed_gives_the_same_scores_and_equal_policies_equal_ones():
    batch = walk()
    first, again = (scores([Right(), Right(0.45, 0.55), Right()], batch) for _ in range(2))
    np.testing.assert_array_equal(first.plain, again.plain)
    np.testing.assert_array_equal(first.careful, again.careful)
    np.testing.assert_array_equal(first.plain[0], first.plain[2])
    assert (scores([Right(0.45, 0.55)], batch, seed=1).plain != first.plain[1]).any()


def test_a_quarter_of_the_score_is_careful():
    plain, careful = np.array([[1.0, 3.0], [3.0, 3.0], [2.0, 2.0]]), np.array([[1.0, 3.0], [-4.0, -2.0], [2.0, 2.0]])
    found = EpisodeScores(plain, careful)
    np.testing.assert_allclose(found.values, [2.0, 1.5, 2.0])
    assert found.best == 0  # the second fares best only where the log has not been; of equal ones the first is kept


def test_starts_count_by_their_weights():
    starts = StateSample(np.array([[0.0], [0.9]]), np.array([0.25, 0.75]))
    found = scores([Right()], starts=starts)
    near, far = (-(1 - DISCOUNT**n) / (1 - DISCOUNT) for n in (2, 20))
    assert found.values[0] == pytest.approx(0.25 * far + 0.75 * near, rel=0.1)


def test_of_large_batches_whole_episodes_are_used(monkeypatch):
    batch, seen = walk(), []
    of = module.Surroundings.of

    def spied(sample, *rest):
        seen.append(sample)
        return of(sample, *rest)

    monkeypatch.setattr(module.Surroundings, "of", spied)
    monkeypatch.setattr(module, "MOST_ROWS", 500)
    assert scores([Right(0.45, 0.55), Right()], batch).best == 1
    assert 500 <= len(seen[0]) < 560
    whole = [batch.states[first : first + n].tobytes() for first, n in _episodes(batch)]
    assert all(seen[0].states[first : first + n].tobytes() in whole for first, n in _episodes(seen[0]))


def _episodes(batch):
    return list(zip(batch.episode_starts, batch.episode_lengths, strict=True))


def test_without_a_process_whose_states_move_there_are_no_scores():
    batch = walk(20)
    ends = Transitions(batch.states, batch.actions, batch.rewards, batch.next_states, np.ones(len(batch), dtype=bool))
    assert scores([Right()], ends) is None  # nothing follows a decision
    few = Transitions(batch.states.round(1), batch.actions, batch.rewards, batch.next_states.round(1), batch.terminated)
    assert scores([Right()], few) is None  # the states repeat
    assert scores([NonStationary([Right(), Right()])], batch) is None
