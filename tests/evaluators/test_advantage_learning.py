"""Advantage learning keeps the best values and widens the gaps."""

import numpy as np
import pytest

from capi import CAPI, FiniteMDP
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import AdvantageLearning, FittedQ
from capi.policy_spaces import Unrestricted
from capi.simulation.sampling import sample_steps
from capi.testing import check_evaluator


def every_step(mdp):
    """Return one transition of each action in each state of a deterministic model."""
    from capi import Transitions

    states = np.repeat(mdp.states, mdp.n_actions, axis=0)
    actions = np.tile(np.arange(mdp.n_actions), mdp.n_states)
    following, rewards, ended = mdp.step(states, actions, np.random.default_rng(0))
    return Transitions(states, actions, rewards, following, ended)


def test_gaps_grow_and_maxima_stay():
    """With exact tables the maxima are those of Q*, and the gaps are 1 / (1 - alpha) times as large."""
    chain = ChainWalk(state_rewards=[0.0, 0.0, 1.0, 0.0, 0.3, 0.0], success=1.0, discount=0.8)
    mdp: FiniteMDP = chain.mdp
    exact = FittedQ(n_sweeps=1, n_trees=1, min_samples_split=2)
    learner = CAPI(AdvantageLearning(exact, 0.5), Unrestricted(), 0.8, 200, random_state=0).fit(every_step(mdp))
    found, best = learner.q_.values(mdp.states), mdp.optimal_action_values
    np.testing.assert_allclose(found.max(axis=1), best.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(np.abs(np.diff(found)), 2 * np.abs(np.diff(best)), atol=1e-6)


def test_it_keeps_the_contract():
    check_evaluator(AdvantageLearning(FittedQ(n_sweeps=1, n_trees=5)))


def test_only_single_sweeps_over_a_batch_are_accepted():
    chain = ChainWalk()
    with pytest.raises(InvalidInputError, match="inner must be an evaluator with n_sweeps=1"):
        AdvantageLearning(FittedQ(n_sweeps=5))
    with pytest.raises(InvalidInputError, match="needs transitions"):
        AdvantageLearning(FittedQ(n_sweeps=1)).evaluate(chain.mdp.optimal_policy, None, discount=0.9)
    batch = sample_steps(None, chain, chain.initial(50, np.random.default_rng(0)), random_state=0)
    first = AdvantageLearning(FittedQ(n_sweeps=1)).evaluate(chain.mdp.optimal_policy, batch, discount=0.9)
    plain = FittedQ(n_sweeps=1).evaluate(chain.mdp.optimal_policy, batch, discount=0.9)
    np.testing.assert_array_equal(first.values(batch.states), plain.values(batch.states))
