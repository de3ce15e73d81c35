import numpy as np
import pytest

from capi.errors import InvalidInput
from capi.finite_mdp import TabularQ
from capi.policies import Constant, Greedy, Tabular, Training, Uniform, described
from capi.schema import Schema
from capi.testing import check_policy

STATES = np.arange(3, dtype=float)[:, None]
THREE = np.array([[True, False, True], [False, True, True]])
MASK = np.array([[False, True], [True, False], [True, True]])
Q = TabularQ(np.array([[2.0, 1.0], [0.0, 1.0], [5.0, 5.0]]))


@pytest.mark.parametrize(
    "policy", [Constant(1, 2), Uniform(2), Tabular(np.array([1, 0, 1]), 2), Greedy(Q)], ids=lambda p: type(p).__name__
)
def test_policies_keep_the_contract(policy):
    check_policy(policy, STATES, 2)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(Constant(0, 2), [1, 0, 0]), (Tabular(np.array([0, 1, 1]), 2), [1, 0, 1]), (Greedy(Q), [1, 0, 0])],
    ids=["constant", "tabular", "greedy"],
)
def test_masks_are_honoured(policy, expected):
    np.testing.assert_array_equal(policy.act(STATES, MASK), expected)
    assert (policy.probabilities(STATES, MASK)[~MASK] == 0).all()


def test_what_is_not_allowed_is_replaced_by_the_lowest_that_is():
    np.testing.assert_array_equal(Constant(1, 3).act(np.zeros((2, 1)), THREE), [0, 1])
    np.testing.assert_array_equal(Constant(0, 3).act(np.zeros((2, 1)), THREE), [0, 1])


def test_uniform_spreads_over_what_is_allowed():
    np.testing.assert_array_equal(Uniform(2).probabilities(STATES, MASK), [[0, 1], [1, 0], [0.5, 0.5]])


def test_a_policy_learned_with_masks_refuses_to_act_without():
    with pytest.raises(InvalidInput, match="pass allowed"):
        Greedy(Q, masked=True).act(STATES)


def test_a_table_does_not_follow_the_array_it_came_from():
    actions = np.array([0, 1])
    policy = Tabular(actions, 2)
    actions[0] = 1
    assert policy.actions[0] == 0


def test_tabular_names_a_state_that_it_does_not_have():
    with pytest.raises(InvalidInput, match=r"state indices in 0..2.*states\[1\] = 3"):
        Tabular(np.array([0, 1, 1]), 2).act(np.array([[0.0], [3.0]]))


@pytest.mark.parametrize(
    "bad", [{"action": 2, "n_actions": 2}, {"action": -1, "n_actions": 2}, {"action": 0, "n_actions": 0}]
)
def test_constant_refuses_actions_that_do_not_exist(bad):
    with pytest.raises(InvalidInput, match="action"):
        Constant(**bad)


def test_words_and_origin_are_attached_to_our_policies_only():
    training = Training(0.9, 3, None, {})
    schema = Schema.of(1, 2, ["x"], ["stop", "go"])
    policy = described(Constant(1, 2), schema, training)
    assert (policy.schema, policy.training, policy.action) == (schema, training, 1)
    foreign = Uniform(2)
    assert described(foreign, schema, training) is foreign
