r"""Fixed points of affine maps :math:`x = c + Bx` whose linear part is a discounted average, to a stated error.

Repeated sweeps always converge, slowly. A Krylov method for :math:`(I - B)x = c` needs far fewer products with B, but may break
down. So the Krylov methods only propose: a proposal counts if the sweep that follows shows that it is close. If the entries of B, or
those of its transpose, are non-negative with sums of at most :math:`\gamma`, a sweep that moves x by :math:`\delta` in the maximum norm, or in the sum
norm, leaves an error of at most :math:`\gamma\,\delta / (1 - \gamma)`. This also holds for Gauss-Seidel sweeps, in which
entries that were replaced are used at once: the residual that they leave is what the remaining old entries contribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from capi._utils.validation import Floats
from capi.errors import DivergenceError

Sweep = Callable[[Floats, Floats], Floats]  # (constant, x) -> constant + B x, a new array
Norm = Callable[[Floats], float]
Solve = Callable[[Floats], Floats]  # r -> roughly the x with x - B x = r, a new array

MOST_PRODUCTS = 250  # of a proposal
BASIS = 40  # vectors that gmres keeps
CAUTION = 0.5  # aim below the tolerance by this factor
EASY = 12  # sweeps; if so few suffice, nothing is proposed
ROUNDING = 1e-14  # a sweep that moves x by less, relative to its norm, shows nothing but rounding
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A fixed point, a bound on its error relative to its size, and the number of products that it took.

    The bound is below the tolerance unless the discount is so close to 1 that rounding alone exceeds it.
    """

    x: Floats
    error: float
    n_products: int


def largest(x: Floats) -> float:
    """Return the maximum norm, for averages of values."""
    return max(float(x.max(initial=0.0)), -float(x.min(initial=0.0)))


def total(x: Floats) -> float:
    """Return the sum norm, for flows of weight."""
    return float(np.abs(x).sum())


def check_finite(size: float) -> None:
    """Refuse values whose norm is ``size`` if it is infinite or NaN."""
    if not np.isfinite(size):
        raise DivergenceError(
            "values must stay finite; rewards or weights are too large, or differ too much in scale. Rescale them."
        )


@dataclass
class _Problem:
    sweep: Sweep
    constant: Floats
    discount: float
    tolerance: float
    norm: Norm
    roughly: Solve | None = None
    zeros: Floats = field(init=False)
    n_products: int = 0

    def __post_init__(self) -> None:
        self.zeros = np.zeros_like(self.constant)

    def residual(self, x: Floats) -> Floats:
        """Return (I - B) x."""
        self.n_products += 1
        after = self.sweep(self.zeros, x)
        return np.subtract(x, after, out=after)

    def solved(self, r: Floats) -> Floats:
        """Return roughly the x with (I - B) x = r: r itself if nothing better is known."""
        return r if self.roughly is None else self.roughly(r)

    def swept(self, x: Floats) -> _Swept:
        self.n_products += 1
        after = self.sweep(self.constant, x)
        moved, size = self.norm(after - x), self.norm(after)
        check_finite(size)
        return _Swept(x, after, self.error(moved, size), moved > ROUNDING * size)

    def error(self, moved: float, size: float) -> float:
        """Return the bound on the relative error after a sweep that moved x by ``moved``."""
        return 0.0 if moved == 0 else self.discount / (1 - self.discount) * moved / max(size, TINY)


@dataclass(frozen=True, eq=False)
class _Swept:
    """A sweep from ``x``, and a bound on the error of the result."""

    x: Floats
    after: Floats
    error: float
    moves: bool  # by more than rounding


def fixed_point(
    sweep: Sweep,
    constant: Floats,
    *,
    discount: float,
    tolerance: float,
    norm: Norm,
    start: Floats | None = None,
    roughly: Solve | None = None,
) -> FixedPoint:
    """Return the x with ``x = sweep(constant, x)``, up to ``tolerance`` relative to its norm.

    ``discount`` bounds the sums of B; ``start`` is a guess; ``roughly`` is linear and preconditions. Raises `DivergenceError` if numbers overflow.
    """
    if not constant.any():  # otherwise a guess would only fade away
        return FixedPoint(np.zeros_like(constant), 0.0, 0)
    problem = _Problem(sweep, constant, discount, tolerance, norm, roughly)
    with np.errstate(all="ignore"):
        best = problem.swept(problem.zeros if start is None else start)
        for propose in PROPOSE:
            if not best.moves or best.error * discount**EASY <= tolerance:
                break
            proposed = propose(problem, best)
            if np.isfinite(proposed).all():
                candidate = problem.swept(proposed)
                best = candidate if candidate.error < best.error else best
        while best.error > tolerance and best.moves:
            best = problem.swept(best.after)
    return FixedPoint(best.after, best.error, problem.n_products)


def _bicgstab(problem: _Problem, found: _Swept) -> Floats:
    """Return a proposal of BiCGSTAB (van der Vorst 1992): SciPy's cannot stop at the stated error, which is in another norm.

    It is preconditioned from the right, so its residual remains the one that a sweep would show.

    If the residual is zero in most places, weight may leave the others for good, and with the residual as its shadow the method
    would break down at once: then the shadow is random.
    """
    scale = _scale(found.after - found.x)
    x, r = found.x / scale, (found.after - found.x) / scale  # the residual is what a sweep would move
    dense = 2 * np.count_nonzero(r) > len(r)
    shadow = r.copy() if dense else np.random.default_rng(0).standard_normal(len(r))
    p, rho, work = r.copy(), shadow @ r, np.empty_like(r)
    for _ in range(MOST_PRODUCTS // 2):
        forward = problem.solved(p)
        v = problem.residual(forward)
        step = rho / (shadow @ v)
        r -= np.multiply(v, step, out=work)
        smooth = problem.solved(r)
        t = problem.residual(smooth)
        damping = (t @ r) / (t @ t)
        if not np.isfinite(step * damping):  # it broke down
            break
        x += np.multiply(forward, step, out=work)
        x += np.multiply(smooth, damping, out=work)
        r -= np.multiply(t, damping, out=t)
        if problem.error(problem.norm(r), problem.norm(x)) <= CAUTION * problem.tolerance:
            break
        before, rho = rho, shadow @ r
        p -= np.multiply(v, damping, out=v)
        p *= rho / before * step / damping
        p += r
    return x * scale


def _gmres(problem: _Problem, found: _Swept) -> Floats:
    scale, n = _scale(found.after - found.x), len(found.x)
    operator = LinearOperator((n, n), matvec=problem.residual, dtype=np.float64)
    rtol = min(0.1, CAUTION * problem.tolerance / found.error)
    change: Floats = gmres(
        operator, (found.after - found.x) / scale, rtol=rtol, atol=0.0, restart=BASIS, maxiter=MOST_PRODUCTS // BASIS
    )[0]
    return found.x + scale * change


def _scale(x: Floats) -> float:
    """Return the power of two next to the largest number, so that squares neither overflow nor vanish."""
    return float(2.0 ** np.clip(np.frexp(largest(x))[1], -1000, 1000))


PROPOSE = (_bicgstab, _bicgstab, _gmres) * 2  # one after another, each from the best point so far
