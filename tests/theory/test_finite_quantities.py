"""Gap regularity, d(Pi), concentrability and error propagation: reference numbers, enumeration and inequalities."""

import numpy as np
import pytest
from hypothesis import given, settings

from capi import CAPI, FiniteMDP
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import Exact
from capi.policies import Constant
from capi.policy_spaces import Thresholds
from capi.theory import (
    concentrability,
    discounted_concentrability,
    gap_regularity,
    greedy_error,
    half_spaces,
    propagation,
)
from theory.problems import all_policies, future_sum, loss_in_values, random_mdp, seeds

# c_g at zeta 0.5 and 1, d(Pi), sums over m for k = 0 and 4, C(6, 0), C(6, 1), Loss(pi_6), vector form, Theorem 2 form
CHAINS = {
    (1, 0.9): (0.71533, 1.00437, 0.01592717, 6567.24, 6827.27, 196.857, 201.893, 0.0, 90.0286, 2719.75),
    (1, 0.7): (12.6693, 32102.0, 0.01773759, 2386.04, 2470.99, 71.3529, 73.1763, 1.336046, 55.0035, 1040.66),
    (2, 0.9): (0.71533, 0.946150, 0.0, 6567.24, 6827.27, 196.857, 201.893, 0.0, 89.7656, 2373.46),
    (2, 0.7): (1.12660, 4.02428, 0.0, 2386.04, 2473.08, 71.3879, 73.2126, 0.0, 52.0538, 919.56),
}


@pytest.mark.parametrize(("variant", "success"), CHAINS)
def test_the_reference_numbers_of_the_chain(variant, success):
    mdp, space = ChainWalk(variant=variant, success=success).mdp, half_spaces(200)
    q = mdp.optimal_action_values
    futures = discounted_concentrability(mdp, space, 6)
    learner = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), mdp.discount, 6, initial_policy=Constant(0, 2))
    run = [np.zeros(200, dtype=int), *(i.policy.act(mdp.states) for i in learner.iterate())]
    spread = propagation(mdp, np.array(run), futures)
    found = (
        gap_regularity(q, zeta=0.5).c_g,
        gap_regularity(q, zeta=1.0).c_g,
        greedy_error(mdp, space).value,
        futures.sums[0],
        futures.sums[4],
        futures.coefficient(6, 0.0),
        futures.coefficient(6, 1.0),
        spread.loss,
        spread.vector_bound,
        spread.theorem_bound,
    )
    np.testing.assert_allclose(found, CHAINS[variant, success], rtol=1e-5, atol=1e-9)
    assert spread.loss <= spread.vector_bound <= spread.bound <= spread.theorem_bound


def test_on_the_chain_no_policy_concentrates_more_than_half_spaces():
    mdp = ChainWalk(variant=2).mdp
    members = discounted_concentrability(mdp, half_spaces(200), 3)
    everything = discounted_concentrability(mdp, None, 3)
    assert everything.is_upper_bound
    assert not members.is_upper_bound
    np.testing.assert_allclose(members.sums, everything.sums, rtol=1e-5)


# -- gap regularity -------------------------------------------------------------------------------


def test_the_envelope_touches_the_distribution_and_is_never_below_it():
    rng = np.random.default_rng(0)
    q, w = rng.normal(size=(300, 3)), rng.random(300)
    for zeta in (0.0, 0.7, 2.0, None):
        found = gap_regularity(q, w, zeta)
        grid = np.geomspace(max(found.holds_from, 1e-6), 2 * found.largest, 500)
        slack = [found.envelope(t) - found.mass_up_to(t) for t in grid]
        assert min(slack) >= -1e-12
        gaps, masses = found.curves[0]
        touched = np.abs(found.c_g * gaps**found.zeta - masses)
        assert touched.min() < 1e-12


def test_with_exponent_zero_the_constant_is_the_mass_of_positive_gaps():
    found = gap_regularity([[0.0, 1.0], [1.0, 1.0], [0.0, 3.0], [5.0, 0.0]], zeta=0.0)
    assert found.c_g == pytest.approx(0.75)
    assert found.holds_from == 0


def test_an_exponent_is_recovered_from_its_own_law():
    u = (np.arange(4000) + 0.5) / 4000
    q = np.stack([np.zeros(4000), u ** (1 / 2.0)], axis=1)
    found = gap_regularity(q)
    assert found.zeta == pytest.approx(2.0, abs=0.02)
    assert found.c_g == pytest.approx(1.0, abs=0.05)


def test_several_value_functions_share_one_envelope():
    rng = np.random.default_rng(1)
    tables = rng.normal(size=(3, 50, 2))
    together = gap_regularity(tables, zeta=1.0)
    alone = [gap_regularity(table, zeta=1.0) for table in tables]
    assert together.c_g == max(one.c_g for one in alone)
    assert together.mass_up_to(0.5) == pytest.approx(max(one.mass_up_to(0.5) for one in alone))


def test_the_mass_of_several_value_functions_is_that_of_one_of_them():
    """The one with the most zero gaps need not be the one with the most small gaps."""
    flat, small = [[1.0, 1.0], [1.0, 1.0], [0.0, 9.0], [0.0, 9.0]], [[0.0, 0.1], [0.0, 0.1], [0.0, 0.1], [0.0, 9.0]]
    found = gap_regularity([flat, small], zeta=1.0)
    assert [found.mass_up_to(t) for t in (0.0, 0.1, 9.0)] == [0.5, 0.75, 1.0]
    assert found.zero_mass == 0.5


def test_the_band_contains_the_distribution_and_resamples_whole_groups():
    rng = np.random.default_rng(2)
    q = np.repeat(rng.normal(size=(40, 2)), 10, axis=0)
    alone = gap_regularity(q, n_resamples=200)
    grouped = gap_regularity(q, n_resamples=200, groups=np.repeat(np.arange(40), 10))
    for found in (alone, grouped):
        own = [found.mass_up_to(t) for t in found.grid]
        assert np.mean((found.band[0] <= own) & (own <= found.band[1])) > 0.9
        assert found.zeta_interval[0] <= found.zeta <= found.zeta_interval[1]
    assert np.mean(grouped.band[1] - grouped.band[0]) > 2 * np.mean(alone.band[1] - alone.band[0])
    assert len(grouped.plot().axes) == 1


def test_without_gaps_everything_is_zero():
    found = gap_regularity(np.ones((5, 2)))
    assert (found.c_g, found.zeta, found.zero_mass, found.largest) == (0.0, 0.0, 1.0, 0.0)
    assert found.mass_up_to(1.0) == 1.0
    assert len(found.plot().axes) == 1
    with pytest.raises(InvalidInputError, match="must allow a choice"):
        gap_regularity(np.ones((5, 1)))


# -- d(Pi) and concentrability ---------------------------------------------------------------------


@settings(max_examples=20)
@given(seeds)
def test_the_greedy_error_is_that_of_enumeration(seed):
    mdp = random_mdp(seed, n_states=3, n_actions=3)
    policies = np.random.default_rng(seed).integers(3, size=(6, 3))
    expected = max(min(loss_in_values(mdp, a, b, mdp.start) for b in policies) for a in policies)
    assert greedy_error(mdp, policies).value == pytest.approx(expected, abs=1e-10)
    assert greedy_error(mdp, all_policies(mdp)).value == pytest.approx(0.0, abs=1e-10)


@settings(max_examples=10)
@given(seeds)
def test_concentrability_is_that_of_enumeration_and_bounded_over_all_policies(seed):
    mdp = random_mdp(seed, n_states=3, n_actions=2, discount=0.6)
    nu = np.array([0.5, 0.3, 0.2])
    policies = all_policies(mdp)
    found = discounted_concentrability(mdp, policies, 2, nu=nu)
    expected = [future_sum(mdp, policies, k, mdp.start, nu, 45) for k in range(2)]
    np.testing.assert_allclose(found.sums, expected, rtol=2e-6)
    upper = discounted_concentrability(mdp, None, 2, nu=nu)
    assert (upper.sums >= found.sums * (1 - 2e-6)).all()
    assert found.coefficient(2, 0.3) == pytest.approx(0.2 * (found.sums[0] + 0.6**0.7 * found.sums[1]))


@settings(max_examples=10)
@given(seeds)
def test_the_error_of_concentrability_is_what_is_stated(seed):
    mdp = random_mdp(seed, n_states=3, n_actions=2, discount=0.9)
    nu, policies = np.array([0.6, 0.3, 0.1]), all_policies(mdp)
    exact = discounted_concentrability(mdp, policies, 2, nu=nu, relative_error=1e-10).sums
    above = discounted_concentrability(mdp, None, 2, nu=nu, relative_error=1e-10).sums
    for relative in (0.5, 0.05, 1e-3):
        found = discounted_concentrability(mdp, policies, 2, nu=nu, relative_error=relative)
        assert (np.abs(found.sums - exact) <= found.error + 1e-8).all()
        assert found.error <= relative * found.sums.max()
        upper = discounted_concentrability(mdp, None, 2, nu=nu, relative_error=relative)
        assert (upper.sums - upper.error - 1e-8 <= above).all()
        assert (above <= upper.sums + 1e-8).all()


def test_concentrability_by_hand():
    mdp = FiniteMDP(P=[np.eye(2), 1 - np.eye(2)], R=[[0.0, 0.0], [1.0, 1.0]], discount=0.5, start=[0.25, 0.75])
    assert concentrability(mdp, [0, 0], 0, 5, nu=[0.5, 0.5]) == pytest.approx(1.5)
    assert concentrability(mdp, [0, 0], 1, 0, nu=[0.5, 0.5]) == pytest.approx(2.0)  # the optimal policy goes to state 1
    assert concentrability(mdp, [1, 1], 0, 1, nu=[1.0, 0.0]) == np.inf
    assert np.isinf(discounted_concentrability(mdp, [[1, 1]], 1, nu=[1.0, 0.0]).sums).all()
    assert np.isinf(discounted_concentrability(mdp, None, 1, nu=[1.0, 0.0]).sums).all()


def test_one_state_and_one_policy():
    mdp = FiniteMDP(P=[[[1.0]], [[1.0]]], R=[[0.0, 1.0]], discount=0.5)
    assert discounted_concentrability(mdp, [[0]], 3).sums == pytest.approx([2.0, 2.0, 2.0], rel=1e-5)
    assert greedy_error(mdp, [[0]]).value == pytest.approx(1.0)
    assert greedy_error(mdp, [[0], [1]]).value == 0.0
    found = propagation(mdp, [[0], [1]])
    assert found.loss == 0
    assert found.bound >= 0


# -- propagation -----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(seeds)
def test_the_propagation_inequalities_hold_for_any_policies(seed):
    rng = np.random.default_rng(seed)
    n_states, n_actions = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    mdp = random_mdp(seed, n_states, n_actions, discount=float(rng.choice([0.0, 0.5, 0.9])))
    policies = rng.integers(n_actions, size=(int(rng.integers(2, 6)), n_states))
    nu = rng.random(n_states) + 0.05
    found = propagation(mdp, policies, nu=nu / nu.sum())
    assert (found.lost <= found.bounds + 1e-9).all()
    assert found.loss <= found.vector_bound + 1e-9
    assert found.vector_bound <= found.bound + 1e-9
    assert found.bound <= found.theorem_bound * (1 + 2e-6) + 1e-9


@settings(max_examples=20)
@given(seeds)
def test_the_bound_by_rounds_is_its_sum(seed):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(seed, 3, 2, discount=0.6)
    policies, nu = rng.integers(2, size=(4, 3)), rng.dirichlet(np.full(3, 5.0))
    expected = 2 * 0.6**3 * np.abs(mdp.rewards).max() / 0.4
    for k in range(3):
        weight = 0.6 ** (2 - k) * future_sum(mdp, [policies[k + 1]], 2 - k, mdp.start, nu, 60)
        expected += weight * loss_in_values(mdp, policies[k], policies[k + 1], nu)
    assert propagation(mdp, policies, nu=nu).bound == pytest.approx(expected, rel=1e-5)


def test_bad_policies_are_refused():
    mdp = random_mdp(0)
    with pytest.raises(InvalidInputError, match=r"policies must have one row of actions per policy, \(m, 4\)"):
        greedy_error(mdp, [[0, 1]])
    with pytest.raises(InvalidInputError, match=r"policies must lie in 0\.\.1"):
        greedy_error(mdp, [[0, 1, 2, 0]])
    with pytest.raises(InvalidInputError, match="whole numbers"):
        greedy_error(mdp, [[0, 0.5, 0, 0]])
    with pytest.raises(InvalidInputError, match="at least one of a round"):
        propagation(mdp, [[0, 1, 1, 0]])
    with pytest.raises(InvalidInputError, match="mdp must be a FiniteMDP"):
        greedy_error("chain", [[0]])
    with pytest.raises(InvalidInputError, match="n_rounds must be at most 2"):
        discounted_concentrability(mdp, None, 2).coefficient(3, 0.5)
