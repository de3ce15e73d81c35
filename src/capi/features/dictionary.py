r"""A kernel as finitely many features: the dictionary of approximate linear dependence.

From a stream of states, Engel, Mannor and Meir (2004) keep those that the earlier ones do not already span. A state joins
when its squared distance to the span of the dictionary :math:`D`, in the space where the kernel is the inner product,
exceeds :math:`\nu`:

.. math::
    \delta = k(x, x) - k_D(x)^\top K_{DD}^{-1} k_D(x) > \nu.

With the Cholesky factor :math:`K_{DD} = L L^\top` and the whitened features :math:`z(x) = L^{-1} k_D(x)`, this is
:math:`\delta = k(x, x) - \|z(x)\|^2`, and :math:`z(x)^\top z(y) \approx k(x, y)`: ridge regression on z is
kernel ridge regression restricted to the dictionary.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from capi._utils.parameters import Constraints, at_least, check_parameters, optional
from capi._utils.validation import Floats, Ints, as_positive
from capi.errors import DictionarySaturatedWarning, InvalidInputError, not_fitted
from capi.features.kernels import Gaussian, Kernel, check_kernel, likeness, own_likeness
from capi.features.scaling import Scale, Scaling, check_scale, learned_scaling

BLOCK = 256  # states that are compared with the dictionary at once while it grows
NUMBERS_AT_ONCE = 2**20  # entries of the kernel matrices that `transform` works on: 8 MB
ROUNDING = 1e-12  # a squared distance below this share of k(x, x) is rounding error, whatever the threshold
DEFAULT_KERNEL = Gaussian(0.1)


class KernelDictionary(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A subset of the states that approximately spans all others, as a scikit-learn transformer to features.

    Parameters
    ----------
    kernel : function of states (n, d) and (m, d)
        Similarity of two states, such as ``capi.features.kernels.Gaussian``; it is given scaled states.
    threshold : float
        A state joins if its squared distance to the span of the dictionary exceeds this (the paper's nu). No squared
        distance exceeds k(x, x), which is 1 for a Gaussian; the features reproduce the kernel to within this threshold.
    max_size : int, optional
        Largest number of states in the dictionary; its factor takes ``8 max_size**2`` bytes. None means no limit.
    scale : "range", "deviation", array of shape (2, d) or None
        Scaling of the columns: smallest and largest value to 0 and 1, mean and standard deviation to 0 and 1, the lowest
        and the highest state of a box to 0 and 1, or none.

    Attributes
    ----------
    centres_ : ndarray of shape (m, d)
        The dictionary, in scaled units.
    rows_ : ndarray of shape (m,)
        Row numbers of these states in the training states, in increasing order.
    factor_ : ndarray of shape (m, m)
        Lower triangular; times its transpose it is the kernel matrix of the dictionary.
    scaling_ : Scaling
    saturated_ : bool
        Whether ``max_size`` kept states out.

    References
    ----------
    .. [1] Y. Engel, S. Mannor, R. Meir, "The kernel recursive least-squares algorithm", IEEE Transactions on Signal
       Processing 52(8), 2004, Section II.

    Examples
    --------
    >>> states = np.linspace(0, 1, 500)[:, None]
    >>> dictionary = KernelDictionary(Gaussian(0.2)).fit(states)
    >>> z = dictionary.transform(states)
    >>> z.shape
    (500, 14)
    >>> table = Gaussian(0.2)(states, states)
    >>> bool(abs(z @ z.T - table).max() < 1e-3)
    True
    """

    _constraints: ClassVar[Constraints] = {
        "kernel": check_kernel,
        "threshold": as_positive,
        "max_size": optional(at_least(1)),
        "scale": check_scale,
    }

    def __init__(
        self,
        kernel: Kernel = DEFAULT_KERNEL,
        *,
        threshold: float = 1e-3,
        max_size: int | None = 2000,
        scale: Scale = "range",
    ) -> None:
        self.kernel = kernel
        self.threshold = threshold
        self.max_size = max_size
        self.scale = scale

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002  scikit-learn always passes targets
        """Learn scaling and dictionary from the states ``X`` (n, d), which are considered in row order."""
        check_parameters(self)
        states: Floats = _validated(self, X)
        self.scaling_: Scaling = learned_scaling(states, self.scale)
        scaled = self.scaling_(states)
        most = len(scaled) if self.max_size is None else min(int(self.max_size), len(scaled))
        growing = _Growing(self.kernel, scaled, float(self.threshold), most)
        growing.take_all()
        self.rows_: Ints = np.array(growing.rows)
        self.centres_: Floats = scaled[self.rows_]
        self.factor_: Floats = growing.factor[: len(self.rows_), : len(self.rows_)].copy()
        self.saturated_ = growing.n_left_out > 0
        if self.saturated_:
            warnings.warn(growing.complaint(), DictionarySaturatedWarning, stacklevel=2)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return the features z(x), whose inner products approximate the kernel; ``X`` (n, d) -> (n, m)."""
        if not hasattr(self, "saturated_"):
            raise not_fitted(f"this {type(self).__name__} is not fitted yet: call fit first.")
        states = self.scaling_(_validated(self, X, reset=False))
        m = len(self.centres_)
        features = np.empty((len(states), m))
        size = max(1, NUMBERS_AT_ONCE // m)
        for start in range(0, len(states), size):
            table = likeness(self.kernel, states[start : start + size], self.centres_)
            features[start : start + size] = whitened(self.factor_, table)
        return features

    @property
    def _n_features_out(self) -> int:
        return len(self.centres_)


def _validated(dictionary: KernelDictionary, X: ArrayLike, **options: Any) -> Floats:
    """Return states checked by scikit-learn; its errors become `InvalidInputError`."""
    try:
        states: Floats = validate_data(dictionary, X, dtype=np.float64, **options)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    return states


def whitened(factor: Floats, table: Floats) -> Floats:
    """Return the rows of ``table`` (n, m) times the inverse transpose of the lower triangular ``factor`` (m, m)."""
    return solve_triangular(factor, table.T, lower=True, check_finite=False).T


@dataclass(eq=False)
class _Growing:
    """A growing dictionary that takes states block by block, with the same result as one by one."""

    kernel: Kernel
    states: Floats  # (n, d)
    threshold: float
    max_size: int
    rows: list[int] = field(default_factory=list)
    factor: Floats = field(default_factory=lambda: np.empty((0, 0)))  # L in the upper left corner, with room to grow
    n_left_out: int = 0
    farthest: float = 0.0  # largest squared distance of the states left out

    def take_all(self) -> None:
        own = own_likeness(self.kernel, self.states)
        for start in range(0, len(self.states), BLOCK):
            self._take(start, own[start : start + BLOCK])
        if not self.rows:
            raise InvalidInputError(
                f"threshold must be below the kernel's k(x, x) of some state; the largest is {own.max():.3g}, the threshold "
                f"{self.threshold:.3g}, so no state joins the dictionary. Lower it, or choose another kernel or scale."
            )

    def _take(self, start: int, own: Floats) -> None:
        """Add the states of a block that are far from those before them; ``own`` (b,) is their k(x, x)."""
        b, m = len(own), len(self.rows)
        block = self.states[start : start + b]
        Z = np.empty((m + b, b))  # features of the block; one more row per state that joins
        if m:
            table = likeness(self.kernel, block, self.states[self.rows])
            Z[:m] = whitened(self.factor[:m, :m], table).T
        distance = own - np.einsum("ij,ij->j", Z[:m], Z[:m])  # squared, to the span (b,)
        far = np.maximum(self.threshold, ROUNDING * own)
        j = _first(distance > far)
        while j is not None and len(self.rows) < self.max_size:
            self._join(start + j, Z[: len(self.rows), j], float(distance[j]))
            self._add_feature(Z, block, j)
            new = Z[len(self.rows) - 1, j + 1 :]
            distance[j + 1 :] -= new * new
            after = _first(distance[j + 1 :] > far[j + 1 :])
            j = None if after is None else j + 1 + after
        if j is not None:
            self._leave_out(distance[j:][distance[j:] > far[j:]])

    def _join(self, row: int, z: Floats, distance: float) -> None:
        """Append the row (z, sqrt(distance)) to the factor: K_DD gains the state's row and column, and so does L L'."""
        m = len(self.rows)
        if m == len(self.factor):
            grown = np.zeros((min(max(2 * m, BLOCK), self.max_size),) * 2)
            grown[:m, :m] = self.factor
            self.factor = grown
        self.factor[m, :m] = z
        self.factor[m, m] = np.sqrt(distance)
        self.rows.append(row)

    def _add_feature(self, Z: Floats, block: Floats, j: int) -> None:
        """Compute the last feature of the states after the ``j``-th, which has just joined, by forward substitution."""
        m = len(self.rows) - 1
        if j + 1 < len(block):
            table = likeness(self.kernel, block[j : j + 1], block[j + 1 :])[0]
            Z[m, j + 1 :] = (table - Z[:m, j] @ Z[:m, j + 1 :]) / self.factor[m, m]

    def _leave_out(self, distances: Floats) -> None:
        self.n_left_out += len(distances)
        self.farthest = max(self.farthest, float(distances.max()))

    def complaint(self) -> str:
        n = len(self.states)
        return (
            f"the kernel dictionary is full with max_size={self.max_size} states; {self.n_left_out} of {n} states are not "
            f"represented within threshold={self.threshold:g}; the largest squared distance is {self.farthest:.3g}. "
            "Values there are smoothed towards those of the dictionary. Use a larger threshold, bandwidth or max_size."
        )


def _first(flags: Any) -> int | None:
    """Return the index of the first True, or None."""
    i = int(flags.argmax()) if len(flags) else 0
    return i if len(flags) and flags[i] else None
