"""Policies from forests of decision trees that vote (the paper's Tree-CAPI, Section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeGuard

import numpy as np

from capi._utils.array_cache import Remembered
from capi._utils.parameters import Constraints, at_least, check_parameters, checked_by, optional
from capi._utils.threads import n_threads
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_states, is_fixed
from capi.policies import Deterministic, check_masks_given, in_blocks, one_hot
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.policy_spaces.imitation import ReadByImitation
from capi.policy_spaces.trees.greedy import grown_on
from capi.trees.forest import Forest, Growth, n_candidates
from capi.trees.projections import Projections
from capi.types import Policy, QFunction

VOTES_AT_ONCE = 2**20  # entries of a table of trees, states and actions


@dataclass(frozen=True, eq=False)
class ForestPolicy(ReadByImitation, Deterministic):
    """Trees that vote; the action with the most votes wins, ties go to the lowest action.

    With masks, each tree votes for the first action of its leaf's ranking that the state allows.
    """

    forest: Forest = field(repr=False)
    n_actions: int
    n_features: int
    n_jobs: int | None = field(default=None, repr=False)
    masked: bool = False
    origin: Any = field(default=None, repr=False)  # (states, settings, rows with weight) that the trees were grown on
    age: int = 1  # improvements since the trees were grown
    known: Remembered[Any] | None = field(default=None, repr=False)  # leaves of states, if the trees are reused

    @cached_property
    def _ranking(self) -> Ints:
        """The actions of each leaf from best to worst (l, A)."""
        return np.argsort(self.forest.sums, axis=1, kind="stable")

    @cached_property
    def _choices(self) -> Ints:
        """The action that each leaf votes for (l,)."""
        return self.forest.sums.argmin(axis=1)

    @cached_property
    def _ballots(self) -> Floats:
        """The vote of each leaf, one-hot (l, A)."""
        return one_hot(self._choices, self.n_actions)

    @property
    def n_inputs(self) -> int:
        """Number of columns that the trees may cut: the features and their combinations."""
        return self.n_features + (0 if self.forest.projections is None else len(self.forest.projections))

    def votes(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the share of trees that vote for each action; ``states`` (n, d) -> (n, A)."""
        check_masks_given(self.masked, allowed)
        x, threads, n_trees = (
            as_states(states, n_features=self.n_features),
            n_threads(self.n_jobs),
            len(self.forest.trees),
        )
        leaves_of_trees = self._remembered(x, threads)
        if allowed is None and leaves_of_trees is None:
            return self.forest.total(self._ballots, x, threads) / n_trees
        if leaves_of_trees is None:
            leaves_of_trees = self.forest.leaves(x, threads)
        if allowed is None:
            return self.forest.votes_of_leaves(self._choices, self.n_actions, leaves_of_trees, threads) / n_trees
        mask: Any = as_allowed(allowed, "allowed", (len(x), self.n_actions))
        votes, at_once = np.zeros(mask.size, dtype=np.int64), max(1, VOTES_AT_ONCE // max(1, mask.size))
        rows = np.arange(len(x))
        for first in range(0, n_trees, at_once):
            ranking = self._ranking[leaves_of_trees[first : first + at_once]]  # (t, n, A)
            place = mask[rows[:, None], ranking].argmax(axis=2, keepdims=True)
            chosen = np.take_along_axis(ranking, place, axis=2)[:, :, 0]  # (t, n)
            votes += np.bincount((rows * self.n_actions + chosen).ravel(), minlength=mask.size)
        return votes.reshape(mask.shape) / n_trees

    def summary(self) -> str:
        """Return one sentence that describes the policy."""
        combined = self.n_inputs - self.n_features
        cuts = f" that also cut {combined} combinations of columns" if combined else ""
        return f"A vote of {len(self.forest.trees)} trees with {len(self.forest.sums)} leaves{cuts}."

    def learning_states(self) -> Floats | None:
        """Return the states that the trees were grown on (n, d)."""
        return None if self.origin is None else as_states(self.origin[0])

    def _remembered(self, states: Floats, n_jobs: int) -> Any:
        """Return the leaves (T, n) of read-only states, found once per set of trees; otherwise None."""
        if self.known is None or not is_fixed(states):
            return None
        return self.known.of(states, lambda: self.forest.leaves(states, n_jobs))

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action with the most votes (n,)."""
        return self.votes(states, allowed).argmax(axis=1)


@dataclass(frozen=True)
class Forests(ImprovementSolver[ForestPolicy]):
    """Forests of extremely randomised trees, grown for the gap-weighted loss, that vote.

    Parameters
    ----------
    n_trees : int
    min_samples_split : int
        A node with fewer states is a leaf (the paper's eta_pi). Larger values give simpler policies.
    min_samples_leaf : int
    max_depth : int, optional
    max_features : int, float or None
        Features considered in a node: a number, a share of all, or None for all.
    refresh_every : int
        Number of improvements on the same states after which new trees are grown; 1 is the paper's scheme. In between,
        only the actions of the leaves are updated.
    n_jobs : int, optional
        Number of threads; -1: all cores, None: one. The policy does not depend on it.
    projections : int
        Number of random combinations of two or three scaled columns that the trees may cut beside the columns themselves,
        drawn whenever trees are grown. They help where the best decision is oblique, such as an angle plus its speed.

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
    refresh_every: int = 1
    n_jobs: int | None = None
    projections: int = 0

    _constraints: ClassVar[Constraints] = {
        "n_trees": at_least(1),
        "refresh_every": at_least(1),
        "min_samples_split": at_least(2),
        "min_samples_leaf": at_least(1),
        "max_depth": optional(at_least(1)),
        "n_jobs": checked_by(n_threads),
        "projections": at_least(0),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,
    ) -> ForestPolicy:
        """Return a forest of trees grown for the gap-weighted loss on the sample."""
        sample = problem.counted
        shape = sample.n_actions, sample.n_features, self.n_jobs, sample.masked
        has_weight = None if problem.weights is None else problem.weights > 0  # rows without weight are ignored
        if self._keeps(previous, problem.states, has_weight):
            threads = n_threads(self.n_jobs)
            sums = previous.forest.sums_of_outputs(sample.filled_losses, threads)
            return ForestPolicy(
                previous.forest.with_sums(sums), *shape, previous.origin, previous.age + 1, previous.known
            )
        forest = self._grown(sample, np.random.default_rng(0) if rng is None else rng)
        origin = problem.states, self, has_weight
        return ForestPolicy(forest, *shape, origin, known=Remembered() if self.refresh_every > 1 else None)

    def _grown(self, sample: ImprovementProblem, rng: np.random.Generator) -> Forest:
        drawn = Projections.drawn(sample.states, self.projections, rng) if self.projections else None
        combined = None if drawn is None else drawn.rounded()
        n_inputs = sample.n_features + (0 if combined is None else len(combined))
        growth = Growth(
            n_trees=self.n_trees,
            n_candidates=n_candidates(self.max_features, n_inputs),
            min_samples_split=self.min_samples_split,
            min_samples_leaf=self.min_samples_leaf,
            max_depth=self.max_depth,
            policy=True,
        )
        return grown_on(sample, growth, rng, n_threads(self.n_jobs), combined)

    def _keeps(self, previous: Any, states: Floats, has_weight: Bools | None) -> TypeGuard[ForestPolicy]:
        """Whether the trees of the previous policy were grown on the same read-only states and are not too old."""
        if not isinstance(previous, ForestPolicy) or previous.origin is None or previous.age >= self.refresh_every:
            return False
        old_states, settings, had_weight = previous.origin
        same = old_states is states and is_fixed(states) and settings == self
        if has_weight is None or had_weight is None:
            return same and has_weight is had_weight
        return same and np.array_equal(has_weight, had_weight)
