"""The frozen lake: cross the ice to the goal without falling into a hole, although the ice is slippery.

What is hard about it for small trees: the safe directions depend on the holes around each cell, and a tree of depth 3 has
eight directions for the whole lake.

Source: the maps 4x4 and 8x8 and the rules are those of Gymnasium's FrozenLake-v1; the map 12x12 is that of Vos and Verwer,
"Optimal decision tree policies for Markov decision processes" (2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from capi._utils.parameters import Constraints, check_parameters
from capi._utils.validation import as_discount, as_share
from capi.domains._outcomes import RuleDomain, State, mdp_of
from capi.errors import InvalidInputError
from capi.finite.mdp import FiniteMDP

MAPS = {
    "4x4": "SFFF FHFH FFFH HFFG",
    "8x8": "SFFFFFFF FFFFFFFF FFFHFFFF FFFFFHFF FFFHFFFF FHHFFFHF FHFFHFHF FFFHFFFG",
    "12x12": (
        "SFFFFFFFFFFF FFFFFFFFFFFF FFFHFFFFFFFH FFFFFHFFFFFF FFFHFFFFFFFF FHHFFFHFFHFF "
        "FHFFHFHFFFFF FFFHFFFFFFFF FFFFFFFFHFFF HFFFFHFFFFHH FFFFFFGFFFFF FFFFFFFFFFFF"
    ),
}
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # left, down, right, up; neighbours in this circle are at right angles


def _check_map(value: Any, name: str) -> None:
    rows = _rows(value) if isinstance(value, str | list | tuple) else []
    whole = bool(rows) and all(isinstance(row, str) and len(row) == len(rows[0]) and row for row in rows)
    if not whole or not set("".join(rows)) <= set("SFHG") or "S" not in "".join(rows):
        raise InvalidInputError(
            f"{name} must be one of {', '.join(map(repr, MAPS))}, or rows of equal length of the letters S (start), F (ice), "
            f"H (hole) and G (goal), with at least one S; got {value!r}."
        )


def _rows(lake: str | Sequence[str]) -> list[str]:
    return MAPS.get(lake, lake).split() if isinstance(lake, str) else list(lake)


@dataclass(frozen=True, eq=False)
class FrozenLake(RuleDomain):
    """A frozen lake, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          ``x`` (column) and ``y`` (row), from 0 at the top left
    actions        0 left, 1 down, 2 right, 3 up
    dynamics       the chosen direction with probability 1 - ``slip``, otherwise one of the two
                   at right angles to it; the shore stops a move
    reward         1 for reaching the goal
    start          the cells with S
    end            holes and goals
    =============  ==========================================================================

    Parameters
    ----------
    lake : "4x4", "8x8", "12x12" or sequence of str
        A known map, or rows of the letters S (start), F (ice), H (hole), G (goal).
    slip : float in [0, 1]
        Probability of a move at right angles to the chosen one.
    discount : float in [0, 1)

    Examples
    --------
    >>> lake = FrozenLake("4x4").mdp
    >>> lake
    FiniteMDP: 16 states, 4 actions, discount 0.99, dense
    >>> round(float(lake.start @ lake.optimal_values), 3)
    0.542
    """

    lake: str | Sequence[str] = "4x4"
    slip: float = 2 / 3
    discount: float = 0.99

    n_actions = 4
    feature_names = ("x", "y")
    action_labels = ("left", "down", "right", "up")

    _constraints: ClassVar[Constraints] = {"lake": _check_map, "slip": as_share, "discount": as_discount}

    def __post_init__(self) -> None:
        check_parameters(self)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The lake as a finite MDP."""
        rows = _rows(self.lake)
        first = [(float(x), float(y)) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell == "S"]
        return mdp_of(
            {cell: 1 / len(first) for cell in first},
            lambda state, action: _moves(rows, state, action, self.slip),
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )


def _moves(rows: Sequence[str], state: State, action: int, slip: float) -> Iterator[tuple[float, State, float]]:
    x, y = (int(each) for each in state)
    if rows[y][x] in "HG":
        yield 1.0, state, 0.0
        return
    for turn, probability in ((-1, slip / 2), (0, 1 - slip), (1, slip / 2)):
        dx, dy = MOVES[(action + turn) % len(MOVES)]
        to = min(max(x + dx, 0), len(rows[0]) - 1), min(max(y + dy, 0), len(rows) - 1)
        yield probability, (float(to[0]), float(to[1])), float(rows[to[1]][to[0]] == "G")
