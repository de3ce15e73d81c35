from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from capi import CAPI, FiniteMDP, Transitions
from capi.errors import DivergenceError, InvalidInputError
from capi.evaluators import GTD, GTD2, LSTDQ, TD, TDC, _td_batch
from capi.features import Fourier, OneHot, RadialGrid, Tiles
from capi.policies import Constant, Tabular, Uniform
from capi.policy_spaces import Unrestricted
from capi.simulation import sample_episodes, sample_steps
from capi.testing import check_evaluator, random_batch

METHODS = [TD, GTD, GTD2, TDC]
CORRECTIONS = ["importance", "tree-backup", "none"]


def curves(states):
    """Five features of a state in the plane, of unequal lengths."""
    x, y = states.T
    return np.column_stack([np.ones(len(x)), np.sin(x), np.cos(y), x * (x > 0), np.where(y > 0, 1.0, 0.0)])


def sparse_curves(states):
    return sp.csr_array(curves(states))


class Leaning:
    """A policy that prefers higher actions where x is large: no probability is zero or one."""

    n_actions = 3

    def probabilities(self, states, allowed=None):
        scores = np.exp(np.outer(np.tanh(states[:, 0]), np.arange(3.0)))
        return scores / scores.sum(axis=1, keepdims=True)

    def act(self, states, allowed=None):
        return self.probabilities(states).argmax(axis=1)


def with_columns(batch, **columns):
    names = (
        "states",
        "actions",
        "rewards",
        "next_states",
        "terminated",
        "n_actions",
        "episodes",
        "propensities",
        "weights",
    )
    return Transitions(**{name: getattr(batch, name) for name in names} | columns)


def logged_batch(**columns):
    """Episodes with weights, some of them zero, and propensities."""
    batch, rng = random_batch(3), np.random.default_rng(0)
    n = len(batch)
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], size=n)
    return with_columns(batch, weights=weight, propensities=rng.uniform(0.2, 1.0, size=n), **columns)


# -- the slow twin -------------------------------------------------------------------------------------


def traced(batch, policy, discount, evaluator, weight, features=curves):
    """Return phi, discounted phi' and the trace of each row (n, A p), one row after the other."""
    x, y = features(batch.states), features(batch.next_states)
    pi, next_pi = policy.probabilities(batch.states), policy.probabilities(batch.next_states)
    phi, ahead, e = (np.zeros((len(batch), 3 * x.shape[1])) for _ in range(3))
    for t, a in enumerate(batch.actions):
        phi[t] = np.kron(np.eye(3)[a], x[t])
        ahead[t] = 0.0 if batch.terminated[t] else discount * np.kron(next_pi[t], y[t])
        c = {"none": 1.0, "tree-backup": pi[t, a]}.get(evaluator.correction)
        c = pi[t, a] / batch.propensities[t] if c is None else c
        e[t] = weight[t] * phi[t]
        if t > 0 and batch.episodes[t] == batch.episodes[t - 1]:
            e[t] += discount * evaluator.trace * c * e[t - 1]
    return phi, ahead, e


def direction(method, theta, w, phi, ahead, e, reward, omega):
    """Return the directions of theta and w for one row."""
    delta = reward + theta @ ahead - theta @ phi
    gradient = (phi - ahead) * (e @ w)
    first = {
        TD: delta * e,
        GTD: gradient,
        GTD2: gradient,
        TDC: delta * e + gradient - omega * (phi @ w) * phi,
    }[method]
    second = {TD: 0.0 * w, GTD: delta * e - omega * w}.get(method, delta * e - omega * (phi @ w) * phi)
    return first, second


def naive(evaluator, batch, policy, discount, rng):
    """Return the weights (A, p) by the formulas of the module, with dense vectors and a plain mean."""
    method, n = type(evaluator), len(batch)
    weight = np.ones(n) if batch.weights is None else batch.weights / batch.weights[batch.weights > 0].mean()
    phi, ahead, e = traced(batch, policy, discount, evaluator, weight)
    episodes = batch.episodes if evaluator.trace > 0 else np.arange(n)
    pieces = [np.flatnonzero(episodes == number) for number in np.unique(episodes)]
    pieces = [rows for rows in pieces if weight[rows].sum() > 0]
    unit = weight @ np.square(phi).sum(axis=1) / weight.sum()
    a = evaluator.step_size / (unit**2 if method is GTD else unit)
    b = 0.0 if method is TD else evaluator.second_step_size / (1.0 if method is GTD else unit)
    theta, w, history = np.zeros(phi.shape[1]), np.zeros(phi.shape[1]), []
    steps_of_a_pass = sum(map(len, pieces))
    for _ in range(evaluator.n_passes):
        for piece in rng.permutation(len(pieces)):
            for t in pieces[piece]:
                factor = (1 + len(history) / steps_of_a_pass) ** -evaluator.power
                factor = factor if evaluator.schedule == "decreasing" else 1.0
                first, second = direction(method, theta, w, phi[t], ahead[t], e[t], batch.rewards[t], weight[t])
                theta, w = theta + a * factor * first, w + b * factor * second
                history.append(theta)
    result = np.mean(history[len(history) // 2 :], axis=0) if evaluator.average else theta
    return result.reshape(3, -1)


def assert_is_its_twin(evaluator, batch, policy=None):
    policy = Leaning() if policy is None else policy
    q = evaluator.evaluate(policy, batch, discount=0.9, rng=np.random.default_rng(5))
    expected = naive(evaluator, batch, policy, 0.9, np.random.default_rng(5))
    np.testing.assert_allclose(q.weights, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("features", [curves, sparse_curves])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("trace", "correction"), [(0.0, "none"), *((0.8, c) for c in CORRECTIONS)])
def test_every_method_is_its_slow_twin(method, features, trace, correction):
    """With weights, a stochastic policy, episodes that end and such that do not, traces and their corrections."""
    assert_is_its_twin(method(features, trace=trace, correction=correction, n_passes=3), logged_batch())


@pytest.mark.parametrize("method", METHODS)
def test_options_and_deterministic_policies_are_as_in_the_twin(method):
    batch = random_batch(3)
    assert_is_its_twin(method(curves, n_passes=2, average=False), batch)
    assert_is_its_twin(method(curves, n_passes=3, schedule="decreasing", power=0.6), batch)
    assert_is_its_twin(method(curves, trace=0.9, n_passes=3, step_size=0.03), batch, Constant(1, 3))


def test_second_weights_that_shrink_fast_stay_exact():
    """GTD shrinks its second weights through a common factor, which would underflow if it were not put back."""
    assert_is_its_twin(GTD(curves, step_size=0.01, second_step_size=0.9, n_passes=8), random_batch(3))
    batch = random_batch(3)
    one_heavy = with_columns(batch, weights=np.where(np.arange(len(batch)) == 4, 30.0, 1.0))  # its factor is negative
    assert_is_its_twin(GTD(curves, step_size=1e-3, second_step_size=0.5, n_passes=8), one_heavy)


# -- what they converge to ------------------------------------------------------------------------------


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_tdc_descends_the_projected_bellman_error_whatever_the_correction(correction):
    """With w at its optimum the mean direction is minus half the gradient of the projected Bellman error."""
    batch, rng = logged_batch(), np.random.default_rng(1)
    evaluator = TDC(curves, trace=0.8, correction=correction)
    weight = batch.weights / batch.weights[batch.weights > 0].mean()
    phi, ahead, e = traced(batch, Leaning(), 0.9, evaluator, weight)
    n, theta = len(batch), rng.normal(size=phi.shape[1])
    A, b, C = e.T @ (phi - ahead) / n, e.T @ batch.rewards / n, phi.T @ (weight[:, None] * phi) / n
    w = np.linalg.solve(C, b - A @ theta)
    rows = zip(phi, ahead, e, batch.rewards, weight, strict=True)
    mean = np.mean([direction(TDC, theta, w, *row)[0] for row in rows], axis=0)
    np.testing.assert_allclose(mean, A.T @ w, atol=1e-10)
    shortcut = (b - A @ theta) - (1 - evaluator.trace) * ahead.T @ (e @ w) / n  # as printed for GQ(lambda)
    assert np.abs(shortcut - A.T @ w).max() > 0.01, "it holds for importance ratios on an endless episode only"


THREE = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 3)))[0]  # features of five states


def three(states):
    return THREE[states[:, 0].astype(int)]


@pytest.mark.compiled
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("policy", "correction"), [(Uniform(3), "none"), (Leaning(), "importance"), (Leaning(), "tree-backup")]
)
def test_traces_lead_to_the_solution_of_lstd_with_traces(method, policy, correction):
    P = np.random.default_rng(0).dirichlet(np.ones(5), size=(3, 5))
    mdp = FiniteMDP(P, np.arange(15.0).reshape(5, 3) / 15, 0.8)
    batch = sample_episodes(None, mdp, n_episodes=400, max_steps=10, random_state=0)
    options = {
        TD: {"step_size": 0.02, "n_passes": 40},
        GTD: {"step_size": 2.0, "second_step_size": 0.02, "schedule": "decreasing", "power": 0.5, "n_passes": 500},
    }.get(method, {"second_step_size": 0.1, "schedule": "decreasing", "n_passes": 100})
    evaluator = method(three, trace=0.6, correction=correction, **options)
    phi, ahead, e = traced(batch, policy, 0.8, evaluator, np.ones(len(batch)), three)
    solution = np.linalg.solve(e.T @ (phi - ahead), e.T @ batch.rewards)
    q = evaluator.evaluate(policy, batch, discount=0.8)
    np.testing.assert_allclose(q.weights.ravel(), solution, atol=0.05)


@cache
def random_problem(seed, discount):
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP(rng.dirichlet(np.ones(6), size=(3, 6)), rng.random((6, 3)), discount)
    batch = sample_steps(None, mdp, rng.integers(6, size=(200_000, 1)), random_state=rng)
    return mdp, batch, Tabular(rng.integers(3, size=6), 3)


@pytest.mark.compiled
@pytest.mark.parametrize("method", METHODS)
def test_many_rows_give_the_exact_values_with_default_settings(method):
    mdp, batch, policy = random_problem(0, 0.95)
    q = method(OneHot(6)).evaluate(policy, batch, discount=0.95)
    assert np.abs(q.values(mdp.states) - mdp.action_values(policy)).max() < 0.2


@pytest.mark.compiled
def test_td_reaches_far_with_default_settings():
    mdp, batch, policy = random_problem(1, 0.99)
    q = TD(lambda s: np.eye(6)[s[:, 0].astype(int)]).evaluate(policy, batch, discount=0.99)
    assert np.abs(q.values(mdp.states) - mdp.action_values(policy)).max() < 0.4


@pytest.mark.compiled
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("features", [Fourier(3), RadialGrid(4), Tiles(4, 4)], ids=repr)
def test_defaults_do_not_diverge(method, features):
    batch = random_batch(n_episodes=300)
    values = method(features).evaluate(Leaning(), batch, discount=0.99).values(batch.states)
    assert np.abs(values).max() < 100 * np.abs(batch.rewards).max() / 0.01


STAR = np.array([[2.0 * (i == j) for j in range(7)] + [1.0] for i in range(6)] + [[0.0] * 6 + [1.0, 2.0]])


def star_batch():
    """Baird's star: "solid" leads to the last state, "dashed" to one of the others; states are drawn uniformly."""
    P = np.zeros((2, 7, 7))
    P[0, :, :6], P[1, :, 6] = 1 / 6, 1.0
    mdp = FiniteMDP(P, np.ones((7, 2)), 0.95)
    return sample_steps(None, mdp, np.random.default_rng(0).integers(7, size=(4000, 1)), random_state=0)


def star_features(states):
    return STAR[states[:, 0].astype(int)]


def projected_bellman_error(batch, policy, discount, weights):
    x, y = star_features(batch.states), star_features(batch.next_states)
    phi = np.einsum("na,np->nap", np.eye(2)[batch.actions], x).reshape(len(batch), -1)
    ahead = np.einsum("na,np->nap", policy.probabilities(batch.next_states), y).reshape(len(batch), -1)
    delta = batch.rewards + (discount * ahead - phi) @ weights.ravel()
    mean = phi.T @ delta / len(batch)
    return mean @ np.linalg.pinv(phi.T @ phi / len(batch)) @ mean


@pytest.mark.compiled
def test_td_diverges_on_the_star_where_the_gradient_methods_do_not():
    batch, solid = star_batch(), Constant(1, 2)
    with pytest.raises(
        DivergenceError,
        match=r"TD diverged in pass \d+ of 20, at step \d+ of 4000.*Lower step_size.*GTD2 or TDC.*LSTDQ",
    ):
        TD(star_features).evaluate(solid, batch, discount=0.95)
    at_zero = projected_bellman_error(batch, solid, 0.95, np.zeros((2, 8)))
    for method, share in ((GTD2, 0.05), (TDC, 0.05), (GTD, 0.2)):
        weights = method(star_features).evaluate(solid, batch, discount=0.95).weights
        assert projected_bellman_error(batch, solid, 0.95, weights) < share * at_zero, method


# -- what every evaluator must do ------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{}, {"trace": 0.7, "schedule": "decreasing"}], ids=str)
@pytest.mark.parametrize("features", [curves, Fourier(2), Tiles(2, 3)], ids=["callable", "Fourier", "Tiles"])
def test_keeps_the_contract(method, features, options):
    check_evaluator(method(features, n_passes=3, **options))


@pytest.mark.parametrize("method", METHODS)
def test_values_stop_at_termination_but_not_at_a_time_limit(method):
    zeros = np.zeros((1000, 1))
    batch = Transitions(zeros, [0] * 1000, [1.0] * 1000, zeros, [True, False] * 500, n_actions=1)
    q = method(OneHot(1)).evaluate(Constant(0, 1), batch, discount=0.5)
    assert q.values(np.zeros((1, 1)))[0, 0] == pytest.approx(4 / 3, abs=0.01), "Q = 1 + 0.5 * Q / 2"


def test_what_follows_the_end_need_not_be_known():
    known = Transitions([[0.0], [1.0]], [0, 0], [1.0, 1.0], [[1.0], [0.0]], [False, True])
    unknown = with_columns(known, next_states=[[1.0], [np.nan]])
    q, other = (TD(OneHot(2)).evaluate(Constant(0, 1), batch, discount=0.5) for batch in (known, unknown))
    np.testing.assert_array_equal(q.weights, other.weights)


def test_traces_do_not_pass_from_episode_to_episode():
    """The same rows as one episode and as two: the first row hears of the second's reward only within one."""
    rows = {"states": [[0.0], [1.0]], "actions": [0, 0], "rewards": [0.0, 1.0], "next_states": [[2.0], [2.0]]}
    settings = {"trace": 1.0, "correction": "none", "n_passes": 1, "average": False}
    together, apart = (
        TD(OneHot(3), **settings).evaluate(
            Constant(0, 1), Transitions(**rows, terminated=[False, True], episodes=episode), discount=0.9
        )
        for episode in ([0, 0], [0, 1])
    )
    np.testing.assert_allclose(together.weights, [[0.09, 0.1, 0.0]])
    np.testing.assert_allclose(apart.weights, [[0.0, 0.1, 0.0]])


@pytest.mark.parametrize("method", METHODS)
def test_the_scale_of_features_rewards_and_weights_does_not_matter(method):
    batch = logged_batch()
    evaluator = method(curves, trace=0.5, n_passes=4)
    values = evaluator.evaluate(Leaning(), batch, discount=0.9).values(batch.states)
    scaled = replace(evaluator, features=lambda s: 1e3 * curves(s)).evaluate(Leaning(), batch, discount=0.9)
    np.testing.assert_allclose(scaled.values(batch.states), values, rtol=1e-8)
    larger = evaluator.evaluate(Leaning(), with_columns(batch, rewards=1e3 * batch.rewards), discount=0.9)
    np.testing.assert_allclose(larger.values(batch.states), 1e3 * values, rtol=1e-8)
    heavier = evaluator.evaluate(Leaning(), with_columns(batch, weights=7 * batch.weights), discount=0.9)
    np.testing.assert_allclose(heavier.values(batch.states), values, rtol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_weight_zero_are_ignored(method):
    batch = logged_batch()
    q = method(curves, n_passes=3).evaluate(Leaning(), batch, discount=0.9)
    rest = method(curves, n_passes=3).evaluate(Leaning(), batch.subset(batch.weights > 0), discount=0.9)
    np.testing.assert_allclose(q.weights, rest.weights, rtol=1e-12)


@pytest.mark.parametrize("trace", [0.0, 0.5])
@pytest.mark.parametrize("features", [curves, sparse_curves])
def test_blocks_do_not_change_the_result(monkeypatch, features, trace):
    """Held tables in one block, in many, and features that are computed anew in every pass."""
    batch = random_batch(n_episodes=100)
    evaluator = TDC(features, trace=trace, n_passes=3)
    whole = evaluator.evaluate(Leaning(), batch, discount=0.9)
    monkeypatch.setattr(_td_batch, "ENTRIES_IN_CACHE", 1)
    np.testing.assert_allclose(evaluator.evaluate(Leaning(), batch, discount=0.9).weights, whole.weights, rtol=1e-9)
    monkeypatch.setattr(_td_batch, "MOST_HELD", 0)
    monkeypatch.setattr(_td_batch, "ENTRIES_AT_ONCE", 1)
    np.testing.assert_allclose(evaluator.evaluate(Leaning(), batch, discount=0.9).weights, whole.weights, rtol=1e-9)


def test_the_generator_decides_the_order():
    batch = random_batch()
    a, b, c = (
        TD(curves, n_passes=1).evaluate(Leaning(), batch, discount=0.9, rng=np.random.default_rng(seed)).weights
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_weights_go_on_from_the_previous_ones_on_the_same_batch():
    batch, other = random_batch(0), random_batch(0)
    evaluator = TD(curves, n_passes=1, average=False, step_size=1e-9)
    solved = LSTDQ(curves).evaluate(Leaning(), batch, discount=0.9)
    near = evaluator.evaluate(Leaning(), batch, discount=0.9, previous=solved)
    np.testing.assert_allclose(near.weights, solved.weights, atol=1e-6)
    assert near.features is solved.features
    for anew in (
        evaluator.evaluate(Leaning(), other, discount=0.9, previous=solved),
        replace(evaluator, features=sparse_curves).evaluate(Leaning(), batch, discount=0.9, previous=solved),
    ):
        np.testing.assert_allclose(anew.weights, 0.0, atol=1e-6)


def test_masks_of_the_next_states_bind_the_policy():
    zeros = np.zeros((1000, 1))
    masks = {"next_allowed": [[False, True]] * 1000}
    batch = Transitions(zeros, [0, 1] * 500, [1.0, 0.0] * 500, zeros, [False] * 1000, **masks)
    q = TD(OneHot(1)).evaluate(Constant(0, 2), batch, discount=0.5)
    np.testing.assert_allclose(q.values(np.zeros((1, 1))), [[1.0, 0.0]], atol=1e-6)


@pytest.mark.compiled
def test_capi_learns_with_it():
    mdp, batch, _ = random_problem(2, 0.9)
    small = batch.subset(np.arange(len(batch)) < 20_000)
    learner = CAPI(TD(OneHot(6)), Unrestricted(), discount=0.9, n_iterations=5, random_state=0).fit(small)
    assert mdp.performance_loss(learner.policy_) < 0.05


def test_a_schedule_may_be_a_function():
    batch = random_batch()
    n = len(batch)
    by_name = TDC(curves, schedule="decreasing", power=0.6, n_passes=3).evaluate(Leaning(), batch, discount=0.9)
    by_function = TDC(curves, schedule=lambda t: (1 + t / n) ** -0.6, n_passes=3)
    np.testing.assert_array_equal(by_function.evaluate(Leaning(), batch, discount=0.9).weights, by_name.weights)
    constant = TDC(curves, schedule=lambda t: 1.0, n_passes=3).evaluate(Leaning(), batch, discount=0.9)
    expected = TDC(curves, n_passes=3).evaluate(Leaning(), batch, discount=0.9)
    np.testing.assert_array_equal(constant.weights, expected.weights)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (lambda t: -1.0 * (t == 3), r"schedule\(t\) must not be negative; 1 of .* first schedule\(t\)\[3\] = -1"),
        (lambda t: np.full(len(t), np.nan), r"schedule\(t\) must be finite"),
        (
            lambda t: np.ones(2),
            r"schedule\(t\) must be a number, or have shape \(\d+,\), one number per step; got \(2,\)",
        ),
    ],
)
def test_a_schedule_that_returns_nonsense_is_refused(factors, message):
    with pytest.raises(InvalidInputError, match=message):
        TD(curves, schedule=factors).evaluate(Leaning(), random_batch(), discount=0.9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 3}, "features must be a function"),
        ({"features": OneHot}, r"Did you mean OneHot\(\)"),
        ({"trace": 1.5}, r"trace must be a number in \[0, 1\]; got 1.5"),
        ({"correction": "retrace"}, "correction must be one of 'tree-backup', 'importance', 'none'; got 'retrace'"),
        ({"step_size": 0.0}, "step_size must be a positive number; got 0.0"),
        ({"second_step_size": -1.0}, "second_step_size must be a positive number; got -1.0"),
        ({"schedule": "harmonic"}, "schedule must be one of 'constant', 'decreasing'; got 'harmonic'"),
        ({"power": 0}, "power must be a positive number; got 0"),
        ({"n_passes": 0}, "n_passes must be an integer, at least 1; got 0"),
        ({"average": "yes"}, "average must be one of True, False; got 'yes'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        TDC(**{"features": curves} | options)


@pytest.mark.parametrize("method", METHODS)
def test_it_says_what_is_wrong_with_the_data(method):
    batch = random_batch()
    with pytest.raises(
        InvalidInputError, match=f"{method.__name__} learns from logged data: transitions must be given"
    ):
        method(curves).evaluate(Leaning(), None, discount=0.9)
    with pytest.raises(InvalidInputError, match=r"discount must lie in \[0, 1\)"):
        method(curves).evaluate(Leaning(), batch, discount=1.0)
    with pytest.raises(InvalidInputError, match=r"needs the probability of each logged action.*tree-backup"):
        method(curves, trace=0.5, correction="importance").evaluate(Leaning(), batch, discount=0.9)
    for name, culprit in (("states", 7), ("next_states", int(np.flatnonzero(~batch.terminated)[0]))):
        holes = getattr(batch, name).copy()
        holes[culprit, 1] = np.nan
        with pytest.raises(
            InvalidInputError, match=rf"^{name} must not have missing values; 1 of .*{name}\[{culprit}\]"
        ):
            method(curves).evaluate(Leaning(), with_columns(batch, **{name: holes}), discount=0.9)


@pytest.mark.parametrize("method", METHODS)
def test_steps_that_are_too_large_are_reported(method):
    batch = random_batch()
    with pytest.raises(
        DivergenceError, match=f"^{method.__name__} diverged in pass .* Lower step_size = 1000"
    ) as caught:
        method(curves, step_size=1000.0).evaluate(Leaning(), batch, discount=0.9)
    assert ("second_step_size" in str(caught.value)) == (method is not TD)
    assert isinstance(caught.value, ArithmeticError)


def test_without_rewards_and_features_there_is_nothing_to_learn():
    batch = with_columns(random_batch(), rewards=np.zeros(len(random_batch())))
    assert not TD(curves).evaluate(Leaning(), batch, discount=0.9).weights.any()
    nothing = TDC(lambda s: np.zeros((len(s), 2))).evaluate(Leaning(), random_batch(), discount=0.9)
    assert not nothing.weights.any()
