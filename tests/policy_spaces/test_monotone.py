from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capi.errors import InvalidInputError
from capi.loss import gap_weighted_loss
from capi.policy_spaces import Constrained, Linear, OptimalTrees, Thresholds, Trees
from capi.policy_spaces._monotone import monotone_actions
from capi.policy_spaces.rules import Monotone


def leaves_below(nodes, i):
    left = int(nodes["left"][i])
    return [-1 - left] if left < 0 else leaves_below(nodes, left) + leaves_below(nodes, left + 1)


def in_order(nodes, actions, monotone):
    """Whether at each split on such a feature all actions below one side keep the order with those below the other."""
    for i in range(len(nodes)):
        left, direction = int(nodes["left"][i]), monotone.get(int(nodes["feature"][i]), 0)
        if left >= 0 and direction:
            low, high = ([actions[k] for k in leaves_below(nodes, side)] for side in (left, left + 1))
            if direction * (min(high) if direction > 0 else max(high)) < direction * (
                max(low) if direction > 0 else min(low)
            ):
                return False
    return True


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("monotone", [{0: 1}, {0: -1}, {0: 1, 1: -1}])
def test_leaves_get_the_best_actions_of_all_that_keep_the_order(seed, monotone):
    rng = np.random.default_rng(seed)
    states, values = rng.normal(size=(40, 2)), rng.normal(size=(40, 3))
    tree = Trees(max_depth=2).improve(states, values).tree
    found = monotone_actions(tree.nodes, tree.sums, monotone)
    n_leaves = len(tree.sums)
    losses = {
        actions: sum(tree.sums[k, a] for k, a in enumerate(actions))
        for actions in product(range(3), repeat=n_leaves)
        if in_order(tree.nodes, actions, monotone)
    }
    assert in_order(tree.nodes, found, monotone)
    assert losses[tuple(int(a) for a in found)] == pytest.approx(min(losses.values()))


@pytest.mark.parametrize("direction", [1, -1])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_trees_keep_the_order_in_every_state(direction, seed):
    rng = np.random.default_rng(seed)
    states, values = rng.normal(size=(80, 2)), rng.normal(size=(80, 4))
    policy = Trees(max_depth=4, monotone={0: direction}).improve(states, values)
    for other in rng.normal(size=8):
        line = np.column_stack([np.linspace(-4, 4, 101), np.full(101, other)])
        assert (direction * np.diff(policy.act(line)) >= 0).all()
    leaves = [line for line in policy.rules().splitlines() if "regret" in line]
    lost = sum(float(line.split("regret ")[1].rstrip(")")) for line in leaves)
    assert lost == pytest.approx(80 * gap_weighted_loss(values, policy.act(states)), rel=1e-2)


def test_where_the_order_is_natural_nothing_is_lost():
    states = np.linspace(0, 1, 90)[:, None]
    values = np.eye(3)[np.repeat([0, 1, 2], 30)]
    rising = Trees(monotone={0: 1}).improve(states, values)
    assert gap_weighted_loss(values, rising.act(states)) == 0
    falling = Trees(monotone={0: -1}).improve(states, values)
    assert falling.n_leaves == 1


def test_a_rule_makes_any_of_these_spaces_monotone():
    rng = np.random.default_rng(3)
    states, values = rng.normal(size=(60, 2)), rng.normal(size=(60, 3))
    line = np.column_stack([np.linspace(-4, 4, 101), np.zeros(101)])
    for space in (Thresholds(), Trees(max_depth=3), OptimalTrees(max_depth=3), Linear()):
        policy = Constrained(space, [Monotone(0)]).improve(states, values)
        assert (np.diff(policy.act(line)) >= 0).all()


def test_an_order_is_not_guaranteed_with_masks():
    allowed = np.ones((60, 3), dtype=bool)
    allowed[0, 0] = False
    for make in (Thresholds, Trees, OptimalTrees, Linear):
        with pytest.raises(InvalidInputError, match="monotone cannot be guaranteed with masks"):
            make(monotone={0: 1}).improve(np.zeros((60, 2)), np.eye(60)[:, :3], allowed=allowed)


def test_an_order_that_costs_nothing_leaves_a_tree_optimal():
    states = np.linspace(0, 1, 90)[:, None]
    values = np.eye(3)[np.repeat([0, 1, 2], 30)]
    rising, falling = (OptimalTrees(max_depth=2, monotone={0: way}).improve(states, values) for way in (1, -1))
    assert rising.optimal
    assert gap_weighted_loss(values, rising.act(states)) == 0
    assert not falling.optimal
    assert falling.remaining_gap == pytest.approx(gap_weighted_loss(values, falling.act(states)))
    assert "made monotone" in falling.rules()
    assert (np.diff(falling.act(states)) <= 0).all()
