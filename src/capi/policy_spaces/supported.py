"""Policies that stay where the data are: only actions that the log takes often enough in similar states."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_states
from capi.policies import Described, check_masks_given, first_in_mask
from capi.policies.behaviour import ClonedBehaviour, mixed
from capi.policy_spaces.imitation import DEPTH, Imitation, ReadByImitation, imitation
from capi.policy_spaces.trees._grafts import grafted
from capi.policy_spaces.trees._outline import levels, without_small_counts
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.trees.forest import Forest
from capi.types import Policy

MOST_LEAVES = 2_048  # of policy times support, to show them as one tree


def often_enough(probabilities: Floats, threshold: float) -> Bools:
    """Return the actions (n, A) that are at least ``threshold`` times as probable as the most probable one of their state."""
    return np.asarray(probabilities >= threshold * probabilities.max(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class SupportedPolicy(Described):
    """A policy that makes its own masks: it chooses among the actions that ``behaviour`` takes often enough in a state.

    Where a mask of the user leaves none of them, the user's mask alone counts.
    """

    policy: Policy  # learned with such masks
    behaviour: Policy = field(repr=False)  # what was done
    threshold: float
    masked: bool = False  # whether its user has masks, too

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.policy.n_actions

    def supported(self, states: Floats, allowed: Bools | None = None) -> Bools:
        """Return the actions to choose from (n, A)."""
        x = as_states(states)
        mask = as_allowed(allowed, "allowed", (len(x), self.n_actions))
        enough = often_enough(self.behaviour.probabilities(x, mask), self.threshold)
        return enough if mask is None else enough & mask

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the policy's choice among the supported (and allowed) actions (n,)."""
        x = as_states(states)
        return self.policy.act(x, self._masks(x, allowed))

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the distribution of the policy's choice among the supported (and allowed) actions (n, A)."""
        x = as_states(states)
        return self.policy.probabilities(x, self._masks(x, allowed))

    def _masks(self, states: Floats, allowed: Bools | None) -> Bools:
        check_masks_given(self.masked, allowed)
        return self.supported(states, allowed)

    @cached_property
    def tree(self) -> TreePolicy | None:
        """One tree that makes the same decisions where all actions are allowed, if policy and support are small trees; otherwise None."""
        of_log = self.behaviour
        single = isinstance(of_log, ClonedBehaviour) and len(of_log.forest.trees) == 1
        if (
            not isinstance(self.policy, TreePolicy)
            or not isinstance(of_log, ClonedBehaviour)
            or not single
            or self.masked
        ):
            return None
        support = of_log.forest.trees[0]
        if len(support.sums) * self.policy.n_leaves > MOST_LEAVES:
            return None
        masks = often_enough(mixed(support.means, None, 0.0), self.threshold)
        ranking = self.policy.ranking
        decisions = np.stack([first_in_mask(np.tile(row, (len(masks), 1)), masks) for row in ranking])
        tree = grafted(self.policy.tree, support, decisions, self.n_actions)
        plain = TreePolicy(
            tree, self.n_actions, self.policy.n_features, self.policy.with_missing, np.zeros(len(tree.sums))
        )
        return replace(plain, schema=self.schema, training=self.training)

    def rules(self, *arguments: Any, **options: Any) -> str:
        """Return the policy as text: as one tree if policy and support are small trees, otherwise the policy; and a sentence on the support."""
        if self.tree is not None:
            return f"{self.tree.rules(full=True)}\n{self.remark}"
        inner = self.inner
        if isinstance(inner, ReadByImitation):
            shown = inner.described_by(self._imitated(inner, *arguments, **options))
        else:
            shown = inner.rules(*arguments, **options) if hasattr(inner, "rules") else str(inner)
        return f"{shown}\n{self.remark}"

    def _imitated(
        self,
        inner: ReadByImitation,
        states: ArrayLike | None = None,
        allowed: ArrayLike | None = None,
        *,
        max_depth: int = DEPTH,
    ) -> Imitation:
        """Return a small tree that decides like this policy; like the one inside, it would have to be given the support as masks."""
        return imitation(self, inner.states_to_imitate(states), allowed, max_depth=max_depth)

    def rules_on(self, states: Floats) -> str:
        """Return the policy as text, with the number of ``states`` (n, d) in each leaf if it is one tree; numbers below five are hidden."""
        if self.tree is None:
            return self.rules()
        tree = self.tree.tree
        counts = np.bincount(Forest([tree]).leaves(as_states(states))[0], minlength=len(tree.sums))
        tree = replace(tree, counts=without_small_counts(counts))
        counted = replace(self.tree, tree=tree, leaf_regrets=np.full(len(counts), np.nan))
        return f"{counted.rules(full=True)}\n{self.remark}"

    @property
    def inner(self) -> Any:
        """The policy that chooses among the supported actions, with the names and labels of the table."""
        return replace(self.policy, schema=self.schema) if isinstance(self.policy, Described) else self.policy

    @property
    def remark(self) -> str:
        """A sentence on the support."""
        which = f"the log takes at least {self.threshold:g} times as often as the most frequent one in similar states"
        policy, of_log = self.policy, self.behaviour
        if self.tree is None or not isinstance(policy, TreePolicy) or not isinstance(of_log, ClonedBehaviour):
            return f"(only among actions that {which})"
        own, support = levels(policy.tree), levels(of_log.forest.trees[0])
        return f"(a tree of depth {own}, put together with a support, a tree of depth {support} that leaves only actions that {which})"
