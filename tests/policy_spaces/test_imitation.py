from dataclasses import replace

import numpy as np
import pytest

from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.features.kernels import Gaussian
from capi.policies import Constant
from capi.policy_spaces import Constrained, Forests, LocalAverages, Neighbors
from capi.policy_spaces.imitation import imitation
from capi.policy_spaces.rules import Never


@pytest.mark.parametrize(
    "space", [Forests(n_trees=5), Neighbors(10), LocalAverages(Gaussian(0.05))], ids=lambda s: type(s).__name__
)
def test_what_cannot_be_printed_is_told_by_a_tree_that_imitates_it(space):
    rng = np.random.default_rng(0)
    states = rng.uniform(size=(400, 2))
    values = np.where(states[:, :1] < 0.5, [[1.0, 0.0]], [[0.0, 1.0]])
    policy = replace(space.improve(states, values), schema=Schema(("load", "age"), ("wait", "treat")))
    lines = policy.rules(max_depth=1).splitlines()
    tree = policy.to_dict(max_depth=1)
    shown = float(lines[1].split(" in ")[1].split(" %")[0])
    assert lines[1].endswith("% of 400 states:")
    assert shown == pytest.approx(100 * tree["fidelity"], abs=0.06)
    assert tree["fidelity"] > 0.9
    assert tree["imitation"]["feature"] == "load"
    assert tree["imitation"]["at_most"] == pytest.approx(0.5, abs=0.1)
    assert tree["imitation"]["then"]["action"] == "wait"
    elsewhere = policy.rules(np.full((3, 2), 0.9))
    assert "This tree makes the same decision in 100.0 % of 3 states:\ntreat  (3 states, regret 0)\n" in elsewhere


def test_the_numbers_of_an_imitating_tree_are_explained():
    """Its regret counts states, unlike that of a tree that was learned; and no better tree is recommended."""
    rng = np.random.default_rng(0)
    states = rng.uniform(size=(300, 2))
    policy = Forests(n_trees=3).improve(states, rng.normal(size=(300, 2)))
    found = imitation(policy, states, max_depth=2)
    lines = policy.rules(states, max_depth=2).splitlines()
    assert lines[-1] == "(regret: states of the leaf in which the policy decides otherwise)"
    regrets = [float(line.split("regret ")[1].rstrip(")")) for line in lines[2:-1] if "regret " in line]
    assert sum(regrets) == pytest.approx((1 - found.fidelity) * 300)
    assert "OptimalTrees" not in "\n".join(lines)


def test_masks_go_into_the_imitation():
    rng = np.random.default_rng(1)
    states, values = rng.uniform(size=(200, 2)), rng.normal(size=(200, 3))
    allowed = rng.random((200, 3)) < 0.8
    allowed[:, 0] = True
    policy = Forests(n_trees=5).improve(states, values, allowed=allowed)
    with pytest.raises(InvalidInputError, match="learned with masks"):
        policy.rules()
    assert ", else " in policy.rules(states, allowed)


def test_fidelity_is_the_share_of_equal_decisions():
    """No tree of depth 1 can play a checkerboard in more than half of its fields, but it can play a constant."""
    states = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    board = Neighbors(1).improve(states, np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]))
    assert imitation(board, states, max_depth=1).fidelity == 0.5
    assert imitation(board, states, max_depth=2).fidelity == 1.0
    assert imitation(Constant(1, 2), states).tree.n_leaves == 1


def test_a_policy_without_its_states_asks_for_them():
    policy = replace(Forests(n_trees=2).improve(np.arange(4.0)[:, None], np.eye(4)[:, :2]), origin=None)
    with pytest.raises(InvalidInputError, match="states must be given"):
        policy.rules()


def test_under_rules_the_whole_policy_is_imitated():
    rng = np.random.default_rng(2)
    states = rng.uniform(size=(400, 2))
    values = np.stack([np.full(400, 0.4), states[:, 0]], axis=1)
    policy = Constrained(Forests(n_trees=5), [Never(1, when="x0 > 0.7")]).improve(states, values)
    lines = policy.rules().splitlines()
    assert lines[0].startswith("A vote of 5 trees")
    assert "\n".join(lines[2:-3]) == imitation(policy, states).tree.rules()
    assert lines[-2:] == ["keeping to:", "  never 1 when x0 > 0.7"]
    assert policy.rules(states[states[:, 0] > 0.8]).splitlines()[2].startswith("0  (")
