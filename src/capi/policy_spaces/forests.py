"""Policies that are forests of decision trees, which vote (the paper's Tree-CAPI, Section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from capi.parallel import n_threads
from capi.policies import Deterministic, one_hot, permitted
from capi.policy_spaces.trees import grown_for_regret
from capi.trees.forest import Forest, Growth
from capi.trees.regressor import n_candidates
from capi.types import Policy, QFunction
from capi.validation import Bools, Floats, Ints, as_int, as_states


@dataclass(frozen=True, eq=False)
class ForestPolicy(Deterministic):
    """Trees that vote; the most votes win, the lowest action among equals."""

    forest: Forest = field(repr=False)
    n_actions: int
    n_features: int
    n_jobs: int | None = field(default=None, repr=False)

    @cached_property
    def _ballots(self) -> Floats:
        """The vote of each leaf, one-hot (l, A)."""
        return one_hot(self.forest.sums.argmin(axis=1), self.n_actions)

    def votes(self, states: Floats) -> Floats:
        """Return the share of trees for each action; ``states`` (n, d) -> (n, A)."""
        x = as_states(states, n_features=self.n_features)
        return self.forest.total(self._ballots, x, n_threads(self.n_jobs)) / len(self.forest.trees)

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action with the most votes, or the lowest allowed one where it is not allowed (n,)."""
        return permitted(self.votes(states).argmax(axis=1), allowed, self.n_actions)


@dataclass(frozen=True)
class Forests:
    """Forests of extremely randomised trees that are grown for the gap-weighted loss and vote.

    Parameters
    ----------
    n_trees : int
    min_samples_split : int
        A node with fewer states is a leaf (the paper's eta_pi): the larger, the simpler the policy.
    min_samples_leaf : int
    max_depth : int, optional
    max_features : int, float or None
        Features looked at in a node; None is all.
    n_jobs : int, optional
        Threads; -1 is all cores, None is one. The policy does not depend on it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> states = rng.uniform(size=(500, 2))
    >>> values = np.stack([states[:, 0], states[:, 1]], axis=1)
    >>> policy = Forests(min_samples_split=5).improve(states, values)
    >>> policy.act(np.array([[0.9, 0.1], [0.1, 0.9]]))
    array([0, 1])
    """

    n_trees: int = 30
    min_samples_split: int = 2
    min_samples_leaf: int = 1
    max_depth: int | None = None
    max_features: int | float | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        as_int(self.n_trees, "n_trees", minimum=1)
        as_int(self.min_samples_split, "min_samples_split", minimum=2)
        as_int(self.min_samples_leaf, "min_samples_leaf", minimum=1)
        if self.max_depth is not None:
            as_int(self.max_depth, "max_depth", minimum=1)
        n_threads(self.n_jobs)

    def improve(
        self,
        states: ArrayLike,
        q_values: ArrayLike,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,  # noqa: ARG002
        allowed: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
    ) -> ForestPolicy:
        """Return a forest whose trees were grown for the gap-weighted loss on the sample."""
        growth = Growth(
            n_trees=self.n_trees,
            n_candidates=None if self.max_features is None else n_candidates(self.max_features, np.shape(states)[1]),
            min_samples_split=self.min_samples_split,
            min_samples_leaf=self.min_samples_leaf,
            max_depth=self.max_depth,
            policy=True,
        )
        name, threads = type(self).__name__, n_threads(self.n_jobs)
        forest, x, n_actions = grown_for_regret(name, growth, states, q_values, allowed, weights, rng, threads)
        return ForestPolicy(forest, n_actions, x.shape[1], self.n_jobs)
