"""Sensitivity to an unmeasured confounder, against linear programmes and closed forms."""

import numpy as np
import pytest
from scipy.optimize import linprog

from capi import Transitions
from capi.offline.sensitivity import LARGEST, lowest_weights
from capi.policies import Constant
from offline.helpers import Table, hushed


def by_linear_programme(values, low, high, counts):
    """Return the lowest weighted mean, by Charnes and Cooper's linear programme: z = t w, with sum(c z) = 1."""
    n = len(values)
    costs = np.append(counts * values, 0.0)
    equal = np.append(counts, 0.0)[None]
    above = np.column_stack([np.eye(n), -high])
    below = np.column_stack([-np.eye(n), low])
    found = linprog(costs, np.vstack([above, below]), np.zeros(2 * n), equal, [1.0], bounds=[(0, None)] * (n + 1))
    assert found.success
    return found.fun


@pytest.mark.parametrize("seed", range(20))
def test_the_lowest_weighted_mean_is_that_of_a_linear_programme(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    values, counts = rng.normal(size=n).round(1), rng.uniform(0.5, 2.0, size=n)
    low = rng.uniform(0.1, 2.0, size=n)
    high = low * rng.uniform(1.0, 5.0, size=n)
    weights = lowest_weights(values, low, high, counts, np.argsort(values))
    assert ((weights == low) | (weights == high)).all()
    expected = by_linear_programme(values, low, high, counts)
    assert np.average(values, weights=counts * weights) == pytest.approx(expected, rel=1e-7, abs=1e-9)


def trial(n=80, effect=1.0, seed=0):
    rng = np.random.default_rng(seed)
    arms = rng.integers(2, size=n)
    rewards = effect * arms + rng.normal(size=n)
    states, half = np.zeros((n, 1)), np.full(n, 0.5)
    return Transitions(states, arms, rewards, states, np.ones(n, dtype=bool), propensities=half)


def test_the_bounds_of_a_constant_policy_are_those_of_the_programme():
    batch = trial()
    found = hushed(Constant(1, 2), batch, discount=0.0, methods=("weighted",))
    taken, mean = batch.rewards[batch.actions == 1], batch.rewards.mean()
    for bounds in found.sensitivity.bounds:
        low = np.full(len(taken), 1 + 1 / bounds.gamma)
        high = np.full(len(taken), 1 + bounds.gamma)
        ones = np.ones(len(taken))
        assert bounds.low == pytest.approx(by_linear_programme(taken, low, high, ones) - mean, rel=1e-6)
        assert bounds.high == pytest.approx(-by_linear_programme(-taken, low, high, ones) - mean, rel=1e-6)


def test_without_a_confounder_the_bounds_are_the_estimate_and_its_interval():
    found = hushed(Table(np.array([[0.3, 0.7]])), trial(), discount=0.0)
    one = found.sensitivity.bounds[0]
    robust = found.estimates["weighted-doubly-robust"] - found.behaviour
    assert one.low == pytest.approx(robust.value)
    assert one.high == pytest.approx(robust.value)
    assert (one.low_interval, one.high_interval) == pytest.approx(robust.asymptotic)


@pytest.mark.parametrize("effect", [1.0, -1.0])
def test_at_the_largest_gamma_the_sign_is_about_to_change(effect):
    found = hushed(Constant(1, 2), trial(effect=effect), discount=0.0, methods=("weighted",)).sensitivity
    assert 1 < found.largest_significant < found.largest < LARGEST
    taken = trial(effect=effect).rewards[trial(effect=effect).actions == 1] * np.sign(effect)
    mean = trial(effect=effect).rewards.mean() * np.sign(effect)
    for gamma, holds in ((found.largest * 0.995, True), (found.largest * 1.005, False)):
        low, high = np.full(len(taken), 1 + 1 / gamma), np.full(len(taken), 1 + gamma)
        assert (by_linear_programme(taken, low, high, np.ones(len(taken))) > mean) == holds


def test_bounds_widen_with_gamma_and_larger_effects_withstand_more():
    small, large = (hushed(Constant(1, 2), trial(effect=effect), discount=0.0).sensitivity for effect in (0.7, 2.0))
    assert small.largest < large.largest
    lows, highs = [b.low for b in small.bounds], [b.high for b in small.bounds]
    assert lows == sorted(lows, reverse=True)
    assert highs == sorted(highs)


def test_what_is_not_significant_cannot_be_undone():
    found = hushed(Constant(1, 2), trial(n=400, effect=0.0), discount=0.0)
    assert found.sensitivity.largest_significant is None
    assert "no significant difference" in found.sensitivity_text
    assert found.to_dict()["sensitivity"]["largest_gamma_significant"] is None


def test_several_steps_have_no_sensitivity_and_the_result_says_so():
    found = hushed(Constant(1, 2), _two_steps(), discount=0.9)
    assert found.sensitivity is None
    assert "one decision per episode only" in found.sensitivity_text
    assert "one decision per episode only" in found.to_dict()["sensitivity"]["unavailable"]


def _two_steps(n=400):
    rng = np.random.default_rng(0)
    arms, ends = rng.integers(2, size=n), np.arange(n) % 2 == 1
    return Transitions(
        np.zeros((n, 1)), arms, arms + rng.normal(size=n), np.zeros((n, 1)), ends,
        episodes=np.repeat(np.arange(n // 2), 2), propensities=np.full(n, 0.5),
    )  # fmt: skip


def test_at_discount_zero_the_first_decisions_have_a_sensitivity():
    assert hushed(Constant(1, 2), _two_steps(), discount=0.0).sensitivity is not None
