import numpy as np
import pytest
from scipy.optimize import minimize

import naive
from capi.data.schema import Schema
from capi.errors import DictionarySaturatedWarning, InvalidInputError
from capi.features.kernels import Gaussian, LinearKernel
from capi.loss import gap_weighted_loss, greedy, regrets
from capi.policy_spaces import KernelPolicies
from capi.policy_spaces import Linear as LinearPolicies
from capi.testing import check_policy_space

RING = np.random.default_rng(0).uniform(-1, 1, size=(150, 2))
INSIDE = np.square(RING).sum(axis=1) < 0.5
RING_VALUES = np.column_stack([~INSIDE, INSIDE]).astype(float)


@pytest.mark.parametrize("n_actions", [2, 3])
@pytest.mark.parametrize(
    "space",
    [KernelPolicies(), KernelPolicies(threshold=None, surrogate="hinge"), KernelPolicies(Gaussian(0.5), polish=True)],
)
def test_keeps_the_contract(space, n_actions):
    check_policy_space(space, n_actions=n_actions)


@pytest.mark.parametrize("surrogate", ["hinge", "logistic", "exponential"])
def test_it_learns_what_no_line_can(surrogate):
    policy = KernelPolicies(Gaussian(0.3), surrogate=surrogate).improve(RING, RING_VALUES)
    straight = LinearPolicies(surrogate=surrogate).improve(RING, RING_VALUES)
    assert gap_weighted_loss(RING_VALUES, policy.act(RING)) < 0.05
    assert gap_weighted_loss(RING_VALUES, straight.act(RING)) > 0.2


def test_the_exact_problem_is_that_of_the_kernel_expansion():
    """The minimiser over weights alpha of k(x, X_i), with the penalty alpha' K alpha, has the same scores."""
    rng = np.random.default_rng(1)
    states, q_values, strength = rng.random((12, 1)), rng.normal(size=(12, 3)), 0.05
    policy = KernelPolicies(Gaussian(0.3), strength=strength, threshold=None, scale=None).improve(states, q_values)
    K, lost = Gaussian(0.3)(states, states), regrets(q_values) / regrets(q_values).max(axis=1).sum()

    def objective(flat):
        alpha = flat.reshape(3, 13)
        scores = K @ alpha[:, :12].T + alpha[:, 12]
        penalty = strength / 2 * sum(a[:12] @ K @ a[:12] for a in alpha)
        return naive.pair_surrogate(lambda m: np.logaddexp(0, -m), scores, lost) + penalty

    alpha = minimize(objective, np.zeros(39), options={"gtol": 1e-7}).x.reshape(3, 13)
    expected = K @ alpha[:, :12].T + alpha[:, 12]
    found = policy.scores(states)
    centred = [table - table.mean(axis=1, keepdims=True) for table in (found, expected)]
    np.testing.assert_allclose(centred[0], centred[1], atol=5e-3)


def test_a_dictionary_is_nearly_the_exact_problem():
    exact = KernelPolicies(Gaussian(0.3), threshold=None).improve(RING, RING_VALUES)
    sparse = KernelPolicies(Gaussian(0.3), threshold=1e-4).improve(RING, RING_VALUES)
    assert len(sparse.dictionary.centres_) < len(exact.dictionary.centres_)
    assert np.mean(exact.act(RING) != sparse.act(RING)) < 0.02


def test_a_linear_kernel_is_linear():
    """The norm of its functions is that of the weights, so the scores are those of plain Linear policies."""
    rng = np.random.default_rng(0)
    states, q_values = rng.normal(size=(60, 2)), rng.normal(size=(60, 3))
    kernel = KernelPolicies(LinearKernel(), threshold=1e-6, scale="deviation").improve(states, q_values)
    plain = LinearPolicies(polish=False).improve(states, q_values)
    scores = [p.scores(states) - p.scores(states).mean(axis=1, keepdims=True) for p in (kernel, plain)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-3)


def test_the_dictionary_travels():
    space = KernelPolicies(Gaussian(0.3))
    first = space.improve(RING, RING_VALUES)
    second = space.improve(RING, 1 - RING_VALUES, previous=first)
    assert second.dictionary is first.dictionary
    assert KernelPolicies(Gaussian(0.3)).improve(RING, RING_VALUES, previous=first).dictionary is not first.dictionary
    np.testing.assert_array_equal(second.act(RING), 1 - first.act(RING))


def test_a_full_dictionary_warns():
    with pytest.warns(DictionarySaturatedWarning, match="max_size=3"):
        KernelPolicies(max_size=3).improve(RING, RING_VALUES)


def test_polishing_never_raises_the_loss():
    values = RING_VALUES + np.random.default_rng(0).normal(size=RING_VALUES.shape)
    space = KernelPolicies(Gaussian(0.5), threshold=0.05)
    losses = [
        gap_weighted_loss(values, s.improve(RING, values).act(RING))
        for s in (space, KernelPolicies(Gaussian(0.5), threshold=0.05, polish=True))
    ]
    assert losses[1] < losses[0]


def test_masks_are_kept():
    values = np.random.default_rng(0).normal(size=(150, 3))
    allowed = np.ones((150, 3), dtype=bool)
    allowed[np.arange(150), greedy(values)] = False
    policy = KernelPolicies(Gaussian(0.1), strength=1e-6, threshold=None).improve(RING, values, allowed=allowed)
    assert allowed[np.arange(150), policy.act(RING, allowed)].all()
    assert np.mean(policy.act(RING, allowed) == greedy(values, allowed)) > 0.9
    with pytest.raises(InvalidInputError, match="learned with masks"):
        policy.act(RING)


def test_the_rules_are_a_summary_in_the_words_of_the_table():
    from dataclasses import replace

    policy = replace(
        KernelPolicies(Gaussian(0.3), threshold=0.9).improve(RING, RING_VALUES),
        schema=Schema(("x", "y"), ("out", "in")),
    )
    n = len(policy.dictionary.centres_)
    lines = policy.rules(digits=2).splitlines()
    assert f"Gaussian(bandwidth=0.3) at {n} states" in lines[0]
    assert lines[1].startswith("  out: constant ")
    described = policy.to_dict()
    spans = np.array([score["weights"] for score in described["scores"]])
    constants = [score["constant"] for score in described["scores"]]
    scaled = policy.dictionary.scaling_(RING)
    scores = Gaussian(0.3)(scaled, np.array(described["centres"])) @ spans.T + constants
    np.testing.assert_allclose(scores, policy.scores(RING), atol=1e-8)
    at_one = KernelPolicies().improve(RING[:1], RING_VALUES[:1])
    assert "at 1 state and" in at_one.rules()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: KernelPolicies(kernel="gaussian"), "kernel must be a function"),
        (lambda: KernelPolicies(strength=-1), "strength must be a number, at least 0"),
        (lambda: KernelPolicies(surrogate="l2"), "surrogate must be one of"),
        (lambda: KernelPolicies(threshold=0.0), "threshold must be a positive number"),
        (lambda: KernelPolicies(max_size=0), "max_size must be an integer, at least 1"),
        (lambda: KernelPolicies(scale="big"), "scale must be one of"),
        (lambda: KernelPolicies().improve([[np.nan]], [[0.0, 1.0]]), "states must be finite"),
        (lambda: KernelPolicies().improve(RING, RING_VALUES).rules(digits=0), "digits must be"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()
