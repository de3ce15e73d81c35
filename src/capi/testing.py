"""Contract checks for custom evaluators, policy spaces and domains.

Each check raises AssertionError with the rule that was broken. The library's own tests run them on everything that it ships::

    from capi.testing import check_policy_space
    check_policy_space(MySpace())
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capi._utils.validation import Bools, Floats
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.policies import Constant, Uniform
from capi.types import Domain, Policy, PolicyEvaluator, PolicySpace, QFunction


def check_evaluator(
    evaluator: PolicyEvaluator,
    *,
    transitions: Transitions | None = None,
    discount: float = 0.9,
    needs_transitions: bool = True,
    seed: int = 0,
) -> None:
    """Check the contract of a `PolicyEvaluator`.

    Parameters
    ----------
    evaluator : PolicyEvaluator
    transitions : Transitions, optional
        The batch to evaluate on; by default random states with two features and three actions.
    discount : float
        Discount to evaluate with; for an evaluator that holds a model, the model's.
    needs_transitions : bool
        False for an evaluator that holds a model; it is then also called without a batch.
    seed : int
    """
    assert isinstance(evaluator, PolicyEvaluator), "an evaluator must have the method evaluate"
    batch = random_batch(seed) if transitions is None else transitions
    before = _arrays_of(batch)
    states, n_actions = batch.states, batch.n_actions

    def evaluate(policy: Policy, data: Transitions | None = batch, **options: Any) -> QFunction:
        rng = np.random.default_rng(seed + 1)
        return evaluator.evaluate(policy, data, discount=discount, states=states, rng=rng, **options)

    constant = Constant(0, n_actions)
    q = evaluate(constant)
    values = _checked_q(q, states, n_actions)
    np.testing.assert_array_equal(evaluate(constant).values(states), values, "the same rng must give the same Q")
    np.testing.assert_array_equal(q.values(states), values, "values must not change from call to call")
    reversed_values = q.values(states[::-1])[::-1]
    rule = "the value of a state must not depend on other states (except for rounding)"
    np.testing.assert_allclose(reversed_values, values, rtol=1e-9, atol=1e-12, err_msg=rule)
    without_rng = evaluator.evaluate(constant, batch, discount=discount, states=states).values(states)
    again = evaluator.evaluate(constant, batch, discount=discount, states=states).values(states)
    np.testing.assert_array_equal(without_rng, again, "rng=None must mean a fixed seed")
    _checked_q(evaluate(constant, previous=q), states, n_actions)
    _checked_q(evaluate(Uniform(n_actions)), states, n_actions)
    if needs_transitions:
        _check_no_bootstrap_past_the_end(evaluate, batch)
    else:
        np.testing.assert_array_equal(evaluate(constant, None).values(states), values, "a model must not need a batch")
    for name, array in _arrays_of(batch).items():
        np.testing.assert_array_equal(array, before[name], f"evaluate must not write to transitions.{name}")


def check_policy_space(space: PolicySpace, *, n_actions: int = 3, n_features: int = 2, seed: int = 0) -> None:
    """Check the contract of a `PolicySpace` on random states and values."""
    assert isinstance(space, PolicySpace), "a policy space must have the method improve"
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(60, n_features))
    q_values = rng.normal(size=(60, n_actions))
    before = states.copy(), q_values.copy()

    def improve(values: Floats = q_values, **options: Any) -> Policy:
        q = NearestQ(states, values)
        return space.improve(states, values, q=q, rng=np.random.default_rng(seed + 1), **options)

    policy = improve()
    actions = check_policy(policy, states, n_actions)
    np.testing.assert_array_equal(improve().act(states), actions, "the same rng must give the same policy")
    one, other = (space.improve(states, q_values, q=NearestQ(states, q_values)).act(states) for _ in range(2))
    np.testing.assert_array_equal(one, other, "rng=None must mean a fixed seed")
    np.testing.assert_array_equal(improve(previous=policy).act(states).shape, (60,), "previous must be accepted")

    offset = rng.integers(-8, 8, size=(60, 1)).astype(np.float64)
    eighths = np.round(q_values * 8) / 8  # sums of these are exact, so rounding cannot break the rule
    plain, shifted, doubled = (improve(v).act(states) for v in (eighths, eighths + offset, eighths * 2))
    np.testing.assert_array_equal(shifted, plain, "adding f(x) to all values of a state must not change the policy")
    np.testing.assert_array_equal(doubled, plain, "scaling the values must not change the policy")
    weighted = improve(weights=np.full(60, 2.0)).act(states)
    np.testing.assert_array_equal(weighted, actions, "equal weights must not change the policy")

    _check_it_takes_the_best_action_at_a_point(space, states[:1])
    _check_masks(space, states, q_values)
    check_policy(improve(np.zeros((60, n_actions))), states, n_actions)
    only = space.improve(states[:1], q_values[:1], q=NearestQ(states[:1], q_values[:1]))
    check_policy(only, states, n_actions)
    single = space.improve(states, q_values[:, :1], q=NearestQ(states, q_values[:, :1]))
    np.testing.assert_array_equal(single.act(states), 0, "with one action there is nothing to choose")
    for array, old, name in zip((states, q_values), before, ("states", "q_values"), strict=True):
        np.testing.assert_array_equal(array, old, f"improve must not write to {name}")


def check_policy(policy: Policy, states: Floats, n_actions: int) -> Any:
    """Check the contract of a `Policy` on ``states`` (n, d) and return its actions (n,)."""
    assert isinstance(policy, Policy), "a policy must have n_actions, act and probabilities"
    assert policy.n_actions == n_actions, f"n_actions must be {n_actions}; it is {policy.n_actions}"
    n, before = len(states), states.copy()
    actions, p = policy.act(states), policy.probabilities(states)
    assert actions.shape == (n,), f"act must return shape ({n},); it returned {actions.shape}"
    assert actions.dtype.kind == "i", f"act must return integers; it returned {actions.dtype}"
    assert ((actions >= 0) & (actions < n_actions)).all(), "actions must lie in 0..n_actions - 1"
    assert p.shape == (n, n_actions), f"probabilities must have shape {(n, n_actions)}; they have {p.shape}"
    assert (p >= 0).all(), "probabilities must not be negative"
    np.testing.assert_allclose(p.sum(axis=1), 1, err_msg="probabilities must sum to one in each state")
    np.testing.assert_array_equal(
        p.argmax(axis=1), actions, "act must return the most probable action, the lowest in case of ties"
    )
    np.testing.assert_array_equal(policy.act(states[::-1]), actions[::-1], "a decision must not depend on other states")
    np.testing.assert_array_equal(states, before, "act must not write to its input")
    return actions


def check_domain(domain: Domain, *, n: int = 200, seed: int = 0) -> None:
    """Check the contract of a `Domain` on ``n`` start states and every action."""
    assert isinstance(domain, Domain), "a domain must have n_actions, feature_names, action_labels, initial and step"
    assert len(domain.action_labels) == domain.n_actions, "there must be one label per action"
    d = len(domain.feature_names)
    states = domain.initial(n, np.random.default_rng(seed))
    assert states.shape == (n, d), f"initial must return shape {(n, d)}; it returned {states.shape}"
    assert states.dtype == np.float64, f"states must be float64; they are {states.dtype}"
    again = domain.initial(n, np.random.default_rng(seed))
    np.testing.assert_array_equal(again, states, "the same rng must give the same start states")
    for action in range(domain.n_actions):
        actions = np.full(n, action)
        first = domain.step(states.copy(), actions, np.random.default_rng(seed))
        _check_step(first, n, d)
        kept = states.copy()
        for one, other in zip(first, domain.step(kept, actions, np.random.default_rng(seed)), strict=True):
            np.testing.assert_array_equal(
                one, other, "the same rng must give the same step, because a domain has no state of its own"
            )
        np.testing.assert_array_equal(kept, states, "step must not write to its input")
    allowed = getattr(domain, "allowed", None)
    if allowed is not None:
        mask: Bools = allowed(states)
        assert mask.shape == (n, domain.n_actions), f"allowed must return shape {(n, domain.n_actions)}"
        assert mask.any(axis=1).all(), "every state must allow at least one action"


def random_batch(seed: int = 0, *, n_episodes: int = 20, n_actions: int = 3) -> Transitions:
    """Return a batch of random walks in the plane: episodes of up to six rows, some of them terminated."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, size=n_episodes)
    n = int(lengths.sum())
    states = rng.normal(size=(n, 2))
    actions = rng.permutation(np.arange(n) % n_actions)
    last = np.zeros(n, dtype=bool)
    last[np.cumsum(lengths) - 1] = True
    return Transitions(
        states,
        actions,
        rewards=states[:, 0] + 0.5 * actions,
        next_states=states + rng.normal(size=(n, 2)),
        terminated=last & (rng.random(n) < 0.5),
        n_actions=n_actions,
        episodes=np.repeat(np.arange(n_episodes), lengths),
    )


class NearestQ:
    """A `QFunction` for checks: the values of the nearest of some given states."""

    def __init__(self, states: Floats, q_values: Floats) -> None:
        self.states, self.q_values = states, q_values
        self.n_actions = q_values.shape[1]

    def values(self, states: Floats) -> Floats:
        """Return the values at the nearest points; ``states`` (n, d) -> (n, A)."""
        distance = np.square(states[:, None, :] - self.states[None, :, :]).sum(axis=2)
        return self.q_values[distance.argmin(axis=1)]


def _checked_q(q: QFunction, states: Floats, n_actions: int) -> Floats:
    assert isinstance(q, QFunction), "evaluate must return a QFunction: n_actions and values"
    assert q.n_actions == n_actions, f"Q must have {n_actions} actions; it has {q.n_actions}"
    values = q.values(states)
    assert values.shape == (len(states), n_actions), f"values must have shape (n, n_actions); they have {values.shape}"
    assert np.isfinite(values).all(), "values must be finite"
    return values


def _check_no_bootstrap_past_the_end(evaluate: Any, batch: Transitions) -> None:
    """Check that the next state of a terminated row does not matter."""
    ends = (
        np.append(batch.episodes[1:] != batch.episodes[:-1], True)
        if batch.episodes is not None
        else np.arange(len(batch)) % 3 == 0
    )
    ended = batch._with({**_arrays_of(batch), "terminated": ends.copy()})
    elsewhere = np.where(ends[:, None], np.roll(batch.next_states, 1, axis=0), batch.next_states)
    moved = batch._with({**_arrays_of(ended), "next_states": elsewhere})
    values, other = (evaluate(Constant(0, batch.n_actions), data).values(batch.states) for data in (ended, moved))
    np.testing.assert_array_equal(other, values, "the next state of a terminated row must not matter")


def _check_it_takes_the_best_action_at_a_point(space: PolicySpace, point: Floats) -> None:
    """Check that, if all states are equal, the space chooses the best action under the weights."""
    values = np.array([[1.0, 0.0]] * 6 + [[0.0, 1.0]] * 4)
    for weights, best in ((None, 0), (np.repeat([1.0, 3.0], [6, 4]), 1)):
        mean = np.average(values, axis=0, weights=weights)
        policy = space.improve(np.repeat(point, 10, axis=0), values, q=NearestQ(point, mean[None]), weights=weights)
        rule = "at a single point" + ("" if weights is None else ", given the weights")
        assert policy.act(point)[0] == best, f"the policy must take the action with the smallest loss {rule}"


def _check_masks(space: PolicySpace, states: Floats, q_values: Floats) -> None:
    """Check that a space refuses masks with an InvalidInputError, or that its policy respects them."""
    allowed = np.ones(q_values.shape, dtype=bool)
    allowed[::2, q_values.mean(axis=0).argmax()] = q_values.shape[1] == 1
    try:
        policy = space.improve(states, q_values, q=NearestQ(states, q_values), allowed=allowed)
    except InvalidInputError:
        return
    taken = allowed[np.arange(len(states)), policy.act(states, allowed)]
    assert taken.all(), "a policy that was learned with masks must take allowed actions"
    assert (policy.probabilities(states, allowed)[~allowed] == 0).all(), (
        "actions that are not allowed must have probability zero"
    )


def _check_step(step: tuple[Floats, Floats, Bools], n: int, d: int) -> None:
    assert len(step) == 3, "step must return next states, rewards and terminated"
    following, rewards, terminated = step
    assert following.shape == (n, d), f"next states must have shape {(n, d)}; they have {following.shape}"
    assert rewards.shape == (n,), f"rewards must have shape {(n,)}; they have {rewards.shape}"
    assert terminated.shape == (n,), f"terminated must have shape {(n,)}; it has {terminated.shape}"
    assert terminated.dtype == np.bool_, f"terminated must be bool; it is {terminated.dtype}"
    assert np.isfinite(following).all(), "next states must be finite"
    assert np.isfinite(rewards).all(), "rewards must be finite"


def _arrays_of(batch: Transitions) -> dict[str, Any]:
    """Return copies of all columns that the batch has."""
    return {name: getattr(batch, name).copy() for name in batch._columns()}
