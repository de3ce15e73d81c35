import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from sklearn.linear_model import LogisticRegression

import naive
from capi import CAPI, Transitions
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.features import Fourier, OneHot, Polynomial, Tiles
from capi.features.scaling import Scaling
from capi.loss import gap_weighted_loss, regrets
from capi.policy_spaces import Linear
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.linear import _kernels
from capi.policy_spaces.linear._line_search import LineSearch
from capi.policy_spaces.linear._surrogates import KINDS, ConvexLoss, Objective
from capi.policy_spaces.linear.linear import StatesAndConstant
from capi.testing import check_policy_space

SURROGATES = ("hinge", "logistic", "exponential")
EVERYTHING = [(s, p) for s in SURROGATES for p in ("l2", "l1")]


def problem(seed, n=40, d=2, n_actions=3, signal=1.0):
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, d))
    return states, signal * states @ rng.normal(size=(d, n_actions)) + rng.normal(size=(n, n_actions))


def masks(seed, shape):
    allowed = np.random.default_rng(seed).random(shape) < 0.7
    allowed[np.arange(len(allowed)), np.random.default_rng(seed + 1).integers(shape[1], size=len(allowed))] = True
    return allowed


def loss_of(policy, states, q_values, **given):
    return gap_weighted_loss(q_values, policy.act(states, given.get("allowed")), **given)


@pytest.mark.compiled
@pytest.mark.parametrize(("surrogate", "penalty"), EVERYTHING)
@pytest.mark.parametrize("n_actions", [2, 3])
def test_keeps_the_contract(surrogate, penalty, n_actions):
    for polish in (False, True):
        check_policy_space(Linear(surrogate=surrogate, penalty=penalty, polish=polish), n_actions=n_actions)


@pytest.mark.compiled
def test_keeps_the_contract_with_features():
    check_policy_space(Linear(Polynomial(2)))
    check_policy_space(Linear(Tiles(2, 3), strength=0.01))
    check_policy_space(Linear(lambda x: np.column_stack([x, -np.ones(len(x))]), scale=None))


# The surrogate.


def ell(kind, margin):
    return _kernels.surrogate(KINDS[kind], float(margin))[0]


@pytest.mark.parametrize("kind", SURROGATES)
def test_the_losses_of_a_margin_are_convex_and_have_the_slopes_they_say(kind):
    margins = np.concatenate([np.linspace(-40, 40, 401), np.linspace(0.85, 1.05, 41)])
    for m in margins:
        value, slope = _kernels.surrogate(KINDS[kind], m)
        assert value >= 0
        assert slope <= 0
        assert ell(kind, m) <= (ell(kind, m - 0.1) + ell(kind, m + 0.1)) / 2 * (1 + 1e-12)
        np.testing.assert_allclose(slope, (ell(kind, m + 1e-6) - ell(kind, m - 1e-6)) / 2e-6, rtol=1e-3, atol=1e-4)


def test_the_losses_of_a_margin_are_what_they_are_called():
    m = np.linspace(-5, 5, 101)
    np.testing.assert_allclose([ell("logistic", x) for x in m], np.log1p(np.exp(-m)))
    np.testing.assert_allclose([ell("exponential", x) for x in m], np.exp(-m))
    np.testing.assert_allclose([ell("hinge", x) for x in m], np.maximum(1 - m, 0), atol=0.05 + 1e-12)
    assert ell("exponential", -1e6) < np.inf


def objective(surrogate, penalty, seed, *, masked, sparse=False):
    states, q_values = problem(seed, n=15, d=3, n_actions=4)
    allowed = masks(seed, q_values.shape) if masked else None
    stakes = ImprovementProblem.of(states, q_values, allowed=allowed).stakes
    table = sp.csr_array(stakes.states) if sparse else stakes.states
    return Objective(ConvexLoss(surrogate, penalty, 0.1, 100), table, stakes.lost, np.full(12, 0.1))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_surrogate_is_the_sum_over_pairs(surrogate, masked):
    f = objective(surrogate, "l2", 3, masked=masked)
    weights = np.random.default_rng(0).normal(size=(4, 3))
    expected = naive.pair_surrogate(lambda m: ell(surrogate, m), f.table @ weights.T, f.lost)
    np.testing.assert_allclose(f.surrogate(weights.ravel())[0], expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("surrogate", "penalty"), EVERYTHING)
def test_gradients_agree_with_finite_differences(surrogate, penalty, masked):
    f = objective(surrogate, penalty, 1, masked=masked, sparse=masked)
    call = f.squared if penalty == "l2" else f.absolute
    size = 12 if penalty == "l2" else 24
    for seed in range(5):
        weights = np.abs(np.random.default_rng(seed).normal(size=size)) * (1 if penalty == "l1" else -0.7)
        error = check_grad(lambda w: call(w)[0], lambda w: call(w)[1], weights)
        assert error < 1e-5 * max(1.0, np.abs(call(weights)[1]).max())


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_objective_is_convex(surrogate):
    f = objective(surrogate, "l2", 2, masked=True)
    rng = np.random.default_rng(0)
    for _ in range(50):
        one, other, share = rng.normal(size=12), rng.normal(size=12), rng.random()
        between = f.squared(share * one + (1 - share) * other)[0]
        assert between <= share * f.squared(one)[0] + (1 - share) * f.squared(other)[0] + 1e-12


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_surrogate_bounds_the_loss(surrogate):
    """An action that is played scores no less than the best one."""
    f = objective(surrogate, "l2", 4, masked=True)
    for seed in range(20):
        weights = np.random.default_rng(seed).normal(size=(4, 3))
        loss = naive.linear_loss(f.table, weights, f.lost)
        assert loss <= f.surrogate(weights.ravel())[0] / ell(surrogate, 0.0) + 1e-12


def test_with_two_actions_it_is_weighted_logistic_regression():
    """The same problem as scikit-learn's: labels are the greedy actions, weights the gaps, C the inverse of the strength."""
    states, q_values = problem(0, n=200, n_actions=2)
    strength = 0.05
    ours = Linear(strength=strength, polish=False, scale=None).improve(states, q_values)
    gaps = np.abs(q_values[:, 1] - q_values[:, 0])
    theirs = LogisticRegression(C=1 / strength, tol=1e-8).fit(states, q_values.argmax(axis=1), gaps / gaps.sum())
    difference = ours.weights[1] - ours.weights[0]
    np.testing.assert_allclose(difference[:2], theirs.coef_[0], atol=2e-4)
    np.testing.assert_allclose(difference[2], theirs.intercept_[0], atol=2e-4)


def test_with_l1_it_is_sparse_logistic_regression():
    states, q_values = problem(0, n=200, d=6, n_actions=2, signal=0.3)
    strength = 0.1
    ours = Linear(strength=strength, polish=False, penalty="l1", scale=None).improve(states, q_values)
    difference = ours.weights[1] - ours.weights[0]
    gaps = np.abs(q_values[:, 1] - q_values[:, 0])
    reference = LogisticRegression(l1_ratio=1.0, solver="saga", C=1 / strength, tol=1e-7, max_iter=10_000)
    theirs = reference.fit(states, q_values.argmax(axis=1), gaps / gaps.sum())
    np.testing.assert_allclose(difference[:-1], theirs.coef_[0], atol=1e-3)
    assert (difference[:-1] == 0).sum() > 0


def test_a_separable_problem_is_solved_without_loss():
    states, _ = problem(0, n=100)
    q_values = states @ np.array([[1.0, -0.5, 0.2], [0.3, 0.8, -1.0]])
    for surrogate in SURROGATES:
        policy = Linear(surrogate=surrogate, strength=1e-6, polish=False).improve(states, q_values)
        assert loss_of(policy, states, q_values) < 1e-3
        assert loss_of(Linear(surrogate=surrogate).improve(states, q_values), states, q_values) < 1e-4


# Polishing.


@pytest.mark.parametrize("n_actions", [2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_a_line_search_finds_the_least_loss_on_its_line(seed, n_actions):
    states, q_values = problem(seed, n=12, n_actions=n_actions)
    allowed = masks(seed, q_values.shape) if seed % 2 else None
    stakes = ImprovementProblem.of(states, q_values, allowed=allowed).stakes
    search = LineSearch(stakes.states, stakes.lost)
    rng = np.random.default_rng(seed)
    weights, direction = rng.normal(size=(2, n_actions, 2))
    place = search.start(weights)
    assert place.loss == pytest.approx(naive.linear_loss(search.table, weights, search.lost))
    step = search.best_step(place.scores, search.scores(direction), place.loss)
    found = naive.linear_loss(search.table, weights + step * direction, search.lost)
    tried = np.tan(np.linspace(-1.57, 1.57, 801))
    least = min(naive.linear_loss(search.table, weights + t * direction, search.lost) for t in tried)
    assert found <= least + 1e-12


@pytest.mark.parametrize("n_actions", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_polishing_never_raises_the_loss(seed, n_actions):
    states, q_values = problem(seed, n_actions=n_actions)
    given = {"allowed": masks(seed, q_values.shape)} if seed % 2 else {}
    for surrogate in SURROGATES:
        start = Linear(surrogate=surrogate, polish=False).improve(states, q_values, **given)
        polished = Linear(surrogate=surrogate).improve(states, q_values, **given)
        before, after = (loss_of(policy, states, q_values, **given) for policy in (start, polished))
        assert after <= before + 1e-12
        if not given:
            assert after <= regrets(q_values).mean(axis=0).min() + 1e-12  # the constant actions


def test_on_most_tiny_problems_it_finds_the_best_line_of_all():
    found = 0
    for seed in range(30):
        states, q_values = problem(seed, n=12, n_actions=2, signal=0.2)
        policy = Linear().improve(states, q_values)
        loss, least = 12 * loss_of(policy, states, q_values), naive.best_line(states, q_values)
        assert loss >= least - 1e-9
        found += loss <= least + 1e-9
    assert found >= 25


@pytest.mark.compiled
def test_a_previous_policy_is_a_start():
    """What is returned loses no more than the previous policy, here an excellent one from elsewhere."""
    states, q_values = problem(0, n=300, signal=0.3)
    nonsense = np.random.default_rng(1).normal(size=q_values.shape)
    for space in (Linear(), Linear(scale="range"), Linear(Polynomial(2))):
        good = space.improve(states, q_values)
        again = space.improve(states, q_values, previous=good)
        assert loss_of(again, states, q_values) <= loss_of(good, states, q_values) + 1e-12
        bad = space.improve(states, nonsense)
        after_bad = space.improve(states, q_values, previous=bad)
        assert loss_of(after_bad, states, q_values) < loss_of(bad, states, q_values)


def test_a_previous_policy_on_another_scale_decides_alike():
    states, _ = problem(0)
    old, new = (StatesAndConstant(Scaling(np.full(2, o), np.full(2, u))) for o, u in ((1.0, 2.0), (-3.0, 0.5)))
    weights = np.random.default_rng(0).normal(size=(3, 3))
    moved = new.in_own_units(old.in_original_units(weights))
    np.testing.assert_allclose(new(states) @ moved.T, old(states) @ weights.T)


def test_fitted_features_travel():
    states, q_values = problem(0)
    space = Linear(Polynomial(2))
    first = space.improve(states, q_values)
    assert space.improve(states, -q_values, previous=first).features is first.features
    assert Linear(Polynomial(2)).improve(states, q_values, previous=first).features is not first.features
    assert space.improve(states[:, :1], q_values, previous=first).n_features == 1


# What must not matter.


@pytest.mark.parametrize("space", [Linear(), Linear(surrogate="hinge", penalty="l1", strength=0.01)])
def test_rows_without_a_gap_do_not_matter(space):
    states, q_values = problem(0)
    more_states = np.vstack([states, [[50.0, -50.0]], states[:5] * 3])
    more_values = np.vstack([q_values, np.full((6, 3), 2.0)])
    one, other = space.improve(states, q_values), space.improve(more_states, more_values)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert one.rules() == other.rules()


@pytest.mark.parametrize("polish", [False, True])
def test_a_weight_is_a_number_of_copies(polish):
    states, q_values = problem(0)
    copies = np.random.default_rng(0).integers(0, 4, size=len(states))
    space = Linear(polish=polish)
    weighted = space.improve(states, q_values, weights=copies.astype(float))
    repeated = space.improve(np.repeat(states, copies, axis=0), np.repeat(q_values, copies, axis=0))
    np.testing.assert_allclose(weighted.weights, repeated.weights, rtol=1e-3, atol=1e-3)


def test_the_units_of_the_columns_do_not_matter():
    states, q_values = problem(0)
    one = Linear().improve(states, q_values).act(states)
    other = Linear().improve(states * [1024.0, 1 / 64] + [3.0, 0.0], q_values)
    np.testing.assert_array_equal(other.act(states * [1024.0, 1 / 64] + [3.0, 0.0]), one)


def test_it_is_deterministic():
    states, q_values = problem(0, signal=0.1)
    one, other = (Linear().improve(states, q_values, rng=np.random.default_rng(5)).weights for _ in range(2))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        Linear().improve(states, q_values).weights, Linear().improve(states, q_values).weights
    )


# Masks.


def test_actions_that_are_not_allowed_have_no_influence():
    states, q_values = problem(0)
    allowed = masks(0, q_values.shape)
    policy = Linear().improve(states, q_values, allowed=allowed)
    other = Linear().improve(states, np.where(allowed, q_values, 1e3), allowed=allowed)
    np.testing.assert_array_equal(policy.weights, other.weights)
    scores = np.where(allowed, policy.scores(states), -np.inf)
    np.testing.assert_array_equal(policy.act(states, allowed), scores.argmax(axis=1))
    with pytest.raises(InvalidInputError, match="learned with masks"):
        policy.act(states)


def test_two_allowed_actions_of_three_are_the_problem_of_two():
    states, q_values = problem(0, n=100)
    q_values[:, 1] = 9.0
    allowed = np.tile([True, False, True], (100, 1))
    masked = Linear().improve(states, q_values, allowed=allowed)
    plain = Linear().improve(states, q_values[:, [0, 2]])
    losses = loss_of(masked, states, q_values, allowed=allowed), loss_of(plain, states, q_values[:, [0, 2]])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert set(masked.act(states, allowed)) == {0, 2}


# Words.

SCHEMA = Schema(("dose", "age"), ("none", "RTI"))


def line(slopes, constant, scaling=None, **words):
    """A policy of two actions with this difference of scores, in the units of the scaling."""
    from capi.features.tables import fitted_features
    from capi.policy_spaces.linear.linear import LinearPolicy

    scaling = Scaling(np.zeros(2), np.ones(2)) if scaling is None else scaling
    features = fitted_features(StatesAndConstant(scaling), np.zeros((1, 2)))
    return LinearPolicy(np.array([[0.0, 0.0, 0.0], [*slopes, constant]]), features, **words)


def test_the_rules_are_in_the_words_and_units_of_the_table():
    scaling = Scaling(np.array([10.0, 100.0]), np.array([2.0, 50.0]))
    policy = line([1.0, -5.0], 0.5, scaling, schema=SCHEMA)
    assert policy.rules() == "if 0.5 dose - 0.1 age + 5.5 > 0: RTI\nelse: none"
    assert line([1.0, 0.0], 0.0).rules() == "if 1 x0 > 0: 1\nelse: 0"
    assert line([-1 / 3, 2 / 3], 0.0).rules(digits=2) == "if -0.33 x0 + 0.67 x1 > 0: 1\nelse: 0"
    assert policy.to_dict() == {
        "features": ["dose", "age", "constant"],
        "actions": ["none", "RTI"],
        "weights": [[0.0, 0.0, 0.0], [0.5, -0.1, 5.5]],
    }


def test_the_rules_of_more_actions_and_of_constants():
    states = np.array([[0.0], [1.0], [2.0], [3.0]])
    policy = Linear().improve(states, np.eye(3)[[0, 1, 1, 2]])
    lines = policy.rules().splitlines()
    assert lines[0] == "the action with the largest score, the first among equals:"
    assert [text.split(":")[0] for text in lines[1:]] == ["  0", "  1", "  2"]
    assert Linear().improve(states, np.eye(3)[[2, 2, 2, 2]]).rules() == "always 2"
    assert Linear().improve(states, np.zeros((4, 3))).rules() == "always 0"
    assert line([0.0, 0.0], 1.0, schema=SCHEMA, masked=True).rules() == "always RTI, else none"


def test_features_of_ones_own_are_numbered():
    states, q_values = problem(0, n_actions=2)
    policy = Linear(Fourier(1), penalty="l1").improve(states, q_values)
    assert policy.to_dict()["features"] == ["phi0", "phi1", "phi2", "phi3"]
    assert "phi1" in policy.rules()
    assert Linear(OneHot()).improve(states, np.zeros((40, 2))).rules() == "always 0"


def test_the_rules_decide_as_the_policy_does():
    states, q_values = problem(0, n_actions=3, n=200)
    policy = Linear().improve(states * [100.0, 0.01], q_values)
    weights = np.array(policy.to_dict()["weights"])
    scores = np.column_stack([states * [100.0, 0.01], np.ones(200)]) @ weights.T
    np.testing.assert_array_equal(scores.argmax(axis=1), policy.act(states * [100.0, 0.01]))


def test_equal_scores_go_to_the_lowest_action():
    np.testing.assert_array_equal(line([1.0, 0.0], 0.0).act(np.array([[0.0, 7.0], [1e-9, 0.0]])), [0, 1])


def test_it_takes_part_in_capi():
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, size=(300, 1)), rng.integers(2, size=300)
    following = np.clip(states + 0.2 * (2 * actions[:, None] - 1), -1, 1)
    batch = Transitions(states, actions, -np.abs(following[:, 0]), following, np.zeros(300, dtype=bool))
    learner = CAPI(
        FittedQ(n_trees=5, min_samples_split=10), Linear(), discount=0.5, n_iterations=3, random_state=0
    ).fit(batch)
    np.testing.assert_array_equal(learner.policy_.act(np.array([[-0.8], [0.8]])), [1, 0])
    assert "x0" in learner.policy_.rules()


# Bad input.

X = np.arange(8.0).reshape(4, 2)
Q = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Linear(surrogate="squared"), "surrogate must be one of 'hinge', 'logistic', 'exponential'"),
        (lambda: Linear(penalty="l3"), "penalty must be one of"),
        (lambda: Linear(strength=-1.0), "strength must be a number, at least 0"),
        (lambda: Linear(max_iterations=0), "max_iterations must be an integer, at least 1"),
        (lambda: Linear(features=Polynomial), r"Did you mean Polynomial\(\)"),
        (lambda: Linear(scale="big"), "scale must be one of"),
        (lambda: Linear().improve(np.where(X == 3, np.nan, X), Q), r"states must be finite; .* first states\[1, 1\]"),
        (lambda: Linear().improve(X, Q[:3]), "q_values must have one row per state"),
        (lambda: Linear().improve(X, Q, weights=[1, -1, 1, 1]), "weights must not be negative"),
        (lambda: Linear().improve(X, 1e308 * Q), "finite sum"),
        (
            lambda: Linear(lambda x: np.log(x - 7.0, where=x > 7, out=np.full(x.shape, np.inf))).improve(X, Q),
            "must be finite",
        ),
        (lambda: Linear().improve(X, Q).act(np.zeros((1, 3))), "must have 2 columns"),
        (lambda: Linear().improve(X, Q).act(np.array([[np.nan, 0.0]])), "states must be finite"),
        (lambda: Linear().improve(X, Q).rules(digits=0), "digits must be an integer, at least 1"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


def test_features_must_be_finite_in_the_rows_that_matter():
    q_values = np.vstack([Q[:3], [[0.0, 0.0]]])
    infinite = lambda x: np.where(x > 1, x, np.inf)  # noqa: E731
    with pytest.raises(InvalidInputError, match="must be finite"):
        Linear(infinite).improve(X, q_values)


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("polish", [True, False])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_monotone_policies_keep_the_order_everywhere(direction, polish, seed):
    rng = np.random.default_rng(seed)
    states, q = rng.normal(size=(60, 2)), rng.normal(size=(60, 4))
    policy = Linear(monotone={0: direction}, polish=polish).improve(states, q)
    assert (direction * np.diff(policy.weights[:, 0]) >= 0).all()
    for other in rng.normal(size=5) * 3:
        line = np.column_stack([np.linspace(-5, 5, 201), np.full(201, other)])
        assert (direction * np.diff(policy.act(line)) >= 0).all()


def test_monotone_costs_nothing_where_the_best_policy_is_monotone():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(500, 2))
    q = np.stack([np.zeros(500), states[:, 0], 2 * states[:, 0] - 1], axis=1)  # 0, then 1, then 2 as x0 rises
    free, ordered = (Linear(monotone=m).improve(states, q).act(states) for m in (None, {0: 1}))
    assert gap_weighted_loss(q, ordered) <= gap_weighted_loss(q, free) + 0.01
    against = Linear(monotone={0: -1}).improve(states, q)
    assert np.ptp(against.weights[:, 0]) == 0  # the column is of no use
    later = Linear(monotone={0: 1}).improve(states, q, previous=against)
    assert gap_weighted_loss(q, later.act(states)) <= gap_weighted_loss(q, ordered) + 0.01


@pytest.mark.parametrize("options", [{"penalty": "l1"}, {"features": lambda x: x}, {"monotone": {0: 3}}])
def test_an_order_that_cannot_be_guaranteed_is_refused(options):
    with pytest.raises(InvalidInputError, match="monotone"):
        Linear(**{"monotone": {0: 1}, **options})
