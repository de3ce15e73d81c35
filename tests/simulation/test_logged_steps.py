"""Episodes made of the steps of a log: their values against closed forms, and what happens where the log has not been."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from capi import FiniteMDP, Transitions
from capi.learning.rules import horizon
from capi.policies import Constant, Deterministic, Uniform
from capi.simulation.logged_steps import Surroundings

STEP, DISCOUNT, N_STEPS = 0.05, 0.95, 59


def walk(n_episodes=60, seed=0, actions=(0, 1)):
    """Return episodes of a walk on a line: action 1 goes right and 0 left, by 0.05; each step costs 1 until the position is 1 or more."""
    rng = np.random.default_rng(seed)
    rows = []
    for episode in range(n_episodes):
        x = rng.uniform(-0.05, 0.05)
        for _ in range(60):
            action = int(rng.choice(actions, p=[0.3, 0.7]))
            y = x + STEP * (1 if action == 1 else -1)
            rows.append(([x], action, -1.0, [y], y >= 1, episode))
            x = y
            if y >= 1:
                break
    states, taken, rewards, following, ends, episodes = zip(*rows, strict=True)
    return Transitions(states, taken, rewards, following, ends, episodes=episodes, n_actions=3)


class Turning(Deterministic):
    """Goes right in the first half of the way and left in the second, so it never gets to the end."""

    n_actions = 3

    def act(self, states, allowed=None):
        return np.where(states[:, 0] < 0.5, 1, 0)


def surroundings(batch, discount=DISCOUNT):
    first, second = batch.split(0.5, random_state=0)
    return Surroundings.of(first, second, discount, 0), first


def test_values_on_a_line_are_those_of_the_process():
    world, starts = surroundings(walk())
    n_steps = 20.5  # from the middle of the starts
    exact = -(1 - DISCOUNT**n_steps) / (1 - DISCOUNT)
    value, of_starts = world.value(Constant(1, 3), starts, 200, N_STEPS, 0)
    assert value == pytest.approx(exact, rel=0.06)
    assert of_starts.shape == (starts.n_episodes,)
    assert of_starts.mean() == pytest.approx(0.0, abs=1e-9)
    never = -(1 - DISCOUNT ** horizon(starts, DISCOUNT)) / (1 - DISCOUNT)
    assert world.value(Turning(), starts, 200, N_STEPS, 0)[0] == pytest.approx(never, rel=0.02)


def test_the_values_of_a_finite_process_are_exact_up_to_chance():
    rng = np.random.default_rng(1)
    mdp = FiniteMDP(rng.dirichlet(np.full(5, 0.5), size=(2, 5)), rng.normal(size=(5, 2)), discount=0.8)
    states = rng.integers(5, size=(400, 1)).astype(float)
    rows = []
    for _ in range(20):
        actions = rng.integers(2, size=400)
        following, rewards, _ = mdp.step(states, actions, rng)
        rows.append((states, actions, rewards, following))
        states = following
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    order = np.argsort(np.tile(np.arange(400), 20), kind="stable")
    x, actions, rewards, following = (column[order] for column in columns)
    batch = Transitions(
        x, actions, rewards, following, np.zeros(8000, dtype=bool), episodes=np.repeat(np.arange(400), 20)
    )
    world, starts = surroundings(batch, 0.8)
    assert not world.moves.any()  # the states repeat: rows say where one goes
    for policy, probabilities in ((Uniform(2), np.full((5, 2), 0.5)), (Constant(1, 2), np.eye(2)[[1] * 5])):
        exact = mdp.values(probabilities)[starts.states[starts.episode_starts, 0].astype(int)]
        value, _ = world.value(policy, starts, 2000, N_STEPS, 0)
        spread = np.ptp(mdp.values(probabilities))
        assert value == pytest.approx(exact.mean(), abs=0.1 * max(spread, 1.0))


def positions(names=None, seed=0):
    """Return a random walk over 40 whole numbers, or over their names, in which each step moves by one."""
    rng = np.random.default_rng(seed)
    x = rng.integers(40, size=(30, 1))
    names = np.arange(40) if names is None else names
    rows = []
    for _ in range(50):
        actions = rng.integers(2, size=30)
        y = np.clip(x + 2 * actions[:, None] - 1, 0, 39)
        rows.append((x, actions, 1.0 * (y[:, 0] == 30), y))
        x = y
    x, actions, rewards, y = (np.concatenate(part) for part in zip(*rows, strict=True))
    order = np.argsort(np.tile(np.arange(30), 50), kind="stable")
    ends = np.zeros(1500, dtype=bool)
    return Transitions(
        names[x][order], actions[order], rewards[order], names[y][order], ends, episodes=np.repeat(np.arange(30), 50)
    )


def test_states_that_repeat_are_moved_if_they_are_places_and_taken_from_rows_if_they_are_names():
    class Towards(Deterministic):
        n_actions = 2

        def act(self, states, allowed=None):
            return np.where(states[:, 0] < 29.5, 1, 0)

    batch = positions()
    world, starts = surroundings(batch, 0.9)
    assert world.moves.all()
    first = starts.states[starts.episode_starts, 0]
    away = np.where(first == 30, 1, np.abs(first - 30) - 1)  # steps until the first reward
    exact = np.mean(0.9**away / (1 - 0.9**2))  # every second step, from then on
    moved, taken = (w.value(Towards(), starts, 500, N_STEPS, 0)[0] for w in (world, replace(world, moves=~world.moves)))
    assert moved == pytest.approx(exact, rel=0.2)
    assert abs(taken - exact) > abs(moved - exact)
    names = np.random.default_rng(3).permutation(40)
    assert not surroundings(positions(names), 0.9)[0].moves.any()


def test_an_action_that_the_log_never_takes_ends_in_the_worst_way():
    world, starts = surroundings(walk())
    value, _ = world.value(Constant(2, 3), starts, 50, N_STEPS, 0)
    assert value == pytest.approx(world.worst)
    assert world.worst == pytest.approx(-(1 - DISCOUNT**60) / (1 - DISCOUNT), rel=0.05)


def test_states_that_the_log_does_not_know_count_as_lost():
    world, starts = surroundings(walk())
    lefts = world.value(Constant(0, 3), starts, 50, N_STEPS, 0)[0]  # the log rarely goes far to the left
    assert lefts < world.value(Uniform(3), starts, 50, N_STEPS, 0)[0] or lefts == pytest.approx(world.worst, rel=0.05)
    far = np.array([[-30.0]])
    assert world.distances(far, np.array([0]))[0] > world.usual
    assert world.distances(far, np.array([2]))[0] == np.inf


def test_missing_values_masks_weights_and_few_values_are_possible():
    plain = walk(20)
    rng = np.random.default_rng(0)
    missing = np.where(rng.random((len(plain), 1)) < 0.1, np.nan, plain.states)
    group = np.repeat([0.0, 1.0], [len(plain) // 2, len(plain) - len(plain) // 2])[:, None]
    masks = np.tile([True, True, False], (len(plain), 1))
    batch = Transitions(
        np.hstack([missing, group]),
        plain.actions,
        plain.rewards,
        np.hstack([plain.next_states, group]),
        plain.terminated,
        episodes=plain.episodes,
        allowed=masks,
        next_allowed=masks,
        weights=rng.integers(3, size=plain.n_episodes).astype(float)[plain.episodes],
        n_actions=3,
    )
    world, starts = surroundings(batch)
    np.testing.assert_array_equal(world.moves, [True, False])
    first, again = (world.value(Uniform(3), starts, 60, N_STEPS, 7) for _ in range(2))
    assert np.isfinite(first[0])
    assert first[0] == again[0]


def test_episodes_do_not_depend_on_the_number_of_threads_of_blas():
    """Products of tables with many columns have other last digits with several threads."""
    rng, d = np.random.default_rng(0), 20
    path = np.cumsum(0.1 * rng.normal(size=(300, 26, d)), axis=1)
    x, following = path[:, :-1].reshape(-1, d), path[:, 1:].reshape(-1, d)
    ends, actions, owners = np.zeros(7500, dtype=bool), rng.integers(3, size=7500), np.repeat(np.arange(300), 25)
    batch = Transitions(x, actions, x[:, 0], following, ends, episodes=owners)
    found = []
    for n in (1, 2):
        with threadpool_limits(n, user_api="blas"):
            world = Surroundings.of(batch, None, 0.9, 0)
            returns = world.returns([Uniform(3)], batch.states[:500], None, 5, 0)
        found.append(b"".join([part.slopes.tobytes() for part in world.actions] + [returns.plain.tobytes()]))
    assert found[0] == found[1]
