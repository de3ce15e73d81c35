"""Policies that nobody can read, told by the small tree that decides most like them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from capi import policy_spaces
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_int, as_states
from capi.errors import InvalidInputError
from capi.policies import one_hot

if TYPE_CHECKING:
    from capi.policy_spaces.trees.greedy import TreePolicy

DEPTH = 3
MOST_ROWS = 50_000  # that a tree needs to find its cuts
LEAST_IN_LEAF = 20  # states in a leaf, if there are many


class Imitation(NamedTuple):
    """A tree, and in which share of the states it decides like the policy that it stands for."""

    tree: TreePolicy
    fidelity: float
    n_states: int


def imitation(policy: Any, states: ArrayLike, allowed: ArrayLike | None = None, *, max_depth: int = DEPTH) -> Imitation:
    """Return the small tree that was grown to decide like ``policy`` in ``states`` (n, d).

    Every decision counts the same: it is a picture of the policy, not another policy to act on.
    """
    x = as_states(states)
    mask = as_allowed(allowed, "allowed", (len(x), policy.n_actions))
    actions = policy.act(x, mask)
    tree = replace(imitating_tree(x, actions, policy.n_actions, mask, max_depth=max_depth), schema=policy.schema)
    return Imitation(tree, float(np.mean(tree.act(x, mask) == actions)), len(x))


def imitating_tree(
    states: Floats, actions: Ints, n_actions: int, allowed: Bools | None = None, *, max_depth: int = DEPTH
) -> TreePolicy:
    """Return the small tree that is shown for a policy that takes ``actions`` (n,) in ``states`` (n, d).

    All that show such a tree (rules, exports, the report) show this one. Its leaves are not too small to be told, and of
    very many states some are enough to find its cuts.
    """
    as_int(max_depth, "max_depth", minimum=1)
    n = len(states)
    rows = slice(None) if n <= MOST_ROWS else np.random.default_rng(0).choice(n, MOST_ROWS, replace=False)
    least = max(1, min(LEAST_IN_LEAF, min(n, MOST_ROWS) // 50))
    decided, mask = one_hot(actions[rows], n_actions), None if allowed is None else allowed[rows]
    return policy_spaces.Trees(max_depth=max_depth, min_samples_leaf=least).improve(states[rows], decided, allowed=mask)


class ReadByImitation(ABC):
    """`rules` and `to_dict` for policies that are too large to print."""

    @abstractmethod
    def summary(self) -> str:
        """Return one sentence on what the policy is."""

    @abstractmethod
    def learning_states(self) -> Floats | None:
        """Return the states that it was learned from (n, d), if it keeps them."""

    def rules(
        self, states: ArrayLike | None = None, allowed: ArrayLike | None = None, *, max_depth: int = DEPTH
    ) -> str:
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
        return self.told_by(imitation(self, self.states_to_imitate(states), allowed, max_depth=max_depth))

    def to_dict(
        self, states: ArrayLike | None = None, allowed: ArrayLike | None = None, *, max_depth: int = DEPTH
    ) -> dict[str, Any]:
        """Return the summary, the tree that imitates the policy and its fidelity; parameters as in `rules`."""
        found = imitation(self, self.states_to_imitate(states), allowed, max_depth=max_depth)
        return {"summary": self.summary(), "imitation": found.tree.to_dict(), "fidelity": found.fidelity}

    def told_by(self, found: Imitation) -> str:
        """Return the summary and the tree that imitates the policy, as text."""
        alike = f"{100 * found.fidelity:.1f} % of {found.n_states} states"
        return f"{self.summary()}\nThis tree decides alike in {alike}:\n{found.tree.rules()}"

    def states_to_imitate(self, states: ArrayLike | None) -> ArrayLike:
        """Return ``states``, by default those that the policy was learned from."""
        x = self.learning_states() if states is None else states
        if x is None:
            raise InvalidInputError("states must be given: this policy does not keep those that it was learned from.")
        return x
