"""Theorems 1 and 2 as numbers, and surrogates."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.policy_spaces import Linear, Thresholds
from capi.theory import (
    Constants,
    best_half_space_loss,
    discounted_concentrability,
    excess_over_half_spaces,
    fixed_point,
    gap_regularity,
    half_spaces,
    improvement_bound,
    measured_calibration,
    performance_bound,
    psi_transform,
)
from theory.problems import seeds


@pytest.fixture(scope="module")
def regularity():
    return gap_regularity(ChainWalk(variant=2).mdp.optimal_action_values, zeta=1.0)


def test_the_reference_numbers_of_the_first_theorem(regularity):
    """Chain, variant 2, success 0.9, n = 2000, delta = 0.05, values of the optimal policy."""
    b, printed = regularity.largest, Constants(star_hull=False)
    published = improvement_bound(3.94, 200.0, 2000, 0.05, constants=printed).total
    assert published == pytest.approx(56.4, abs=0.05)
    assert published + 440 / 3 * 100 * math.log(60) / 2000 == pytest.approx(86.4, abs=0.05)  # e replaced by 2 Qmax
    assert improvement_bound(0.00511, b, 2000, 0.05, constants=printed).total == pytest.approx(3.96, abs=0.005)
    for error, expected in ((0.0, 0.163), (0.02, 0.182), (0.1, 0.62)):
        found = improvement_bound(0.00511, b, 2000, 0.05, error=error, regularity=regularity, by_envelope=True)
        assert found.total == pytest.approx(expected, abs=0.0011)
        assert not found.is_vacuous
        exact = improvement_bound(0.00511, b, 2000, 0.05, error=error, regularity=regularity)
        assert exact.total <= found.total
        tuned = improvement_bound(0.00511, b, 2000, 0.05, error=error, regularity=regularity, tune=True)
        assert tuned.total < exact.total


def test_the_factors_of_the_approximation_error():
    assert Constants().of_approximation == pytest.approx(12.0)
    assert Constants(K=20, t=40, kappa=0.05).of_approximation == pytest.approx(1.2216, abs=1e-4)
    assert (Constants().of_radius, Constants().of_scale) == pytest.approx((11.52, 4.0))
    assert Constants().of_range == pytest.approx(10.6667, abs=1e-4)
    with pytest.raises(InvalidInputError, match="K must be a number above 1"):
        Constants(K=1.0)


def test_terms_add_up_and_grow_with_their_causes(regularity):
    def total(**changes):
        given_ = {"radius": 0.01, "scale": 2.0, "n": 1000, "delta": 0.1, "regularity": regularity, "error": 0.05}
        return improvement_bound(**{**given_, **changes})

    base = total()
    assert base.total == pytest.approx(sum(base.terms.values()))
    assert total(radius=0.02).total > base.total
    assert total(n=500).total > base.total
    assert total(delta=0.01).total > base.total
    assert total(error=0.1).total > base.total
    assert total(approximation=0.01).approximation == pytest.approx(0.12)
    assert total(optimization=0.01).total == pytest.approx(base.total + 2 * 2 * 0.01)
    assert total(regularity=None).evaluation > base.evaluation
    assert total(n=3).is_vacuous
    with pytest.raises(InvalidInputError, match="delta must lie strictly between 0 and 1"):
        total(delta=1.0)


@settings(max_examples=200)
@given(st.lists(st.floats(-4, 4), min_size=7, max_size=7))
def test_the_constants_bound_the_radius_of_the_argument(logarithms):
    """r solves 2 (1 + alpha) sqrt(r r*) / B + sqrt(2 r z / n) + b (1/3 + 1/alpha) z / n = r / (B K); r / (B K) is bounded."""
    alpha, beta, K, radius, share, b, z = np.exp(logarithms)  # z stands for z / n
    K, B = 1 + K, b * (1 + share)
    linear = 2 * (1 + alpha) * K * math.sqrt(radius) + B * K * math.sqrt(2 * z)
    r = ((linear + math.sqrt(linear**2 + 4 * B * K * b * (1 / 3 + 1 / alpha) * z)) / 2) ** 2
    left = 2 * (1 + alpha) * math.sqrt(r * radius) / B + math.sqrt(2 * r * z) + b * (1 / 3 + 1 / alpha) * z
    assert left == pytest.approx(r / (B * K))
    assert r >= radius  # there the averages are at most sqrt(r r*) / B
    c = Constants(K=K, alpha=alpha, beta=beta)
    bound = K * c.of_radius / B * radius + (c.of_range * b + c.of_scale * B * K) * z
    assert r / (B * K) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("n", [200, 2000])
def test_the_first_theorem_covers_what_samples_lose(n, regularity):
    """With exact values the learned threshold loses far less than the bound."""
    mdp = ChainWalk(variant=2).mdp
    q, rng = mdp.optimal_action_values, np.random.default_rng(0)
    point = fixed_point(half_spaces(200), mdp.states, q, n=n, n_draws=200)
    bound = improvement_bound(point.radius, point.scale, n, 0.05).total
    losses = []
    for _ in range(50):
        sample = rng.integers(200, size=n)
        policy = Thresholds().improve(mdp.states[sample], q[sample])
        losses.append(float(np.mean(q.max(axis=1) - q[np.arange(200), policy.act(mdp.states)])))
    assert max(losses) <= bound


def test_the_second_theorem_is_its_formula_and_tuning_lowers_it(regularity):
    mdp = ChainWalk(variant=2).mdp
    futures = discounted_concentrability(mdp, half_spaces(200), 4)
    common = {"reward_bound": 1.0, "regularity": regularity}
    found = performance_bound(futures, 0.005, regularity.largest, 10**5, 0.05, **common)
    z = math.log(3 * 4 / 0.05)
    b = regularity.largest
    each = 2 * 11.52 / b * 0.005 + (32 / 3 + 8 + 7) * b * z / 10**5
    expected = min(futures.coefficient(4, s) for s in np.linspace(0, 1, 101)) * each
    assert found.propagated == pytest.approx(200 * expected, rel=1e-6)
    assert found.start == pytest.approx(0.99**4 * 200)
    assert found.is_vacuous
    assert performance_bound(futures, 0.005, b, 10**5, 0.05, tune=True, **common).total < found.total


def test_errors_of_early_rounds_count_less():
    mdp = ChainWalk(variant=2, discount=0.5).mdp
    futures = discounted_concentrability(mdp, half_spaces(200), 4)
    regularity = gap_regularity(mdp.optimal_action_values)

    def total(errors):
        return performance_bound(futures, 0.0, 1.0, 10**9, 0.05, reward_bound=1.0, regularity=regularity, errors=errors)

    early, late = total([0.3, 0.0, 0.0, 0.0]), total([0.0, 0.0, 0.0, 0.3])
    assert early.total < late.total
    assert early.s > late.s


# -- surrogates ------------------------------------------------------------------------------------


def test_psi_transforms():
    assert psi_transform("hinge", 0.5) == 0.5
    assert psi_transform("exponential", 0.5) == pytest.approx(0.13397, abs=1e-5)
    assert psi_transform("logistic", 0.5) == pytest.approx(0.13081, abs=1e-5)
    for name in ("hinge", "exponential", "logistic", "squared"):
        assert psi_transform(name, 0.0) == 0
        assert psi_transform(name, 0.3) < psi_transform(name, 1.0)
    with pytest.raises(InvalidInputError, match="surrogate must be one of"):
        psi_transform("huber", 0.5)


@settings(max_examples=100)
@given(seeds)
def test_the_calibration_inequality_holds_for_any_scores(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 20))
    q = np.round(rng.normal(size=(n, 2)), 1)
    for name in ("hinge", "exponential", "logistic", "squared"):
        found = measured_calibration(3 * rng.normal(size=n), q, name, rng.random(n) + 0.01)
        assert found.holds
        assert found.loss <= found.bound + 1e-9


def test_the_best_half_space_is_that_of_enumeration():
    """A half-space can be turned until its line nearly touches two states: directions just beside all pairs are enough."""
    rng = np.random.default_rng(0)
    for n in (2, 3, *(6,) * 12):
        for _ in range(5):
            states, q = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
            losses = [np.mean(q.max(axis=1) - q[:, a]) for a in (0, 1)]
            for i, j in combinations(range(n), 2):
                across = states[i] - states[j]
                for turn in (-1e-7, 1e-7):
                    along = states @ np.array([-across[1] - turn * across[0], across[0] - turn * across[1]])
                    for cut, a in product(along, (0, 1)):
                        actions = np.where(along <= cut, a, 1 - a)
                        losses.append(np.mean(q.max(axis=1) - q[np.arange(n), actions]))
            assert best_half_space_loss(states, q) == pytest.approx(min(losses), abs=1e-12)
    line = rng.normal(size=(50, 1))
    q = rng.normal(size=(50, 2))
    assert excess_over_half_spaces(Thresholds().improve(line, q), line, q) == pytest.approx(0.0, abs=1e-12)


def test_polishing_brings_linear_policies_to_the_best_half_space():
    rng = np.random.default_rng(0)
    excess = {True: [], False: []}
    for _ in range(12):
        states = rng.normal(size=(60, 2))
        q = rng.normal(size=(60, 2)) + np.stack([np.zeros(60), states @ [1.0, 0.5]], axis=1)
        for polish in excess:
            excess[polish].append(excess_over_half_spaces(Linear(polish=polish).improve(states, q), states, q))
    assert min(excess[True] + excess[False]) > -1e-12
    assert np.mean(excess[True]) < 0.1 * np.mean(excess[False])


def test_bad_input_of_surrogates():
    with pytest.raises(InvalidInputError, match="two actions"):
        measured_calibration([0.0], np.zeros((1, 3)), "hinge")
    with pytest.raises(InvalidInputError, match="tries all half-spaces"):
        best_half_space_loss(np.zeros((2, 3)), np.zeros((2, 2)))
    assert measured_calibration([1.0], [[1.0, 1.0]], "hinge").loss == 0.0
    assert best_half_space_loss([[1.0, 1.0]], [[0.0, 2.0]]) == 0.0
