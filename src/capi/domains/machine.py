"""Machine maintenance: when to overhaul or replace a machine that deteriorates.

What it is for: four states, so every policy can be compared by hand.

Source: the prototype example of the chapter on Markov decision processes in Hillier and Lieberman, "Introduction to operations
research". The book offers only sensible actions in each state. Here all are allowed: an overhaul of a machine as good as new leaves
minor wear, and an inoperable machine stays so, and loses the production, until it is replaced. The optimum is that of the book.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from capi._utils.parameters import Constraints, check_parameters
from capi._utils.validation import as_discount
from capi.domains._outcomes import RuleDomain, State, mdp_of
from capi.finite.mdp import FiniteMDP

NOTHING, OVERHAUL, REPLACE = 0, 1, 2
WORN, INOPERABLE = 1, 3
WEAR = ((0, 7 / 8, 1 / 16, 1 / 16), (0, 3 / 4, 1 / 8, 1 / 8), (0, 0, 1 / 2, 1 / 2), (0, 0, 0, 1))
DEFECTS = (0.0, 1_000.0, 3_000.0, 2_000.0)  # cost of a week; of the inoperable machine, the lost production
COSTS = (0.0, 4_000.0, 6_000.0)  # of the actions, with the lost production


@dataclass(frozen=True, eq=False)
class MachineMaintenance(RuleDomain):
    """A machine that deteriorates, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          ``condition``: 0 good as new, 1 minor wear, 2 major wear, 3 inoperable
    actions        0 nothing, 1 overhaul (to condition 1, unless inoperable), 2 replace
                   (to condition 0)
    dynamics       without maintenance the condition deteriorates at random
    reward         minus the costs of defects, maintenance and lost production in dollars
    start          good as new
    end            never
    =============  ==========================================================================

    Parameters
    ----------
    discount : float in [0, 1)
        0.9 in the book.

    Examples
    --------
    >>> MachineMaintenance().mdp.optimal_values.round()  # the book has 14,949, 16,262, 18,636 and 19,454
    array([-14949., -16262., -18635., -19454.])
    """

    discount: float = 0.9

    n_actions = 3
    feature_names = ("condition",)
    action_labels = ("nothing", "overhaul", "replace")

    _constraints: ClassVar[Constraints] = {"discount": as_discount}

    def __post_init__(self) -> None:
        check_parameters(self)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The machine as a finite MDP."""
        return mdp_of(
            {(0.0,): 1.0},
            _weeks,
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )


def _weeks(state: State, action: int) -> Iterator[tuple[float, State, float]]:
    condition = int(state[0])
    if action == NOTHING:
        for following, chance in enumerate(WEAR[condition]):
            yield chance, (float(following),), -DEFECTS[condition]
    elif action == OVERHAUL:
        yield 1.0, (float(condition if condition == INOPERABLE else WORN),), -COSTS[action]
    else:
        yield 1.0, (0.0,), -COSTS[action]
