"""The bound on trees with any cuts, against all trees of tiny problems."""

import numpy as np
import pytest

from capi._utils.compile import JIT
from capi.loss import gap_weighted_loss
from capi.policy_spaces import OptimalTrees
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.trees import _between_cuts, optimal
from capi.policy_spaces.trees._between_cuts import Column
from capi.policy_spaces.trees._binned import Binned
from capi.policy_spaces.trees._search import Limits, Search, Switches
from capi.trees._optimal import records


def tiny(rng, n_values):
    """Return states with up to ``n_values`` per column, some missing, and losses in whole numbers."""
    n, d, n_actions = int(rng.integers(2, 12)), int(rng.integers(1, 4)), int(rng.integers(2, 6))
    states = rng.integers(0, n_values, size=(n, d)).astype(float)
    if rng.random() < 0.5:
        states[rng.random((n, d)) < 0.2] = np.nan
    values = -rng.integers(0, 10, size=(n, n_actions)).astype(float)
    return states, values


def bound_of(states, values, depth, most_cuts, most_bins, *, penalty=0.0, apart=True, lost=None):
    """Return the bound and the cost of the best tree on ``most_cuts``, in the same units."""
    sample = ImprovementProblem(states, values).counted
    limits = Limits(depth, 1, penalty)
    binned = Binned.of(sample.states, most_cuts, missing_apart=apart)
    search = Search.of(sample, binned, limits, len(states), Switches())
    lost = search.problem.losses.mean(axis=1) if lost is None else lost
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_between_cuts, "MOST_BINS", dict.fromkeys((1, 2, 3), most_bins))
        found = _between_cuts.least_cost(search.problem, binned, lost, depth, np.zeros(1, dtype=np.int64))
    return found, search.run(1).cost


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("apart", [True, False])
def test_without_merged_bins_the_bound_is_the_least_cost(depth, apart):
    rng = np.random.default_rng(depth)
    for _ in range(60 if JIT else 4):
        states, values = tiny(rng, 5)
        penalty = float(rng.choice([0.0, 0.3]))
        bound, cost = bound_of(states, values, depth, 10, 30, penalty=penalty, apart=apart)
        assert bound == (cost if (values != values[:, :1]).any() else 0)  # without any loss nothing is computed


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("most_bins", [1, 2, 4, 30])
def test_no_tree_on_any_cuts_costs_less_than_the_bound(depth, most_bins):
    rng = np.random.default_rng(10 * depth + most_bins)
    positive = 0
    for _ in range(60 if JIT else 4):
        states, values = tiny(rng, 40)
        apart, penalty = bool(rng.random() < 0.5), float(rng.choice([0.0, 0.3]))
        lost = rng.random(len(states))  # any weights of rows give a bound
        thin = int(rng.integers(1, 6))
        bound, _ = bound_of(states, values, depth, thin, most_bins, penalty=penalty, apart=apart, lost=lost)
        _, least = bound_of(states, values, depth, 60, most_bins, penalty=penalty, apart=apart)
        assert bound <= least
        positive += bound > 0.5 * least
    assert positive > (5 if JIT else -1)  # it is not trivial


def test_bins_are_merged_where_little_is_lost():
    codes = np.arange(8).repeat(5).astype(np.uint16)
    lost = np.where(codes < 2, 10.0, 1.0)
    column = Column.of(codes, np.zeros(8, dtype=bool), lost, 4)
    np.testing.assert_array_equal(column.codes[::5], [0, 1, 2, 2, 2, 2, 2, 2])
    np.testing.assert_array_equal(column.divisible, [False, False, True])
    assert column.options == [(2, 3), (1, 1)]  # the cut between 1 and 2 loses no less than one inside
    one = Column.of(codes, np.ones(8, dtype=bool), lost, 8)
    np.testing.assert_array_equal(one.codes, codes)
    assert one.options == [(b, b + 1) for b in range(8)]


def test_bins_with_cuts_that_were_left_out_are_known():
    values = np.array([1.0, 1, 1, 1, 2, 3, 4, np.nan])[:, None]
    binned = Binned.of(values, 1)
    assert binned.thinned.all()
    np.testing.assert_array_equal(binned.codes[:, 0], [0, 0, 0, 0, 1, 1, 1, 2])
    np.testing.assert_array_equal(binned.divisible[0], [False, True, False])
    np.testing.assert_array_equal(binned.divisible[1], [False, False, True])
    assert not Binned.of(values, 3).thinned.any()


def smooth(n=3000):
    rng = np.random.default_rng(3)
    states = rng.normal(size=(n, 3))
    return states, np.sin(2 * states @ rng.normal(size=(3, 3))) + 0.3 * rng.normal(size=(n, 3))


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("depth", "work_limit", "most"), [(1, None, 0.1), (2, None, 0.1), (3, None, 0.25), (3, 1, 0.4)]
)
def test_the_gap_is_a_small_part_of_the_loss(depth, work_limit, most):
    states, values = smooth()
    policy = OptimalTrees(depth, n_thresholds=64, work_limit=work_limit).improve(states, values)
    assert policy.stopped_by == (None if work_limit is None else "work_limit")
    assert 0 < policy.remaining_gap < most * gap_weighted_loss(values, policy.act(states))


def test_with_masks_the_gap_covers_the_best_ranking():
    rng = np.random.default_rng(4)
    for _ in range(30 if JIT else 2):
        states, values = rng.normal(size=(40, 2)), rng.normal(size=(40, 3))
        allowed = rng.random((40, 3)) < 0.7
        allowed[:, 0] = True
        thin, every = (OptimalTrees(2, cuts, 1).improve(states, values, allowed=allowed) for cuts in (4, None))
        least, found = (gap_weighted_loss(values, p.act(states, allowed), None, allowed) for p in (every, thin))
        assert every.optimal
        assert least - 1e-9 <= found <= least + thin.remaining_gap + 1e-9


@pytest.mark.compiled
def test_wide_tables_have_no_such_bound(monkeypatch):
    states, values = smooth(300)
    close = OptimalTrees(3, n_thresholds=8).improve(states, values)
    monkeypatch.setattr(_between_cuts, "MOST_STEPS", 10)
    loose = OptimalTrees(3, n_thresholds=8).improve(states, values)
    assert loose.rules().splitlines()[:-1] == close.rules().splitlines()[:-1]
    assert close.remaining_gap < loose.remaining_gap <= gap_weighted_loss(values, loose.act(states))


@pytest.mark.compiled
@pytest.mark.parametrize("by", [records.INTERRUPTED, records.BY_TIME])
def test_the_bound_stops_with_the_user_and_with_the_time(by, monkeypatch):
    """The search itself is finished, so that only Ctrl-C is told, which must not get lost."""
    n_calls = 0

    def interruptibly(work, stop, time_limit):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            assert 0 < time_limit < 50
            stop[0] = by
        return work()

    states, values = smooth(300)
    monkeypatch.setattr(optimal, "interruptibly", interruptibly)
    policy = OptimalTrees(3, n_thresholds=8, min_samples_leaf=1, time_limit=50.0).improve(states, values)
    assert n_calls == 2
    assert policy.stopped_by == ("interrupt" if by == records.INTERRUPTED else None)
    assert policy.remaining_gap == pytest.approx(gap_weighted_loss(values, policy.act(states)))
