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
    assert found.plain[0] == pytest.approx(never, rel=0.05)
    assert found.plain[1] == pytest.approx(-(1 - DISCOUNT**20.5) / (1 - DISCOUNT), rel=0.06)


def test_the_same_seed_gives_the_same_scores_and_equal_policies_equal_ones():
    batch = walk()
    first, again = (scores([Right(), Right(0.45, 0.55), Right()], batch) for _ in range(2))
    np.testing.assert_array_equal(first.plain, again.plain)
    np.testing.assert_array_equal(first.careful, again.careful)
    np.testing.assert_array_equal(first.plain[0], first.plain[2])
    assert scores([Right(0.45, 0.55)], batch, seed=1).plain[0] != first.plain[1]


def test_a_quarter_of_the_score_is_careful():
    plain, careful = np.array([2.0, 3.0, 2.0]), np.array([2.0, -3.0, 2.0])
    found = EpisodeScores(plain, careful, np.ones(3, dtype=bool))
    np.testing.assert_allclose(found.values, [2.0, 1.5, 2.0])
    assert found.best == 0  # the second fares best only where the log has not been; of equal ones the first is kept


def test_only_the_best_policies_of_the_first_world_are_compared_in_others(monkeypatch):
    """Their scores are means over all worlds; one that only the first world liked may still be behind."""
    batch, asked = walk(), []
    every = [Right(low, low + 0.1) for low in (0.05, 0.25, 0.45, 0.65, 0.85)] + [Right(), Right(0.91, 0.92), Right()]
    worlds = module.Surroundings.returns

    def watched(world, policies, *rest):
        found = worlds(world, policies, *rest)
        asked.append([found.plain.mean(axis=1), found.careful.mean(axis=1)])
        return found

    monkeypatch.setattr(module.Surroundings, "returns", watched)
    monkeypatch.setattr(module, "FINALISTS", 3)
    found = scores(every, batch)
    different = [0, 1, 2, 3, 4, 5, 6, 5]  # the last one decides like the sixth
    assert [len(means[0]) for means in asked] == [7, 3, 3, 3]
    first = 0.75 * asked[0][0] + 0.25 * asked[0][1]
    finalists = np.argsort(-first, kind="stable")[:3]
    expected = first.copy()
    for place, policy in enumerate(finalists):
        expected[policy] = np.mean([first[policy], *(0.75 * m[0][place] + 0.25 * m[1][place] for m in asked[1:])])
    np.testing.assert_allclose(found.values, expected[different])
    np.testing.assert_array_equal(found.finalists, np.isin(different, finalists))
    assert found.best in (5, 6)


def test_a_policy_that_is_not_compared_again_is_not_kept():
    found = EpisodeScores(np.array([5.0, 4.0]), np.array([5.0, 4.0]), np.array([False, True]))
    assert found.best == 1


def test_policies_that_decide_alike_need_no_other_world(monkeypatch):
    monkeypatch.setattr(module, "MORE_WORLDS", None)  # would fail
    assert scores([Right(), Right(2.0, 3.0)]).best == 0


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
