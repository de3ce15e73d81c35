import numpy as np
import pytest
from sklearn.base import clone

import builders
from capi import CAPI, FiniteMDP, Transitions
from capi.baselines import CPI, PolicyIteration
from capi.baselines.cpi import _SmallSteps, _stopped
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import Exact, FittedQ, Rollouts
from capi.policies import Constant, Mixture, Uniform
from capi.policy_spaces import Partition, Thresholds, Trees, Unrestricted
from capi.simulation import performance
from capi.testing import random_batch

PAIRS = Partition(lambda states: states[:, 0] // 2)
SPACES = {"all": Unrestricted(), "thresholds": Thresholds(), "pairs": PAIRS}
CHAIN = ChainWalk(variant=2, discount=0.9)


def random_mdp(seed, discount=0.9, shift=0.0, start=None):
    P, R = builders.random_mdp(np.random.default_rng(seed), n_states=6)
    return FiniteMDP(P, R + shift, discount, start=start)


def per_step(mdp, policy):
    """eta of the paper: discounted mean reward a step, from the starts."""
    return (1 - mdp.discount) * float(mdp.start @ mdp.values(policy))


def advantage(mdp, old, new):
    """The paper's policy advantage, from its definition, by sums over states and actions."""
    occupancy, q, v = mdp.discounted_occupancy(old), mdp.action_values(old), mdp.values(old)
    total = 0.0
    for x, row in enumerate(new.probabilities(mdp.states)):
        for a, p in enumerate(row):
            total += occupancy[x] * p * (1 - mdp.discount) * (q[x, a] - v[x])
    return total


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("discount", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_each_step_gains_what_is_promised(seed, discount, space):
    """Corollary 4.2 of Kakade and Langford: at least A^2 / (8 R) a step, in any space; rewards of any sign."""
    start = np.random.default_rng(seed).dirichlet(np.ones(6))
    mdp = random_mdp(seed, discount, shift=5.0 * (seed % 3 - 1), start=start)
    reach = mdp.rewards.max() - mdp.rewards.min()
    old = Uniform(3)
    for iteration in CPI(Exact(mdp), space, discount, n_iterations=25, initial_policy=old).iterate():
        if iteration.policy is old:
            break
        weights = mdp.discounted_occupancy(old)
        new = space.improve(mdp.states, mdp.action_values(old), q=iteration.q, weights=weights)
        A = advantage(mdp, old, new)
        step = (1 - discount) * A / (4 * reach)
        expected = (1 - step) * old.probabilities(mdp.states) + step * new.probabilities(mdp.states)
        np.testing.assert_allclose(iteration.policy.probabilities(mdp.states), expected, atol=1e-12)
        assert A > 0
        assert per_step(mdp, iteration.policy) - per_step(mdp, old) >= A**2 / (8 * reach) - 1e-13
        old = iteration.policy
    assert old.weights[0] < 1  # a step was made


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("seed", range(4))
def test_it_ends_in_time_with_little_advantage_left(seed, space):
    """With exact advantages, after at most 72 R^2 / epsilon^2 steps."""
    mdp = random_mdp(seed, 0.5)
    reach, epsilon = np.ptp(mdp.rewards), 0.3
    learner = CPI(Exact(mdp), space, 0.5, n_iterations=10_000, epsilon=epsilon).fit()
    assert learner.history_[-1]["changed"] == 0
    assert len(learner.history_) - 1 <= 72 * reach**2 / epsilon**2
    q, weights = mdp.action_values(learner.policy_), mdp.discounted_occupancy(learner.policy_)
    best = space.improve(mdp.states, q, q=learner.q_, weights=weights)
    assert advantage(mdp, learner.policy_, best) < 2 * epsilon / 3


def test_adding_a_constant_to_the_rewards_or_scaling_them_changes_no_step():
    mdp = random_mdp(0)
    shifted = random_mdp(0, shift=100.0)
    scaled = FiniteMDP([mdp.transition_matrix(np.full(6, a)) for a in range(3)], 8 * mdp.rewards, 0.9)
    runs = [CPI(Exact(m), PAIRS, 0.9, n_iterations=20).fit().policy_.weights for m in (mdp, shifted, scaled)]
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-9)
    np.testing.assert_allclose(runs[2], runs[0], rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_constant_step_finds_the_optimum_too(seed):
    mdp = random_mdp(seed)
    learner = CPI(Exact(mdp), Unrestricted(), 0.9, n_iterations=80, step_size=0.2).fit()
    assert mdp.performance_loss(learner.policy_) < 1e-6


def test_members_are_few_where_policies_can_be_compared_and_where_the_light_ones_are_dropped():
    learner = CPI(Exact(CHAIN.mdp), Thresholds(), 0.9, n_iterations=60)
    policy = learner.fit().policy_
    assert len(learner.history_) == 60
    assert len(policy.policies) < 20
    assert policy.weights.sum() == pytest.approx(1)
    batch = random_batch()
    settings = {"evaluator": FittedQ(n_trees=2), "space": Trees(max_depth=1), "discount": 0.9, "random_state": 0}
    every, few = (CPI(**settings, n_iterations=20, step_size=0.5, min_weight=least).fit(batch) for least in (0.0, 1e-3))
    assert len(every.policy_.policies) > 11 > len(few.policy_.policies)


def test_a_whole_step_is_policy_iteration():
    mdp = random_mdp(1)
    cpi = [i.policy.act(mdp.states) for i in CPI(Exact(mdp), Unrestricted(), 0.9, 20, step_size=1.0).iterate()]
    pi = [i.policy.act(mdp.states) for i in PolicyIteration(mdp).iterate()]
    np.testing.assert_array_equal(cpi, pi)


def test_small_steps_do_not_oscillate_where_whole_ones_do():
    """Over many small models in a poor space: replacing the policy sometimes makes it worse, mixing never does."""
    worse = 0
    for seed in range(12):
        mdp = random_mdp(seed)
        for update, learner in (
            ("whole", CAPI(Exact(mdp), PAIRS, 0.9, 10)),
            ("small", CPI(Exact(mdp), PAIRS, 0.9, 10)),
        ):
            found = np.array([per_step(mdp, i.policy) for i in learner.iterate()])
            if update == "whole":
                worse += (np.diff(found) < -1e-9).any()
            else:
                assert (np.diff(found) >= -1e-12).all()
    assert worse > 1


def test_the_step_follows_the_advantage():
    rule = _SmallSteps(Unrestricted(), 0.9, 0.3, None, 2.0)
    assert rule.step(0.19) == 0
    assert rule.step(0.2) == pytest.approx(0.1 * 0.1 / 8)
    assert rule.step(1e9) == 1
    assert _SmallSteps(Unrestricted(), 0.9, 0.3, 0.5, None).step(0.2) == 0.5
    assert _SmallSteps(Unrestricted(), 0.9, 0.0, None, 0.0).step(1e-17) == 0


def test_simulated_states_are_draws_of_the_discounted_occupancy():
    policy, n = Mixture([Uniform(2), Constant(0, 2)], [0.5, 0.5]), 40_000
    sample = _stopped(CHAIN, n, 0.9, 0, policy, np.random.default_rng(0))
    found = np.bincount(sample.states[:, 0].astype(int), minlength=200) / n
    exact = CHAIN.mdp.discounted_occupancy(policy)
    assert np.abs(found - exact).max() < 5 * np.sqrt(exact.max() / n)
    assert sample.weights.sum() == pytest.approx(1)


class Ending:
    """Each step earns 1 or 0 as the action says, and ends the episode with probability one half."""

    n_actions, feature_names, action_labels = 2, ("x",), ("none", "one")

    def initial(self, n, rng):
        return np.ones((n, 1))

    def step(self, states, actions, rng):
        return states, actions.astype(float), rng.random(len(states)) < 0.5


def test_episodes_that_end_before_they_stop_count_as_without_advantage():
    """From the start on, the share of time before the end is (1 - g) / (1 - g / 2); there the better action gains 1."""
    discount, n = 0.8, 20_000
    share = (1 - discount) / (1 - discount / 2)
    sample = _stopped(Ending(), n, discount, 0, Constant(0, 2), np.random.default_rng(0))
    assert sample.weights.sum() == pytest.approx(share, abs=0.02)
    learner = CPI(
        Rollouts(Ending(), horizon=1), Thresholds(), discount, 1, n_states=n, reward_range=1.0, random_state=0
    )
    *_, step = learner.fit().policy_.weights
    assert step == pytest.approx((1 - discount) * (1 - discount) * share / 4, rel=0.05)


def test_it_learns_in_a_simulator():
    learner = CPI(
        Rollouts(CHAIN, n_rollouts=5, horizon=20),
        Trees(max_depth=2),
        0.9,
        n_iterations=10,
        n_states=200,
        step_size=0.3,
        initial_policy=Uniform(2),
        random_state=0,
    ).fit()
    mdp = CHAIN.mdp
    assert mdp.performance_loss(learner.policy_) < 0.4 * mdp.performance_loss(Uniform(2))
    assert performance(learner.policy_, CHAIN, n_episodes=10, max_steps=20).mean >= 0


def test_a_model_may_say_where_the_policy_goes_while_the_evaluator_learns_from_data():
    batch = builders.tabular_batch(CHAIN.mdp, 4000, np.random.default_rng(0))
    rounds = CPI(FittedQ(n_trees=3, n_sweeps=5), Thresholds(), 0.9, 3, domain=CHAIN.mdp, random_state=0).iterate(batch)
    assert [r.k for r in rounds] == [0, 1, 2]


def test_the_batchs_states_serve_when_there_is_nothing_else():
    batch = random_batch()
    learner = CPI(FittedQ(n_trees=5, n_sweeps=5), Trees(max_depth=2), 0.9, 5, random_state=0)
    policy = learner.fit(batch).policy_
    assert policy.schema == batch.schema
    assert policy.training.n_rows == len(batch)
    np.testing.assert_array_equal(clone(learner).fit(batch).policy_.weights, policy.weights)
    columns = (batch.states, batch.actions, batch.rewards, batch.next_states, batch.terminated)
    one, eight = (clone(learner).fit(Transitions(*columns, weights=np.full(len(batch), w))) for w in (1.0, 8.0))
    np.testing.assert_allclose(eight.policy_.weights, one.policy_.weights, rtol=1e-9)


def test_weights_count_by_their_shares():
    mdp = random_mdp(2)
    weights = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    one, other, drawn = (
        CPI(Exact(mdp), PAIRS, 0.9, 5).fit(states=states).policy_.weights
        for states in ((mdp.states, weights), (mdp.states, 10 * weights), lambda k, policy, rng: (mdp.states, weights))
    )
    np.testing.assert_allclose(other, one, rtol=1e-12)
    np.testing.assert_array_equal(drawn, one)


def test_the_range_of_rewards_has_a_zero_if_episodes_can_end():
    def batch(ends):
        x = np.arange(4.0)[:, None]
        return Transitions(x, [0, 1, 0, 1], [5.0, 6.0, 7.0, 5.5], x, [False, False, False, ends])

    learner = CPI(FittedQ(), Thresholds(), 0.9)
    assert learner._range_of(batch(False)) == 2.0
    assert learner._range_of(batch(True)) == 7.0
    assert CPI(FittedQ(), Thresholds(), 0.9, reward_range=3.0)._range_of(batch(True)) == 3.0


def test_a_run_can_be_left_and_taken_up_again():
    mdp = random_mdp(3)
    learner = CPI(Exact(mdp), PAIRS, 0.9, 10)
    rounds = list(learner.iterate())
    again = list(learner.iterate(after=rounds[3]))
    np.testing.assert_array_equal(again[-1].policy.weights, rounds[-1].policy.weights)


def test_an_optimal_start_stays():
    mdp = random_mdp(4)
    learner = CPI(Exact(mdp), Unrestricted(), 0.9, 100, epsilon=1e-9, initial_policy=mdp.optimal_policy).fit()
    assert len(learner.history_) == 1
    np.testing.assert_array_equal(learner.policy_.actions, mdp.optimal_policy.actions)


def test_what_makes_no_sense_is_refused():
    exact, space = Exact(CHAIN.mdp), Thresholds()
    with pytest.raises(InvalidInputError, match="reward_range must be given"):
        CPI(Rollouts(CHAIN), space, 0.9).fit()
    with pytest.raises(InvalidInputError, match=r"discount must be that of the model, 0.9; got 0.5"):
        CPI(exact, space, 0.5).fit()
    with pytest.raises(InvalidInputError, match="step_size"):
        CPI(exact, space, 0.9, step_size=0.0).fit()
    with pytest.raises(InvalidInputError, match="step_size"):
        CPI(exact, space, 0.9, step_size=1.5).fit()
    with pytest.raises(InvalidInputError, match="epsilon"):
        CPI(exact, space, 0.9, epsilon=-1.0).fit()
    with pytest.raises(InvalidInputError, match="method improve"):
        CPI(exact, Thresholds, 0.9).fit()
    with pytest.raises(InvalidInputError, match="domain must have"):
        CPI(exact, space, 0.9, domain=3).fit()
    with pytest.raises(InvalidInputError, match="n_states"):
        CPI(exact, space, 0.9, n_states=0).fit()


# -- policy iteration with the 0/1 loss: a setting of CAPI ---------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_with_all_policies_the_zero_one_loss_is_policy_iteration(seed):
    mdp = random_mdp(seed)
    plain = [i.policy.act(mdp.states) for i in CAPI(Exact(mdp), Unrestricted(), 0.9, 6, loss="zero-one").iterate()]
    gap = [i.policy.act(mdp.states) for i in CAPI(Exact(mdp), Unrestricted(), 0.9, 6).iterate()]
    exact = [i.policy.act(mdp.states) for i in PolicyIteration(mdp).iterate()]
    np.testing.assert_array_equal(plain, gap)
    np.testing.assert_array_equal(plain[: len(exact)], exact)


def test_in_a_restricted_space_the_zero_one_loss_listens_to_the_many():
    P, R = np.full((2, 3, 3), 1 / 3), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 9.0]])
    mdp = FiniteMDP(P, R, 0.5)
    one_cell = Partition(lambda states: 0 * states[:, 0])
    gap, plain = (CAPI(Exact(mdp), one_cell, 0.5, 3, loss=loss).fit() for loss in ("gap", "zero-one"))
    assert gap.predict(mdp.states).tolist() == [1, 1, 1]
    assert plain.predict(mdp.states).tolist() == [0, 0, 0]
    assert plain.history_[-1]["loss"] == pytest.approx(1 / 3)
    assert mdp.performance_loss(plain.policy_) > 4 * mdp.performance_loss(gap.policy_)
