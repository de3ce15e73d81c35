import numpy as np
import pytest

from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.loss import action_gap
from capi.testing import check_domain

CHAINS = [
    ChainWalk(),
    ChainWalk(variant=2, success=0.7),
    ChainWalk(success=0.7, slip="stay"),
    ChainWalk(success=0.7, slip=2 / 3, reward_on="next_state"),
    ChainWalk(state_rewards=[0.0, 1.0, 0.0]),
]


@pytest.mark.parametrize("chain", CHAINS, ids=repr)
def test_keeps_the_contract(chain):
    check_domain(chain)
    check_domain(chain.mdp)


def test_rewards_are_where_the_paper_has_them():
    """States 10-15 and 180-190 of the paper, which counts from 1."""
    assert np.flatnonzero(ChainWalk(variant=1).rewards == 1.0).tolist() == [9, 10, 11, 12, 13, 14]
    assert np.flatnonzero(ChainWalk(variant=1).rewards == 0.1).tolist() == list(range(179, 190))
    assert ChainWalk(variant=2).rewards.sum() == 6


def test_moves_by_hand():
    P = ChainWalk(success=0.7, slip=2 / 3, state_rewards=[0.0] * 3).mdp
    left, right = P.transition_matrix([0, 0, 0]), P.transition_matrix([1, 1, 1])
    np.testing.assert_allclose(left, [[0.8, 0.2, 0.0], [0.7, 0.1, 0.2], [0.0, 0.7, 0.3]])
    np.testing.assert_allclose(right, left[::-1, ::-1])


@pytest.mark.parametrize("chain", CHAINS, ids=repr)
@pytest.mark.parametrize("action", [0, 1])
@pytest.mark.parametrize("state", [0, 1, 8, 14, -1])
def test_the_domain_steps_as_the_model_says(chain, action, state):
    """Two independent ways to write the same dynamics."""
    S, n = len(chain.rewards), 20_000
    x = state % S
    following, rewards, _ = chain.step(np.full((n, 1), float(x)), np.full(n, action), np.random.default_rng(1))
    expected = chain.mdp.transition_matrix(np.full(S, action))[x]
    shares = np.bincount(following[:, 0].astype(int), minlength=S) / n
    np.testing.assert_allclose(shares, expected, atol=4 * 0.5 / np.sqrt(n))
    assert rewards.mean() == pytest.approx(chain.mdp.rewards[x, action], abs=4 * 0.5 / np.sqrt(n))


@pytest.mark.parametrize(
    ("success", "slip", "switches"),
    [
        (0.95, "opposite", [12]),
        (0.9, "opposite", [12]),
        (0.9, "stay", [10]),
        (0.85, "opposite", [12, 177, 184]),
        (0.8, "opposite", [12, 166, 185]),
        (0.75, "opposite", [12, 154, 185]),
        (0.7, "opposite", [12, 143, 185]),
        (0.7, 2 / 3, [12, 155, 185]),
        (0.7, 1 / 3, [12, 166, 184]),
        (0.6, "opposite", [12, 120, 185]),
    ],
)
def test_where_the_optimal_policy_of_variant_1_switches(success, slip, switches):
    """Whether a policy with one cut can be optimal depends on the success probability alone.

    In the middle of a reward the gap may be at rounding: there both actions are right.
    """
    mdp = ChainWalk(variant=1, success=success, slip=slip).mdp
    expected = (np.searchsorted(switches, np.arange(200), side="right") + 1) % 2
    clear = action_gap(mdp.optimal_action_values) > 1e-9
    np.testing.assert_array_equal(mdp.optimal_policy.actions[clear], expected[clear])
    assert clear.sum() >= 195


@pytest.mark.parametrize(
    "bad",
    [
        {"variant": 3},
        {"success": 1.2},
        {"slip": "sideways"},
        {"slip": -0.1},
        {"reward_on": "never"},
        {"state_rewards": [1.0]},
    ],
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        ChainWalk(**bad)


def test_bad_steps_are_refused():
    with pytest.raises(InvalidInputError, match="n must be an integer"):
        ChainWalk().initial(-1, np.random.default_rng(0))
    with pytest.raises(InvalidInputError, match=r"actions\[0\] = 2"):
        ChainWalk().step(np.zeros((1, 1)), np.array([2]), np.random.default_rng(0))
