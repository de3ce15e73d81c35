import warnings

import numpy as np
import pytest
from sklearn.datasets import make_friedman1, make_friedman2
from sklearn.ensemble import ExtraTreesRegressor as Peer
from sklearn.utils.estimator_checks import check_estimator

from capi.errors import InvalidInputError
from capi.trees import ExtraTreesRegressor


@pytest.mark.compiled
def test_passes_the_checks_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks warn about what they skip
        check_estimator(ExtraTreesRegressor(n_trees=5))


def steps(n, rng):
    X = rng.uniform(size=(n, 4))
    return X, np.floor(4 * X[:, 0]) + (X[:, 1] > 0.3) * (X[:, 2] > 0.5)


PROBLEMS = {
    "friedman1": lambda n, rng: make_friedman1(n, noise=1.0, random_state=int(rng.integers(2**31))),
    "friedman2": lambda n, rng: make_friedman2(n, noise=50.0, random_state=int(rng.integers(2**31))),
    "steps": steps,
}


@pytest.mark.compiled
@pytest.mark.parametrize("max_features", [None, 2])
@pytest.mark.parametrize("name", PROBLEMS)
def test_predicts_as_well_as_scikit_learn(name, max_features):
    """R^2 on fresh data over ten seeds: the two means differ by less than four standard errors."""
    rng = np.random.default_rng(0)
    X, y = PROBLEMS[name](400, rng)
    Z, z = PROBLEMS[name](2000, rng)
    settings = {"min_samples_split": 5}
    ours = [
        ExtraTreesRegressor(10, **settings, max_features=max_features, random_state=s).fit(X, y).score(Z, z)
        for s in range(10)
    ]
    theirs = [
        Peer(10, **settings, max_features=max_features or 1.0, random_state=s).fit(X, y).score(Z, z) for s in range(10)
    ]
    error = np.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / 10)
    assert abs(np.mean(ours) - np.mean(theirs)) < 4 * error


def test_several_targets_and_missing_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    Y = np.stack([X[:, 0], -2 * X[:, 0]], axis=1)
    X[::7, 1] = np.nan
    model = ExtraTreesRegressor(20, random_state=0).fit(X, Y)
    assert model.predict(X).shape == (300, 2)
    assert model.score(X, Y) > 0.95
    assert np.isfinite(model.predict([[np.nan, np.nan, np.nan]])).all()


def test_threads_and_seeds():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(500, 3)), rng.normal(size=500)
    Z = rng.normal(size=(50, 3))
    models = [ExtraTreesRegressor(8, n_jobs=jobs, random_state=3).fit(X, y).predict(Z) for jobs in (1, 2, -1)]
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[0], models[2])
    assert not np.array_equal(models[0], ExtraTreesRegressor(8, random_state=4).fit(X, y).predict(Z))


def test_weights_are_copies():
    rng = np.random.default_rng(2)
    X, y, w = rng.normal(size=(60, 2)), rng.integers(0, 5, size=60).astype(float), rng.integers(0, 3, size=60)
    weighted = ExtraTreesRegressor(10, random_state=0).fit(X, y, sample_weight=w).predict(X)
    copied = ExtraTreesRegressor(10, random_state=0).fit(np.repeat(X, w, axis=0), np.repeat(y, w)).predict(X)
    np.testing.assert_allclose(weighted, copied)


@pytest.mark.parametrize(
    "bad",
    [
        {"n_trees": 0},
        {"min_samples_split": 1},
        {"min_samples_leaf": 0},
        {"max_features": 0},
        {"max_features": 1.5},
        {"max_depth": 0},
        {"n_jobs": 0},
    ],
    ids=str,
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        ExtraTreesRegressor(**bad).fit([[0.0], [1.0]], [0.0, 1.0])
