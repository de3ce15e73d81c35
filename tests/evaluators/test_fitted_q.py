import copy
import pickle
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

import builders
from capi import CAPI, FiniteMDP, Transitions
from capi.baselines import FittedQIteration
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.evaluators.averager import Averager
from capi.policies import Constant, Deterministic, Uniform
from capi.policy_spaces import Thresholds, Trees, Unrestricted
from capi.testing import NearestQ, check_evaluator, random_batch
from capi.trees import forest, predictor

FIELDS = ("states", "actions", "rewards", "next_states", "terminated")
SETTINGS = [
    FittedQ(n_trees=4),
    FittedQ(n_trees=4, refresh_every=1, n_sweeps=3),
    FittedQ(n_trees=4, refresh_every="never", n_sweeps=4),
    FittedQ(n_trees=4, actions="input", n_sweeps=2),
    FittedQ(n_trees=4, max_features=1, n_jobs=2),
    FittedQ(regressor=LinearRegression(), n_sweeps=2),
    FittedQ(regressor=HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2), actions="input"),
]


@pytest.mark.parametrize("evaluator", SETTINGS, ids=repr)
def test_keeps_the_contract(evaluator):
    check_evaluator(evaluator)


@pytest.mark.parametrize("actions", ["separate", "input"])
@pytest.mark.parametrize("refresh_every", [1, 10, "never"])
def test_finite_states_give_the_exact_values_of_the_logged_model(actions, refresh_every):
    """Trees that split every state and action apart average exactly: Q solves the model that the batch counts."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), size=(2, 4))
    mdp = FiniteMDP(P, rng.normal(size=(4, 2)), discount=0.8)
    batch = builders.tabular_batch(mdp, 400, rng)
    x, y = batch.states[:, 0].astype(int), batch.next_states[:, 0].astype(int)
    counts = np.zeros((2, 4, 4))
    np.add.at(counts, (batch.actions, x, y), 1)
    logged = FiniteMDP(counts / counts.sum(axis=2, keepdims=True), mdp.rewards, discount=0.8)
    settings = {"actions": actions, "refresh_every": refresh_every}
    evaluator = FittedQ(n_trees=3, min_samples_split=2, n_sweeps=150, **settings)
    for policy in (Constant(1, 2), Uniform(2)):
        q = evaluator.evaluate(policy, batch, discount=0.8)
        np.testing.assert_allclose(q.values(mdp.states), logged.action_values(policy), atol=1e-9)


def test_kept_trees_are_solved_to_their_fixed_point():
    batch = random_batch(n_episodes=60)
    settings = {"n_trees": 3, "refresh_every": "never"}
    solved = FittedQ(**settings, n_sweeps=None).evaluate(Uniform(3), batch, discount=0.95)
    many = FittedQ(**settings, n_sweeps=800).evaluate(Uniform(3), batch, discount=0.95)
    scale = np.abs(many.values(batch.states)).max()
    np.testing.assert_allclose(solved.values(batch.states), many.values(batch.states), atol=2e-9 * scale)


@pytest.mark.parametrize("refresh_every", [1, 2, 25, "never"])
def test_a_complete_evaluation_is_the_fixed_point_of_its_own_trees_however_old_they_are(refresh_every):
    batch, q = random_batch(), None
    evaluator = FittedQ(n_trees=4, n_sweeps=None, refresh_every=refresh_every)
    for k in range(5):
        q = evaluator.evaluate(Uniform(3), batch, discount=0.9, previous=q, rng=np.random.default_rng(k))
        own = Averager.of(q, batch, discount=0.9).action_values(Uniform(3))
        np.testing.assert_allclose(q.values(batch.states), own.values(batch.states), rtol=0, atol=1e-5)


def test_masks_of_the_next_states_bind_the_policy():
    """In the next state only the worse action is allowed; where the process ended nothing need be."""
    columns = {
        "states": [[0.0]] * 4,
        "actions": [0, 1, 0, 1],
        "rewards": [1.0, 0.0, 1.0, 0.0],
        "next_states": [[0.0]] * 4,
    }
    masks = [[False, True], [False, True], [False, False], [False, False]]
    batch = Transitions(**columns, terminated=[False, False, True, True], next_allowed=masks)
    q = FittedQ(n_trees=1, n_sweeps=60).evaluate(Constant(0, 2), batch, discount=0.5)
    np.testing.assert_allclose(q.values(np.zeros((1, 1))), [[1.0, 0.0]], atol=1e-9)
    half = Transitions(**columns, terminated=[True] * 4, allowed=np.ones((4, 2)))
    with pytest.raises(InvalidInputError, match="next_allowed must be given with allowed"):
        FittedQ().evaluate(Constant(0, 2), half, discount=0.5)


def test_capi_learns_with_masks_from_data():
    """Action 2 pays best but may not be taken in half of the states."""
    rng = np.random.default_rng(0)
    n = 600
    x = rng.uniform(size=(n, 1))
    allowed = np.column_stack([np.ones((n, 2), dtype=bool), x[:, 0] > 0.5])
    actions = np.array([rng.choice(np.flatnonzero(row)) for row in allowed])
    rewards = np.choose(actions, [x[:, 0] < 0.25, x[:, 0] >= 0.25, np.full(n, 3.0)]).astype(float)
    ends = np.ones(n, dtype=bool)
    batch = Transitions(x, actions, rewards, x, ends, n_actions=3, allowed=allowed, next_allowed=allowed)
    learner = CAPI(FittedQ(n_trees=20), Trees(max_depth=3), discount=0.0, n_iterations=2, random_state=0).fit(batch)
    points = np.array([[0.1], [0.4], [0.9], [0.9]])
    masks = np.array([[True, True, False], [True, True, False], [True, True, True], [True, True, False]])
    assert learner.predict(points, allowed=masks).tolist() == [0, 1, 2, 1]


def test_values_stop_at_termination_but_not_at_a_time_limit():
    batch = Transitions([[0.0], [0.0]], [0, 0], [1.0, 1.0], [[0.0], [0.0]], [True, False], n_actions=1)
    q = FittedQ(n_trees=1, n_sweeps=200).evaluate(Constant(0, 1), batch, discount=0.5)
    assert q.values(np.zeros((1, 1)))[0, 0] == pytest.approx(4 / 3), "Q = 1 + 0.5 * Q / 2"


def test_kept_trees_travel_with_q_and_average_the_new_targets():
    batch = random_batch(n_episodes=60)
    evaluator = FittedQ(n_trees=3, refresh_every=3)
    policy, q, structures = Constant(1, 3), None, []
    for _ in range(7):
        old, q = q, evaluator.evaluate(policy, batch, discount=0.9, previous=q)
        structures.append(tuple(tree.nodes.tobytes() for model in q.models for tree in model.forest.trees))
        if old is not None:
            targets = batch.rewards + 0.9 * ~batch.terminated * old.values(batch.next_states)[:, 1]
            rows = np.flatnonzero(batch.actions == 2)
            tree = q.models[2].forest.trees[0]
            expected = [targets[rows[tree.leaf_of_row == leaf]].mean() for leaf in range(len(tree.counts))]
            np.testing.assert_allclose(tree.means[:, 0], expected)
    same = [a == b for a, b in pairwise(structures)]
    assert same == [False, True, False, True, True, False]


@pytest.mark.parametrize(
    ("refresh_every", "grown"), [(1, range(1, 31)), (4, [1, 2, 4, 8, 12, 16, 20, 24, 28]), (99, [1, 2, 4, 8, 16])]
)
def test_young_trees_are_replaced_sooner(refresh_every, grown):
    """What they grew on is rewards alone, and Q moves most in the first sweeps."""
    batch, q, found = random_batch(), None, []
    evaluator = FittedQ(n_trees=1, refresh_every=refresh_every)
    for k in range(1, 31):
        q = evaluator.evaluate(Constant(1, 3), batch, discount=0.9, previous=q)
        if q.age == 1:
            found.append(k)
    assert found == list(grown)


def test_the_age_of_q_goes_on_with_another_batch():
    """Trees that are grown on a Q of thirty sweeps are not young, whatever batch it came from."""
    first, second = random_batch(), random_batch(seed=1)
    evaluator = FittedQ(n_trees=1, refresh_every=5)
    q = FittedQ(n_trees=1, n_sweeps=30).evaluate(Constant(1, 3), first, discount=0.9)
    ages = []
    for _ in range(6):
        q = evaluator.evaluate(Constant(1, 3), second, discount=0.9, previous=q)
        ages.append(q.age)
    assert ages == [1, 2, 3, 4, 5, 1]


@pytest.mark.parametrize("actions", ["separate", "input"])
def test_remembered_values_cannot_be_changed_and_other_states_are_checked(actions):
    batch = random_batch()
    q = FittedQ(n_trees=2, actions=actions).evaluate(Constant(1, 3), batch, discount=0.9)
    with pytest.raises(ValueError, match="read-only"):
        q.values(batch.states)[0, 0] = 7.0
    for bad in (batch.states[:, :1], np.full((100, batch.n_features), np.inf)):
        with pytest.raises(InvalidInputError, match="states"):
            q.values(bad)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda x: (x[:, 0] > 0).astype(float) / 2, "the result of Own.act"),
        (lambda x: (x[:, :1] > 0).astype(int), r"the result of Own.act.*shape"),
        (lambda x: np.full(len(x), 3), "the result of Own.act"),
    ],
)
def test_what_a_policy_of_ones_own_returns_is_checked(given, message):
    @dataclass(frozen=True, eq=False)
    class Own(Deterministic):
        n_actions: int = 3

        def act(self, states, allowed=None):
            return given(states)

    batch, evaluator = random_batch(), FittedQ(n_trees=2)
    with pytest.raises(InvalidInputError, match=message):
        evaluator.evaluate(Own(), batch, discount=0.9)


def test_a_policy_of_ones_own_may_return_a_list():
    @dataclass(frozen=True, eq=False)
    class Own(Deterministic):
        n_actions: int = 3

        def act(self, states, allowed=None):
            return [1] * len(states)

    batch, evaluator = random_batch(), FittedQ(n_trees=2, n_sweeps=3)
    own, constant = (evaluator.evaluate(policy, batch, discount=0.9) for policy in (Own(), Constant(1, 3)))
    np.testing.assert_array_equal(own.values(batch.states), constant.values(batch.states))


def test_a_new_structure_every_sweep_is_growing_anew():
    batch, policy = random_batch(), Constant(0, 3)
    twice = FittedQ(n_trees=3, refresh_every=1, n_sweeps=2).evaluate(
        policy, batch, discount=0.9, rng=np.random.default_rng(1)
    )
    rng = np.random.default_rng(1)
    once = FittedQ(n_trees=3, refresh_every=1)
    first = once.evaluate(policy, batch, discount=0.9, rng=rng)
    second = once.evaluate(policy, batch, discount=0.9, previous=first, rng=rng)
    np.testing.assert_array_equal(twice.values(batch.states), second.values(batch.states))


def test_remembered_leaves_are_those_of_a_fresh_look():
    batch = random_batch()
    q = FittedQ(n_trees=3, refresh_every=5).evaluate(Constant(0, 3), batch, discount=0.9)
    remembered = q.values(batch.states)
    np.testing.assert_allclose(q.values(batch.states), remembered)
    np.testing.assert_allclose(q.values(batch.states.copy()), remembered)


@pytest.mark.parametrize("refresh_every", [1, 5])
def test_a_view_that_only_looks_fixed_is_not_remembered(refresh_every):
    batch = random_batch()
    q = FittedQ(n_trees=3, refresh_every=refresh_every).evaluate(Constant(0, 3), batch, discount=0.9)
    states = batch.states.copy()
    view = states[:]
    view.flags.writeable = False
    before = q.values(view)
    states[:] = states[::-1].copy()
    np.testing.assert_allclose(q.values(view), before[::-1])


def test_another_batch_or_other_settings_grow_their_own_trees():
    first, second = random_batch(1), random_batch(2)
    q = FittedQ(n_trees=2).evaluate(Constant(0, 3), first, discount=0.9)
    other = FittedQ(n_trees=2).evaluate(Constant(0, 3), second, discount=0.9, previous=q)
    assert (other.age, other.prepared.batch) == (1, second)
    assert FittedQ(n_trees=3).evaluate(Constant(0, 3), first, discount=0.9, previous=q).age == 1


def test_any_q_function_serves_as_previous():
    batch = random_batch()
    old = NearestQ(batch.states, np.arange(3.0 * len(batch)).reshape(-1, 3))
    q = FittedQ(n_trees=1, min_samples_split=2).evaluate(Uniform(3), batch, discount=0.9, previous=old)
    following = old.values(batch.next_states).mean(axis=1)
    expected = batch.rewards + 0.9 * np.where(batch.terminated, 0.0, following)
    fitted = q.values(batch.states)[np.arange(len(batch)), batch.actions]
    np.testing.assert_allclose(fitted, expected)


@pytest.mark.parametrize("actions", ["separate", "input"])
def test_leaves_that_need_more_bits_change_nothing(actions, monkeypatch):
    batch, evaluator = random_batch(n_episodes=60), FittedQ(n_trees=5, actions=actions, n_sweeps=3, n_jobs=2)
    narrow = evaluator.evaluate(Uniform(3), batch, discount=0.9).values(batch.states)
    for module in (forest, predictor):
        monkeypatch.setattr(module, "leaf_type", lambda starts: np.int32)
    wide = evaluator.evaluate(Uniform(3), batch, discount=0.9)
    np.testing.assert_array_equal(wide.values(batch.states), narrow)
    assert {model.leaves(batch.states).dtype for model in wide.models} == {np.dtype(np.int32)}


def test_only_actions_that_the_policy_takes_are_evaluated():
    batch = random_batch()
    q = FittedQ(n_trees=2, refresh_every=1).evaluate(Constant(0, 3), batch, discount=0.9)
    q.models[1] = q.models[2] = None  # asking them would fail
    FittedQ(n_trees=2, refresh_every=1).evaluate(Constant(0, 3), batch, discount=0.9, previous=q)


def test_weights_of_the_batch_count():
    columns = {"actions": [0, 0], "next_states": [[0.0]] * 2, "terminated": [True] * 2, "n_actions": 1}
    batch = Transitions([[0.0], [0.0]], rewards=[2.0, 4.0], weights=[3.0, 1.0], **columns)
    for evaluator in (FittedQ(n_trees=1), FittedQ(regressor=DecisionTreeRegressor()), FittedQ(n_trees=1, n_sweeps=2)):
        assert evaluator.evaluate(Constant(0, 1), batch, discount=0.0).values(np.zeros((1, 1)))[0, 0] == pytest.approx(
            2.5
        )


def test_the_model_of_an_action_that_was_never_taken_averages_all_rows():
    """`CAPI` never chooses it."""
    batch = Transitions([[0.0]] * 4, [0, 1, 0, 1], [1.0, 2.0, 3.0, 6.0], [[0.0]] * 4, [True] * 4, n_actions=3)
    values = FittedQ(n_trees=2).evaluate(Constant(0, 3), batch, discount=0.5).values(np.zeros((1, 1)))
    np.testing.assert_allclose(values, [[2.0, 4.0, 3.0]])


@pytest.mark.parametrize(
    "bad",
    [
        {"n_trees": 0},
        {"n_sweeps": 0},
        {"n_sweeps": None, "regressor": LinearRegression()},
        {"refresh_every": 0},
        {"refresh_every": "always"},
        {"actions": "both"},
        {"regressor": 3},
        {"n_jobs": -2},
    ],
    ids=str,
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        FittedQ(**bad)


def test_fitted_q_iteration_wants_a_fitted_q():
    with pytest.raises(InvalidInputError, match="evaluator must be a FittedQ; got 'trees'"):
        FittedQIteration("trees", 0.9).fit(random_batch())


def test_without_data_there_is_a_clear_word():
    with pytest.raises(InvalidInputError, match="transitions must be given"):
        FittedQ().evaluate(Constant(0, 2), None, discount=0.5)


def chain_batch(n=4000):
    chain, rng = ChainWalk(variant=2), np.random.default_rng(0)
    states, actions = chain.initial(n, rng), rng.integers(2, size=n)
    following, rewards, ends = chain.step(states, actions, rng)
    return chain, Transitions(states, actions, rewards, following, ends, action_labels=chain.action_labels)


@pytest.mark.parametrize("space", [Trees(max_depth=1), Thresholds()], ids=repr)
def test_capi_learns_the_chain_from_data_alone(space):
    chain, batch = chain_batch()
    learner = CAPI(FittedQ(n_trees=10, n_sweeps=20), space, discount=0.99, n_iterations=15, random_state=0).fit(batch)
    assert chain.mdp.performance_loss(learner.policy_) < 5, "the best constant action loses 40"


def test_fitted_q_iteration_is_capi_with_all_policies():
    _, batch = chain_batch(1000)
    settings = {"discount": 0.99, "n_iterations": 12, "random_state": 3}
    baseline = FittedQIteration(FittedQ(n_trees=3, n_sweeps=7), **settings).fit(batch)
    same = CAPI(FittedQ(n_trees=3, n_sweeps=1), Unrestricted(), **settings, keep="last", state_weights="batch").fit(
        batch
    )
    np.testing.assert_array_equal(baseline.q_.values(batch.states), same.q_.values(batch.states))
    old = None
    for step in baseline.iterate(batch):
        if old is not None:
            best = old.values(batch.next_states).max(axis=1)
            targets = batch.rewards + 0.99 * best
            tree = step.q.models[0].forest.trees[0]
            rows = np.flatnonzero(batch.actions == 0)
            np.testing.assert_allclose(tree.sums[:, 0], np.bincount(tree.leaf_of_row, targets[rows]))
        old = step.q


def test_threads_do_not_matter():
    batch = random_batch(n_episodes=80)
    one, two = (
        FittedQ(n_trees=5, n_sweeps=3, n_jobs=jobs).evaluate(Uniform(3), batch, discount=0.9) for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.values(batch.states), two.values(batch.states))


@pytest.mark.parametrize("actions", ["separate", "input"])
def test_rows_without_weight_are_no_rows(actions):
    """Not even as the first row of a node, or where values are missing."""
    batch = random_batch(3, n_episodes=60)
    weight = np.ones(len(batch))
    weight[:5] = 0.0
    weight[::7] = 0.0
    weighted = Transitions(*(getattr(batch, n) for n in FIELDS), n_actions=3, weights=weight)
    kept = Transitions(*(getattr(batch, n)[weight > 0] for n in FIELDS), n_actions=3)
    evaluator = FittedQ(n_trees=3, actions=actions, n_sweeps=3)
    a, b = (evaluator.evaluate(Constant(0, 3), t, discount=0.9).values(batch.states) for t in (weighted, kept))
    np.testing.assert_allclose(a, b)


def test_what_is_remembered_is_not_found_under_another_arrays_identity():
    batch = random_batch()
    q = FittedQ(n_trees=3, refresh_every=5).evaluate(Constant(0, 3), batch, discount=0.9)
    q.values(batch.states)
    assert batch.states in q.known
    for other in (copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert len(other.known) == 0
        np.testing.assert_array_equal(other.values(batch.states), q.values(batch.states))


def test_arrays_that_can_change_are_never_remembered():
    batch = random_batch()
    for actions in ("separate", "input"):
        q = FittedQ(n_trees=3, refresh_every=5, actions=actions).evaluate(Constant(0, 3), batch, discount=0.9)
        states = batch.states.copy()
        before = q.values(states)
        states[:] = states[::-1].copy()
        np.testing.assert_array_equal(q.values(states), before[::-1])
        assert len(q.known) == 0


def test_only_the_last_few_arrays_are_remembered():
    q = FittedQ(n_trees=2).evaluate(Constant(0, 3), random_batch(), discount=0.9)
    for seed in range(20):
        states = np.random.default_rng(seed).normal(size=(5, 2))
        states.flags.writeable = False
        q.values(states)
    assert len(q.known) == 4


def test_a_pipeline_gets_its_seed_and_its_weights():
    batch = random_batch(1, n_episodes=40)
    weight = np.random.default_rng(0).integers(1, 4, size=len(batch)).astype(float)
    columns = {name: getattr(batch, name) for name in FIELDS}
    weighted = Transitions(**columns, n_actions=3, weights=weight)
    rows = np.repeat(np.arange(len(batch)), weight.astype(int))
    repeated = Transitions(**{name: column[rows] for name, column in columns.items()}, n_actions=3)
    tree = FittedQ(
        regressor=make_pipeline(StandardScaler(with_mean=False, with_std=False), DecisionTreeRegressor(max_depth=3))
    )
    one, other = (
        tree.evaluate(Constant(0, 3), data, discount=0.9).values(batch.states) for data in (weighted, repeated)
    )
    np.testing.assert_allclose(one, other)
    drawn = FittedQ(regressor=make_pipeline(StandardScaler(), ExtraTreeRegressor(max_features=1)))
    first, second = (drawn.evaluate(Constant(0, 3), batch, discount=0.9).values(batch.states) for _ in range(2))
    np.testing.assert_array_equal(first, second)
