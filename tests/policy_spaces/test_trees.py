import re
from dataclasses import replace

import numpy as np
import pytest

from capi import CAPI, Transitions
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.files import export_policy
from capi.loss import gap_weighted_loss
from capi.policies import Training, decisions, described
from capi.policy_spaces import Forests, OptimalTrees, Thresholds, Trees
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.trees import forests
from capi.policy_spaces.trees._outline import Outline, regret_reductions
from capi.policy_spaces.trees.greedy import TreePolicy, leaf_size, seconds_for_optimal
from capi.testing import check_policy_space
from capi.trees._kernels.records import NODE
from capi.trees.forest import Tree

GROWN_OUT = Trees(max_depth=None, min_samples_leaf=1)
SPACES = [
    Trees(),
    GROWN_OUT,
    Trees(max_depth=2),
    Trees(max_leaf_nodes=3),
    Trees(max_features=1),
    Forests(n_trees=5),
    Forests(max_depth=3),
    Forests(n_trees=5, projections=6),
]


def problem(seed=0, n=400, missing=False):
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, 3))
    values = np.stack([states[:, 0], states[:, 1], np.full(n, 0.3)], axis=1) + 0.1 * rng.normal(size=(n, 3))
    if missing:
        values[:, 2] += 2.0 * (rng.random(n) < 0.5)
        states[values[:, 2] > 1.5, 2] = np.nan
        states[rng.random((n, 3)) < 0.05] = np.nan
    return states, values


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_keeps_the_contract(space):
    check_policy_space(space)
    check_policy_space(space, n_actions=5, n_features=7, seed=3)


@pytest.mark.parametrize("space", [GROWN_OUT, Forests()], ids=repr)
def test_grown_out_nothing_is_lost(space):
    states, values = problem()
    assert gap_weighted_loss(values, space.improve(states, values).act(states)) == 0


def test_a_tree_of_depth_one_is_the_best_cut():
    for seed in range(20):
        states, values = problem(seed, n=30)
        tree, cut = Trees(max_depth=1).improve(states, values), Thresholds().improve(states, values)
        losses = [gap_weighted_loss(values, policy.act(states)) for policy in (tree, cut)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-12)


def test_deeper_trees_lose_less():
    states, values = problem(n=1000)
    losses = [gap_weighted_loss(values, Trees(max_depth=k).improve(states, values).act(states)) for k in range(1, 6)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 2 * losses[-1]


def test_limits_are_kept():
    states, values = problem()
    assert 3 <= Trees(max_leaf_nodes=5).improve(states, values).n_leaves <= 5
    assert Trees(max_depth=2).improve(states, values).n_leaves <= 4
    assert Trees(min_samples_leaf=40).improve(states, values).tree.counts.min() >= 40


def test_no_split_leads_to_the_same_decision_on_both_sides():
    for seed in range(10):
        states, values = problem(seed, missing=seed % 2 == 1)
        policy = Trees(max_depth=6).improve(states, values)

        def decisions(node):
            if "action" in node:
                return {node["action"]}
            both = decisions(node["then"]) | decisions(node["else"])
            assert len(both) > 1
            return both

        decisions(policy.to_dict())
        assert policy.tree.counts.sum() == 400
        lost = values.max(axis=1, keepdims=True) - values
        for leaf in range(policy.n_leaves):
            np.testing.assert_allclose(policy.tree.sums[leaf], lost[policy.tree.leaf_of_row == leaf].sum(axis=0))
        np.testing.assert_array_equal(policy.ranking[policy.tree.leaf_of_row, 0], policy.act(states))


def follow(rules, state, names):
    """Read the printed rules as a person would."""
    lines = rules.splitlines()
    depth, i = 0, 0
    while True:
        line = lines[i]
        assert line.startswith("  " * depth)
        text = line.strip()
        if not text.startswith("if "):
            return text.split("  (")[0]
        x = state[names.index(text.split()[1])]
        if text.endswith("is known:"):
            yes = not np.isnan(x)
        else:
            cut = float(re.search(r"<= (\S+?)(:| or)", text)[1])
            yes = text.endswith("or is missing:") if np.isnan(x) else x <= cut
        depth += 1
        i += 1
        if not yes:
            i = next(k for k in range(i, len(lines)) if lines[k] == "  " * (depth - 1) + "else:") + 1


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing values"])
@pytest.mark.parametrize("seed", range(3))
def test_the_rules_agree_with_the_policy_on_every_row(seed, missing):
    states, values = problem(seed, missing=missing)
    names, labels = ["age", "dose", "load"], ["none", "half", "full"]
    policy = Trees(max_depth=5).improve(states, values)
    policy = described(policy, Schema.of(3, 3, names, labels), Training(0.9, 1, None, {}))
    rules = policy.rules()
    for state, action in zip(states, policy.act(states), strict=True):
        assert follow(rules, state, names) == labels[action]
    fresh = np.random.default_rng(seed).normal(size=(200, 3))
    for state, action in zip(fresh, policy.act(fresh), strict=True):
        assert follow(rules, state, names) == labels[action]


def test_leaves_state_their_support_and_regret():
    states, values = problem()
    policy = Trees(max_depth=2).improve(states, values)
    found = re.findall(r"\((\d+) states?, regret (\S+)\)", policy.rules())
    assert sum(int(n) for n, _ in found) == 400
    total = gap_weighted_loss(values, policy.act(states)) * 400
    assert sum(float(r) for _, r in found) == pytest.approx(total, rel=1e-3)


def test_dictionary_drawing_and_importances():
    states, values = problem()
    policy = Trees(max_depth=2).improve(states, values)
    tree = policy.to_dict()
    assert set(tree) == {"feature", "at_most", "missing", "then", "else"}
    dot = policy.to_dot()
    assert dot.count("->") == 2 * (policy.n_leaves - 1)
    assert dot.startswith("digraph")
    importances = policy.importances()
    assert importances.sum() == pytest.approx(1)
    assert importances[2] < 0.05, "the third feature says nothing"


def test_the_drawing_has_a_box_a_node_and_the_words_of_the_table(tmp_path):
    states, values = problem()
    policy = Trees(max_depth=3).improve(states, values)
    policy = described(
        policy, Schema.of(3, 3, ["a$ge", "dose", "load"], ["none", "ha$lf", "full"]), Training(0.9, 1, None, {})
    )
    figure = policy.plot()
    texts = [text.get_text() for text in figure.axes[0].texts]
    boxes = [text for text in texts if text not in ("yes", "no")]
    assert len(boxes) == 2 * policy.n_leaves - 1
    assert sum("state" in text for text in boxes) == policy.n_leaves
    assert any(text.startswith("a$ge <= ") for text in boxes)
    figure.savefig(tmp_path / "tree.png")
    assert (tmp_path / "tree.png").stat().st_size > 5_000


def test_hostile_names_stay_inside_their_quotes():
    policy = Trees(max_depth=1).improve([[0.0], [1.0]], [[1.0, 0.0], [0.0, 1.0]])
    schema = Schema.of(1, 2, ['a" ]; evil [label="x'], ["b\\", "c\nd"])
    dot = described(policy, schema, Training(0.9, 1, None, {})).to_dot()
    assert dot.count("\n") == 7
    assert re.sub(r"\\.", "", dot).count('"') % 2 == 0


def test_forests_vote():
    states, values = problem()
    policy = Forests(n_trees=7, min_samples_split=30).improve(states, values)
    votes = policy.votes(states)
    np.testing.assert_allclose(votes * 7, np.round(votes * 7))
    np.testing.assert_allclose(votes.sum(axis=1), 1)
    np.testing.assert_array_equal(policy.act(states), votes.argmax(axis=1))
    assert (votes.max(axis=1) < 1).any(), "the trees differ"


def test_threads_do_not_matter():
    states, values = problem()
    one, two = (Forests(n_jobs=jobs).improve(states, values).votes(states) for jobs in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("space", [GROWN_OUT, Forests(n_trees=3)], ids=repr)
def test_weights_are_copies(space):
    rng = np.random.default_rng(0)
    states, values = rng.normal(size=(40, 2)), rng.integers(0, 4, size=(40, 3)).astype(float)
    weights = rng.integers(0, 3, size=40)
    weighted = space.improve(states, values, weights=weights).act(states)
    copied = space.improve(np.repeat(states, weights, axis=0), np.repeat(values, weights, axis=0)).act(states)
    kept = weights > 0
    losses = [gap_weighted_loss(values[kept], actions[kept], weights[kept]) for actions in (weighted, copied)]
    assert losses == [0, 0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Trees(max_depth=0), "max_depth"),
        (lambda: Trees(max_leaf_nodes=1), "max_leaf_nodes"),
        (lambda: Trees(min_samples_split=1), "min_samples_split"),
        (lambda: Forests(n_trees=0), "n_trees"),
        (lambda: Forests(n_jobs=0), "n_jobs"),
        (lambda: Forests(refresh_every=0), "refresh_every"),
        (lambda: Forests(projections=-1), "projections"),
        (lambda: Trees(max_features=1).improve([0.0, 1.0], [[0.0, 1.0]] * 2), "two dimensions"),
        (lambda: Forests(max_features="all").improve([[0.0]], [[0.0, 1.0]]), "max_features must be"),
        (lambda: Trees().improve([[0.0]], [[0.0, 1.0]]).act(np.zeros((1, 2))), "must have 1 columns"),
        (lambda: Trees().improve([[np.inf]], [[0.0, 1.0]]), "must not be infinite"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


def test_a_policy_speaks_the_words_of_its_batch():
    batch = Transitions(
        states=[[1.0], [2.0], [3.0], [4.0]],
        actions=[0, 1, 0, 1],
        rewards=[1.0, 0.0, 0.0, 1.0],
        next_states=[[1.0]] * 4,
        terminated=[True] * 4,
        feature_names=["load"],
        action_labels=["wait", "treat"],
    )
    from capi.evaluators import FittedQ

    learner = CAPI(FittedQ(n_trees=200, min_samples_split=2), Trees(max_depth=1), discount=0.0, n_iterations=1)
    assert learner.fit(batch).policy_.rules().startswith("if load <= 2.5:\n  wait")
    assert learner.predict([[1.0], [4.0]]).tolist() == ["wait", "treat"]


def masked_problem(seed=0):
    states, values = problem(seed)
    rng = np.random.default_rng(seed)
    allowed = rng.random(values.shape) < 0.6
    allowed[np.arange(400), rng.integers(3, size=400)] = True
    return states, values, allowed


@pytest.mark.parametrize("space", [Trees(max_depth=4), Forests(n_trees=5, min_samples_split=20)], ids=repr)
def test_masks_are_honoured(space):
    states, values, allowed = masked_problem()
    policy = space.improve(states, values, allowed=allowed)
    actions = policy.act(states, allowed)
    assert allowed[np.arange(400), actions].all()
    worst = np.where(allowed, values, np.inf).argmin(axis=1)
    assert gap_weighted_loss(values, actions, None, allowed) < 0.3 * gap_weighted_loss(values, worst, None, allowed)
    with pytest.raises(InvalidInputError, match="pass allowed"):
        policy.act(states)


@pytest.mark.parametrize("at_once", [1, 2_000, 2**20])
def test_each_tree_votes_for_its_best_allowed_action(monkeypatch, at_once):
    """The votes of a forest are those of its trees one by one, however many are counted at once."""
    monkeypatch.setattr(forests, "VOTES_AT_ONCE", at_once)
    states, values = problem()
    policy = Forests(n_trees=5, min_samples_split=20).improve(states, values)
    allowed = np.random.default_rng(1).random(values.shape) < 0.5
    allowed[np.arange(len(states)), np.arange(len(states)) % 3] = True
    leaves = policy.forest.leaves(states)
    expected = np.zeros(values.shape)
    for tree in leaves:
        for i, leaf in enumerate(tree):
            order = np.argsort(policy.forest.sums[leaf], kind="stable")
            expected[i, next(a for a in order if allowed[i, a])] += 1 / len(leaves)
    np.testing.assert_allclose(policy.votes(states, allowed), expected)


def test_a_masked_tree_states_its_fallback_and_counts_exactly_what_it_loses():
    states, values, allowed = masked_problem()
    policy = Trees(max_depth=2).improve(states, values, allowed=allowed)
    assert ", else " in policy.rules()
    found = re.findall(r"regret (\S+)\)", policy.rules())
    total = gap_weighted_loss(values, policy.act(states, allowed), None, allowed) * 400
    assert sum(map(float, found)) == pytest.approx(total, rel=1e-3)


def test_among_masks_trees_sum_the_mean_of_what_is_allowed():
    states, values, allowed = [[0.0], [1.0]], [[1.0, 3.0, 9.0], [5.0, 1.0, 2.0]], [[True, True, False], [True] * 3]
    problem = ImprovementProblem.of(states, values, allowed=allowed, weights=[2.0, 1.0])
    np.testing.assert_array_equal(problem.counted.filled_losses, [[4.0, 0.0, 2.0], [0.0, 4.0, 3.0]])


def test_masks_that_allow_everything_are_no_masks():
    states, values = problem()
    plain = Trees(max_depth=2).improve(states, values)
    masked = Trees(max_depth=2).improve(states, values, allowed=np.ones(values.shape, dtype=bool))
    assert plain.rules() == masked.rules()
    np.testing.assert_array_equal(masked.act(states), plain.act(states))


def test_kept_trees_choose_their_actions_anew():
    states, values = problem()
    states.flags.writeable = False
    space = Forests(n_trees=4, min_samples_split=40, refresh_every=3)
    policy, structures = None, []
    for k in range(5):
        now = np.roll(values, k, axis=1)
        policy = space.improve(states, now, previous=policy, rng=np.random.default_rng(k))
        structures.append(tuple(tree.nodes.tobytes() for tree in policy.forest.trees))
        lost = now.max(axis=1, keepdims=True) - now
        for tree in policy.forest.trees:
            expected = np.stack([np.bincount(tree.leaf_of_row, lost[:, a]) for a in range(3)], axis=1)
            np.testing.assert_allclose(tree.sums, expected, atol=1e-12)
    assert [structures[k] == structures[k + 1] for k in range(4)] == [True, True, False, True]


def oblique(n, seed):
    """Return states of four columns and values: the first action is better where a sum of scaled columns is positive."""
    x = np.random.default_rng(seed).normal(size=(n, 4)) * [1, 100, 0.01, 1]
    return x, np.column_stack([x[:, 0] + x[:, 1] / 100 - 100 * x[:, 2], np.zeros(n)])


def test_combinations_lower_the_loss_of_oblique_decisions_in_new_states():
    states, values = oblique(400, 0)
    test, of_test = oblique(4000, 1)
    plain, combined = (
        gap_weighted_loss(of_test, Forests(10, projections=k).improve(states, values).act(test)) for k in (0, 30)
    )
    assert combined < 0.6 * plain


def test_forests_with_combinations_do_not_depend_on_threads_and_take_missing_values():
    states, values = oblique(300, 0)
    states[np.random.default_rng(1).random(states.shape) < 0.2] = np.nan
    one, two = (Forests(7, projections=5, n_jobs=jobs).improve(states, values) for jobs in (1, 2))
    np.testing.assert_array_equal(one.votes(states), two.votes(states))
    assert one.n_inputs == 9
    assert np.mean(one.act(states) == values.argmax(axis=1)) > 0.9


def test_forests_without_combinations_draw_nothing():
    states, values = problem()
    rngs = [np.random.default_rng(3) for _ in range(2)]
    first = Forests(3).improve(states, values, rng=rngs[0])
    same = Forests(3, projections=4).improve(states[:, :1], values, rng=rngs[1])
    assert first.forest.projections is None
    assert first.n_inputs == states.shape[1]
    assert same.forest.projections is None, "a single column has no combinations"
    assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


def test_kept_trees_keep_their_combinations():
    states, values = oblique(200, 0)
    states.flags.writeable = False
    space = Forests(3, projections=4, refresh_every=2, max_features=0.5)
    first = space.improve(states, values)
    second = space.improve(states, -values, previous=first)
    assert second.forest.projections is first.forest.projections
    assert second.age == 2
    np.testing.assert_array_equal(second.votes(states), second.votes(states.copy()))
    assert np.mean(second.act(states) != first.act(states)) > 0.9
    assert space.improve(states, values, previous=second, rng=np.random.default_rng(1)).age == 1


def test_decisions_with_combinations_are_made_in_blocks(monkeypatch):
    states, values = oblique(100, 0)
    policy = Forests(3, projections=6).improve(states, values)
    expected = policy.act(states)
    monkeypatch.setattr(decisions, "NUMBERS_AT_ONCE", 30)  # blocks of three rows
    np.testing.assert_array_equal(policy.act(states), expected)


def test_other_states_or_settings_grow_trees_of_their_own():
    states, values = problem()
    states.flags.writeable = False
    space = Forests(n_trees=2, refresh_every=9)
    first = space.improve(states, values)
    assert space.improve(states, values, previous=first).age == 2
    assert space.improve(states.copy(), values, previous=first).age == 1
    assert Forests(n_trees=3, refresh_every=9).improve(states, values, previous=first).age == 1
    assert space.improve(states, values, previous=first, weights=np.arange(400.0)).age == 1, "one state has no weight"


@pytest.mark.parametrize("masked", [False, True])
def test_remembered_leaves_are_those_of_the_trees(masked):
    """Points that cannot change are sent down once; the votes follow the leaves' actions from round to round."""
    rng = np.random.default_rng(0)
    states, points = rng.normal(size=(300, 3)), rng.normal(size=(200, 3))
    for array in (states, points):
        array.flags.writeable = False
    allowed = rng.random((300, 3)) < 0.7 if masked else None
    if masked:
        allowed[:, 1] = True
    space, policy = Forests(5, min_samples_split=5, refresh_every=3), None
    ages = []
    for _ in range(4):
        policy = space.improve(states, rng.normal(size=(300, 3)), previous=policy, allowed=allowed, rng=rng)
        ages.append(policy.age)
        for x in (states, points):
            masks = None if not masked else np.tile([True, True, False], (len(x), 1))
            np.testing.assert_array_equal(policy.votes(x, masks), policy.votes(x.copy(), masks))
    assert ages == [1, 2, 3, 1]
    assert len(policy.known) == 2


def test_trees_are_not_kept_for_other_rows_or_for_states_that_changed():
    rng = np.random.default_rng(0)
    states, values = rng.normal(size=(100, 2)), rng.normal(size=(100, 2))
    space = Forests(3, refresh_every=9)
    first = space.improve(states, values)
    assert space.improve(states, values, previous=first).age == 1  # somebody could have changed them
    states.flags.writeable = False
    first = space.improve(states, values, weights=np.arange(100) % 2.0)
    assert space.improve(states, values, previous=first, weights=np.arange(100) % 2.0).age == 2
    assert space.improve(states, values, previous=first, weights=(1 + np.arange(100)) % 2.0).age == 1
    assert space.improve(states, values, previous=first).age == 1


def test_a_greedy_tree_says_when_the_best_one_is_affordable():
    states, values = problem()
    policy = Trees(max_depth=2).improve(states, values)
    assert policy.optimal_is_affordable
    assert (
        policy.rules()
        .splitlines()[-1]
        .startswith("(grown greedily; OptimalTrees(max_depth=2) finds the best tree in about 0.1 s)")
    )
    lossless = Trees(max_depth=4).improve(states[:5], values[:5])
    quiet = [
        lossless,
        Trees(max_depth=5).improve(states, values),
        Trees(max_depth=2, max_leaf_nodes=3).improve(states, values),
        Trees(max_depth=2, max_features=1).improve(states, values),
    ]
    for other in quiet:
        assert not other.optimal_is_affordable
        assert "OptimalTrees" not in other.rules()


def test_the_estimate_grows_with_everything():
    base = {"n_rows": 1000, "n_bins": np.full(5, 20), "n_actions": 3, "depth": 2}
    larger = {"n_rows": 10_000, "n_bins": np.full(9, 60), "n_actions": 9, "depth": 3}
    for name, value in larger.items():
        assert seconds_for_optimal(**{**base, name: value}) > 1.2 * seconds_for_optimal(**base), name
    assert seconds_for_optimal(60_000, np.full(6, 256), 4, 4) > 100


@pytest.mark.parametrize("space", [Trees(max_depth=1), OptimalTrees(1)], ids=["greedy", "optimal"])
def test_neighbouring_numbers_and_numbers_far_apart_are_told_apart(space):
    """Between neighbours there is no cut to round, and the distance of the others overflows."""
    values = np.array([[1.0, 0.0], [0.0, 1.0]])
    rng = np.random.default_rng(0)
    pairs = [(x, np.nextafter(x, np.inf)) for x in rng.random(50) * 10.0 ** rng.integers(-5, 6, size=50)]
    for low, high in [*pairs, (-1e308, 1.5e308), (0.0, 5e-324)]:
        states = np.array([[low], [high]])
        np.testing.assert_array_equal(space.improve(states, values).act(states), [0, 1], err_msg=f"{low!r} {high!r}")


# --- sizes that people can read


@pytest.mark.parametrize("space", [Trees(), OptimalTrees()], ids=["Trees", "OptimalTrees"])
def test_default_trees_have_eight_leaves_of_five_states_at_most(space):
    """Two states with a huge gap would get leaves of their own."""
    rng = np.random.default_rng(0)
    states, values = rng.normal(size=(600, 2)).round(1), rng.normal(size=(600, 2))
    states[:2], values[:2] = [[9.0, 9.0], [-9.0, 9.0]], [[500.0, 0.0], [0.0, 500.0]]
    policy = space.improve(states, values)
    assert policy.n_leaves <= 8
    assert policy.tree.counts.min() >= 5
    assert replace(space, min_samples_leaf=1).improve(states, values).tree.counts.min() == 1
    explicit = replace(space, min_samples_leaf=5).improve(states, values)
    np.testing.assert_array_equal(policy.tree.nodes, explicit.tree.nodes)


def test_leaves_of_small_samples_may_be_small():
    assert [leaf_size(None, n) for n in (1, 199, 200, 499, 500, 10**6)] == [1, 1, 2, 4, 5, 5]
    assert leaf_size(40, 10) == 40


def large_tree():
    schema = Schema(("age", "dose", "noise"), ("wait", "treat", "stop"))
    states, values = problem(n=1000)
    return described(GROWN_OUT.improve(states, values), schema, Training(0.9, 1, 1000, {}))


def test_rules_of_a_large_tree_are_a_summary():
    policy = large_tree()
    assert policy.n_leaves > 64
    head, shares, first, *lines, last = policy.rules().splitlines()
    assert re.fullmatch(
        rf"A decision tree with {policy.n_leaves} leaves and \d+ levels of splits, too large to read\.", head
    )
    assert re.match(r"Shares in the reduction of regret: (age|dose) \d+ %, ", shares)
    assert first == "Its first 3 levels:"
    assert last == "The whole tree: policy.rules(full=True), or capi export RUN --to text."
    below = [line for line in lines if " state" in line]
    assert len(below) == 8
    assert sum(int(re.search(r"([\d,]+) states?", line)[1].replace(",", "")) for line in below) == 1000
    leaves = [re.search(r"\.\.\. (\d+) leaves, (wait|treat|stop) in \d+ % of", line) for line in below]
    assert sum(int(found[1]) if found else 1 for found in leaves) == policy.n_leaves


def test_the_whole_of_a_large_tree_can_be_had():
    policy = large_tree()
    whole = policy.rules(full=True)
    assert len(re.findall(r"\(\d+ states?, regret ", whole)) == policy.n_leaves
    assert export_policy(policy, "text") == whole
    small = Trees(max_depth=6).improve(*problem())
    assert small.n_leaves <= 64
    assert small.rules() == small.rules(full=True)


def chain(n_levels):
    """A tree whose inner nodes have a leaf on the left and the next inner node on the right."""
    nodes = np.zeros(2 * n_levels + 1, dtype=NODE)
    nodes["left"][0] = 1
    for level in range(n_levels):
        nodes["left"][2 * level + 1] = -1 - level
        nodes["left"][2 * level + 2] = 2 * level + 3 if level < n_levels - 1 else -1 - n_levels
    counts = np.ones(n_levels + 1, dtype=np.int64)
    sums = np.eye(2)[np.arange(n_levels + 1) % 2]
    return Tree(nodes, np.zeros(len(nodes)), sums, counts.astype(float), counts, np.zeros(0, dtype=np.int32))


def test_very_deep_trees_are_summarised_too():
    deep = chain(5000)
    policy = TreePolicy(deep, 2, 1, np.zeros(1, dtype=bool), np.zeros(5001))
    assert "with 5,001 leaves and 5,000 levels of splits" in policy.rules()
    outline = Outline.of(deep, policy.ranking[:, 0], 2)
    assert outline.states[0].tolist() == [2500, 2501]
    assert regret_reductions(deep, 1).tolist() == [2500]
    assert policy.importances().tolist() == [1]
