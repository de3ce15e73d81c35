"""Tiger and antelope: catch a random walker on a grid.

What is hard about it for small trees: the good move depends on the difference of two positions, which no single cut shows.

Source: Vos and Verwer, "Optimal decision tree policies for Markov decision processes" (2023).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

from capi._utils.parameters import Constraints, at_least, check_parameters
from capi._utils.validation import as_discount
from capi.domains._outcomes import RuleDomain, State, mdp_of
from capi.finite.mdp import FiniteMDP

MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0), (0, 0))  # up, right, down, left, wait
CAUGHT = (-1.0, -1.0, -1.0, -1.0)


@dataclass(frozen=True, eq=False)
class TigerAndAntelope(RuleDomain):
    """A tiger that hunts an antelope, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          ``antelope_x``, ``antelope_y``, ``tiger_x``, ``tiger_y``; all -1 at the end
    actions        of the tiger: 0 up, 1 right, 2 down, 3 left, 4 wait
    dynamics       both move at the same time; the antelope to a random neighbouring cell
                   without the tiger; the fence stops the tiger
    reward         1 in the step after both are on the same cell
    start          all states alike, those at the end included
    end            after the catch
    =============  ==========================================================================

    Parameters
    ----------
    size : int
        Cells per direction.
    discount : float in [0, 1)

    Examples
    --------
    >>> TigerAndAntelope(size=3).mdp
    FiniteMDP: 82 states, 5 actions, discount 0.99, sparse (890 transitions)
    """

    size: int = 5
    discount: float = 0.99

    n_actions = 5
    feature_names = ("antelope_x", "antelope_y", "tiger_x", "tiger_y")
    action_labels = ("up", "right", "down", "left", "wait")

    _constraints: ClassVar[Constraints] = {"size": at_least(2), "discount": as_discount}

    def __post_init__(self) -> None:
        check_parameters(self)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The hunt as a finite MDP."""
        cells = [float(each) for each in range(self.size)]
        starts = [CAUGHT, *product(cells, repeat=4)]
        return mdp_of(
            {state: 1 / len(starts) for state in starts},
            self._steps,
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )

    def _steps(self, state: State, action: int) -> Iterator[tuple[float, State, float]]:
        antelope, tiger = state[:2], state[2:]
        if state == CAUGHT or antelope == tiger:
            yield 1.0, CAUGHT, float(state != CAUGHT)
            return
        last = self.size - 1.0
        near = [(antelope[0] + dx, antelope[1] + dy) for dx, dy in MOVES[:4]]
        free = [cell for cell in near if min(cell) >= 0 and max(cell) <= last and cell != tiger]
        dx, dy = MOVES[action]
        moved = min(max(tiger[0] + dx, 0.0), last), min(max(tiger[1] + dy, 0.0), last)
        for cell in free:
            yield 1 / len(free), (*cell, *moved), 0.0
