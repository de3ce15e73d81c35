import numpy as np
import pytest
from scipy.integrate import solve_ivp

from capi.domains import _cart_pole
from capi.domains.cart_pole import STARTS, CartPole
from capi.errors import InvalidInputError
from capi.testing import check_domain, check_policy

G, M, m, l = 9.8, 1.0, 0.1, 0.5  # noqa: E741
BARTO = {"angle_limit": 12.0, "track_limit": 2.4, "integrator": "euler"}
POLES = [
    CartPole(),
    CartPole(**BARTO, reward="survival"),
    CartPole(track_limit=2.4, starts="wide", pole_friction=2e-6, cart_friction=5e-4),
]


def wide_states(n, seed=0):
    return CartPole(starts="wide").initial(n, np.random.default_rng(seed))


def step(poles, states, actions):
    return poles.step(states, actions, np.random.default_rng(0))


def barto_accelerations(v, angle, w, force, pole_friction=0.0, cart_friction=0.0):
    """The equations as Barto, Sutton and Anderson write them: the angle first, then the cart."""
    push = (force + m * l * w**2 * np.sin(angle) - cart_friction * np.sign(v)) / (M + m)
    turn = G * np.sin(angle) - np.cos(angle) * push - pole_friction * w / (m * l)
    b = turn / (l * (4 / 3 - m * np.cos(angle) ** 2 / (M + m)))
    return push - m * l * b * np.cos(angle) / (M + m), b


def energy(states):
    """Kinetic energy of cart and pole, a uniform rod of length 2 l, and potential energy of the pole."""
    _, v, angle, w = states.T
    kinetic = 0.5 * (M + m) * v**2 + m * l * v * w * np.cos(angle) + 0.5 * (4 / 3) * m * l**2 * w**2
    return kinetic + m * G * l * np.cos(angle)


def mean_length(poles, n, seed=0):
    """Return the mean length of ``n`` episodes of random pushes, and its standard error."""
    rng = np.random.default_rng(seed)
    states, lengths = poles.initial(n, rng), np.zeros(n)
    running = np.arange(n)
    while len(running):
        states, _, terminated = poles.step(states, rng.integers(2, size=len(running)), rng)
        lengths[running] += 1
        states, running = states[~terminated], running[~terminated]
    return lengths.mean(), lengths.std() / np.sqrt(n)


@pytest.mark.parametrize("poles", POLES, ids=repr)
def test_keeps_the_contract(poles):
    check_domain(poles)
    check_policy(poles.bang_bang(), wide_states(200), 2)


@pytest.mark.parametrize(("pole_friction", "cart_friction"), [(0.0, 0.0), (2e-6, 5e-4), (0.01, 0.5)])
def test_accelerations_are_those_of_barto_sutton_and_anderson(pole_friction, cart_friction):
    states = np.random.default_rng(0).uniform(-3, 3, size=(200, 4))
    for i, (_, v, angle, w) in enumerate(states):
        given = v, angle, w, (-1) ** i * 10.0, pole_friction, cart_friction
        np.testing.assert_allclose(
            _cart_pole.accelerations(*given), barto_accelerations(*given), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("most", [0.7, 10.0, 1e6])
def test_sine_and_cosine_are_those_of_the_library(most):
    angles = np.random.default_rng(0).uniform(-most, most, size=1000)
    for angle in [0.0, np.pi / 2, np.pi, 3 * np.pi / 2, 7 * np.pi, *angles]:
        expected = np.sin(angle), np.cos(angle)
        np.testing.assert_allclose(_cart_pole.sine_and_cosine(angle), expected, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(
            _cart_pole.sine_and_cosine(-angle), (-1, 1) * np.array(_cart_pole.sine_and_cosine(angle))
        )


def test_a_push_from_rest_by_hand():
    """Upright and at rest: theta'' = -F / (l (4/3 (M + m) - m)), x'' = F / (M + m / 4)."""
    a, b = _cart_pole.accelerations(0.0, 0.0, 0.0, 10.0, 0.0, 0.0)
    assert a == pytest.approx(10 / (M + m / 4))
    assert b == pytest.approx(-10 / (l * (4 / 3 * (M + m) - m)))


def test_runge_kutta_follows_the_differential_equation():
    states = wide_states(20)
    actions = np.arange(20) % 2
    following, _, _ = step(CartPole(), states, actions)

    def motion(_, state, force):
        a, b = barto_accelerations(*state[1:], force)
        return state[1], a, state[3], b

    for state, action, reached in zip(states, actions, following, strict=True):
        force = 10.0 if action else -10.0
        exact = solve_ivp(motion, (0, 0.02), state, args=(force,), rtol=1e-12, atol=1e-13).y[:, -1]
        np.testing.assert_allclose(reached, exact, atol=2e-7)


@pytest.mark.parametrize(("rule", "order"), [(_cart_pole.euler, 1), (_cart_pole.rk4, 4)])
def test_without_a_force_the_error_in_energy_vanishes_with_the_order_of_the_integrator(rule, order):
    def lost(n_steps):
        states = wide_states(50)
        before = energy(states)
        columns = states.T.copy()
        rule(columns, np.zeros(50), 0.5 / n_steps, n_steps, 0.0, 0.0)
        return np.abs(energy(columns.T) - before).max()

    assert lost(400) < 10.0 ** (-2 * order + 1)
    assert lost(200) / lost(400) > 0.9 * 2**order


@pytest.mark.parametrize("friction", [(0.01, 0.0), (0.0, 0.1)], ids=["pole", "cart"])
def test_friction_takes_energy(friction):
    columns = wide_states(50).T.copy()
    before = energy(columns.T)
    _cart_pole.rk4(columns, np.zeros(50), 0.01, 10, *friction)
    assert (energy(columns.T) < before).all()


@pytest.mark.parametrize("poles", POLES, ids=repr)
def test_left_is_the_mirror_image_of_right(poles):
    states, actions = wide_states(100), np.arange(100) % 2
    following, rewards, terminated = step(poles, states, actions)
    mirrored, mirrored_rewards, mirrored_terminated = step(poles, -states, 1 - actions)
    np.testing.assert_array_equal(mirrored, -following)
    np.testing.assert_array_equal(mirrored_rewards, rewards)
    np.testing.assert_array_equal(mirrored_terminated, terminated)


def test_positions_do_not_matter_to_the_motion():
    states, actions = wide_states(100), np.arange(100) % 2
    following, _, _ = step(CartPole(), states, actions)
    away = np.array([100.0, 0.0, 0.0, 0.0])
    elsewhere, _, _ = step(CartPole(), states + away, actions)
    np.testing.assert_allclose(elsewhere, following + away, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("poles", "length"),
    [(CartPole(**BARTO), 23.0), (CartPole(angle_limit=12.0), 21.5), (CartPole(), 33.0)],
    ids=["Euler, 12 degrees", "Runge-Kutta, 12 degrees", "Runge-Kutta, 36 degrees"],
)
def test_random_pushes_last_as_long_as_they_should(poles, length):
    mean, error = mean_length(poles, 1000)
    assert abs(mean - length) < 4 * error + 0.5  # the reference is rounded


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("poles", "starts"),
    [
        (CartPole(**BARTO), None),
        (CartPole(angle_limit=12.0, track_limit=2.4), None),
        (CartPole(track_limit=2.4), None),
        (CartPole(starts="wide"), None),
        (CartPole(starts="wide", pole_friction=2e-6, cart_friction=5e-4), None),
        (CartPole(), CartPole().test_states),
    ],
    ids=["Euler", "12 degrees", "track", "wide", "friction", "test states"],
)
def test_a_simple_policy_balances_3000_steps(poles, starts):
    states = poles.initial(50, np.random.default_rng(0)) if starts is None else starts
    policy = poles.bang_bang()
    for _ in range(3000):
        states, _, terminated = step(poles, states, policy.act(states))
        assert not terminated.any()


@pytest.mark.parametrize("integrator", ["rk4", "euler"])
def test_the_number_of_threads_does_not_change_a_byte(integrator):
    states, actions = wide_states(40_000), np.arange(40_000) % 2
    one = step(CartPole(integrator=integrator, n_jobs=1), states, actions)
    two = step(CartPole(integrator=integrator, n_jobs=2), states, actions)
    for a, b in zip(one, two, strict=True):
        assert a.tobytes() == b.tobytes()


def test_each_state_moves_by_itself_however_the_array_lies_in_memory():
    states, actions = wide_states(9000), np.arange(9000) % 2
    following, _, _ = step(CartPole(), states, actions)
    np.testing.assert_array_equal(step(CartPole(), np.asfortranarray(states), actions)[0], following)
    np.testing.assert_array_equal(step(CartPole(), states[::-1], actions[::-1])[0], following[::-1])
    fixed = states.copy()
    fixed.flags.writeable = False
    np.testing.assert_array_equal(step(CartPole(), fixed, actions.astype(float))[0], following)


def test_the_angle_and_the_track_end_an_episode():
    """A step of Euler's moves positions by 0.02 of the velocities, so that the limits are known by hand."""
    angle = np.radians(12)
    states = np.array(
        [
            [2.0, 0.0, angle, 0.0],
            [2.0, 0.0, angle, 0.1],
            [2.0, 0.0, -angle, -0.1],
            [2.4, 0.0, 0.0, 0.0],
            [2.4, 0.1, 0.0, 0.0],
            [-2.4, -0.1, 0.0, 0.0],
        ]
    )
    actions = np.zeros(6, dtype=int)
    by_angle, on_track = [False, True, True, False, False, False], [False, True, True, False, True, True]
    for poles, ended in ((CartPole(12.0, integrator="euler"), by_angle), (CartPole(**BARTO), on_track)):
        _, rewards, terminated = step(poles, states, actions)
        np.testing.assert_array_equal(terminated, ended)
        np.testing.assert_array_equal(rewards, np.where(ended, -1.0, 0.0))
    _, rewards, _ = step(CartPole(**BARTO, reward="survival"), states, actions)
    np.testing.assert_array_equal(rewards, np.where(on_track, 0.0, 1.0))


def test_an_euler_step_is_that_of_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("CartPole-v1").unwrapped
    states, actions = wide_states(100), np.arange(100) % 2
    following, _, terminated = step(CartPole(**BARTO), states, actions)
    environment.reset(seed=0)
    for i, state in enumerate(states):
        environment.state, environment.steps_beyond_terminated = state, None
        _, _, ended, _, _ = environment.step(int(actions[i]))
        np.testing.assert_allclose(following[i], environment.state, rtol=1e-13, atol=1e-13)
        assert ended == terminated[i]


@pytest.mark.parametrize("starts", ["near", "wide"])
def test_starts_fill_their_box(starts):
    states = CartPole(starts=starts).initial(20_000, np.random.default_rng(0))
    reach = np.array(STARTS[starts])
    assert (np.abs(states) <= reach).all()
    np.testing.assert_allclose(states.mean(axis=0) / reach, 0, atol=0.02)
    np.testing.assert_allclose(states.std(axis=0) / reach, 1 / np.sqrt(3), rtol=0.02)
    assert CartPole().initial(0, np.random.default_rng(0)).shape == (0, 4)


def test_the_test_states_are_a_grid():
    grid = CartPole().test_states
    assert len(np.unique(grid, axis=0)) == 81
    np.testing.assert_allclose(grid.max(axis=0), [1.2, 0.24, np.pi / 10, 75 / 180 * np.pi])
    np.testing.assert_array_equal(np.sort(np.unique(-grid, axis=0)), np.sort(np.unique(grid, axis=0)))


@pytest.mark.parametrize(
    "bad",
    [
        {"angle_limit": 0},
        {"angle_limit": 0.2},
        {"angle_limit": 12, "starts": "wide"},
        {"track_limit": -2.4},
        {"track_limit": 1.0, "starts": "wide"},
        {"integrator": "leapfrog"},
        {"reward": "distance"},
        {"starts": "upright"},
        {"force": 0.0},
        {"discount": 1.0},
        {"pole_friction": -1e-6},
        {"cart_friction": np.nan},
        {"n_jobs": 0},
    ],
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(InvalidInputError, match=f"^{next(iter(bad))} must"):
        CartPole(**bad)


def test_limits_may_be_where_the_starts_end():
    CartPole(angle_limit=18, track_limit=1.2, starts="wide")


@pytest.mark.parametrize(
    ("states", "actions", "message"),
    [
        (np.zeros((2, 3)), [0, 1], "states must have 4 columns"),
        (np.zeros(4), [0], "states must have two dimensions"),
        (np.zeros((0, 4)), [], "states must have at least one row"),
        ([[0.0] * 4, [0.0, np.nan, 0.0, 0.0]], [0, 1], r"states must be finite; .*states\[1, 1\]"),
        ([[0.0] * 4, [0.0, 0.0, 2e5, 0.0]], [0, 1], r"states must have angles within .*states\[1\]"),
        ([[0.0] * 4, [0.0, 0.0, 0.0, 1e200]], [0, 1], r"states must be small enough .*states\[1\]"),
        (np.zeros((2, 4)), [0, 2], r"actions must lie in 0\.\.1 .*actions\[1\] = 2"),
        (np.zeros((2, 4)), [0, 0.5], r"actions must be whole numbers; .*actions\[1\] = 0.5"),
        (np.zeros((2, 4)), [0], r"actions must have shape \(2,\)"),
    ],
)
def test_bad_steps_are_refused(states, actions, message):
    with np.errstate(all="ignore"), pytest.raises(InvalidInputError, match=message):  # kernels that run as Python warn
        step(CartPole(), states, actions)


def test_bad_counts_are_refused():
    with pytest.raises(InvalidInputError, match="n must be an integer"):
        CartPole().initial(-1, np.random.default_rng(0))


def test_the_simple_policy_keeps_to_what_is_allowed():
    states, only_left = np.array([[0.0, 0.0, 0.1, 0.0]]), np.array([[True, False]])
    assert CartPole.bang_bang().act(states) == [1]
    assert CartPole.bang_bang().act(states, only_left) == [0]
