import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import SplineTransformer, StandardScaler

import builders
from capi.errors import InvalidInputError, NotFittedError
from capi.evaluators import LSTDQ
from capi.features import Fourier, KernelDictionary, OneHot, Polynomial, RadialCentres, RadialGrid, Tiles, bases, tables
from capi.features.tables import fitted_features
from capi.policies import Constant
from capi.testing import check_evaluator, random_batch

STATES = np.random.default_rng(0).normal(size=(300, 2)) * [1.0, 50.0] + [0.0, 1e3]
ALL = [OneHot(), Polynomial(3), Fourier(3), RadialGrid(4), RadialCentres(20), Tiles(3, 4), KernelDictionary()]


@pytest.mark.parametrize("features", ALL, ids=repr)
def test_features_are_finite_the_same_each_time_and_of_a_state_alone(features):
    fitted = fitted_features(features, STATES)
    table = fitted(STATES)
    dense = table.toarray() if sp.issparse(table) else table
    assert np.isfinite(dense).all()
    assert dense.shape == (300, fitted.n_columns)
    again = fitted(STATES[::-1].copy())[::-1]
    np.testing.assert_allclose(again.toarray() if sp.issparse(again) else again, dense, atol=1e-12)


@pytest.mark.parametrize("features", ALL, ids=repr)
def test_features_serve_an_evaluator(features):
    check_evaluator(LSTDQ(features, ridge=1e-3), discount=0.5)


@pytest.mark.parametrize("features", [f for f in ALL if not isinstance(f, OneHot)], ids=repr)
def test_units_do_not_matter(features):
    """Scales are learned from the batch: meters or millimeters, the features are the same."""
    other = STATES * [1000.0, 0.01] + [5.0, -3.0]
    one, two = (fitted_features(features, x)(x) for x in (STATES, other))
    tables = [t.toarray() if sp.issparse(t) else t for t in (one, two)]
    np.testing.assert_allclose(*tables, atol=1e-6)


def test_one_hot_is_the_identity_on_known_states_and_silent_on_others():
    x = np.array([[3.0, 1.0], [0.0, 1.0], [3.0, 1.0]])
    fitted = OneHot().fit(x)
    np.testing.assert_array_equal(fitted.transform(x).toarray(), [[0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(fitted.transform([[-0.0, 1.0], [9.0, 9.0]]).toarray(), [[1, 0], [0, 0]])
    column = OneHot().fit([[2.0], [5.0]])
    np.testing.assert_array_equal(
        column.transform([[5.0], [1.0], [3.0], [9.0]]).toarray(), [[0, 1], [0, 0], [0, 0], [0, 0]]
    )


def test_fourier_is_orthogonal_on_the_unit_interval_and_its_formula_in_the_plane():
    side = (np.arange(200)[:, None] + 0.5) / 200  # midpoints: the sums are exact
    table = Fourier(3, scale=None).fit(side).transform(side)
    np.testing.assert_allclose(table.T @ table / 200, np.diag([1.0, 0.5, 0.5, 0.5]), atol=1e-12)
    x = np.array([[0.2, 0.7]])
    by_hand = sorted(np.cos(np.pi * (i * 0.2 + j * 0.7)) for i in range(3) for j in range(3))
    np.testing.assert_allclose(np.sort(Fourier(2, scale=None).fit(x).transform(x)[0]), by_hand)


def test_polynomials_of_a_degree_reproduce_polynomials():
    table = Polynomial(2).fit_transform(STATES)
    target = 3 + STATES[:, 0] * STATES[:, 1] - STATES[:, 1] ** 2
    fit = table @ np.linalg.lstsq(table, target)[0]
    np.testing.assert_allclose(fit, target, rtol=1e-9)


def test_a_radial_grid_covers_the_range():
    grid = RadialGrid(5).fit(STATES)
    assert grid.centres_.shape == (25, 2)
    assert (grid.transform(STATES)[:, :-1].max(axis=1) > np.exp(-0.25)).all()  # half a cell away in both at most
    assert (grid.transform(STATES)[:, -1] == 1).all()


def test_centres_are_where_the_states_are_and_no_more_than_there_are():
    two_clouds = np.vstack([np.random.default_rng(1).normal(size=(100, 3)) * 0.01 + at for at in (0.0, 5.0)])
    centres = RadialCentres(2, scale=None).fit(two_clouds).centres_
    np.testing.assert_allclose(np.sort(centres[:, 0]), [0.0, 5.0], atol=0.02)
    assert len(RadialCentres(50).fit(np.eye(3)).centres_) == 3
    assert len(RadialCentres(50).fit(np.ones((4, 2))).centres_) == 1


def test_many_states_are_clustered_in_small_batches(monkeypatch):
    monkeypatch.setattr(bases, "MANY_STATES", 100)
    first, second = (RadialCentres(5).fit(STATES).centres_ for _ in range(2))
    np.testing.assert_array_equal(first, second)


def slow_tiles(state, n_tilings, n_tiles):
    """Tile of each tiling, by walking along the edges."""
    found = []
    for tiling in range(n_tilings):
        tile = []
        for j, value in enumerate(state):
            shift = (tiling * (2 * j + 1) / n_tilings) % 1.0
            edges = [(k - shift) / n_tiles for k in range(1, n_tiles + (shift > 0))]
            tile.append(sum(value >= edge for edge in edges))
        found.append(tuple(tile))
    return found


def test_tiles_are_what_walking_along_their_edges_finds():
    x = np.random.default_rng(2).uniform(-0.2, 1.2, size=(500, 2))
    tiles = Tiles(4, 5, scale=None).fit(x)
    table = tiles.transform(x)
    assert table.shape[1] == 4 * 36
    by_hand = [slow_tiles(state, 4, 5) for state in x]
    for i in range(len(x)):
        columns = [t * 36 + first + 6 * second for t, (first, second) in enumerate(by_hand[i])]
        np.testing.assert_array_equal(table[[i]].indices, columns)
    np.testing.assert_array_equal(table.sum(axis=1), 4)


def test_scikit_learn_transformers_and_pipelines_serve():
    batch = random_batch()
    for features in (
        SplineTransformer(),
        make_pipeline(StandardScaler(), Fourier(2)),
        make_union(Polynomial(1), Tiles(2, 2)),
    ):
        q = LSTDQ(features, ridge=1e-3).evaluate(Constant(0, 3), batch, discount=0.5)
        assert np.isfinite(q.values(batch.states)).all()


def test_the_users_transformer_is_not_changed():
    features = Polynomial(2)
    LSTDQ(features).evaluate(Constant(0, 3), random_batch(), discount=0.5)
    assert not hasattr(features, "powers_")


def test_features_of_fixed_states_are_kept_and_large_tables_are_not(monkeypatch):
    calls = []

    def counted(x):
        calls.append(len(x))
        return x

    batch = random_batch()
    fitted = fitted_features(counted, batch.states)
    assert fitted(batch.states) is fitted(batch.states)
    assert calls == [1, len(batch)]
    fitted(batch.states.copy())
    assert len(calls) == 3
    monkeypatch.setattr(tables, "MOST_KEPT", 10)
    fitted(batch.states)
    assert len(calls) == 4
    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 7)
    np.testing.assert_array_equal(fitted.product(batch.states, np.eye(2)), batch.states)
    assert max(calls[4:]) == 7
    np.testing.assert_array_equal(fitted.of_rows(batch.states, np.array([3, 1])), batch.states[[3, 1]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OneHot(3).fit(STATES), "one column of indices; got 2 columns"),
        (lambda: OneHot(3).fit([[0.0]]).transform([[3.0]]), "state indices in 0..2"),
        (lambda: Fourier(9).fit(np.zeros((3, 6))), "order must give at most 100000 features"),
        (lambda: Tiles(8, 20).fit(np.zeros((3, 4))), "n_tiles must give at most 100000"),
        (lambda: RadialGrid(1).fit(STATES), "n_centres must be"),
        (lambda: RadialGrid(3, bandwidth=0).fit(STATES), "bandwidth must be"),
        (lambda: Polynomial(0).fit(STATES), "degree must be"),
        (lambda: Polynomial(scale="wide").fit(STATES), "scale must be one of"),
        (lambda: Polynomial(scale=[[0.0], [1.0]]).fit(STATES), "scale must have 2 columns"),
        (lambda: Polynomial(scale=[[1.0, 1.0], [0.0, 2.0]]).fit(STATES), "the lowest and the highest state"),
        (lambda: RadialCentres(0).fit(STATES), "n_centres must be"),
        (lambda: Polynomial().fit([[np.nan]]), "must be finite"),
        (lambda: fitted_features(lambda x: ["a"] * len(x), STATES), "must be numbers of shape"),
        (lambda: fitted_features(lambda x: np.full((len(x), 1), np.nan), STATES)(STATES), "must be finite"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_features_that_are_not_finite_are_found_in_a_batch():
    with pytest.raises(InvalidInputError, match="finite"):
        LSTDQ(lambda x: np.where(x > 1, np.inf, x)).evaluate(Constant(0, 3), random_batch(), discount=0.5)


def test_tabular_features_give_tabular_values():
    from capi import FiniteMDP

    rng = np.random.default_rng(0)
    P, R = builders.random_mdp(rng)
    mdp = FiniteMDP(P, R, discount=0.5)
    batch = builders.tabular_batch(mdp, 3000, rng)
    tables = [LSTDQ(f).evaluate(Constant(0, 3), batch, discount=0.5).values(mdp.states) for f in (OneHot(5), OneHot())]
    np.testing.assert_allclose(*tables, rtol=1e-9)


@pytest.mark.parametrize("features", ALL, ids=repr)
def test_what_was_not_fitted_says_so(features):
    with pytest.raises(NotFittedError):
        type(features)().transform(STATES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Polynomial(10).fit(np.zeros((2, 60))), "degree must give at most"),
        (lambda: OneHot(10**12).fit([[0.0]]), "n_values must be at most"),
        (lambda: RadialCentres(5, random_state="x").fit(STATES), "random_state must be"),
        (lambda: Fourier(2, scale="deviation").fit(STATES), "scale must be one of 'range'"),
        (lambda: KernelDictionary().fit([[np.nan]]), "NaN"),
        (lambda: KernelDictionary().fit(STATES).transform(STATES[:, :1]), "features"),
        (lambda: fitted_features(lambda x: [[1.0], [1.0, 2.0]][: len(x) + 1], STATES), "unequal lengths"),
    ],
)
def test_more_bad_input_is_named(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_a_constant_column_stays_quiet_in_every_scale():
    x = np.column_stack([np.full(30, 0.1), np.arange(30.0)])
    q = Polynomial(2).fit(x)
    np.testing.assert_allclose(q.transform([[0.1 + 1e-9, 3.0]]), q.transform([[0.1, 3.0]]), atol=1e-6)
