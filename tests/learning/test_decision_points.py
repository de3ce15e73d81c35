import numpy as np
import pytest

from capi import CAPI, FiniteMDP, Transitions
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import LSTDQ, Exact, FittedQ, Rollouts
from capi.evaluators.averager import Averager
from capi.evaluators.under_policy import effective_number
from capi.features.bases import Polynomial
from capi.learning.decision_points import ENOUGH, BatchPoints, mixed, points_of, visited
from capi.policies import Constant
from capi.policy_spaces import Forests, Neighbors, OptimalTrees, Thresholds, Trees
from capi.testing import random_batch
from capi.types import StateSample


def one_column(batch):
    columns = {name: getattr(batch, name) for name in ("actions", "rewards", "terminated", "episodes")}
    return Transitions(
        states=batch.states[:, :1], next_states=batch.next_states[:, :1], **columns, n_actions=batch.n_actions
    )


def test_a_mixture_has_as_few_even_weights_as_it_needs():
    rng = np.random.default_rng(0)
    even = np.full(50_000, 1 / 50_000)
    few = np.zeros(50_000)
    few[:20] = rng.dirichlet(np.ones(20))
    found = mixed(few, even, ENOUGH)
    assert effective_number(found) == pytest.approx(ENOUGH)
    assert found.sum() == pytest.approx(1)
    many = rng.dirichlet(np.ones(50_000))
    assert mixed(many, even, ENOUGH) is many
    assert effective_number(mixed(few[:100] / few[:100].sum(), np.full(100, 0.01), 50)) == pytest.approx(50)


def test_points_are_the_starts_and_the_states_after_which_the_process_continues():
    batch = random_batch()
    points = BatchPoints.of(batch, None)
    n = batch.n_episodes
    np.testing.assert_array_equal(points.states[:n], batch.states[batch.episode_starts])
    np.testing.assert_array_equal(points.states[n:], batch.next_states[~batch.terminated])
    assert points.even.sum() == pytest.approx(1)
    q = FittedQ(n_trees=4).evaluate(Constant(0, batch.n_actions), batch, discount=0.9)
    np.testing.assert_array_equal(points.values(q, batch.n_actions, "FittedQ"), q.values(points.states))


def test_visits_are_those_of_the_model_and_sum_over_rounds():
    batch, policy = random_batch(), Constant(1, 3)
    q = FittedQ(n_trees=4).evaluate(policy, batch, discount=0.9)
    points = points_of(FittedQ(), batch, None)
    first = visited("occupancy", points, q, policy, 0.9, None)
    expected = Averager.of(q, batch, discount=0.9).under(policy).decision_weights
    kept = np.concatenate([np.ones(batch.n_episodes, dtype=bool), ~batch.terminated])
    np.testing.assert_allclose(first.weights, expected[kept] / expected[kept].sum())
    second = visited("mixture", points, q, policy, 0.9, first.visits)
    np.testing.assert_allclose(second.visits, 2 * first.visits)
    assert second.effective == pytest.approx(Averager.of(q, batch, discount=0.9).effective_rows(policy))


def test_a_model_gives_exact_visits():
    """Action 0 stays, action 1 moves on; only states after the start are visited."""
    mdp = FiniteMDP([np.eye(3), np.roll(np.eye(3), 1, axis=1)], np.zeros((3, 2)), 0.5, start=[0, 1, 0])
    points = points_of(Exact(mdp), None, None)
    policy = Constant(1, 2)
    found = visited("occupancy", points, Exact(mdp).evaluate(policy, discount=0.5), policy, 0.5, None)
    np.testing.assert_allclose(found.weights, mdp.discounted_occupancy(policy))
    both = visited("mixture", points, Exact(mdp).evaluate(policy, discount=0.5), policy, 0.5, np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(both.weights, (found.weights + np.array([1, 0, 0])) / 2)


@pytest.mark.parametrize(
    "space", [Trees(max_depth=2), OptimalTrees(max_depth=1), Forests(n_trees=3), Neighbors(5), Thresholds()]
)
@pytest.mark.parametrize("weighting", ["occupancy", "mixture"])
def test_every_space_learns_from_weighted_states_and_resumes(space, weighting):
    batch = one_column(random_batch()) if isinstance(space, Thresholds) else random_batch()
    settings = {"discount": 0.9, "n_iterations": 4, "random_state": 0, "keep": "last", "state_weights": weighting}
    learner = CAPI(FittedQ(n_trees=4, n_sweeps=2), space, **settings)
    whole = list(learner.iterate(batch))
    rest = list(learner.iterate(batch, after=whole[1]))
    assert [step.numbers() | {"seconds": 0} for step in rest] == [step.numbers() | {"seconds": 0} for step in whole[2:]]
    np.testing.assert_array_equal(rest[-1].policy.act(batch.states), whole[-1].policy.act(batch.states))
    assert all(0 < step.effective_rows <= len(batch) for step in whole)


def test_weights_by_occupancy_find_what_small_trees_need_in_a_lake():
    """A corridor with a side room: the room has most states and other best actions, but no policy that matters visits it."""
    n = 60
    P = np.zeros((2, n, n))
    for s in range(n):
        P[0, s, max(s - 1, 0)] = 1
        P[1, s, min(s + 1, n - 1)] = 1
    R = np.zeros((n, 2))
    R[0] = [0.0, 1.0]  # the start: going right pays
    R[20:, 0] = 5.0  # the room: going left pays, and can only be reached by going right for long
    P[1, 0] = np.eye(n)[0]  # ... which no one does: right at the start leads back to it
    mdp = FiniteMDP(P, R, 0.5, start=np.eye(n)[0])
    only = {"discount": 0.5, "n_iterations": 3, "keep": "last"}
    values = {
        how: mdp.start
        @ mdp.values(CAPI(Exact(mdp), Trees(max_depth=1, min_samples_leaf=30), state_weights=how, **only).fit().policy_)
        for how in ("batch", "occupancy")
    }
    assert values["occupancy"] == pytest.approx(2.0)
    assert values["batch"] < values["occupancy"]


def test_evaluators_without_a_model_are_refused():
    batch = random_batch()
    with pytest.raises(InvalidInputError, match=r"state_weights='mixture' needs the visits.*LinearValues.*FittedQ"):
        CAPI(LSTDQ(Polynomial(1)), Trees(max_depth=1), 0.9, 2, state_weights="mixture").fit(batch)
    with pytest.raises(InvalidInputError, match=r"no model in which to follow"):
        CAPI(Rollouts(ChainWalk()), Thresholds(), 0.9, 2, state_weights="occupancy").fit()
    with pytest.raises(InvalidInputError, match=r"omit states"):
        CAPI(FittedQ(), Trees(max_depth=1), 0.9, 2, state_weights="occupancy").fit(batch, states=batch.states)


def test_starts_can_be_given():
    batch = random_batch()
    starts = (batch.states[5:9], np.array([1.0, 2.0, 3.0, 4.0]))
    settings = {"discount": 0.9, "n_iterations": 3, "random_state": 0}
    given = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **settings).fit(batch, starts=starts)
    assert given.history_ != CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **settings).fit(batch).history_
    points = BatchPoints.of(batch, StateSample(*starts))
    np.testing.assert_array_equal(points.states[:4], starts[0])
    for bad in (np.zeros((2, 9)), (1, 2, 3, 4)):
        with pytest.raises(InvalidInputError, match="starts"):
            CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **settings).fit(batch, starts=bad)
    with pytest.raises(InvalidInputError, match="starts must come with a batch"):
        CAPI(Exact(ChainWalk().mdp), Thresholds(), 0.99, 2).fit(starts=np.zeros((1, 1)))


def test_masks_hold_at_the_points():
    rng = np.random.default_rng(0)
    n = 60
    x, y = rng.uniform(size=(n, 2)), rng.uniform(size=(n, 2))
    allowed, following = np.ones((n, 3), dtype=bool), rng.uniform(size=(n, 3)) < 0.7
    following[:, 0] = True
    batch = Transitions(
        x, rng.integers(3, size=n), x[:, 0], y, np.zeros(n, dtype=bool), allowed=allowed, next_allowed=following
    )
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), 0.9, 3, random_state=0).fit(batch)
    acts = learner.policy_.act(y, following)
    assert following[np.arange(n), acts].all()
