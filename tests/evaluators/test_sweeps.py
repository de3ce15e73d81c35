"""What fitted Q evaluation shares, whatever it regresses with."""

import numpy as np
import pytest

from capi import Transitions
from capi.errors import DivergenceError
from capi.evaluators import LSTDQ, BellmanResidual, Exact, FittedQ, KernelFittedQ
from capi.evaluators._sweeps import (
    SETTLED,
    after_sweeps,
    bellman_targets,
    finite_targets,
    following_values,
    makes_sweeps,
    movements,
    settled_targets,
    stands_still,
    with_one_sweep,
)
from capi.features import OneHot

BATCH = Transitions([[0.0], [1.0]], [0, 1], [1.0, 2.0], [[1.0], [0.0]], [False, True])


class Table:
    """A Q that is known everywhere, and can be asked for what occurs."""

    n_actions = 2

    def values(self, states):
        return np.array([[10.0, 20.0], [30.0, 40.0]])[states[:, 0].astype(int)]

    def expected(self, states, decisions):
        return self.values(states)[:, 0] + 0.5


def test_targets_add_nothing_after_the_end():
    np.testing.assert_array_equal(bellman_targets(BATCH, 0.5, np.array([8.0, np.nan])), [5.0, 2.0])


def test_values_of_next_states_start_from_zero_and_ask_ones_own_kind_for_less():
    actions, probabilities = np.array([1, 0]), np.array([[0.5, 0.5], [1.0, 0.0]])
    np.testing.assert_array_equal(following_values(None, Table, BATCH, actions), [0.0, 0.0])
    np.testing.assert_array_equal(following_values(Table(), FittedQ, BATCH, actions), [40.0, 10.0])
    np.testing.assert_array_equal(following_values(Table(), FittedQ, BATCH, probabilities), [35.0, 10.0])
    np.testing.assert_array_equal(following_values(Table(), Table, BATCH, actions), [30.5, 10.5])


def test_so_many_sweeps_or_until_settled():
    def sweep(x):
        return x + 1

    assert after_sweeps(1, sweep, 1, settled=None) == 1
    assert after_sweeps(1, sweep, 4, settled=None) == 4
    assert after_sweeps(1, sweep, None, settled=lambda first: 100 * first) == 100


def test_movements_compare_each_sweep_with_the_one_before():
    found = movements(np.array([0.0, 4.0]), lambda x: -x / 2, lambda x: x)
    swept, moved, largest = next(found)
    assert (swept.tolist(), moved, largest) == ([0.0, -2.0], 6.0, 2.0)
    swept, moved, largest = next(found)
    assert (swept.tolist(), moved, largest) == ([0.0, 1.0], 3.0, 1.0)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99])
def test_sweeps_that_contract_settle_where_they_say(discount):
    found = settled_targets(np.array([0.0]), lambda x: 1 + discount * x, discount, 1.0, "")
    assert abs(found[0] * (1 - discount) - 1) <= 2 * SETTLED
    assert stands_still(0.0, 0.0, discount)
    assert not stands_still(1.0, 1.0, 0.5)


def test_sweeps_that_expand_are_given_up_with_advice():
    with pytest.raises(
        DivergenceError, match=r"^Q must converge; after \d+ sweeps it has reached .* of that. Take less.$"
    ):
        settled_targets(np.array([1.0]), lambda x: 2 * x, 0.9, 1.0, "Take less.")
    with pytest.raises(DivergenceError, match="after 94 sweeps"):  # three times the 31 of a contraction, and one more
        settled_targets(np.array([1.0]), lambda x: -x, 0.5, 1.0, "")
    with pytest.raises(DivergenceError, match=r"^Q must stay finite; it became infinite or NaN"):
        finite_targets(np.array([1.0, np.inf]), "Take less.")


def test_evaluators_that_make_sweeps_are_known():
    assert with_one_sweep(FittedQ(n_trees=3, n_sweeps=7)) == FittedQ(n_trees=3, n_sweeps=1)
    assert makes_sweeps(KernelFittedQ())
    assert makes_sweeps(LSTDQ(OneHot(2)))
    assert not makes_sweeps(BellmanResidual(OneHot(2)))
    assert not makes_sweeps(Exact)
