"""Each of the first rounds of the default loop begins with what was done, and then the loop begins anew."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from capi import CAPI, Transitions
from capi._utils.randomness import seed_sequence
from capi.domains import CartPole
from capi.evaluators import FittedQ, KernelFittedQ
from capi.learning import rules
from capi.policies import Constant, Deterministic, EpsilonGreedy, Uniform
from capi.policy_spaces import Reweighted, Trees, Unrestricted
from capi.simulation import performance, sample_episodes
from capi.testing import random_batch


def settings(**changed):
    return {"space": Trees(max_depth=2), "discount": 0.9, "n_iterations": 10, "random_state": 0} | changed


def n_from_log(batch=None, **changed):
    return rules.with_rules(
        CAPI(**settings(**changed)).loop(), random_batch() if batch is None else batch, None
    ).n_from_log


def in_cells(n=300):
    """A batch whose states repeat."""
    x = np.arange(n)[:, None] % 7.0
    return Transitions(
        x, np.arange(n) % 2, x[:, 0], x, np.zeros(n, dtype=bool), episodes=np.repeat(np.arange(n // 30), 30)
    )


def test_defaults_begin_with_what_was_done():
    assert n_from_log() == rules.FROM_LOG
    assert n_from_log(n_iterations=None) == rules.FROM_LOG
    assert n_from_log(evaluator=FittedQ(n_sweeps=None)) == rules.FROM_LOG


@pytest.mark.parametrize(
    "changed",
    [
        {"keep": "last"},
        {"state_weights": "batch"},
        {"initial_policy": Constant(1, 3)},
        {"n_iterations": rules.FEWEST_ROUNDS - 1},
        {"accept": "improving"},
        {"update": lambda old, new, **_: new},
        {"discount": 0.0, "n_iterations": 20},
        {"evaluator": KernelFittedQ(), "space": Unrestricted(), "keep": "best", "state_weights": "mixture"},
        {"space": Reweighted()},
        {"batch": in_cells()},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_loops_begin_once(changed):
    assert n_from_log(**changed) == 0


def test_the_first_rounds_evaluate_what_was_done_and_the_next_one_begins_anew():
    batch = random_batch()
    learner = CAPI(**settings())
    rounds = list(islice(learner.iterate(batch), rules.FROM_LOG + 2))
    loop = rules.with_rules(learner.loop(), batch, None)
    done = rules.Beginnings(loop, batch, np.empty(0, dtype=np.int64), seed_sequence(0)).what_was_done
    taken = done.probabilities(batch.states)[np.arange(len(batch)), batch.actions]
    assert taken.mean() > 1 / batch.n_actions  # it knows the log
    alone = next(CAPI(**settings(initial_policy=done)).iterate(batch))
    np.testing.assert_array_equal(rounds[0].q.values(batch.states), alone.q.values(batch.states))
    with pytest.raises(AssertionError):  # each round has other trees
        np.testing.assert_array_equal(rounds[0].q.values(batch.states), rounds[1].q.values(batch.states))
    assert [round(one.visits.sum()) for one in rounds] == [1, 1, 1, 1, 2]  # visits are summed since the last beginning


@pytest.mark.parametrize("stop", [0, 2, 3, 4])
def test_a_loop_resumes_to_the_same_bytes_wherever_it_began(stop):
    batch = random_batch()
    whole = list(islice(CAPI(**settings()).iterate(batch), 6))
    resumed = list(islice(CAPI(**settings()).iterate(batch, after=whole[stop]), 5 - stop))
    for old, new in zip(whole[stop + 1 :], resumed, strict=True):
        assert (old.k, old.loss, old.value, old.n_unchanged) == (new.k, new.loss, new.value, new.n_unchanged)
        np.testing.assert_array_equal(old.visits, new.visits)


@pytest.mark.parametrize(
    "ends", [{"patience": 1}, {"until_settled": True}, {"stop": lambda _: True}], ids=lambda ends: next(iter(ends))
)
def test_nothing_ends_the_loop_before_it_begins_anew(ends):
    batch = random_batch()
    first = next(CAPI(**settings()).iterate(batch))
    still = replace(first, n_unchanged=99, n_settled=99)
    loop = replace(rules.with_rules(CAPI(**settings()).loop(), batch, None), **ends)
    ended = [loop.ends_with(replace(still, k=k)) for k in range(rules.FROM_LOG + 2)]
    assert ended == [False] * rules.FROM_LOG + [True, True]


def test_the_rounds_from_the_log_are_candidates_of_long_loops():
    learner = CAPI(**settings(n_iterations=60)).fit(random_batch())
    assert all("score" in row for row in learner.history_[: rules.FROM_LOG])


def test_what_is_kept_may_be_a_round_from_the_log():
    learner = CAPI(**settings()).fit(random_batch())
    assert all("score" in row for row in learner.history_[: rules.FROM_LOG])


class Push(Deterministic):
    """Push to the side to which cart and pole move and lean."""

    n_actions = 2

    def act(self, states, allowed=None):
        return np.where(states @ np.array([0.5, 1.0, 10.0, 2.0]) < 0, 0, 1)


@pytest.mark.slow
def test_where_other_rounds_see_no_danger_one_step_from_the_log_is_kept():
    """A log of the pole with few falls: in its averages no policy ever falls, and fitted Q iteration's policy is worse than random decisions."""
    domain, rng = CartPole(), np.random.default_rng([108, 0])
    parts = [
        sample_episodes(EpsilonGreedy(Push(), 0.5), domain, n_episodes=20, max_steps=3_000, random_state=rng)
        for _ in range(2)
    ]
    batch = Transitions.concat(parts, renumber_episodes=True).subset(np.arange(5_000))
    tests = {"n_episodes": 50, "max_steps": 1_000, "random_state": 1}
    steps = lambda policy: performance(policy, CartPole(reward="survival"), **tests).undiscounted.mean()  # noqa: E731
    assert steps(CAPI(discount=0.99, random_state=108).fit(batch).policy_) > 10 * steps(Uniform(2))
