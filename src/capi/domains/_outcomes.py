"""Finite MDPs from their rules: states are tuples of features, and a function lists what an action may lead to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from capi._utils.validation import Bools, Floats, Ints
from capi.finite.mdp import FiniteMDP

State: TypeAlias = tuple[float, ...]
Outcomes: TypeAlias = Iterable[tuple[float, State, float]]  # probability, next state, reward
MOST_DENSE = 0.1  # share of transitions with a probability, above which matrices are dense


class RuleDomain(ABC):
    """A `Domain` that is a finite MDP: states are rows of features, and an episode ends in an absorbing state."""

    n_actions: int
    feature_names: Sequence[str]
    action_labels: Sequence[str]

    @property
    @abstractmethod
    def mdp(self) -> FiniteMDP:
        """The model, with the features of its states."""

    @cached_property
    def states(self) -> Floats:
        """The features of all states that can be reached (S, d)."""
        return self.mdp.states

    def initial(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw ``n`` start states (n, d)."""
        return self.mdp.initial(n, rng)

    def step(self, states: Floats, actions: Ints, rng: np.random.Generator) -> tuple[Floats, Floats, Bools]:
        """Draw next states (n, d); rewards (n,) are the expected ones."""
        following, rewards, _ = self.mdp.step(states, actions, rng)
        rows = self.mdp.features
        ended = self.mdp.absorbing if rows is None else self.mdp.absorbing[rows.index(following)]
        return following, rewards, ended


def mdp_of(
    starts: Mapping[State, float],
    outcomes: Callable[[State, int], Outcomes],
    *,
    feature_names: Sequence[str],
    action_labels: Sequence[str],
    discount: float,
) -> FiniteMDP:
    """Return the MDP of all states that can be reached from ``starts`` (state -> probability), sorted by their features.

    Probabilities of a state and an action are divided by their sum: some definitions cut off unlikely events.
    """
    n_actions = len(action_labels)
    found: dict[State, list[list[tuple[float, State, float]]]] = {}
    waiting = list(starts)
    while waiting:
        state = waiting.pop()
        if state in found:
            continue
        found[state] = [[one for one in outcomes(state, a) if one[0] > 0] for a in range(n_actions)]
        waiting += {following for each in found[state] for _, following, _ in each if following not in found}
    states = sorted(found)
    number = {state: s for s, state in enumerate(states)}
    R = np.zeros((len(states), n_actions))
    P = []
    for a in range(n_actions):
        rows, columns, values = [], [], []
        for s, state in enumerate(states):
            total = sum(p for p, _, _ in found[state][a])
            R[s, a] = sum(p * reward for p, _, reward in found[state][a]) / total
            for p, following, _ in found[state][a]:
                rows.append(s)
                columns.append(number[following])
                values.append(p / total)
        P.append(sp.csr_array((values, (rows, columns)), shape=(len(states), len(states))))
    start = np.zeros(len(states))
    for state, share in starts.items():
        start[number[state]] = share
    dense = sum(matrix.nnz for matrix in P) > MOST_DENSE * n_actions * len(states) ** 2
    return FiniteMDP(
        np.array([matrix.toarray() for matrix in P]) if dense else P,
        R,
        discount,
        start=start,
        action_labels=action_labels,
        features=np.array(states, dtype=np.float64),
        feature_names=feature_names,
    )
