"""Blackjack without splitting and with aces that always count 11: when to stop drawing.

What is hard about it for small trees: little; a tree of depth 2 is almost optimal, and of depth 3 nearly so.

Source: Vos and Verwer, "Optimal decision tree policies for Markov decision processes" (2023).
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

CARDS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 11)
MOST, DEALER_STOPS = 21, 17
SKIP = 0


@dataclass(frozen=True, eq=False)
class Blackjack(RuleDomain):
    """A simple blackjack, played again and again, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          ``skipped`` (0 or 1), ``player_total`` and ``dealer_total``; 22 stands for
                   every total above 21, and all zeros for the time between two games
    actions        0 skip, 1 draw
    dynamics       two cards for the player and one for the dealer; the player draws until
                   skipping or exceeding 21, then the dealer draws one card per step up to 17
    reward         at the end of a game: 1 for winning, 1.5 for winning with 21, -1 for losing
                   and for equal totals
    start          between two games
    end            never
    =============  ==========================================================================

    Parameters
    ----------
    discount : float in [0, 1)

    Examples
    --------
    >>> Blackjack().mdp.n_actions
    2
    """

    discount: float = 0.99

    n_actions = 2
    feature_names = ("skipped", "player_total", "dealer_total")
    action_labels = ("skip", "draw")

    _constraints: ClassVar[Constraints] = {"discount": as_discount}

    def __post_init__(self) -> None:
        check_parameters(self)

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The game as a finite MDP."""
        return mdp_of(
            {(0.0, 0.0, 0.0): 1.0},
            _steps,
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )


def _steps(state: State, action: int) -> Iterator[tuple[float, State, float]]:
    skipped, player, dealer = (int(each) for each in state)
    share = 1 / len(CARDS)
    if player == 0:
        for first in CARDS:
            for second in CARDS:
                for third in CARDS:
                    yield share**3, (0.0, _total(0, first + second), _total(0, third)), 0.0
    elif player > MOST or (skipped and dealer >= DEALER_STOPS):
        yield 1.0, (0.0, 0.0, 0.0), _result(player, dealer)
    elif action == SKIP or skipped:
        for card in CARDS if dealer < DEALER_STOPS else (0,):
            yield share if dealer < DEALER_STOPS else 1.0, (1.0, float(player), _total(dealer, card)), 0.0
    else:
        for card in CARDS:
            yield share, (0.0, _total(player, card), float(dealer)), 0.0


def _total(before: int, card: int) -> float:
    return float(min(before + card, MOST + 1))


def _result(player: int, dealer: int) -> float:
    if player > MOST or player <= dealer <= MOST:
        return -1.0
    return 1.5 if player == MOST and dealer < MOST else 1.0
