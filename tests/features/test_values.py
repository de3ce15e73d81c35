"""Earlier values as features."""

import numpy as np
import pytest
from sklearn.base import clone

from capi.errors import InvalidInputError
from capi.features import ValueFeatures
from capi.finite.mdp import TabularQ


class Counting:
    """A Q-function that counts how often it is asked."""

    def __init__(self):
        self.n_calls = 0

    def values(self, states):
        self.n_calls += 1
        return np.concatenate([states, -states], axis=1)


def test_there_is_one_feature_per_function_and_action():
    q = TabularQ(np.arange(6.0).reshape(3, 2))
    states = np.array([[2.0], [0.0]])
    found = ValueFeatures([q, Counting()]).fit_transform(states)
    np.testing.assert_array_equal(found, [[4.0, 5.0, 2.0, -2.0], [0.0, 1.0, 0.0, 0.0]])
    assert ValueFeatures().fit_transform(states).shape == (2, 0)


def test_functions_are_asked_once_for_the_same_states_and_shared_by_clones():
    q, states = Counting(), np.arange(5.0)[:, None]
    features = ValueFeatures([q])
    for each in (features, clone(features)):
        each.fit(states).transform(states.copy())
    assert q.n_calls == 1
    features.transform(states + 1)
    assert q.n_calls == 2
    states[0] = 9.0  # another table, although it is the same array
    assert features.transform(states)[0, 0] == 9.0


def test_what_is_no_q_function_is_refused():
    with pytest.raises(InvalidInputError, match=r"functions\[0\] is a float"):
        ValueFeatures([1.0]).fit(np.zeros((1, 1)))


class WithoutWeakReferences:
    __slots__ = ()
    n_actions = 2

    def values(self, states):
        return np.ones((len(states), 2))


def test_functions_that_cannot_be_remembered_are_asked_again():
    assert ValueFeatures([WithoutWeakReferences()]).fit_transform(np.zeros((3, 1))).shape == (3, 2)


def test_values_of_another_shape_are_named():
    class OfOtherShape:
        def values(self, states):
            return np.ones((1, 2))

    with pytest.raises(InvalidInputError, match=r"functions\[0\]"):
        ValueFeatures([OfOtherShape()]).fit_transform(np.zeros((3, 1)))
    with pytest.raises(InvalidInputError, match="functions must be a sequence"):
        ValueFeatures(None).fit(np.zeros((3, 1)))
