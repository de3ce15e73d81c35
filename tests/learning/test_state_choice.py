"""States that are drawn where the gap is large, or small and uncertain."""

import numpy as np
import pytest

from capi import CAPI
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import Exact
from capi.finite.mdp import TabularQ
from capi.learning import ImportantStates, UncertainStates
from capi.learning.state_choice import expected_mistake
from capi.loss import second_best_gap
from capi.policies import Constant
from capi.policy_spaces import Thresholds

MDP = ChainWalk(variant=2).mdp


def exact(policy, rng):
    return Exact(MDP).evaluate(policy, discount=0.99)


def test_important_states_are_drawn_in_proportion_to_their_gap():
    sample = ImportantStates(MDP.states, exact, 40_000)(0, Constant(0, 2), np.random.default_rng(0))
    gaps = second_best_gap(MDP.action_values(Constant(0, 2)))
    drawn = np.bincount(sample.states[:, 0].astype(int), minlength=200) / 40_000
    np.testing.assert_allclose(drawn, gaps / gaps.sum(), atol=0.01)


def test_weights_undo_the_choice():
    """The gap-weighted loss on the drawn states estimates that on all states."""
    sample = ImportantStates(MDP.states, exact, 40_000)(0, Constant(0, 2), np.random.default_rng(0))
    q = MDP.action_values(Constant(0, 2))
    policy = np.where(np.arange(200) < 5, 1, 0)
    rows = sample.states[:, 0].astype(int)
    lost = q.max(axis=1) - q[np.arange(200), policy]
    assert np.sum(sample.weights * lost[rows]) / 40_000 / 200 == pytest.approx(lost.mean(), rel=0.02)
    counts = sample.weights * second_best_gap(q)[rows]
    np.testing.assert_allclose(counts, counts[0])  # every drawn state counts alike


def test_they_are_a_setting_of_the_loop():
    states = ImportantStates(MDP.states, exact, 60)
    settings = {"discount": 0.99, "n_iterations": 12, "initial_policy": MDP.greedy(MDP.rewards), "random_state": 0}
    learner = CAPI(Exact(MDP), Thresholds(), **settings).fit(states=states)
    assert MDP.performance_loss(learner.policy_) < 0.5


def test_without_gaps_all_candidates_are_alike():
    flat = TabularQ(np.zeros((4, 2)))
    sample = ImportantStates(MDP.states[:4], lambda policy, rng: flat, 4000)(
        0, Constant(0, 2), np.random.default_rng(0)
    )
    assert np.bincount(sample.states[:, 0].astype(int)).min() > 800
    assert (
        ImportantStates(MDP.states[:4], lambda policy, rng: flat, 5, weighted=False)(
            0, Constant(0, 2), np.random.default_rng(0)
        ).weights
        is None
    )


def test_the_expected_mistake_is_that_of_a_normal_gap():
    rng = np.random.default_rng(0)
    gaps = np.array([[1.0, 0.2, -0.1], [1.2, -0.2, 0.1]])  # two estimates in three states
    tables = [np.stack([np.zeros(3), row], axis=1) for row in gaps]
    found = expected_mistake(tables)
    for i, (g, s) in enumerate(zip(np.abs(gaps.mean(axis=0)), gaps.std(axis=0, ddof=1), strict=True)):
        draws = g + s * rng.normal(size=200_000)
        assert found[i] == pytest.approx(np.maximum(-draws, 0).mean(), abs=2e-3)
    assert found[0] < 1e-6 < found[2] < found[1]
    assert (expected_mistake([np.zeros((2, 1))] * 2) == 0).all()


def test_uncertain_states_are_those_where_estimates_disagree():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(50, 3))
    noisy = base.copy()
    noisy[:5] += 3 * rng.normal(size=(5, 3))
    estimates = [TabularQ(base), TabularQ(noisy)]
    sample = UncertainStates(np.arange(50.0)[:, None], lambda policy, rng: estimates, 300)(0, Constant(0, 3), rng)
    assert sample.states.max() < 5


def test_candidates_may_be_drawn_and_bad_settings_are_refused():
    chosen = ImportantStates(lambda rng: rng.integers(200, size=(30, 1)).astype(float), exact, 7)
    assert chosen(0, Constant(0, 2), np.random.default_rng(0)).states.shape == (7, 1)
    with pytest.raises(InvalidInputError, match="at least two Q-functions"):
        UncertainStates(MDP.states, lambda policy, rng: [exact(policy, rng)], 5)(
            0, Constant(0, 2), np.random.default_rng(0)
        )
    with pytest.raises(InvalidInputError, match="n must be an integer"):
        ImportantStates(MDP.states, exact, 0)
    with pytest.raises(InvalidInputError, match="values must be a function"):
        ImportantStates(MDP.states, None, 5)


class OfOtherShape:
    n_actions = 2

    def values(self, states):
        return np.zeros((len(states) + 1, 2))


class WithoutNumbers:
    n_actions = 2

    def values(self, states):
        return np.full((len(states), 2), np.nan)


@pytest.mark.parametrize("bad", [3, None, OfOtherShape(), WithoutNumbers(), TabularQ])
def test_what_values_return_is_checked(bad):
    rng, x, policy = np.random.default_rng(0), np.array([[0.0], [1.0]]), Constant(0, 2)
    good = TabularQ(np.array([[0.0, 1.0], [1.0, 0.0]]))
    with pytest.raises(InvalidInputError, match="values"):
        ImportantStates(x, lambda policy, rng: bad, 3)(0, policy, rng)
    with pytest.raises(InvalidInputError, match=r"values\[1\]"):
        UncertainStates(x, lambda policy, rng: [good, bad], 3)(0, policy, rng)
    with pytest.raises(InvalidInputError, match="at least two Q-functions"):
        UncertainStates(x, lambda policy, rng: bad, 3)(0, policy, rng)
