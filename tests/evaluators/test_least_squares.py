"""LSTD, Bellman residuals and Lasso-TD: against their formulas, against each other, and against exact values."""

import itertools
import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import PolynomialFeatures

import builders
import naive
from capi import CAPI, FiniteMDP, PartitionedTransitions, Transitions
from capi.baselines import LSPI
from capi.errors import DivergenceError, InvalidInputError, PathEndedWarning
from capi.evaluators import GTD2, LSTDQ, TD, BellmanResidual, FittedQ, KernelFittedQ, LassoTD, _means, lasso_td
from capi.features import RKHS, Fourier, KernelDictionary, OneHot, Polynomial, RadialCentres, RadialGrid, Tiles
from capi.features.kernels import Gaussian, LinearKernel
from capi.features.tables import FittedFeatures, fitted_features, same_fitted
from capi.policies import Constant, EpsilonGreedy, Greedy, Tabular, Uniform
from capi.policy_spaces import Unrestricted
from capi.runs.checkpoint import read_checkpoint, write_checkpoint
from capi.simulation import sample_episodes
from capi.testing import check_evaluator, random_batch

GAMMA = 0.9


def tabular(states):
    return np.eye(6)[states[:, 0].astype(int)]


def quadratic(states):
    return np.column_stack([np.ones(len(states)), states, states[:, :1] * states[:, 1:]])


def sparse_quadratic(states):
    return sp.csr_array(quadratic(states))


def tabular_two(states):
    return (states > 0).astype(float)


def weighted_batch(seed=0):
    batch = random_batch(seed)
    weight = np.random.default_rng(seed).integers(0, 4, size=len(batch)).astype(float)
    columns = {name: getattr(batch, name) for name in ("states", "actions", "rewards", "next_states", "terminated")}
    return Transitions(**columns, n_actions=batch.n_actions, weights=weight)


def repeated(batch):
    """The same rows without weights: each as often as its weight says."""
    rows = np.repeat(np.arange(len(batch)), batch.weights.astype(int))
    columns = (batch.states, batch.actions, batch.rewards, batch.next_states, batch.terminated)
    return Transitions(*(column[rows] for column in columns), n_actions=batch.n_actions)


CONTRACTS = [
    LSTDQ(quadratic),
    LSTDQ(quadratic, n_sweeps=3),
    LSTDQ(PolynomialFeatures(2), ridge=1e-3),
    LSTDQ(RadialGrid(3), ridge=1e-3, projection_ridge=1e-3),
    LSTDQ(Tiles(4, 3), ridge=1e-3),
    LSTDQ(RKHS(Gaussian(0.5)), ridge=1e-3, projection_ridge=1e-3),
    BellmanResidual(Fourier(2), ridge=1e-3),
    BellmanResidual(Tiles(2, 3), auxiliary=RadialGrid(5), ridge=0.1),
    BellmanResidual(quadratic, auxiliary=None),
    BellmanResidual(RKHS(Gaussian(0.5)), ridge=1e-3, projection_ridge=1e-3),
    LassoTD(Polynomial(2), penalty=0.01),
    LassoTD(RadialCentres(5), penalty=0.01, solver="fixed-point"),
]


@pytest.mark.parametrize("evaluator", CONTRACTS, ids=lambda e: type(e).__name__)
def test_keeps_the_contract(evaluator):
    check_evaluator(evaluator, discount=0.5)


@pytest.fixture(scope="module")
def six_states():
    rng = np.random.default_rng(0)
    mdp = FiniteMDP(rng.dirichlet(np.ones(6), size=(3, 6)), rng.random((6, 3)), discount=GAMMA)
    return mdp, builders.tabular_batch(mdp, 200_000, rng)


POLICIES = [Constant(1, 3), Tabular(np.array([0, 1, 2, 0, 1, 2]), 3), Uniform(3), EpsilonGreedy(Constant(2, 3), 0.3)]


@pytest.mark.parametrize("features", [tabular, OneHot(6), OneHot()], ids=["callable", "n_values", "learned"])
@pytest.mark.parametrize("method", [LSTDQ, BellmanResidual, LassoTD])
def test_defaults_come_near_the_exact_values_of_a_finite_problem(six_states, method, features):
    mdp, batch = six_states
    for policy in POLICIES:
        q = method(features).evaluate(policy, batch, discount=GAMMA)
        assert np.abs(q.values(mdp.states) - mdp.action_values(policy)).max() < 0.1


def test_on_policy_data_give_the_exact_values_too():
    rng = np.random.default_rng(1)
    P, R = builders.random_mdp(rng, 6, 3)
    mdp = FiniteMDP(P, R, discount=GAMMA)
    policy = EpsilonGreedy(Tabular(np.array([0, 1, 2, 0, 1, 2]), 3), 0.2)
    batch = sample_episodes(policy, mdp, n_episodes=1000, max_steps=100, random_state=0)
    for method in (LSTDQ, BellmanResidual, LassoTD):
        q = method(tabular).evaluate(policy, batch, discount=GAMMA)
        assert np.abs(q.values(mdp.states) - mdp.action_values(policy)).max() < 0.3


def formula_lstd(batch, policy, phi, discount, ridge):
    now, then = naive.pair_features(batch, policy, phi)
    n = len(batch)
    return np.linalg.solve(
        now.T @ (now - discount * then) / n + ridge * np.eye(now.shape[1]), now.T @ batch.rewards / n
    )


@pytest.mark.parametrize("policy", [Constant(2, 3), Uniform(3)], ids=["constant", "uniform"])
@pytest.mark.parametrize("sparse", [False, True])
def test_lstd_is_its_formula(policy, sparse):
    batch = random_batch(3)
    features = sparse_quadratic if sparse else quadratic
    q = LSTDQ(features, ridge=0.01).evaluate(policy, batch, discount=GAMMA)
    np.testing.assert_allclose(q.weights.ravel(), formula_lstd(batch, policy, quadratic, GAMMA, 0.01), rtol=1e-8)


def formula_regularised(batch, policy, phi, discount, ridge, projection_ridge, psi=None):
    """(regularised LSTD, regularised residual) by the n x n matrices of the papers."""
    now, then = naive.pair_features(batch, policy, phi)
    auxiliary = now if psi is None else naive.pair_features(batch, policy, psi)[0]
    n, r, eye = len(batch), batch.rewards, np.eye(now.shape[1])
    inner = auxiliary.T @ auxiliary + n * projection_ridge * np.eye(auxiliary.shape[1])
    H = auxiliary @ np.linalg.solve(inner, auxiliary.T)
    B = now - discount * H @ then
    lstd = np.linalg.solve(B.T @ B + n * ridge * eye, B.T @ H @ r)
    G, D = (np.eye(n) - H).T @ (np.eye(n) - H), now - discount * then
    left = D.T @ D - discount**2 * then.T @ G @ then + n * ridge * eye
    return lstd, np.linalg.solve(left, D.T @ r + discount * then.T @ G @ r)


@pytest.mark.parametrize("policy", [Constant(2, 3), Uniform(3)], ids=["constant", "uniform"])
def test_regularised_forms_are_their_formulas(policy):
    batch = random_batch(4, n_episodes=40)
    lstd, residual = formula_regularised(batch, policy, quadratic, GAMMA, 0.8, 0.05)
    options = {"ridge": 0.8, "projection_ridge": 0.05}
    found = LSTDQ(quadratic, **options).evaluate(policy, batch, discount=GAMMA)
    np.testing.assert_allclose(found.weights.ravel(), lstd, rtol=1e-8)
    found = BellmanResidual(quadratic, **options).evaluate(policy, batch, discount=GAMMA)
    np.testing.assert_allclose(found.weights.ravel(), residual, rtol=1e-8)


@pytest.mark.parametrize("sparse", [False, True])
def test_an_auxiliary_space_of_its_own_is_its_formula(sparse):
    batch, policy = random_batch(5, n_episodes=40), Uniform(3)
    cubes = Polynomial(3, scale=None).fit(batch.states).transform
    expected = formula_regularised(batch, policy, quadratic, GAMMA, 0.02, 0.1, cubes)[1]
    auxiliary = (lambda x: sp.csr_array(cubes(x))) if sparse else cubes
    evaluator = BellmanResidual(quadratic, auxiliary, ridge=0.02, projection_ridge=0.1)
    np.testing.assert_allclose(evaluator.evaluate(policy, batch, discount=GAMMA).weights.ravel(), expected, rtol=1e-8)


def test_the_plain_residual_is_its_formula_and_biased_where_transitions_are_random(six_states):
    batch, policy = random_batch(6), EpsilonGreedy(Constant(1, 3), 0.5)
    now, then = naive.pair_features(batch, policy, quadratic)
    expected = np.linalg.lstsq(now - GAMMA * then, batch.rewards)[0]
    plain = BellmanResidual(quadratic, auxiliary=None)
    np.testing.assert_allclose(plain.evaluate(policy, batch, discount=GAMMA).weights.ravel(), expected, rtol=1e-6)
    mdp, many = six_states
    q = BellmanResidual(tabular, auxiliary=None).evaluate(Constant(1, 3), many, discount=GAMMA)
    assert np.abs(q.values(mdp.states) - mdp.action_values(Constant(1, 3))).max() > 0.2


@given(seed=st.integers(0, 50), discount=st.sampled_from([0.0, 0.5, 0.9]))
@settings(max_examples=15, deadline=None)
def test_the_modified_residual_in_its_own_space_is_lstd(seed, discount):
    batch, policy = random_batch(seed, n_episodes=60), Uniform(3)
    lstd = LSTDQ(quadratic, ridge=0).evaluate(policy, batch, discount=discount)
    residual = BellmanResidual(quadratic, ridge=0, projection_ridge=0).evaluate(policy, batch, discount=discount)
    np.testing.assert_allclose(residual.weights, lstd.weights, rtol=1e-5, atol=1e-6 * np.abs(lstd.weights).max())


@pytest.mark.parametrize("method", [LSTDQ, BellmanResidual])
@pytest.mark.parametrize("weighted", [False, True])
def test_with_a_linear_kernel_the_rkhs_form_is_the_linear_form(method, weighted):
    batch = weighted_batch(7) if weighted else random_batch(7)
    options = {"ridge": 0.8, "projection_ridge": 0.05}
    linear_form = method(lambda x: x, **options)
    kernel_form = method(RKHS(LinearKernel(), scale=None), **options)
    for policy in (Constant(0, 3), Uniform(3)):
        values = [e.evaluate(policy, batch, discount=GAMMA).values(batch.states) for e in (linear_form, kernel_form)]
        np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", [LSTDQ, BellmanResidual])
def test_a_kernel_that_tells_all_states_apart_comes_near_the_exact_values(method):
    rng = np.random.default_rng(3)
    mdp = FiniteMDP(rng.dirichlet(np.ones(4), size=(2, 4)), rng.random((4, 2)), discount=0.8)
    batch = builders.tabular_batch(mdp, 600, rng)
    evaluator = method(RKHS(Gaussian(0.05), scale=None), ridge=1e-7, projection_ridge=1e-7)
    q = evaluator.evaluate(Constant(1, 2), batch, discount=0.8).values(mdp.states)
    tabular_q = LSTDQ(OneHot(4)).evaluate(Constant(1, 2), batch, discount=0.8).values(mdp.states)
    np.testing.assert_allclose(q, tabular_q, atol=1e-3)


@pytest.mark.parametrize(
    "evaluator",
    [
        LSTDQ(quadratic, ridge=0.01),
        LSTDQ(sparse_quadratic, ridge=0.01),
        LSTDQ(quadratic, ridge=0.01, projection_ridge=0.1),
        LSTDQ(RKHS(Gaussian(1.0), scale=None), ridge=0.01, projection_ridge=0.1),
        BellmanResidual(quadratic, ridge=0.01, projection_ridge=0.1),
        BellmanResidual(sparse_quadratic, tabular_two, ridge=5.0, projection_ridge=0.1),
        BellmanResidual(quadratic, None, ridge=0.01),
        BellmanResidual(RKHS(Gaussian(1.0), scale=None), ridge=0.01, projection_ridge=0.1),
        LassoTD(quadratic, 0.05),
    ],
    ids=lambda e: type(e).__name__,
)
def test_weights_are_repetitions(evaluator):
    """A row of weight 3 counts like three equal rows."""
    batch = weighted_batch(2)
    one, other = (
        evaluator.evaluate(Uniform(3), b, discount=0.5).values(batch.states) for b in (batch, repeated(batch))
    )
    np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "evaluator", [LSTDQ(quadratic), LSTDQ(Tiles(2, 2), ridge=1e-3), BellmanResidual(quadratic, None)]
)
@pytest.mark.parametrize("policy", [Constant(1, 3), Uniform(3)], ids=["constant", "uniform"])
def test_blocks_of_rows_give_what_the_whole_batch_gives(monkeypatch, evaluator, policy):
    batch = random_batch(8, n_episodes=400)
    whole = evaluator.evaluate(policy, batch, discount=GAMMA)
    monkeypatch.setattr(_means, "ENTRIES_AT_ONCE", 1)  # 256 rows at once
    monkeypatch.setattr("capi.features.tables.MOST_KEPT", 0)
    monkeypatch.setattr("capi.features.tables.ROWS_AT_ONCE", 100)
    blocks = evaluator.evaluate(policy, batch, discount=GAMMA)
    np.testing.assert_allclose(blocks.weights, whole.weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(blocks.values(batch.states), whole.values(batch.states), rtol=1e-9)


def walks(seed, weights=None):
    """Random walks whose next states are the states of the next rows, some with elapsed times and masks."""
    batch = random_batch(seed, n_episodes=300)
    last = np.append(np.diff(batch.episodes) != 0, True)
    following = np.where(last[:, None], batch.next_states, np.roll(batch.states, -1, axis=0))
    rng = np.random.default_rng(seed)
    n = len(batch)
    more = {"weights": rng.integers(0, 3, size=n).astype(float), "elapsed": rng.integers(1, 4, size=n).astype(float)}
    masks = {"allowed": np.ones((n, 3), dtype=bool), "next_allowed": rng.random((n, 3)) < 0.8}
    masks["next_allowed"][:, 0] = True
    columns = (batch.states, batch.actions, batch.rewards, following, batch.terminated)
    return Transitions(*columns, n_actions=3, episodes=batch.episodes, **({**more, **masks} if weights else {}))


@pytest.mark.parametrize("with_more", [False, True])
@pytest.mark.parametrize("evaluator", [LSTDQ(quadratic), LSTDQ(quadratic, n_sweeps=2), LSTDQ(sparse_quadratic), BellmanResidual(quadratic), BellmanResidual(tabular_two, quadratic)])  # fmt: skip
def test_features_of_next_states_may_be_those_of_the_next_row(monkeypatch, evaluator, with_more):
    """The slow twin keeps two tables of features, one of the states and one of the next states, and asks the policy for all rows."""
    batch = walks(12, with_more)
    first = evaluator.evaluate(Constant(1, 3), batch, discount=GAMMA)
    policy = Greedy(first)
    twin = _means._decider
    monkeypatch.setattr(_means, "_decider", lambda policy, _: policy)
    slow = evaluator.evaluate(policy, batch, discount=GAMMA, previous=first)
    monkeypatch.setattr(_means, "_decider", twin)
    at_once = evaluator.evaluate(policy, batch, discount=GAMMA, previous=first)
    assert at_once.weights.tobytes() == slow.weights.tobytes()
    monkeypatch.setattr("capi.features.tables.MOST_KEPT", 0)
    for entries in (2**20, 1):  # one block, and 256 rows at once
        monkeypatch.setattr(_means, "ENTRIES_AT_ONCE", entries)
        found = evaluator.evaluate(policy, batch, discount=GAMMA, previous=first)
        np.testing.assert_allclose(found.weights, slow.weights, rtol=1e-9, atol=1e-11)


def test_features_are_computed_once_per_state(monkeypatch):
    batch, asked = walks(13), []

    def counted(states):
        asked.append(len(states))
        return quadratic(states)

    n_episodes = int(batch.episodes[-1]) + 1
    monkeypatch.setattr(_means, "ENTRIES_AT_ONCE", 1)  # 256 rows at once, of which the last one may have an open end
    for most_kept, data in ((2**23, PartitionedTransitions.of(batch, 600, n_jobs=1)), (0, batch)):
        monkeypatch.setattr("capi.features.tables.MOST_KEPT", most_kept)
        for evaluator in (LSTDQ(counted), BellmanResidual(counted)):
            first = evaluator.evaluate(Constant(1, 3), data, discount=GAMMA)
            asked.clear()
            evaluator.evaluate(Greedy(first), data, discount=GAMMA, previous=first)
            assert 0 <= sum(asked) - len(batch) - n_episodes <= len(batch) // 256


FEATURES = [Polynomial(4), Fourier(2), RadialGrid(3), RadialCentres(20), KernelDictionary(Gaussian(1.0))]


@pytest.mark.parametrize("features", FEATURES, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("in_parts", [False, True])
def test_a_policy_from_a_checkpoint_decides_from_the_same_tables(tmp_path, monkeypatch, features, in_parts):
    """Else nearly tied actions may change, because the size of a table can change the last digits of products."""
    batch, asked = walks(18), []
    data = PartitionedTransitions.of(batch, 600, n_jobs=1) if in_parts else batch
    monkeypatch.setattr("capi.features.tables.MOST_KEPT", 0)
    table_of = FittedFeatures.table_of
    monkeypatch.setattr(FittedFeatures, "table_of", lambda own, x: asked.append(len(x)) or table_of(own, x))
    learner = CAPI(LSTDQ(features), Unrestricted(), GAMMA, 2, random_state=0, keep="last")
    first = next(learner.iterate(batch))
    write_checkpoint(tmp_path / "checkpoint.zip", first, [], "here", {})
    after, _, _ = read_checkpoint(tmp_path / "checkpoint.zip", ["here"], batch, learner.evaluator, 0)
    found = []
    for q, policy in ((first.q, first.policy), (after.q, after.policy)):
        asked.clear()
        again = learner.evaluator.evaluate(policy, data, discount=GAMMA, previous=replace(q, origin=None))
        found.append((again.weights.tobytes(), list(asked)))
    assert found[0] == found[1]


def test_fitted_features_are_the_same_if_they_compute_the_same():
    states = np.random.default_rng(0).normal(size=(50, 2))
    one, equal, other = (fitted_features(Polynomial(2), x) for x in (states, states.copy(), 2 * states))
    local = lambda x: np.column_stack([x, x])  # noqa: E731  cannot be pickled
    assert same_fitted(one, equal)
    assert not same_fitted(one, other)
    assert not same_fitted(one, fitted_features(Polynomial(1), states))
    assert same_fitted(fitted_features(local, states), fitted_features(local, states))
    assert not same_fitted(fitted_features(local, states), fitted_features(lambda x: np.column_stack([x, x]), states))


def test_features_that_are_not_finite_are_refused_where_a_greedy_policy_decides(monkeypatch):
    batch, bound = walks(14), [np.inf]
    evaluator = LSTDQ(lambda states: np.where(quadratic(states) > bound[0], np.nan, quadratic(states)))
    first = evaluator.evaluate(Constant(1, 3), batch, discount=GAMMA)
    monkeypatch.setattr("capi.features.tables.MOST_KEPT", 0)
    bound[0] = 2.0
    with pytest.raises(InvalidInputError, match="must be finite"):
        evaluator.evaluate(Greedy(first), batch, discount=GAMMA, previous=first)


@pytest.mark.parametrize("features", [quadratic, sparse_quadratic])
def test_a_sweep_is_a_regression_on_the_targets_of_the_previous_values(features):
    batch, q = random_batch(15, n_episodes=100), None
    evaluator, following = LSTDQ(features, ridge=0, n_sweeps=2), np.zeros((len(batch), 3))
    for policy in (Constant(1, 3), Uniform(3), Constant(0, 3)):
        q = evaluator.evaluate(policy, batch, discount=GAMMA, previous=q)
        for _ in range(2):
            ahead = (policy.probabilities(batch.next_states) * following).sum(axis=1)
            targets = batch.rewards + GAMMA * ~batch.terminated * ahead
            weights = [
                np.linalg.lstsq(quadratic(batch.states[batch.actions == a]), targets[batch.actions == a])[0]
                for a in range(3)
            ]
            following = quadratic(batch.next_states) @ np.transpose(weights)
        np.testing.assert_allclose(q.weights, weights, rtol=1e-7, atol=1e-9)


def test_many_sweeps_find_the_fixed_point():
    batch, policy = random_batch(16, n_episodes=100), Uniform(3)
    many = LSTDQ(quadratic, n_sweeps=400).evaluate(policy, batch, discount=0.5)
    np.testing.assert_allclose(many.weights, LSTDQ(quadratic).evaluate(policy, batch, discount=0.5).weights, rtol=1e-6)


def test_sweeps_start_from_linear_values_of_any_features():
    batch, policy = random_batch(17, n_episodes=100), Uniform(3)
    start = LSTDQ(tabular_two).evaluate(policy, batch, discount=GAMMA)
    found = LSTDQ(quadratic, ridge=0, n_sweeps=1).evaluate(policy, batch, discount=GAMMA, previous=start)
    targets = batch.rewards + GAMMA * ~batch.terminated * start.values(batch.next_states).mean(axis=1)
    mine = batch.actions == 2
    expected = np.linalg.lstsq(quadratic(batch.states[mine]), targets[mine])[0]
    np.testing.assert_allclose(found.weights[2], expected, rtol=1e-7, atol=1e-9)
    trees = FittedQ(n_trees=2).evaluate(policy, batch, discount=GAMMA)
    with pytest.raises(InvalidInputError, match="linear in features"):
        LSTDQ(quadratic, n_sweeps=1).evaluate(policy, batch, discount=GAMMA, previous=trees)
    with pytest.raises(InvalidInputError, match="n_sweeps must be None"):
        LSTDQ(quadratic, 0.1, 0.1, n_sweeps=1)


def test_memory_does_not_grow_with_the_rows():
    """400,000 rows with 100 features, twice, would be 640 MB; a block of them and the products are what is needed."""
    n, p = 400_000, 100
    rng = np.random.default_rng(0)
    x = rng.random((n, 1))
    batch = Transitions(x, rng.integers(2, size=n), x[:, 0], rng.random((n, 1)), np.zeros(n, bool))
    tracemalloc.start()
    LSTDQ(lambda s: s > np.linspace(0, 1, p, endpoint=False)).evaluate(Constant(0, 2), batch, discount=GAMMA)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6  # some blocks of 32 MiB, and a few numbers a row


def test_what_does_not_depend_on_the_policy_is_computed_once(monkeypatch):
    batch, known = random_batch(9), []
    plain = _means.means_of
    monkeypatch.setattr(_means, "means_of", lambda *args: known.append(args[-1] is not None) or plain(*args))
    evaluator = LSTDQ(quadratic)
    first = evaluator.evaluate(Constant(0, 3), batch, discount=GAMMA)
    second = evaluator.evaluate(Constant(1, 3), batch, discount=GAMMA, previous=first)
    fresh = evaluator.evaluate(Constant(1, 3), batch, discount=GAMMA)
    np.testing.assert_array_equal(second.weights, fresh.weights)
    evaluator.evaluate(Constant(1, 3), random_batch(10), discount=GAMMA, previous=second)
    LSTDQ(tabular_two).evaluate(Constant(1, 3), batch, discount=GAMMA, previous=second)
    assert known == [False, True, False, False, False]


def test_a_time_limit_is_bootstrapped_from_and_an_end_is_not():
    """One state that earns one: worth 1 if it ends, 1 / (1 - discount) if it is only cut."""
    for ends, worth in ((True, 1.0), (False, 10.0)):
        batch = Transitions([[0.0]] * 4, [0] * 4, [1.0] * 4, [[0.0]] * 4, [ends] * 4, episodes=[0, 1, 2, 3])
        for method in (LSTDQ, BellmanResidual, LassoTD):
            q = method(OneHot(1)).evaluate(Constant(0, 1), batch, discount=GAMMA)
            assert q.values(np.array([[0.0]])) == pytest.approx(np.array([[worth]]), rel=1e-3)


def test_dependent_features_are_no_obstacle():
    def doubled(states):
        return np.hstack([quadratic(states), quadratic(states)])

    batch, policy = random_batch(11), Constant(1, 3)
    values = LSTDQ(quadratic, ridge=0).evaluate(policy, batch, discount=0.5).values(batch.states)
    for evaluator in (LSTDQ(doubled), LSTDQ(doubled, ridge=0), BellmanResidual(doubled, ridge=1e-9)):
        found = evaluator.evaluate(policy, batch, discount=0.5).values(batch.states)
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-4)


def test_a_large_sparse_system_is_solved_as_such():
    rng = np.random.default_rng(0)
    n_states = 3000
    x, y = rng.integers(n_states, size=(2, 60_000))
    y = np.where(rng.random(60_000) < 0.5, (x + 1) % n_states, x)
    batch = Transitions(x[:, None], rng.integers(2, size=60_000), (x == 7) * 1.0, y[:, None], np.zeros(60_000, bool))
    q = LSTDQ(OneHot(n_states)).evaluate(Constant(0, 2), batch, discount=0.5)
    counts = sp.csr_array((np.ones(60_000), (x + n_states * batch.actions, y)), shape=(2 * n_states, n_states))
    visits = np.maximum(counts.sum(axis=1), 1)
    table = np.zeros(2 * n_states)
    rewards = np.bincount(x + n_states * batch.actions, weights=batch.rewards, minlength=2 * n_states) / visits
    for _ in range(60):
        table = rewards + 0.5 * (counts @ table[:n_states]) / visits
    values = q.values(np.arange(n_states)[:, None].astype(float))
    np.testing.assert_allclose(values.T.ravel(), table, atol=1e-3)
    with pytest.raises(InvalidInputError, match="features must be linearly independent"):
        LSTDQ(OneHot(5000), ridge=0).evaluate(Constant(0, 2), batch, discount=0.5)


# --- Lasso-TD


def conditions(batch, policy, phi, q, discount, penalty):
    """Largest violation of |c| <= penalty and of c = penalty sign(w) on the support."""
    now, then = naive.pair_features(batch, policy, phi)
    w = q.weights.ravel()
    c = now.T @ (batch.rewards - (now - discount * then) @ w) / len(batch)
    return max((np.abs(c) - penalty).max(), np.abs(c - penalty * np.sign(w))[w != 0].max(initial=0.0))


@pytest.mark.parametrize("solver", ["path", "fixed-point"])
@given(seed=st.integers(0, 100), penalty=st.sampled_from([1e-4, 0.01, 0.1, 0.5, 5.0]))
@settings(max_examples=20, deadline=None)
def test_lasso_solutions_satisfy_the_conditions_of_optimality(solver, seed, penalty):
    batch, policy = random_batch(seed, n_episodes=60), Uniform(3)
    q = LassoTD(quadratic, penalty, ridge=0.0, solver=solver).evaluate(policy, batch, discount=0.6)
    assert conditions(batch, policy, quadratic, q, 0.6, penalty) < 1e-6


def test_lasso_is_a_fixed_point_of_lasso_regressions():
    from sklearn.linear_model import Lasso

    batch, policy, penalty = random_batch(1, n_episodes=60), Uniform(3), 0.05
    q = LassoTD(quadratic, penalty, ridge=0.0).evaluate(policy, batch, discount=0.6)
    now, then = naive.pair_features(batch, policy, quadratic)
    targets = batch.rewards + 0.6 * then @ q.weights.ravel()
    again = Lasso(alpha=penalty, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(now, targets).coef_
    np.testing.assert_allclose(again, q.weights.ravel(), atol=1e-6)


def test_the_path_starts_at_zero_and_each_knot_is_a_solution():
    batch, policy = random_batch(2, n_episodes=60), Uniform(3)
    path = LassoTD(quadratic, penalty=1e-3, ridge=0.0).path(policy, batch, discount=0.6)
    assert (np.diff(path.penalties) <= 0).all()
    assert path.penalties[-1] == pytest.approx(1e-3)
    assert not path.weights[0].any()
    middle = (path.penalties[:-1] + path.penalties[1:]) / 2
    for penalty in (*path.penalties, *middle):
        q = LassoTD(quadratic, penalty, ridge=0.0).evaluate(policy, batch, discount=0.6)
        np.testing.assert_allclose(path.at(penalty), q.weights, atol=1e-7)


def test_a_large_penalty_leaves_nothing_and_none_gives_lstd():
    batch, policy = random_batch(3, n_episodes=60), Uniform(3)
    assert not LassoTD(quadratic, 1e3).evaluate(policy, batch, discount=0.6).weights.any()
    lstd = LSTDQ(quadratic).evaluate(policy, batch, discount=0.6)
    lasso = LassoTD(quadratic, 0.0).evaluate(policy, batch, discount=0.6)
    np.testing.assert_allclose(lasso.weights, lstd.weights, atol=1e-6)


def test_equal_features_do_not_confuse_the_path():
    def twice(states):
        return np.hstack([quadratic(states), quadratic(states)])

    batch, policy = random_batch(4, n_episodes=60), Uniform(3)
    q = LassoTD(twice, 0.05, ridge=1e-6).evaluate(policy, batch, discount=0.6)
    single = LassoTD(quadratic, 0.05, ridge=1e-6).evaluate(policy, batch, discount=0.6)
    np.testing.assert_allclose(q.values(batch.states), single.values(batch.states), atol=1e-3)


def test_irrelevant_features_are_left_out():
    """Of 100 features of noise and two that matter the lasso keeps those two."""
    rng = np.random.default_rng(0)
    n = 2000
    states = rng.normal(size=(n, 102))
    rewards = 3 * states[:, 0] - 2 * states[:, 1] + 0.1 * rng.normal(size=n)
    batch = Transitions(states, np.zeros(n, int), rewards, rng.normal(size=(n, 102)), np.zeros(n, bool))
    q = LassoTD(lambda x: x, penalty=0.3).evaluate(Constant(0, 1), batch, discount=0.5)
    assert set(np.flatnonzero(q.weights[0])) == {0, 1}


def positive_definite(rng, m):
    """A positive definite, non-symmetric matrix: a P-matrix, for which a unique solution exists at every penalty."""
    root, skew = rng.normal(size=(2, m, m))
    return root @ root.T / m + 0.1 * np.eye(m) + skew - skew.T


def lasso_problem(A, b):
    return lasso_td._Problem(A, b, A)


def solution_by_enumeration(A, b, penalty):
    """Slow twin: the weights of the one pattern of signs that satisfies the conditions of optimality."""
    for signs in itertools.product([-1.0, 0.0, 1.0], repeat=len(b)):
        s = np.array(signs)
        on, w = s != 0, np.zeros(len(b))
        w[on] = np.linalg.solve(A[np.ix_(on, on)], (b - penalty * s)[on])
        if (w * s >= 0).all() and (np.abs(b - A @ w) <= penalty + 1e-9).all():
            return w
    raise AssertionError("no solution")


REWARDS = {
    "generic": lambda rng, m: rng.normal(size=m),
    "equal correlations": lambda rng, m: rng.integers(-1, 2, size=m).astype(float),
}


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS.keys())
@pytest.mark.parametrize(("m", "n_problems"), [(5, 100), (12, 40), (30, 12)])
def test_the_path_of_a_positive_definite_problem_reaches_every_penalty(m, n_problems, rewards):
    """A weight that has just left may rejoin at its other bound, and weights may reach their bounds at the same time."""
    for seed in range(n_problems):
        rng = np.random.default_rng(seed)
        problem = lasso_problem(positive_definite(rng, m), rewards(rng, m))
        penalties, weights, turned_back = problem.path(1e-3)
        assert penalties[-1] == 1e-3
        assert not turned_back
        for penalty, w in zip(penalties, weights, strict=True):
            c = problem.b - problem.A @ w
            assert np.abs(c).max() <= penalty + 1e-7
            np.testing.assert_allclose(c[w != 0], penalty * np.sign(w[w != 0]), atol=1e-7)


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS.keys())
def test_the_path_finds_the_solutions_of_an_enumeration(rewards):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        A, b = positive_definite(rng, 4), rewards(rng, 4)
        penalties, weights, _ = lasso_problem(A, b).path(0.0)
        path = lasso_td.LassoPath(np.array(penalties), np.array(weights)[:, None])
        for penalty in (0.9, 0.3, 0.05, 0.0):
            if penalty < penalties[0]:
                np.testing.assert_allclose(path.at(penalty)[0], solution_by_enumeration(A, b, penalty), atol=1e-7)


def test_a_path_that_is_cut_short_does_not_blame_the_data(monkeypatch):
    batch, policy = random_batch(2, n_episodes=60), Uniform(3)
    monkeypatch.setattr(lasso_td._Problem, "is_solved_by", lambda self, w, penalty: penalty > 0.1)
    with pytest.warns(PathEndedWarning, match="path stopped at penalty .* although a solution may exist"):
        LassoTD(quadratic, 1e-3).evaluate(policy, batch, discount=0.6)


def test_without_a_solution_it_raises_an_error_or_warns():
    """A feature that doubles along each transition: w = 1 + 2 * 0.9 w has no stable solution, and A is negative."""
    batch = Transitions([[1.0]], [0], [1.0], [[2.0]], [False])
    with pytest.raises(DivergenceError, match="no fixed point"):
        LassoTD(lambda x: x, penalty=0.1, solver="fixed-point").evaluate(Constant(0, 1), batch, discount=0.9)
    with pytest.warns(PathEndedWarning, match=r"turned back at penalty 1, above the requested 0\.1: .* not a P-matrix"):
        q = LassoTD(lambda x: x, penalty=0.1).evaluate(Constant(0, 1), batch, discount=0.9)
    assert not q.weights.any()
    assert LassoTD(lambda x: x, penalty=0.1).path(Constant(0, 1), batch, discount=0.9).penalties.tolist() == [1.0]


# --- LSPI


def test_capi_with_all_policies_is_lspi(six_states):
    mdp, batch = six_states
    lspi = LSPI(LSTDQ(tabular), GAMMA, n_iterations=10).fit(batch)
    capi = CAPI(LSTDQ(tabular), Unrestricted(), GAMMA, n_iterations=len(lspi.history_)).fit(batch)
    np.testing.assert_array_equal(capi.q_.weights, lspi.q_.weights)
    assert lspi.history_[-1]["changed"] == 0
    assert len(lspi.history_) < 10
    np.testing.assert_allclose(mdp.values(lspi.policy_), mdp.optimal_values, atol=0.05)


def test_lspi_is_the_published_loop(six_states):
    """Weights -> greedy next actions -> weights, until they stay (Lagoudakis and Parr 2003)."""
    mdp, small = six_states[0], six_states[1].subset(np.arange(3000))
    w, old = np.zeros(18), None
    while old is None or np.abs(w - old).max() > 1e-10:
        old = w
        greedy = Tabular(w.reshape(3, 6).argmax(axis=0), 3)
        w = formula_lstd(small, greedy, tabular, GAMMA, 1e-9)
    learner = LSPI(LSTDQ(tabular), GAMMA).fit(small)
    np.testing.assert_allclose(learner.q_.values(mdp.states).T.ravel(), w, rtol=1e-6)


# --- bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LSTDQ(OneHot), "Did you mean OneHot"),
        (lambda: LSTDQ(3), "features must be a function"),
        (lambda: LSTDQ(tabular, ridge=-1), "ridge must be a number, at least 0"),
        (lambda: LSTDQ(tabular, projection_ridge=np.nan), "projection_ridge must be"),
        (lambda: LSTDQ(RKHS(), ridge=0.1), "must be positive"),
        (lambda: BellmanResidual(RKHS(), None, ridge=0.1, projection_ridge=0.1), "auxiliary must be 'same'"),
        (lambda: BellmanResidual(tabular, auxiliary="other"), "auxiliary must be a function"),
        (lambda: LassoTD(tabular, penalty=-1), "penalty must be"),
        (lambda: LassoTD(tabular, solver="magic"), "solver must be one of"),
        (lambda: LSPI(tabular, 0.9).fit(random_batch()), "evaluator must be an LSTDQ"),
        (lambda: LSTDQ(quadratic).evaluate(Constant(0, 3), None, discount=0.9), "LSTDQ learns from logged data"),
        (lambda: LSTDQ(quadratic).evaluate(Constant(0, 3), random_batch(), discount=1.0), "discount must lie in"),
        (lambda: LSTDQ(lambda x: x[:1]).evaluate(Constant(0, 3), random_batch(), discount=0.9), "must have shape"),
        (lambda: LSTDQ(np.log).evaluate(Constant(0, 3), positive_then_not(), discount=0.9), "finite"),
        (
            lambda: LSTDQ(width_of_values).evaluate(Constant(0, 3), random_batch(), discount=0.9),
            "the same number of columns",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_bad_input_is_named(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def positive_then_not():
    return Transitions([[1.0], [2.0], [3.0]], [0, 1, 2], [0.0] * 3, [[1.0], [-2.0], [1.0]], [False] * 3)


def width_of_values(states):
    return np.ones((len(states), 1 + (len(states) > 1)))


def test_too_many_rows_for_a_kernel_are_refused():
    n = 5001
    batch = Transitions(np.zeros((n, 1)), np.zeros(n, int), np.zeros(n), np.zeros((n, 1)), np.zeros(n, bool))
    with pytest.raises(InvalidInputError, match=r"at most 5000 rows, .*; it has 5001"):
        LSTDQ(RKHS(), ridge=0.1, projection_ridge=0.1).evaluate(Constant(0, 1), batch, discount=0.9)


def test_too_many_weights_for_a_dense_method_are_refused():
    batch = random_batch()
    for sparse in (True, False):
        for method in (LassoTD, BellmanResidual):

            def wide(x, sparse=sparse):
                return sp.csr_array((len(x), 7000)) if sparse else np.zeros((len(x), 7000))

            with pytest.raises(InvalidInputError, match=r"at most 20000 weights .*; it has 21000"):
                method(wide).evaluate(Constant(0, 3), batch, discount=0.9)


# --- what a review found


EVERYBODY = [
    LSTDQ(quadratic),
    LSTDQ(quadratic, n_sweeps=3),
    LSTDQ(RKHS(), ridge=0.1, projection_ridge=0.1),
    BellmanResidual(quadratic),
    LassoTD(quadratic),
    TD(quadratic),
    GTD2(quadratic),
    FittedQ(n_trees=2),
    KernelFittedQ(),
]


@pytest.mark.parametrize("evaluator", EVERYBODY, ids=lambda e: type(e).__name__)
def test_a_policy_with_other_actions_is_refused_before_anything_is_touched(evaluator):
    for n_actions in (2, 5):
        with pytest.raises(InvalidInputError, match=f"the 3 actions of the batch; it has {n_actions}"):
            evaluator.evaluate(Constant(1, n_actions), random_batch(), discount=0.9)
    with pytest.raises(InvalidInputError, match="transitions must be Transitions; got a dict"):
        evaluator.evaluate(Constant(1, 3), {"states": []}, discount=0.9)
    for discount in (1.5, -1, np.nan, "x"):
        with pytest.raises(InvalidInputError, match="discount must lie in"):
            evaluator.evaluate(Constant(1, 3), random_batch(), discount=discount)


@pytest.mark.parametrize(
    "evaluator", [e for e in EVERYBODY if not isinstance(e, FittedQ)], ids=lambda e: type(e).__name__
)
def test_an_action_that_was_never_taken_is_refused(evaluator):
    """Its value would be zero, which looks good where all rewards are negative; trees average all rows instead."""
    batch = random_batch()
    columns = {name: getattr(batch, name) for name in ("states", "actions", "rewards", "next_states", "terminated")}
    with pytest.raises(InvalidInputError, match=r"action 3 .* never is"):
        evaluator.evaluate(Constant(1, 4), Transitions(**columns, n_actions=4), discount=0.9)


@pytest.mark.parametrize("make", [LSTDQ, BellmanResidual, TD])
def test_rows_without_weight_have_no_say_in_the_features(make):
    batch = random_batch()
    columns = {name: getattr(batch, name) for name in ("states", "actions", "rewards", "next_states", "terminated")}
    far = {name: np.concatenate([column, column[:1]]) for name, column in columns.items()}
    far["states"][-1] = 1e6
    weighted = Transitions(**far, n_actions=3, weights=np.append(np.ones(len(batch)), 0.0))
    one, other = (
        make(RadialGrid(3)).evaluate(Uniform(3), b, discount=0.5).values(batch.states) for b in (batch, weighted)
    )
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("make", [LSTDQ, BellmanResidual])
@pytest.mark.parametrize("factor", [1e-5, 1e5])
def test_the_units_of_features_do_not_matter_by_default(make, factor):
    batch = random_batch(n_episodes=60)
    one = make(quadratic).evaluate(Uniform(3), batch, discount=0.5).values(batch.states)
    other = make(lambda x: factor * quadratic(x)).evaluate(Uniform(3), batch, discount=0.5).values(batch.states)
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_a_residual_without_minimum_is_refused():
    with pytest.raises(InvalidInputError, match="the modified loss must have a minimum"):
        BellmanResidual(quadratic, lambda x: np.ones((len(x), 1))).evaluate(Uniform(3), random_batch(), discount=0.95)


@pytest.mark.parametrize(
    "evaluator",
    [TD(Fourier(2)), GTD2(Fourier(2)), LSTDQ(Fourier(2), ridge=1e-3), KernelFittedQ()],
    ids=lambda e: type(e).__name__,
)
def test_a_loop_goes_on_from_a_pickled_round_and_the_data_stay_at_home(evaluator):
    batch = random_batch(n_episodes=200)
    learner = CAPI(evaluator, Unrestricted(), 0.5, 4, random_state=0)
    rounds = list(learner.iterate(batch))
    stored = pickle.dumps(rounds[1].q)
    assert batch.rewards.tobytes() not in stored
    later = list(learner.iterate(batch, after=pickle.loads(pickle.dumps(rounds[1]))))
    for one, other in zip(rounds[2:], later, strict=True):
        np.testing.assert_array_equal(one.q.values(batch.states), other.q.values(batch.states))


def test_features_that_were_changed_are_fitted_anew():
    batch, features = random_batch(), Fourier(1)
    evaluator = LSTDQ(features, ridge=1e-3)
    first = evaluator.evaluate(Uniform(3), batch, discount=0.5)
    features.set_params(order=2)
    second = evaluator.evaluate(Uniform(3), batch, discount=0.5, previous=first)
    assert (first.weights.shape[1], second.weights.shape[1]) == (4, 9)
    warm = GTD2(Fourier(2), n_passes=1, average=False, step_size=1e-9).evaluate(
        Uniform(3), batch, discount=0.5, previous=second
    )
    np.testing.assert_allclose(warm.weights, second.weights, rtol=1e-3)  # equal features, built apart


def test_numbers_beyond_all_numbers_are_refused():
    batch = random_batch()
    columns = {name: getattr(batch, name) for name in ("states", "actions", "next_states", "terminated")}
    huge = Transitions(**columns, rewards=np.full(len(batch), 1.7e308), n_actions=3)
    for method in (LSTDQ, BellmanResidual, LassoTD):
        with pytest.raises(InvalidInputError, match="finite"):
            method(quadratic).evaluate(Uniform(3), huge, discount=0.5)
    with pytest.raises(InvalidInputError, match="finite squares"):
        TD(lambda x: 1e200 * x).evaluate(Uniform(3), batch, discount=0.5)


def test_a_nearly_singular_system_has_the_shortest_solution():
    """Two features that differ by rounding: the solution must not be huge weights of opposite signs."""

    def twins(x):
        return np.hstack([x, x * (1 + 1e-15)])

    batch = random_batch(n_episodes=60)
    q = LSTDQ(twins, ridge=0.0).evaluate(Uniform(3), batch, discount=0.5)
    single = LSTDQ(lambda x: x, ridge=0.0).evaluate(Uniform(3), batch, discount=0.5)
    np.testing.assert_allclose(q.weights[:, :2] + q.weights[:, 2:], single.weights, rtol=1e-4, atol=1e-6)
    assert np.abs(q.weights).max() < 10 * np.abs(single.weights).max()


def test_the_path_answers_for_its_own_penalties_only():
    path = LassoTD(quadratic, 0.01).path(Uniform(3), random_batch(n_episodes=60), discount=0.6)
    for penalty in (0.001, -5, np.nan, "x"):
        with pytest.raises(InvalidInputError, match=r"penalty must be at least 0\.01"):
            path.at(penalty)
    assert not path.at(1e9).any()
