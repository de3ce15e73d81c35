import os
import pickle
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from copy import copy, deepcopy
from dataclasses import replace
from multiprocessing import get_context
from threading import Lock

import numpy as np
import pytest
from sklearn.base import clone

import builders
from capi import CAPI, FiniteMDP
from capi._utils.executors import lost_workers_explained
from capi.baselines import DPI
from capi.domains import ChainWalk
from capi.errors import ClusterError, InvalidInputError, SimulationError
from capi.evaluators import Exact, FittedQ, Rollouts, RolloutsWithCritic
from capi.policies import Constant, Tabular, Uniform
from capi.policy_spaces import Thresholds, Trees, Unrestricted
from capi.simulation import sample_episodes, sample_steps
from capi.testing import check_evaluator

DISCOUNT = 0.8


def test_both_keep_the_contract():
    chain = ChainWalk(variant=2)
    batch = sample_steps(None, chain, np.arange(0.0, 200.0, 3)[:, None], random_state=0)
    check_evaluator(Rollouts(chain, horizon=5), transitions=batch, discount=0.99, needs_transitions=False)
    with_model = RolloutsWithCritic(chain, Exact(chain.mdp), horizon=5)
    check_evaluator(with_model, transitions=batch, discount=0.99, needs_transitions=False)
    check_evaluator(RolloutsWithCritic(chain, FittedQ(n_trees=3), horizon=5), transitions=batch, discount=0.99)


@pytest.fixture(scope="module")
def mdp():
    P, R = builders.random_mdp(np.random.default_rng(0), n_states=6)
    return FiniteMDP(P, R, DISCOUNT)


STATES = np.arange(6.0)[:, None]


@pytest.mark.parametrize("policy", [Tabular([0, 1, 2, 0, 1, 2], 3), Uniform(3)], ids=["deterministic", "stochastic"])
@pytest.mark.parametrize("horizon", [1, 3, 60])
def test_rollouts_estimate_the_truncated_values(mdp, policy, horizon):
    """The mean of H rewards: H sweeps from Q = 0, within the standard errors that they report."""
    exact = Exact(mdp, n_sweeps=horizon).evaluate(policy, None, discount=DISCOUNT).values(STATES)
    rollouts = Rollouts(mdp, n_rollouts=2000, horizon=horizon, inertia=0.0)
    q = rollouts.evaluate(policy, None, discount=DISCOUNT, states=STATES)
    assert (np.abs(q.values(STATES) - exact) <= 4.5 * q.spread + 1e-9).all()
    if horizon == 60:
        np.testing.assert_allclose(exact, mdp.action_values(policy), atol=0.8**60 * 10)
        assert 0.001 < q.spread.max() < 0.1
    assert q.n_transitions == 6 * 3 * 2000 * horizon


def test_standard_errors_shrink_as_they_should(mdp):
    spreads = [
        Rollouts(mdp, n_rollouts=m, horizon=20)
        .evaluate(Uniform(3), None, discount=DISCOUNT, states=STATES, rng=np.random.default_rng(m))
        .spread.mean()
        for m in (100, 1600)
    ]
    assert spreads[0] / spreads[1] == pytest.approx(4, rel=0.2)
    one = Rollouts(mdp).evaluate(Uniform(3), None, discount=DISCOUNT, states=STATES)
    assert np.isnan(one.spread).all()


def test_large_returns_do_not_hide_their_spread(mdp):
    P = np.stack([mdp.transition_matrix([a] * mdp.n_states) for a in range(mdp.n_actions)])
    shifted = FiniteMDP(P, mdp.rewards + 1e6, DISCOUNT)
    a, b = (
        Rollouts(m, n_rollouts=200, horizon=5).evaluate(Uniform(3), None, discount=DISCOUNT, states=STATES).spread
        for m in (mdp, shifted)
    )
    np.testing.assert_allclose(a, b, rtol=1e-3)


class Falls:
    """Walks right until 3, where it ends with -1; action 0 waits and pays 0.1."""

    n_actions, feature_names, action_labels, discount = 2, ("x",), ("wait", "walk"), 0.9

    def initial(self, n, rng):
        return rng.integers(0, 3, size=(n, 1)).astype(float)

    def step(self, states, actions, rng):
        following = states + actions[:, None]
        ends = following[:, 0] >= 3
        return following, np.where(ends, -1.0, 0.1 * (actions == 0)), ends


def test_nothing_is_added_after_the_end_and_no_step_is_counted():
    states = np.array([[2.0], [0.0]])
    q = Rollouts(Falls(), horizon=50, inertia=0.0).evaluate(Constant(1, 2), None, discount=0.9, states=states)
    np.testing.assert_allclose(q.values(states), [[0.1 - 0.9, -1.0], [0.1 - 0.9**3, -(0.9**2)]])
    assert q.n_transitions == (2 + 1) + (4 + 3)

    class AlwaysHundred:
        def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
            return type("Q", (), {"n_actions": 2, "values": lambda _, x: np.full((len(x), 2), 100.0)})()

    with_critic = RolloutsWithCritic(Falls(), AlwaysHundred(), horizon=2, inertia=0.0)
    q = with_critic.evaluate(Constant(1, 2), None, discount=0.9, states=states)
    np.testing.assert_allclose(q.values(states), [[0.1 - 0.9, -1.0], [0.1 + 81, 81]])


def test_an_exact_critic_makes_any_horizon_exact(mdp):
    policy = Tabular([0, 1, 2, 0, 1, 2], 3)
    for horizon in (1, 4):
        evaluator = RolloutsWithCritic(mdp, Exact(mdp), n_rollouts=3000, horizon=horizon)
        q = evaluator.evaluate(policy, None, discount=DISCOUNT, states=STATES)
        assert (np.abs(q.values(STATES) - mdp.action_values(policy)) <= 4.5 * q.spread + 1e-9).all()


def test_a_critic_learns_from_the_batch_and_keeps_its_trees():
    chain = ChainWalk(variant=2)
    batch = sample_episodes(None, chain, n_episodes=40, max_steps=50, random_state=0)
    evaluator = RolloutsWithCritic(chain, FittedQ(n_trees=5, n_sweeps=3), horizon=2)
    states = np.arange(200.0)[:, None]
    first = evaluator.evaluate(Constant(0, 2), batch, discount=0.99, states=states)
    second = evaluator.evaluate(Constant(0, 2), batch, discount=0.99, states=states, previous=first)
    assert (first.critic.age, second.critic.age) == (2, 3), "grown in sweeps 1, 2 and 4"
    assert second.critic.n_sweeps == 6
    with pytest.raises(InvalidInputError, match="transitions must be given"):
        evaluator.evaluate(Constant(0, 2), None, discount=0.99, states=states)


class Coins:
    """State 0: action 1 pays 1. State 1: both toss a coin for -1 or 1. One step, then it is over."""

    n_actions, feature_names, action_labels, discount = 2, ("x",), ("a", "b"), 0.9

    def initial(self, n, rng):
        return rng.integers(0, 2, size=(n, 1)).astype(float)

    def step(self, states, actions, rng):
        tossed = rng.choice([-1.0, 1.0], size=len(states))
        return states, np.where(states[:, 0] == 0, actions, tossed), np.ones(len(states), dtype=bool)


def test_doubtful_states_get_more_rollouts():
    """The bound 2 sqrt(2 / c ln(1 / 0.5)) falls below the gap of 1 with the sixth rollout; counts double, so it is seen at 8."""
    states = np.array([[0.0], [1.0]])
    rollouts = Rollouts(Coins(), n_rollouts=60, allocation="gap", delta=0.5)
    q = rollouts.evaluate(Constant(0, 2), None, discount=0.9, states=states)
    assert q.counts.tolist() == [8, 112]
    np.testing.assert_allclose(q.values(states)[0], [0, 1], atol=1e-6)
    assert q.n_transitions == 2 * 120


def test_a_budget_that_is_not_needed_is_not_spent():
    clear = Rollouts(Coins(), n_rollouts=60, allocation="gap", delta=0.5)
    q = clear.evaluate(Constant(0, 2), None, discount=0.9, states=np.array([[0.0], [0.0]]))
    assert q.counts.tolist() == [2, 2]  # the range of returns is 1 here, and the gap, too


def test_a_policy_that_never_fails_is_kept():
    """Within the horizon nothing happens, so all gaps are zero: the bonus makes the current policy's action win."""
    states = np.arange(150.0, 190.0)[:, None]
    policy = Tabular(np.arange(200) % 2, 2)
    q = Rollouts(ChainWalk(variant=2), horizon=5).evaluate(policy, None, discount=0.9, states=states)
    np.testing.assert_array_equal(q.values(states).argmax(axis=1), policy.act(states))
    assert np.abs(q.values(states)).max() < 1e-8


def test_equal_seeds_give_equal_values(mdp):
    tables = [
        Rollouts(mdp, horizon=5)
        .evaluate(Uniform(3), None, discount=0.8, states=STATES, rng=np.random.default_rng(s))
        .table
        for s in (3, 3, 4)
    ]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert not np.array_equal(tables[0], tables[2])


def test_values_elsewhere_are_unknown():
    chain = ChainWalk()
    q = Rollouts(chain).evaluate(Constant(0, 2), None, discount=0.9, states=np.array([[3.0]]))
    with pytest.raises(InvalidInputError, match="must be start states of the rollouts"):
        q.values(np.array([[4.0]]))
    with pytest.raises(InvalidInputError, match="not in Unrestricted"):
        CAPI(Rollouts(chain), Unrestricted(), 0.9, 3).fit(states=lambda k, policy, rng: chain.initial(5, rng))


def test_they_run_in_the_loop_and_say_what_they_cost():
    chain = ChainWalk(variant=2)
    learner = CAPI(Rollouts(chain, horizon=20), Thresholds(), 0.99, 2, random_state=0).fit(
        states=np.arange(200.0)[:, None]
    )
    assert [row["n_transitions"] for row in learner.history_] == [200 * 2 * 20] * 2
    assert learner.schema_.action_labels == ("left", "right")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rollouts("nothing"), "domain must have"),
        (lambda: Rollouts(ChainWalk(), n_rollouts=0), "n_rollouts"),
        (lambda: Rollouts(ChainWalk(), horizon=0), "horizon"),
        (lambda: Rollouts(ChainWalk(), allocation="best"), "allocation"),
        (lambda: Rollouts(ChainWalk(), allocation="gap"), "n_rollouts of at least 2"),
        (lambda: Rollouts(ChainWalk(), delta=0), "delta"),
        (lambda: Rollouts(ChainWalk(), inertia=-1), "inertia"),
        (lambda: Rollouts(ChainWalk(), executor=3), "executor must be a concurrent.futures.Executor.*got 3"),
        (lambda: RolloutsWithCritic(ChainWalk(), "critic"), "critic must be an evaluator"),
        (lambda: RolloutsWithCritic(ChainWalk(), FittedQ(), executor="dusk"), "executor must be.*got 'dusk'"),
        (lambda: Rollouts(ChainWalk()).evaluate(Constant(0, 2), None, discount=0.9), "states must be given"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


class Forbids(Falls):
    """One may not walk from 2."""

    def allowed(self, states):
        return np.column_stack([np.ones(len(states), dtype=bool), states[:, 0] < 2])


def test_no_rollout_starts_with_what_is_forbidden():
    """The domain itself refuses what its masks forbid."""

    class Strict(Forbids):
        def step(self, states, actions, rng):
            assert self.allowed(states)[np.arange(len(states)), actions].all()
            return super().step(states, actions, rng)

    states = np.array([[2.0], [1.0]])
    for options in ({}, {"n_rollouts": 3, "allocation": "gap"}):
        q = Rollouts(Strict(), horizon=2, inertia=0.0, **options).evaluate(
            Constant(1, 2), None, discount=0.9, states=states
        )
        np.testing.assert_allclose(q.values(states), [[0.19, 0.19], [0.1, 0.09]])
    assert DPI(Strict(), Trees(), n_states=20, horizon=2, random_state=0).fit().policy_.masked


class EndsOutside(Falls):
    """Where it has ended nothing is allowed, and a critic knows nothing of it."""

    def allowed(self, states):
        return np.repeat(states < 3, 2, axis=1)


def test_the_critic_is_not_evaluated_at_terminal_states():
    class Strict:
        def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
            def values(_, x):
                assert (x < 3).all()
                return np.ones((len(x), 2))

            return type("Q", (), {"n_actions": 2, "values": values})()

    states = np.array([[2.0], [0.0]])
    q = RolloutsWithCritic(EndsOutside(), Strict(), horizon=2).evaluate(Uniform(2), None, discount=0.9, states=states)
    assert np.isfinite(q.table).all()
    batch = sample_episodes(None, EndsOutside(), n_episodes=20, max_steps=5, random_state=0)
    assert batch.terminated.any()
    assert not batch.next_allowed[batch.terminated].any()
    assert batch.next_allowed[~batch.terminated].all()


def test_many_states_are_taken_in_pieces(monkeypatch):
    """In one piece or in several: as many rollouts, and all rows filled."""
    monkeypatch.setattr("capi.evaluators.rollouts.ROLLOUTS_AT_ONCE", 7)
    q = Rollouts(Coins(), n_rollouts=5, inertia=0.0).evaluate(
        Constant(0, 2), None, discount=0.9, states=np.zeros((11, 1))
    )
    assert q.counts.tolist() == [5] * 11
    assert q.n_transitions == 11 * 2 * 5
    np.testing.assert_array_equal(q.values(np.zeros((11, 1))), np.tile([0.0, 1.0], (11, 1)))


def test_spread_is_the_standard_error():
    q = Rollouts(Coins(), n_rollouts=9, inertia=0.0).evaluate(
        Constant(0, 2), None, discount=0.9, states=np.array([[1.0]])
    )
    mean = q.table[0]
    expected = np.sqrt((1 - mean**2) * 9 / 8 / 9)  # values of -1 and 1
    np.testing.assert_allclose(q.spread[0], expected)


def test_a_discount_out_of_range_is_named():
    for discount in (1.0, -0.1, float("nan"), "a"):
        with pytest.raises(InvalidInputError, match="discount"):
            Rollouts(ChainWalk()).evaluate(Constant(0, 2), None, discount=discount, states=STATES)


@pytest.mark.parametrize("m", [1, 4])
def test_a_critic_of_m_sweeps_gives_modified_policy_iteration(m):
    """CBMPI: rollouts of one step that end in (T^pi)^m Q of the round before are T_a (T^pi)^m, and so is this loop by hand."""
    chain = ChainWalk(success=1.0)
    evaluator = RolloutsWithCritic(chain, Exact(chain.mdp, n_sweeps=m), horizon=1, inertia=0.0)
    learner = CAPI(evaluator, Unrestricted(), discount=0.99, n_iterations=12)
    q, actions = np.zeros((200, 2)), np.zeros(200, dtype=int)
    for done in learner.iterate(states=chain.mdp.states):
        policy = Tabular(actions, 2)
        q = chain.mdp.bellman(policy, q, n_sweeps=m)
        ahead = chain.mdp.bellman(policy, q)
        np.testing.assert_allclose(done.q.values(chain.mdp.states), ahead, atol=1e-12)
        actions = done.policy.act(chain.mdp.states)
        regret = ahead.max(axis=1) - ahead[np.arange(200), actions]
        assert regret.max() < 1e-12


# -- elsewhere ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


CHAIN_STATES = np.arange(0.0, 200.0)[:, None]


def found(evaluator, batch=None, seed=3):
    """Return all that an evaluation finds, as bytes and numbers, and the next random number after it."""
    rng = np.random.default_rng(seed)
    q = evaluator.evaluate(Uniform(2), batch, discount=0.9, states=CHAIN_STATES, rng=rng)
    return q.table.tobytes(), q.spread.tobytes(), q.counts.tolist(), q.n_transitions, rng.integers(2**40)


@pytest.mark.parametrize("options", [{}, {"allocation": "gap"}], ids=["equal", "gap"])
def test_results_do_not_depend_on_where_rollouts_run(processes, options):
    """11 tasks of 2,000 rollouts or fewer."""

    def run(executor):
        return found(Rollouts(ChainWalk(), n_rollouts=50, horizon=4, executor=executor, **options))

    here = run("sequential")
    assert here[3] == sum(here[2]) * 2 * 4
    for n_workers in (1, 3):
        with ThreadPoolExecutor(n_workers) as pool:
            assert run(pool) == here
    assert run("threading") == run(processes) == here
    assert run(None)[:2] != here[:2], "one stream of random numbers, as documented"


def test_rollouts_elsewhere_end_with_the_same_critic(processes):
    chain = ChainWalk(variant=2)
    batch = sample_episodes(None, chain, n_episodes=20, max_steps=20, random_state=0)

    def run(executor):
        return found(RolloutsWithCritic(chain, FittedQ(n_trees=3), n_rollouts=6, horizon=3, executor=executor), batch)

    assert run("sequential") == run(processes)


def test_tasks_have_different_random_numbers(monkeypatch):
    """The same coins in all tasks would have given the same values to all states."""
    monkeypatch.setattr("capi.evaluators.rollouts.ROLLOUTS_PER_TASK", 20)
    rollouts = Rollouts(Coins(), n_rollouts=100, inertia=0.0, executor="sequential")
    q = rollouts.evaluate(Constant(0, 2), None, discount=0.9, states=np.ones((30, 1)))
    assert q.counts.tolist() == [100] * 30
    assert len(np.unique(q.table)) > 10
    assert np.abs(q.table.mean()) < 4.5 / np.sqrt(6000)


def test_one_state_with_more_actions_than_a_task_has_rollouts(monkeypatch):
    monkeypatch.setattr("capi.evaluators.rollouts.ROLLOUTS_PER_TASK", 1)
    q = Rollouts(Coins(), n_rollouts=3, executor="sequential").evaluate(
        Constant(0, 2), None, discount=0.9, states=np.zeros((2, 1))
    )
    assert (q.counts.tolist(), q.n_transitions) == ([3, 3], 2 * 2 * 3)


@pytest.mark.parametrize("executor", [None, "sequential"])
def test_memory_does_not_grow_with_the_rollouts(monkeypatch, executor):
    """400,000 rollouts in blocks of 2,000; start and first action of all of them would be 6 MB."""
    monkeypatch.setattr("capi.evaluators.rollouts.ROLLOUTS_AT_ONCE", 2000)
    rollouts = Rollouts(ChainWalk(), n_rollouts=4, horizon=1, executor=executor)
    peaks = []
    for evaluator in (rollouts, rollouts, replace(rollouts, n_rollouts=400)):  # the first one also imports modules
        tracemalloc.start()
        try:
            evaluator.evaluate(Constant(0, 2), None, discount=0.9, states=np.zeros((500, 1)))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[2] < peaks[1] + 1_000_000


class Breaks(Falls):
    """A simulator that raises an error."""

    def step(self, states, actions, rng):
        raise ZeroDivisionError("the pump is empty")


class Kills(Falls):
    """A simulator that ends its process."""

    def step(self, states, actions, rng):
        os._exit(3)


def run_in(executor, domain):
    states = np.zeros((2, 1))
    return Rollouts(domain, executor=executor).evaluate(Constant(0, 2), None, discount=0.9, states=states)


def test_errors_of_the_simulator_come_back(processes):
    for executor in ("sequential", "threading", processes):
        with pytest.raises(
            SimulationError, match=r"Breaks.step failed at step 0 of the simulation: .*the pump is empty"
        ):
            run_in(executor, Breaks())


def test_what_cannot_be_sent_is_named(processes):
    class Local(Falls):
        pass

    with pytest.raises(InvalidInputError, match=r"domain must be picklable.*local.*Local.*executor='threading'"):
        run_in(processes, Local())
    assert run_in("threading", Local()).n_actions == 2


class Fails(Uniform):
    """A policy whose error looks like one of pickling."""

    def probabilities(self, states, allowed=None):
        raise TypeError("onnxruntime could not deserialize the model")


def test_errors_of_the_policy_are_not_those_of_pickling(processes):
    states = np.zeros((2, 1))
    with ThreadPoolExecutor(1) as threads:
        for executor in (None, "sequential", "threading", threads, processes):
            with pytest.raises(TypeError, match=r"^onnxruntime could not"):
                Rollouts(ChainWalk(), executor=executor).evaluate(Fails(2), None, discount=0.9, states=states)


def test_only_what_the_executor_cannot_pickle_is_blamed():
    """Dask and loky also send local classes."""

    class Local:
        def __init__(self, inner=None):
            self.inner = inner

    with pytest.raises(TypeError, match="own error"), lost_workers_explained("loky", domain=Local()):
        raise TypeError("own error")
    with (
        pytest.raises(InvalidInputError, match=r"policy must be picklable.*_thread\.lock"),
        lost_workers_explained("loky", domain=Local(), policy=Local(Lock())),
    ):
        raise pickle.PicklingError("Could not pickle the task")


def test_a_process_that_ends_is_explained():
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(ClusterError, match="workers died while they ran tasks"),
    ):
        run_in(pool, Kills())


def test_an_executor_is_shared_by_copies_and_stays_here_when_pickled():
    chain = ChainWalk()
    with ThreadPoolExecutor(1) as pool:
        for evaluator in (Rollouts(chain, 5, 4, executor=pool), RolloutsWithCritic(chain, FittedQ(), executor=pool)):
            for copied in (
                copy(evaluator),
                deepcopy(evaluator),
                clone(evaluator, safe=False),
                replace(evaluator, horizon=3),
            ):
                assert copied is not evaluator
                assert copied.executor is pool
            assert copy(evaluator).domain is chain
            assert deepcopy(evaluator).domain is not chain
            assert pickle.loads(pickle.dumps(evaluator)).executor == "sequential"
            learner = clone(CAPI(evaluator, Thresholds(), 0.9))
            assert learner.get_params()["evaluator__executor"] is pool
            assert learner.set_params(evaluator__executor=None).evaluator.executor is None
        sent = Rollouts(chain, 5, 4, executor=pool)
        assert found(pickle.loads(pickle.dumps(sent))) == found(sent)
    assert pickle.loads(pickle.dumps(Rollouts(chain))).executor is None


def test_a_loop_with_an_executor_counts_its_steps():
    learner = CAPI(
        Rollouts(ChainWalk(variant=2), horizon=20, executor="threading"), Thresholds(), 0.99, 2, random_state=0
    )
    learner.fit(states=CHAIN_STATES)
    assert [row["n_transitions"] for row in learner.history_] == [200 * 2 * 20] * 2
