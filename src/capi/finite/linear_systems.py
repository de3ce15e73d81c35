"""Solvers for the two linear systems that give a policy's value and its occupancy, small and dense or large and sparse.

Up to `DENSE_LIMIT` states they are solved directly, above it by a Krylov method with iterative refinement. For the
discounted system fixed-point sweeps, which contract for any matrix, finish the solution. The residual then certifies
the result without a factorisation, whose fill-in might exhaust the memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, bicgstab, splu

from capi._utils.validation import Floats

DENSE_LIMIT = 2_000  # a dense solution of this size takes about 0.3 s on one core, and 64 MB
RELATIVE_ERROR = 1e-12
KRYLOV_STEPS = 500
KRYLOV_GAIN = 1e-8  # factor by which one solve of a refinement should reduce the residual


def relative_error(n_states: int, discount: float) -> float:
    """Return the error bound of `solve_discounted`, relative to the largest value: rounding, or the certificate."""
    rounding = 4 * np.finfo(np.float64).eps / (1 - discount)
    return float(rounding if n_states <= DENSE_LIMIT else max(rounding, RELATIVE_ERROR))


def solve_discounted(matrix: Any, b: Floats, discount: float, norm: float = np.inf) -> Floats:
    """Return x with x = b + discount * matrix @ x.

    ``matrix`` (S, S) is stochastic (``norm=inf``) or the transpose of a stochastic matrix (``norm=1``), so
    that the map contracts by ``discount`` in that norm. The error in that norm is at most the
    residual / (1 - discount); the result's is below `relative_error` of the solution.
    """
    n = len(b)
    if n <= DENSE_LIMIT:
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        return np.linalg.solve(np.eye(n) - discount * dense, b)
    x = _refined(matrix, b, discount, norm)
    return _swept(matrix, b, discount, norm, x)


def _refined(matrix: Any, b: Floats, discount: float, norm: float) -> Floats:
    """Solve for the residual by a Krylov method, and repeat while that at least halves it."""
    operator = LinearOperator((len(b), len(b)), matvec=lambda x: x - discount * (matrix @ x), dtype=np.float64)
    x, residual = np.zeros(len(b)), b
    while True:
        with np.errstate(all="ignore"):  # a breakdown gives a step that is not used
            step, _ = bicgstab(operator, residual, rtol=KRYLOV_GAIN, maxiter=KRYLOV_STEPS)
            better = x + step
            left = b - operator.matvec(better)
        size = np.linalg.norm(left, norm)
        if not size <= np.linalg.norm(residual, norm) / 2:  # also true for NaN
            return x
        x, residual = better, left
        if size <= 4 * np.finfo(np.float64).eps * np.linalg.norm(x, norm):
            return x


def _swept(matrix: Any, b: Floats, discount: float, norm: float, x: Floats) -> Floats:
    """Apply x <- b + discount * matrix @ x until the certificate holds; it will, because the map contracts."""
    least, stalled = float(np.inf), 0
    while stalled < 10 + 2 / (1 - discount):  # after that, rounding has stopped all progress
        new = b + discount * (matrix @ x)
        residual = float(np.linalg.norm(new - x, norm))
        x = new
        if _is_certified(residual, x, discount, norm):
            break
        stalled = 0 if residual < least else stalled + 1
        least = min(least, residual)
    return x


def _is_certified(residual: Any, x: Floats, discount: float, norm: float) -> bool:
    """Whether a residual of this size leaves an error below `relative_error`."""
    allowed = relative_error(DENSE_LIMIT + 1, discount) * (1 - discount)
    return bool(residual <= allowed * np.linalg.norm(x, norm))


def solve_stationary(matrix: Any) -> Floats:
    """Return mu >= 0 with mu @ matrix = mu and sum 1 for an irreducible sparse stochastic ``matrix`` (m, m).

    Large systems are solved by the Krylov method if its residual reaches rounding level, as it does for chains that mix.
    A slowly mixing chain needs a sparse factorisation, which is fast if the chain is narrow, as such chains tend to be.
    """
    m = matrix.shape[0]
    if m == 1:
        return np.ones(1)
    heavy = _heavy_state(matrix)
    others = np.delete(np.arange(m), heavy)
    flow = matrix.T.tocsr()
    inflow = flow[others][:, others]  # among the other states
    source = flow[others][:, [heavy]].toarray().ravel()  # from the heavy state, whose mass is set to one

    def distribution(rest: Floats) -> Floats:
        mu = np.maximum(np.insert(rest, heavy, 1.0), 0.0)
        return mu / mu.sum()

    if m <= DENSE_LIMIT:
        return distribution(np.linalg.solve(np.eye(m - 1) - inflow.toarray(), source))
    mu = distribution(_refined(inflow, source, 1.0, norm=1))
    if np.abs(flow @ mu - mu).sum() <= RELATIVE_ERROR:
        return mu
    return distribution(splu((sp.eye_array(m - 1) - inflow).tocsc()).solve(source))


def _heavy_state(matrix: Any, n_steps: int = 200) -> int:
    """Return a state with much of the stationary mass; the other states are solved for relative to it.

    Relative to a state with almost no mass they would overflow. Some steps of the lazy chain, which does
    not oscillate even if the chain is periodic, move the mass to where it belongs.
    """
    mu = np.full(matrix.shape[0], 1 / matrix.shape[0])
    backward = matrix.T.tocsr()
    for _ in range(n_steps):
        mu = (mu + backward @ mu) / 2
    return int(mu.argmax())
