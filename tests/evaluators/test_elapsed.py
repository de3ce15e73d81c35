"""Discounting by elapsed time: closed forms, a table with the waiting times filled in, and steps of one unit."""

from contextlib import nullcontext

import numpy as np
import pytest

from capi import Transitions
from capi.baselines import CPI, LSPI, PSDP, RFQI, FittedQIteration
from capi.errors import InvalidInputError
from capi.evaluators import GTD, GTD2, LSTDQ, TD, TDC, BellmanResidual, BoostedQ, FittedQ, KernelFittedQ, LassoTD
from capi.features.bases import RKHS, OneHot
from capi.policies import Constant, Tabular
from capi.policy_spaces import Partition, Trees
from capi.testing import random_batch

DISCOUNT = 0.9
THREE = OneHot(3)
EXACT = [
    LSTDQ(THREE, ridge=0.0),
    LSTDQ(THREE, ridge=0.0, projection_ridge=1e-13),
    LSTDQ(RKHS(), ridge=1e-10, projection_ridge=1e-10),
    BellmanResidual(THREE, ridge=0.0),
    BellmanResidual(THREE, auxiliary=None, ridge=0.0),
    BellmanResidual(THREE, auxiliary=OneHot(3)),
    BellmanResidual(RKHS(), ridge=1e-10, projection_ridge=1e-10),
    LassoTD(THREE, penalty=1e-10),
    LassoTD(THREE, penalty=1e-10, solver="fixed-point"),
    FittedQ(n_sweeps=3, min_samples_split=2),
    FittedQ(n_sweeps=None, refresh_every="never", min_samples_split=2),
    BoostedQ(n_trees=5, added=5, learning_rate=1.0, min_samples_leaf=1, n_sweeps=5),
    KernelFittedQ(n_sweeps=None, ridge=1e-9),
    KernelFittedQ(n_sweeps=5, ridge=1e-9, threshold=None),
    TD(THREE, step_size=0.5, n_passes=100),
    TD(THREE, step_size=0.5, n_passes=100, trace=0.7),
    TD(THREE, step_size=0.5, n_passes=100, trace=0.7, correction="none"),
    GTD(THREE, n_passes=600, step_size=1.0, second_step_size=0.5),
    GTD2(THREE, n_passes=1000, step_size=0.2, second_step_size=0.2),
    TDC(THREE, n_passes=600, step_size=0.5, second_step_size=0.5),
]


def walk(elapsed=(0.5, 3.0, np.nan)):
    """Two episodes 0 -> 1 -> 2 -> end, with rewards 1, 2 and 4."""
    return Transitions(
        [[0.0], [1.0], [2.0]] * 2, [0] * 6, [1.0, 2.0, 4.0] * 2, [[1.0], [2.0], [2.0]] * 2, [False, False, True] * 2,
        episodes=[0, 0, 0, 1, 1, 1], elapsed=None if elapsed is None else [*elapsed, *elapsed],
    )  # fmt: skip


@pytest.mark.parametrize("evaluator", EXACT, ids=lambda evaluator: repr(evaluator)[:60])
def test_a_step_of_k_units_is_discounted_k_times(evaluator):
    q = evaluator.evaluate(Constant(0, 1), walk(), discount=DISCOUNT)

    after_one = 2 + DISCOUNT**3 * 4
    expected = [1 + DISCOUNT**0.5 * after_one, after_one, 4]
    np.testing.assert_allclose(q.values(np.array([[0.0], [1.0], [2.0]]))[:, 0], expected, rtol=1e-5)


def semi_markov(rng, n_states=4, n=200):
    """Return a deterministic process whose steps last 1 to 4 units, as a batch, and the same with the waiting times filled in.

    A step of k units from s under a becomes k rows: the reward comes at once, then k - 1 states of their own wait with reward 0.
    """
    following, lasts = rng.integers(n_states, size=(n_states, 2)), rng.integers(1, 5, size=(n_states, 2))
    rewards = rng.normal(size=(n_states, 2))
    waits = n_states + 3 * np.arange(2 * n_states).reshape(n_states, 2)  # the first waiting state of each step
    short, long = [], []
    for number in range(n):
        s, a = number % n_states, number // n_states % 2
        k, then = lasts[s, a], following[s, a]
        short.append((s, a, rewards[s, a], then, k))
        path = [s, *(waits[s, a] + np.arange(k - 1)), then]
        long.append((s, a, rewards[s, a], path[1], 1))
        long.extend((path[step], 0, 0.0, path[step + 1], 1) for step in range(1, k))

    def batch(rows):
        x, a, r, y, k = (np.array(column) for column in zip(*rows, strict=True))
        ends = np.zeros(len(x), dtype=bool)
        return Transitions(x[:, None], a, r, y[:, None], ends, n_actions=2, elapsed=k if rows is short else None)

    decisions = np.zeros(n_states + 6 * n_states, dtype=np.int64)
    decisions[:n_states] = rng.integers(2, size=n_states)
    return batch(short), batch(long), Tabular(decisions, 2), n_states


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "evaluator",
    [
        LSTDQ(OneHot(28)),
        BellmanResidual(OneHot(28)),
        BellmanResidual(OneHot(28), auxiliary=None),
        LassoTD(OneHot(28), penalty=1e-11, solver="fixed-point"),
        FittedQ(n_trees=2, n_sweeps=150, min_samples_split=2),
    ],
    ids=lambda evaluator: type(evaluator).__name__,
)
def test_unequal_steps_have_the_values_of_the_table_with_the_waiting_times_filled_in(evaluator, seed):
    short, long, policy, n_states = semi_markov(np.random.default_rng(seed))
    states = np.arange(n_states, dtype=float)[:, None]

    found = evaluator.evaluate(policy, short, discount=DISCOUNT).values(states)
    filled_in = evaluator.evaluate(policy, long, discount=DISCOUNT).values(states)
    plain = evaluator.evaluate(policy, _without_elapsed(short), discount=DISCOUNT).values(states)
    np.testing.assert_allclose(found, filled_in, rtol=1e-4, atol=1e-5)
    assert np.abs(found - plain).max() > 0.05


def _without_elapsed(t):
    return Transitions(
        t.states, t.actions, t.rewards, t.next_states, t.terminated, n_actions=t.n_actions, episodes=t.episodes
    )


def with_elapsed(t, elapsed):
    return Transitions(
        t.states, t.actions, t.rewards, t.next_states, t.terminated,
        n_actions=t.n_actions, episodes=t.episodes, elapsed=elapsed,
    )  # fmt: skip


def polynomial(states):
    return np.column_stack([np.ones(len(states)), states])


@pytest.mark.parametrize("discount", [0.0, 0.83])
@pytest.mark.parametrize(
    "evaluator",
    [
        LSTDQ(polynomial),
        LSTDQ(RKHS(), ridge=1e-4, projection_ridge=1e-4),
        BellmanResidual(polynomial),
        BellmanResidual(polynomial, auxiliary=None),
        LassoTD(polynomial, penalty=0.1),
        FittedQ(n_trees=3),
        FittedQ(n_trees=3, n_sweeps=None, refresh_every="never"),
        KernelFittedQ(n_sweeps=None, ridge=1.0),
        TD(polynomial, trace=0.5, step_size=0.01),
        TDC(polynomial, n_passes=3, step_size=0.01),
    ],
    ids=lambda evaluator: repr(evaluator)[:40],
)
def test_steps_of_one_unit_change_no_byte(evaluator, discount):
    batch = random_batch(1)
    ones = with_elapsed(batch, np.ones(len(batch)))
    expected, found = (
        evaluator.evaluate(Constant(1, 3), t, discount=discount).values(batch.states).tobytes() for t in (batch, ones)
    )
    assert found == expected


@pytest.mark.parametrize("make", [LSTDQ, FittedQ])
def test_at_discount_zero_only_the_reward_counts(make):
    q = (make(THREE) if make is LSTDQ else make(min_samples_split=2)).evaluate(
        Constant(0, 1), walk((0.5, 9.0, 1.0)), discount=0.0
    )
    np.testing.assert_allclose(q.values(np.array([[0.0], [1.0], [2.0]]))[:, 0], [1, 2, 4], rtol=1e-6)


def test_almost_simultaneous_rows_do_not_keep_sweeps_from_converging():
    batch = walk((1e-9, 1e-12, 1.0))
    for evaluator in (
        FittedQ(n_sweeps=None, refresh_every="never", min_samples_split=2),
        KernelFittedQ(n_sweeps=None, ridge=1e-9),
    ):
        q = evaluator.evaluate(Constant(0, 1), batch, discount=DISCOUNT)
        np.testing.assert_allclose(q.values(np.array([[0.0]])), [[7.0]], rtol=1e-6)


def chooser():
    """State 0: action 0 gives 1 and ends; action 1 leads to state 1, which gives 2 and ends, after ``k`` units."""
    x = np.array([[0.0], [0.0], [1.0], [1.0]])
    return x, np.array([0, 1, 0, 1]), np.array([1.0, 0.0, 2.0, 2.0]), np.array([[0.0], [1.0], [1.0], [1.0]])


@pytest.mark.parametrize(("k", "wanted"), [(6.0, 1), (7.0, 0)])
@pytest.mark.parametrize(
    "learner",
    [
        FittedQIteration(FittedQ(n_trees=3, min_samples_split=2), DISCOUNT, 5),
        RFQI(KernelFittedQ(ridge=1e-6), DISCOUNT, 5),
        LSPI(LSTDQ(OneHot(2)), DISCOUNT),
        PSDP(FittedQ(n_trees=3, min_samples_split=2, n_sweeps=1), Trees(max_depth=1, min_samples_split=2), DISCOUNT, 3),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_learners_weigh_a_later_reward_by_its_time(learner, k, wanted):
    """0.9^6 2 = 1.06 is worth waiting for, 0.9^7 2 = 0.96 is not; one step later it always would be."""
    x, a, r, y = chooser()
    batch = Transitions(np.tile(x, (5, 1)), np.tile(a, 5), np.tile(r, 5), np.tile(y, (5, 1)),
                        np.tile([True, False, True, True], 5), elapsed=np.tile([1.0, k, 1.0, 1.0], 5))  # fmt: skip
    assert learner.fit(batch).policy_.act(np.array([[0.0]]))[0] == wanted


def test_the_safe_weight_of_cpi_needs_steps_of_at_least_one_unit():
    x, a, r, y = chooser()
    for k, advice in ((2.0, None), (0.5, "step_size must be given.*shorter ones .down to 0.5.")):
        batch = Transitions(x, a, r, y, [True, False, True, True], elapsed=[1.0, k, 1.0, 1.0])
        learner = CPI(LSTDQ(OneHot(2)), Trees(max_depth=1, min_samples_split=2), DISCOUNT, n_iterations=2)
        with nullcontext() if advice is None else pytest.raises(InvalidInputError, match=advice):
            learner.fit(batch)
        learner.set_params(step_size=0.1).fit(batch)


def test_partitions_of_states_learn_the_same_policy_from_the_table_with_the_waiting_times_filled_in():
    short, long, _, n_states = semi_markov(np.random.default_rng(5))
    states = np.arange(n_states, dtype=float)[:, None]
    cells = Partition(lambda x: x[:, 0].astype(int))
    greedy = []
    for batch in (short, long):
        q = LSTDQ(OneHot(28)).evaluate(Tabular(np.zeros(28, dtype=int), 2), batch, discount=DISCOUNT)
        greedy.append(cells.improve(states, q.values(states)).act(states))
    np.testing.assert_array_equal(*greedy)


@pytest.mark.parametrize(
    ("elapsed", "message"),
    [
        ([1.0, 0.0, 1.0, 1.0, 1.0, 1.0], r"elapsed must be positive unless the row terminates; .*elapsed\[1\] = 0"),
        ([-1.0, 1.0, 1.0, 1.0, 1.0, 1.0], r"elapsed\[0\] = -1"),
        ([1.0, np.nan, 1.0, 1.0, 1.0, 1.0], r"elapsed.*finite"),
        ([1.0, np.inf, 1.0, 1.0, 1.0, 1.0], r"elapsed.*finite"),
        ([1.0, 1.0], r"elapsed must have shape \(6,\)"),
        (["a"] * 6, r"elapsed must be numbers"),
    ],
)
def test_bad_times_name_the_first_row(elapsed, message):
    with pytest.raises(InvalidInputError, match=message):
        with_elapsed(walk(None), elapsed)
