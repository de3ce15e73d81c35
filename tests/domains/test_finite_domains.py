"""The finite problems: rules by hand, published optima, structure, and simulation against the model."""

import numpy as np
import pytest

from capi import CAPI
from capi.domains import (
    Blackjack,
    FrozenLake,
    InventoryManagement,
    MachineMaintenance,
    Navigation,
    SystemAdministrator,
    TicTacToe,
    TigerAndAntelope,
    TrafficIntersection,
)
from capi.errors import InvalidInputError
from capi.evaluators import Exact
from capi.policies import Constant, Uniform
from capi.policy_spaces import OptimalTrees
from capi.simulation import performance
from capi.testing import check_domain

SMALL = [
    FrozenLake("4x4"),
    FrozenLake(["SFF", "FHG"], slip=0.2),
    InventoryManagement(capacity=8, demand=2.0),
    InventoryManagement(capacity=8, demand=2.0, squared_chances=True),
    TrafficIntersection(most_cars=2, most_time=2),
    SystemAdministrator([[1], [0], [0, 1]]),
    MachineMaintenance(),
    Navigation(size=3),
    Blackjack(),
    TigerAndAntelope(size=3),
    TicTacToe(),
]
# Value of uniformly random actions and of the optimum from the start; those of the benchmark of Vos and Verwer at discount 0.99.
KNOWN = [
    (FrozenLake("4x4"), 16, 0.012356, 0.542026),
    (FrozenLake("8x8"), 64, 0.001100, 0.414640),
    (FrozenLake("12x12"), 144, 0.000172, 0.348724),
    (InventoryManagement(squared_chances=True), 101, -961.966, 1026.657),
    (TrafficIntersection(), 361, -146.444, 2.125),
    (SystemAdministrator("random-1"), 256, 98.896, 223.970),
]


@pytest.mark.parametrize("domain", SMALL, ids=repr)
def test_keeps_the_contract(domain):
    check_domain(domain)
    check_domain(domain.mdp)
    assert domain.mdp.states.shape == (domain.mdp.n_states, len(domain.feature_names))
    assert domain.mdp.start.sum() == pytest.approx(1)
    for action in range(domain.n_actions):
        matrix = domain.mdp.transition_matrix(np.full(domain.mdp.n_states, action))
        np.testing.assert_allclose(np.asarray(matrix.sum(axis=1)).ravel(), 1)


@pytest.mark.parametrize(("domain", "n_states", "random", "optimum"), KNOWN, ids=lambda x: repr(x))
def test_values_are_those_of_the_published_problems(domain, n_states, random, optimum):
    mdp = domain.mdp
    assert mdp.n_states == n_states
    digits = 6 if abs(optimum) < 1 else 3
    assert mdp.start @ mdp.values(Uniform(mdp.n_actions)) == pytest.approx(random, abs=0.6 * 10**-digits)
    assert mdp.start @ mdp.optimal_values == pytest.approx(optimum, abs=0.6 * 10**-digits)


@pytest.mark.parametrize(
    "domain", [domain for domain in SMALL if domain.mdp.n_states > 4 and domain.n_actions < 9], ids=repr
)
def test_the_domain_steps_as_the_model_says(domain):
    mdp, rng = domain.mdp, np.random.default_rng(0)
    n = 4_000
    for s, action in zip(rng.integers(mdp.n_states, size=4), rng.integers(mdp.n_actions, size=4), strict=True):
        following, rewards, ended = domain.step(np.tile(mdp.states[s], (n, 1)), np.full(n, action), rng)
        shares = np.bincount(mdp.features.index(following), minlength=mdp.n_states) / n
        matrix = mdp.transition_matrix(np.full(mdp.n_states, action))
        expected = np.asarray((matrix @ np.eye(mdp.n_states))[s]).ravel()
        np.testing.assert_allclose(shares, expected, atol=4 * 0.5 / np.sqrt(n))
        np.testing.assert_allclose(rewards, mdp.rewards[s, action])
        np.testing.assert_array_equal(ended, mdp.absorbing[mdp.features.index(following)])


def test_simulated_returns_agree_with_exact_values():
    lake = FrozenLake(["SFF", "FHG"], slip=0.2, discount=0.9)
    found = performance(Constant(2, 4), lake, n_episodes=20_000, max_steps=200, discount=0.9, random_state=0)
    assert found.mean == pytest.approx(float(lake.mdp.start @ lake.mdp.values(Constant(2, 4))), abs=0.01)


def test_ice_without_slipping_is_a_shortest_path():
    """Six moves; the goal pays at the sixth, so the value is discount ** 5."""
    lake = FrozenLake("4x4", slip=0.0).mdp
    assert lake.start @ lake.optimal_values == pytest.approx(0.99**5)
    assert lake.absorbing.sum() == 5, "four holes and the goal"


def test_a_warehouse_by_hand():
    """Two units of space, one ordered when one is there; demand 0, 1, or more."""
    from scipy.stats import poisson

    store = InventoryManagement(capacity=2, demand=1.0).mdp
    asked = poisson.pmf(range(5), 1.0) / poisson.pmf(range(5), 1.0).sum()
    none, one, more = asked[0], asked[1], asked[2:].sum()
    np.testing.assert_allclose(store.transition_matrix([1, 1, 1])[1], [more, one, none])
    assert store.rewards[1, 1] == pytest.approx(4 * (one + 2 * more) - 10 - 2 - 1)
    weighed = InventoryManagement(capacity=2, demand=1.0, squared_chances=True).mdp
    costs = 10 + 2 + 1
    assert weighed.rewards[1, 1] == pytest.approx(none**2 * -costs + one**2 * (4 - costs) + more**2 * (8 - costs))


def test_an_intersection_by_hand():
    """Right green, cars on both sides: one leaves on the right, and the left one has waited for one step."""
    crossing = TrafficIntersection().mdp
    s = int(crossing.features.index([[1.0, 2.0, 3.0, 1.0]])[0])
    assert crossing.rewards[s].tolist() == pytest.approx([1 - 2 * 0.1 * 2 - 2, 1 - 2 * 0.1 * 2])
    for action, after in ((0, (0.0, 1.0)), (1, (1.0, 2.0))):
        row = np.asarray((crossing.transition_matrix(np.full(361, action)) @ np.eye(361))[s]).ravel()
        reached = crossing.states[row > 0]
        assert {(x[0], x[3]) for x in reached} == {after}
        assert reached[:, 2].min() == 2.0, "one car has left on the right"
        assert reached[:, 1].min() == 2.0


def test_one_computer_in_closed_form():
    """A computer alone, never rebooted, is a chain of two states."""
    alone = SystemAdministrator([[]]).mdp
    wait = alone.values(Constant(1, 2))
    stays, recovers, discount = 0.95, 0.05, 0.99
    expected = np.linalg.solve(
        np.eye(2) - discount * np.array([[1 - recovers, recovers], [1 - stays, stays]]), [0.0, 1.0]
    )
    np.testing.assert_allclose(wait, expected)
    assert alone.values(Constant(0, 2))[1] == pytest.approx(0.55 / 0.01), "rebooted in each step, it always runs"


def test_the_machine_has_the_optimum_of_the_book():
    machine = MachineMaintenance().mdp
    np.testing.assert_allclose(machine.optimal_values, [-14_949, -16_262, -18_636, -19_454], atol=1.5)
    assert machine.optimal_policy.actions.tolist() == [0, 0, 1, 2]


def test_the_cube_without_chances_is_a_shortest_path():
    cube = Navigation(size=2)
    assert cube.chances[0, 0, 0] == cube.chances[1, 1, 1] == 0
    np.testing.assert_array_equal(cube.chances.ravel()[1:3], [0.5488135039273248, 0.7151893663724195])
    corner = int(cube.mdp.features.index([[1.0, 1.0, 0.0]])[0])
    assert cube.mdp.rewards[corner, 4] == pytest.approx(1 - cube.chances[1, 1, 0])


def test_blackjack_by_hand():
    game = Blackjack().mdp
    after = {tuple(x): r for x, r in zip(game.states, game.rewards[:, 0], strict=True)}
    assert after[1.0, 21.0, 20.0] == 1.5
    assert after[1.0, 20.0, 20.0] == -1.0
    assert after[1.0, 12.0, 22.0] == 1.0
    assert after[0.0, 22.0, 5.0] == -1.0
    assert after[1.0, 20.0, 10.0] == 0.0, "the dealer still draws"
    s = int(game.features.index([[0.0, 20.0, 10.0]])[0])
    row = np.asarray((game.transition_matrix(np.ones(game.n_states, dtype=int)) @ np.eye(game.n_states))[s]).ravel()
    assert row[game.features.index([[0.0, 22.0, 10.0]])] == pytest.approx(1.0), "the smallest card is 2"


def test_a_tiger_beside_the_antelope():
    hunt = TigerAndAntelope(size=2).mdp
    s = int(hunt.features.index([[0.0, 0.0, 0.0, 1.0]])[0])  # the antelope can only go right
    for action, caught in ((1, 0.0), (4, 0.0), (2, 0.0)):
        row = np.asarray((hunt.transition_matrix(np.full(hunt.n_states, action)) @ np.eye(hunt.n_states))[s]).ravel()
        reached = hunt.states[np.flatnonzero(row)]
        assert (reached[:, :2] == [1.0, 0.0]).all()
        assert float((reached[0, :2] == reached[0, 2:]).all()) == caught
    together = hunt.features.index([[1.0, 1.0, 1.0, 1.0]])
    assert (hunt.rewards[together] == 1).all()
    assert hunt.absorbing.sum() == 1


def test_tic_tac_toe_by_hand():
    game = TicTacToe().mdp
    assert game.rewards[game.features.index([TicTacToe().initial(1, np.random.default_rng(0))[0]])].max() == 0
    two_crosses = np.zeros(27)
    for square, what in enumerate((1, 1, 0, 2, 2, 0, 0, 0, 0)):
        two_crosses[3 * square + what] = 1
    s = int(game.features.index([two_crosses])[0])
    assert game.rewards[s, 2] == 1, "completes the top row"
    assert game.rewards[s, 0] == -1, "taken"
    assert game.rewards[s, 6] == pytest.approx(-1 / 4), "the circle completes the middle row in one case of four"
    assert game.values(Constant(0, 9))[game.features.index([_empty()])] == pytest.approx(
        -0.99 * 7 / 8 - 0.99 / 8, abs=1e-12
    ), "the second move to the same square loses"


def _empty():
    state = np.zeros(27)
    state[::3] = 1
    return state


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        (FrozenLake, {"lake": "5x5"}, "lake"),
        (FrozenLake, {"lake": ["SF", "F"]}, "lake"),
        (FrozenLake, {"lake": ["FF", "FG"]}, "lake"),
        (FrozenLake, {"slip": 1.5}, "slip"),
        (SystemAdministrator, {"network": "ring"}, "network"),
        (SystemAdministrator, {"network": [[3]]}, "network"),
        (InventoryManagement, {"capacity": 0}, "capacity"),
        (TrafficIntersection, {"discount": 1.0}, "discount"),
        (Navigation, {"size": 1}, "size"),
    ],
)
def test_wrong_parameters_are_named(kind, options, word):
    with pytest.raises(InvalidInputError, match=word):
        kind(**options)


def test_states_with_features_go_through_the_loop():
    lake = FrozenLake("4x4").mdp
    learner = CAPI(Exact(lake), OptimalTrees(max_depth=2), 0.99, 5, initial_policy=lake.optimal_policy).fit()
    assert "x <=" in learner.policy_.rules()
    assert lake.performance_loss(learner.policy_) >= 0
    with pytest.raises(InvalidInputError, match="rows of the model's features"):
        lake.optimal_policy.act(np.array([[9.0, 9.0]]))
