import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from capi.errors import DictionarySaturatedWarning, InvalidInputError
from capi.features.dictionary import BLOCK, KernelDictionary
from capi.features.kernels import Gaussian, LinearKernel


def naive_dictionary(kernel, states, nu, max_size=None):
    """Engel, Mannor and Meir's test, one state after the other, with the inverse that they update.

    Returns the rows that join and the squared distance of every state to the span of the dictionary that it met.
    """
    rows, inverse, distances = [0], 1 / kernel(states[:1], states[:1]), [kernel(states[:1], states[:1])[0, 0]]
    for t in range(1, len(states)):
        x = states[t : t + 1]
        k_t = kernel(states[rows], x)[:, 0]
        a = inverse @ k_t
        delta = kernel(x, x)[0, 0] - k_t @ a
        distances.append(delta)
        if delta > nu and (max_size is None or len(rows) < max_size):
            grown = np.block([[delta * inverse + np.outer(a, a), -a[:, None]], [-a[None, :], np.ones((1, 1))]])
            rows, inverse = [*rows, t], grown / delta
    return np.array(rows), np.array(distances)


class Recorder:
    """A Gaussian that writes down the shapes of the tables that are asked of it."""

    def __init__(self, bandwidth=0.1):
        self.kernel, self.shapes = Gaussian(bandwidth), []

    def __call__(self, first, second):
        self.shapes.append((len(first), len(second)))
        return self.kernel(first, second)

    def diag(self, states):
        return self.kernel.diag(states)


def distances_to_span(dictionary, states):
    z = dictionary.transform(states)
    return 1 - np.square(z).sum(axis=1)


@parametrize_with_checks([KernelDictionary()])
def test_follows_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("n", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
@pytest.mark.parametrize("nu", [0.3, 1e-2, 1e-4])
def test_blocks_give_the_dictionary_of_one_state_after_the_other(n, nu):
    states = np.random.default_rng(n).uniform(size=(n, 2))
    expected, _ = naive_dictionary(Gaussian(0.2), states, nu)
    dictionary = KernelDictionary(Gaussian(0.2), threshold=nu, scale=None).fit(states)
    np.testing.assert_array_equal(dictionary.rows_, expected)
    np.testing.assert_array_equal(dictionary.centres_, states[expected])


def test_distances_are_those_of_the_sequential_test():
    """A state's distance to the dictionary that it met: to the features of the states that had joined before it."""
    states = np.random.default_rng(0).uniform(size=(2 * BLOCK, 2))
    rows, distances = naive_dictionary(Gaussian(0.3), states, 1e-3)
    dictionary = KernelDictionary(Gaussian(0.3), threshold=1e-3, scale=None).fit(states)
    z = dictionary.transform(states)
    met = np.arange(len(rows))[None, :] < np.searchsorted(rows, np.arange(len(states)))[:, None]  # (n, m)
    np.testing.assert_allclose(1 - np.sum(z * z * met, axis=1), distances, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    points=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=60),
    nu=st.sampled_from([0.5, 0.1, 1e-3, 1e-6]),
    bandwidth=st.sampled_from([0.3, 1.0, 2.0]),
)
def test_repeated_states_join_once_and_all_is_as_in_the_sequential_test(points, nu, bandwidth):
    states = np.array(points, dtype=float)
    rows, distances = naive_dictionary(Gaussian(bandwidth), states, nu)
    dictionary = KernelDictionary(Gaussian(bandwidth), threshold=nu, scale=None).fit(states)
    if np.abs(distances - nu).min() > 1e-7 * nu:  # otherwise rounding decides
        np.testing.assert_array_equal(dictionary.rows_, rows)
    assert len(np.unique(dictionary.centres_, axis=0)) == len(dictionary.rows_)
    assert (distances_to_span(dictionary, states) <= nu + 1e-12).all()


def test_every_state_is_near_the_span_and_the_dictionary_is_independent():
    states = np.random.default_rng(1).normal(size=(2000, 3))
    dictionary = KernelDictionary(Gaussian(0.3), threshold=0.01).fit(states)
    assert (distances_to_span(dictionary, states) <= 0.01).all()
    assert (np.diff(dictionary.rows_) > 0).all(), "in the order of their rows"
    assert (np.diag(dictionary.factor_) ** 2 > 0.01).all(), "each was far from the span of those before it"
    np.testing.assert_array_equal(dictionary.factor_, np.tril(dictionary.factor_))
    table = Gaussian(0.3)(dictionary.centres_, dictionary.centres_)
    np.testing.assert_allclose(dictionary.factor_ @ dictionary.factor_.T, table, atol=1e-12)


def test_features_give_the_kernel_within_the_threshold():
    """|k(x, y) - z(x) z(y)| is at most the product of both distances to the span, by Cauchy and Schwarz."""
    states = np.random.default_rng(2).uniform(size=(700, 2))
    dictionary = KernelDictionary(Gaussian(0.2), threshold=1e-3, scale=None).fit(states)
    z = dictionary.transform(states)
    assert np.abs(z @ z.T - Gaussian(0.2)(states, states)).max() <= 1e-3
    np.testing.assert_allclose(z[dictionary.rows_], dictionary.factor_, atol=1e-12)


def test_scale_sends_the_box_to_the_unit_square():
    states = np.random.default_rng(3).uniform([-1.2, -0.07], [0.5, 0.07], size=(400, 2))
    box = [[-1.2, -0.07], [0.5, 0.07]]
    unit = (states - box[0]) / np.subtract(box[1], box[0])
    boxed, plain = KernelDictionary(scale=box).fit(states), KernelDictionary(scale=None).fit(unit)
    np.testing.assert_array_equal(boxed.rows_, plain.rows_)
    np.testing.assert_allclose(boxed.transform(states), plain.transform(unit), atol=1e-9)


def test_no_table_of_all_states_is_ever_made():
    kernel, states = Recorder(), np.random.default_rng(4).uniform(size=(3000, 2))
    dictionary = KernelDictionary(kernel).fit(states)
    m = len(dictionary.rows_)
    assert all(first <= BLOCK and second <= max(BLOCK, m) for first, second in kernel.shapes)
    assert m < 400


def test_a_full_dictionary_says_so():
    states = np.random.default_rng(5).uniform(size=(1000, 2))
    full = KernelDictionary(threshold=1e-3, max_size=20)
    with pytest.warns(DictionarySaturatedWarning, match="max_size=20") as caught:
        full.fit(states)
    expected, _ = naive_dictionary(Gaussian(0.1), full.scaling_(states), 1e-3, max_size=20)
    np.testing.assert_array_equal(full.rows_, expected)
    assert full.saturated_
    left = distances_to_span(full, states)
    message = str(caught[0].message)
    assert f"{(left > 1e-3).sum()} of 1000 states" in message
    assert f"largest squared distance is {left.max():.3g}" in message
    assert "larger threshold, bandwidth or max_size" in message


def test_a_dictionary_that_just_suffices_is_not_full():
    states = np.random.default_rng(6).uniform(size=(600, 2))
    free = KernelDictionary(Gaussian(0.3), max_size=None).fit(states)
    exact = KernelDictionary(Gaussian(0.3), max_size=len(free.rows_)).fit(states)
    assert not exact.saturated_
    np.testing.assert_array_equal(exact.rows_, free.rows_)


def test_a_kernel_of_finite_rank_needs_no_more_states_than_its_rank():
    states = np.random.default_rng(7).normal(size=(500, 4))
    dictionary = KernelDictionary(LinearKernel(), threshold=1e-9, scale=None).fit(states)
    np.testing.assert_array_equal(dictionary.rows_, [0, 1, 2, 3])


def test_a_tiny_threshold_does_not_take_rounding_for_distance():
    states = np.repeat(np.random.default_rng(8).uniform(size=(30, 1)), 10, axis=0)
    dictionary = KernelDictionary(Gaussian(0.1), threshold=1e-300).fit(states)
    assert len(dictionary.rows_) <= 30
    assert np.isfinite(dictionary.transform(states)).all()


def test_kernels_of_scikit_learn_and_pipelines_work():
    states = np.random.default_rng(9).uniform(size=(300, 2))
    ours, theirs = (KernelDictionary(kernel).fit(states) for kernel in (Gaussian(0.2), RBF(0.2)))
    np.testing.assert_array_equal(ours.rows_, theirs.rows_)
    model = make_pipeline(KernelDictionary(Gaussian(0.2)), Ridge(1e-6)).fit(states, np.sin(5 * states[:, 0]))
    assert model.score(states, np.sin(5 * states[:, 0])) > 0.999
    names = ours.get_feature_names_out()
    assert names[0] == "kerneldictionary0"
    assert len(names) == len(ours.rows_)
    assert clone(ours).get_params() == ours.get_params()


@pytest.mark.parametrize(
    "bad", [{"kernel": 3}, {"kernel": Gaussian}, {"threshold": 0}, {"threshold": None}, {"max_size": 0}], ids=str
)
def test_bad_settings_are_refused_when_data_arrive(bad):
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        KernelDictionary(**bad).fit(np.zeros((3, 1)))


def test_bad_data_are_refused():
    with pytest.raises(InvalidInputError, match="no state joins the dictionary"):
        KernelDictionary(threshold=1.0).fit(np.zeros((3, 1)))
    with pytest.raises(ValueError, match="NaN"):
        KernelDictionary().fit([[0.0], [np.nan]])
    with pytest.raises(NotFittedError):
        KernelDictionary().transform([[0.0]])
