import numpy as np
import pytest

from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.finite import TabularQ
from capi.policies import (
    Constant,
    EpsilonGreedy,
    Greedy,
    Mixture,
    NonStationary,
    Tabular,
    Training,
    Uniform,
    described,
)
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
    with pytest.raises(InvalidInputError, match="pass allowed"):
        Greedy(Q, masked=True).act(STATES)


def test_a_table_does_not_follow_the_array_it_came_from():
    actions = np.array([0, 1])
    policy = Tabular(actions, 2)
    actions[0] = 1
    assert policy.actions[0] == 0


def test_tabular_names_a_state_that_it_does_not_have():
    with pytest.raises(InvalidInputError, match=r"state indices in 0..2.*states\[1\] = 3"):
        Tabular(np.array([0, 1, 1]), 2).act(np.array([[0.0], [3.0]]))


@pytest.mark.parametrize(
    "bad", [{"action": 2, "n_actions": 2}, {"action": -1, "n_actions": 2}, {"action": 0, "n_actions": 0}]
)
def test_constant_refuses_actions_that_do_not_exist(bad):
    with pytest.raises(InvalidInputError, match="action"):
        Constant(**bad)


def test_words_and_origin_are_attached_to_our_policies_only():
    training = Training(0.9, 3, None, {})
    schema = Schema.of(1, 2, ["x"], ["stop", "go"])
    policy = described(Constant(1, 2), schema, training)
    assert (policy.schema, policy.training, policy.action) == (schema, training, 1)
    foreign = Uniform(2)
    assert described(foreign, schema, training) is foreign


# -- mixtures, and policies that change with time -------------------------------------------------------

ZERO, ONE = Constant(0, 2), Constant(1, 2)


@pytest.mark.parametrize("weights", [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
def test_a_mixture_weighs_the_probabilities_of_its_members(weights):
    members = [Uniform(2), Tabular(np.array([1, 0, 1]), 2), ONE]
    mixture = Mixture(members, weights)
    check_policy(mixture, STATES, 2)
    for allowed in (None, MASK):
        expected = sum(w * p.probabilities(STATES, allowed) for p, w in zip(members, weights, strict=True))
        np.testing.assert_allclose(mixture.probabilities(STATES, allowed), expected, rtol=1e-15)
    assert len(mixture.policies) == 3  # nothing is dropped unasked, not even what never decides


def test_a_mixture_acts_as_is_most_probable_and_lowest_among_equals():
    assert Mixture([ONE, ZERO], [0.5, 0.5]).act(STATES).tolist() == [0, 0, 0]
    assert Mixture([ONE, ZERO], [0.6, 0.4]).act(STATES).tolist() == [1, 1, 1]
    assert Mixture([ONE, ZERO], [0.6, 0.4]).act(STATES, MASK).tolist() == [1, 0, 1]


def test_mixtures_of_mixtures_are_taken_apart():
    inner = Mixture([ZERO, Uniform(2)], [0.25, 0.75])
    outer = Mixture([inner, ONE, inner], [0.4, 0.2, 0.4])
    np.testing.assert_allclose(outer.weights, [0.1, 0.3, 0.2, 0.1, 0.3])
    assert [type(p).__name__ for p in outer.policies] == ["Constant", "Uniform", "Constant", "Constant", "Uniform"]
    np.testing.assert_allclose(outer.probabilities(STATES), np.tile([0.5, 0.5], (3, 1)))


def test_a_long_chain_of_small_steps_stays_a_distribution():
    policy = ZERO
    for i in range(300):
        policy = Mixture([policy, Constant(i % 2, 2)], [0.99, 0.01])
    assert len(policy.policies) == 301
    np.testing.assert_allclose(policy.probabilities(STATES).sum(axis=1), 1, rtol=1e-12)


def test_light_members_are_dropped_if_asked():
    mixture = Mixture([ZERO, ONE, Uniform(2)], [0.001, 0.599, 0.4], min_weight=0.01)
    np.testing.assert_allclose(mixture.weights, [0.599 / 0.999, 0.4 / 0.999])
    again = described(mixture, None, Training(0.9, 3, None, {}))
    np.testing.assert_array_equal(again.weights, mixture.weights)
    with pytest.raises(InvalidInputError, match=r"min_weight must leave a member; the largest weight is 0.5"):
        Mixture([ZERO, ONE], [0.5, 0.5], min_weight=0.6)


def test_a_mixture_does_not_follow_the_arrays_it_came_from():
    weights, members = np.array([0.5, 0.5]), [ZERO, ONE]
    mixture = Mixture(members, weights)
    weights[0], members[0] = 1.0, ONE
    np.testing.assert_array_equal(mixture.probabilities(STATES), np.full((3, 2), 0.5))
    with pytest.raises(ValueError, match="read-only"):
        mixture.weights[0] = 1.0


@pytest.mark.parametrize(
    ("policies", "weights", "message"),
    [
        ([], [], "at least one Policy"),
        (ZERO, [1.0], "must be a list"),
        ([ZERO, Constant], [0.5, 0.5], "number 1 is"),
        ([ZERO, 3], [0.5, 0.5], "number 1 is 3"),
        ([ZERO, Constant(0, 3)], [0.5, 0.5], "number 0 has 2, number 1 has 3"),
        ([ZERO, ONE], [0.5, 0.6], "weights must sum to one"),
        ([ZERO, ONE], [1.5, -0.5], "weights must not be negative"),
        ([ZERO, ONE], [1.0], "weights must have shape"),
    ],
)
def test_what_is_no_mixture_is_refused(policies, weights, message):
    with pytest.raises(InvalidInputError, match=message):
        Mixture(policies, weights)


def test_a_policy_of_steps_goes_on_with_its_last_or_another():
    policy = NonStationary([ZERO, ONE])
    check_policy(policy, STATES, 2)
    assert [policy.at(t) for t in range(4)] == [ZERO, ONE, ONE, ONE]
    uniform = Uniform(2)
    assert [NonStationary([ZERO, ONE], then=uniform).at(t) for t in (0, 1, 2, 9)] == [ZERO, ONE, uniform, uniform]
    assert len(policy) == 2
    with pytest.raises(InvalidInputError, match="t must be an integer, at least 0"):
        policy.at(-1)


def test_without_the_time_a_policy_of_steps_is_that_of_its_first():
    policy = NonStationary([Tabular(np.array([0, 1, 1]), 2), ONE])
    np.testing.assert_array_equal(policy.act(STATES), [0, 1, 1])
    np.testing.assert_array_equal(policy.act(STATES, MASK), [1, 0, 1])
    np.testing.assert_array_equal(policy.probabilities(STATES, MASK), [[0, 1], [1, 0], [0, 1]])


def test_who_mixes_or_explores_asks_policies_of_steps_for_the_time():
    steps = NonStationary([ZERO, ONE])
    mixture = Mixture([steps, ZERO], [0.5, 0.5])
    np.testing.assert_array_equal(mixture.at(0).probabilities(STATES[:1]), [[1.0, 0.0]])
    np.testing.assert_array_equal(mixture.at(1).probabilities(STATES[:1]), [[0.5, 0.5]])
    plain = Mixture([ZERO, ONE], [0.5, 0.5])
    assert plain.at(5) is plain
    nested = NonStationary([ZERO, EpsilonGreedy(steps, 0.5)])
    np.testing.assert_array_equal(nested.at(1).probabilities(STATES[:1]), [[0.25, 0.75]])


def test_what_is_no_policy_of_steps_is_refused():
    with pytest.raises(InvalidInputError, match="at least one Policy"):
        NonStationary([])
    with pytest.raises(InvalidInputError, match="policies and then must have the same actions"):
        NonStationary([ZERO], then=Constant(0, 3))


def test_the_steps_speak_the_words_of_the_whole():
    schema = Schema.of(1, 2, ["x"], ["stop", "go"])
    policy = described(NonStationary([ZERO, ONE]), schema, Training(0.9, 3, None, {}))
    assert policy.schema is schema
    assert policy.at(1).schema is schema
    assert described(Mixture([ZERO], [1.0]), schema, policy.training).schema is schema
