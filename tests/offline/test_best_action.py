"""The comparison with the best single action, and comparisons that are withheld."""

import numpy as np
import pytest

from capi import Transitions
from capi.offline.best_action import best_single_action
from capi.offline.log import Settings, log_of
from capi.offline.nuisances import quantities_of
from capi.policies import Constant, EpsilonGreedy
from offline.helpers import Table, hushed


def arms(n=300, gains=(0.0, 1.0, 0.5), noise=0.1, seed=0, **columns):
    rng = np.random.default_rng(seed)
    taken = rng.integers(len(gains), size=n)
    rewards = np.array(gains)[taken] + noise * rng.normal(size=n)
    states = rng.random((n, 1))
    known = {"propensities": np.full(n, 1 / len(gains)), "n_actions": len(gains)}
    return Transitions(states, taken, rewards, states, np.ones(n, dtype=bool), **known | columns)


def steps(n=400, length=2, seed=0):
    """Episodes of two steps: the reward is the action."""
    rng = np.random.default_rng(seed)
    taken, ends = rng.integers(2, size=n), np.arange(n) % length == length - 1
    states = np.zeros((n, 1))
    episodes = np.repeat(np.arange(n // length), length)
    return Transitions(
        states, taken, taken * 1.0, states, ends, episodes=episodes, propensities=np.full(n, 0.5), n_actions=2
    )


def test_the_best_single_action_is_named_and_valued():
    found = hushed(Constant(2, 3), arms(), discount=0.0)
    assert found.best_action.label == 1
    assert found.best_action.of_folds == (1,) * 5
    assert found.best_action.estimate.value == pytest.approx(1.0, abs=0.1)
    assert found.best_action_verdict.startswith("the policy is worse than the best single action (1), by 0.")
    assert found.verdict.startswith("There is no significant difference between the policy and the logged behaviour")
    record = found.to_dict()["best_action"]
    assert record["action"] == "1"
    assert record["difference"]["estimate"] == pytest.approx(found.best_action_difference.value)
    assert found.best_action_verdict in str(found)


def test_the_difference_from_the_best_single_action_is_paired():
    found = hushed(Constant(1, 3), arms(noise=1.0), discount=0.0)
    assert found.best_action_difference.value == pytest.approx(0.0)  # it is the same policy, on the same episodes
    assert found.best_action_difference.bootstrap == pytest.approx((0.0, 0.0))


def test_choosing_the_best_of_equal_actions_does_not_flatter_it():
    """With ten arms of value 0, the largest of ten estimates is far above 0; the chosen one is 0 on average."""
    chosen, largest = [], []
    for seed in range(40):
        batch = arms(400, np.zeros(10), 1.0, seed)
        log = log_of(batch, Settings(0.0, methods=("per-decision",)))
        q = quantities_of([Constant(0, 10)] * log.n_folds, log)
        single = best_single_action(q, log)
        chosen.append(single.estimator.numbers.mean())
        largest.append(max((batch.rewards * (batch.actions == a)).mean() * 10 for a in range(10)))
    error = np.std(chosen, ddof=1) / np.sqrt(len(chosen))
    assert abs(np.mean(chosen)) < 3 * error
    assert np.mean(largest) > 5 * error


def test_with_several_steps_each_action_is_valued_on_the_same_trees():
    found = hushed(EpsilonGreedy(Constant(1, 2), 0.5), steps(), discount=0.5, n_folds=2)
    assert found.best_action.label == 1
    assert found.best_action.estimate.value == pytest.approx(1.5, abs=0.1)
    sampled = hushed(EpsilonGreedy(Constant(1, 2), 0.5), steps(), discount=0.5, methods=("per-decision",))
    assert sampled.best_action.estimate.value == pytest.approx(1.5, abs=0.4)


def test_an_action_that_no_episode_takes_throughout_has_no_value():
    found = hushed(EpsilonGreedy(Constant(1, 2), 0.9), steps(n=600, length=12), discount=0.9)
    assert found.best_action is None
    assert found.best_action_verdict == (
        "There is no comparison with a best single action: too few episodes took a single action throughout."
    )
    assert "too few episodes" in found.to_dict()["best_action"]["unavailable"]


def test_an_action_that_is_forbidden_somewhere_is_not_a_candidate():
    batch = arms()
    allowed = np.ones((300, 3), dtype=bool)
    allowed[np.flatnonzero(batch.actions != 1)[:20], 1] = False
    masked = arms(allowed=allowed, next_allowed=np.ones((300, 3), dtype=bool))
    found = hushed(Table(np.array([[0.5, 0.0, 0.5]])), masked, discount=0.0)
    assert found.best_action.label == 2
    assert found.best_action.n_candidates == 2


def test_without_overlap_no_comparison_is_stated():
    """A policy whose decisions the log rarely takes: the difference is a number, and nobody is told it."""
    n = 1000
    rng = np.random.default_rng(0)
    taken = (rng.random(n) < 0.004).astype(int)
    states = rng.random((n, 1))
    batch = Transitions(states, taken, 1e7 * taken, states, np.ones(n, dtype=bool), n_actions=2)
    found = hushed(Constant(1, 2), batch, discount=0.0)
    assert found.unreliable
    assert found.not_comparable
    record = found.to_dict()
    assert record["difference"] is None
    assert record["best_action"].get("difference") is None
    assert "unavailable" in record["sensitivity"]
    for text in (found.verdict, found.best_action_verdict):
        assert "better" not in text
        assert "worse" not in text
    assert found.verdict.startswith("the policy cannot be compared with the logged behaviour, because ")
    assert "difference" not in {policy for policy, _ in found.summary().index}
    assert "no estimate to rely on" in str(found).splitlines()[0]


def test_a_warning_about_few_decisions_does_not_make_the_evaluation_unreliable():
    rng = np.random.default_rng(0)
    n = 400
    taken, states = rng.integers(2, size=n), rng.random((n, 1))
    batch = Transitions(states, taken, taken * 1.0, states, np.ones(n, dtype=bool), n_actions=3)
    for share, unreliable in ((0.005, False), (0.05, True)):
        policy = Table(np.array([[0.0, 1 - share, share]]))
        found = hushed(
            policy,
            Transitions(np.zeros((n, 1)), taken, batch.rewards, states, batch.terminated, n_actions=3),
            discount=0.0,
        )
        severe = {caveat.kind: caveat.severity for caveat in found.warnings}
        assert severe["unlogged-actions"] == ("severe" if unreliable else "warning")
        assert bool(found.not_comparable) == unreliable
