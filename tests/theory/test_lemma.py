"""The repaired Loss Distortion Lemma holds in random cases; the printed one does not."""

import numpy as np
import pytest
from hypothesis import given, settings

from capi.errors import InvalidInputError
from capi.loss import gap_weighted_loss
from capi.theory import distortion_by_disagreement, distortion_by_gaps, distortion_in_norm, gap_regularity
from theory.problems import seeds


def random_case(seed):
    """Return true and estimated values with ties and zero gaps, a random policy space, and weights."""
    rng = np.random.default_rng(seed)
    n, A, m = int(rng.integers(1, 9)), int(rng.integers(2, 5)), int(rng.integers(1, 8))
    q = np.round(rng.normal(size=(n, A)), int(rng.integers(0, 3)))
    estimates = q + rng.choice([0.1, 0.5, 2.0]) * np.round(rng.normal(size=(n, A)), 1)
    return q, estimates, rng.integers(A, size=(m, n)), rng.random(n) + 0.01


@settings(max_examples=300)
@given(seeds)
def test_all_three_forms_hold(seed):
    q, estimates, space, w = random_case(seed)
    learned = min(space, key=lambda actions: gap_weighted_loss(estimates, actions, w))
    loss = gap_weighted_loss(q, learned, w)
    for other in space:
        assert loss <= distortion_by_disagreement(q, estimates, learned, other, w) + 1e-12
        for t in (2.01, 3.0, 4.0, 40.0):
            assert loss <= distortion_by_gaps(q, estimates, other, w, t=t) + 1e-12
        for p in (1.1, 2.0, 6.0):
            best = distortion_in_norm(q, estimates, other, w, p=p)
            assert loss <= best + 1e-9
            for t in (0.05, 0.7, 3.0):
                assert best <= distortion_in_norm(q, estimates, other, w, p=p, t=t) + 1e-9


@settings(max_examples=100)
@given(seeds)
def test_a_policy_that_is_not_the_minimiser_loses_little_more(seed):
    """The term of Theorem 1 for optimisation errors."""
    q, estimates, space, w = random_case(seed)
    estimated = [gap_weighted_loss(estimates, actions, w) for actions in space]
    missed = estimated[0] - min(estimated)
    for other in space:
        for t in (2.5, 4.0, 20.0):
            bound = distortion_by_gaps(q, estimates, other, w, t=t) + t / (t - 2) * missed
            assert gap_weighted_loss(q, space[0], w) <= bound + 1e-12


def test_the_printed_lemma_fails_at_states_without_a_gap():
    """Half of the states have no gap, and their estimated gap outvotes the states that matter."""
    e = 1.0
    w = np.array([0.5, 0.2, 0.3])  # no gap; gap 5e estimated as 3e; a state where both policies are right
    q = np.array([[0.0, 0.0], [5 * e, 0.0], [20.0, 0.0]])
    estimates = np.array([[e, -e], [4 * e, e], [20.0, 0.0]])
    right, wrong = np.array([1, 0, 0]), np.array([0, 1, 0])
    assert gap_weighted_loss(estimates, wrong, w) < gap_weighted_loss(estimates, right, w)
    loss = gap_weighted_loss(q, wrong, w)
    assert loss == pytest.approx(1.0)
    assert gap_weighted_loss(q, right, w) == 0
    zeta = 20.0
    c_g = gap_regularity(q, w, zeta).c_g
    printed = 3 * 0.0 + 33 * c_g * 4**zeta * e ** (1 + zeta)  # the term in z / n vanishes for large samples
    assert printed < 0.1 < loss
    assert loss <= distortion_by_gaps(q, estimates, right, w)


def test_the_forms_are_their_formulas():
    """Two states of weight 1/4 and 3/4; gaps 1 and 8, errors 0.5 and 2; the other policy errs in the first state."""
    q, estimates = np.array([[1.0, 0.0], [0.0, 8.0]]), np.array([[1.0, 0.5], [0.0, 6.0]])
    w, other = [1.0, 3.0], [1, 1]
    assert distortion_by_disagreement(q, estimates, [0, 1], other, w) == pytest.approx(0.25 + 2 * 2 * 0.25)
    assert distortion_by_gaps(q, estimates, other, w, t=3.0) == pytest.approx(5 * 0.25 + 6 * 2 * 0.25)
    assert distortion_by_gaps(q, estimates, other, w, t=4.0) == pytest.approx(3 * 0.25 + 4 * 2 * 1.0)
    norm = (0.25 * 0.5**3 + 0.75 * 2**3) ** (1 / 3)
    for t, mass in ((0.5, 0.0), (2.0, 0.25), (9.0, 1.0)):
        expected = 3 * 0.25 + 4 * norm * mass ** (2 / 3) + 4**3 * t**-2 * norm**3
        assert distortion_in_norm(q, estimates, other, w, p=3.0, t=t) == pytest.approx(expected)
    least = 3 * 0.25 + min(
        4**3 * norm**3, 4 * norm * 0.25 ** (2 / 3) + norm**3, 4 * norm
    )  # just below 1, below 8, beyond
    assert distortion_in_norm(q, estimates, other, w, p=3.0) == pytest.approx(least)


def test_the_norm_form_is_tighter_where_errors_are_rare():
    q = np.tile([1.0, 0.0], (1000, 1))
    estimates = q.copy()
    estimates[0] = [0.0, 3.0]
    other = np.zeros(1000, dtype=int)
    assert distortion_in_norm(q, estimates, other) < 0.2 * distortion_by_gaps(q, estimates, other)


def test_bad_input_is_named():
    q = np.ones((3, 2))
    with pytest.raises(InvalidInputError, match="t must be above 2"):
        distortion_by_gaps(q, q, [0, 0, 0], t=2.0)
    with pytest.raises(InvalidInputError, match="p must be above 1"):
        distortion_in_norm(q, q, [0, 0, 0], p=1.0)
    with pytest.raises(InvalidInputError, match="estimates must have shape"):
        distortion_by_gaps(q, np.ones((2, 2)), [0, 0, 0])
    with pytest.raises(InvalidInputError, match=r"other must lie in 0\.\.1"):
        distortion_by_gaps(q, q, [0, 0, 2])
