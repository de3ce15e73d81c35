import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

import builders
from capi import CAPI, FiniteMDP, Transitions, save_policy
from capi.errors import InvalidInputError
from capi.evaluators import BoostedQ, FittedQ, boosted_q
from capi.policies import Constant, Uniform
from capi.policy_spaces import Unrestricted
from capi.testing import check_evaluator, random_batch

SMALL = {"n_trees": 5, "added": 2, "min_samples_leaf": 2}


@pytest.mark.parametrize(
    "settings", [{}, {"n_sweeps": 4}, {"added": None, "n_sweeps": 2}, {"n_sweeps": 4, "max_trees": 7}], ids=repr
)
def test_keeps_the_contract(settings):
    check_evaluator(BoostedQ(**{**SMALL, **settings}))


def test_lightgbm_keeps_the_contract():
    pytest.importorskip("lightgbm")
    check_evaluator(BoostedQ(**SMALL, n_sweeps=4, engine="lightgbm"))


def test_finite_states_give_the_exact_values_of_the_logged_model():
    """Whole steps and leaves of one row correct a table exactly, up to the single precision of the library's gradients."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), size=(2, 4))
    mdp = FiniteMDP(P, rng.normal(size=(4, 2)), discount=0.8)
    batch = builders.tabular_batch(mdp, 400, rng)
    x, y = batch.states[:, 0].astype(int), batch.next_states[:, 0].astype(int)
    counts = np.zeros((2, 4, 4))
    np.add.at(counts, (batch.actions, x, y), 1)
    logged = FiniteMDP(counts / counts.sum(axis=2, keepdims=True), mdp.rewards, discount=0.8)
    evaluator = BoostedQ(2, 1, learning_rate=1.0, min_samples_leaf=1, max_trees=40, n_sweeps=80)
    for policy in (Constant(1, 2), Uniform(2)):
        q = evaluator.evaluate(policy, batch, discount=0.8)
        np.testing.assert_allclose(q.values(mdp.states), logged.action_values(policy), atol=1e-5)


def test_a_sweep_adds_trees_that_are_fitted_to_what_the_old_model_lacks():
    batch, policy = random_batch(n_episodes=60), Constant(1, 3)
    evaluator = BoostedQ(**SMALL)
    old = evaluator.evaluate(policy, batch, discount=0.9)
    new = evaluator.evaluate(policy, batch, discount=0.9, previous=old)
    settings = {"min_samples_leaf": 2, "early_stopping": False}
    rows = np.flatnonzero(batch.actions == 2)
    first = HistGradientBoostingRegressor(max_iter=5, **settings).fit(batch.states[rows], batch.rewards[rows])
    np.testing.assert_array_equal(old.values(batch.states)[:, 2], first.predict(batch.states))
    targets = batch.rewards + 0.9 * ~batch.terminated * old.values(batch.next_states)[:, 1]
    lacking = (targets - first.predict(batch.states))[rows]
    second = HistGradientBoostingRegressor(max_iter=2, **settings).fit(batch.states[rows], lacking)
    expected = first.predict(batch.states) + second.predict(batch.states)
    np.testing.assert_array_equal(new.values(batch.states)[:, 2], expected)
    assert [model.n_trees for model in (*old.models, *new.models)] == [5] * 3 + [7] * 3


def test_values_do_not_depend_on_what_is_cached():
    batch, q = random_batch(), None
    for _ in range(4):
        q = BoostedQ(**SMALL).evaluate(Uniform(3), batch, discount=0.9, previous=q)
    for states in (batch.states, batch.next_states):
        np.testing.assert_array_equal(q.values(states), q.values(states.copy()))


def test_without_adding_every_sweep_is_a_fit_of_the_same_regressor():
    batch = random_batch()
    regressor = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2, early_stopping=False)
    plain = FittedQ(regressor=regressor, n_sweeps=3).evaluate(Uniform(3), batch, discount=0.9)
    ours = BoostedQ(5, None, min_samples_leaf=2, n_sweeps=3).evaluate(Uniform(3), batch, discount=0.9)
    np.testing.assert_array_equal(ours.values(batch.states), plain.values(batch.states))


def test_models_that_grew_too_long_are_fitted_from_scratch():
    batch, q, sizes = random_batch(), None, []
    evaluator = BoostedQ(**SMALL, max_trees=9)
    for _ in range(5):
        q = evaluator.evaluate(Uniform(3), batch, discount=0.9, previous=q)
        sizes.append([(model.n_trees, len(model.stages)) for model in q.models])
    assert sizes == [[(n, k)] * 3 for n, k in ((5, 1), (7, 2), (9, 3), (5, 1), (7, 2))]


def test_another_batch_or_other_settings_start_from_scratch_on_targets_of_the_previous_q():
    batch, evaluator = random_batch(), BoostedQ(**SMALL)
    q = evaluator.evaluate(Uniform(3), batch, discount=0.9)
    for other, settings in ((random_batch(1), evaluator), (batch, BoostedQ(**SMALL, learning_rate=0.2))):
        new = settings.evaluate(Uniform(3), other, discount=0.9, previous=q)
        assert [model.n_trees for model in new.models] == [5] * 3
        fresh = settings.evaluate(Uniform(3), other, discount=0.9)
        assert not np.array_equal(new.values(other.states), fresh.values(other.states))


def test_an_action_that_is_never_taken_learns_from_all_rows():
    batch = random_batch()
    other = batch._with({"actions": np.where(batch.actions == 2, 0, batch.actions)})
    q = BoostedQ(**SMALL).evaluate(Constant(0, 3), other, discount=0.9)
    model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2).fit(batch.states, batch.rewards)
    np.testing.assert_array_equal(q.values(batch.states)[:, 2], model.predict(batch.states))


def test_rows_without_weight_are_ignored_and_weights_count():
    batch = random_batch()
    half = np.arange(len(batch)) % 2 == 0
    one, other = (
        BoostedQ(**SMALL, n_sweeps=3).evaluate(Uniform(3), part, discount=0.9).values(batch.states)
        for part in (
            batch._with({"weights": half.astype(float)}),
            batch.subset(half)._with({"weights": np.ones(half.sum())}),
        )
    )
    np.testing.assert_array_equal(one, other)
    x = np.zeros((4, 1))
    table = Transitions(x, [0] * 4, [0.0, 0.0, 0.0, 4.0], x, [True] * 4, weights=[1.0, 1.0, 1.0, 3.0])
    q = BoostedQ(n_trees=1, added=1, learning_rate=1.0).evaluate(Constant(0, 1), table, discount=0.5)
    assert q.values(x[:1])[0, 0] == pytest.approx(2.0)


def test_missing_values_are_a_branch_of_their_own():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    x[::2] = np.nan
    batch = Transitions(x, np.zeros(400, dtype=int), np.isnan(x[:, 0]).astype(float), x, np.ones(400, dtype=bool))
    q = BoostedQ(n_trees=20, learning_rate=1.0).evaluate(Constant(0, 1), batch, discount=0.5)
    np.testing.assert_allclose(q.values(np.array([[np.nan], [0.3]])), [[1.0], [0.0]], atol=1e-6)


def test_results_do_not_depend_on_threads():
    batch = random_batch(n_episodes=400)
    found = []
    for n in (1, 2):
        with threadpool_limits(n):
            q = BoostedQ(n_trees=20, n_sweeps=3).evaluate(Uniform(3), batch, discount=0.9)
            found.append(q.values(batch.states))
    np.testing.assert_array_equal(*found)


def test_the_previous_q_is_not_changed():
    batch, evaluator = random_batch(), BoostedQ(**SMALL)
    old = evaluator.evaluate(Uniform(3), batch, discount=0.9)
    before = old.values(batch.states.copy())
    evaluator.evaluate(Uniform(3), batch, discount=0.9, previous=old)
    np.testing.assert_array_equal(old.values(batch.states.copy()), before)


def test_the_loop_learns_with_it_and_its_policies_are_not_saved(tmp_path):
    batch = random_batch(n_episodes=60)
    learner = CAPI(BoostedQ(**SMALL), Unrestricted(), discount=0.9, n_iterations=3, random_state=0).fit(batch)
    assert learner.q_.models[0].n_trees == 9
    with pytest.raises(InvalidInputError, match="its trees are objects of another library"):
        save_policy(learner.policy_, tmp_path / "policy.capi")
    with pytest.raises(InvalidInputError, match="BoostedValues does not average rows"):
        learner.set_params(state_weights="mixture").fit(batch)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_trees": 0}, "n_trees must be an integer, at least 1"),
        ({"added": 0}, "added must be an integer, at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"learning_rate": 1.5}, r"learning_rate must be a number in \[0, 1\]"),
        ({"max_leaf_nodes": 1}, "max_leaf_nodes must be an integer, at least 2"),
        ({"max_trees": 99}, "max_trees must be at least n_trees, 100; got 99"),
        ({"n_sweeps": None}, "n_sweeps must be an integer"),
        ({"engine": "xgboost"}, "engine must be"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        BoostedQ(**settings)


def test_lightgbm_must_be_installed(monkeypatch):
    monkeypatch.setattr(boosted_q, "find_spec", lambda name: None)
    with pytest.raises(InvalidInputError, match=r"needs lightgbm: pip install capi\[boosting\]"):
        BoostedQ(engine="lightgbm")


def test_a_batch_must_be_given():
    with pytest.raises(InvalidInputError, match="BoostedQ learns from logged data"):
        BoostedQ().evaluate(Constant(0, 3), None, discount=0.9)
