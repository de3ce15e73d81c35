import numpy as np
import pytest
import scipy.sparse as sp

import builders
import naive
from capi import FiniteMDP
from capi.errors import InvalidInputError
from capi.finite import TabularQ, linear_systems
from capi.policies import Constant, Tabular, Uniform
from capi.testing import check_domain

STAY_OR_MOVE = [np.eye(2), 1 - np.eye(2)]
SEEDS = range(5)


def two_states(**options):
    """Reward 1 in the second state, whatever is done."""
    return FiniteMDP(**{"P": STAY_OR_MOVE, "R": [[0.0, 0.0], [1.0, 1.0]], "discount": 0.9, **options})


def random_pair(seed, discount=0.95):
    """Return the same MDP dense and sparse."""
    P, R = builders.random_mdp(np.random.default_rng(seed))
    return FiniteMDP(P, R, discount), FiniteMDP([sp.csr_array(part) for part in P], R, discount)


@pytest.fixture(params=["direct", "iterative"])
def solver(request, monkeypatch):
    """Solve small systems as the large ones are solved, too."""
    if request.param == "iterative":
        monkeypatch.setattr(linear_systems, "DENSE_LIMIT", 0)


@pytest.mark.usefixtures("solver")
def test_two_states_in_closed_form():
    mdp = two_states()
    np.testing.assert_allclose(mdp.values([0, 0]), [0, 10])
    np.testing.assert_allclose(mdp.action_values([0, 0]), [[0, 9], [10, 1]], atol=1e-11)
    np.testing.assert_allclose(mdp.values([1, 0]), [9, 10])
    np.testing.assert_array_equal(mdp.optimal_policy.actions, [1, 0])
    np.testing.assert_allclose(mdp.optimal_action_values, [[8.1, 9], [10, 9.1]])
    assert mdp.performance_loss(Constant(0, 2)) == pytest.approx(4.5)
    assert mdp.performance_loss(Constant(0, 2), start=[1.0, 0.0]) == pytest.approx(9)
    assert mdp.performance_loss([1, 0]) == 0


def test_the_gambler_with_three_coins_in_closed_form():
    """Gambler's ruin with fair coins: the chance to reach 3 from x is x / 3 (discount 1 - 1e-12)."""
    P = np.zeros((1, 4, 4))
    P[0, 0, 0] = P[0, 3, 3] = 1
    for x in (1, 2):
        P[0, x, x - 1] = P[0, x, x + 1] = 0.5
    win = np.zeros((4, 1))
    win[2] = 0.5  # the expected reward of the step that may win
    mdp = FiniteMDP(P, win, discount=1 - 1e-12)
    np.testing.assert_allclose(mdp.values([0, 0, 0, 0])[1:3], [1 / 3, 2 / 3], rtol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("solver")
def test_dense_and_sparse_agree_with_the_naive_twin(seed):
    rng = np.random.default_rng(seed)
    P, R = builders.random_mdp(np.random.default_rng(seed))
    pi = rng.dirichlet(np.ones(3), size=5)
    expected = naive.action_values(P, R, 0.95, pi)
    for mdp in random_pair(seed):
        np.testing.assert_allclose(mdp.action_values(pi), expected, atol=1e-9)
        np.testing.assert_allclose(mdp.values(pi), (pi * expected).sum(axis=1), atol=1e-9)
        np.testing.assert_allclose(mdp.optimal_values, naive.optimal_values(P, R, 0.95), atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_operators_have_their_fixed_points(seed):
    for mdp in random_pair(seed):
        q = mdp.action_values([0, 1, 2, 1, 0])
        np.testing.assert_allclose(mdp.bellman([0, 1, 2, 1, 0], q), q, atol=1e-9)
        best = mdp.optimal_action_values
        np.testing.assert_allclose(mdp.bellman_optimality(best), best, atol=1e-9)
        np.testing.assert_allclose(mdp.bellman(mdp.greedy(best), best), best, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("solver")
def test_occupancies(seed):
    for mdp in random_pair(seed):
        pi = Uniform(3)
        P_pi = np.asarray(mdp.transition_matrix(pi) @ np.eye(5))
        mu = mdp.stationary_distribution(pi)
        np.testing.assert_allclose(mu @ P_pi, mu, atol=1e-10)
        assert mu.sum() == pytest.approx(1)
        rho = np.array([1.0, 0, 0, 0, 0])
        d = mdp.discounted_occupancy(pi, start=rho)
        series = sum(0.05 * 0.95**t * rho @ np.linalg.matrix_power(P_pi, t) for t in range(800))
        np.testing.assert_allclose(d, series, atol=1e-10)
        assert rho @ mdp.values(pi) == pytest.approx(d @ mdp.reward_vector(pi) / 0.05), "V is occupancy times reward"


@pytest.mark.usefixtures("solver")
def test_stationary_distribution_of_a_cycle_and_with_transient_states():
    cycle = FiniteMDP([np.roll(np.eye(3), 1, axis=1)], np.zeros((3, 1)), 0.5)
    np.testing.assert_allclose(cycle.stationary_distribution(np.zeros(3, dtype=int)), np.full(3, 1 / 3))
    falls = FiniteMDP([[[0.0, 1.0], [0.0, 1.0]]], np.zeros((2, 1)), 0.5)
    np.testing.assert_allclose(falls.stationary_distribution([0, 0]), [0, 1])


def test_stationary_distribution_of_a_long_chain_with_all_its_mass_at_one_end():
    """The far end has no mass that float64 could hold; the near end has 8/9 of it, whatever the solver."""
    n = 2_500
    x = np.arange(n)
    ends = np.concatenate([np.maximum(x - 1, 0), np.minimum(x + 1, n - 1)])
    steps = sp.csr_array((np.repeat([0.9, 0.1], n), (np.tile(x, 2), ends)), shape=(n, n))
    mu = FiniteMDP([steps], np.zeros((n, 1)), 0.9).stationary_distribution(np.zeros(n, dtype=int))
    np.testing.assert_allclose(mu[:3], [8 / 9, 8 / 81, 8 / 729], rtol=1e-9)


def test_nobody_can_change_a_model_from_outside():
    start, table = np.array([0.5, 0.5]), np.zeros((2, 2))
    mdp = two_states(start=start)
    view = table.view()
    view.flags.writeable = False
    q = TabularQ(view)
    start[0], table[0, 0] = 9.0, 5.0
    assert mdp.start[0] == 0.5
    assert q.table[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        mdp.start[0] = 1.0


def test_several_stationary_distributions_are_refused_with_the_states():
    with pytest.raises(InvalidInputError, match="2 stationary distributions: states 0 and 1"):
        two_states().stationary_distribution([0, 0])


def test_evaluation_by_sweeps_keeps_its_promise():
    mdp = two_states()
    values, n_sweeps = mdp.values_by_sweeps([0, 0], tolerance=1e-6)
    np.testing.assert_allclose(values, [0, 10], atol=1e-6)
    assert n_sweeps == np.ceil(np.log(1e-7) / np.log(0.9)), "the error after k sweeps is 10 * 0.9**k"


def test_policies_may_be_objects_actions_or_probabilities():
    mdp = two_states()
    expected = mdp.values(np.array([[0.0, 1.0], [1.0, 0.0]]))
    np.testing.assert_array_equal(mdp.values([1, 0]), expected)
    np.testing.assert_array_equal(mdp.values(Tabular(np.array([1, 0]), 2)), expected)


def test_scaling_rewards_scales_values_and_moves_no_decision():
    P, R = builders.random_mdp(np.random.default_rng(1))
    base, tiny = FiniteMDP(P, R, 0.9), FiniteMDP(P, R * 1e-20, 0.9)
    np.testing.assert_array_equal(tiny.optimal_policy.actions, base.optimal_policy.actions)
    np.testing.assert_allclose(tiny.optimal_values, base.optimal_values * 1e-20)


def test_it_is_a_domain_that_draws_by_its_probabilities():
    P, R = builders.random_mdp(np.random.default_rng(3))
    for mdp in (FiniteMDP(P, R, 0.9), FiniteMDP([sp.csr_array(part) for part in P], R, 0.9)):
        check_domain(mdp)
        n = 40_000
        states, actions = np.full((n, 1), 2.0), np.full(n, 1)
        following, rewards, terminated = mdp.step(states, actions, np.random.default_rng(0))
        shares = np.bincount(following[:, 0].astype(int), minlength=5) / n
        np.testing.assert_allclose(shares, P[1, 2], atol=4 * 0.5 / np.sqrt(n))
        assert (shares[P[1, 2] == 0] == 0).all()
        assert set(rewards) == {R[2, 1]}
        assert not terminated.any()


def test_initial_states_follow_the_start_distribution():
    drawn = two_states(start=[0.0, 1.0]).initial(50, np.random.default_rng(0))
    assert (drawn == 1).all()


def test_repr_says_what_it_is():
    assert repr(two_states()) == "FiniteMDP: 2 states, 2 actions, discount 0.9, dense"
    sparse = two_states(P=[sp.csr_array(part) for part in STAY_OR_MOVE])
    assert repr(sparse) == "FiniteMDP: 2 states, 2 actions, discount 0.9, sparse (4 transitions)"


def test_a_table_of_values_is_its_own():
    table = np.zeros((2, 2))
    q = TabularQ(table)
    table[0, 0] = 5
    assert q.values(np.array([[0.0]]))[0, 0] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"P": [np.eye(2), [[0.5, 0.4], [0.0, 1.0]]]}, r"sum to one; 1 of 4 do not, first action 1, state 0.*0\.9"),
        ({"P": [np.eye(2), [[1.5, -0.5], [0.0, 1.0]]]}, r"P\[1\]\[0, 1\] = -0.5 \(action 1, state 0, next state 1\)"),
        ({"P": [np.eye(2), [[np.nan, 0.5], [0.0, 1.0]]]}, r"P\[1\]\[0, 0\] = nan"),
        ({"P": [sp.eye_array(2), sp.csr_array([[0.5, 0.4], [0.0, 1.0]])]}, "action 1, state 0"),
        ({"P": [sp.eye_array(2), sp.csr_array([[1.5, -0.5], [0.0, 1.0]])]}, r"P\[1\]\[0, 1\] = -0.5"),
        ({"P": [sp.eye_array(2), sp.eye_array(3)]}, r"P\[1\] must be a sparse array of shape \(2, 2\)"),
        ({"P": sp.eye_array(2)}, "sequence of sparse arrays"),
        ({"P": [sp.eye_array(2), None]}, r"P\[1\] must be a sparse array.*got a NoneType"),
        ({"P": [np.eye(2) * 1j, np.eye(2)]}, "P must be real numbers; got complex"),
        ({"P": np.eye(2)}, r"P must have shape \(n_actions, n_states, n_states\).*got \(2, 2\)"),
        ({"P": "no"}, "P must be real numbers"),
        ({"P": np.array(3.0)}, "P must be real numbers"),
        ({"P": [[[1.0]], [[1.0, 2.0]]]}, "P must be a regular array"),
        ({"P": [sp.eye_array(2), np.eye(2)]}, r"P\[1\] must be a sparse array.*got a ndarray"),
        ({"P": [sp.eye_array(2, dtype=complex)] * 2}, "P must be real numbers; got complex"),
        ({"P": []}, "P must have shape"),
        ({"R": [[0.0, 0.0]]}, r"R must have shape.*\(2, 2\); got \(1, 2\)"),
        ({"R": [[0.0, np.inf], [0.0, 0.0]]}, r"R must be finite.*R\[0, 1\]"),
        ({"discount": 1.0}, r"discount must lie in \[0, 1\); got 1.0"),
        ({"discount": -0.1}, "discount"),
        ({"discount": np.nan}, "discount"),
        ({"discount": "0.9"}, "discount"),
        ({"start": [0.5, 0.4]}, "start must sum to one; it sums to 0.9"),
        ({"action_labels": ["a"]}, "action_labels must have 2 entries"),
    ],
)
def test_bad_models_are_refused_with_the_culprit(options, words):
    with pytest.raises(InvalidInputError, match=words):
        two_states(**options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda mdp: mdp.values([0, 2]), r"policy\[1\] = 2"),
        (lambda mdp: mdp.values([0]), r"policy must have shape \(2,\)"),
        (lambda mdp: mdp.values([[1, 0], [1]]), "policy must be a regular array"),
        (lambda mdp: mdp.values_by_sweeps([0, 0], tolerance=np.nan), "tolerance must be a positive number"),
        (lambda mdp: mdp.values([[0.5, 0.4], [1.0, 0.0]]), "distribution over actions in each state; state 0"),
        (lambda mdp: mdp.values(Constant(0, 3)), r"policy must have shape \(2, 2\); got \(2, 3\)"),
        (lambda mdp: mdp.bellman([0, 0], [[1.0, 2.0]]), r"q must have shape \(2, 2\)"),
        (lambda mdp: mdp.bellman([0, 0], np.zeros((2, 2)), n_sweeps=0), "n_sweeps must be an integer, at least 1"),
        (lambda mdp: mdp.improved(np.array([0]), np.zeros((2, 2))), r"policy must have shape \(2,\)"),
        (lambda mdp: mdp.initial(-3, np.random.default_rng(0)), "n must be an integer"),
        (lambda mdp: mdp.step([[5.0]], [0], np.random.default_rng(0)), r"state indices.*states\[0\] = 5"),
        (lambda mdp: mdp.step([[1.0]], [7], np.random.default_rng(0)), r"actions\[0\] = 7"),
    ],
)
def test_bad_questions_are_refused_with_the_culprit(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call(two_states())


def test_states_with_features_are_found_by_their_rows():
    features = [[2.0, 0.0], [-0.0, 5.0]]
    mdp = two_states(features=features, feature_names=["speed", "load"])
    assert mdp.feature_names == ("speed", "load")
    np.testing.assert_array_equal(mdp.features.index([[0.0, 5.0], [2.0, 0.0], [2.0, -0.0]]), [1, 0, 0])
    np.testing.assert_array_equal(mdp.optimal_policy.act(np.array([[0.0, 5.0], [2.0, 0.0]])), [0, 1])
    following, rewards, _ = mdp.step(np.array([[2.0, 0.0]]), np.array([1]), np.random.default_rng(0))
    np.testing.assert_array_equal(following, [[0.0, 5.0]])
    np.testing.assert_array_equal(rewards, [0.0])
    np.testing.assert_array_equal(TabularQ([[1.0, 2.0], [3.0, 4.0]], mdp.features).values([[0.0, 5.0]]), [[3.0, 4.0]])
    np.testing.assert_allclose(mdp.values(mdp.optimal_policy), two_states().optimal_values)
    check_domain(mdp)


def test_wrong_features_are_refused():
    with pytest.raises(InvalidInputError, match="states 0 and 1 have the same"):
        two_states(features=[[1.0], [1.0]])
    with pytest.raises(InvalidInputError, match="one row per state"):
        two_states(features=[[1.0]])
    mdp = two_states(features=[[1.0], [2.0]])
    with pytest.raises(InvalidInputError, match="rows of the model's features"):
        mdp.optimal_policy.act(np.array([[1.5]]))


def test_absorbing_states_are_never_left_and_earn_nothing():
    P = [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]
    R = [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    for parts in (np.array(P), [sp.csr_array(part) for part in P]):
        np.testing.assert_array_equal(FiniteMDP(parts, R, 0.9).absorbing, [True, False, False])
