"""Traffic intersection: when to switch the light between two roads.

What is hard about it for small trees: waiting costs double with every step, so the time since the last switch matters as much as
both queues.

Source: Vos and Verwer, "Optimal decision tree policies for Markov decision processes" (2023), with their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from scipy.stats import poisson

from capi._utils.parameters import Constraints, at_least, check_parameters
from capi._utils.validation import as_discount, as_not_negative, as_positive
from capi.domains._outcomes import RuleDomain, State, mdp_of
from capi.finite.mdp import FiniteMDP

SWITCH = 0


@dataclass(frozen=True, eq=False)
class TrafficIntersection(RuleDomain):
    """A crossing of two roads with one light, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          ``green_side`` (0 left, 1 right), ``cars_left``, ``cars_right``,
                   ``waiting_time`` since the last switch
    actions        0 switch, 1 wait
    dynamics       one car leaves on the green side, cars arrive on both (Poisson; what would
                   exceed ``most_cars`` is cut off and the rest rescaled); a switch sets the
                   time to 1, otherwise it rises by 1 up to ``most_time``
    reward         1 for the car that leaves, less 2 for a switch, less 0.1 x 2^time for each
                   car on the red side
    start          left green, no cars, time 0
    end            never
    =============  ==========================================================================

    Parameters
    ----------
    most_cars, most_time : int
    arrivals_left, arrivals_right : float
        Mean number of cars that arrive in a step.
    switch_cost, car_reward, waiting_cost : float
    discount : float in [0, 1)

    Examples
    --------
    >>> TrafficIntersection().mdp
    FiniteMDP: 361 states, 2 actions, discount 0.99, sparse (10992 transitions)
    """

    most_cars: int = 5
    most_time: int = 5
    arrivals_left: float = 0.1
    arrivals_right: float = 0.5
    switch_cost: float = 2.0
    car_reward: float = 1.0
    waiting_cost: float = 0.1
    discount: float = 0.99

    n_actions = 2
    feature_names = ("green_side", "cars_left", "cars_right", "waiting_time")
    action_labels = ("switch", "wait")

    _constraints: ClassVar[Constraints] = {
        "most_cars": at_least(1),
        "most_time": at_least(1),
        "arrivals_left": as_positive,
        "arrivals_right": as_positive,
        "switch_cost": as_not_negative,
        "car_reward": as_not_negative,
        "waiting_cost": as_not_negative,
        "discount": as_discount,
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The intersection as a finite MDP."""
        return mdp_of(
            {(0.0, 0.0, 0.0, 0.0): 1.0},
            self._steps,
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )

    @cached_property
    def _arrivals(self) -> tuple[list[float], list[float]]:
        numbers = range(self.most_cars + 2)
        return poisson.pmf(numbers, self.arrivals_left).tolist(), poisson.pmf(numbers, self.arrivals_right).tolist()

    def _steps(self, state: State, action: int) -> Iterator[tuple[float, State, float]]:
        side, left, right, time = (int(each) for each in state)
        green, red = (left, right) if side == 0 else (right, left)
        reward = self.car_reward * (green > 0) - red * self.waiting_cost * 2**time
        if action == SWITCH:
            reward -= self.switch_cost
            after: tuple[int, int] = (1 - side, 1)
        else:
            after = (side, min(time + 1, self.most_time))
        left, right = left - (side == 0 and left > 0), right - (side == 1 and right > 0)
        for more_left in range(self.most_cars + 1 - left):
            for more_right in range(self.most_cars + 1 - right):
                chance = self._arrivals[0][more_left] * self._arrivals[1][more_right]
                yield (
                    chance,
                    (float(after[0]), float(left + more_left), float(right + more_right), float(after[1])),
                    reward,
                )
