"""Extremely randomised trees as a scikit-learn regressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from capi._utils.randomness import as_generator
from capi._utils.renamed import renamed
from capi._utils.threads import n_threads
from capi._utils.validation import Floats, as_int, as_weights
from capi.trees.forest import Forest, Growth, grow, n_candidates
from capi.trees.ranks import encode


@renamed(n_estimators="n_trees")
class ExtraTreesRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Extremely randomised trees (Geurts, Ernst and Wehenkel 2006), with support for missing values and several targets.

    Each tree is grown on all rows. A node considers ``max_features`` features that are not constant in it, draws one cut
    for each uniformly between its smallest and largest value, and uses the one that reduces the variance most. Missing
    values (NaN) go to the side that reduces it more, and a split may also separate missing from known values.

    Parameters
    ----------
    n_trees : int
        Number of trees.
    min_samples_split : int
        A node with fewer rows is a leaf (the paper's eta).
    min_samples_leaf : int
        A split must leave at least this many rows on each side.
    max_features : int, float or None
        Features considered in a node: a number, a share of all, or None for all.
    max_depth : int, optional
    n_jobs : int, optional
        Number of threads; -1: all cores, None: one. The result does not depend on it.
    random_state : int, Generator, RandomState or None

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> model = ExtraTreesRegressor(n_trees=20, random_state=0).fit(X, np.sin(6 * X[:, 0]))
    >>> bool(abs(model.predict([[0.25]])[0] - np.sin(1.5)) < 0.02)
    True
    """

    def __init__(
        self,
        n_trees: int = 100,
        *,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        max_features: int | float | None = None,
        max_depth: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_trees = n_trees
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.max_depth = max_depth
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Grow the trees on ``X`` (n, d), which may contain NaN, and ``y`` (n,) or (n, m)."""
        states, targets = validate_data(
            self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", multi_output=True, y_numeric=True
        )
        targets = check_array(targets, ensure_2d=False, dtype=np.float64)
        weights = as_weights(sample_weight, "sample_weight", len(states))
        if weights is not None:
            kept = weights > 0  # rows without weight are ignored
            states, targets, weights = states[kept], targets[kept], weights[kept]
        threads = n_threads(self.n_jobs)
        outputs = targets.reshape(len(states), -1)
        rng = as_generator(_own_random_state(self.random_state))
        self.single_target_ = targets.ndim == 1
        self.forest_: Forest = grow(
            encode(states, threads), outputs, self._growth(states.shape[1]), rng, weights=weights, n_jobs=threads
        )
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return the mean over the trees; ``X`` (n, d) -> (n,) or (n, m)."""
        check_is_fitted(self)
        states = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        values = self.forest_.mean_values(states, n_threads(self.n_jobs))
        return values[:, 0] if self.single_target_ else values

    def _growth(self, n_features: int) -> Growth:
        return Growth(
            n_trees=as_int(self.n_trees, "n_trees", minimum=1),
            n_candidates=n_candidates(self.max_features, n_features),
            min_samples_split=as_int(self.min_samples_split, "min_samples_split", minimum=2),
            min_samples_leaf=as_int(self.min_samples_leaf, "min_samples_leaf", minimum=1),
            max_depth=None if self.max_depth is None else as_int(self.max_depth, "max_depth", minimum=1),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags


def _own_random_state(random_state: Any) -> Any:
    """Return a seed that `as_generator` accepts; scikit-learn also passes the legacy RandomState."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    return random_state
