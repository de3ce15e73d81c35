"""Inventory management: how much to order when the stock is low.

What is hard about it for small trees: there is one feature and a hundred actions, and each leaf may name one amount only.

Source: Example 1.1 of Szepesvari, "Algorithms for reinforcement learning" (2010), with the numbers of Vos and Verwer, "Optimal
decision tree policies for Markov decision processes" (2023); as there, the whole order is paid, even what the warehouse cannot hold.
The rewards of the arrays in use there weigh each outcome by the square of its probability; ``squared_chances`` gives these arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from scipy.stats import poisson

from capi._utils.parameters import Constraints, at_least, check_parameters
from capi._utils.validation import Floats, as_discount, as_not_negative, as_positive
from capi.domains._outcomes import RuleDomain, State, mdp_of
from capi.finite.mdp import FiniteMDP

LARGEST_DEMAND = 5  # times the mean; larger ones are cut off


@dataclass(frozen=True, eq=False)
class InventoryManagement(RuleDomain):
    """A warehouse with random demand, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          ``inventory``, 0 .. capacity
    actions        0 nothing, a orders a units, up to capacity - 1
    dynamics       the order arrives, what exceeds the capacity is lost, then a Poisson number
                   of units is asked for and sold if there
    reward         price x units sold, less the fixed cost and the unit cost of an order and
                   the holding cost of each unit at the beginning of the day
    start          empty
    end            never
    =============  ==========================================================================

    Parameters
    ----------
    capacity : int
    demand : float
        Mean number of units asked for per day.
    fixed_cost, unit_cost, holding_cost, price : float
    squared_chances : bool
        Whether the reward of a state and an action is the sum, over the next stocks, of reward times squared probability,
        as in published benchmarks, instead of the expected reward.
    discount : float in [0, 1)

    Examples
    --------
    >>> warehouse = InventoryManagement(capacity=20, demand=4.0).mdp
    >>> warehouse
    FiniteMDP: 21 states, 20 actions, discount 0.99, dense
    """

    capacity: int = 100
    demand: float = 15.0
    fixed_cost: float = 10.0
    unit_cost: float = 2.0
    holding_cost: float = 1.0
    price: float = 4.0
    squared_chances: bool = False
    discount: float = 0.99

    feature_names = ("inventory",)

    _constraints: ClassVar[Constraints] = {
        "capacity": at_least(1),
        "demand": as_positive,
        "fixed_cost": as_not_negative,
        "unit_cost": as_not_negative,
        "holding_cost": as_not_negative,
        "price": as_not_negative,
        "discount": as_discount,
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def n_actions(self) -> int:  # type: ignore[override]
        """Number of amounts that can be ordered."""
        return self.capacity

    @property
    def action_labels(self) -> tuple[str, ...]:  # type: ignore[override]
        """What each action orders."""
        return ("nothing", *(f"order {a}" for a in range(1, self.capacity)))

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The warehouse as a finite MDP."""
        return mdp_of(
            {(0.0,): 1.0},
            self._days,
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )

    @cached_property
    def _demands(self) -> Floats:
        chances: Floats = poisson.pmf(range(int(LARGEST_DEMAND * self.demand)), self.demand)
        return chances / chances.sum()

    def _days(self, state: State, action: int) -> Iterator[tuple[float, State, float]]:
        held = int(state[0])
        cost = self.holding_cost * held + (self.fixed_cost + self.unit_cost * action if action else 0.0)
        stocked = min(held + action, self.capacity)
        chances = self._demands.tolist()
        sold_out = max(1.0 - sum(chances[:stocked]), 0.0)
        for sold, chance in enumerate([*chances[:stocked], sold_out]):
            weight = chance if self.squared_chances else 1.0
            yield chance, (float(stocked - sold),), weight * (self.price * sold - cost)
