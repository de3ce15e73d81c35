"""Kernels: similarities of two states.

A kernel is any callable from states (n, d) and (m, d) to a positive semi-definite matrix (n, m). The kernels of
``sklearn.gaussian_process.kernels`` qualify, and so does scikit-learn's ``partial(pairwise_kernels, metric=...)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.spatial.distance import cdist

from capi._utils.parameters import Constraints, all_of, check_parameters, satisfying
from capi._utils.validation import Floats, as_floats, as_positive, check_shape
from capi.errors import InvalidInputError

ROWS_AT_ONCE = 256
SMALLEST = 1e-150  # its square does not underflow


class Kernel(Protocol):
    """The similarity of the rows of two arrays of states."""

    def __call__(self, first: Floats, second: Floats) -> Floats:
        """Return the similarity of each pair; (n, d), (m, d) -> (n, m)."""


@dataclass(frozen=True)
class Gaussian:
    r""":math:`k(x, y) = \exp(-\|x - y\|^2 / 2 \sigma^2)`.

    Parameters
    ----------
    bandwidth : float
        The length scale sigma, in the units of the (scaled) states.

    Examples
    --------
    >>> Gaussian(1.0)(np.array([[0.0]]), np.array([[0.0], [2.0]])).round(3)
    array([[1.   , 0.135]])
    """

    bandwidth: float = 0.1

    _constraints: ClassVar[Constraints] = {
        "bandwidth": all_of(
            as_positive,
            satisfying(
                lambda width: SMALLEST < width < 1 / SMALLEST,
                "be large and small enough to be squared without overflow or underflow",
                advice="Scale the states.",
            ),
        ),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, first: Floats, second: Floats) -> Floats:
        """Return the similarity of each pair; (n, d), (m, d) -> (n, m)."""
        table: Floats = cdist(first, second, "sqeuclidean")
        table *= -0.5 / self.bandwidth**2
        return np.exp(table, out=table)

    def diag(self, states: Floats) -> Floats:
        """Return the similarity of each state to itself, which is one (n,)."""
        return np.ones(len(states))


@dataclass(frozen=True)
class LinearKernel:
    """The inner product: kernel methods with it are their linear versions.

    Examples
    --------
    >>> LinearKernel()(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """

    def __call__(self, first: Floats, second: Floats) -> Floats:
        """Return the inner product of each pair; (n, d), (m, d) -> (n, m)."""
        return first @ second.T

    def diag(self, states: Floats) -> Floats:
        """Return the squared length of each state (n,)."""
        return np.einsum("ij,ij->i", states, states)


def check_kernel(kernel: Any, name: str = "kernel") -> None:
    """Refuse a kernel that cannot be called."""
    if isinstance(kernel, type) or not callable(kernel):
        raise InvalidInputError(
            f"{name} must be a function of states (n, d) and (m, d), such as Gaussian(0.1); got {kernel!r}."
        )


def likeness(kernel: Kernel, first: Floats, second: Floats) -> Floats:
    """Return the checked kernel matrix (n, m)."""
    table = as_floats(kernel(first, second), "the kernel matrix", ndim=2)
    check_shape(table, "the kernel matrix", (len(first), len(second)))
    return table


def own_likeness(kernel: Kernel, states: Floats) -> Floats:
    """Return k(x, x) of each state (n,)."""
    if hasattr(kernel, "diag"):  # the name in scikit-learn's kernels
        return np.asarray(kernel.diag(states), dtype=np.float64)
    blocks = [states[i : i + ROWS_AT_ONCE] for i in range(0, len(states), ROWS_AT_ONCE)]
    return np.concatenate([np.diagonal(likeness(kernel, block, block)) for block in blocks])


def __getattr__(name: str) -> Any:
    if name == "Linear":
        raise ImportError("capi.features.kernels.Linear is now called capi.features.kernels.LinearKernel.")
    raise AttributeError(f"module 'capi.features.kernels' has no attribute {name!r}")
