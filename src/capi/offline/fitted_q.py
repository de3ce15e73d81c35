r"""Fitted Q evaluation solved to its fixed point on fixed trees, with derivatives in the episode counts.

Forests, one per action, are grown on Bellman targets. On their leaves fitted Q evaluation is a linear system: with :math:`\Phi` the leaves of
the logged decisions and :math:`\Psi` those of the next states under the policy (each row the mean over the trees), counts C of the rows and
:math:`D = \Phi^\top C 1` the counts of the leaves,

.. math:: \theta = D^{-1} \Phi^\top C\,(r + \gamma \Psi \theta).

It is solved by a Krylov method, not by sweeps. The unknowns are the values :math:`u = \Psi\theta` of the next states, and each product takes two lookups
in the leaves. Then trees are grown again on the targets :math:`r + \gamma u`, and so on, `STRUCTURES` times: the first trees see only rewards,
later ones see values. On the last trees, episodes can be reweighted without growing new trees, and the adjoint of the same system gives the
derivative of the estimate with respect to each episode's count. If the batch has elapsed times, :math:`\gamma` is a diagonal matrix with the
discount of each row's step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, bicgstab, gmres

from capi._utils.threads import in_threads
from capi._utils.validation import Floats, Ints
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.offline.episodes import Episodes
from capi.trees.forest import Forest, Growth, grow
from capi.trees.ranks import encode
from capi.types import Policy

STRUCTURES = 4
ROWS_A_LEAF, MANY_ROWS = 50_000, 200_000  # rows per row of leaf size; rows above which fewer trees are used
FEWEST = 2  # rows of an action; with fewer, its forest is grown on all rows
EXACT, CLOSE = 1e-10, 1e-4  # tolerances of the solver: for the estimate itself, and for resamples


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
        trees = (10 if n_rows > MANY_ROWS else 30) if self.n_trees is None else self.n_trees
        return Growth(n_trees=trees, n_candidates=n_features, min_samples_split=2 * leaf, min_samples_leaf=leaf)


@dataclass(frozen=True, eq=False)
class SettledValues:
    """A Q-function: the mean over the trees of the solution in each state's leaf, with one forest per action."""

    forests: list[Forest]
    n_jobs: int = 1

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.forests)

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A)."""
        return np.stack([forest.mean_values(states, self.n_jobs)[:, 0] for forest in self.forests], axis=1)


@dataclass(frozen=True, eq=False)
class LeafSystem:
    """Fitted Q evaluation on fixed trees, as a linear system in the values of their leaves."""

    episodes: Episodes
    forests: list[Forest]
    taken: sparse.csr_matrix  # (n, L) a one for each leaf of the logged decisions
    following: sparse.csr_matrix  # (n, L) the policy's mean in the next states; empty rows where the process ended
    initial: sparse.csr_matrix  # (E, L) the policy's mean in the first states

    @cached_property
    def solution(self) -> tuple[Floats, Floats]:
        """The values of the next states (n,) and of the leaves (L,), with each episode counted by its weight."""
        return self._solved(self.episodes.weights, None, EXACT)

    @property
    def next_values(self) -> Floats:
        """The policy's value in each next state (n,)."""
        return self.solution[0]

    def q(self, n_jobs: int) -> SettledValues:
        """Return the action values as a function."""
        theta, starts = self.solution[1], np.cumsum([0, *(forest.leaf_starts[-1] for forest in self.forests)])
        settled = [
            forest.with_sums((theta[start:end] * forest.leaf_weights)[:, None])
            for forest, start, end in zip(self.forests, starts[:-1], starts[1:], strict=True)
        ]
        return SettledValues(settled, n_jobs)

    def under(self, policy: Policy, n_jobs: int) -> LeafSystem:
        """Return the evaluation of another policy on the same trees; no tree is grown."""
        e = self.episodes
        following, initial = _decisions_of(policy, e)
        return replace(
            self,
            following=_under(self.forests, e.batch.next_states, following, n_jobs),
            initial=_under(self.forests, e.batch.states[e.starts], initial, n_jobs),
        )

    def value(self, counts: Floats) -> float:
        """Return the mean value of the first states for the episode counts ``counts`` (E,); no tree is grown."""
        theta = self._solved(counts, self.solution, CLOSE)[1]
        return float(np.average(self.initial @ theta, weights=counts))

    def influence(self) -> Floats:
        """Return the derivative of the estimate with respect to each episode's count, times the sum of the counts (E,)."""
        counts, of_starts = self.episodes.weights, self.initial @ self.solution[1]
        mean = float(np.average(of_starts, weights=counts))
        return of_starts - mean + self._response(np.asarray(self.initial.T @ counts).ravel())

    def response(self, states: Floats, probabilities: Floats, amounts: Floats) -> Floats:
        """Return how the values of other states depend on the episodes of this log.

        This is the derivative, with respect to each episode's count (E,), of the values of ``states`` (m, d) summed with the weights ``amounts`` (m,);
        in those states the policy has the ``probabilities`` (m, A).
        """
        wanted = _under(self.forests, states, probabilities, 1).T @ amounts
        return self._response(np.asarray(wanted).ravel())

    def _response(self, wanted: Floats) -> Floats:
        """Return the derivative, with respect to each episode's count (E,), of ``wanted @ theta``; ``wanted`` (L,)."""
        e, (u, theta) = self.episodes, self.solution
        rows = e.weights[e.of_row]
        inverse = _inverse(self._from_rows @ rows)

        def adjoint(back: Floats) -> Floats:  # (n,) -> (n,): the transpose of the product in `_solved`
            return e.over_steps(rows * (self.taken @ (inverse * (self._from_next @ back))))

        first = e.over_steps(rows * (self.taken @ (inverse * wanted)))
        y = _solve(lambda v: v - e.discount * adjoint(v), first, None, EXACT)
        # the derivative with respect to the leaves' equations: direct, and through the next states
        moved = self._left_out * inverse * (wanted + e.discount * (self._from_next @ y))  # (L,)
        targets = e.batch.rewards + e.discount * e.over_steps(u)
        return e.summed((self.taken @ moved) * targets - self.taken @ (moved * theta))

    @cached_property
    def _left_out(self) -> Floats:
        """Ratio of a target's distance from the mean of its leaf without it to the distance from the mean with it (L,).

        A mean of m numbers is closer to each of them than to a new one, by the factor (m - 1) / m, so its error would be underestimated.
        """
        sizes = np.asarray(self._from_rows @ np.ones(len(self.episodes.batch))).ravel()
        return sizes / np.maximum(sizes - 1, 1.0)

    @cached_property
    def _from_rows(self) -> Any:
        return self.taken.T  # computed once: otherwise each product would transpose again

    @cached_property
    def _from_next(self) -> Any:
        return self.following.T

    def _solved(self, counts: Floats, start: tuple[Floats, Floats] | None, tolerance: float) -> tuple[Floats, Floats]:
        """Return next values (n,) and leaf values (L,).

        If there is a ``start``, the solution for the episodes' own weights, leaves without rows keep its values, and the effect of the counts on
        a leaf's mean is scaled to that of a target that is not part of the mean.
        """
        e = self.episodes
        rows = counts[e.of_row]
        inverse = _inverse(self._from_rows @ rows)

        def leaves(targets: Floats) -> Floats:
            return inverse * (self._from_rows @ (rows * targets))

        if start is None:
            first, fixed = None, np.zeros(len(inverse))
        else:
            first, theta = start
            noise = leaves(e.batch.rewards + e.discount * e.over_steps(first)) - theta
            fixed = np.where(inverse == 0, theta, (self._left_out - 1) * noise)
        constant = self.following @ (leaves(e.batch.rewards) + fixed)
        u = _solve(lambda v: v - e.discount * (self.following @ leaves(e.over_steps(v))), constant, first, tolerance)
        return u, leaves(e.batch.rewards + e.discount * e.over_steps(u)) + fixed


@dataclass(frozen=True, eq=False)
class FittedStart:
    """The estimate of fitted Q evaluation: the mean value of the first states, part by part if policies differ between parts."""

    parts: Sequence[tuple[Ints, LeafSystem]]  # the episodes of each part, and its system
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
        for members, system in self.parts:
            out[members] = system.influence() + system.value(self.weights[members]) - whole
        return out

    def _value(self, counts: Floats) -> float:
        total = 0.0
        for members, system in self.parts:
            mine = counts[members]
            total += float(mine.sum()) * system.value(mine) if mine.any() else 0.0
        return total / float(counts.sum())


def leaf_system(policy: Policy, episodes: Episodes, regression: Regression, rng: np.random.Generator) -> LeafSystem:
    """Return fitted Q evaluation of ``policy`` on trees grown on its own targets; all ``episodes`` must have positive weight."""
    t, discount = episodes.batch, episodes.discount
    following, initial = _decisions_of(policy, episodes)
    groups = _groups(t)
    streams = rng.spawn(STRUCTURES)
    inputs = [encode(t.states[rows], regression.n_jobs) for rows in groups]
    growth = regression.growth(len(t), t.n_features)
    targets, going_on = t.rewards, discount > 0 and bool(following.any())
    row_weights = None if t.weights is None else episodes.weights[episodes.of_row]
    for stream in streams if going_on else streams[:1]:
        forests = [
            grow(
                codes,
                targets[rows][:, None],
                growth,
                of_action,
                weights=None if row_weights is None else row_weights[rows],
                n_jobs=regression.n_jobs,
            )
            for rows, codes, of_action in zip(groups, inputs, stream.spawn(t.n_actions), strict=True)
        ]
        system = LeafSystem(
            episodes,
            forests,
            _taken(forests, groups, len(t)),
            _under(forests, t.next_states, following, regression.n_jobs),
            _under(forests, t.states[episodes.starts], initial, regression.n_jobs),
        )
        targets = t.rewards + discount * episodes.over_steps(system.next_values)
    return system


def _decisions_of(policy: Policy, episodes: Episodes) -> tuple[Floats, Floats]:
    """Return a policy's probabilities in the next states (n, A), zero after the end, and in the first states (E, A)."""
    t = episodes.batch
    following = policy.probabilities(t.next_states, t.next_masks()) * ~t.terminated[:, None]
    allowed = None if t.allowed is None else t.allowed[episodes.starts]
    return following, policy.probabilities(t.states[episodes.starts], allowed)


def _groups(t: Transitions) -> list[Ints]:
    """Return the rows that each action's forest is grown on: its own, or all rows if it has too few."""
    own = [np.flatnonzero(t.actions == a) for a in range(t.n_actions)]
    return [rows if len(rows) >= FEWEST else np.arange(len(t)) for rows in own]


def _taken(forests: list[Forest], groups: list[Ints], n: int) -> sparse.csr_matrix:
    """Return a one for each leaf of the rows that the forests were grown on (n, L)."""
    starts = np.cumsum([0, *(forest.leaf_starts[-1] for forest in forests)])
    blocks = []
    for forest, rows, start in zip(forests, groups, starts[:-1], strict=True):
        blocks.append((rows, forest.leaves_of_rows + np.int32(start), np.ones(len(rows))))
    return _matrix(blocks, (n, int(starts[-1])))


def _under(forests: list[Forest], states: Floats, probabilities: Floats, n_jobs: int) -> sparse.csr_matrix:
    """Return the mean over trees and over the policy's actions of the leaves of ``states`` (n, d) -> (n, L)."""
    starts = np.cumsum([0, *(forest.leaf_starts[-1] for forest in forests)])
    blocks = []
    for a, forest in enumerate(forests):
        rows = np.flatnonzero(probabilities[:, a])
        if not len(rows):
            continue
        leaves = forest.leaves(states[rows], n_jobs) + np.int32(starts[a])
        blocks.append((rows, leaves, probabilities[rows, a] / len(leaves)))
    return _matrix(blocks, (len(states), int(starts[-1])))


def _matrix(blocks: list[tuple[Ints, Any, Floats]], shape: tuple[int, int]) -> sparse.csr_matrix:
    """Return a matrix whose rows (m,) have the same value (m,) in several columns (T, m), block by block; filled in place, because it is large."""
    widths = np.zeros(shape[0], dtype=np.int64)
    for rows, columns, _ in blocks:
        widths[rows] += len(columns)
    ends = np.cumsum(widths)
    free = ends - widths
    indices, data = np.empty(ends[-1], dtype=np.int32), np.empty(ends[-1])
    for rows, columns, values in blocks:
        for column in columns:
            indices[free[rows]], data[free[rows]] = column, values
            free[rows] += 1
    return sparse.csr_matrix((data, indices, np.append(0, ends)), shape=shape)


def _inverse(counts: Any) -> Floats:
    """Return the inverse of each count, or zero where the count is zero."""
    counts = np.asarray(counts).ravel()
    return np.divide(1.0, counts, out=np.zeros_like(counts), where=counts > 0)


def _solve(operator: Any, right: Floats, start: Floats | None, tolerance: float) -> Floats:
    """Return the solution of ``operator(v) = right``, where the operator is the identity minus a contraction.

    The error is at most ``tolerance`` relative to ``right`` or, with a ``start``, relative to its residual: differences between resamples are
    accurate however large the values are.
    """
    if start is not None:
        change = right - operator(start)
        if np.linalg.norm(change) <= EXACT * np.linalg.norm(right):
            return start
        return start + _solve(operator, change, None, tolerance)
    if not right.any():
        return right
    n = len(right)
    product = LinearOperator((n, n), matvec=operator, dtype=np.float64)
    with np.errstate(all="ignore"):
        found, failed = bicgstab(product, right, rtol=tolerance, atol=0.0, maxiter=500)
        if failed or not np.isfinite(found).all():  # bicgstab may break down, gmres cannot
            found, failed = gmres(product, right, rtol=tolerance, atol=0.0, restart=40, maxiter=50)
    if failed or not np.isfinite(found).all():
        raise InvalidInputError(
            "fitted Q evaluation did not converge: rewards or weights are too large, or differ too much in scale. Rescale them."
        )
    solution: Floats = found
    return solution
