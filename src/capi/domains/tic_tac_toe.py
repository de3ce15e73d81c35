"""Tic-tac-toe against an opponent who plays at random; a move to a taken square loses.

What is hard about it for small trees: a path must ask whether a square is free before it plays there, so much of the tree only keeps to
the rules.

Source: Vos and Verwer, "Optimal decision tree policies for Markov decision processes" (2023).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

from capi._utils.parameters import Constraints, check_parameters
from capi._utils.validation import as_discount
from capi.domains._outcomes import RuleDomain, State, mdp_of
from capi.finite.mdp import FiniteMDP

Board: TypeAlias = tuple[int, ...]  # 9 squares: 0 free, 1 ours (cross), 2 the opponent's (circle)
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
SQUARES = tuple(f"{row} {column}" for row in ("top", "middle", "bottom") for column in ("left", "centre", "right"))
OVER = (-1.0,) * 27


@dataclass(frozen=True, eq=False)
class TicTacToe(RuleDomain):
    """Tic-tac-toe as crosses, who begin, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          for each square whether it is free, a cross, a circle; all -1 at the end
    actions        the squares, row by row
    dynamics       our cross, then a circle on a random free square
    reward         1 for a line of crosses, -1 for a line of circles and for a taken square
    start          the empty board
    end            after the game
    =============  ==========================================================================

    Parameters
    ----------
    discount : float in [0, 1)

    Examples
    --------
    >>> TicTacToe().action_labels[4]
    'middle centre'
    """

    discount: float = 0.99

    n_actions = 9
    feature_names = tuple(f"{square} {what}" for square in SQUARES for what in ("free", "cross", "circle"))
    action_labels = SQUARES

    _constraints: ClassVar[Constraints] = {"discount": as_discount}

    def __post_init__(self) -> None:
        check_parameters(self)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The game as a finite MDP."""
        return mdp_of(
            {_state((0,) * 9): 1.0},
            _steps,
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )


def _state(board: Board) -> State:
    return tuple(float(square == what) for square in board for what in (0, 1, 2))


def _steps(state: State, action: int) -> Iterator[tuple[float, State, float]]:
    if state == OVER:
        yield 1.0, OVER, 0.0
        return
    board = tuple(state[3 * i : 3 * i + 3].index(1.0) for i in range(9))
    if board[action] != 0:
        yield 1.0, OVER, -1.0
        return
    ours = _played(board, action, 1)
    free = [i for i in range(9) if ours[i] == 0]
    if _won(ours, 1) or not free:
        yield 1.0, OVER, float(_won(ours, 1))
        return
    for i in free:
        theirs = _played(ours, i, 2)
        lost = _won(theirs, 2)
        yield 1 / len(free), OVER if lost else _state(theirs), -float(lost)


def _played(board: Board, square: int, player: int) -> Board:
    return (*board[:square], player, *board[square + 1 :])


def _won(board: Board, player: int) -> bool:
    return any(all(board[i] == player for i in line) for line in LINES)
