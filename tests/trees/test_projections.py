import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capi import CAPI
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.evaluators.averager import Averager
from capi.evaluators.scoring_models import projections_of
from capi.files.codecs import from_arrays, to_arrays
from capi.policies import Constant
from capi.policy_spaces import Trees
from capi.testing import random_batch
from capi.trees.forest import Growth, grow
from capi.trees.projections import Projections
from capi.trees.ranks import encode


def drawn(states, n=8, seed=0):
    return Projections.drawn(states, n, np.random.default_rng(seed))


def test_combinations_are_sums_of_two_or_three_scaled_columns():
    x = np.random.default_rng(0).normal(size=(50, 4)) * [1, 1e3, 1e-3, 0]
    projections = drawn(x)
    assert set((projections.coefficients != 0).sum(axis=1)) == {2, 3}
    assert 3 not in projections.columns  # a constant column is never combined
    weights = np.zeros((4, 8))
    for k in range(8):
        np.add.at(weights[:, k], projections.columns[k], projections.coefficients[k])
    np.testing.assert_allclose(projections.beside(x), np.hstack([x, x @ weights]), rtol=1e-12)
    scaled = weights[:3] * x.std(axis=0)[:3, None]
    assert 0.3 < np.abs(scaled[scaled != 0]).mean() < 2


def test_combinations_come_after_the_columns_and_before_an_action():
    x = np.random.default_rng(0).normal(size=(5, 3))
    projections, action = drawn(x), np.arange(5.0)[:, None]
    beside = projections.beside(np.hstack([x, action]))
    np.testing.assert_array_equal(beside[:, :-1], projections.beside(x))
    np.testing.assert_array_equal(beside[:, -1:], action)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 40))
def test_a_row_gives_the_same_bytes_alone_and_among_others(seed, n):
    x = np.random.default_rng(seed).normal(size=(n, 5))
    projections = drawn(np.random.default_rng(1).normal(size=(20, 5)), 6)
    together = projections.beside(x)
    for i in range(n):
        assert projections.beside(x[i : i + 1]).tobytes() == together[i : i + 1].tobytes()


def test_missing_and_huge_values():
    x = np.random.default_rng(0).normal(size=(30, 3))
    projections = drawn(x)
    x[0, 1], x[1] = np.nan, 1e308
    beside = projections.beside(x)
    hit = ((projections.columns == 1) & (projections.coefficients != 0)).any(axis=1)
    np.testing.assert_array_equal(np.isnan(beside[0, 3:]), hit)
    assert not np.isinf(beside).any()


@pytest.mark.parametrize("x", [np.zeros((5, 3)), np.arange(5.0)[:, None], np.full((5, 3), np.nan)], ids=str)
def test_nothing_to_combine(x):
    assert drawn(x) is None
    assert drawn(np.random.default_rng(0).normal(size=(5, 3)), n=0) is None


def test_names_are_formulas():
    x = np.random.default_rng(0).normal(size=(50, 3))
    projections = Projections(np.array([[0, 2, 0], [1, 0, 2]]), np.array([[0.5, -2.0, 0.0], [-1.0, 1.0, 0.25]]), 3)
    assert projections.named(("age", "dose", "rate")) == ["0.5*age - 2*rate", "-1*dose + 1*age + 0.25*rate"]
    np.testing.assert_allclose(projections.beside(x)[:, 3], 0.5 * x[:, 0] - 2 * x[:, 2])


def test_names_of_rounded_combinations_are_exact():
    projections = drawn(np.random.default_rng(0).normal(size=(50, 3)) * [1e6, 1, 1e-9], 20)
    rounded = projections.rounded()
    np.testing.assert_allclose(rounded.coefficients, projections.coefficients, rtol=5e-3)
    names = rounded.named(("a", "b", "c"))
    assert max(map(len, names)) < 50
    row = {"a": 1.7, "b": -0.3, "c": 12.5}
    expected = rounded.beside(np.array([list(row.values())]))[0, 3:]
    np.testing.assert_allclose([eval(name, {}, row) for name in names], expected, rtol=1e-12)


def test_an_oblique_rule_needs_fewer_trees():
    rng = np.random.default_rng(0)
    x, test = rng.normal(size=(2, 2000, 4))
    oblique = lambda z: np.sign(z[:, 0] + z[:, 1] - z[:, 2])  # noqa: E731

    def error(projections):
        forest = grow(
            encode(x, projections=projections), oblique(x)[:, None], Growth(n_trees=10), np.random.default_rng(0)
        )
        return np.mean((forest.mean_values(test)[:, 0] - oblique(test)) ** 2)

    assert error(drawn(x, 30)) < 0.8 * error(None)


@pytest.mark.parametrize("actions", ["separate", "input"])
def test_fitted_q_with_combinations_is_still_an_averager(actions):
    batch, policy = random_batch(), Constant(1, 3)
    evaluator = FittedQ(n_trees=5, projections=4, actions=actions, n_sweeps=None)
    q = evaluator.evaluate(policy, batch, discount=0.9)
    assert len(projections_of(q)) == 4
    model = Averager.of(q, batch, discount=0.9)
    np.testing.assert_allclose(model.action_values(policy).values(batch.states), q.values(batch.states), atol=1e-6)
    assert float(model.occupancy(policy) @ batch.rewards) == pytest.approx(model.value(policy), rel=1e-2)
    q_alone = np.concatenate([q.values(row[None]) for row in batch.states[:20].copy()])
    np.testing.assert_array_equal(q_alone, q.values(batch.states[:20].copy()))


def test_later_sweeps_and_evaluations_keep_the_combinations():
    batch, policy = random_batch(), Constant(1, 3)
    evaluator = FittedQ(n_trees=5, projections=4, refresh_every=1)
    first = evaluator.evaluate(policy, batch, discount=0.9, rng=np.random.default_rng(0))
    second = evaluator.evaluate(policy, batch, discount=0.9, previous=first, rng=np.random.default_rng(1))
    assert projections_of(second) is projections_of(first)


def test_files_and_pickles_keep_them():
    batch, policy = random_batch(), Constant(1, 3)
    evaluator = FittedQ(n_trees=5, projections=4)
    q = evaluator.evaluate(policy, batch, discount=0.9)
    for again in (from_arrays(to_arrays(q), decides=False), pickle.loads(pickle.dumps(q))):
        np.testing.assert_array_equal(again.values(batch.states), q.values(batch.states))
    restored = evaluator.restored(from_arrays(to_arrays(q), decides=False), batch, q.age, q.n_sweeps)
    on = [
        evaluator.evaluate(policy, batch, discount=0.9, previous=one, rng=np.random.default_rng(0))
        for one in (q, restored)
    ]
    np.testing.assert_array_equal(on[0].values(batch.states), on[1].values(batch.states))


@pytest.mark.parametrize("accept", ["any", "improving"])
def test_the_loop_learns_with_combinations(accept):
    batch = random_batch()
    learner = CAPI(FittedQ(n_trees=4, projections=3), Trees(max_depth=2), 0.9, 4, accept=accept, random_state=0)
    assert len(projections_of(learner.fit(batch).q_)) == 3


def test_a_regressor_combines_columns_itself():
    with pytest.raises(InvalidInputError, match="projections are for the built-in trees"):
        FittedQ(projections=2, regressor=object.__new__(type("R", (), {"fit": 0, "predict": 0})))
