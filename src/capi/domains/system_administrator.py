"""System administrator: which computer of a network to reboot.

What is hard about it for small trees: computers fail through their neighbours, so every computer matters, and a tree of depth 3
sees three of them on a path.

Source: the problem is that of Guestrin, Koller and Parr, "Max-norm projections for factored MDPs" (2001); numbers and networks are
those of Vos and Verwer, "Optimal decision tree policies for Markov decision processes" (2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, ClassVar

from capi._utils.parameters import Constraints, check_parameters
from capi._utils.validation import as_discount, as_not_negative, as_share
from capi.domains._outcomes import RuleDomain, State, mdp_of
from capi.errors import InvalidInputError
from capi.finite.mdp import FiniteMDP

NETWORKS: Mapping[str, Sequence[Sequence[int]]] = {  # for each computer, the computers that it depends on
    "tree": ((), (0,), (0,), (1,), (1,), (2,), (2,)),
    "random-1": ((2, 6), (0,), (0, 4), (2, 6), (5,), (1, 6, 7), (4,), (0,)),
    "random-2": (
        (3, 6, 7),
        (0, 1, 2, 4),
        (1, 2, 6, 7),
        (1, 2),
        (1, 2, 3, 4),
        (1, 4),
        (4, 5, 7),
        (3, 4, 5),
    ),
}
MOST_COMPUTERS = 12


def _check_network(value: Any, name: str) -> None:
    network: Any = NETWORKS.get(value) if isinstance(value, str) else value
    lists = isinstance(network, Sequence) and all(isinstance(others, Sequence) for others in network)
    if not lists or not 1 <= len(network) <= MOST_COMPUTERS:
        raise InvalidInputError(
            f"{name} must be one of {', '.join(map(repr, NETWORKS))}, or list for each of up to {MOST_COMPUTERS} computers "
            f"those that it depends on; got {value!r}."
        )
    for i, others in enumerate(network):
        if not all(isinstance(j, int) and 0 <= j < len(network) for j in others):
            raise InvalidInputError(
                f"{name} must name computers 0 .. {len(network) - 1}; computer {i} depends on {list(others)}."
            )


@dataclass(frozen=True, eq=False)
class SystemAdministrator(RuleDomain):
    """A network of computers that fail, as a `Domain` and, in ``mdp``, as a `FiniteMDP`.

    =============  ==========================================================================
    state          whether each computer is running, 0 or 1
    actions        i reboots computer i, the last one waits
    dynamics       a rebooted computer runs; another one runs with probability ``stays`` if it
                   is running and ``recovers`` if not, times the share of the computers it
                   depends on that are running
    reward         the number of running computers, less the cost of a reboot
    start          all are running
    end            never
    =============  ==========================================================================

    Parameters
    ----------
    network : "tree", "random-1", "random-2" or sequence of sequences of int
        For each computer, the computers that it depends on.
    stays, recovers : float in [0, 1]
    reboot_cost : float
    discount : float in [0, 1)

    Examples
    --------
    >>> SystemAdministrator("tree").mdp
    FiniteMDP: 128 states, 8 actions, discount 0.99, dense
    """

    network: str | Sequence[Sequence[int]] = "random-1"
    stays: float = 0.95
    recovers: float = 0.05
    reboot_cost: float = 0.45
    discount: float = 0.99

    _constraints: ClassVar[Constraints] = {
        "network": _check_network,
        "stays": as_share,
        "recovers": as_share,
        "reboot_cost": as_not_negative,
        "discount": as_discount,
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def depends_on(self) -> Sequence[Sequence[int]]:
        """For each computer, the computers that it depends on."""
        return NETWORKS[self.network] if isinstance(self.network, str) else self.network

    @property
    def n_actions(self) -> int:  # type: ignore[override]
        """One more than there are computers."""
        return len(self.depends_on) + 1

    @property
    def feature_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """One per computer."""
        return tuple(f"computer_{i}_running" for i in range(len(self.depends_on)))

    @property
    def action_labels(self) -> tuple[str, ...]:  # type: ignore[override]
        """What each action does."""
        return (*(f"reboot computer {i}" for i in range(len(self.depends_on))), "wait")

    @cached_property
    def mdp(self) -> FiniteMDP:
        """The network as a finite MDP."""
        return mdp_of(
            {(1.0,) * len(self.depends_on): 1.0},
            self._steps,
            feature_names=self.feature_names,
            action_labels=self.action_labels,
            discount=self.discount,
        )

    def _steps(self, state: State, action: int) -> Iterator[tuple[float, State, float]]:
        reward = sum(state) - (self.reboot_cost if action < len(state) else 0.0)
        chances = []
        for i, others in enumerate(self.depends_on):
            share = sum(state[j] for j in others) / len(others) if others else 1.0
            runs = 1.0 if i == action else (self.stays if state[i] else self.recovers) * share
            chances.append(((0.0, 1 - runs), (1.0, runs)))
        for each in product(*chances):
            chance = prod(p for _, p in each)
            if chance > 0:
                yield chance, tuple(runs for runs, _ in each), reward
