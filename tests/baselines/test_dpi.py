import numpy as np
import pytest

from capi.baselines import DPI, DPICritic
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import Exact, FittedQ
from capi.policies import Constant
from capi.policy_spaces import Thresholds, Trees
from capi.simulation import sample_episodes

CHAIN = ChainWalk(variant=2)
ALL_STATES = np.arange(200.0)[:, None]


def test_dpi_reaches_the_optimum_of_the_chain():
    learner = DPI(CHAIN, Thresholds(), n_iterations=6, n_rollouts=30, horizon=250, random_state=0).fit(
        states=ALL_STATES
    )
    assert CHAIN.mdp.performance_loss(learner.policy_) < 0.25  # the cut at 11, 12 or 13 of 40.15 for always left
    assert len(learner.history_) == 6


def test_a_critic_reaches_it_with_short_rollouts():
    learner = DPICritic(
        CHAIN, Thresholds(), Exact(CHAIN.mdp), n_iterations=8, n_rollouts=200, horizon=3, random_state=0
    )
    learner.fit(states=ALL_STATES)
    assert CHAIN.mdp.performance_loss(learner.policy_) < 0.25
    assert learner.history_[0]["n_transitions"] == 200 * 2 * 200 * 3 + 20 * 100  # the critic's episodes, too


def test_states_are_drawn_anew_in_each_round_unless_given():
    rounds = list(DPI(CHAIN, Thresholds(), n_iterations=2, n_states=30, horizon=2, random_state=0).iterate())
    assert rounds[0].q.states.shape == (30, 1)
    assert not np.array_equal(rounds[0].q.states, rounds[1].q.states)


def test_the_critic_samples_its_own_batch_unless_given_one():
    learner = DPICritic(
        CHAIN, Trees(max_depth=2), FittedQ(n_trees=3), n_states=50, n_iterations=2, n_episodes=3, random_state=0
    )
    assert learner.fit().policy_.n_actions == 2
    batch = sample_episodes(None, CHAIN, n_episodes=5, max_steps=30, random_state=0)
    a, b = (
        DPICritic(CHAIN, Trees(max_depth=2), FittedQ(n_trees=3), n_states=50, random_state=1).fit(batch) for _ in "ab"
    )
    np.testing.assert_array_equal(a.policy_.act(ALL_STATES), b.policy_.act(ALL_STATES))


def test_discount_and_start_are_the_domains_and_random_unless_given():
    assert DPI(CHAIN, Thresholds()).loop().discount == 0.99
    assert DPI(CHAIN, Thresholds(), 0.5).loop().discount == 0.5
    assert type(DPI(CHAIN, Thresholds()).loop().initial_policy).__name__ == "Uniform"
    start = Constant(1, 2)
    assert DPI(CHAIN, Thresholds(), initial_policy=start).loop().initial_policy is start


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidInputError, match="DPI learns by simulation"):
        DPI(CHAIN, Thresholds()).fit(sample_episodes(None, CHAIN, n_episodes=1, max_steps=2))
    with pytest.raises(InvalidInputError, match="n_states"):
        DPI(CHAIN, Thresholds(), n_states=0).fit()


def test_the_critics_own_batch_is_counted():
    learner = DPICritic(
        CHAIN, Thresholds(), FittedQ(n_trees=2), n_states=10, horizon=2, n_iterations=1, n_episodes=20, max_steps=100
    )
    assert learner.fit().history_[0]["n_transitions"] == 10 * 2 * 2 + 20 * 100


def test_the_critics_episodes_are_the_policys():
    learner = DPICritic(CHAIN, Thresholds(), FittedQ(n_trees=2), n_episodes=2, max_steps=5)
    batch = learner._episodes(0, Constant(1, 2), np.random.default_rng(0))
    assert batch.actions.tolist() == [1] * 10
