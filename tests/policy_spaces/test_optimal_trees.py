import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from capi import load_policy
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.loss import gap_weighted_loss
from capi.policies import Training, described
from capi.policy_spaces import Constrained, OptimalTrees, Thresholds, Trees
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.rules import Never
from capi.policy_spaces.trees import _rankings, _refined, _rooms, _search, optimal
from capi.policy_spaces.trees._binned import Binned
from capi.policy_spaces.trees._search import Switches
from capi.testing import check_policy_space
from capi.trees._optimal import records, tables

PLAIN = Switches(bounds=False, caching=False, ordering=records.AS_GIVEN, engine=records.BY_TABLES)
EVERY_SWITCH = [
    Switches(bounds, caching, ordering, engine)
    for bounds in (True, False)
    for caching in (True, False)
    for ordering in (records.AS_GIVEN, records.PROMISING, records.REVERSED)
    for engine in (records.BY_TABLES, records.BY_ROWS, records.BY_COLUMNS)
]


def problem(seed=0, n=400, d=3, n_actions=3, missing=False):
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, d))
    values = np.sin(2 * states @ rng.normal(size=(d, n_actions))) + 0.2 * rng.normal(size=(n, n_actions))
    if missing:
        states[rng.random((n, d)) < 0.1] = np.nan
    return states, values


def loss(policy, states, values, weights=None):
    return gap_weighted_loss(values, policy.act(states), weights)


def splits(states, rows, min_leaf):
    """Every way to send rows left: each cut of each feature, missing values on either side or by themselves."""
    for column in states[rows].T:
        missing = np.isnan(column)
        below = [column <= value for value in np.unique(column[~missing])]
        for left in [*below, *(left | missing for left in below[:-1])]:
            if left.sum() >= min_leaf and (~left).sum() >= min_leaf:
                yield rows[left], rows[~left]


def least_cost(states, lost, rows, depth, min_leaf, penalty):
    """The cost of the best tree, by trying them all."""
    cost = lost[rows].sum(axis=0).min() + penalty
    if depth > 0:
        for left, right in splits(states, rows, min_leaf):
            both = (least_cost(states, lost, side, depth - 1, min_leaf, penalty) for side in (left, right))
            cost = min(cost, sum(both))
    return cost


def tiny_states(rng, n, d):
    """Few values, two values, one of several categories, all values different, or some of each; rows may be repeated."""
    kinds = [
        lambda: rng.integers(0, 5, size=(n, d)),
        lambda: rng.integers(0, 2, size=(n, d)),
        lambda: np.eye(d)[rng.integers(d, size=n)],
        lambda: rng.normal(size=(n, d)),
        lambda: np.where(np.arange(d) % 2 == 0, rng.integers(0, 3, size=(n, d)), rng.normal(size=(n, d))),
    ]
    states = kinds[rng.integers(len(kinds))]().astype(float)
    return states[rng.integers(n, size=n)] if rng.random() < 0.3 else states


def tiny_problem(rng, depth):
    n, d = rng.integers(1, {1: 15, 2: 8, 3: 7, 4: 6}[depth]), rng.integers(1, 4)
    n_actions = rng.choice([1, 2, 2, 3, 3, 4, 6])
    states = tiny_states(rng, n, d)
    if rng.random() < 0.5:
        states[rng.random((n, d)) < 0.3] = np.nan
    weights = rng.integers(0, 4, size=n).astype(float) if rng.random() < 0.5 else np.ones(n)
    weights[0] = max(weights[0], 1)
    return states, rng.integers(-4, 5, size=(n, n_actions)).astype(float), weights


@pytest.mark.parametrize(("depth", "n_problems"), [(1, 1000), (2, 1000), (3, 100), (4, 50)])
def test_no_tree_costs_less(depth, n_problems):
    rng = np.random.default_rng(depth)
    for k in range(n_problems):
        states, values, weights = tiny_problem(rng, depth)
        min_leaf, penalty = int(rng.integers(1, 4)), float(rng.choice([0.0, 0.0, 0.25]))
        space = OptimalTrees(depth, min_samples_leaf=min_leaf, leaf_penalty=penalty, n_jobs=1 + k % 2)
        policy = space._solved(
            ImprovementProblem.of(states, values, weights=weights), EVERY_SWITCH[k % len(EVERY_SWITCH)]
        )
        kept, price = np.flatnonzero(weights), penalty * weights.sum()
        lost = (values.max(axis=1, keepdims=True) - values) * weights[:, None]
        least = least_cost(states, lost, kept, depth, min_leaf, price)
        cost = naive.policy_loss(values, policy.act(states), weights) + price * policy.n_leaves
        assert cost == pytest.approx(least, abs=1e-9), k
        assert policy.optimal
        assert policy.remaining_gap == 0
        assert policy.tree.counts.sum() == len(kept)
        assert policy.tree.counts.min() >= min(min_leaf, len(kept))


@pytest.mark.compiled
@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing values"])
@pytest.mark.parametrize("min_leaf", [1, 7])
def test_switches_and_threads_do_not_matter(depth, missing, min_leaf):
    states, values = problem(depth, n=150 if depth < 4 else 60, d=3 if depth < 4 else 2, missing=missing)
    values = np.round(4 * values)  # many ties
    space = OptimalTrees(depth, n_thresholds=8 if depth < 4 else 4, min_samples_leaf=min_leaf)
    expected = space._solved(ImprovementProblem.of(states, values), PLAIN)
    for k, switches in enumerate(EVERY_SWITCH):
        threaded = replace(space, n_jobs=1 + k % 3)
        policy = threaded._solved(ImprovementProblem.of(states, values), switches)
        assert policy.rules() == expected.rules(), switches
        assert policy.tree.nodes.tobytes() == expected.tree.nodes.tobytes(), switches


@pytest.mark.compiled
def test_a_feature_may_be_constant_on_one_side_and_not_on_a_larger_one():
    """A bound for trees that cut this feature first also holds for the larger side, where it has cuts."""
    rng = np.random.default_rng(0)
    for k in range(100):
        states = np.column_stack([rng.integers(0, 6, size=60), rng.permutation(60) // 2]).astype(float)
        values = rng.integers(0, 3, size=(60, 3)).astype(float)
        given, space = ImprovementProblem.of(states, values), OptimalTrees(3, min_samples_leaf=1)
        rules = [space._solved(given, switches).rules() for switches in (PLAIN, Switches(engine=records.BY_ROWS))]
        assert rules[0] == rules[1], k


@pytest.mark.parametrize("room", [0, 2_500, 2**22])
def test_room_for_tables_does_not_matter(monkeypatch, room):
    """Without any the sides of a cut are searched one by one, with little the tables move from cut to cut, else all are kept."""
    states, values = problem(n=300, d=4)
    space = OptimalTrees(3, n_thresholds=8)
    expected = space._solved(ImprovementProblem.of(states, values), PLAIN).rules()
    monkeypatch.setattr(_rooms, "TABLES", room)
    assert space._solved(ImprovementProblem.of(states, values), Switches(engine=records.BY_TABLES)).rules() == expected


@pytest.mark.compiled
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_greedy_tree_is_never_better(depth):
    for seed in range(5):
        states, values = problem(seed, n={1: 200, 2: 200, 3: 60, 4: 24}[depth], missing=seed % 2 == 1)
        ours, greedy = (space(max_depth=depth, min_samples_leaf=2) for space in (OptimalTrees, Trees))
        losses = [loss(space.improve(states, values), states, values) for space in (ours, greedy)]
        assert losses[0] <= losses[1] + 1e-12
    assert losses[0] < losses[1] or depth == 1


@pytest.mark.compiled
def test_deeper_trees_lose_less():
    states, values = problem(n=300)
    losses = [
        loss(OptimalTrees(depth, n_thresholds=10).improve(states, values), states, values) for depth in range(1, 5)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[3] < 0.7 * losses[0]


def test_depth_one_is_the_best_cut():
    states, values = problem(n=100)
    best = loss(Thresholds().improve(states, values), states, values)
    assert loss(OptimalTrees(1).improve(states, values), states, values) == pytest.approx(best, abs=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_keeps_the_contract(depth):
    check_policy_space(OptimalTrees(depth))
    check_policy_space(OptimalTrees(depth, n_thresholds=6, min_samples_leaf=3), n_actions=5, n_features=4, seed=3)


@pytest.mark.compiled
def test_a_split_that_does_not_pay_is_not_grown():
    states, values = problem(n=200)
    sizes = [OptimalTrees(3, 16, leaf_penalty=penalty).improve(states, values).n_leaves for penalty in (0.0, 0.05, 9.0)]
    assert sizes[0] == 8
    assert 1 < sizes[1] < 8
    assert sizes[2] == 1
    twice = OptimalTrees(3, 16, leaf_penalty=0.05).improve(np.tile(states, (2, 1)), np.tile(values, (2, 1)))
    assert twice.n_leaves == sizes[1], "the penalty does not depend on the number of states"


@pytest.mark.parametrize(("scale", "cut"), [(1, 0.5), (1000, 500), (1e-4, 5e-5)])
def test_among_cuts_with_the_same_loss_the_roundest_is_taken(scale, cut):
    states = scale * np.array([0.13, 0.27, 0.31, 0.4862, 0.5713, 0.66, 0.71, 0.9])[:, None]
    values = np.eye(2)[[0, 0, 0, 0, 1, 1, 1, 1]]
    policy = OptimalTrees(3, min_samples_leaf=1).improve(states, values)
    assert policy.n_leaves == 2
    assert policy.tree.nodes["threshold"][0] == pytest.approx(cut, rel=1e-12)


def test_no_gain_no_split():
    tenths = np.array([[0.1, 0.0], [0.2, 0.0], [0.3, 0.0], [0.0, 0.6]])
    policy = OptimalTrees(3).improve([[0.0], [1.0], [2.0], [0.0]], tenths)
    assert policy.n_leaves == 2
    same = OptimalTrees(3).improve([[0.0], [0.0], [0.0], [0.0]], tenths)
    assert same.n_leaves == 1
    assert OptimalTrees(3).improve([[0.0], [1.0]], np.zeros((2, 3))).n_leaves == 1


def slow_problem(depth=4):
    """Return states and values for which the search takes minutes."""
    return problem(n=4000, d=60 if depth == 3 else 8, n_actions=4)


def check_stopped(policy, states, values, reason, depth):
    """A search that was cut short gives a policy that is no worse than the greedy one, and a bound that holds."""
    assert not policy.optimal
    assert policy.stopped_by == reason
    ours = loss(policy, states, values)
    greedy = Trees(max_depth=depth).improve(Binned.of(states, 30).as_states, values)
    known = gap_weighted_loss(values, greedy.act(Binned.of(states, 30).as_states))
    assert ours <= known + 1e-12
    assert 0 < policy.remaining_gap <= known + 1e-9  # not our loss: the last level may be better than the search knew
    assert f"stopped by {reason}" in policy.rules()


@pytest.mark.compiled
def test_node_limit_is_a_budget_that_can_be_reproduced():
    states, values = problem(n=500, d=4)
    best = loss(OptimalTrees(3, 30).improve(states, values), states, values)
    losses = []
    for limit in (1, 20, 60):
        policies = [OptimalTrees(3, 30, node_limit=limit, n_jobs=jobs).improve(states, values) for jobs in (1, 2)]
        check_stopped(policies[0], states, values, "node_limit", 3)
        assert policies[0].rules() == policies[1].rules()
        losses.append(loss(policies[0], states, values))
        assert losses[-1] - policies[0].remaining_gap <= best + 1e-12
    assert losses == sorted(losses, reverse=True)
    assert OptimalTrees(3, 30, node_limit=10**9).improve(states, values).optimal_on_cuts


@pytest.mark.compiled
@pytest.mark.parametrize("shape", [(500, 4), (60, 12), (2000, 2)], ids=["tables", "scans", "many rows"])
def test_work_limit_is_a_budget_that_can_be_reproduced(shape):
    states, values = problem(n=shape[0], d=shape[1])
    exact = OptimalTrees(3, 30).improve(states, values)
    policies = [OptimalTrees(3, 30, work_limit=1, n_jobs=jobs).improve(states, values) for jobs in (1, 2)]
    check_stopped(policies[0], states, values, "work_limit", 3)
    assert policies[0].rules() == policies[1].rules()
    unhurried = OptimalTrees(3, 30, work_limit=10**12).improve(states, values)
    assert unhurried.optimal_on_cuts
    assert unhurried.rules() == exact.rules()


def least_limit(states, values, depth=3, min_leaf=1):
    """The exponent of the least work limit, a power of two, with which the search finishes."""
    space = OptimalTrees(depth, 30, min_leaf)
    return next(e for e in range(40) if replace(space, work_limit=2**e).improve(states, values).optimal_on_cuts)


@pytest.mark.compiled
def test_the_later_half_of_a_loop_has_its_own_limit():
    space = OptimalTrees(max_depth=3, work_limit=10, late_work_limit=1000)
    limits = [space.in_round(k, 5).work_limit for k in range(5)]
    assert limits == [10, 10, 1000, 1000, 1000]
    assert space.in_round(0, 1).work_limit == 1000  # a single round is the last
    assert [OptimalTrees(work_limit=10).in_round(k, 2).work_limit for k in range(2)] == [10, 10]
    wrapped = Constrained(space, [Never(1, when="x0 >= 8")])
    assert [wrapped.in_round(k, 2).space.work_limit for k in range(2)] == [10, 1000]


def test_the_work_of_a_larger_sample_is_larger():
    states, values = problem(n=1200, d=3)
    assert least_limit(states[:150], values[:150]) < least_limit(states, values)


@pytest.mark.compiled
@pytest.mark.parametrize("min_leaf", [1, 8])
def test_equal_rows_are_searched_once(min_leaf):
    states, values = problem(n=150, d=3)
    x, q = np.tile(states, (8, 1)), np.tile(values, (8, 1))
    some = OptimalTrees(3, 30, -(-min_leaf // 8)).improve(states, values)
    all_of_them = OptimalTrees(3, 30, min_leaf).improve(x, q)
    np.testing.assert_array_equal(all_of_them.tree.nodes, some.tree.nodes)
    np.testing.assert_array_equal(all_of_them.tree.counts, 8 * some.tree.counts)
    assert least_limit(x, q, min_leaf=min_leaf) <= 1 + least_limit(states, values, min_leaf=-(-min_leaf // 8))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("engine", [records.BY_TABLES, records.BY_ROWS])
def test_equal_rows_keep_their_number_and_their_losses(monkeypatch, seed, depth, engine):
    """Merged or not, the tree is the same, also if leaves must have a minimum size."""
    rng = np.random.default_rng(seed)
    states, values, weights = tiny_problem(rng, depth)
    again = rng.integers(len(states), size=20)
    given = ImprovementProblem.of(
        states[again], values[again] + rng.integers(0, 2, 20)[:, None], weights=weights[again] + 1
    )
    space = OptimalTrees(depth, min_samples_leaf=int(rng.integers(1, 6)), leaf_penalty=0.1 * (seed % 2))
    merged = space._solved(given, Switches(engine=engine))
    monkeypatch.setattr(_search, "WORTH_MERGING", 0.0)
    assert merged.rules() == space._solved(given, Switches(engine=engine)).rules()


@pytest.mark.compiled
@pytest.mark.parametrize("depth", [3, 4])
def test_the_time_is_kept(depth):
    states, values = slow_problem(depth)
    OptimalTrees(depth, 4).improve(states[:50], values[:50])  # compile
    policy = OptimalTrees(depth, n_thresholds=30, time_limit=0.1 if depth == 3 else 0.3).improve(states, values)
    check_stopped(policy, states, values, "time_limit", depth)


@pytest.mark.compiled
def test_interrupting_the_search_keeps_the_best_tree(monkeypatch):
    looks = []

    def clock():
        looks.append(time.perf_counter())
        if len(looks) == 10:
            signal.raise_signal(signal.SIGINT)
        return looks[-1]

    states, values = slow_problem()
    OptimalTrees(4, 4).improve(states[:50], values[:50])  # compile
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs behind them deaf to it
    try:
        monkeypatch.setattr(_search, "time", SimpleNamespace(perf_counter=clock))  # asked while it waits
        policy = OptimalTrees(4, n_thresholds=30, n_jobs=2).improve(states, values)
    finally:
        signal.signal(signal.SIGINT, before)
    check_stopped(policy, states, values, "interrupt", 4)


@pytest.mark.compiled
def test_a_search_in_another_thread_ends_with_the_main_thread():
    program = """
import threading
import numpy as np
from capi.policy_spaces import OptimalTrees

rng = np.random.default_rng(0)
states, values = rng.normal(size=(3000, 12)), rng.normal(size=(3000, 3))
threading.Thread(target=lambda: print(OptimalTrees(4, 60).improve(states, values).stopped_by)).start()
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "interrupt\n"
    assert "KeyboardInterrupt" in done.stderr


def test_errors_in_the_search_are_told(monkeypatch):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(tables, "one_level", broken)
    with pytest.raises(RuntimeError, match="broken"):
        OptimalTrees(1).improve([[0.0], [1.0]], [[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.compiled
def test_a_policy_says_which_features_have_more_values_than_cuts():
    states, values = problem(n=400)
    states[:, 1] = np.round(states[:, 1])
    policy = OptimalTrees(2, n_thresholds=30).improve(states, values)
    np.testing.assert_array_equal(policy.thinned, [True, False, True])
    assert policy.optimal_on_cuts
    assert not policy.optimal
    assert "(optimal on the chosen quantiles of x0, x2: a tree of depth 2 may lose up to" in policy.rules()
    named = described(policy, Schema.of(3, 3, ["age", "dose", "load"], ["a", "b", "c"]), Training(0.9, 1, None, {}))
    assert "quantiles of age, load" in named.rules()
    every = OptimalTrees(2).improve(states, values)
    assert not every.thinned.any()
    assert every.optimal
    assert every.optimal_on_cuts
    assert every.rules().endswith("(optimal: no tree of depth 2 loses less)")
    assert loss(every, states, values) <= loss(policy, states, values)
    assert loss(policy, states, values) - policy.remaining_gap <= loss(every, states, values)


@pytest.mark.compiled
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_gap_covers_the_optimum_on_all_cuts(depth):
    rng = np.random.default_rng(depth)
    for k in range(40):
        states, values = problem(int(rng.integers(10**6)), n=int(rng.integers(5, 60)), d=2, missing=k % 3 == 0)
        most, min_leaf, penalty = int(rng.integers(1, 8)), int(rng.integers(1, 5)), float(rng.choice([0.0, 0.02]))
        engine = (records.BY_COST, records.BY_TABLES, records.BY_ROWS, records.BY_COLUMNS)[k % 4]
        thin = OptimalTrees(depth, most, min_leaf, penalty)
        some, best = (
            space._solved(ImprovementProblem.of(states, values), Switches(engine=engine))
            for space in (thin, replace(thin, n_thresholds=100))
        )
        costs = [loss(policy, states, values) + penalty * policy.n_leaves for policy in (some, best)]
        assert best.optimal
        assert costs[1] - 1e-9 <= costs[0] <= costs[1] + some.remaining_gap + 1e-9


@pytest.mark.parametrize("apart", [True, False])
def test_cuts_may_move_below_all_known_values_of_a_node(apart):
    """Then missing values go left alone; if that is forbidden, known values of other states must be there, too."""
    n_alone = 0
    for seed in (96, 2995, 3630) if apart else (82, 449, 493):
        rng = np.random.default_rng(seed)
        states = rng.normal(size=(int(rng.integers(4, 20)), int(rng.integers(1, 3))))
        states[rng.random(states.shape) < 0.4] = np.nan
        values = rng.integers(0, 5, size=(len(states), 2)).astype(float)
        policy = OptimalTrees(int(rng.integers(2, 4)), 1, 1, missing_splits=apart).improve(states, values)
        assert loss(policy, states, values) == pytest.approx(policy.leaf_regrets.sum() / len(states), abs=1e-12)
        n_alone += "is known" in policy.rules()
    assert (n_alone > 0) == apart


@pytest.mark.compiled
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_previous_tree_is_a_start_and_nothing_else(depth):
    states, values = problem(n=200, d=3, missing=True)
    space = OptimalTrees(depth, n_thresholds=None if depth < 4 else 6)
    plain = space.improve(states, values)
    for previous in (plain, Trees(max_depth=5).improve(states, values), OptimalTrees(1).improve(states, -values)):
        assert space.improve(states, values, previous=previous).rules() == plain.rules()
    other = OptimalTrees(1).improve(states[:, :1], values)
    assert space.improve(states, values, previous=other).rules() == plain.rules()
    if depth == 3:
        short = replace(space, work_limit=1).improve(states, values, previous=plain)
        assert loss(short, states, values) == pytest.approx(loss(plain, states, values), abs=1e-12)


def test_depth_zero_is_the_best_action():
    states, values = problem(n=50)
    policy = OptimalTrees(0).improve(states, values)
    assert policy.n_leaves == 1
    assert policy.optimal
    assert (policy.act(states) == values.mean(axis=0).argmax()).all()
    assert "no tree of depth 0 loses less" in policy.rules()


@pytest.mark.compiled
@pytest.mark.parametrize("depth", [5, 6])
def test_deep_trees_are_no_worse_than_greedy_ones(depth):
    states, values = problem(n=150, d=3, missing=True)
    greedy = Trees(max_depth=depth, min_samples_leaf=1).improve(states, values)
    shallow = OptimalTrees(3, 20, 1).improve(states, values)
    policies = [OptimalTrees(depth, 20, 1, n_jobs=jobs).improve(states, values) for jobs in (1, 2)]
    ours = loss(policies[0], states, values)
    assert policies[0].rules() == policies[1].rules()
    assert ours < loss(shallow, states, values)
    assert ours <= loss(OptimalTrees(depth, 149, 1).improve(states, values), states, values) + 0.05
    assert (
        loss(OptimalTrees(depth, 149, 1).improve(states, values), states, values)
        <= loss(greedy, states, values) + 1e-12
    )
    assert not policies[0].optimal
    assert 0 < policies[0].remaining_gap <= ours + 1e-12
    assert "too deep for a proof" in policies[0].rules()


@pytest.mark.parametrize("most", [1, 3, 7])
def test_quantile_cuts_share_the_rows_evenly(most):
    rng = np.random.default_rng(0)
    states = np.column_stack([rng.permutation(80), rng.integers(0, 3, size=80), np.zeros(80)]).astype(float)
    states[:8, 0] = np.nan
    binned = Binned.of(states, most)
    np.testing.assert_array_equal(binned.thinned, [True, most < 2, False])
    assert binned.n_bins[0] == most + 2
    sizes = np.bincount(binned.codes[8:, 0])
    assert sizes.min() == sizes.max() == 72 // (most + 1)
    assert (binned.codes[:8, 0] == most + 1).all()
    assert (binned.codes[:8, 1] == 0).all(), "the second copy has missing values first"
    np.testing.assert_array_equal(np.isnan(binned.as_states), np.isnan(states))


def test_missing_values_go_to_the_better_side():
    states = np.array([[1.0], [2.0], [3.0], [np.nan]])
    for late in (0, 1):
        values = np.eye(2)[[0, 0, 1, late]]
        policy = OptimalTrees(1).improve(states, values)
        assert loss(policy, states, values) == 0
        assert policy.to_dict()["missing"] == ("then", "else")[late]
    known = OptimalTrees(1).improve(states, np.eye(2)[[0, 0, 0, 1]])
    assert known.rules().startswith("if x0 is known:\n  0")
    unseen = OptimalTrees(1).improve(states[:3], np.eye(2)[[0, 0, 1]])
    assert unseen.act([[np.nan]]) == [0], "a node that saw none sends them to its larger side"


def test_splits_on_missingness_can_be_forbidden():
    states, values = np.array([[1.0], [2.0], [3.0], [np.nan]]), np.eye(2)[[0, 0, 0, 1]]
    assert OptimalTrees(1).improve(states, values).optimal
    policy = OptimalTrees(1, missing_splits=False).improve(states, values)
    assert loss(policy, states, values) == 0.25
    rng = np.random.default_rng(0)
    for k in range(40):
        states, values, weights = tiny_problem(rng, 2)
        space = OptimalTrees(2, min_samples_leaf=1, missing_splits=False)
        policy = space._solved(
            ImprovementProblem.of(states, values, weights=weights), EVERY_SWITCH[k % len(EVERY_SWITCH)]
        )
        free = replace(space, missing_splits=True).improve(states, values, weights=weights)
        assert " is known" not in policy.rules()
        assert loss(free, states, values, weights) <= loss(policy, states, values, weights) + 1e-12
        if not np.isnan(states).any():
            assert free.rules() == policy.rules()


def test_the_cuts_are_those_of_greedy_trees():
    for seed in range(5):
        states, values = problem(seed, n=50, d=2)
        ours, greedy = (space.improve(states, values) for space in (OptimalTrees(1), Trees(max_depth=1)))
        assert ours.tree.nodes.tobytes() == greedy.tree.nodes.tobytes()
        assert ours.rules().splitlines()[:4] == greedy.rules().splitlines()[:4]


@pytest.mark.compiled
def test_dictionary_drawings_and_importances():
    states, values = problem(n=300)
    policy = OptimalTrees(3, n_thresholds=8).improve(states, values)
    assert policy.to_dot().count("->") == 2 * (policy.n_leaves - 1)
    assert set(policy.to_dict()) == {"feature", "at_most", "missing", "then", "else"}
    assert policy.importances().sum() == pytest.approx(1)
    assert policy.plot() is not None
    assert policy.leaf_regrets.sum() == pytest.approx(300 * loss(policy, states, values))


def masked_problem(rng, depth, n_actions):
    states, _, weights = tiny_problem(rng, depth)
    values = rng.integers(-4, 5, size=(len(states), n_actions)).astype(float)
    allowed = rng.random(values.shape) < 0.6
    allowed[np.arange(len(states)), rng.integers(n_actions, size=len(states))] = True
    return states, values, weights, allowed


def lost_by_rankings(values, weights, allowed):
    """The loss of each ranking of the actions in each state (n, A!)."""
    best = np.where(allowed, values, -np.inf).max(axis=1)
    columns = []
    for order in permutations(range(values.shape[1])):
        taken = [next(a for a in order if row[a]) for row in allowed]
        columns.append((best - values[np.arange(len(values)), taken]) * weights)
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(("depth", "n_problems"), [(0, 50), (1, 300), (2, 200), (3, 20)])
def test_with_masks_all_rankings_are_compared(depth, n_problems):
    rng = np.random.default_rng(depth)
    for k in range(n_problems):
        states, values, weights, allowed = masked_problem(rng, max(depth, 1), int(rng.integers(2, 5)))
        space = OptimalTrees(depth, min_samples_leaf=1, n_jobs=1 + k % 2)
        policy = space.improve(states, values, weights=weights, allowed=allowed)
        kept = np.flatnonzero(weights)
        least = least_cost(states, lost_by_rankings(values, weights, allowed), kept, depth, 1, 0.0)
        cost = gap_weighted_loss(values, policy.act(states, allowed), weights, allowed) * weights.sum()
        assert cost == pytest.approx(least, abs=1e-9), k
        assert policy.leaf_regrets.sum() == pytest.approx(least, abs=1e-9)
        assert policy.optimal
        assert policy.remaining_gap == 0


@pytest.mark.parametrize("depth", [1, 2])
def test_with_masks_and_many_actions_the_gap_covers_the_best_ranking(depth):
    rng = np.random.default_rng(depth)
    for k in range(10):
        states, values, weights, allowed = masked_problem(rng, depth, 6)
        policy = OptimalTrees(depth, min_samples_leaf=1).improve(states, values, weights=weights, allowed=allowed)
        least = least_cost(states, lost_by_rankings(values, weights, allowed), np.flatnonzero(weights), depth, 1, 0.0)
        cost = gap_weighted_loss(values, policy.act(states, allowed), weights, allowed)
        assert cost - policy.remaining_gap <= least / weights.sum() + 1e-9, k
        assert policy.optimal == (policy.remaining_gap == 0 and not policy.substitute)
        if allowed.all():
            continue
        assert policy.substitute
        assert "learned with masks" in policy.rules()


@pytest.mark.parametrize("work_limit", [None, 1])
def test_the_search_for_the_bound_stops_with_the_user_and_never_starts_late(work_limit, monkeypatch):
    """With masks and many actions there are two searches; Ctrl-C in the second one must not get lost."""
    limits = []

    def interruptibly(work, stop, time_limit):
        limits.append(time_limit)
        if len(limits) == 2:
            stop[0] = records.INTERRUPTED
        return work()

    monkeypatch.setattr(optimal, "interruptibly", interruptibly)
    rng = np.random.default_rng(0)
    states, values, allowed = rng.random((60, 3)), rng.random((60, 6)), rng.random((60, 6)) < 0.6
    allowed[:, 0] = True
    policy = OptimalTrees(3, min_samples_leaf=1, time_limit=50.0, work_limit=work_limit).improve(
        states, values, allowed=allowed
    )
    if work_limit is None:
        assert policy.stopped_by == "interrupt"
        assert limits[0] == 50.0 > limits[1]
    else:
        assert policy.stopped_by == "work_limit"
        assert len(limits) == 1
        assert policy.remaining_gap == pytest.approx(
            gap_weighted_loss(values, policy.act(states, allowed), None, allowed)
        )


def test_rankings_that_take_too_much_memory_are_not_compared(monkeypatch):
    monkeypatch.setattr(_rankings, "MOST_NUMBERS", 6)
    states, values, weights, allowed = masked_problem(np.random.default_rng(0), 2, 3)
    assert OptimalTrees(1).improve(states, values, weights=weights, allowed=allowed).substitute


def test_ranked_trees_are_saved_with_their_proof(tmp_path):
    states, values, weights, allowed = masked_problem(np.random.default_rng(0), 2, 3)
    policy = OptimalTrees(1, min_samples_leaf=1).improve(states, values, weights=weights, allowed=allowed)
    policy.save(tmp_path / "tree.capi", with_states=True)
    again = load_policy(tmp_path / "tree.capi")
    assert again.optimal
    np.testing.assert_array_equal(again.ranking, policy.ranking)
    np.testing.assert_array_equal(again.act(states, allowed), policy.act(states, allowed))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 8),
    st.sampled_from([None, 1, 1000]),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.2]),
)
def test_the_gap_always_covers_the_optimum_on_all_cuts(seed, depth, n_thresholds, work_limit, min_leaf, penalty):
    rng = np.random.default_rng(seed)
    states, values, weights = tiny_problem(rng, depth)
    states = states + 0.1 * rng.integers(0, 3, size=states.shape)  # more values than cuts
    space = OptimalTrees(depth, n_thresholds, min_leaf, penalty, work_limit=work_limit)
    policy = space.improve(states, values, weights=weights)
    lost, price = (values.max(axis=1, keepdims=True) - values) * weights[:, None], penalty * weights.sum()
    least = least_cost(states, lost, np.flatnonzero(weights), depth, min_leaf, price) / weights.sum()
    cost = gap_weighted_loss(values, policy.act(states), weights) + penalty * policy.n_leaves
    assert least - 1e-9 <= cost <= least + policy.remaining_gap + 1e-9
    assert not policy.optimal or cost == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("depth", [2, 3])
def test_planted_trees_are_found(depth):
    """States whose best actions are those of a tree lose nothing, on the columns that matter among those that do not."""
    rng = np.random.default_rng(depth)
    states = rng.normal(size=(300, 6))
    cuts = rng.normal(scale=0.5, size=2**depth - 1)
    columns = rng.integers(6, size=len(cuts))
    at = np.zeros(300, dtype=int)
    for _ in range(depth):
        at = 2 * at + 1 + (states[np.arange(300), columns[at]] > cuts[at])
    values = np.eye(3)[(at - 2**depth + 1) % 3] + 0.0
    policy = OptimalTrees(depth, min_samples_leaf=1).improve(states, values)
    assert policy.optimal
    assert loss(policy, states, values) == 0


@pytest.mark.compiled
def test_the_order_and_the_scale_of_rows_do_not_matter():
    states, values = problem(n=200, missing=True)
    values = np.round(8 * values) / 8
    plain = OptimalTrees(3, n_thresholds=12).improve(states, values)
    order = np.random.default_rng(0).permutation(200)
    mixed = OptimalTrees(3, n_thresholds=12).improve(states[order], values[order])
    assert mixed.rules() == plain.rules()
    tiny = OptimalTrees(3, n_thresholds=12).improve(states, np.ldexp(values, -1060))
    np.testing.assert_array_equal(tiny.act(states), plain.act(states))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: OptimalTrees(-1), "max_depth must be an integer, at least 0"),
        (lambda: OptimalTrees(7), "max_depth must be at most 6; got 7. Use Trees for deeper"),
        (lambda: OptimalTrees(n_thresholds=0), "n_thresholds"),
        (lambda: OptimalTrees(n_thresholds=10**6), "n_thresholds must be at most"),
        (lambda: OptimalTrees(min_samples_leaf=0), "min_samples_leaf"),
        (lambda: OptimalTrees(leaf_penalty=-1.0), "leaf_penalty"),
        (lambda: OptimalTrees(time_limit=0.0), "time_limit"),
        (lambda: OptimalTrees(node_limit=0), "node_limit"),
        (lambda: OptimalTrees(work_limit=0), "work_limit"),
        (lambda: OptimalTrees(n_jobs=0), "n_jobs"),
        (lambda: OptimalTrees().improve([0.0], [[0.0, 1.0]]), "two dimensions"),
        (lambda: OptimalTrees().improve([[np.inf]], [[0.0, 1.0]]), "must not be infinite"),
        (lambda: OptimalTrees().improve([[0.0]] * 2, [[0.0, 1e308]] * 2), "finite sum"),
        (
            lambda: OptimalTrees().improve(np.full((1, 9000), np.nan), [[0.0, 1.0]]),
            "counting those with missing values twice",
        ),
        (lambda: OptimalTrees(1).improve([[0.0]], [[0.0, 1.0]]).act(np.zeros((1, 2))), "must have 1 columns"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


def test_cuts_are_moved_to_where_they_lose_least():
    rng = np.random.default_rng(0)
    states = rng.random((500, 2))
    values = np.eye(2)[((states[:, 0] > 0.337) ^ (states[:, 1] > 0.713)).astype(int)]
    few = OptimalTrees(2, n_thresholds=5, min_samples_leaf=1)
    policy = few.improve(states, values)
    assert loss(policy, states, values) == 0  # the quantiles alone lose some
    assert policy.optimal
    cuts = {policy.to_dict()["at_most"], policy.to_dict()["then"]["at_most"]}
    np.testing.assert_allclose(sorted(cuts), [0.337, 0.713], atol=0.01)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_moved_cuts_never_lose_more_and_keep_the_size_of_leaves(depth, monkeypatch):
    for seed in range(6):
        states, values = problem(seed, n=300, missing=seed % 2 == 1)
        weights = np.random.default_rng(seed).random(300)
        space = OptimalTrees(depth, n_thresholds=4, min_samples_leaf=7)
        moved = space.improve(states, values, weights=weights)
        with monkeypatch.context() as patch:
            patch.setattr(_refined.Refinement, "best", lambda _, tree: (tree, 0.0))
            stayed = space.improve(states, values, weights=weights)
        assert loss(moved, states, values, weights) <= loss(stayed, states, values, weights) + 1e-12
        assert moved.remaining_gap <= stayed.remaining_gap + 1e-12
        assert moved.tree.counts.min() >= 7
        assert moved.leaf_regrets.sum() == pytest.approx(weights.sum() * loss(moved, states, values, weights))


@pytest.mark.parametrize(("n_values", "compared"), [(2, True), (4, True), (50, False)])
def test_all_trees_are_compared_only_if_columns_have_few_cuts(n_values, compared):
    rng = np.random.default_rng(0)
    sample = ImprovementProblem.of(rng.integers(n_values, size=(200, 6)).astype(float), rng.normal(size=(200, 2)))
    limits = _search.Limits(max_depth=4, min_samples_leaf=1, leaf_penalty=0.0)
    search = _search.Search.of(sample, Binned.of(sample.states, 255), limits, 200.0, Switches())
    assert search._all_can_be_compared() is compared
