import numpy as np
import pytest

import builders
from capi import CAPI, FiniteMDP
from capi.baselines import ModifiedPolicyIteration, PolicyIteration, ValueIteration
from capi.errors import InvalidInputError
from capi.evaluators import Exact
from capi.policies import Constant
from capi.policy_spaces import Unrestricted


def random_mdp(seed, discount=0.9):
    P, R = builders.random_mdp(np.random.default_rng(seed))
    return FiniteMDP(P, R, discount)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("make", [ValueIteration, ModifiedPolicyIteration, PolicyIteration])
def test_all_find_an_optimal_policy(seed, make):
    mdp = random_mdp(seed)
    learner = make(mdp).fit()
    assert mdp.performance_loss(learner.policy_) == pytest.approx(0, abs=1e-9)
    assert len(learner.history_) < 300


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.97])
@pytest.mark.parametrize("tolerance", [1e-1, 1e-4])
@pytest.mark.parametrize("n_sweeps", [1, 2, 7])
def test_the_tolerance_is_kept(seed, discount, tolerance, n_sweeps):
    mdp = random_mdp(seed, discount)
    for learner in (
        ValueIteration(mdp, tolerance=tolerance),
        ModifiedPolicyIteration(mdp, n_sweeps, tolerance=tolerance),
    ):
        policy = learner.fit().policy_
        assert (mdp.optimal_values - mdp.values(policy)).max() <= tolerance


def test_value_iteration_applies_the_optimality_operator():
    mdp, q = random_mdp(0), np.zeros((5, 3))
    for iteration in ValueIteration(mdp, 20, tolerance=None).iterate():
        q = mdp.bellman_optimality(q)
        np.testing.assert_allclose(iteration.q.table, q, atol=1e-14)
        np.testing.assert_array_equal(iteration.policy.act(mdp.states), q.argmax(axis=1))


def test_modified_policy_iteration_lies_between():
    mdp = random_mdp(1)
    one = [i.q.table for i in ModifiedPolicyIteration(mdp, 1, 10, tolerance=None).iterate()]
    by_value = [i.q.table for i in ValueIteration(mdp, 10, tolerance=None).iterate()]
    np.testing.assert_array_equal(one, by_value)
    many = [i.policy.act(mdp.states) for i in ModifiedPolicyIteration(mdp, 2000, 4, tolerance=None).iterate()]
    exact = [i.policy.act(mdp.states) for i in CAPI(Exact(mdp), Unrestricted(), 0.9, 4).iterate()]
    np.testing.assert_array_equal(many, exact)


def test_policy_iteration_improves_every_state_every_time():
    mdp = random_mdp(2, 0.99)
    before = mdp.values(Constant(0, 3))
    for iteration in PolicyIteration(mdp).iterate():
        after = mdp.values(iteration.policy)
        assert (after >= before - 1e-9).all()
        before = after


def test_policy_iteration_does_not_cycle_among_ties():
    """Two actions that are the same up to rounding: without the guard the argmax can go back and forth."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        P = rng.dirichlet(np.ones(6), size=6)
        R = rng.normal(size=6)
        noise = 1e-16 * rng.normal(size=(6, 3))
        mdp = FiniteMDP([P, P, P], R[:, None] + noise, 0.999)
        assert len(PolicyIteration(mdp).fit().history_) == 1


def test_they_learn_from_the_model_alone():
    mdp = random_mdp(4)
    for learner in (ValueIteration(mdp), ModifiedPolicyIteration(mdp), PolicyIteration(mdp)):
        with pytest.raises(InvalidInputError, match="transitions and states must be None: "):
            learner.fit(states=mdp.states)


def test_resuming_after_the_last_round_adds_nothing():
    mdp = random_mdp(5)
    for learner in (ValueIteration(mdp), ModifiedPolicyIteration(mdp), PolicyIteration(mdp)):
        rounds = list(learner.iterate())
        assert list(learner.iterate(after=rounds[-1])) == []
        assert [r.k for r in learner.iterate(after=rounds[0])] == [r.k for r in rounds[1:]]


def test_start_and_settings():
    mdp = random_mdp(3)
    learner = PolicyIteration(mdp, initial_policy=mdp.optimal_policy).fit()
    assert len(learner.history_) == 1
    assert learner.get_params()["n_iterations"] == 1_000
    with pytest.raises(InvalidInputError, match="tolerance must be a positive"):
        ValueIteration(mdp, tolerance=0.0).fit()
    with pytest.raises(InvalidInputError, match="n_sweeps"):
        ModifiedPolicyIteration(mdp, n_sweeps=0).fit()
