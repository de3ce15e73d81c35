"""Fixed points to a stated error: random matrices against dense solutions, and Krylov methods that break down."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capi.errors import DivergenceError
from capi.evaluators import _fixed_points
from capi.evaluators._fixed_points import fixed_point, largest, total


def matrix(rng, n, discount, density):
    """Return a non-negative matrix whose row sums are at most ``discount``; some rows are empty."""
    B = rng.random((n, n)) * (rng.random((n, n)) < density)
    sums = B.sum(axis=1, keepdims=True)
    return discount * np.divide(B, sums, out=np.zeros_like(B), where=sums > 0) * rng.choice([0.3, 1.0], size=(n, 1))


def plain(B):
    return lambda constant, x: constant + B @ x


def gauss_seidel(B, backwards=False):
    def sweep(constant, x):
        out = x.copy()
        for i in range(len(x))[:: -1 if backwards else 1]:
            out[i] = constant[i] + B[i] @ out
        return out

    return sweep


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    discount=st.sampled_from([0.0, 0.3, 0.9, 0.99, 0.999]),
    density=st.sampled_from([0.1, 0.3, 1.0]),
    tolerance=st.sampled_from([1e-2, 1e-6, 1e-9]),
    kind=st.sampled_from(["plain", "forwards", "backwards"]),
    transposed=st.booleans(),
    scale=st.sampled_from([1.0, 1e-200, 1e200]),
)
def test_the_stated_error_bounds_the_true_one(seed, n, discount, density, tolerance, kind, transposed, scale):
    rng = np.random.default_rng(seed)
    B = matrix(rng, n, discount, density)
    B, norm = (B.T, total) if transposed else (B, largest)
    constant = scale * rng.normal(size=n) * (rng.random(n) < 0.5)
    sweep = plain(B) if kind == "plain" else gauss_seidel(B, kind == "backwards")
    start = None if seed % 3 else scale * rng.normal(size=n)
    found = fixed_point(sweep, constant, discount=discount, tolerance=tolerance, norm=norm, start=start)
    exact = np.linalg.solve(np.eye(n) - B, constant)
    assert found.error <= tolerance
    rounding = 1e-11 * norm(exact)  # of the dense solution
    assert norm(found.x - exact) <= found.error * norm(found.x) + rounding


@pytest.mark.parametrize("n", [1, 50, 400])
@pytest.mark.parametrize("discount", [0.98, 0.999])
def test_far_fewer_products_than_sweeps(n, discount):
    rng = np.random.default_rng(0)
    B, constant = matrix(rng, n, discount, 0.2), rng.random(n)
    found = fixed_point(plain(B), constant, discount=discount, tolerance=1e-6, norm=largest)
    assert found.n_products < 60
    np.testing.assert_allclose(found.x, np.linalg.solve(np.eye(n) - B, constant), rtol=1e-5)


def broken(value):
    def propose(problem, found):
        return np.full(len(found.x), value) if np.isscalar(value) else value(found)

    return propose


@pytest.mark.parametrize(
    "value",
    [np.nan, np.inf, 1e300, 0.0, lambda found: -found.after, lambda found: found.x + 1e-9],
    ids=["nan", "inf", "huge", "zero", "opposite", "nearby"],
)
@pytest.mark.parametrize("which", [["_bicgstab"], ["_gmres"], ["_bicgstab", "_gmres"]], ids=str)
def test_bad_proposals_do_no_harm(value, which, monkeypatch):
    rng = np.random.default_rng(1)
    B, constant = matrix(rng, 30, 0.95, 0.3), rng.normal(size=30)
    exact = np.linalg.solve(np.eye(30) - B, constant)
    proposing = [broken(value) if propose.__name__ in which else propose for propose in _fixed_points.PROPOSE]
    monkeypatch.setattr(_fixed_points, "PROPOSE", proposing)
    for A, norm in ((B, largest), (B.T, total)):
        exact = np.linalg.solve(np.eye(30) - A, constant)
        found = fixed_point(plain(A), constant, discount=0.95, tolerance=1e-8, norm=norm)
        assert norm(found.x - exact) <= 1.1e-8 * norm(exact)


def test_a_chain_that_starts_in_one_place_breaks_no_method_for_good():
    """The residual leaves the place where it started, where BiCGSTAB's shadow is all there is: it divides zero by zero."""
    n, discount = 200, 0.99
    B = discount * np.eye(n, k=-1)  # the weight of each place moves to the next
    B[0, -1] = discount
    constant = np.eye(n)[0]
    found = fixed_point(plain(B), constant, discount=discount, tolerance=1e-6, norm=total)
    np.testing.assert_allclose(found.x, np.linalg.solve(np.eye(n) - B, constant), atol=1e-4)


def test_a_good_guess_needs_one_sweep_and_an_easy_problem_few():
    rng = np.random.default_rng(2)
    B, constant = matrix(rng, 20, 0.9, 0.5), rng.normal(size=20)
    exact = np.linalg.solve(np.eye(20) - B, constant)
    again = fixed_point(plain(B), constant, discount=0.9, tolerance=1e-6, norm=largest, start=exact)
    assert again.n_products == 1
    easy = fixed_point(plain(B / 9), constant, discount=0.1, tolerance=1e-6, norm=largest)
    assert easy.n_products <= _fixed_points.EASY


@pytest.mark.parametrize("discount", [1 - 1e-9, 1 - 1e-12])
def test_rounding_ends_the_sweeps_if_the_discount_is_too_close_to_one(discount):
    rng = np.random.default_rng(3)
    B, constant = matrix(rng, 20, 1.0, 0.5) * discount, rng.random(20)
    B[0] *= 0.5
    found = fixed_point(plain(B), constant, discount=discount, tolerance=1e-9, norm=largest)
    np.testing.assert_allclose(found.x, np.linalg.solve(np.eye(20) - B, constant), rtol=1e-8)


def test_nothing_in_nothing_out():
    for norm in (largest, total):
        found = fixed_point(plain(np.full((3, 3), 0.3)), np.zeros(3), discount=0.9, tolerance=1e-9, norm=norm)
        assert not found.x.any()
        assert (found.error, found.n_products) == (0.0, 0)
        assert fixed_point(plain(np.zeros((0, 0))), np.zeros(0), discount=0.9, tolerance=1e-9, norm=norm).error == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308])
def test_numbers_that_overflow_are_an_error(bad):
    B = np.full((2, 2), 0.49)
    with pytest.raises(DivergenceError, match=r"^values must stay finite.*Rescale them"):
        fixed_point(plain(B), np.array([bad, 1e308]), discount=0.98, tolerance=1e-6, norm=total)


def test_inputs_stay_as_they_are():
    rng = np.random.default_rng(4)
    B, constant, start = matrix(rng, 30, 0.99, 0.3), rng.normal(size=30), rng.normal(size=30)
    before = constant.copy(), start.copy()
    first, second = (
        fixed_point(plain(B), constant, discount=0.99, tolerance=1e-8, norm=largest, start=start) for _ in range(2)
    )
    np.testing.assert_array_equal((constant, start), before)
    assert first.x.tobytes() == second.x.tobytes()
