"""Transition probabilities of all actions in one matrix of S*A rows, row ``x * A + a``, dense or sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from capi._utils.validation import ROW_SUM_TOLERANCE, Floats, Ints, as_array
from capi.errors import InvalidInputError

Matrix: TypeAlias = Any  # ndarray or scipy.sparse array, which have no common type


def stacked_transitions(P: ArrayLike | Sequence[Matrix]) -> tuple[Matrix, int, int]:
    """Return the checked matrix (S*A, S), A and S; ``P`` is (A, S, S) or a sequence of sparse (S, S)."""
    if sp.issparse(P):
        raise InvalidInputError("P must be a sequence of sparse arrays, one per action; got a single array.")
    scalar = isinstance(P, str) or (isinstance(P, np.ndarray) and P.ndim == 0)
    if scalar or not isinstance(P, Sequence | np.ndarray):
        raise InvalidInputError(
            f"P must be real numbers of shape (n_actions, n_states, n_states); got a {type(P).__name__}."
        )
    is_sparse = any(sp.issparse(part) for part in P)
    stacked, n_actions = _stacked_sparse(P) if is_sparse else _stacked_dense(P)
    n_states = stacked.shape[1]
    _check_probabilities(sp.coo_array(stacked), n_actions)
    _check_row_sums(np.asarray(stacked.sum(axis=1)).ravel(), n_actions)
    return stacked, n_actions, n_states


def scaled_rows(matrix: Matrix, factors: Floats) -> Matrix:
    """Return ``matrix`` with each row multiplied by its factor."""
    return sp.diags_array(factors) @ matrix if sp.issparse(matrix) else factors[:, None] * matrix


def drawn_columns(cumulative: Floats, ends: Ints, columns: Ints, rows: Ints, rng: np.random.Generator) -> Ints:
    """Draw a column for each of ``rows`` (n,) by inverting that row's part of the running sum.

    ``cumulative`` is the running sum of all entries of a csr matrix, ``ends`` its indptr, ``columns`` its indices.
    """
    padded = np.append(0.0, cumulative)
    low, high = padded[ends[rows]], padded[ends[rows + 1]]
    target = low + rng.random(len(rows)) * (high - low)
    position = np.searchsorted(cumulative, target, side="right")
    return columns[np.clip(position, ends[rows], ends[rows + 1] - 1)]


def _stacked_sparse(P: Any) -> tuple[Matrix, int]:
    n_states = next(part.shape[0] for part in P if sp.issparse(part))
    for a, part in enumerate(P):
        if not sp.issparse(part) or part.shape != (n_states, n_states) or n_states == 0:
            found = f"shape {part.shape}" if sp.issparse(part) else f"a {type(part).__name__}"
            raise InvalidInputError(f"P[{a}] must be a sparse array of shape ({n_states}, {n_states}); got {found}.")
        _check_real(part)
    blocks = [sp.csr_array(part, dtype=np.float64) for part in P]
    by_state = np.arange(len(blocks) * n_states).reshape(len(blocks), n_states).T.ravel()
    stacked = sp.vstack(blocks, format="csr")[by_state]
    stacked.sum_duplicates()
    stacked.eliminate_zeros()
    return stacked, len(blocks)


def _stacked_dense(P: Any) -> tuple[Matrix, int]:
    given = as_array(P, "P")
    _check_real(given)
    try:
        dense = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError("P must be real numbers of shape (n_actions, n_states, n_states).") from error
    if dense.ndim != 3 or dense.shape[1] != dense.shape[2] or 0 in dense.shape:
        raise InvalidInputError(
            f"P must have shape (n_actions, n_states, n_states), or be a sequence of sparse arrays; got {dense.shape}."
        )
    return dense.transpose(1, 0, 2).reshape(-1, dense.shape[2]), len(dense)


def _check_real(numbers: Matrix) -> None:
    if numbers.dtype.kind == "c":
        raise InvalidInputError("P must be real numbers; got complex numbers.")


def _check_probabilities(entries: Matrix, n_actions: int) -> None:
    bad = ~(entries.data >= 0)  # also true for NaN
    if bad.any():
        k = int(np.argmax(bad))
        (x, a), y = divmod(int(entries.row[k]), n_actions), int(entries.col[k])
        raise InvalidInputError(
            f"P must be probabilities, neither negative nor NaN; P[{a}][{x}, {y}] = {entries.data[k]} "
            f"(action {a}, state {x}, next state {y})."
        )


def _check_row_sums(sums: Floats, n_actions: int) -> None:
    bad = np.flatnonzero(~(np.abs(sums - 1) <= ROW_SUM_TOLERANCE))
    if bad.size:
        x, a = divmod(int(bad[0]), n_actions)
        raise InvalidInputError(
            f"P must have rows that sum to one; {bad.size} of {len(sums)} do not, first action {a}, state {x}: "
            f"P[{a}][{x}] sums to {sums[bad[0]]:.10g}. A state that ends the process must lead to itself with probability 1."
        )
