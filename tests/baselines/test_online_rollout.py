"""Rollouts at decision time are one exact improvement of the base policy where nothing is random."""

import numpy as np
import pytest

from capi.baselines import OnlineRollout
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.policies import Constant, Tabular
from capi.testing import check_policy


def test_without_noise_it_is_the_greedy_policy_of_the_base():
    chain = ChainWalk(variant=2, success=1.0, discount=0.9)
    base = Tabular(np.where(np.arange(200) < 30, 1, 0), 2)
    policy = OnlineRollout(chain, base, 0.9, horizon=300)
    q = chain.mdp.action_values(base)
    gaps = np.abs(q[:, 0] - q[:, 1]) > 1e-9
    np.testing.assert_array_equal(policy.act(chain.mdp.states)[gaps], q.argmax(axis=1)[gaps])
    assert chain.mdp.performance_loss(policy) < chain.mdp.performance_loss(base)


def test_it_is_a_policy_and_respects_masks():
    chain = ChainWalk(variant=2)
    policy = OnlineRollout(chain, Tabular(np.zeros(200, dtype=int), 2), 0.99, n_rollouts=2, horizon=5)
    check_policy(policy, chain.mdp.states, 2)
    allowed = np.tile([True, False], (200, 1))
    assert (policy.act(chain.mdp.states, allowed) == 0).all()
    with pytest.raises(InvalidInputError, match="n_rollouts must be an integer"):
        OnlineRollout(chain, policy, 0.99, n_rollouts=0)


def test_bad_settings_are_refused_at_once():
    chain = ChainWalk(variant=2)
    for change, words in (
        ({"domain": "chain"}, "domain must have"),
        ({"base": "left"}, "base must be a Policy"),
        ({"discount": 1.0}, "discount must lie in"),
        ({"horizon": 0}, "horizon must be an integer"),
        ({"n_rollouts": -1}, "n_rollouts must be an integer"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            OnlineRollout(**{"domain": chain, "base": Constant(0, 2), "discount": 0.9, **change})
