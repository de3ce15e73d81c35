"""The checks in `capi.testing` must catch the violations that they promise to catch."""

import numpy as np
import pytest

from capi import Transitions
from capi.policies import Constant, Uniform
from capi.policy_spaces import Partition, Thresholds
from capi.testing import NearestQ, check_domain, check_evaluator, check_policy, check_policy_space, random_batch


class BatchMeans:
    """A small correct evaluator: the mean reward of each action, in every state."""

    def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
        rows = [transitions.rewards[transitions.actions == a].mean() for a in range(transitions.n_actions)]
        return NearestQ(transitions.states[:1], np.array([rows]))


class Draws(BatchMeans):
    def evaluate(self, policy, transitions, **_):
        return NearestQ(transitions.states[:1], np.random.default_rng().normal(size=(1, transitions.n_actions)))


class TooFewActions(BatchMeans):
    def evaluate(self, policy, transitions, **_):
        return NearestQ(transitions.states[:1], np.zeros((1, 1)))


class NotFinite(BatchMeans):
    def evaluate(self, policy, transitions, **_):
        return NearestQ(transitions.states[:1], np.full((1, transitions.n_actions), np.nan))


class BootstrapsPastTheEnd(BatchMeans):
    def evaluate(self, policy, transitions, **_):
        return NearestQ(transitions.states[:1], np.full((1, transitions.n_actions), transitions.next_states.sum()))


class ReadsMasks(BatchMeans):
    """A correct evaluator that reads the masks of the next states."""

    def evaluate(self, policy, transitions, **options):
        mask = transitions.next_allowed
        row = np.where(transitions.terminated[:, None], 0.0, mask).mean(axis=0)
        return NearestQ(transitions.states[:1], row[None])


def test_a_correct_evaluator_passes():
    check_evaluator(BatchMeans())
    masked = random_batch(1)
    with_masks = Transitions(
        masked.states,
        masked.actions,
        masked.rewards,
        masked.next_states,
        masked.terminated,
        n_actions=3,
        next_allowed=np.arange(3 * len(masked)).reshape(-1, 3) % 2 == 0,
    )
    check_evaluator(ReadsMasks(), transitions=with_masks)


def test_bootstrapping_past_the_end_is_caught_even_in_a_batch_without_an_end():
    batch = random_batch(2)
    endless = Transitions(batch.states, batch.actions, batch.rewards, batch.next_states, np.zeros(len(batch)))
    with pytest.raises(AssertionError, match="next state of a terminated row must not matter"):
        check_evaluator(BootstrapsPastTheEnd(), transitions=endless)


@pytest.mark.parametrize(
    ("evaluator", "rule"),
    [
        (object(), "must have the method evaluate"),
        (Draws(), "same rng must give the same Q"),
        (TooFewActions(), "Q must have 3 actions; it has 1"),
        (NotFinite(), "must be finite"),
        (BootstrapsPastTheEnd(), "next state of a terminated row must not matter"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_evaluators_are_caught(evaluator, rule):
    with pytest.raises(AssertionError, match=rule):
        check_evaluator(evaluator)


class Space:
    """A space that delegates to a correct one, with one defect."""

    def __init__(self, before=lambda states, values: None, values=lambda values: values, space=None):
        self.before, self.change, self.space = before, values, space or Thresholds()

    def improve(self, states, q_values, **options):
        options.pop("q", None)
        self.before(states, q_values)
        return self.space.improve(states, self.change(q_values), **options)


def writes(states, q_values):
    q_values[0, 0] += 1.0


class Coin:
    """Returns a different constant at each call."""

    def __init__(self):
        self.calls = 0

    def improve(self, states, q_values, **_):
        self.calls += 1
        return Constant(self.calls % q_values.shape[1], q_values.shape[1])


class ClockedCoin(Coin):
    """Returns a different constant at each call, unless given an rng."""

    def improve(self, states, q_values, *, rng=None, **options):
        return Constant(0, q_values.shape[1]) if rng is not None else super().improve(states, q_values)


class Fixed:
    def improve(self, states, q_values, **_):
        return Constant(0, q_values.shape[1])


class IgnoresWeights(Space):
    def improve(self, states, q_values, *, weights=None, **options):
        return super().improve(states, q_values, **options)


class IsThrownByWeights(Space):
    def improve(self, states, q_values, *, weights=None, **options):
        return super().improve(states, q_values if weights is None else -q_values, weights=weights, **options)


class IgnoresMasks(Space):
    def improve(self, states, q_values, *, allowed=None, **options):
        return Deaf(super().improve(states, q_values, **options))


class Deaf:
    def __init__(self, policy):
        self.policy, self.n_actions = policy, policy.n_actions

    def act(self, states, allowed=None):
        return self.policy.act(states)

    def probabilities(self, states, allowed=None):
        return self.policy.probabilities(states)


@pytest.mark.parametrize(
    ("space", "rule"),
    [
        (object(), "must have the method improve"),
        (Space(before=writes), "."),
        (Space(values=lambda q: q**2), r"adding f\(x\)"),
        (Space(values=lambda q: np.trunc(q - q.max(axis=1, keepdims=True))), "scaling the values must not"),
        (Coin(), "same rng must give the same policy"),
        (ClockedCoin(), "rng=None must mean a fixed seed"),
        (Fixed(), "smallest loss at a single point, given the weights"),
        (IgnoresWeights(), "smallest loss at a single point, given the weights"),
        (IsThrownByWeights(), "equal weights must not change the policy"),
        (IgnoresMasks(), "learned with masks must take allowed actions"),
    ],
    ids=["nothing", "writes", "squares", "truncates", "coin", "clocked coin", "fixed", "unweighted", "thrown", "deaf"],
)
def test_broken_spaces_are_caught(space, rule):
    with pytest.raises(AssertionError, match=rule):
        check_policy_space(space)


def test_correct_spaces_pass():
    check_policy_space(Space(space=Partition(lambda states: states[:, 0] > 0)))


class Policy(Uniform):
    def __init__(self, **broken):
        object.__setattr__(self, "n_actions", 2)
        object.__setattr__(self, "broken", broken)

    def act(self, states, allowed=None):
        return self.broken.get("act", lambda x: np.zeros(len(x), dtype=int))(states)

    def probabilities(self, states, allowed=None):
        return self.broken.get("probabilities", lambda x: np.tile([0.6, 0.4], (len(x), 1)))(states)


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (Policy(act=lambda x: np.zeros(len(x))), "act must return integers"),
        (Policy(act=lambda x: np.zeros((len(x), 1), dtype=int)), "act must return shape"),
        (Policy(act=lambda x: np.full(len(x), 2)), "actions must lie in"),
        (Policy(act=lambda x: np.arange(len(x)) % 2), "act must return the most probable action"),
        (Policy(probabilities=lambda x: np.ones((len(x), 2))), "sum to one"),
        (Policy(probabilities=lambda x: np.tile([1.5, -0.5], (len(x), 1))), "not be negative"),
    ],
)
def test_broken_policies_are_caught(policy, rule):
    states = np.zeros((4, 1))
    check_policy(Policy(), states, 2)
    with pytest.raises(AssertionError, match=rule):
        check_policy(policy, states, 2)


class Walk:
    """A small correct domain."""

    n_actions = 2
    feature_names = ("x",)
    action_labels = ("down", "up")

    def initial(self, n, rng):
        return rng.normal(size=(n, 1))

    def step(self, states, actions, rng):
        return states + 2 * actions[:, None] - 1 + rng.normal(size=states.shape), -(states[:, 0] ** 2), states[:, 0] > 3


class Remembers(Walk):
    def __init__(self):
        self.t = 0

    def step(self, states, actions, rng):
        self.t += 1
        return states + self.t, states[:, 0], states[:, 0] > 3


class Writes(Walk):
    def step(self, states, actions, rng):
        states += 0.0 if (states == 7).all() else 7.0 * (states != 7)
        return Walk.step(self, np.zeros_like(states), actions, rng)


class Flat(Walk):
    def step(self, states, actions, rng):
        following, rewards, terminated = Walk.step(self, states, actions, rng)
        return following[:, 0], rewards, terminated


class Unlabelled(Walk):
    action_labels = ("down",)


@pytest.mark.parametrize(
    ("domain", "rule"),
    [
        (Remembers(), "a domain has no state"),
        (Writes(), "must not write to its input"),
        (Flat(), "next states must have shape"),
        (Unlabelled(), "one label per action"),
        (object(), "a domain must have"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_broken_domains_are_caught(domain, rule):
    check_domain(Walk())
    with pytest.raises(AssertionError, match=rule):
        check_domain(domain)


def test_random_batches_are_reproducible():
    assert random_batch(3) == random_batch(3)
    assert random_batch(3) != random_batch(4)
