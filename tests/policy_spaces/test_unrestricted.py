import numpy as np
import pytest

from capi.errors import InvalidInputError
from capi.policy_spaces import Unrestricted
from capi.testing import NearestQ, check_policy_space


def test_keeps_the_contract():
    check_policy_space(Unrestricted())


def test_is_greedy_everywhere_and_has_no_loss():
    states, values = np.array([[0.0], [1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    policy = Unrestricted().improve(states, values, q=NearestQ(states, values))
    np.testing.assert_array_equal(policy.act(np.array([[-3.0], [0.9]])), [1, 0])


def test_needs_the_function_behind_the_values():
    with pytest.raises(InvalidInputError, match="needs q"):
        Unrestricted().improve([[0.0]], [[0.0, 1.0]])


def test_learned_with_masks_it_refuses_to_act_without():
    states, values = np.array([[0.0]]), np.array([[0.0, 1.0]])
    policy = Unrestricted().improve(states, values, q=NearestQ(states, values), allowed=np.array([[True, False]]))
    assert policy.act(states, np.array([[True, False]]))[0] == 0
    with pytest.raises(InvalidInputError, match="pass allowed"):
        policy.act(states)


def test_rules_are_those_of_a_tree_that_imitates_it():
    states = np.arange(10.0)[:, None]
    values = np.eye(2)[(states[:, 0] > 3).astype(int)]
    text = Unrestricted().improve(states, values, q=NearestQ(states, values)).rules()
    assert text.splitlines()[1] == "This tree makes the same decision in 100.0 % of 10 states:"
    assert "if x0 <= 3.5:" in text
