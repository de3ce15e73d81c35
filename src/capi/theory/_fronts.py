r"""What members of a policy space can reach against random signs: the pairs of sum and second moment that matter.

For coefficients :math:`s_x`, a member has the sum :math:`c(\pi) = \sum_x s_x l(\pi)(x)` and the second moment :math:`v(\pi) = \sum_x \nu_x l(\pi)(x)^2`. The
supremum of the sums over the star hull at radius r,

.. math:: \sup_\pi \min\bigl(1, \sqrt{r / v(\pi)}\bigr)\, c(\pi)_+ ,

only needs the members that no other one beats in both numbers: their front. Of a set that can be listed, of thresholds, and of trees on few states, the front is exact. Any other space
with an exact minimiser gives the vertices of the concave hull of all pairs, one call per vertex and one per edge, through
:math:`\max_\pi c(\pi) - \lambda v(\pi)`; the hull is never below the front. A minimiser that is not exact gives points that are too low.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from capi._utils.row_ops import chosen_entries
from capi._utils.validation import Floats, Ints
from capi.policy_spaces import OptimalTrees, Partition, Thresholds, Unrestricted
from capi.theory._small_trees import SmallTrees
from capi.types import PolicySpace

MOST_VERTICES = 64  # of a hull
FLAT = 1e-9  # a point that is less than this share above an edge is on it
EXACT = (OptimalTrees, Partition, Thresholds, Unrestricted)


class Members(Protocol):
    """The members of a policy space, seen from random signs."""

    @property
    def is_exact(self) -> bool:
        """Whether no supremum is too low."""

    @property
    def is_hull(self) -> bool:
        """Whether fronts are vertices of a concave hull."""

    def front(self, signs: Floats) -> tuple[Floats, Floats]:
        """Return second moments (f,) in increasing order and sums (f,) of the members that matter for ``signs`` (N,)."""

    def largest(self, signs: Floats) -> float:
        """Return the largest sum of any member, which may be negative."""


@dataclass(frozen=True, eq=False)
class Listed:
    """Members whose losses in all states are listed in a table."""

    losses: Floats  # (m, N)
    nu: Floats  # (N,)
    is_exact = True
    is_hull = False

    @cached_property
    def by_square(self) -> tuple[Ints, Floats]:
        """The members in order of their second moments, and these (m,)."""
        squares = np.square(self.losses) @ self.nu
        order = np.argsort(squares, kind="stable")
        return order, squares[order]

    def front(self, signs: Floats) -> tuple[Floats, Floats]:
        """Return the front."""
        order, squares = self.by_square
        return rising(squares, (self.losses @ signs)[order])

    def largest(self, signs: Floats) -> float:
        """Return the largest sum."""
        return float((self.losses @ signs).max())


@dataclass(frozen=True, eq=False)
class Cuts:
    """All policies with one cut in one feature, through sums from below and from above the cut."""

    states: Floats  # (N, d)
    regrets: Floats  # (N, A)
    nu: Floats  # (N,)
    feature: int | None = None
    by_means: bool = False  # whether squared means stand for second moments, as if all losses of a member were equal
    is_exact = True
    is_hull = False

    @cached_property
    def orders(self) -> list[tuple[Ints, Ints]]:
        """For each feature the states in its order, and the places after which a cut is possible."""
        found = []
        for j in range(self.states.shape[1]) if self.feature is None else [self.feature]:
            order = np.argsort(self.states[:, j], kind="stable")
            column = self.states[order, j]
            found.append((order, np.flatnonzero(column[:-1] < column[1:])))
        return found

    def of(self, table: Floats) -> Floats:
        """Return the sum of ``table`` (N, A) over the decisions of each member: constants, then features, cuts and pairs of actions."""
        totals = table.sum(axis=0)  # (A,)
        A = len(totals)
        different = ~np.eye(A, dtype=bool).ravel()
        parts = [totals]
        for order, places in self.orders:
            low = np.cumsum(table[order], axis=0)[places]  # (p, A)
            pairs = low[:, :, None] + (totals - low)[:, None, :]  # (p, A low, A high)
            parts.append(pairs.reshape(len(places), A * A)[:, different].ravel())
        return np.concatenate(parts)

    @cached_property
    def by_square(self) -> tuple[Ints, Floats]:
        """The members in order of their second moments, and these (m,)."""
        powers = self.regrets if self.by_means else np.square(self.regrets)
        moments = np.maximum(self.of(self.nu[:, None] * powers), 0.0)
        squares = np.square(moments) if self.by_means else moments
        order = np.argsort(squares, kind="stable")
        return order, squares[order]

    def front(self, signs: Floats) -> tuple[Floats, Floats]:
        """Return the front."""
        order, squares = self.by_square
        return rising(squares, self.of(signs[:, None] * self.regrets)[order])

    def largest(self, signs: Floats) -> float:
        """Return the largest sum."""
        return float(self.of(signs[:, None] * self.regrets).max())


@dataclass(frozen=True, eq=False)
class ByImprovement:
    """Any policy space, through its `improve`."""

    space: PolicySpace
    states: Floats  # (N, d)
    regrets: Floats  # (N, A)
    nu: Floats  # (N,)
    doubts: list[str] = field(default_factory=list)  # one for each policy that may not have been the best one
    is_hull = True

    @property
    def is_exact(self) -> bool:
        """Whether the space has always found the least loss, so that suprema are not too low."""
        return isinstance(self.space, EXACT) and not self.doubts

    @cached_property
    def squares(self) -> Floats:
        """What each decision adds to the second moment (N, A)."""
        return self.nu[:, None] * np.square(self.regrets)

    def best(self, signs: Floats, price: float) -> tuple[float, float]:
        """Return second moment and sum of the member with the largest sum less ``price`` times the second moment."""
        values = signs[:, None] * self.regrets - price * self.squares
        if isinstance(self.space, Unrestricted):
            actions: Any = values.argmax(axis=1)
        else:
            policy = self.space.improve(self.states, values)
            if not getattr(policy, "optimal_on_cuts", True):
                self.doubts.append(str(getattr(policy, "stopped_by", None)))
            actions = policy.act(self.states)
        lost = chosen_entries(self.regrets, actions)
        return float(self.nu @ np.square(lost)), float(signs @ lost)

    def largest(self, signs: Floats) -> float:
        """Return the largest sum: one call of `improve` on signed values."""
        return self.best(signs, 0.0)[1]

    def front(self, signs: Floats) -> tuple[Floats, Floats]:
        """Return the vertices of the concave hull, from the origin to the largest sum."""
        top = self.best(signs, 0.0)
        if top[1] <= 0 or top[0] <= 0:
            return np.zeros(1), np.zeros(1)
        vertices = [(0.0, 0.0), top]
        waiting = [((0.0, 0.0), top)]
        while waiting and len(vertices) < MOST_VERTICES:
            (v0, c0), (v1, c1) = waiting.pop()
            slope = (c1 - c0) / (v1 - v0)
            v, c = self.best(signs, slope)
            if c - slope * v > c0 - slope * v0 + FLAT * top[1] and v0 < v < v1:
                vertices.append((v, c))
                waiting += [((v0, c0), (v, c)), ((v, c), (v1, c1))]
        points = np.array(sorted(vertices))
        return points[:, 0], points[:, 1]


def members_of(space: Any, states: Floats, regrets: Floats, nu: Floats) -> Members:
    """Return the members of a policy space, or of a table of actions (m, N)."""
    if isinstance(space, np.ndarray):
        losses = np.take_along_axis(regrets[None, :, :], space[:, :, None], axis=2)[:, :, 0]
        return Listed(losses, nu)
    if isinstance(space, Thresholds) and not space.monotone:
        return Cuts(states, regrets, nu, space.feature)
    if _is_listable(space, states):
        return SmallTrees(states, regrets, nu, space.max_depth)
    return ByImprovement(with_all_members(space), states, regrets, nu)


def _is_listable(space: Any, states: Floats) -> bool:
    """Return whether a space is one of optimal trees on all cuts, and has few trees on the states."""
    if not isinstance(space, OptimalTrees) or space.monotone or space.n_thresholds is not None:
        return False
    return not np.isnan(states).any() and SmallTrees.are_few(states, space.max_depth)


def with_all_members(space: Any) -> Any:
    """Return the space without a price and a least size of leaves: they say which trees are preferred on a sample, not which there are."""
    return replace(space, leaf_penalty=0.0, min_samples_leaf=1) if isinstance(space, OptimalTrees) else space


def rising(squares: Floats, sums: Floats) -> tuple[Floats, Floats]:
    """Return the pairs, in order of increasing ``squares`` (m,), whose sum exceeds zero and all sums before it."""
    highest = np.maximum.accumulate(np.maximum(sums, 0.0))
    new = np.flatnonzero(np.diff(highest, prepend=0.0) > 0)
    return squares[new], sums[new]


@dataclass(frozen=True, eq=False)
class StarHulls:
    """The fronts of many draws of signs, side by side."""

    squares: Floats  # (D, f), filled up with infinity
    sums: Floats  # (D, f), filled up with zero
    is_hull: bool

    @classmethod
    def of(cls, fronts: Iterator[tuple[Floats, Floats]], is_hull: bool) -> StarHulls:
        """Return the fronts as one table."""
        found = list(fronts)
        width = max([1, *(len(squares) for squares, _ in found)])
        squares, sums = np.full((len(found), width), np.inf), np.zeros((len(found), width))
        for i, (v, c) in enumerate(found):
            squares[i, : len(v)], sums[i, : len(c)] = v, c
        return cls(squares, sums, is_hull)

    def at(self, radius: float) -> Floats:
        """Return the supremum over the star hull at second moments up to ``radius``, for each draw (D,)."""
        shrunk = np.sqrt(np.minimum(radius / np.maximum(self.squares, max(radius, 1e-300)), 1.0))
        found: Floats = (shrunk * self.sums).max(axis=1)
        if not self.is_hull:
            return found
        edges = [
            np.interp(radius, v[np.isfinite(v)], c[np.isfinite(v)])
            for v, c in zip(self.squares, self.sums, strict=True)
        ]
        return np.maximum(found, edges)


def drawn_signs(
    n: int | None, nu: Floats, rng: np.random.Generator, groups: Ints | None = None
) -> Callable[[], Floats]:
    """Return a function that draws coefficients (N,): the summed signs of n states drawn from ``nu``, or of the states themselves.

    States of the same group, numbered from 0, have the same sign.
    """
    if n is None:
        group = np.arange(len(nu)) if groups is None else groups
        n_groups = int(group.max()) + 1
        return lambda: nu * (2.0 * rng.integers(2, size=n_groups) - 1.0)[group]

    def draw() -> Floats:
        counts = rng.multinomial(n, nu)
        return (2.0 * rng.binomial(counts, 0.5) - counts) / n

    return draw
