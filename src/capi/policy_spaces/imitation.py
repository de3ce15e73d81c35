"""Policies that nobody can read, told by the small tree that decides most like them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from capi import policy_spaces
from capi._utils.validation import Floats, as_allowed, as_int, as_states
from capi.errors import InvalidInput
from capi.policies import one_hot

if TYPE_CHECKING:
    from capi.policy_spaces.trees.greedy import TreePolicy


class Imitation(NamedTuple):
    """A tree, and in which share of the states it decides like the policy that it stands for."""

    tree: TreePolicy
    fidelity: float
    n_states: int


def imitation(policy: Any, states: ArrayLike, allowed: ArrayLike | None = None, *, max_depth: int = 3) -> Imitation:
    """Return the small tree that was grown to decide like ``policy`` in ``states`` (n, d).

    Every decision counts the same: it is a picture of the policy, not another policy to act on.
    """
    as_int(max_depth, "max_depth", minimum=1)
    x = as_states(states)
    mask = as_allowed(allowed, "allowed", (len(x), policy.n_actions))
    actions = policy.act(x, mask)
    tree = policy_spaces.Trees(max_depth=max_depth).improve(x, one_hot(actions, policy.n_actions), allowed=mask)
    tree = replace(tree, schema=policy.schema)
    return Imitation(tree, float(np.mean(tree.act(x, mask) == actions)), len(x))


class ReadByImitation(ABC):
    """`rules` and `to_dict` for policies that are too large to print."""

    @abstractmethod
    def summary(self) -> str:
        """Return one sentence on what the policy is."""

    @abstractmethod
    def learning_states(self) -> Floats | None:
        """Return the states that it was learned from (n, d), if it keeps them."""

    def rules(self, states: ArrayLike | None = None, allowed: ArrayLike | None = None, *, max_depth: int = 3) -> str:
        """Return what the policy is, and the small tree that decides most like it, with the share of equal decisions.

        Parameters
        ----------
        states : array of shape (n, d), optional
            Where to compare them. By default the states that the policy was learned from.
        allowed : array of shape (n, A), optional
            What these states allow; needed if the policy was learned with masks.
        max_depth : int
            Of the tree.
        """
        found = self._imitation(states, allowed, max_depth)
        alike = f"{100 * found.fidelity:.1f} % of {found.n_states} states"
        return f"{self.summary()}\nThis tree decides alike in {alike}:\n{found.tree.rules()}"

    def to_dict(
        self, states: ArrayLike | None = None, allowed: ArrayLike | None = None, *, max_depth: int = 3
    ) -> dict[str, Any]:
        """Return the summary, the tree that imitates the policy and its fidelity; parameters as in `rules`."""
        found = self._imitation(states, allowed, max_depth)
        return {"summary": self.summary(), "imitation": found.tree.to_dict(), "fidelity": found.fidelity}

    def _imitation(self, states: ArrayLike | None, allowed: ArrayLike | None, max_depth: int) -> Imitation:
        x = self.learning_states() if states is None else states
        if x is None:
            raise InvalidInput("states must be given: this policy does not keep those that it was learned from.")
        return imitation(self, x, allowed, max_depth=max_depth)
