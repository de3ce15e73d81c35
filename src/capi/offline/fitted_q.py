r"""Fitted Q evaluation solved to its fixed point on fixed trees, with derivatives in the episode counts.

Forests, one per action, are grown on Bellman targets; with the batch they are an `Averager`, in which the policy has an exact value. Then trees are
grown again on the targets of its solution, and so on, `STRUCTURES` times: the first trees see only rewards, later ones see values. On the last
trees, episodes can be reweighted without growing new ones, and the adjoint of the same system gives the derivative of the estimate with respect
to each episode's count. With S, :math:`G_\pi` and :math:`\gamma` as in `capi.evaluators.averager`, leaves have the values

.. math:: \theta = S\,(r + \gamma G_\pi \theta),

and the counts of the episodes enter S alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints
from capi.evaluators.averager import Averager
from capi.evaluators.fitted_values import FittedValues
from capi.evaluators.under_policy import UnderPolicy
from capi.offline.episodes import Episodes
from capi.policies import Decisions, decided
from capi.trees.forest import Growth
from capi.types import Policy

STRUCTURES = 4
ROWS_A_LEAF, MANY_ROWS = 50_000, 200_000  # rows per row of leaf size; rows above which fewer trees are used
FEWER_TREES = 10
EXACT = 1e-10  # error of the estimate itself, relative to the largest value
CLOSE = 3e-3  # bound on the error of the change that a resample makes to the values, relative to the largest change


@dataclass(frozen=True)
class Regression:
    """The trees of fitted Q evaluation.

    Parameters
    ----------
    n_trees : int, optional
        By default 30, or 10 for very large logs.
    min_samples_leaf : int, optional
        By default 2, or more for very large logs: small leaves have little bias, and almost none with very many rows.
    n_jobs : int
        Number of threads; the result does not depend on it.
    """

    n_trees: int | None = None
    min_samples_leaf: int | None = None
    n_jobs: int = 1

    def growth(self, n_rows: int, n_features: int) -> Growth:
        """Return the growth settings for a number of rows and features."""
        leaf = max(2, n_rows // ROWS_A_LEAF) if self.min_samples_leaf is None else self.min_samples_leaf
        trees = (FEWER_TREES if n_rows > MANY_ROWS else 30) if self.n_trees is None else self.n_trees
        return Growth(n_trees=trees, n_candidates=n_features, min_samples_split=2 * leaf, min_samples_leaf=leaf)


@dataclass(frozen=True, eq=False)
class FittedEvaluation:
    """Fitted Q evaluation of a policy on fixed trees, as a function of the counts of the episodes."""

    episodes: Episodes
    under: UnderPolicy  # the model of the trees and the batch, whose start states are the episodes' first ones

    @property
    def next_values(self) -> Floats:
        """The policy's value in each next state (n,)."""
        return self.under.next_values

    @property
    def q(self) -> FittedValues:
        """The action values of the policy."""
        return self.under.action_values

    @property
    def n_entries(self) -> int:
        """Number of entries of the system: of the leaves' averages, and of the look-ups of the next states."""
        return len(self.under.model.cells.members) + self.under.following.size

    def of_policy(self, policy: Policy) -> FittedEvaluation:
        """Return the evaluation of another policy on the same trees; no tree is grown."""
        return replace(
            self, under=self.under.model.under_decisions(*_decisions_of(policy, self.episodes), tolerance=EXACT)
        )

    def value(self, counts: Floats) -> float:
        """Return the mean value of the first states for the episode counts ``counts`` (E,); no tree is grown.

        Leaves without rows keep their values, and the effect of the counts on a leaf's mean is scaled to that of a target that is
        not part of the mean. Only the change from the solution for the episodes' own weights is solved for, so that
        differences between resamples are accurate however large the values are.
        """
        base, theta = self.under, self.under.leaf_values
        again = base.on_same_cells(counts[self.episodes.of_row])
        m = again.model
        moved = np.where(m.inverse > 0, self._left_out * (m.leaf_means(self._targets) - theta), 0.0)  # (l,)
        first = np.where(m.weights > 0, base.following.values(moved), 0.0)  # (n,)
        step = again.solved(first, CLOSE).x  # (n,)
        changed = theta + moved + m.leaf_means(m.steps * step)
        return float(np.average(base.initial.values(changed), weights=counts))

    def influence(self) -> Floats:
        """Return the derivative of the estimate with respect to each episode's count, times the sum of the counts (E,)."""
        counts, of_starts = self.episodes.weights, self.under.start_values
        mean = float(np.average(of_starts, weights=counts))
        return of_starts - mean + self.response_of_leaves(self.under.initial.back(counts, len(self._left_out)))

    def response(self, states: Floats, probabilities: Floats, amounts: Floats) -> Floats:
        """Return how the values of other states depend on the episodes of this log.

        This is the derivative, with respect to each episode's count (E,), of the values of ``states`` (m, d) summed with the weights ``amounts`` (m,);
        in those states the policy has the ``probabilities`` (m, A).
        """
        wanted = self.under.model.look_ups(states, probabilities)
        return self.response_of_leaves(wanted.back(amounts, len(self._left_out)))

    def response_of_leaves(self, wanted: Floats) -> Floats:
        """Return the derivative, with respect to each episode's count (E,), of ``wanted @ theta``; ``wanted`` (l,)."""
        e, u = self.episodes, self.under
        m = u.model
        y = u.solved_back(m.steps * m.shared_back(wanted), EXACT).x
        # the derivative with respect to the leaves' equations: direct, and through the next states
        moved = self._left_out * m.inverse * (wanted + u.following.back(y, len(wanted)))  # (l,)
        return e.summed(m.cells.spread(moved) * self._targets - m.cells.spread(moved * u.leaf_values))

    @cached_property
    def _targets(self) -> Floats:
        """The Bellman target of each row (n,)."""
        return self.under.model.batch.rewards + self.under.model.steps * self.next_values

    @cached_property
    def _left_out(self) -> Floats:
        """Ratio of a target's distance from the mean of its leaf without it to the distance from the mean with it (l,).

        A mean of m numbers is closer to each of them than to a new one, by the factor (m - 1) / m, so its error would be underestimated.
        """
        sizes = self.under.model.cells.sizes
        return sizes / np.maximum(sizes - 1, 1.0)


@dataclass(frozen=True, eq=False)
class FittedStart:
    """The estimate of fitted Q evaluation: the mean value of the first states, part by part if policies differ between parts."""

    parts: Sequence[tuple[Ints, FittedEvaluation]]  # the episodes of each part, and its evaluation
    weights: Floats  # (E,) weights of the episodes
    n_jobs: int = 1
    linear: bool = False  # resample through the derivative instead of the system, for logs too large to solve often

    def values(self, counts: Floats) -> Floats:
        """Return the estimate for each count vector; ``counts`` (B, E) -> (B,)."""
        if self.linear:
            return self._value(self.weights) + counts @ self._influence / counts.sum(axis=1)
        return np.array(in_threads(self._value, list(counts), self.n_jobs))

    def influence(self, counts: Floats) -> Floats:  # noqa: ARG002  trees were grown with the episodes' own weights
        """Return the derivative with respect to each episode's count (E,), at the episodes' own weights."""
        return self._influence

    @cached_property
    def _influence(self) -> Floats:
        out, whole = np.empty(len(self.weights)), self._value(self.weights)
        for members, part in self.parts:
            out[members] = part.influence() + part.value(self.weights[members]) - whole
        return out

    def _value(self, counts: Floats) -> float:
        total = 0.0
        for members, part in self.parts:
            mine = counts[members]
            total += float(mine.sum()) * part.value(mine) if mine.any() else 0.0
        return total / float(counts.sum())


def fitted_evaluation(
    policy: Policy, episodes: Episodes, regression: Regression, rng: np.random.Generator
) -> FittedEvaluation:
    """Return fitted Q evaluation of ``policy`` on trees grown on its own targets; all ``episodes`` must have positive weight."""
    t, discount = episodes.batch, episodes.discount
    decisions = _decisions_of(policy, episodes)
    growth = regression.growth(len(t), t.n_features)
    targets, values = t.rewards, None
    for stream in rng.spawn(STRUCTURES if discount > 0 and not t.terminated.all() else 1):
        grown = Averager.grown(t, targets, growth, stream, discount=discount, n_jobs=regression.n_jobs)
        model = replace(grown, weights=episodes.weights[episodes.of_row], remembers=False)
        under = model.under_decisions(*decisions, tolerance=EXACT, guess=values)
        values = under.next_values
        targets = t.rewards + model.steps * values
    return FittedEvaluation(episodes, under)


def _decisions_of(policy: Policy, episodes: Episodes) -> tuple[Decisions, Decisions]:
    """Return a policy's decisions in the next states and in the first states."""
    t, first = episodes.batch, episodes.starts
    allowed = None if t.allowed is None else t.allowed[first]
    return decided(policy, t.next_states, t.next_masks()), decided(policy, t.states[first], allowed)
