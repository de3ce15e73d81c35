"""The two linear systems behind a policy's value and its occupancy, small and dense or large and sparse.

Up to `DENSE_LIMIT` states they are solved directly. Above it a Krylov method does most of the work and
fixed-point sweeps, which contract whatever the matrix looks like, finish it: so the result is always
certified by its residual, and no fill-in can exhaust the memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, bicgstab, splu

from capi.validation import Floats

DENSE_LIMIT = 2_000  # a dense solve of this size takes about 0.1 s and 64 MB
RELATIVE_ERROR = 1e-12
KRYLOV_STEPS = 500
STALLED_SWEEPS = 20


def relative_error(n_states: int, discount: float) -> float:
    """Return how far `solve_discounted` may be off, relative to the largest value: rounding, or the certificate."""
    rounding = 4 * np.finfo(np.float64).eps / (1 - discount)
    return float(rounding if n_states <= DENSE_LIMIT else max(rounding, RELATIVE_ERROR))


def solve_discounted(matrix: Any, b: Floats, discount: float, norm: float = np.inf) -> Floats:
    """Return x with x = b + discount * matrix @ x.

    ``matrix`` (S, S) is stochastic (``norm=inf``) or the transpose of a stochastic matrix (``norm=1``), so
    that the map contracts by ``discount`` in that norm. The error in it is at most the residual /
    (1 - discount), and ends below `RELATIVE_ERROR` of the solution, or at rounding.
    """
    n = len(b)
    if n <= DENSE_LIMIT:
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        return np.linalg.solve(np.eye(n) - discount * dense, b)
    operator = LinearOperator((n, n), matvec=lambda x: x - discount * (matrix @ x), dtype=np.float64)
    x, _ = bicgstab(operator, b, rtol=RELATIVE_ERROR * (1 - discount), maxiter=KRYLOV_STEPS)
    if not np.isfinite(x).all():
        x = b.copy()
    return _swept(matrix, b, discount, x, norm)


def _swept(matrix: Any, b: Floats, discount: float, x: Floats, norm: float) -> Floats:
    """Apply x <- b + discount * matrix @ x until the certificate holds or rounding stops all progress."""
    least, stalled = float(np.inf), 0
    while stalled < STALLED_SWEEPS:
        new = b + discount * (matrix @ x)
        residual = float(np.linalg.norm(new - x, norm))
        x = new
        if residual <= RELATIVE_ERROR * (1 - discount) * np.linalg.norm(x, norm):
            break
        stalled = 0 if residual < least else stalled + 1
        least = min(least, residual)
    return x


def solve_stationary(matrix: Any) -> Floats:
    """Return mu >= 0 with mu @ matrix = mu and sum 1 for an irreducible sparse stochastic ``matrix`` (m, m)."""
    m = matrix.shape[0]
    if m == 1:
        return np.ones(1)
    # One balance equation follows from the others; the normalisation takes its place.
    if m <= DENSE_LIMIT:
        system = matrix.T.toarray() - np.eye(m)
        system[-1] = 1.0
        mu = np.linalg.solve(system, np.append(np.zeros(m - 1), 1.0))
    else:
        # mu[-1] is set to 1 and the rest scaled afterwards: a row of ones would fill the factors.
        balance = (matrix.T - sp.eye_array(m)).tocsc()
        factor = splu(balance[:-1, :-1].tocsc())
        mu = np.append(factor.solve(-balance[:-1, [-1]].toarray().ravel()), 1.0)
    mu = np.maximum(mu, 0.0)
    return mu / mu.sum()
