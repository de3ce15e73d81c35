import math

import numpy as np
import pytest

from capi.domains.mountain_car import STARTS, MountainCar
from capi.errors import InvalidInputError
from capi.policies import Uniform
from capi.simulation import performance
from capi.testing import check_domain, check_policy

BACK, COAST, FORWARD = 0, 1, 2


def box_states(n, seed=0):
    return MountainCar().initial(n, np.random.default_rng(seed))


def step(states, actions):
    return MountainCar().step(np.asarray(states, dtype=float), np.asarray(actions), np.random.default_rng(0))


def slow_step(position, velocity, action):
    """One car, as Sutton and Barto print it."""
    velocity += 0.001 * (action - 1) - 0.0025 * math.cos(3 * position)
    velocity = max(-0.07, min(0.07, velocity))
    position += velocity
    if position <= -1.2:
        position, velocity = -1.2, max(velocity, 0.0)
    return min(position, 0.5), velocity, position >= 0.5


@pytest.mark.parametrize("cars", [MountainCar(), MountainCar("valley", discount=0.9)], ids=repr)
def test_keeps_the_contract(cars):
    check_domain(cars)
    check_policy(cars.energy_pumping(), box_states(200), 3)


def test_each_car_moves_as_the_slow_rule_says():
    states, actions = box_states(3000), np.arange(3000) % 3
    following, rewards, terminated = step(states, actions)
    expected = [slow_step(*state, action) for state, action in zip(states, actions, strict=True)]
    np.testing.assert_allclose(following, [row[:2] for row in expected], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(terminated, [row[2] for row in expected])
    np.testing.assert_array_equal(rewards, -1.0)
    assert terminated.any()
    assert (following[:, 0] == -1.2).any()


def test_a_step_by_hand():
    """At -pi / 6 the slope is flat: only the engine counts."""
    bottom = -math.pi / 6
    following, _, _ = step([[bottom, 0.0]] * 3, [BACK, COAST, FORWARD])
    np.testing.assert_allclose(following[:, 1], [-0.001, 0.0, 0.001], atol=1e-15)
    np.testing.assert_allclose(following[:, 0], bottom + following[:, 1], atol=1e-15)


def test_the_wall_stops_the_car():
    following, rewards, terminated = step([[-1.2, -0.05], [-1.15, -0.07], [-1.2, 0.05]], [BACK, BACK, COAST])
    np.testing.assert_array_equal(following[:2], [[-1.2, 0.0]] * 2)
    assert following[2, 0] > -1.2  # away from the wall it goes on
    assert following[2, 1] > 0.05
    np.testing.assert_array_equal(rewards, -1.0)
    assert not terminated.any()


def test_the_goal_ends_an_episode_and_its_last_step_costs_too():
    following, rewards, terminated = step([[0.45, 0.06], [0.45, 0.04], [0.4999, 0.07]], [FORWARD] * 3)
    np.testing.assert_array_equal(terminated, [True, False, True])
    np.testing.assert_array_equal(following[terminated, 0], 0.5)
    np.testing.assert_array_equal(rewards, -1.0)


def test_the_velocity_is_clipped():
    following, _, _ = step([[0.0, -0.07], [-1.0, 0.07]], [BACK, FORWARD])
    np.testing.assert_array_equal(following, [[-0.07, -0.07], [-1.0 + 0.07, 0.07]])


def test_no_step_leaves_the_box():
    low, high = MountainCar().box
    states = np.concatenate([box_states(3000), np.array([[-1.2, -0.07], [0.5, 0.07], [9.0, 9.0], [-9.0, -9.0]])])
    for action in range(3):
        following, _, _ = step(states, np.full(len(states), action))
        assert ((following >= low) & (following <= high)).all()


def test_a_step_is_that_of_gymnasium_but_for_how_far_the_goal_is_overshot():
    """Theirs keeps positions up to 0.6 and asks for a velocity of at least 0 at the goal, which who arrives has."""
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("MountainCar-v0").unwrapped
    assert (environment.goal_position, environment.max_position, environment.goal_velocity) == (0.5, 0.6, 0)
    states, actions = box_states(2000, seed=1), np.arange(2000) % 3
    following, rewards, terminated = step(states, actions)
    environment.reset(seed=0)
    overshot = 0
    for i, state in enumerate(states):
        environment.state = state.copy()
        _, reward, ended, _, _ = environment.step(int(actions[i]))
        position, velocity = environment.state
        np.testing.assert_allclose(following[i], [min(position, 0.5), velocity], rtol=0, atol=1e-15)
        assert (reward, ended) == (rewards[i], terminated[i])
        overshot += position > 0.5
    assert overshot


def test_both_start_in_the_same_valley():
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("MountainCar-v0").unwrapped
    theirs = np.array([environment.reset(seed=seed)[0] for seed in range(200)])
    low, high = np.array(STARTS["valley"])
    assert ((theirs >= np.float32(low)) & (theirs <= np.float32(high))).all()


def test_random_actions_reach_the_goal_as_seldom_as_they_should():
    n = 4000
    result = performance(Uniform(3), MountainCar(), n_episodes=n, max_steps=200)
    soon = np.mean(result.terminated & (result.lengths <= 100))
    assert abs(soon - 0.21) < 4 * np.sqrt(0.21 * 0.79 / n)
    assert abs(result.lengths.mean() - 161) < 4 * result.lengths.std() / np.sqrt(n)


def test_pumping_energy_reaches_the_goal_from_everywhere():
    positions, velocities = np.linspace(-1.2, 0.499, 60), np.linspace(-0.07, 0.07, 61)
    starts = np.stack(np.meshgrid(positions, velocities), axis=-1).reshape(-1, 2)
    result = performance(MountainCar.energy_pumping(), MountainCar(), starts=starts, max_steps=200)
    assert result.terminated.all()


class Lookahead:
    """The better of the actions by the values of a grid, interpolated between its points."""

    n_actions = 3

    def __init__(self, n=100):
        self.n = n
        axes = [np.linspace(low, high, n) for low, high in MountainCar().box.T]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        reached = [self.reached(points, action) for action in range(3)]
        values, before = np.zeros(n * n), np.inf
        while np.max(np.abs(values - before)) > 1e-3:
            before, values = values, np.max([self.worth(values, *one) for one in reached], axis=0)
        self.values = values

    def reached(self, states, action):
        """Return the four points around the next state, their shares in it, and whether the episode ends."""
        following, _, terminated = step(states, np.full(len(states), action))
        low, high = MountainCar().box
        place = (following - low) / (high - low) * (self.n - 1)
        corner = np.minimum(place.astype(int), self.n - 2)
        a, b = (place - corner).T
        points = (corner[:, 0] * self.n + corner[:, 1])[:, None] + np.array([0, 1, self.n, self.n + 1])
        shares = np.stack([(1 - a) * (1 - b), (1 - a) * b, a * (1 - b), a * b], axis=1)
        return points, shares, terminated

    def worth(self, values, points, shares, terminated):
        return -1 + 0.98 * np.where(terminated, 0, (values[points] * shares).sum(axis=1))

    def act(self, states, allowed=None):
        return np.argmax([self.worth(self.values, *self.reached(states, action)) for action in range(3)], axis=0)

    def probabilities(self, states, allowed=None):
        return np.eye(3)[self.act(states)]


def test_value_iteration_on_a_grid_comes_near_49_steps():
    n = 4000
    result = performance(Lookahead(), MountainCar(), n_episodes=n, max_steps=200)
    assert abs(result.lengths.mean() - 49.2) < 3 * result.lengths.std() / np.sqrt(n) + 0.6  # the grid is coarse
    assert abs(result.mean + 28.7) < 3 * result.standard_error + 0.2
    pumping = performance(MountainCar.energy_pumping(), MountainCar(), n_episodes=n, max_steps=200)
    assert result.lengths.mean() < pumping.lengths.mean() < 54


@pytest.mark.parametrize("starts", ["box", "valley"])
def test_starts_fill_their_box(starts):
    states = MountainCar(starts).initial(20_000, np.random.default_rng(0))
    low, high = np.array(STARTS[starts])
    assert ((states >= low) & (states <= high)).all()
    np.testing.assert_allclose(states.mean(axis=0), (low + high) / 2, atol=0.02)
    np.testing.assert_allclose(states.std(axis=0), (high - low) / np.sqrt(12), rtol=0.02)
    assert MountainCar(starts).initial(0, np.random.default_rng(0)).shape == (0, 2)


def test_the_box_is_a_copy():
    box = MountainCar().box
    box[:] = 0.0
    np.testing.assert_array_equal(MountainCar().box, [[-1.2, -0.07], [0.5, 0.07]])


@pytest.mark.parametrize("bad", [{"starts": "hill"}, {"starts": None}, {"discount": 1.0}, {"discount": -0.1}], ids=str)
def test_bad_settings_are_refused(bad):
    with pytest.raises(InvalidInputError, match=f"^{next(iter(bad))} must"):
        MountainCar(**bad)


@pytest.mark.parametrize(
    ("states", "actions", "message"),
    [
        (np.zeros((2, 3)), [0, 1], "states must have 2 columns"),
        (np.zeros(2), [0], "states must have two dimensions"),
        (np.zeros((0, 2)), [], "states must have at least one row"),
        ([[0.0, 0.0], [0.0, np.nan]], [0, 1], r"states must be finite; .*states\[1, 1\]"),
        (np.zeros((2, 2)), [0, 3], r"actions must lie in 0\.\.2 .*actions\[1\] = 3"),
        (np.zeros((2, 2)), [-1, 1], r"actions must lie in 0\.\.2 .*actions\[0\] = -1"),
        (np.zeros((2, 2)), [0, 0.5], r"actions must be whole numbers; .*actions\[1\] = 0.5"),
        (np.zeros((2, 2)), [0], r"actions must have shape \(2,\)"),
    ],
)
def test_bad_steps_are_refused(states, actions, message):
    with pytest.raises(InvalidInputError, match=message):
        step(states, actions)


def test_bad_counts_are_refused():
    with pytest.raises(InvalidInputError, match="n must be an integer"):
        MountainCar().initial(-1, np.random.default_rng(0))


def test_pumping_energy_keeps_to_what_is_allowed():
    states, only_coast = np.array([[-0.5, 0.01]]), np.array([[False, True, False]])
    assert MountainCar.energy_pumping().act(states) == [FORWARD]
    assert MountainCar.energy_pumping().act(states, only_coast) == [COAST]
