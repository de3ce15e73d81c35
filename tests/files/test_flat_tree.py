"""Trees of programs as arrays."""

import numpy as np
import pytest

from capi.files.exports.flat_tree import FlatTree
from capi.files.exports.program import program_of
from capi.files.exports.python import python_code
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.report.program_record import program_record
from capi.trees._kernels.records import NODE
from capi.trees.forest import Tree

A, B = (0,), (1,)


def tree_of(*nodes):
    """Return a tree of splits (feature, threshold, missing_left, left) and leaves, given as their numbers."""
    splits = [node if isinstance(node, tuple) else (0, 0.0, False, -1 - node) for node in nodes]
    table = np.zeros(len(nodes), dtype=NODE)
    for i, (feature, threshold, missing_left, left) in enumerate(splits):
        table[i] = (threshold, left, feature, missing_left, 0)
    n_leaves = (len(nodes) + 1) // 2
    sums = np.zeros((n_leaves, 2))
    sums[np.arange(n_leaves), np.arange(n_leaves) % 2] = 1.0
    counts = np.ones(n_leaves, dtype=np.int64)
    return Tree(table, np.zeros(len(nodes)), sums, np.ones(n_leaves), counts, np.zeros(0, dtype=np.int32))


def chain(n_splits):
    """Return a tree, depth-first, that splits off one leaf after the other."""
    nodes = [(0, 0.0, False, 1)]
    for i in range(n_splits):
        last = i == n_splits - 1
        nodes += [i, n_splits if last else (0, i + 1.0, False, 2 * i + 3)]
    return tree_of(*nodes)


# Children of node 1 come last, as in a tree that was grown depth-first from the right.
UNEVEN = tree_of((0, 0.5, True, 1), (1, 1.5, False, 5), (2, np.inf, False, 3), 0, 1, 2, 3)


def test_nodes_are_numbered_breadth_first():
    flat = FlatTree.of(UNEVEN, [A, B, A, B])
    assert flat.feature == [0, 1, 2, -1, -1, -1, -1]
    assert flat.at_most == [0.5, 1.5, np.inf, 0.0, 0.0, 0.0, 0.0]
    assert flat.missing_left == [True, False, False, False, False, False, False]
    assert flat.left == [1, 3, 5, -1, -1, -1, -1]
    assert flat.actions == [(), (), (), A, B, A, B]  # leaves 2 and 3, then 0 and 1
    assert flat.levels == [0, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("rankings", "feature", "actions"),
    [
        ([A, B, A, A], [0, -1, 2, -1, -1], [(), A, (), A, B]),
        ([B, B, A, A], [0, -1, -1], [(), A, B]),
        ([A, A, A, A], [-1], [A]),
        ([(0, 1), A, A, B], [0, 1, 2, -1, -1, -1, -1], [(), (), (), A, B, (0, 1), A]),
    ],
)
def test_splits_between_leaves_with_the_same_actions_are_merged_bottom_up(rankings, feature, actions):
    flat = FlatTree.of(UNEVEN, rankings)
    assert (flat.feature, flat.actions) == (feature, actions)


def test_exports_number_nodes_depth_first_from_the_right():
    flat = FlatTree.of(UNEVEN, [A, B, A, B])
    found = [(node, number, left if flat.left[node] >= 0 else None) for node, number, left in flat.renumbered()]
    assert found == [(0, 0, 1), (2, 2, 3), (6, 4, None), (5, 3, None), (1, 1, 5), (4, 6, None), (3, 5, None)]


def test_small_trees_lead_where_they_say():
    states = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, np.nan]])
    split = FlatTree.split(1, 1.5, A, B)
    assert [split.actions[leaf] for leaf in split.leaf_of(states)] == [A, B, B]
    assert FlatTree.leaf(B).leaf_of(states).tolist() == [0, 0, 0]
    assert FlatTree.leaf(B).actions == [B]


def test_trees_deeper_than_the_recursion_limit_become_programs():
    n = 3000
    policy = TreePolicy(chain(n), 2, 1, np.zeros(1, dtype=bool), np.zeros(n + 1))
    program = program_of(policy)
    assert (program.depth, program.used) == (n, [0])
    record = program_record(program)
    assert len(record["trees"][0]["f"]) == 2 * n + 1
    scope = {}
    exec(python_code(program), scope)
    states = np.arange(0.0, n, 97.0)
    assert [scope["decide"](x0=x) for x in states] == policy.act(states[:, None]).tolist()


def test_records_do_not_share_lists_with_the_program():
    program = program_of(TreePolicy(UNEVEN, 2, 3, np.zeros(3, dtype=bool), np.zeros(4)))
    program_record(program)["trees"][0]["f"].clear()
    assert len(program.trees[0].feature) == len(program.trees[0])
