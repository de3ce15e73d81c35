"""Policies based on the nearest states of the sample (the paper's KNN-CAPI)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from capi._utils.array_cache import Remembered
from capi._utils.parameters import Constraints, at_least, check_parameters, checked_by
from capi._utils.renamed import renamed
from capi._utils.threads import in_threads, n_threads
from capi._utils.validation import Floats, Ints, as_floats, as_states, check_choice, check_rows, check_shape, is_fixed
from capi.errors import InvalidInputError
from capi.features.scaling import Scale, check_scale
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.policy_spaces.neighbors._sample import Losses, NearbyPolicy, Origin, Sample, blocks
from capi.policy_spaces.neighbors._search import (
    AT_ONCE,
    EQUAL,
    NearestRows,
    check_approximate,
    check_metric,
    check_metric_params,
    nearest_rows,
)
from capi.types import Policy, QFunction

REMEMBERED = 2**24  # neighbours of one array of states: 64 MB, with weights 192 MB

Weighting: TypeAlias = Literal["uniform", "distance"] | Callable[[Floats], ArrayLike]


class Neighborhood(NamedTuple):
    """The neighbours of a block of states."""

    rows: NDArray[np.int32]  # (u, k) of the sample
    weights: Floats | None  # (u, k); None: all ones
    which: Ints | None  # (b,) the row of each state in ``rows``; None: its own

    def totals(self, table: Floats) -> Floats:
        """Return the weighted sums of the neighbours' rows of ``table`` (n, c) -> (b, c)."""
        u, k = self.rows.shape
        weights = np.ones(u * k) if self.weights is None else self.weights.ravel()
        sums = csr_array((weights, self.rows.ravel(), np.arange(0, u * k + 1, k)), shape=(u, len(table))) @ table
        return sums if self.which is None else sums[self.which]


@dataclass(frozen=True, eq=False)
class NeighborsPolicy(NearbyPolicy):
    """The action with the least mean regret among the nearest states of the sample; see `Neighbors`."""

    nearest: NearestRows = field(repr=False)
    weighting: Weighting = "uniform"
    known: Remembered[list[Neighborhood]] = field(default_factory=Remembered, repr=False)

    def summary(self) -> str:
        """Return one sentence that describes the policy."""
        kind = {"uniform": "", "distance": ", weighted by their distance,"}.get(str(self.weighting), ", weighted,")
        return f"The {self.nearest.n_wanted} nearest of {len(self.nearest.sample.rows)} states{kind} decide by their mean regret."

    def regrets(self, states: Floats) -> Floats:
        """Return the (weighted) mean regret of each action among the neighbours; ``states`` (n, d) -> (n, A).

        With masks, the mean is over the neighbours that allow the action; it is infinite if none does.
        """
        x = as_states(states, n_features=self.nearest.sample.n_features, allow_nan=False)
        parts = [x[part] for part in blocks(len(x), AT_ONCE // (self.nearest.n_wanted + 1))]
        threads = n_threads(self.n_jobs)
        if is_fixed(x) and len(x) * self.nearest.n_wanted <= REMEMBERED:
            found = self.known.of(x, lambda: in_threads(self._neighborhood, parts, threads))
            totals = in_threads(lambda near: near.totals(self.losses.table), found, threads)
        else:
            totals = in_threads(lambda part: self._neighborhood(part).totals(self.losses.table), parts, threads)
        return self.losses.means(np.concatenate(totals))

    def _neighborhood(self, states: Floats) -> Neighborhood:
        """Return the neighbours of ``states`` (b, d)."""
        x, which = self.nearest.sample.asked(states)
        rows, distances = self.nearest.of(x)
        return Neighborhood(rows, neighbor_weights(self.weighting, rows, distances), which)


def _check_weighting(value: Any, name: str) -> None:
    named = isinstance(value, str) and value in ("uniform", "distance")
    if not named and not callable(value):
        raise InvalidInputError(
            f"{name} must be 'uniform', 'distance' or a function from distances to weights; got {value!r}."
        )


def _check_algorithm(value: Any, name: str) -> None:
    check_choice(value, name, ("exact", "approximate"))
    if value == "approximate":
        check_approximate()


@renamed(index="algorithm")
@dataclass(frozen=True, eq=False)
class Neighbors(ImprovementSolver[NeighborsPolicy]):
    r"""Policies that take the action with the least mean regret among the nearest states (the paper's KNN-CAPI).

    .. math:: \pi(x) = \arg\max_a \sum_{i \in N_\kappa(x)} \hat Q(X_i, a)

    with :math:`N_\kappa(x)` the :math:`\kappa` rows nearest to x. Ties in distance go to the lowest rows, so the
    sample determines the policy. Distances that agree to nine digits count as equal.

    The neighbours of read-only states, such as those of a batch, are found once and reused in all iterations.

    Parameters
    ----------
    n_neighbors : int
        Number of rows that decide, :math:`\kappa`: the larger, the smoother the policy. If the sample has fewer rows,
        all of them decide. Rows with weight 0 are ignored.
    weights : "uniform", "distance" or callable
        Weight of a neighbour, multiplied by its weight in the sample: one, the inverse of its distance (neighbours at
        distance 0 then decide alone), or the result of a function from distances (b, k) to weights (b, k). Where all
        weights are 0, the nearest row decides.
    metric : str
        A metric of scikit-learn (``sklearn.metrics.pairwise_distances`` lists them), applied to the scaled states.
    metric_params : mapping, optional
        Parameters of the metric, such as ``{"p": 3}`` for "minkowski" or ``{"VI": ...}`` for "mahalanobis".
    scale : "range", "deviation", array of shape (2, d) or None
        Scaling of the features, learned from the sample: "range" maps the smallest and the largest value to 0 and 1,
        "deviation" standardises to mean 0 and standard deviation 1, a box maps its two rows to 0 and 1. None leaves the
        states unscaled.
    algorithm : "exact" or "approximate"
        How neighbours are found. "approximate" is for large samples with many features: it is fast and misses some
        neighbours, and which ones may depend on the states that are queried together. It needs ``pip install capi[ann]``.
    n_jobs : int, optional
        Number of threads; -1: all cores, None: one. The policy does not depend on it. An approximate search uses one.

    Examples
    --------
    Of the three nearest states, one with a large gap outvotes two with small gaps:

    >>> states, q_values = np.array([[0.1], [0.5], [0.9], [9.0]]), [[0.1, 0.0], [0.1, 0.0], [0.0, 9.0], [1.0, 0.0]]
    >>> policy = Neighbors(n_neighbors=3).improve(states, q_values)
    >>> policy.act(np.array([[0.3], [7.0]]))
    array([1, 1])

    The mean regrets show why:

    >>> policy.regrets(np.array([[0.3]])).round(2)
    array([[3.  , 0.07]])
    """

    n_neighbors: int = 75
    weights: Weighting = "uniform"
    metric: str = "euclidean"
    metric_params: Mapping[str, Any] | None = None
    scale: Scale = "range"
    algorithm: Literal["exact", "approximate"] = "exact"
    n_jobs: int | None = None

    takes_missing: ClassVar[bool] = False
    _constraints: ClassVar[Constraints] = {
        "n_neighbors": at_least(1),
        "weights": _check_weighting,
        "metric": check_metric,
        "scale": checked_by(check_scale),
        "algorithm": _check_algorithm,
        "n_jobs": checked_by(n_threads),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        check_metric_params(self.metric, self.metric_params)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> NeighborsPolicy:
        """Return the policy of the nearest states; the neighbours of a ``previous`` one on the same states are reused."""
        origin, losses = Origin.of(problem, self), Losses.of(problem)
        if isinstance(previous, NeighborsPolicy) and origin.is_that_of(previous):
            return NeighborsPolicy(losses, origin, self.n_jobs, previous.nearest, self.weights, previous.known)
        sample = Sample.of(origin.counted_states(), self.scale)
        nearest = nearest_rows(
            sample, self.n_neighbors, self.metric, self.metric_params, approximate=self.algorithm == "approximate"
        )
        return NeighborsPolicy(losses, origin, self.n_jobs, nearest, self.weights)


def neighbor_weights(weighting: Weighting, rows: NDArray[np.int32], distances: Floats) -> Floats | None:
    """Return the weight of each neighbour (u, k); None: all ones."""
    if not callable(weighting):
        return None if weighting == "uniform" else _inverse(distances)
    weights = as_floats(weighting(distances), "weights(distances)", ndim=2)
    check_shape(weights, "weights(distances)", distances.shape)
    check_rows((weights >= 0).all(axis=1), weights, "weights(distances)", "must not be negative")
    all_zero = ~weights.any(axis=1)
    if all_zero.any():
        closest = distances[all_zero] <= distances[all_zero, :1] * (1 + EQUAL)
        lowest = np.where(closest, rows[all_zero], np.iinfo(np.int32).max).argmin(axis=1)
        weights = weights.copy()
        weights[all_zero, lowest] = 1.0
    return weights


def _inverse(distances: Floats) -> Floats:
    """Return the inverse distances relative to that of the nearest neighbour, so none is infinite (u, k)."""
    nearest = distances[:, :1]
    return np.where(nearest > 0, nearest / np.where(distances > 0, distances, 1.0), distances == 0)
