r"""Fixed points of affine maps :math:`x = c + Bx` whose linear part is a discounted average, to a stated error.

Repeated sweeps always converge, slowly. A Krylov method for :math:`(I - B)x = c` needs far fewer products with B, but may break
down. So the Krylov methods only propose: a proposal counts if the sweep that follows shows that it is close. If the entries of B, or
those of its transpose, are non-negative with sums of at most :math:`\gamma`, a sweep that moves x by :math:`\delta` in the maximum norm, or in the sum
norm, leaves an error of at most :math:`\gamma\,\delta / (1 - \gamma)`. This also holds for Gauss-Seidel sweeps, in which
entries that were replaced are used at once: the residual that they leave is what the remaining old entries contribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, bicgstab, gmres

from capi._utils.validation import Floats
from capi.errors import DivergenceError

Sweep = Callable[[Floats, Floats], Floats]  # (constant, x) -> constant + B x, a new array
Norm = Callable[[Floats], float]

MOST_PROPOSALS = 6
MOST_PRODUCTS = 250  # of a proposal
BASIS = 60  # vectors that gmres keeps
CAUTION = 0.3  # aim below the tolerance by this factor
EASY = 12  # sweeps; if so few suffice, nothing is proposed


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A fixed point, a bound on its error relative to its size, and the number of products that it took."""

    x: Floats
    error: float
    n_products: int


def largest(x: Floats) -> float:
    """Return the maximum norm, for averages of values."""
    return float(np.abs(x).max(initial=0.0))


def total(x: Floats) -> float:
    """Return the sum norm, for flows of weight."""
    return float(np.abs(x).sum())


def fixed_point(
    sweep: Sweep, constant: Floats, *, discount: float, tolerance: float, norm: Norm, start: Floats | None = None
) -> FixedPoint:
    """Return the x with ``x = sweep(constant, x)``, up to ``tolerance`` relative to its norm.

    ``discount`` bounds the sums of B; ``start`` is a guess. Raises `DivergenceError` if numbers overflow.
    """
    counter = [0]

    def linear(x: Floats) -> Floats:
        counter[0] += 1
        return sweep(np.zeros_like(constant), x)

    def swept(x: Floats) -> tuple[Floats, float]:
        """Return the next sweep and a bound on its relative error."""
        counter[0] += 1
        after = sweep(constant, x)
        moved, size = norm(after - x), norm(after)
        if not np.isfinite(size):
            raise DivergenceError(
                "values must stay finite; rewards or weights are too large, or differ too much in scale. Rescale them."
            )
        return after, 0.0 if moved == 0 else discount / (1 - discount) * moved / max(size, np.finfo(float).tiny)

    operator = LinearOperator((len(constant), len(constant)), matvec=lambda x: x - linear(x), dtype=np.float64)
    x = np.zeros_like(constant) if start is None else start
    with np.errstate(all="ignore"):
        after, error = swept(x)
        for method in [bicgstab, gmres] * (MOST_PROPOSALS // 2):
            if error <= tolerance or error * discount**EASY <= tolerance:
                break
            proposed = x + _solution(method, operator, after - x, CAUTION * tolerance / error)
            if np.isfinite(proposed).all():
                candidate, its_error = swept(proposed)
                if its_error < error:
                    x, after, error = proposed, candidate, its_error
        while error > tolerance:
            x = after
            after, error = swept(x)
    return FixedPoint(after, error, counter[0])


def _solution(method: Any, operator: LinearOperator, right: Floats, tolerance: float) -> Floats:
    """Return what a Krylov method proposes as the solution; it may be wrong."""
    limits = (
        {"maxiter": MOST_PRODUCTS // 2} if method is bicgstab else {"restart": BASIS, "maxiter": MOST_PRODUCTS // BASIS}
    )
    found: Floats = method(operator, right, rtol=min(tolerance, 0.1), atol=0.0, **limits)[0]
    return found
