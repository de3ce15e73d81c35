"""Navigation in a cube: reach the far corner through cells that send one back to the start.

What is hard about it for small trees: the chance of disappearing differs from cell to cell, and the best way winds around the bad cells.

Source: Vos and Verwer, "Optimal decision tree policies for Markov decision processes" (2023), after the navigation problem of the
planning competition of 2011 (Sanner). The chances are drawn with NumPy's RandomState and seed 0, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters
from capi._utils.validation import Floats, as_discount
from capi.domains._outcomes import RuleDomain, State, mdp_of
from capi.finite.mdp import FiniteMDP


@dataclass(frozen=True, eq=False)
class Navigation(RuleDomain):
    """A cube of cells, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          ``x``, ``y``, ``z``, 0 .. size - 1
    actions        0 right, 1 left (x), 2 up, 3 down (y), 4 forward, 5 backward (z)
    dynamics       back to the start with the chance of the present cell, otherwise the chosen
                   move; the walls stop a move; from the goal back to the start
    reward         1 for reaching the goal
    start          (0, 0, 0), whose chance of disappearing is 0
    end            never
    =============  ==========================================================================

    Parameters
    ----------
    size : int
        Cells per direction.
    seed : int
        Of the chances of disappearing.
    discount : float in [0, 1)

    Examples
    --------
    >>> Navigation().mdp
    FiniteMDP: 125 states, 6 actions, discount 0.99, sparse (1485 transitions)
    """

    size: int = 5
    seed: int = 0
    discount: float = 0.99

    n_actions = 6
    feature_names = ("x", "y", "z")
    action_labels = ("right", "left", "up", "down", "forward", "backward")

    _constraints: ClassVar[Constraints] = {"size": at_least(2), "seed": at_least(0), "discount": as_discount}

    def __post_init__(self) -> None:
        check_parameters(self)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The cube as a finite MDP."""
        return mdp_of(
            {(0.0, 0.0, 0.0): 1.0},
            self._steps,
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )

    @cached_property
    def chances(self) -> Floats:
        """The chance of disappearing in each cell (size, size, size); none at the start and the goal."""
        chances = np.zeros(self.size**3)
        chances[1:-1] = np.random.RandomState(self.seed).rand(self.size**3 - 2)
        return chances.reshape((self.size,) * 3)

    def _steps(self, state: State, action: int) -> Iterator[tuple[float, State, float]]:
        last, start = self.size - 1.0, (0.0, 0.0, 0.0)
        if state == (last, last, last):
            yield 1.0, start, 0.0
            return
        axis, step = action // 2, 1 if action % 2 == 0 else -1
        to = list(state)
        to[axis] = min(max(to[axis] + step, 0.0), last)
        lost = float(self.chances[tuple(int(each) for each in state)])
        yield 1 - lost, tuple(to), float(tuple(to) == (last, last, last))
        yield lost, start, 0.0
