import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import pairwise_kernels

from capi import CAPI
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.features.kernels import Gaussian, LinearKernel
from capi.loss import regrets
from capi.policy_spaces import LocalAverages
from capi.policy_spaces.neighbors import local_averages
from capi.testing import check_policy_space, random_batch


def step(first, second):
    """Exact weights: one, a half or nothing, by the distance in whole steps."""
    distance = np.abs(first[:, None] - second[None]).sum(axis=2)
    return np.where(distance < 1, 1.0, np.where(distance < 2.5, 0.5, 0.0))


def naive_means(x, states, q, kernel, *, weights=None, allowed=None):
    """Mean regrets (n, A), one state at a time; the nearest row where nothing has weight."""
    n, n_actions = q.shape
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    mask = np.ones(q.shape, dtype=bool) if allowed is None else allowed
    gaps = regrets(q, mask)
    means = np.full((len(x), n_actions), np.inf)
    for i, point in enumerate(x):
        counts = w * kernel(point[None], states)[0]
        if not counts.any():
            distance = np.where(w > 0, np.linalg.norm(states - point, axis=1).round(9), np.inf)
            counts = np.eye(n)[distance.argmin()]
        for a in range(n_actions):
            those = mask[:, a] & (counts > 0)
            if those.any():
                means[i, a] = (counts[those] * gaps[those, a]).sum() / counts[those].sum()
    return means


@pytest.mark.parametrize(
    "space",
    [
        LocalAverages(),
        LocalAverages(Gaussian(2.0), scale="deviation", n_jobs=2),
        LocalAverages(Matern(nu=1.5), scale=None),
        LocalAverages(partial(pairwise_kernels, metric="laplacian")),
    ],
)
def test_keeps_the_contract(space):
    check_policy_space(space)
    check_policy_space(space, n_features=5, n_actions=2)


@st.composite
def problems(draw):
    n, d, n_actions = draw(st.integers(1, 25)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = rng.integers(0, 3, size=n).astype(float) if draw(st.booleans()) else None
    if weights is not None:
        weights[rng.integers(n)] = 1.0
    allowed = rng.random((n, n_actions)) < 0.7 if draw(st.booleans()) else None
    if allowed is not None:
        allowed[np.arange(n), rng.integers(n_actions, size=n)] = True
    side = draw(st.integers(1, 6))
    states, x = rng.integers(0, side, size=(n, d)), rng.integers(-side, 2 * side, size=(15, d))
    return states * 1.0, rng.integers(-9, 9, size=(n, n_actions)) * 1.0, x * 1.0, weights, allowed, rng


@settings(max_examples=100, deadline=None)
@given(problems())
def test_is_its_twin(problem):
    """Duplicates, masks, weights and states out of the kernel's reach; all sums are exact."""
    states, q, x, weights, allowed, rng = problem
    policy = LocalAverages(step, scale=None).improve(states, q, weights=weights, allowed=allowed)
    expected = naive_means(x, states, q, step, weights=weights, allowed=allowed)
    np.testing.assert_allclose(policy.regrets(x), expected, rtol=1e-12)
    mask = rng.random((len(x), q.shape[1])) < 0.5
    mask[np.arange(len(x)), rng.integers(q.shape[1], size=len(x))] = True
    ranking = expected.argsort(axis=1, kind="stable")
    first = [next(a for a in line if may[a]) for line, may in zip(ranking, mask, strict=True)]
    np.testing.assert_array_equal(policy.act(x, mask), first)


@pytest.mark.parametrize("kernel", [Gaussian(0.1), Gaussian(0.01), Matern(length_scale=0.3)])
def test_averages_with_the_weights_of_its_kernel(kernel):
    rng = np.random.default_rng(0)
    states, q, x = rng.random((80, 2)), rng.normal(size=(80, 3)), rng.random((40, 2))
    weights = rng.integers(1, 4, size=80)
    policy = LocalAverages(kernel, scale=[[0.0, 0.0], [2.0, 4.0]]).improve(states * [2, 4], q, weights=weights)
    expected = naive_means(x, states, q, kernel, weights=weights)
    np.testing.assert_allclose(policy.regrets(x * [2, 4]), expected, rtol=1e-9)


def test_far_states_do_as_the_nearest_row_does():
    states, q = np.array([[1.0], [0.0], [1.0], [0.0]]), np.eye(4)
    policy = LocalAverages(Gaussian(0.1)).improve(states, q)
    np.testing.assert_array_equal(policy.act(np.array([[-50.0], [50.0], [0.2]])), [1, 0, 1])
    np.testing.assert_array_equal(policy.regrets(np.array([[50.0]])), [[0.0, 1.0, 1.0, 1.0]])


def test_weights_near_the_smallest_number_still_weigh():
    """At 38 bandwidths a weight is 1e-314, and times a small regret nothing; relative to each other they are fine."""
    states, q = np.array([[0.0], [1e-4], [2e-4]]), np.array([[1e-9, 0.0], [0.0, 1.1e-9], [0.0, 1.1e-9]])
    policy = LocalAverages(Gaussian(1.0), scale=None).improve(states, q)
    x = np.array([[-38.0], [38.0]])
    assert 0 < Gaussian(1.0)(x, states).max() < 1e-300
    np.testing.assert_array_equal(policy.act(x), [1, 1])


def test_rows_without_weight_are_no_rows():
    states, q = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.3], [5000.0, 0.0]]), np.eye(4)
    policy = LocalAverages().improve(states, q, weights=[0.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(policy.act(np.array([[0.0, 0.0], [0.04, 0.2], [9e9, 0.0]])), [1, 2, 1])


def test_masks_play_the_best_that_is_allowed():
    allowed = np.array([[False, True, True], [False, True, True], [True, True, True]])
    q = np.array([[9.0, 0.0, 1.0], [9.0, 0.0, 1.0], [9.0, 0.0, 0.0]])
    policy = LocalAverages(step, scale=None).improve([[0.0], [1.0], [5.0]], q, allowed=allowed)
    np.testing.assert_array_equal(policy.regrets(np.array([[0.0], [90.0]])), [[np.inf, 1.0, 0.0], [0.0, 9.0, 9.0]])
    masks = np.array([[True, True, True], [True, True, False], [True, False, False]])
    np.testing.assert_array_equal(policy.act(np.zeros((3, 1)), masks), [2, 1, 0])
    with pytest.raises(InvalidInputError, match="pass allowed"):
        policy.act(np.zeros((3, 1)))


def test_repeated_states_are_asked_once():
    rng = np.random.default_rng(0)
    states, q = rng.integers(0, 4, size=(5000, 1)) * 1.0, rng.integers(0, 9, size=(5000, 2)) * 1.0
    policy = LocalAverages(step, scale=None).improve(states, q)
    assert len(policy.sample.points) == 4
    x = np.arange(4.0)[:, None]
    np.testing.assert_allclose(policy.regrets(states)[:9], naive_means(states[:9], states, q, step))
    np.testing.assert_allclose(policy.regrets(x), naive_means(x, states, q, step))


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_the_policy_does_not_depend_on_n_jobs_or_blocks(monkeypatch, n_jobs):
    rng = np.random.default_rng(0)
    states, q, x = rng.normal(size=(200, 2)), rng.normal(size=(200, 3)), rng.normal(size=(500, 2))
    expected = LocalAverages().improve(states, q).regrets(x)
    monkeypatch.setattr(local_averages, "AT_ONCE", 7 * 200)
    blocks = LocalAverages(n_jobs=n_jobs).improve(states, q).regrets(x)
    np.testing.assert_allclose(blocks, expected, rtol=1e-12)
    np.testing.assert_array_equal(LocalAverages(n_jobs=2).improve(states, q).regrets(x), blocks)


def test_the_last_policy_lends_its_distinct_states():
    rng = np.random.default_rng(0)
    states, q, space = rng.normal(size=(30, 2)), rng.normal(size=(30, 2)), LocalAverages()
    states.flags.writeable = False
    first = space.improve(states, q)
    second = space.improve(states, -q, previous=first)
    assert second.sample is first.sample
    np.testing.assert_array_equal(second.regrets(states), space.improve(states, -q).regrets(states))
    assert space.improve(states.copy(), q, previous=first).sample is not first.sample
    assert LocalAverages().improve(states, q, previous=first).sample is not first.sample


def test_a_policy_can_be_copied():
    states, q = np.random.default_rng(0).normal(size=(50, 2)), np.random.default_rng(1).normal(size=(50, 2))
    policy = LocalAverages().improve(states, q)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(policy)).act(states), policy.act(states))


def test_runs_in_the_loop():
    batch = random_batch()
    learner = CAPI(
        FittedQ(n_trees=5, n_sweeps=2), LocalAverages(), discount=0.9, n_iterations=3, random_state=0, keep="last"
    )
    policy = learner.fit(batch).policy_
    assert policy.training.n_iterations == 3
    assert set(policy.act(batch.states)) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kernel": 0.1}, "kernel must be a function"),
        ({"kernel": Gaussian}, "kernel must be a function"),
        ({"scale": "unit"}, "scale must be one of"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(InvalidInputError, match=words):
        LocalAverages(**options)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (LinearKernel(), "kernel of LocalAverages must not be negative, because it weights losses; got -1"),
        (lambda first, second: np.ones((1, 1)), r"kernel matrix must have shape \(2, 2\)"),
        (lambda first, second: np.full((2, 2), np.nan), "kernel matrix must be finite"),
    ],
)
def test_bad_kernels_are_refused(kernel, words):
    states = np.array([[-1.0], [1.0]])
    with pytest.raises(InvalidInputError, match=words):
        LocalAverages(kernel, scale=None).improve(states, np.eye(2)).act(states)


def test_bad_samples_and_states_are_refused():
    states, q = np.array([[0.0], [1.0]]), np.eye(2)
    policy = LocalAverages().improve(states, q)
    for improve, words in (
        (lambda: LocalAverages().improve([[0.0], [np.nan]], q), r"states must be finite; .* states\[1, 0\] = nan"),
        (lambda: policy.act(np.array([[np.nan]])), "states must be finite"),
        (lambda: policy.act(np.zeros((1, 2))), "states must have 1 columns"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            improve()
