import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances

from capi import CAPI
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.loss import regrets
from capi.policy_spaces import LocalAverages, Neighbors
from capi.policy_spaces.neighbors import _search, neighbors
from capi.testing import check_policy_space, random_batch


def table(x, states, metric="euclidean", **params):
    """Distances (n, m), computed directly and not by inner products."""
    if metric == "haversine":
        return pairwise_distances(x, states, metric=metric)
    return cdist(x, states, {"l2": "euclidean", "manhattan": "cityblock"}.get(metric, metric), **params)


def naive_means(distances, q, k, *, weigh=None, weights=None, allowed=None):
    """Mean regrets (n, A) among the k nearest rows, one state at a time: sort by rounded distance, then by row."""
    n, n_actions = q.shape
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    mask = np.ones(q.shape, dtype=bool) if allowed is None else allowed
    gaps = regrets(q, mask)
    means = np.full((len(distances), n_actions), np.inf)
    for i, line in enumerate(distances):
        order = [row for row in np.lexsort((np.arange(n), line.round(9))) if w[row] > 0][:k]
        counts = w[order] if weigh is None else w[order] * weigh(line[order].round(14))
        for a in range(n_actions):
            those = mask[order, a]
            if those.any():
                means[i, a] = (counts[those] * gaps[order, a][those]).sum() / counts[those].sum()
    return means


def inverse(line):
    return (line == 0).astype(float) if (line == 0).any() else 1 / line


def grid(rng, n, d, *, side=4):
    return rng.integers(0, side, size=(n, d)).astype(float)


def whole(rng, n, n_actions=3):
    """Values whose sums are exact, so that only the rule is tested."""
    return rng.integers(-9, 9, size=(n, n_actions)).astype(float)


def fixed(array):
    copy = np.array(array, dtype=float)
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize(
    "space",
    [
        Neighbors(),
        Neighbors(10),
        Neighbors(12, weights="distance"),
        Neighbors(20, weights=lambda distances: np.exp(-distances), scale="deviation"),
        Neighbors(15, metric="manhattan", scale=None),
        Neighbors(11, metric="canberra", n_jobs=2),
    ],
)
def test_keeps_the_contract(space):
    check_policy_space(space)


def test_keeps_the_contract_with_many_features():
    check_policy_space(Neighbors(10), n_features=13, n_actions=2)


METRICS = [
    ("euclidean", {}, 2),
    ("l2", {}, 12),
    ("sqeuclidean", {}, 2),
    ("sqeuclidean", {}, 12),
    ("manhattan", {}, 2),
    ("cityblock", {}, 12),
    ("chebyshev", {}, 3),
    ("chebyshev", {}, 12),
    ("minkowski", {"p": 1}, 2),
    ("minkowski", {"p": 3}, 2),
    ("minkowski", {"p": 3}, 12),
    ("canberra", {}, 2),
    ("braycurtis", {}, 3),
    ("hamming", {}, 4),
    ("cosine", {}, 3),
    ("correlation", {}, 4),
    ("haversine", {}, 2),
    ("mahalanobis", {"VI": np.array([[2.0, 0.5], [0.5, 1.0]])}, 2),
    ("seuclidean", {"V": np.array([1.0, 4.0, 9.0])}, 3),
]


@pytest.mark.parametrize("weighting", ["uniform", "distance"])
@pytest.mark.parametrize(("metric", "params", "d"), METRICS)
def test_every_metric_asks_the_nearest_rows_the_lowest_among_equals(metric, params, d, weighting):
    """States on a grid, many of them twice: the last place is nearly always tied."""
    rng = np.random.default_rng(d)
    states, q, x = grid(rng, 80, d) + 1, whole(rng, 80), grid(rng, 40, d) + 1
    if metric in ("cosine", "correlation"):  # no ties of unequal rounding, and no state without a direction
        states += rng.random(states.shape)
        x = np.vstack([states[:20], x + rng.random(x.shape)])
    space = Neighbors(7, weights=weighting, metric=metric, metric_params=params or None, scale=None)
    policy = space.improve(states, q)
    expected = naive_means(table(x, states, metric, **params), q, 7, weigh=inverse if weighting == "distance" else None)
    np.testing.assert_allclose(policy.regrets(x), expected, rtol=1e-6, atol=1e-9)
    if weighting == "uniform":
        np.testing.assert_array_equal(policy.act(x), expected.argmin(axis=1))


@st.composite
def problems(draw):
    n, d, n_actions = draw(st.integers(1, 25)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    side = draw(st.integers(1, 6))
    weights = rng.integers(0, 3, size=n).astype(float) if draw(st.booleans()) else None
    if weights is not None:
        weights[rng.integers(n)] = 1.0
    allowed = rng.random((n, n_actions)) < 0.7 if draw(st.booleans()) else None
    if allowed is not None:
        allowed[np.arange(n), rng.integers(n_actions, size=n)] = True
    x = rng.integers(-1, 2 * side + 1, size=(15, d)) / 2
    return grid(rng, n, d, side=side), whole(rng, n, n_actions), x, weights, allowed, draw(st.integers(1, 12)), rng


@settings(max_examples=120, deadline=None)
@given(problems(), st.sampled_from(["euclidean", "manhattan", "chebyshev", "hamming"]), st.booleans())
def test_is_its_twin_where_ties_abound(problem, metric, scaled):
    states, q, x, weights, allowed, k, rng = problem
    policy = Neighbors(k, metric=metric, scale="range" if scaled else None).improve(
        states, q, weights=weights, allowed=allowed
    )
    counted = states if weights is None else states[weights > 0]
    width = np.ptp(counted, axis=0)
    unit = np.where(width > 0, width, 1.0) if scaled else 1.0
    expected = naive_means(table(x / unit, states / unit, metric), q, k, weights=weights, allowed=allowed)
    np.testing.assert_allclose(policy.regrets(x), expected, rtol=1e-12)
    mask = rng.random((len(x), q.shape[1])) < 0.5
    mask[np.arange(len(x)), rng.integers(q.shape[1], size=len(x))] = True
    ranking = expected.argsort(axis=1, kind="stable")
    first = [next(a for a in line if may[a]) for line, may in zip(ranking, mask, strict=True)]
    np.testing.assert_array_equal(policy.act(x, mask), first)


@pytest.mark.parametrize("d", [1, 2, 11])
def test_thousands_of_tied_states_are_settled(d):
    """A discrete problem: few states, each in many rows, and all of them asked again and again."""
    rng = np.random.default_rng(0)
    states, q = grid(rng, 5000, d, side=3 if d < 11 else 2), whole(rng, 5000)
    policy = Neighbors(50).improve(states, q)
    x = states[:50]
    np.testing.assert_allclose(policy.regrets(states)[:50], naive_means(table(x, states), q, 50))


def test_small_tables_give_the_same_neighbours(monkeypatch):
    rng = np.random.default_rng(0)
    states, q, x = grid(rng, 300, 2, side=20), whole(rng, 300), grid(rng, 100, 2, side=20)
    expected = Neighbors(9).improve(states, q).regrets(x)
    monkeypatch.setattr(_search, "AT_ONCE", 40)
    monkeypatch.setattr(neighbors, "AT_ONCE", 30)
    np.testing.assert_array_equal(Neighbors(9).improve(states, q).regrets(x), expected)


def test_a_grid_that_rounds_has_the_ties_of_one_that_does_not():
    """In units of its range 1/3 - 0, 2/3 - 1/3 and 1 - 2/3 differ in the last digit; the lower row must win."""
    states, x = np.array([[3.0], [1.0], [0.0], [2.0]]), np.array([[2.0]])
    for order in ([0, 1, 2, 3], [1, 0, 2, 3]):
        q = np.eye(4)[order]  # each row prefers an action of its own
        policy = Neighbors(2).improve(states[order], q)
        lost = policy.regrets(x)[0]
        assert lost[order[0]] < 1
        assert lost[order[1]] == 1


def test_many_features_keep_distances_near_zero_exact():
    """Inner products round at the size of the states; distances must not."""
    rng = np.random.default_rng(0)
    states = 1e3 + rng.normal(size=(60, 12))
    states[30:] = states[:30] + 1e-6 * rng.normal(size=(30, 12))
    q = whole(rng, 60)
    distances = table(states, states)
    for weighting, weigh in (("uniform", None), ("distance", inverse)):
        policy = Neighbors(3, weights=weighting, scale=None).improve(states, q)
        np.testing.assert_allclose(policy.regrets(states), naive_means(distances, q, 3, weigh=weigh), rtol=1e-6)


def test_many_features_keep_the_order_of_states_near_each_other():
    """Here the inner products round by more than all of the squared distances."""
    rng = np.random.default_rng(0)
    states, q = 1e3 + 1e-6 * rng.normal(size=(60, 12)), whole(rng, 60)
    policy = Neighbors(3, scale=None).improve(states, q)
    np.testing.assert_allclose(policy.regrets(states), naive_means(1e6 * table(states, states), q, 3))


@pytest.mark.parametrize("weighting", ["uniform", "distance"])
def test_states_in_the_same_direction_are_equally_near_by_their_cosine(weighting):
    direction = np.array([0.3, 0.7, 0.9])
    states = np.vstack([np.outer([7.0, 0.11, 3.0, 1.7, 0.013], direction), [[1.0, 0.0, 0.0]]])
    policy = Neighbors(3, weights=weighting, metric="cosine", scale=None).improve(states, np.eye(6))
    lost = policy.regrets(np.outer([1.0, 0.37, 19.0], direction))
    np.testing.assert_allclose(lost, np.tile([2 / 3, 2 / 3, 2 / 3, 1.0, 1.0, 1.0], (3, 1)))


def test_one_state_that_matters_outvotes_two_that_do_not():
    policy = Neighbors(3).improve([[0.1], [0.2], [0.3], [9.0]], [[0.1, 0.0], [0.1, 0.0], [0.0, 9.0], [50.0, 0.0]])
    assert policy.act(np.array([[0.0]]))[0] == 1


def test_fewer_rows_than_neighbours_all_decide():
    policy = Neighbors(75).improve([[0.0], [1.0]], [[1.0, 0.0], [0.0, 3.0]])
    np.testing.assert_array_equal(policy.regrets(np.array([[0.0], [-1e9]])), [[1.5, 0.5], [1.5, 0.5]])


def test_rows_without_weight_take_no_place_and_no_part_in_the_scale():
    states, q = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.3], [5000.0, 0.0]]), np.eye(4)
    policy = Neighbors(1).improve(states, q, weights=[0.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(policy.act(np.array([[0.0, 0.0], [0.1, 0.2], [0.04, 0.2]])), [1, 1, 2])


def test_weights_of_the_sample_multiply_the_regrets():
    states, q = [[0.0], [0.1]], [[1.0, 0.0], [0.0, 0.9]]
    for weights, best in (([1.0, 1.0], 0), ([1.0, 2.0], 1)):
        assert Neighbors(2).improve(states, q, weights=weights).act(np.array([[0.0]]))[0] == best


def test_states_at_distance_zero_count_alone():
    states, q = [[0.0], [0.0], [1.0]], [[1.0, 0.0], [0.0, 0.5], [0.0, 99.0]]
    policy = Neighbors(3, weights="distance").improve(states, q)
    np.testing.assert_array_equal(policy.regrets(np.array([[0.0]])), [[0.25, 0.5]])
    assert policy.act(np.array([[0.1]]))[0] == 1


def test_distances_too_small_to_invert_still_weigh():
    space = Neighbors(2, weights="distance", metric="manhattan", scale=None)
    policy = space.improve([[0.0], [5e-305]], [[1e9, 0.0], [0.0, 1e9]])
    np.testing.assert_array_equal(policy.act(np.array([[1e-305], [4e-305]])), [0, 1])


def test_weights_may_be_a_function_and_the_nearest_row_decides_where_it_is_zero():
    def within(distances):
        return (distances < 0.2).astype(float)

    states, q = [[0.5], [0.0], [1.0], [0.0]], np.eye(4)
    policy = Neighbors(4, weights=within, scale=None).improve(states, q)
    np.testing.assert_array_equal(policy.act(np.array([[0.1], [0.7], [-9.0], [9.0], [0.75]])), [1, 0, 1, 2, 0])
    np.testing.assert_array_equal(policy.regrets(np.array([[0.0]])), [[1.0, 0.5, 1.0, 0.5]])
    for halves in ([[0.5], [1.0]], [[1.0], [0.5]]):
        tied = Neighbors(2, weights=within, scale=None).improve(halves, np.eye(2))
        assert tied.act(np.array([[0.75]]))[0] == 0


def test_masks_play_the_best_that_is_allowed():
    allowed = np.array([[True, True, True], [True, True, False]])
    policy = Neighbors(2).improve([[0.0], [0.5]], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]], allowed=allowed)
    masks = np.array([[True, True, True], [False, True, True], [False, False, True]])
    np.testing.assert_array_equal(policy.act(np.zeros((3, 1)), masks), [0, 1, 2])
    with pytest.raises(InvalidInputError, match="pass allowed"):
        policy.act(np.zeros((3, 1)))


def test_actions_that_no_neighbour_allows_come_last():
    allowed = np.array([[False, True, True], [False, True, True], [True, True, True]])
    q = np.array([[9.0, 0.0, 1.0], [9.0, 0.0, 1.0], [9.0, 0.0, 0.0]])
    policy = Neighbors(2).improve([[0.0], [0.1], [5.0]], q, allowed=allowed)
    np.testing.assert_array_equal(policy.regrets(np.zeros((1, 1))), [[np.inf, 1.0, 0.0]])
    masks = np.array([[True, True, True], [True, True, False], [True, False, False]])
    np.testing.assert_array_equal(policy.act(np.zeros((3, 1)), masks), [2, 1, 0])


def test_masks_that_allow_everything_are_no_masks():
    policy = Neighbors().improve([[0.0]], [[1.0, 2.0]], allowed=[[True, True]])
    assert policy.act(np.zeros((1, 1)))[0] == 1


@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize("weighting", ["uniform", "distance"])
def test_the_policy_does_not_depend_on_n_jobs(weighting, d):
    rng = np.random.default_rng(0)
    states, q, x = rng.normal(size=(500, d)), rng.normal(size=(500, 3)), rng.normal(size=(6000, d))
    one, two = (Neighbors(100, weights=weighting, n_jobs=n).improve(states, q).regrets(x) for n in (1, 3))
    np.testing.assert_array_equal(two, one)


@pytest.mark.parametrize("states", [np.random.default_rng(0).normal(size=(200, 2)), [[i // 40, 0] for i in range(200)]])
def test_the_last_policy_lends_its_neighbours(states):
    rng = np.random.default_rng(1)
    states, space = fixed(states), Neighbors(20, weights="distance")
    first = space.improve(states, rng.normal(size=(200, 3)))
    first.act(states)
    assert states in first.known
    q = rng.normal(size=(200, 3))
    second = space.improve(states, q, previous=first)
    assert second.nearest is first.nearest
    assert second.known is first.known
    np.testing.assert_array_equal(second.regrets(states), space.improve(states.copy(), q).regrets(states.copy()))


def test_neighbours_are_lent_only_on_the_same_states_rows_and_settings():
    rng = np.random.default_rng(0)
    states, q, space = fixed(rng.normal(size=(30, 2))), rng.normal(size=(30, 2)), Neighbors(5)
    weights = np.arange(30) % 3
    first = space.improve(states, q, weights=weights)
    assert space.improve(states, q, previous=first, weights=2 * weights).nearest is first.nearest
    others = [
        space.improve(states, q, previous=first),
        space.improve(states, q, previous=first, weights=np.arange(30) % 2),
        space.improve(fixed(states), q, previous=first, weights=weights),
        Neighbors(6).improve(states, q, previous=first, weights=weights),
    ]
    assert all(policy.nearest is not first.nearest for policy in others)
    changing = np.array(states)
    assert space.improve(changing, q, previous=space.improve(changing, q)).nearest is not first.nearest
    last = space.improve(changing, q)
    assert space.improve(changing, q, previous=last).nearest is not last.nearest


def test_what_is_too_much_is_not_remembered(monkeypatch):
    monkeypatch.setattr(neighbors, "REMEMBERED", 99)
    states = fixed(np.arange(10.0)[:, None])
    policy = Neighbors(10).improve(states, np.eye(10))
    assert policy.regrets(states).shape == (10, 10)
    assert states not in policy.known
    smaller = Neighbors(9).improve(states, np.eye(10))
    smaller.act(states)
    assert states in smaller.known


def test_a_policy_can_be_copied():
    states, q = np.random.default_rng(0).normal(size=(50, 2)), np.random.default_rng(1).normal(size=(50, 2))
    for space in (Neighbors(5), Neighbors(5, metric="canberra")):
        policy = space.improve(states, q)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(policy)).act(states), policy.act(states))


def test_runs_in_the_loop():
    batch = random_batch()
    learner = CAPI(
        FittedQ(n_trees=5, n_sweeps=2), Neighbors(10), 0.9, 3, random_state=0, keep="last", state_weights="batch"
    )
    policy = learner.fit(batch).policy_
    assert batch.states in policy.known
    assert policy.training.n_iterations == 3
    assert set(policy.act(batch.states)) <= {0, 1, 2}


class Graph:
    """Stands in for pynndescent's index, which takes minutes to compile: exact, but in single precision."""

    def __init__(self, points, metric, metric_kwds, random_state, n_jobs):
        if metric == "canberra":
            raise ValueError("no such thing.")
        self.points, self.metric = points.astype(np.float32), metric
        assert (random_state, n_jobs) == (0, 1)

    def prepare(self):
        pass

    def query(self, x, k):
        distances = pairwise_distances(x.astype(np.float32), self.points, metric=self.metric).astype(np.float32)
        points = distances.argsort(axis=1, kind="stable")[:, :k].astype(np.int32)
        found = np.take_along_axis(distances, points, axis=1)
        found[::5, -1], points[::5, -1] = np.inf, -1  # too few were found
        return points, found


@pytest.fixture
def graph(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=Graph, __spec__=object()))
    monkeypatch.setattr(_search, "FEW", 10)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("d", [2, 12])
def test_an_approximate_index_finds_what_it_can(graph, metric, d):
    rng = np.random.default_rng(0)
    states, q, x = rng.normal(size=(200, d)), whole(rng, 200), rng.normal(size=(50, d))
    approximate, exact = (
        Neighbors(9, metric=metric, algorithm=algorithm).improve(states, q) for algorithm in ("approximate", "exact")
    )
    assert isinstance(approximate.nearest.search, _search.ApproximateSearch)
    np.testing.assert_array_equal(approximate.act(x), exact.act(x))
    np.testing.assert_array_equal(approximate.regrets(states), exact.regrets(states))


def test_an_approximate_index_finds_enough_rows_of_repeated_states(graph):
    rng = np.random.default_rng(0)
    states, q = grid(rng, 500, 2, side=6), whole(rng, 500)
    policy = Neighbors(40, algorithm="approximate").improve(states, q)
    assert np.isfinite(policy.regrets(states)).all()
    assert policy.nearest.of(policy.nearest.sample.points)[0].shape == (36, 40)


def test_a_metric_without_an_approximate_index_is_refused(graph):
    with pytest.raises(
        InvalidInputError, match=r"'canberra' has no approximate index: no such thing\. Use algorithm='exact'"
    ):
        Neighbors(metric="canberra", algorithm="approximate").improve(np.arange(30.0)[:, None], np.zeros((30, 2)))


def test_a_missing_pynndescent_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(InvalidInputError, match=r"needs pynndescent: pip install capi\[ann\]"):
        Neighbors(algorithm="approximate")


@pytest.mark.slow
def test_pynndescent_finds_nearly_all_neighbours_and_the_same_ones_again():
    pytest.importorskip("pynndescent")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3000, 5)) @ rng.normal(size=(5, 30))
    q, x = rng.normal(size=(2500, 3)), points[2500:]
    spaces = (
        Neighbors(20, algorithm="exact"),
        Neighbors(20, algorithm="approximate"),
        Neighbors(20, algorithm="approximate", n_jobs=2),
    )
    exact, one, two = (space.improve(points[:2500], q) for space in spaces)
    rows, found = (policy.nearest.of(policy.nearest.sample.scaling(x))[0] for policy in (exact, one))
    assert np.mean([len(set(a) & set(b)) / 20 for a, b in zip(rows, found, strict=True)]) > 0.9
    np.testing.assert_array_equal(two.regrets(x), one.regrets(x))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be an integer, at least 1"),
        ({"weights": "gaussian"}, "weights must be 'uniform', 'distance' or a function"),
        ({"weights": np.ones(3)}, "weights must be 'uniform', 'distance' or a function"),
        ({"metric": "precomputed"}, "metric must be a metric of scikit-learn: braycurtis, .*; got 'precomputed'"),
        ({"metric": table}, "metric must be a metric of scikit-learn"),
        ({"metric_params": [1]}, "metric_params must be a mapping"),
        ({"metric_params": {"p": 1}}, "metric 'euclidean' has no parameters; got 'p'"),
        ({"scale": "unit"}, "scale must be one of"),
        ({"algorithm": "fast"}, "algorithm must be one of 'exact', 'approximate'"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(InvalidInputError, match=words):
        Neighbors(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "haversine"}, "metric 'haversine' cannot be used on these states: .*2 dimensions"),
        ({"metric": "minkowski", "metric_params": {"p": -1}}, "metric 'minkowski' cannot be used on these states"),
        ({"metric": "correlation"}, "metric 'correlation' is not defined between some states"),
        ({"weights": lambda d: d[:, 0]}, r"weights\(distances\) must have two dimensions"),
        ({"weights": lambda d: d[:, :1]}, r"weights\(distances\) must have shape \(2, 2\)"),
        ({"weights": lambda d: -1 - d}, r"weights\(distances\) must not be negative"),
        ({"weights": lambda d: d * np.nan}, r"weights\(distances\) must be finite"),
        ({"scale": [[0.0], [1.0]]}, "scale must have 3 columns"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scipy on correlations of constants
def test_settings_that_do_not_fit_the_states_are_refused(options, words):
    states = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    with pytest.raises(InvalidInputError, match=words):
        Neighbors(**options).improve(states, [[0.0, 1.0], [1.0, 0.0]]).act(states)


def test_bad_samples_and_states_are_refused():
    states, q = np.array([[0.0], [1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    policy = Neighbors().improve(states, q)
    for improve, words in (
        (lambda: Neighbors().improve([[0.0], [np.nan]], q), r"states must be finite; .* states\[1, 0\] = nan"),
        (lambda: Neighbors().improve(states, q[:1]), "q_values must have one row per state: 2 rows"),
        (lambda: Neighbors().improve(states, q, weights=[0.0, 0.0]), "weights must have a positive, finite sum"),
        (lambda: Neighbors().improve(states, q, allowed=[[1, 0], [0, 0]]), "allowed must allow at least one action"),
        (lambda: policy.act(np.array([[np.nan]])), "states must be finite"),
        (lambda: policy.act(np.zeros((1, 2))), "states must have 1 columns"),
        (lambda: policy.act(states, np.ones((2, 3), dtype=bool)), r"allowed must have shape \(2, 2\)"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            improve()


@pytest.mark.parametrize("d", [2, 15])
def test_states_beyond_all_distances_are_decided_too(d):
    rng = np.random.default_rng(0)
    states, values = rng.normal(size=(40, d)), rng.normal(size=(40, 3))
    far = np.full((1, d), 1e160)
    for space in (Neighbors(5), LocalAverages()):
        assert space.improve(states, values).act(far).shape == (1,)
