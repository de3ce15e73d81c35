"""Small trees that imitate policies too large to read."""

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
MOST_ROWS = 50_000  # enough for a tree to find its cuts
LEAST_IN_LEAF = 20  # states in a leaf, if there are many


class Imitation(NamedTuple):
    """A tree, and the share of the states in which it makes the same decision as the policy that it imitates."""

    tree: TreePolicy
    fidelity: float
    n_states: int


def imitation(policy: Any, states: ArrayLike, allowed: ArrayLike | None = None, *, max_depth: int = DEPTH) -> Imitation:
    """Return a small tree grown to decide like ``policy`` in ``states`` (n, d).

    Every decision has the same weight: the tree describes the policy and is not meant to replace it.
    """
    x = as_states(states)
    mask = as_allowed(allowed, "allowed", (len(x), policy.n_actions))
    actions = policy.act(x, mask)
    tree = replace(imitating_tree(x, actions, policy.n_actions, mask, max_depth=max_depth), schema=policy.schema)
    return Imitation(tree, float(np.mean(tree.act(x, mask) == actions)), len(x))


def imitating_tree(
    states: Floats, actions: Ints, n_actions: int, allowed: Bools | None = None, *, max_depth: int = DEPTH
) -> TreePolicy:
    """Return the small tree that describes a policy that takes ``actions`` (n,) in ``states`` (n, d).

    `rules`, exports and the report all show this tree. Its leaves have a minimum size, and its cuts are found on at most
    `MOST_ROWS` of the states.
    """
    as_int(max_depth, "max_depth", minimum=1)
    n = len(states)
    rows = slice(None) if n <= MOST_ROWS else np.random.default_rng(0).choice(n, MOST_ROWS, replace=False)
    least = max(1, min(LEAST_IN_LEAF, min(n, MOST_ROWS) // 50))
    decided, mask = one_hot(actions[rows], n_actions), None if allowed is None else allowed[rows]
    space = policy_spaces.Trees(max_depth=max_depth, min_samples_leaf=least)
    tree = space.improve(states[rows], decided, allowed=mask)
    return replace(tree, greedy_depth=None)  # no remark on the best tree: it is about trees that are learned


class ReadByImitation(ABC):
    """Provide `rules` and `to_dict` for policies that are too large to print."""

    @abstractmethod
    def summary(self) -> str:
        """Return one sentence that describes the policy."""

    @abstractmethod
    def learning_states(self) -> Floats | None:
        """Return the states that the policy was learned from (n, d), if it stores them."""

    def rules(
        self, states: ArrayLike | None = None, allowed: ArrayLike | None = None, *, max_depth: int = DEPTH
    ) -> str:
        """Return a summary and a small tree that imitates the policy, with the share of equal decisions.

        Parameters
        ----------
        states : array of shape (n, d), optional
            Where to compare the two. By default the states that the policy was learned from.
        allowed : array of shape (n, A), optional
            The actions allowed in these states; required if the policy was learned with masks.
        max_depth : int
            Maximum depth of the tree.
        """
        return self.described_by(imitation(self, self.states_to_imitate(states), allowed, max_depth=max_depth))

    def to_dict(
        self, states: ArrayLike | None = None, allowed: ArrayLike | None = None, *, max_depth: int = DEPTH
    ) -> dict[str, Any]:
        """Return the summary, the tree that imitates the policy and its fidelity; parameters as in `rules`."""
        found = imitation(self, self.states_to_imitate(states), allowed, max_depth=max_depth)
        return {"summary": self.summary(), "imitation": found.tree.to_dict(), "fidelity": found.fidelity}

    def described_by(self, found: Imitation) -> str:
        """Return the summary and the tree that imitates the policy, as text."""
        alike = f"{100 * found.fidelity:.1f} % of {found.n_states} states"
        shown = found.tree.rules()
        what = "(regret: states of the leaf in which the policy decides otherwise)"
        return f"{self.summary()}\nThis tree makes the same decision in {alike}:\n{shown}\n{what}"

    def states_to_imitate(self, states: ArrayLike | None) -> ArrayLike:
        """Return ``states``, by default those that the policy was learned from."""
        x = self.learning_states() if states is None else states
        if x is None:
            raise InvalidInputError(
                "states must be given: this policy does not keep the states that it was learned from."
            )
        return x
