import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.metrics.pairwise import laplacian_kernel

from capi.errors import InvalidInputError
from capi.features.kernels import Gaussian, LinearKernel, check_kernel, likeness, own_likeness
from capi.features.scaling import learned_scaling

X, Y = np.random.default_rng(0).normal(size=(2, 7, 3))


def test_gaussian_is_its_formula():
    by_hand = [[np.exp(-((x - y) ** 2).sum() / (2 * 0.7**2)) for y in Y] for x in X]
    np.testing.assert_allclose(Gaussian(0.7)(X, Y), by_hand, rtol=1e-12)
    np.testing.assert_allclose(Gaussian(0.7)(X, Y), RBF(0.7)(X, Y), rtol=1e-12)


@pytest.mark.parametrize("kernel", [Gaussian(0.7), LinearKernel(), Matern(), laplacian_kernel, lambda x, y: x @ y.T])
def test_the_likeness_of_a_state_to_itself_is_the_diagonal(kernel):
    many = np.random.default_rng(1).normal(size=(600, 3))
    np.testing.assert_allclose(own_likeness(kernel, many), np.diagonal(kernel(many, many)), rtol=1e-12)


def test_bad_kernels_are_named():
    for kernel, message in ((Gaussian, "kernel must be a function"), (3, "kernel must be a function")):
        with pytest.raises(InvalidInputError, match=message):
            check_kernel(kernel)
    for width in (0, 1e-200, 1e200):
        with pytest.raises(InvalidInputError, match="bandwidth must be"):
            Gaussian(width)
    with pytest.raises(InvalidInputError, match="kernel matrix must be numbers"):
        likeness(lambda x, y: [["a"] * len(y)] * len(x), X, Y)
    with pytest.raises(InvalidInputError, match=r"must have shape \(7, 7\)"):
        likeness(lambda x, y: x, X, Y)
    with pytest.raises(InvalidInputError, match="kernel matrix must be finite"):
        likeness(lambda x, y: np.full((len(x), len(y)), np.nan), X, Y)


def test_scalings_do_what_they_say():
    x = np.array([[0.0, 5.0, 1.0], [4.0, 5.0, 3.0], [2.0, 5.0, 2.0]])
    np.testing.assert_array_equal(learned_scaling(x, "range")(x), [[0, 0, 0], [1, 0, 1], [0.5, 0, 0.5]])
    scaled = learned_scaling(x, "deviation")(x)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), [1, 0, 1])
    np.testing.assert_array_equal(learned_scaling(x, None)(x), x)
    box = learned_scaling(x, [[0.0, 0.0, 0.0], [8.0, 10.0, 2.0]])
    np.testing.assert_array_equal(box(x)[1], [0.5, 0.5, 1.5])
    with pytest.raises(InvalidInputError, match="states must have 3 columns"):
        box(x[:, :2])
