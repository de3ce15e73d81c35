"""Feature bases for linear Q-functions, as scikit-learn transformers; and `RKHS`, the space of a kernel, which is not one."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import comb
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.preprocessing import PolynomialFeatures

from capi._utils.parameters import Constraints, at_least, check_parameters, optional
from capi._utils.validation import Floats, Ints, as_positive, as_state_index, as_states
from capi.errors import InvalidInputError, not_fitted
from capi.features.kernels import Gaussian, Kernel, check_kernel
from capi.features.scaling import Scale, check_box_scale, check_scale, learned_scaling

MOST_FEATURES = 100_000  # of a grid; more are probably a mistake
MOST_VALUES = 10_000_000  # of one-hot features, which are sparse
MANY_STATES = 50_000  # above which k-means uses mini-batches


class OneHot(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """One feature for each distinct state of the batch, for tabular methods.

    Parameters
    ----------
    n_values : int, optional
        Number of states, for finite states given as one column of indices. By default the values are the distinct states
        of the batch; any other state has all features zero, so that no claim is made about it.

    Examples
    --------
    >>> OneHot(3).fit_transform(np.array([[2.0], [0.0]])).toarray()
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """

    _constraints: ClassVar[Constraints] = {"n_values": optional(at_least(1, at_most=MOST_VALUES))}

    def __init__(self, n_values: int | None = None) -> None:
        self.n_values = n_values

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the distinct states of ``X`` (n, d)."""
        check_parameters(self)
        x = as_states(X, allow_nan=False)
        if self.n_values is None:
            self.values_ = np.unique(x, axis=0)
        else:
            if x.shape[1] != 1:
                raise InvalidInputError(
                    f"OneHot(n_values) needs states with one column of indices; got {x.shape[1]} columns."
                )
            self.values_ = np.arange(self.n_values, dtype=np.float64)[:, None]
        return self

    def transform(self, X: ArrayLike) -> sp.csr_array:
        """Return a one in the column of each known state; (n, d) -> (n, p), sparse."""
        _check_fitted(self, "values_")
        x = as_states(X, n_features=self.values_.shape[1], allow_nan=False)
        columns = self._columns(x) if self.n_values is None else as_state_index(x, self.n_values)
        known = columns >= 0
        upto = np.concatenate([[0], np.cumsum(known)])
        return sp.csr_array((np.ones(upto[-1]), columns[known], upto), shape=(len(x), len(self.values_)))

    def _columns(self, x: Floats) -> Ints:
        """Return the column of each state, -1 for states that the batch did not have (n,)."""
        if x.shape[1] == 1:
            place = np.searchsorted(self.values_[:, 0], x[:, 0]).clip(max=len(self.values_) - 1)
            return np.where(self.values_[place, 0] == x[:, 0], place, -1)
        distinct, where = np.unique(x, axis=0, return_inverse=True)
        column_of = {tuple(value): j for j, value in enumerate(self.values_.tolist())}
        return np.array([column_of.get(tuple(value), -1) for value in distinct.tolist()])[where.ravel()]


class _Scaled(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class for features of scaled states: `fit` checks all parameters, then learns ``scale``."""

    _constraints: ClassVar[Constraints]
    scale: Scale

    def _learn_scale(self, X: ArrayLike) -> Floats:
        """Learn the scale of ``X`` (n, d) and return the scaled states."""
        check_parameters(self)
        x = as_states(X, allow_nan=False)
        self.scaling_ = learned_scaling(x, self.scale)
        return self.scaling_(x)


class Polynomial(_Scaled):
    """All products of powers of the columns up to a total degree, and a constant.

    Parameters
    ----------
    degree : int
    scale : "range", "deviation", array (2, d) or None
        Learned from the batch: each column scaled to 0..1, or to mean 0 and deviation 1; or a given box.

    Examples
    --------
    >>> Polynomial(2, scale=None).fit_transform(np.array([[2.0, 3.0]]))
    array([[1., 2., 3., 4., 6., 9.]])
    """

    _constraints: ClassVar[Constraints] = {"degree": at_least(1), "scale": check_scale}

    def __init__(self, degree: int = 2, scale: Scale = "deviation") -> None:
        self.degree = degree
        self.scale = scale

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the scale of ``X`` (n, d)."""
        x, degree = self._learn_scale(X), int(self.degree)
        _check_size(comb(x.shape[1] + degree, degree), "degree")
        self.powers_ = PolynomialFeatures(degree).fit(x[:1])
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return the products; (n, d) -> (n, p)."""
        _check_fitted(self, "powers_")
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.powers_.transform(self.scaling_.finite(X)))


class Fourier(_Scaled):
    r"""The Fourier basis (Konidaris, Osentoski and Thomas 2011): :math:`\cos(\pi\, c \cdot x)`, c in {0 .. order}^d.

    Parameters
    ----------
    order : int
        Highest frequency per column; there are (order + 1)^d features, and the first is constant.
    scale : "range", array (2, d) or None
        Learned from the batch: each column scaled to 0..1, outside of which the basis repeats mirrored; or a given box.

    Examples
    --------
    >>> Fourier(2, scale=None).fit_transform(np.array([[0.0], [0.5]])).round(2) + 0.0
    array([[ 1.,  1.,  1.],
           [ 1.,  0., -1.]])
    """

    _constraints: ClassVar[Constraints] = {"order": at_least(0), "scale": check_box_scale}

    def __init__(self, order: int = 3, scale: Scale = "range") -> None:
        self.order = order
        self.scale = scale

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the scale of ``X`` (n, d)."""
        d, order = self._learn_scale(X).shape[1], int(self.order)
        _check_size(_power(order + 1, d), "order")
        self.frequencies_ = np.array(list(product(range(order + 1), repeat=d)), dtype=np.float64)  # (p, d)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return the cosines; (n, d) -> (n, p)."""
        _check_fitted(self, "frequencies_")
        return np.cos(np.pi * (self.scaling_.finite(X) @ self.frequencies_.T))


class _Radial(_Scaled):
    """Gaussian bumps around centres that `fit` finds, and a constant."""

    bandwidth: float | None
    centres_: Floats  # (m, d) in scaled units
    kernel_: Gaussian

    def transform(self, X: ArrayLike) -> Floats:
        """Return the bumps and a constant; (n, d) -> (n, m + 1)."""
        _check_fitted(self, "centres_")
        x = self.scaling_(X)
        return np.hstack([self.kernel_(x, self.centres_), np.ones((len(x), 1))])

    def _set_bandwidth(self, default: float) -> None:
        self.kernel_ = Gaussian(default if self.bandwidth is None else float(self.bandwidth))


class RadialGrid(_Radial):
    """Gaussian bumps on a grid over the range of the batch, and a constant.

    Parameters
    ----------
    n_centres : int
        Number of centres along each column; the grid has n_centres^d bumps.
    bandwidth : float, optional
        Width of a bump, in scaled units; by default the distance between neighbouring centres.
    scale : "range", array (2, d) or None
        Learned from the batch: each column scaled to 0..1; or a given box. With None the columns must already lie in 0..1.

    Examples
    --------
    >>> RadialGrid(3, scale=None).fit_transform(np.array([[0.5]])).round(2)
    array([[0.61, 1.  , 0.61, 1.  ]])
    """

    _constraints: ClassVar[Constraints] = {
        "n_centres": at_least(2),
        "bandwidth": optional(as_positive),
        "scale": check_box_scale,
    }

    def __init__(self, n_centres: int = 5, bandwidth: float | None = None, scale: Scale = "range") -> None:
        self.n_centres = n_centres
        self.bandwidth = bandwidth
        self.scale = scale

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the scale of ``X`` (n, d)."""
        d, m = self._learn_scale(X).shape[1], int(self.n_centres)
        _check_size(_power(m, d), "n_centres")
        self.centres_ = np.array(list(product(np.linspace(0, 1, m), repeat=d)))
        self._set_bandwidth(1 / (m - 1))
        return self


class RadialCentres(_Radial):
    """Gaussian bumps around centres that k-means finds in the batch, and a constant; suits more than a few columns.

    Parameters
    ----------
    n_centres : int
        Largest number of centres; there are never more than distinct states.
    bandwidth : float, optional
        Width of a bump, in scaled units; by default the mean distance from a centre to its nearest neighbour.
    scale : "range", "deviation", array (2, d) or None
        Learned from the batch.
    random_state : int, optional
        Seed for k-means.

    Examples
    --------
    >>> states = np.random.default_rng(0).normal(size=(200, 3))
    >>> RadialCentres(10).fit_transform(states).shape
    (200, 11)
    """

    _constraints: ClassVar[Constraints] = {
        "n_centres": at_least(1),
        "bandwidth": optional(as_positive),
        "scale": check_scale,
        "random_state": optional(at_least(0)),
    }

    def __init__(
        self,
        n_centres: int = 50,
        bandwidth: float | None = None,
        scale: Scale = "deviation",
        random_state: int | None = 0,
    ) -> None:
        self.n_centres = n_centres
        self.bandwidth = bandwidth
        self.scale = scale
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002
        """Learn scale and centres of ``X`` (n, d)."""
        x, m = self._learn_scale(X), int(self.n_centres)
        distinct = np.unique(x, axis=0)
        if len(distinct) <= m:
            self.centres_ = distinct
        else:
            method = KMeans if len(x) <= MANY_STATES else MiniBatchKMeans
            self.centres_ = method(m, n_init=1, random_state=self.random_state).fit(x).cluster_centers_
        self._set_bandwidth(_spacing(self.centres_))
        return self


class Tiles(_Scaled):
    """Tile coding (Sutton 1996): several shifted grids; in each grid a state activates one feature, the tile that contains it.

    Parameters
    ----------
    n_tilings : int
        Number of grids; each is shifted by a different fraction of a tile, times a different odd number in each column.
    n_tiles : int
        Tiles of a grid along each column, over the range of the batch; states outside belong to the outermost tiles.
    scale : "range", array (2, d) or None
        Learned from the batch: each column scaled to 0..1; or a given box.

    Examples
    --------
    >>> Tiles(n_tilings=2, n_tiles=2, scale=None).fit_transform(np.array([[0.1], [0.9]])).toarray()
    array([[1., 0., 0., 1., 0., 0.],
           [0., 1., 0., 0., 0., 1.]])
    """

    _constraints: ClassVar[Constraints] = {
        "n_tilings": at_least(1),
        "n_tiles": at_least(1),
        "scale": check_box_scale,
    }

    def __init__(self, n_tilings: int = 8, n_tiles: int = 8, scale: Scale = "range") -> None:
        self.n_tilings = n_tilings
        self.n_tiles = n_tiles
        self.scale = scale

    def fit(self, X: ArrayLike, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the scale of ``X`` (n, d)."""
        d, tilings, tiles = self._learn_scale(X).shape[1], int(self.n_tilings), int(self.n_tiles)
        _check_size(tilings * _power(tiles + 1, d), "n_tiles")
        odd = 2 * np.arange(d) + 1  # displacements by 1, 3, 5, ... spread the tilings evenly (Miller and Glanz 1996)
        self.shifts_ = np.arange(tilings)[:, None] * odd / tilings % 1.0  # (tilings, d) in tiles
        return self

    def transform(self, X: ArrayLike) -> sp.csr_array:
        """Return a one for each tiling; (n, d) -> (n, p), sparse."""
        _check_fitted(self, "shifts_")
        x = self.scaling_(X) * self.n_tiles
        n, d = x.shape
        size = self.n_tiles + 1
        numbers = size ** np.arange(d)
        last = self.n_tiles - (self.shifts_ == 0)  # an unshifted grid needs one tile fewer
        tile = np.floor(x[:, None, :] + self.shifts_).clip(0, last).astype(np.int64)  # (n, tilings, d)
        columns = tile @ numbers + size**d * np.arange(self.n_tilings)
        upto = np.arange(n + 1) * self.n_tilings
        return sp.csr_array((np.ones(columns.size), columns.ravel(), upto), shape=(n, size**d * self.n_tilings))


@dataclass(frozen=True)
class RKHS:
    """All functions that a kernel spans, instead of a list of features, for evaluators that have a kernel form.

    It needs the kernel of all pairs of rows, which is feasible for a few thousand rows; use `KernelDictionary` for more.

    Parameters
    ----------
    kernel : Kernel
        Kernel of two states; it is zero between state-action pairs with different actions.
    scale : "range", "deviation", array (2, d) or None
        Learned from the batch.

    Examples
    --------
    >>> RKHS(Gaussian(0.2)).scale
    'range'
    """

    kernel: Kernel = field(default_factory=Gaussian)
    scale: Scale = "range"

    _constraints: ClassVar[Constraints] = {"kernel": check_kernel, "scale": check_scale}

    def __post_init__(self) -> None:
        check_parameters(self)


def _spacing(centres: Floats) -> float:
    """Return the mean distance from a centre to its nearest neighbour; 1 if there is only one centre."""
    if len(centres) < 2:
        return 1.0
    apart = cdist(centres, centres)
    np.fill_diagonal(apart, np.inf)
    return float(apart.min(axis=1).mean()) or 1.0


def _check_size(count: int, name: str) -> None:
    if count > MOST_FEATURES:
        raise InvalidInputError(
            f"{name} must give at most {MOST_FEATURES} features; for these states it gives more. Lower it, or use RadialCentres, "
            "whose number of features does not grow with the number of columns."
        )


def _power(base: int, d: int) -> int:
    """Return ``base ** d``, or a number above the limit if that is huge."""
    return base**d if base == 1 or d <= 24 else MOST_FEATURES + 1


def _check_fitted(transformer: Any, learned: str) -> None:
    if not hasattr(transformer, learned):
        raise not_fitted(f"this {type(transformer).__name__} is not fitted yet: call fit first.")
