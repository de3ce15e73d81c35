import pickle
from dataclasses import replace

import numpy as np
import pytest
from numba import njit

import naive
from capi.errors import InvalidInputError
from capi.trees import forest, predictor
from capi.trees._kernels import node, records, route, split
from capi.trees._kernels.records import Layout
from capi.trees._kernels.walk import walk_of
from capi.trees.forest import Forest, Growth
from capi.trees.ranks import encode


def grow(*arguments, **options):
    """The trees of a forest, each able to say where states go."""
    return forest.grow(*arguments, **options).trees


def leaves(tree, states):
    return Forest([tree]).leaves(states)[0]


def called(kernel):
    """Kernels are called by kernels only."""

    @njit
    def call(*arguments):
        return kernel(*arguments)

    def silent(*arguments):
        with np.errstate(over="ignore"):  # without a compiler, too, integers wrap
            return call(*arguments)

    return silent


extremes, sums_up_to, divide, divide_in_place = map(
    called, (node.extremes, node.sums_up_to, node.divide, node.divide_in_place)
)
sort_by_code, tie_of = map(called, (split.sort_by_code, split.tie_of))

VALUE = Growth(min_samples_split=4)
POLICY = Growth(min_samples_split=2, policy=True)
KINDS = {
    "value": VALUE,
    "value, few candidates": replace(VALUE, n_candidates=2),
    "value, leaves of three": replace(VALUE, min_samples_leaf=3),
    "value, best cuts": replace(VALUE, best_cuts=True),
    "value, six leaves": replace(VALUE, max_leaf_nodes=6),
    "policy": POLICY,
    "policy, few candidates": replace(POLICY, n_candidates=1),
    "policy, best cuts": replace(POLICY, best_cuts=True),
    "policy, best cuts, depth two": replace(POLICY, best_cuts=True, max_depth=2),
    "policy, best cuts, five leaves": replace(POLICY, best_cuts=True, max_leaf_nodes=5),
}


def problem(seed, policy, missing, n=40, d=5):
    """Whole numbers everywhere: sums are exact, so that the fast and the slow tree decide alike."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=(n, d)).astype(float)
    X[:, 1] = rng.normal(size=n)
    X[:, 2] = 3.0
    if missing:
        X[rng.random((n, d)) < 0.2] = np.nan
        X[:, 3] = np.where(np.isnan(X[:, 3]), np.nan, 1.0)  # only whether it is known
    Y = rng.integers(0, 4, size=(n, 3 if policy else 2)).astype(float)
    if policy:
        Y = Y.max(axis=1, keepdims=True) - Y
    return X, Y, rng.integers(1, 4, size=n).astype(float)


@pytest.mark.parametrize("narrow", [True, False], ids=["16 bits", "32 bits"])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing values"])
@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_kernels_grow_the_trees_of_their_slow_twin(kind, seed, missing, is_weighted, narrow, monkeypatch):
    monkeypatch.setattr(records, "SPARE_ROWS", (0, 7, 1000)[seed % 3])  # all in place, some of it, nothing
    growth = KINDS[kind]
    X, Y, weights = problem(seed, growth.policy, missing)
    weights = weights if is_weighted else None
    (tree,) = grow(encode(X, narrow=narrow), Y, growth, np.random.default_rng(seed), weights=weights)
    tree_seed = np.random.default_rng(seed).integers(1, 2**63, size=1, dtype=np.uint64)[0]
    twin = naive.TreeGrower(X, Y, weights, growth, tree_seed)
    nodes, leaf_rows = twin.grow()

    assert tree.nodes["left"].tolist() == [node[3] for node in nodes]
    for grown, expected in zip(tree.nodes, nodes, strict=True):
        if expected[0] is not None:
            assert (grown["feature"], grown["threshold"], bool(grown["missing_left"])) == expected[:3]
    for leaf, rows in enumerate(leaf_rows):
        assert set(np.flatnonzero(tree.leaf_of_row == leaf)) == set(rows)
        np.testing.assert_array_equal(tree.sums[leaf], twin.sums(rows))
        assert (tree.counts[leaf], tree.weights[leaf]) == (len(rows), twin.w[rows].sum())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_sent_to_the_leaf_in_which_they_grew(kind):
    X, Y, _ = problem(1, KINDS[kind].policy, missing=True, n=200)
    (tree,) = grow(encode(X), Y, KINDS[kind], np.random.default_rng(0))
    np.testing.assert_array_equal(leaves(tree, X), tree.leaf_of_row)


@pytest.mark.parametrize("growth", [replace(VALUE, n_trees=7), replace(POLICY, n_trees=7)], ids=["value", "policy"])
def test_one_thread_grows_what_four_grow(growth):
    X, Y, _ = problem(2, growth.policy, missing=True, n=300)
    one, four = (grow(encode(X, jobs), Y, growth, np.random.default_rng(5), n_jobs=jobs) for jobs in (1, 4))
    for a, b in zip(one, four, strict=True):
        np.testing.assert_array_equal(a.nodes, b.nodes)
        np.testing.assert_array_equal(a.sums, b.sums)
    np.testing.assert_array_equal(Forest(one).mean_values(X, 1), Forest(four).mean_values(X, 4))


def test_every_tree_has_a_seed_of_its_own():
    X, Y, _ = problem(3, False, missing=False)
    trees = grow(encode(X), Y, replace(VALUE, n_trees=5), np.random.default_rng(0))
    assert len({tree.nodes.tobytes() for tree in trees}) == 5


@pytest.mark.parametrize("best_cuts", [False, True], ids=["random cuts", "best cuts"])
@pytest.mark.parametrize("policy", [False, True], ids=["value", "policy"])
def test_missingness_alone_is_found(policy, best_cuts):
    """The signal is whether a value is known; the values themselves say nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    X[::2, 1] = np.nan
    signal = np.isnan(X[:, 1]).astype(float)
    Y = np.stack([signal, 1 - signal], axis=1) if policy else signal[:, None]
    growth = Growth(n_trees=20, max_depth=1, policy=policy, best_cuts=best_cuts)
    for tree in grow(encode(X), Y, growth, np.random.default_rng(1)):
        assert (tree.nodes["feature"][0], tree.nodes["threshold"][0]) == (1, np.inf)
        assert tree.sums.min(axis=1).max() == 0 if policy else set(tree.means[:, 0]) == {0.0, 1.0}


def test_a_node_that_saw_no_missing_value_sends_them_to_its_larger_side():
    X = np.arange(10.0)[:, None]
    Y = (X > 6.5).astype(float)
    (tree,) = grow(encode(X), Y, Growth(max_depth=1, best_cuts=True), np.random.default_rng(0))
    assert leaves(tree, np.array([[np.nan]]))[0] == tree.leaf_of_row[0]
    (tree,) = grow(encode(X), (X > 2.5).astype(float), Growth(max_depth=1, best_cuts=True), np.random.default_rng(0))
    assert leaves(tree, np.array([[np.nan]]))[0] == tree.leaf_of_row[9]


DEGENERATE = {
    "one row": (np.zeros((1, 2)), np.ones((1, 2))),
    "equal rows": (np.ones((9, 2)), np.arange(18.0).reshape(9, 2)),
    "constant column": (np.column_stack([np.zeros(9), np.arange(9.0)]), np.arange(18.0).reshape(9, 2) % 5),
    "column without values": (np.column_stack([np.full(9, np.nan), np.arange(9.0)]), np.arange(18.0).reshape(9, 2) % 5),
    "no values at all": (np.full((9, 2), np.nan), np.arange(18.0).reshape(9, 2) % 5),
    "one output": (np.arange(9.0)[:, None], np.arange(9.0)[:, None] % 3),
    "huge numbers": (np.array([[-1.7e308], [1.7e308], [0.0]]), np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]])),
    "neighbours": (np.array([[1.0], [np.nextafter(1.0, 2.0)]]), np.array([[0.0, 1.0], [1.0, 0.0]])),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("kind", ["value", "policy", "policy, best cuts", "value, best cuts"])
def test_degenerate_data_do_no_harm(case, kind):
    X, Y = DEGENERATE[case]
    trees = grow(encode(X), Y, replace(KINDS[kind], n_trees=3, min_samples_split=2), np.random.default_rng(0))
    for tree in trees:
        np.testing.assert_array_equal(leaves(tree, X), tree.leaf_of_row)
        assert tree.counts.sum() == len(X)
        np.testing.assert_allclose(tree.sums.sum(axis=0), Y.sum(axis=0))


def test_growth_does_not_stall_where_no_single_cut_helps():
    """Exclusive or: no first cut lowers the regret, yet the tree must find the four corners."""
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    best = np.array([0, 1, 1, 0])
    X, wrong = np.repeat(corners, 5, axis=0), np.repeat(best, 5)
    regret = np.stack([wrong == 1, wrong == 0], axis=1).astype(float)
    for best_cuts in (False, True):
        growth = Growth(n_trees=5, policy=True, best_cuts=best_cuts)
        for tree in grow(encode(X), regret, growth, np.random.default_rng(0)):
            assert tree.sums.min(axis=1).sum() == 0


@pytest.mark.compiled
def test_more_values_than_sixteen_bits_hold():
    n = 70_000
    X = np.arange(float(n))[:, None]
    encoded = encode(X)
    assert encoded.bits == 32
    (tree,) = grow(encoded, (X >= 69_000).astype(float), Growth(max_depth=1, best_cuts=True), np.random.default_rng(0))
    assert tree.nodes["threshold"][0] == 68_999.5


@pytest.mark.parametrize("n", [1, 63, 64, 71, 100, 128, pytest.param(20_000, marks=pytest.mark.compiled)])
@pytest.mark.parametrize("missing", [False, True])
def test_states_are_sent_down_as_the_nodes_say(n, missing):
    """Together or one by one, in one block or several: the leaf is that of a plain walk."""
    X, Y, _ = problem(4, False, missing=True, n=200)
    grown = forest.grow(encode(X), Y, replace(VALUE, n_trees=3), np.random.default_rng(0))
    states = np.random.default_rng(n).uniform(0, 6, size=(n, 5))
    states[::2] = np.where(states[::2] > 3, np.ceil(states[::2]), states[::2])
    cuts = grown.trees[0].nodes
    states[: len(cuts), 1] = cuts["threshold"][:n]  # exactly on a cut is left, beyond all of them is legal
    states[-1] = [-np.inf, np.inf, 1e300, -1e300, 0.0]
    if missing:
        states[::3, 1] = np.nan
    found = grown.leaves(states)
    means = np.zeros((n, 2))
    for t, tree in enumerate(grown.trees):
        some = slice(0, 300)
        np.testing.assert_array_equal(found[t, some], grown.leaf_starts[t] + naive.leaves(tree.nodes, states[some]))
        np.testing.assert_array_equal(found[t, -70:], grown.leaf_starts[t] + naive.leaves(tree.nodes, states[-70:]))
        means += grown.means[found[t]] / 3
    np.testing.assert_allclose(grown.mean_values(states, 2), means)


def test_nodes_too_large_for_their_bits_are_walked_one_by_one(monkeypatch):
    X, Y, _ = problem(4, False, missing=True, n=200)
    grown = forest.grow(encode(X), Y, replace(VALUE, n_trees=3), np.random.default_rng(0))
    expected = grown.leaves(X), grown.mean_values(X)
    monkeypatch.setattr(predictor, "MOST_NODES", 4)
    monkeypatch.setattr(predictor.Paths, "_coded", None)  # whoever asks for codes now, fails
    again = Forest(grown.trees)
    np.testing.assert_array_equal(again.leaves(X), expected[0])
    np.testing.assert_array_equal(again.mean_values(X), expected[1])


@pytest.mark.parametrize("n", [10, 1000])
@pytest.mark.parametrize("matters", [False, True], ids=["no split asks for it", "it matters"])
def test_states_with_every_action_go_where_each_of_them_goes(n, matters):
    rng = np.random.default_rng(0)
    X, actions = rng.normal(size=(500, 3)), rng.integers(5, size=500) if matters else np.zeros(500, dtype=int)
    y = X[:, :1] + np.sin(actions)[:, None]
    inputs = np.column_stack([X, actions.astype(float)])
    grown = forest.grow(encode(inputs), y, replace(VALUE, n_trees=4), rng)
    states = rng.normal(size=(n, 3))
    together = grown.leaves_of_actions(states, 5, 2)
    values = grown.mean_values_of_actions(states, 5, 2)
    for a in range(5):
        alone = np.column_stack([states, np.full(n, float(a))])
        np.testing.assert_array_equal(together[a], grown.leaves_in_trees(alone))
        np.testing.assert_allclose(values[:, a], grown.mean_values(alone)[:, 0])


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing values"])
def test_lists_of_states_go_where_each_of_them_walks(missing, monkeypatch):
    rng = np.random.default_rng(0)
    X, actions = rng.normal(size=(300, 3)), rng.integers(4, size=300)
    y = X[:, :1] + np.sin(2.0 * actions)[:, None]
    X[:, 1] = np.where(rng.random(300) < 0.3 * missing, np.nan, X[:, 1])
    inputs = np.column_stack([X, actions.astype(float)])
    grown = forest.grow(encode(inputs), y, replace(VALUE, n_trees=3), rng)
    values, states = rng.normal(size=(grown.leaf_starts[-1], 2)), rng.permuted(X[:90], axis=0)

    def found():
        return grown.leaves(inputs), grown.leaves_of_actions(states, 4), grown.total(values, inputs)

    walked = found()
    monkeypatch.setattr(predictor, "MANY", 64)
    for divided, expected in zip(found(), walked, strict=True):
        np.testing.assert_array_equal(divided, expected)
    for t, tree in enumerate(grown.trees):
        for a in range(4):
            expected = naive.leaves(tree.nodes, np.column_stack([states, np.full(90, float(a))]))
            np.testing.assert_array_equal(grown.leaves_of_actions(states, 4)[a, t], expected)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_kept_trees_sum_vote_and_average_as_plain_loops_do(n_jobs):
    rng = np.random.default_rng(0)
    X, actions = rng.normal(size=(400, 3)), rng.integers(4, size=400)
    inputs = np.column_stack([X, actions.astype(float)])
    grown = forest.grow(encode(inputs), X[:, :1] + actions[:, None], replace(VALUE, n_trees=6), rng)
    outputs, leaves = rng.normal(size=(400, 4)), grown.leaves(inputs)
    choices, decisions = rng.integers(4, size=grown.leaf_starts[-1]), rng.integers(4, size=400)

    sums = grown.sums_of_outputs(outputs, n_jobs)
    for o in range(4):
        in_trees, starts = grown.leaves_in_trees_of_rows, grown.leaf_starts
        np.testing.assert_array_equal(sums[:, o], naive.sums_by_leaf(in_trees, starts, outputs[:, o]))
    votes = grown.votes_of_leaves(choices, 4, leaves, n_jobs)
    np.testing.assert_array_equal(votes, (choices[leaves][:, :, None] == np.arange(4)).sum(axis=0))
    of_actions = grown.leaves_of_actions(X, 4)
    means = forest.means_of_leaves([grown] * 4, list(of_actions))
    chosen = grown.mean_of_decisions(of_actions, decisions, n_jobs)
    np.testing.assert_array_equal(chosen, means[np.arange(400), decisions])


@pytest.mark.parametrize("kind", [np.uint16, np.int32])
@pytest.mark.parametrize("n_trees", [1, 4, 7])
@pytest.mark.parametrize("n", [1, 1025, 3000])
def test_known_leaves_are_read_and_summed_as_by_plain_loops(n, n_trees, kind):
    rng = np.random.default_rng(n)
    starts = np.cumsum([0, *rng.integers(1, 40, size=n_trees)])
    leaves = np.stack([rng.integers(size, size=n) for size in np.diff(starts)]).astype(kind)
    values, y = rng.normal(size=starts[-1]), rng.normal(size=n)
    means, sums = np.full((n, 2), np.nan), np.zeros(starts[-1])
    for first, end in ((0, n // 3), (n // 3, n)):
        route.mean_of_leaves(leaves, starts, values, first, end, means[first:end, 1])
    np.testing.assert_array_equal(means[:, 1], naive.mean_of_leaves(leaves, starts, values))
    for first, end in ((0, 1), (1, n_trees)):
        route.sums_by_leaf(leaves, starts, first, end, y, sums)
    np.testing.assert_array_equal(sums, naive.sums_by_leaf(leaves, starts, y))


@pytest.mark.compiled
@pytest.mark.parametrize("lanes", [1, 8])
def test_states_walk_alike_on_machines_that_gather_and_others(lanes):
    X, Y, _ = problem(4, False, missing=True, n=200)
    grown = forest.grow(encode(X), Y, replace(VALUE, n_trees=2), np.random.default_rng(0))
    states = np.random.default_rng(1).uniform(0, 6, size=(8 * lanes, 5))
    states[::3, 1] = np.nan
    nodes, codes = grown._paths._coded.nodes, grown._paths._coded.codes(states)
    starts, at = np.arange(len(states)) * codes.shape[1], np.empty(len(states), dtype=np.int64)
    walk = walk_of(lanes)

    @njit
    def send(root):
        walk(nodes_at + 8 * root, codes_at, starts_at, ends_at)

    nodes_at, codes_at, starts_at, ends_at = (array.ctypes.data for array in (nodes, codes, starts, at))
    for t, root in enumerate(grown._paths.roots):
        send(root)
        np.testing.assert_array_equal(grown._paths.number[root + at], naive.leaves(grown.trees[t].nodes, states))


def test_pickles_have_no_evaluation_tables_and_older_ones_are_read():
    X, Y, _ = problem(4, False, missing=True, n=200)
    grown = forest.grow(encode(X), Y, replace(VALUE, n_trees=3), np.random.default_rng(0))
    expected = grown.mean_values(X)
    new = pickle.loads(pickle.dumps(grown))
    assert list(new.__dict__) == ["trees", "projections"]
    old = Forest.__new__(Forest)
    old.__setstate__({"trees": grown.trees, "_paths": "as they once were"})
    for again in (new, old):
        np.testing.assert_array_equal(again.mean_values(X), expected)


def test_leaves_take_sixteen_bits_if_they_fit():
    assert predictor.leaf_type(np.array([0, 2**16, 2**16 + 3])) is np.uint16
    assert predictor.leaf_type(np.array([0, 3, 2**16 + 4])) is np.int32


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("n", [1, 3, 4, 5, 50])
@pytest.mark.parametrize("n_groups", [1, 2])
def test_vector_loops_do_what_plain_ones_do(bits, n, n_groups):
    rng = np.random.default_rng(n)
    lanes = 8 * n_groups
    codes = rng.integers(0, 2**bits, size=(n, lanes)).astype(np.uint16 if bits == 16 else np.uint32)
    outputs = rng.integers(-9, 9, size=(n, 2)).astype(float)
    records = np.column_stack([codes.view(np.uint64), outputs.view(np.uint64)])
    rows, size, first = records.ctypes.data, 8 * records.shape[1], records.shape[1] - 2
    low, high, counts = (np.zeros(lanes, dtype=np.uint64) for _ in range(3))
    assert extremes(rows, n, size, bits, first, low, high) == outputs[:, 0].sum()
    np.testing.assert_array_equal(low, codes.min(axis=0))
    np.testing.assert_array_equal(high, codes.max(axis=0))
    cut, sums = rng.integers(0, 2**bits, size=lanes, dtype=np.uint64), np.zeros(lanes)
    cut[0] = codes[0, 0]  # equal is below
    below = codes <= cut
    for o in range(2):
        sums_up_to(rows, n, size, bits, first + o, cut, sums, counts)
        np.testing.assert_array_equal(counts, below.sum(axis=0))
        np.testing.assert_array_equal(sums, (below * outputs[:, [o]]).sum(axis=0))


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("n_outputs", range(6))
@pytest.mark.parametrize("n", [1, 50, 1000])
@pytest.mark.parametrize("missing_left", [0, 1])
def test_rows_are_divided_in_place_and_by_copying(bits, n_outputs, n, missing_left):
    """Each row is whole, on its side, and there once."""
    rng = np.random.default_rng(n)
    largest, layout = 2**bits - 1, Layout.of(n, 8, bits, n_outputs, weighted=False)
    codes = rng.integers(0, 9, size=(n, 8)).astype(np.uint16 if bits == 16 else np.uint32)
    codes[rng.random((n, 8)) < 0.2] = largest
    records = rng.integers(2**60, size=(n, layout.n_words), dtype=np.uint64)
    records[:, : layout.first_output] = codes.view(np.uint64)
    before = sorted(map(tuple, records))
    for feature, cut in ((0, 4), (5, 0), (7, 8), (3, largest - 1)):
        goes_left = (codes[:, feature] <= cut) | (bool(missing_left) & (codes[:, feature] == largest))
        expected = sorted(map(tuple, records[goes_left]))
        copied, moved = np.zeros_like(records), records.copy()
        addresses = records.ctypes.data, n, 8 * layout.n_words, copied.ctypes.data
        n_copied = divide(*addresses, feature, bits, cut, missing_left)
        n_moved = divide_in_place(moved, feature, bits, cut, missing_left, np.empty((2, node.BLOCK), np.int64))
        for n_left, after in ((n_copied, copied), (n_moved, moved)):
            assert n_left == goes_left.sum()
            assert sorted(map(tuple, after[:n_left])) == expected
            assert sorted(map(tuple, after)) == before


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("n", [1, 48, 49, 3000])
def test_keys_are_sorted_by_their_codes(bits, n):
    rng = np.random.default_rng(n)
    codes = rng.integers(0, 2**bits, size=n, dtype=np.uint64) >> rng.integers(0, bits, size=n, dtype=np.uint64)
    keys = codes << np.uint64(32) | np.arange(n, dtype=np.uint64)
    expected = np.sort(keys)
    sort_by_code(keys, np.empty_like(keys), n, bits, np.empty(256, dtype=np.int64))
    np.testing.assert_array_equal(keys, expected)


@pytest.mark.compiled
def test_cuts_are_found_among_values_that_crowd():
    """One cell of the search grid may hold nearly all values, or a cut lie above the largest of many equal ones."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.lognormal(sigma=9, size=3000), np.append(rng.normal(size=2999), 1e12), rng.integers(0, 2, 3000)]
    )
    for tree in grow(encode(X), rng.normal(size=(3000, 1)), Growth(n_trees=5), np.random.default_rng(1)):
        np.testing.assert_array_equal(leaves(tree, X), tree.leaf_of_row)
        for j in range(3):  # states on the cuts, too
            on_cuts = np.full((len(tree.nodes), 3), np.median(X, axis=0))
            on_cuts[:, j] = tree.nodes["threshold"]
            np.testing.assert_array_equal(leaves(tree, on_cuts), naive.leaves(tree.nodes, on_cuts))


@pytest.mark.compiled
@pytest.mark.parametrize("n_values", [65_535, 65_536])
def test_the_largest_number_of_values_in_sixteen_bits(n_values):
    """The largest code is the missing value's: one value more, and codes take 32 bits."""
    X = np.append(np.arange(float(n_values)), np.nan)[:, None]
    encoded = encode(X)
    assert encoded.bits == (16 if n_values < 2**16 else 32)
    (tree,) = grow(encoded, np.isnan(X).astype(float), Growth(max_depth=1), np.random.default_rng(0))
    np.testing.assert_array_equal(leaves(tree, X), tree.leaf_of_row)


@pytest.mark.compiled
@pytest.mark.parametrize("n", [65_536, 65_537])
def test_numbers_of_rows_stand_in_a_free_lane_only_if_they_fit(n):
    layout = Layout.of(n, 3, 16, 1, weighted=False)
    assert (layout.number, layout.n_words) == ((1, 3) if n <= 2**16 else (3, 4))
    assert Layout.of(n, 8, 16, 1, weighted=False).n_words == 4, "no lane is free"
    X = np.random.default_rng(0).integers(0, 50, size=(n, 3)).astype(float)
    (tree,) = grow(encode(X), X[:, :1], Growth(min_samples_split=n // 4), np.random.default_rng(0))
    np.testing.assert_array_equal(leaves(tree, X), tree.leaf_of_row)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e300], ids=["smallest", "tiny", "huge"])
@pytest.mark.parametrize("seed", range(3))
def test_values_as_small_or_as_large_as_they_come(scale, seed):
    X, Y, _ = problem(seed, False, missing=False)
    X = np.random.default_rng(seed).integers(-9, 9, size=X.shape) * scale
    (tree,) = grow(encode(X), Y, VALUE, np.random.default_rng(seed))
    tree_seed = np.random.default_rng(seed).integers(1, 2**63, size=1, dtype=np.uint64)[0]
    nodes, _ = naive.TreeGrower(X, Y, None, VALUE, tree_seed).grow()
    assert tree.nodes["left"].tolist() == [node[3] for node in nodes]
    np.testing.assert_array_equal(leaves(tree, X), tree.leaf_of_row)


def test_each_tree_of_a_forest_is_that_of_its_seed():
    """Trees that one thread grows after the other share their workspace, and nothing else."""
    X, Y, _ = problem(0, False, missing=True, n=100)
    growth = replace(VALUE, n_trees=6, n_candidates=2)
    seeds = np.random.default_rng(3).integers(1, 2**63, size=6, dtype=np.uint64)
    for tree, seed in zip(grow(encode(X), Y, growth, np.random.default_rng(3)), seeds, strict=True):
        nodes, _ = naive.TreeGrower(X, Y, None, growth, seed).grow()
        assert tree.nodes["left"].tolist() == [node[3] for node in nodes]


def test_the_sign_of_zero_is_nowhere():
    assert not np.signbit(encode(np.array([[-0.0], [1.0]])).values[0]), "a cut next to it reads as 0, not as -0"


def test_regrets_that_differ_by_rounding_alone_are_equal():
    total = np.array([0.6, 0.4])
    assert (tie_of(total, True), tie_of(total, False)) == (pytest.approx(1e-12), 0.0)


def test_more_features_than_a_node_has_bits_for_are_refused():
    with pytest.raises(InvalidInputError, match="at most 32767 features; got 32768"):
        encode(np.zeros((2, 2**15)))
