import numpy as np
import pytest

import builders
from capi import FiniteMDP, Transitions
from capi.errors import InvalidInputError
from capi.evaluators import Exact
from capi.policies import Constant, Uniform
from capi.testing import NearestQ, check_evaluator


@pytest.fixture
def mdp():
    P, R = builders.random_mdp(np.random.default_rng(0), n_states=4, n_actions=2)
    return FiniteMDP(P, R, discount=0.9)


@pytest.mark.parametrize("n_sweeps", [None, 1, 3])
def test_keeps_the_contract(mdp, n_sweeps):
    x = np.tile(mdp.states, (2, 1))
    batch = Transitions(x, np.repeat([0, 1], 4), np.zeros(8), x, np.zeros(8), n_actions=2)
    check_evaluator(Exact(mdp, n_sweeps), transitions=batch, needs_transitions=False)


def test_sweeps_start_from_zero_and_go_on_from_the_previous_values(mdp):
    policy = Constant(1, 2)
    first = Exact(mdp, n_sweeps=1).evaluate(policy, discount=0.9)
    np.testing.assert_array_equal(first.table, mdp.rewards)
    third = Exact(mdp, n_sweeps=2).evaluate(policy, discount=0.9, previous=first)
    at_once = Exact(mdp, n_sweeps=3).evaluate(policy, discount=0.9)
    np.testing.assert_array_equal(third.table, at_once.table)
    by_hand = mdp.rewards
    for _ in range(2):
        by_hand = mdp.bellman(policy, by_hand)
    np.testing.assert_allclose(at_once.table, by_hand)


def test_any_q_function_serves_as_previous(mdp):
    table = np.arange(8.0).reshape(4, 2)
    found = Exact(mdp, n_sweeps=1).evaluate(Uniform(2), discount=0.9, previous=NearestQ(mdp.states, table))
    np.testing.assert_allclose(found.table, mdp.bellman(np.full((4, 2), 0.5), table))


def test_many_sweeps_approach_the_solution(mdp):
    policy = Uniform(2)
    swept = Exact(mdp, n_sweeps=400).evaluate(policy, discount=0.9)
    np.testing.assert_allclose(swept.table, Exact(mdp).evaluate(policy, discount=0.9).table, atol=1e-10)


def test_another_discount_than_the_models_is_refused(mdp):
    with pytest.raises(InvalidInputError, match=r"discount must be that of the model, 0.9; got 0.5"):
        Exact(mdp).evaluate(Uniform(2), discount=0.5)


@pytest.mark.parametrize("bad", [{"mdp": "chain"}, {"n_sweeps": 0}, {"n_sweeps": 1.5}])
def test_bad_settings_are_refused(mdp, bad):
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        Exact(**{"mdp": mdp, **bad})
