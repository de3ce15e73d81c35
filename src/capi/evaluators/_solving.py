"""Linear systems of the least-squares methods, dense or sparse."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lstsq
from scipy.linalg.lapack import dgecon, dgetrf, dgetrs
from scipy.sparse.linalg import splu

from capi._utils.validation import Floats
from capi.errors import InvalidInputError

DENSE_LIMIT = 2000  # weights; a sparse system with at most this many is solved as a dense one

Matrix: TypeAlias = Floats | sp.csr_array  # square or not


def solved(matrix: Matrix, right: Floats) -> Floats:
    """Solve ``matrix`` w = ``right`` (m,) or (m, k); if the matrix is singular, return the minimum-norm least-squares w."""
    if sp.issparse(matrix) and matrix.shape[0] > DENSE_LIMIT:
        try:
            return np.asarray(splu(sp.csc_array(matrix)).solve(right))
        except RuntimeError as error:  # splu raises this if the matrix is exactly singular
            raise InvalidInputError(
                "features must be linearly independent on this batch; they are not. Increase ridge."
            ) from error
    dense = as_dense(matrix)
    factors, pivots, info = dgetrf(dense)
    if info == 0 and dgecon(factors, np.abs(dense).sum(axis=0).max())[0] > np.finfo(float).eps:
        return np.asarray(dgetrs(factors, pivots, right)[0])
    return np.asarray(lstsq(dense, right)[0])


def as_dense(matrix: Any) -> Floats:
    """Return the matrix as an array."""
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def typical_square(gram: Matrix) -> float:
    """Return the mean square of the features that occur, the unit of default penalties."""
    squares = np.asarray(gram.diagonal())
    occurring = squares[squares > 0]
    return float(occurring.mean()) if len(occurring) else 1.0


def with_ridge(matrix: Matrix, ridge: float) -> Matrix:
    """Return the matrix with ``ridge`` added to its diagonal."""
    if sp.issparse(matrix):
        return sp.csr_array(matrix + ridge * sp.eye_array(matrix.shape[0]))
    ridged = matrix.copy()
    ridged.flat[:: len(matrix) + 1] += ridge
    return ridged
