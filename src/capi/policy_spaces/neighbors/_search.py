r"""Exact search for the nearest rows of a sample, with ties broken in a fixed order.

A search returns the points nearest to a state, and a lower bound on the distance of all others (its reach). Let r be the
distance of the last row needed. Points nearer than r contribute all their rows; points at r fill the remaining places with
their lowest rows. If the reach does not rule out further points at r, the search is repeated for twice as many points.

Distances that agree to nine digits count as equal: two ways to sum the same squares differ in the sixteenth digit, and
scaled coordinates of a grid in about the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from sklearn.neighbors import VALID_METRICS, NearestNeighbors

from capi._utils.validation import Bools, Floats, Ints, is_real
from capi.errors import InvalidInputError
from capi.policy_spaces.neighbors._sample import Sample, blocks

EQUAL = 1e-9  # relative difference below which distances count as equal
AT_ONCE = 2**19  # candidates in one table: 4 MB per table
TREE_FEATURES = 10  # with more, a k-d tree visits nearly all points, and tables of inner products are faster
FEW = 2000  # up to this many points an approximate search is not faster than an exact one
ONE_AT_A_TIME = Lock()  # a graph searches in its own buffers
COSINE_NOISE = 1e-14  # these distances are one minus a number close to one

MINKOWSKI = {  # canonical name, and the order p
    **dict.fromkeys(("euclidean", "l2", "nan_euclidean", "sqeuclidean"), ("euclidean", 2.0)),
    **dict.fromkeys(("manhattan", "cityblock", "l1"), ("manhattan", 1.0)),
    **dict.fromkeys(("chebyshev", "infinity"), ("chebyshev", np.inf)),
}
METRICS = sorted({name for names in VALID_METRICS.values() for name in names} - {"precomputed", "pyfunc"})


class Search(Protocol):
    """A method of finding nearby points."""

    def __call__(self, x: Floats, count: int) -> tuple[Floats, Ints, Floats]:
        """Return the distances (b, c) in ascending order, the points (b, c), and a lower bound on the distance of all others (b,)."""


@dataclass(frozen=True, eq=False)
class NearestRows:
    """The ``n_wanted`` nearest rows of a sample."""

    sample: Sample
    n_wanted: int
    search: Search
    noise: float = 0.0  # absolute error of the search's distances
    power: int = 1  # to which distances are raised when they are returned

    def of(self, x: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Return the nearest rows of each state and their distances, ascending; (b, d) in the sample's units -> (b, k)."""
        rows = np.empty((len(x), self.n_wanted), dtype=np.int32)
        distances = np.empty(rows.shape)
        n_points = len(self.sample.points)
        todo = np.arange(len(x))
        count = min(-(-self.n_wanted * n_points // len(self.sample.rows)) + 1, n_points)
        while todo.size:
            unsettled = []
            for part in blocks(len(todo), AT_ONCE // count):
                asked = todo[part]
                settled, found = self._settled(x[asked], count)
                rows[asked[settled]], distances[asked[settled]] = found
                unsettled.append(asked[~settled])
            todo, count = np.concatenate(unsettled), min(2 * count, n_points)
        return rows, distances**self.power if self.power > 1 else distances

    def _settled(self, x: Floats, count: int) -> tuple[Bools, tuple[Ints, Floats]]:
        """Return for which states ``count`` points suffice (b,), and their rows and distances (s, k)."""
        distances, points, reach = self.search(x, count)
        radius = self._radius(distances, points)
        slack = EQUAL * radius + self.noise
        settled = (reach > (radius + slack)[:, 0]) | (count == len(self.sample.points))
        if not settled.all():
            distances, points, radius, slack = distances[settled], points[settled], radius[settled], slack[settled]
        k = self.n_wanted
        if self.sample.all_distinct and not (distances[:, k : k + 1] <= radius + slack).any():
            return settled, (self.sample.rows[points[:, :k]], distances[:, :k])
        take = self._shares(points, distances < radius - slack, distances <= radius + slack)
        return settled, self._expanded(points, distances, take)

    def _radius(self, distances: Floats, points: Ints) -> Floats:
        """Return the distance of the last row needed (b, 1), infinite if the points have fewer rows."""
        if self.sample.all_distinct:
            return distances[:, self.n_wanted - 1 : self.n_wanted]
        upto = self._sizes[points].cumsum(axis=1)
        last = np.minimum((upto < self.n_wanted).sum(axis=1, keepdims=True), distances.shape[1] - 1)
        return np.where(upto[:, -1:] >= self.n_wanted, np.take_along_axis(distances, last, axis=1), np.inf)

    def _shares(self, points: Ints, nearer: Bools, near: Bools) -> Ints:
        """Return how many of its lowest rows each point contributes (s, c); points at the last distance share the remainder."""
        sizes = self._sizes[points]
        take = np.where(near, sizes, 0)
        contested = np.flatnonzero(take.sum(axis=1) > self.n_wanted)
        if contested.size:
            inside = np.where(nearer[contested], sizes[contested], 0)
            rivals = near[contested] & ~nearer[contested]
            inside[rivals] = self._lowest(points[contested], rivals, self.n_wanted - inside.sum(axis=1))
            take[contested] = inside
        return take

    def _lowest(self, points: Ints, rivals: Bools, places: Ints) -> Ints:
        """Return, flattened, how many of the lowest ``places`` (s,) rows of all ``rivals`` (s, c) belong to each rival.

        The last row that gets a place is found by bisection: rows below it are counted, never listed.
        """
        state, point = np.nonzero(rivals)[0], points[rivals]
        n = len(self.sample.rows)

        def rows_below(limit: Ints) -> Ints:
            return np.searchsorted(self._keys, point * n + limit[state]) - self.sample.starts[point]

        low, high = np.zeros_like(places), np.full_like(places, n)
        while (low < high).any():
            middle = (low + high) // 2
            enough = np.bincount(state, rows_below(middle), len(places)) >= places
            low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
        return rows_below(low)

    def _expanded(self, points: Ints, distances: Floats, take: Ints) -> tuple[Ints, Floats]:
        """Return the rows that the points (s, c) contribute and their distances (s, k)."""
        some = take > 0
        shares, shape = take[some], (len(take), self.n_wanted)
        within = np.arange(shares.sum()) - np.repeat(shares.cumsum() - shares, shares)
        rows = self.sample.rows[np.repeat(self.sample.starts[points[some]], shares) + within]
        return rows.reshape(shape), np.repeat(distances[some], shares).reshape(shape)

    @cached_property
    def _sizes(self) -> Ints:
        """Number of rows of each point (m,)."""
        return np.diff(self.sample.starts)

    @cached_property
    def _keys(self) -> Ints:
        """(point, row) of all rows, encoded as ascending integers (n,)."""
        return np.repeat(np.arange(len(self._sizes)), self._sizes) * len(self.sample.rows) + self.sample.rows


def nearest_rows(
    sample: Sample,
    n_neighbors: int,
    metric: str = "euclidean",
    metric_params: Mapping[str, Any] | None = None,
    *,
    approximate: bool = False,
) -> NearestRows:
    """Return the search for the nearest rows of ``sample`` (all rows if there are fewer than ``n_neighbors``)."""
    name, order, params = _understood(metric, metric_params)
    power = 2 if metric == "sqeuclidean" else 1
    noise = COSINE_NOISE if name in ("cosine", "correlation") else 0.0
    search: Search
    if order is not None and sample.n_features <= TREE_FEATURES:
        search = TreeSearch(cKDTree(sample.points, leafsize=32), order)
    elif order == 2:
        search = EuclideanSearch(sample.points)
    else:
        search = MetricSearch.among(sample.points, name, params, noise)
    if approximate and len(sample.points) > FEW:
        search = ApproximateSearch.among(sample.points, name, params, search)
    return NearestRows(sample, min(n_neighbors, len(sample.rows)), search, noise, power)


def check_metric(metric: Any, name: str) -> None:
    """Refuse metrics that scikit-learn does not know."""
    if not isinstance(metric, str) or metric not in METRICS:
        raise InvalidInputError(f"{name} must be a metric of scikit-learn: {', '.join(METRICS)}; got {metric!r}.")


def check_metric_params(metric: str, metric_params: Any) -> None:
    """Refuse parameters that are not a mapping, or that belong to a metric without parameters."""
    if metric_params is not None and not isinstance(metric_params, Mapping):
        raise InvalidInputError(
            f"metric_params must be a mapping from names to values, or None; got {metric_params!r}."
        )
    if metric_params and metric in MINKOWSKI:
        raise InvalidInputError(f"metric {metric!r} has no parameters; got {', '.join(map(repr, metric_params))}.")


def check_approximate() -> None:
    """Raise if pynndescent is not installed."""
    if find_spec("pynndescent") is None:
        raise InvalidInputError(
            "algorithm='approximate' needs pynndescent: pip install capi[ann]. Or use algorithm='exact'."
        )


def _understood(metric: str, metric_params: Mapping[str, Any] | None) -> tuple[str, float | None, dict[str, Any]]:
    """Return the metric's canonical name, its order p if it is a Minkowski distance without weights, and its parameters."""
    params = dict(metric_params or {})
    if metric in ("minkowski", "p"):
        order = params.get("p", 2)
        plain = params.keys() <= {"p"} and is_real(order) and order >= 1
        if not plain or order not in (1, 2, np.inf):
            return "minkowski", float(order) if plain else None, params
        metric, params = {1: "manhattan", 2: "euclidean", np.inf: "chebyshev"}[order], {}
    if metric not in MINKOWSKI:
        return metric, None, params
    return *MINKOWSKI[metric], params


@dataclass(frozen=True, eq=False)
class TreeSearch:
    """Search with a k-d tree, for few features."""

    tree: cKDTree
    order: float  # the p of Minkowski's distance

    def __call__(self, x: Floats, count: int) -> tuple[Floats, Ints, Floats]:
        """Return the nearest points; see `Search`."""
        distances, points = (table.reshape(len(x), count) for table in self.tree.query(x, count, p=self.order))
        return distances, points, distances[:, -1]


@dataclass(frozen=True, eq=False)
class EuclideanSearch:
    """Search with inner products, for many features.

    |x|^2 - 2 x y + |y|^2 is fast but has rounding errors of the size of its terms, so the distances of the points found are
    recomputed, and the reach allows for the error.
    """

    points: Floats  # (m, d)

    @cached_property
    def _finder(self) -> NearestNeighbors:
        return NearestNeighbors(algorithm="brute", metric="euclidean").fit(self.points)

    @cached_property
    def _largest(self) -> float:
        return float(np.square(self.points).sum(axis=1).max())

    def __call__(self, x: Floats, count: int) -> tuple[Floats, Ints, Floats]:
        """Return the nearest points; see `Search`."""
        found, points = self._finder.kneighbors(x, count)
        sizes = np.square(x).sum(axis=1) + self._largest
        error = 4 * np.finfo(np.float64).eps * x.shape[1] * sizes
        reach = np.sqrt(np.maximum(np.square(found[:, -1]) - error, 0.0))
        return *_measured(x, self.points, points), reach


@dataclass(frozen=True, eq=False)
class MetricSearch:
    """Search with scikit-learn, for all its other metrics."""

    finder: NearestNeighbors
    noise: float

    @classmethod
    def among(cls, points: Floats, metric: str, params: dict[str, Any], noise: float) -> MetricSearch:
        """Return the search among ``points`` (m, d); metrics that cannot be applied to them are refused."""
        own = {name: value for name, value in params.items() if name != "p"}
        try:
            finder = NearestNeighbors(metric=metric, p=params.get("p", 2), metric_params=own or None).fit(points)
            finder.kneighbors(points[:1], 1)
        except (ValueError, TypeError) as error:
            raise InvalidInputError(f"metric {metric!r} cannot be used on these states: {error}") from error
        return cls(finder, noise)

    def __call__(self, x: Floats, count: int) -> tuple[Floats, Ints, Floats]:
        """Return the nearest points; see `Search`."""
        distances, points = self.finder.kneighbors(x, count)
        if np.isnan(distances).any():
            raise InvalidInputError(
                f"metric {self.finder.metric!r} is not defined between some states. Choose another metric."
            )
        return np.where(distances <= self.noise, 0.0, distances), points, distances[:, -1]


@dataclass(frozen=True, eq=False)
class ApproximateSearch:
    """Search with a graph of neighbours, which finds most of the nearest points and cannot tell which it missed."""

    graph: Any
    points: Floats  # (m, d)
    euclidean: bool
    exact: Search  # for states with too few neighbours found

    @classmethod
    def among(cls, points: Floats, metric: str, params: dict[str, Any], exact: Search) -> ApproximateSearch:
        """Return the search among ``points`` (m, d); metrics that pynndescent does not know are refused."""
        build = import_module("pynndescent").NNDescent
        try:
            graph = build(points, metric=metric, metric_kwds=params or None, random_state=0, n_jobs=1)
            graph.prepare()
        except (ValueError, TypeError) as error:
            raise InvalidInputError(
                f"metric {metric!r} has no approximate index: {error} Use algorithm='exact'."
            ) from error
        return cls(graph, points, metric == "euclidean", exact)

    def __call__(self, x: Floats, count: int) -> tuple[Floats, Ints, Floats]:
        """Return nearby points; see `Search`."""
        with ONE_AT_A_TIME:
            points, distances = self.graph.query(x, k=count)
        points, distances = points.astype(np.int64), distances.astype(np.float64)
        short = np.isinf(distances).any(axis=1)
        if self.euclidean:
            distances, points = _measured(x, self.points, points)
        if short.any():
            distances[short], points[short], _ = self.exact(x[short], count)
        return distances, points, np.full(len(x), np.inf)


def _measured(x: Floats, points: Floats, near: Ints) -> tuple[Floats, Ints]:
    """Return the Euclidean distances to the points ``near`` (b, c) in ascending order, and the points in that order."""
    squares = np.zeros(near.shape)
    for values, column in zip(x.T, points.T, strict=True):
        squares += np.square(values[:, None] - column[near])
    order = np.argsort(squares, axis=1, kind="stable")
    return np.sqrt(np.take_along_axis(squares, order, axis=1)), np.take_along_axis(near, order, axis=1)
