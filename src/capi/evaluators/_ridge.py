"""Kernel ridge regression for many targets: features and factorised systems, computed once and reused in every sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from capi._utils.array_cache import Remembered
from capi._utils.validation import Floats, Ints, is_fixed
from capi.errors import InvalidInputError
from capi.features.dictionary import KernelDictionary
from capi.features.kernels import Kernel, likeness
from capi.features.scaling import Scaling

LARGEST_TABLE = 2**30  # bytes; larger feature tables of an array are not kept
NUMBERS_AT_ONCE = 2**18  # entries per block of features: 2 MB, which fits into the processor's cache

Tables: TypeAlias = tuple[Floats, ...]  # features of states, one table (n, m_a) per action
Coefficients: TypeAlias = tuple[Floats, ...]  # (m_a,), one array per action: Q(x, a) = table_a(x) @ coefficients_a


class Basis(Protocol):
    """Features of states in which Q is linear, separately for each action."""

    @property
    def width(self) -> int:
        """Number of features of one state, summed over the actions."""

    def tables(self, states: Floats) -> Tables:
        """Return the features of ``states`` (n, d)."""


@dataclass(frozen=True, eq=False)
class SparseBasis:
    """Whitened features of a dictionary, the same for all actions."""

    dictionary: KernelDictionary
    n_actions: int

    @property
    def width(self) -> int:
        """Number of features of one state."""
        return len(self.dictionary.centres_)

    def tables(self, states: Floats) -> Tables:
        """Return the features of ``states`` (n, d), the same for each action."""
        return (self.dictionary.transform(states),) * self.n_actions


@dataclass(frozen=True, eq=False)
class ExactBasis:
    """The kernel between a state and all states in which the action was taken."""

    kernel: Kernel
    scaling: Scaling
    centres: tuple[Floats, ...]  # (n_a, d), one array per action

    @property
    def width(self) -> int:
        """Number of features of one state."""
        return sum(map(len, self.centres))

    def tables(self, states: Floats) -> Tables:
        """Return the features of ``states`` (n, d)."""
        x = self.scaling(states)
        return tuple(likeness(self.kernel, x, centres) for centres in self.centres)


@dataclass(frozen=True, eq=False)
class KeptFeatures:
    """The tables of a basis in blocks; those of read-only arrays are kept if they are not too large."""

    basis: Basis
    known: Remembered[Tables] = field(default_factory=Remembered)

    def kept(self, states: Floats) -> Tables | None:
        """Return the tables of ``states`` if they can be kept, or None."""
        if not is_fixed(states) or 8 * len(states) * self.basis.width > LARGEST_TABLE:
            return None
        return self.known.of(states, lambda: self.basis.tables(states))

    def blocks(self, states: Floats) -> Iterator[tuple[slice, Tables]]:
        """Yield blocks of rows with their tables; the blocks do not depend on whether the tables are kept."""
        kept, size = self.kept(states), max(1, NUMBERS_AT_ONCE // self.basis.width)
        for start in range(0, len(states), size):
            rows = slice(start, start + size)
            yield rows, self.basis.tables(states[rows]) if kept is None else tuple(table[rows] for table in kept)


class Ridge(Protocol):
    """A regression on the features of a batch, prepared for any targets."""

    def coefficients(self, targets: Floats) -> Coefficients:
        """Return the solutions for ``targets`` (n,), one per row of the batch."""


@dataclass(frozen=True, eq=False)
class PrimalRidge:
    """(Z_a' W Z_a + ridge I) theta_a = Z_a' W y_a, on the features Z of a dictionary."""

    features: KeptFeatures
    states: Floats  # (n, d)
    weights: Floats  # (n, A), zero for the actions that a row did not take
    factors: tuple[Floats, ...]  # (m, m), lower triangular

    def coefficients(self, targets: Floats) -> Coefficients:
        """Return the solutions for ``targets`` (n,)."""
        weighted = self.weights * targets[:, None]  # (n, A)
        right = np.zeros((self.features.basis.width, len(self.factors)))  # (m, A)
        for rows, tables in self.features.blocks(self.states):
            right += tables[0].T @ weighted[rows]
        return tuple(solved_by(factor, right[:, a]) for a, factor in enumerate(self.factors))


@dataclass(frozen=True, eq=False)
class DualRidge:
    """(W^1/2 K_aa W^1/2 + ridge I) beta_a = W^1/2 y_a, alpha_a = W^1/2 beta_a: stable for tiny weights."""

    groups: tuple[Ints, ...]  # rows of the batch, one array per action
    roots: tuple[Floats, ...]  # of the weights of these rows
    factors: tuple[Floats, ...]  # (n_a, n_a), lower triangular

    def coefficients(self, targets: Floats) -> Coefficients:
        """Return the solutions for ``targets`` (n,)."""
        parts = zip(self.groups, self.roots, self.factors, strict=True)
        return tuple(root * solved_by(factor, root * targets[rows]) for rows, root, factor in parts)


def factorised(matrix: Floats, ridge: float) -> Floats:
    """Return the lower Cholesky factor of the symmetric ``matrix + ridge I``; ``matrix`` is overwritten."""
    matrix.flat[:: len(matrix) + 1] += ridge
    try:
        factor: Floats = cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)[0]  # LAPACK's order
    except LinAlgError as error:
        raise InvalidInputError(
            f"kernel must be positive semi-definite; its matrix is not, even with ridge = {ridge:g} on the diagonal. "
            "Use another kernel, or a larger ridge if only rounding is to blame."
        ) from error
    return factor


def solved_by(factor: Floats, right: Floats) -> Floats:
    """Return the solution of a system with the factor that `factorised` returned."""
    solution: Floats = cho_solve((factor, True), right, check_finite=False)
    return solution
