from itertools import product

import numpy as np
import pytest

from capi.policy_spaces import Trees
from capi.policy_spaces.monotone import monotone_actions


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
