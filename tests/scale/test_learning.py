"""Learning from partitions: the same bytes for every partitioning, all rows in every average, and errors for what is no sum."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from capi import CAPI, PartitionedTransitions, Support, Transitions
from capi._utils.array_cache import Remembered
from capi.errors import InvalidInputError
from capi.evaluators import LSTDQ, BellmanResidual, FittedQ, KernelFittedQ, over_partitions
from capi.evaluators._batches import rows_of_actions
from capi.evaluators.averager import Averager
from capi.features.bases import OneHot, Polynomial
from capi.learning import partitioned
from capi.learning.episode_scores import EpisodeScores
from capi.learning.iteration import next_states
from capi.policies import Constant, Greedy
from capi.policy_spaces import Classifier, Forests, Linear, Neighbors, OptimalTrees, Thresholds, Trees, Unrestricted
from capi.trees.cells import Cells
from scale.conftest import log

LEARNERS = {
    "defaults": {"space": Trees(max_depth=2), "n_iterations": 2},
    "sweeps": {"evaluator": FittedQ(n_trees=5, n_sweeps=5, min_samples_split=20), "space": OptimalTrees(max_depth=2), "n_iterations": 4},
    "batch": {"evaluator": FittedQ(n_trees=5, n_sweeps=3, actions="input"), "space": Trees(max_depth=2), "state_weights": "batch", "n_iterations": 3},
    "forests": {"evaluator": FittedQ(n_trees=5, n_sweeps=3), "space": Forests(n_trees=3), "state_weights": "batch", "n_iterations": 2},
    "thresholds": {"evaluator": FittedQ(n_trees=5), "space": Thresholds(), "n_iterations": 2},
    "from the log": {"evaluator": FittedQ(n_trees=3, min_samples_split=20), "space": Trees(max_depth=2), "n_iterations": 10},
}  # fmt: skip


def fitted(part, settings, seed=0):
    return CAPI(discount=0.9, random_state=seed, **settings).fit(part)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_same_bytes_for_1_2_and_8_partitions_and_any_threads(batch, name):
    found = []
    for size, threads in ((10**6, 1), (len(batch) // 2, 2), (len(batch) // 8, 3)):
        part = PartitionedTransitions.of(batch, size, sample_rows=600, n_jobs=threads)
        learner = fitted(part, LEARNERS[name])
        found.append((learner.q_.values(batch.states).tobytes(), learner.policy_.act(batch.states).tobytes()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("actions", ["separate", "input"])
def test_values_are_those_of_the_averager_of_all_rows(weighted, actions):
    """The slow twin: the model of all rows in memory, with the same trees."""
    batch = log(60, weights=np.random.default_rng(1).integers(1, 4, size=600).astype(float) if weighted else None)
    part = PartitionedTransitions.of(batch, 100, sample_rows=200)
    survey = part.survey(random_state=0)
    evaluator = over_partitions.OverPartitions(
        FittedQ(n_trees=4, n_sweeps=None, min_samples_split=30, actions=actions), part, survey
    )
    policy = Greedy(FittedQ(n_trees=3).evaluate(Constant(0, 3), batch, discount=0.9))
    q = evaluator.evaluate(policy, survey.sample, discount=0.9)
    means = np.concatenate([model.forest.means[:, 0] for model in q.models])
    weights = np.ones(len(batch)) if batch.weights is None else batch.weights
    steps = 0.9 * ~batch.terminated
    targets = batch.rewards + steps * q.expected(batch.next_states, policy.act(batch.next_states))
    at = 0
    for a, model in enumerate(q.models):
        inputs = batch.states if actions == "separate" else np.column_stack([batch.states, batch.actions])
        rows = batch.actions == a if actions == "separate" else np.ones(len(batch), dtype=bool)
        for leaves in model.forest.leaves(inputs[rows]):
            sums = np.bincount(leaves, weights=(weights * targets)[rows])
            total = np.bincount(leaves, weights=weights[rows])
            mine = np.unique(leaves)
            np.testing.assert_allclose(means[at + mine], sums[mine] / total[mine], rtol=1e-5, atol=1e-5)
        at += model.forest.leaf_starts[-1]


def test_sweeps_through_new_trees_start_from_the_values_on_the_old_ones(batch):
    part = PartitionedTransitions.of(batch, 500, sample_rows=600)
    survey = part.survey(random_state=0)
    settings = {"n_trees": 4, "min_samples_split": 10, "refresh_every": 1}
    one = over_partitions.OverPartitions(FittedQ(**settings), part, survey)
    first = one.evaluate(Constant(1, 3), survey.sample, discount=0.9)
    second = one.evaluate(Constant(1, 3), survey.sample, discount=0.9, previous=first)
    targets = batch.rewards + 0.9 * ~batch.terminated * first.of_action(batch.next_states, 1)
    leaves = second.models[2].forest.leaves(batch.states[batch.actions == 2])[0]
    means = np.bincount(leaves, weights=targets[batch.actions == 2]) / np.maximum(np.bincount(leaves), 1)
    np.testing.assert_allclose(second.models[2].forest.means[np.unique(leaves), 0], means[np.unique(leaves)], rtol=1e-6)


@pytest.mark.parametrize("evaluator", [LSTDQ(Polynomial(2)), BellmanResidual(Polynomial(2)), BellmanResidual(Polynomial(2), auxiliary=None), BellmanResidual(Polynomial(1), auxiliary=Polynomial(2))])  # fmt: skip
def test_moments_of_partitions_add_up_to_those_of_all_rows(batch, evaluator):
    policy = Constant(1, 3)
    whole = evaluator.evaluate(policy, batch, discount=0.9).values(batch.states)
    for size in (10**6, 700, 100):
        found = evaluator.evaluate(policy, PartitionedTransitions.of(batch, size), discount=0.9)
        np.testing.assert_allclose(found.values(batch.states), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_sweeps", [None, 2])
def test_rounds_of_linear_values_from_partitions_are_those_of_all_rows(batch, monkeypatch, n_sweeps):
    evaluator, found = LSTDQ(Polynomial(2, scale=None), n_sweeps=n_sweeps), []
    for kept in (2**23, 0):  # features are cached, or computed once per state
        monkeypatch.setattr("capi.features.tables.MOST_KEPT", kept)
        for data in (batch, PartitionedTransitions.of(batch, 300, sample_rows=600)):
            learner = fitted(data, {"evaluator": evaluator, "space": Unrestricted(), "n_iterations": 3, "keep": "last"})
            found.append(learner.q_.values(batch.states))
    for values in found[1:]:
        np.testing.assert_allclose(values, found[0], rtol=1e-9, atol=1e-9)


def test_sparse_features_stay_sparse():
    rng = np.random.default_rng(0)
    x = rng.integers(20, size=(400, 1)).astype(float)
    batch = Transitions(x, rng.integers(2, size=400), rng.normal(size=400), x[::-1], np.zeros(400, dtype=bool))
    whole = LSTDQ(OneHot(20)).evaluate(Constant(1, 2), batch, discount=0.9).values(x)
    found = LSTDQ(OneHot(20)).evaluate(Constant(1, 2), PartitionedTransitions.of(batch, 60), discount=0.9).values(x)
    np.testing.assert_allclose(found, whole, rtol=1e-9, atol=1e-9)


def test_the_last_tree_takes_the_actions_that_lose_least_on_all_rows(batch, monkeypatch):
    monkeypatch.setattr("capi.data.survey.MOST_DISTINCT", 100)
    part = PartitionedTransitions.of(batch, 400, sample_rows=150)
    learner = fitted(part, LEARNERS["batch"] | {"keep": "last"})
    values = learner.q_.values(batch.states)
    regrets = values.max(axis=1)[:, None] - values
    tree = learner.policy_.tree
    leaves = learner.policy_._forest.leaves(batch.states)[0]
    for leaf in range(len(tree.sums)):
        np.testing.assert_allclose(tree.sums[leaf], regrets[leaves == leaf].sum(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(tree.counts, np.bincount(leaves))
    loss = regrets[np.arange(len(batch)), learner.policy_.act(batch.states)].mean()
    assert learner.history_[-1]["loss_on_all_rows"] == pytest.approx(loss)
    assert learner.policy_.training.n_rows == len(batch)


def test_an_earlier_tree_that_is_kept_stays_as_it_was_scored(batch, monkeypatch):
    """Its own Q would improve it once more."""
    monkeypatch.setattr("capi.data.survey.MOST_DISTINCT", 100)
    trees = []

    def noted(_, new, **__):
        trees.append(new)
        return new

    returns = np.array([1.0, 2.0, 0.0])
    given = EpisodeScores(returns, returns, np.ones(3, dtype=bool))
    monkeypatch.setattr("capi.learning.keeping.score_in_episodes", lambda *_: given)
    part = PartitionedTransitions.of(batch, 400, sample_rows=150)
    learner = fitted(part, LEARNERS["batch"] | {"update": noted, "keep": "best"})
    assert [row.get("kept") for row in learner.history_] == [None, 1.0, None]
    assert learner.policy_.tree is trees[1].tree
    assert learner.policy_.training.n_iterations == 2
    assert "loss_on_all_rows" not in learner.history_[-1]


def test_with_few_distinct_states_improvement_uses_all_rows():
    whole = log(200)
    coarse = Transitions(
        whole.states.round(0).clip(-1, 1), whole.actions, whole.rewards, whole.next_states.round(0).clip(-1, 1), whole.terminated
    )  # fmt: skip
    settings = LEARNERS["batch"] | {"keep": "last"}
    learner = fitted(PartitionedTransitions.of(coarse, 300, sample_rows=200), settings)
    values = learner.q_.values(coarse.states)
    best = settings["space"].improve(coarse.states, values)
    assert (learner.policy_.act(coarse.states) == best.act(coarse.states)).all()


def five_states(n=2000):
    """Return one-step episodes in five states, of which the upper two want the other action."""
    rng = np.random.default_rng(0)
    x = (2 * rng.normal(size=(n, 1))).round().clip(-2, 2)
    actions = rng.integers(2, size=n)
    return Transitions(x, actions, (actions == (x[:, 0] >= 1)).astype(float), x, np.ones(n, dtype=bool))


@pytest.mark.parametrize("space", [None, OptimalTrees(max_depth=2, min_samples_leaf=5), OptimalTrees(max_depth=2), Trees(max_depth=2), Trees(max_depth=2, min_samples_leaf=300), Trees(max_depth=2, min_samples_split=900), Forests(n_trees=3, min_samples_leaf=50)])  # fmt: skip
def test_leaf_sizes_count_rows_also_where_states_are_merged(space):
    batch = five_states()
    found = [
        fitted(part, {"evaluator": FittedQ(n_trees=5), "space": space, "state_weights": "batch", "n_iterations": 2})
        for part in (batch, PartitionedTransitions.of(batch, 300, sample_rows=300))
    ]
    states = np.arange(-2.0, 3.0)[:, None]
    memory, parts = (learner.policy_.act(states).tolist() for learner in found)
    assert memory == parts
    assert memory == [0, 0, 0, 1, 1]
    if not isinstance(space, Forests):
        counts = [learner.policy_.tree.counts.tolist() for learner in found]
        assert counts[0] == counts[1]
        assert [learner.policy_.n_leaves for learner in found] == [2, 2]
    assert found[1].history_[-1]["loss_on_all_rows"] == pytest.approx(0.0)
    assert [learner.history_[-1].get("kept") for learner in found] == [found[0].history_[-1].get("kept")] * 2


def test_states_that_would_stand_for_too_many_rows_are_not_merged(monkeypatch):
    batch = five_states()
    part = PartitionedTransitions.of(batch, 300, sample_rows=300)
    states, counts = part.survey(random_state=0).merged
    rows, weights = partitioned.as_rows(states, counts, Trees(min_samples_leaf=400))
    assert len(rows) == np.minimum(counts, 400).sum()
    assert weights.sum() == pytest.approx(len(batch))
    assert partitioned.as_rows(states, counts, Classifier(DecisionTreeClassifier())) is None
    assert partitioned.as_rows(states, counts, lambda k, policy, rng: Trees()) is None
    monkeypatch.setattr(partitioned, "MOST_COPIES", 800)
    assert partitioned.as_rows(states, counts, Trees(min_samples_leaf=400)) is None
    loop = CAPI(FittedQ(), Trees(), 0.9, state_weights="batch").loop()
    assert partitioned.localised(loop, part, None).merged is not None
    assert partitioned.localised(replace(loop, sample_of=next_states), part, None).merged is None
    learner = fitted(part, {"evaluator": FittedQ(n_trees=5), "space": Trees(min_samples_leaf=400), "state_weights": "batch", "n_iterations": 1})  # fmt: skip
    assert learner.policy_.tree.counts.sum() == len(batch)  # rescored on all rows


def test_a_small_batch_is_learned_from_as_a_whole(batch):
    part = PartitionedTransitions.of(batch, 1000)
    learner = fitted(part, LEARNERS["defaults"])
    sample = part.survey(random_state=np.random.SeedSequence(0)).sample
    assert len(sample) == len(batch)
    whole = fitted(sample, LEARNERS["defaults"])
    assert learner.q_.values(batch.states).tobytes() == whole.q_.values(batch.states).tobytes()


def test_the_loop_goes_on_after_a_round(batch):
    part = PartitionedTransitions.of(batch, 900, sample_rows=500)
    learner = CAPI(discount=0.9, random_state=0, **LEARNERS["sweeps"])
    rounds = list(learner.iterate(part))
    again = list(learner.iterate(part, after=rounds[1]))
    assert again[-1].q.values(batch.states).tobytes() == rounds[-1].q.values(batch.states).tobytes()


def test_what_is_no_sum_over_rows_says_so(batch):
    part = PartitionedTransitions.of(batch, 1000, sample_rows=500)
    for settings, said in (
        ({"evaluator": KernelFittedQ()}, "LSTDQ"),
        ({"space": Neighbors()}, "compares with every row"),
        ({"support": Support(0.1)}, "support cannot"),
        ({"evaluator": lambda k, policy, rng: FittedQ()}, "not a function of the round"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            CAPI(discount=0.9, **{"n_iterations": 1, **settings}).fit(part)
    with pytest.raises(InvalidInputError, match=r"partitioned\. FittedQ"):
        FittedQ().evaluate(Constant(0, 3), part, discount=0.9)


def test_learned_policies_are_good(batch):
    for settings in (
        LEARNERS["sweeps"],
        {"evaluator": LSTDQ(Polynomial(1)), "space": Linear(), "n_iterations": 2},
    ):
        learner = fitted(PartitionedTransitions.of(batch, 700, sample_rows=800), settings)
        chosen = learner.policy_.act(batch.states)
        right = np.where(batch.states[:, 0] > 0, 1, 2)
        clear = np.abs(batch.states[:, 0]) > 0.3
        assert (chosen == right)[clear].mean() > 0.9


def test_the_model_of_a_sample_is_an_averager(batch):
    part = PartitionedTransitions.of(batch, 700, sample_rows=800)
    learner = fitted(
        part, {"evaluator": FittedQ(n_trees=4, n_sweeps=2), "space": Trees(max_depth=1), "n_iterations": 1}
    )
    sample = part.survey(random_state=np.random.SeedSequence(0)).sample
    model = Averager.of(learner.q_, sample, discount=0.9)
    assert np.isfinite(model.value(learner.policy_))
    assert model.occupancy(learner.policy_).min() >= 0


@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_visits_are_those_of_the_model_of_all_rows(weighted):
    """The slow twin: the same trees and all rows in memory."""
    batch = log(60, weights=np.random.default_rng(1).integers(1, 4, size=600).astype(float) if weighted else None)
    policy = Greedy(FittedQ(n_trees=3).evaluate(Constant(0, 3), batch, discount=0.9))
    found = []
    for size in (10**6, 170):
        part = PartitionedTransitions.of(batch, size, sample_rows=200)
        evaluator = over_partitions.OverPartitions(
            FittedQ(n_trees=4, min_samples_split=30), part, part.survey(random_state=0)
        )
        q = evaluator.evaluate(policy, None, discount=0.9)
        model = evaluator.model(q, 0.9)
        found.append((model.value(policy), np.concatenate(model.occupancy(policy)), model.effective_rows(policy)))
    forests, rows = [m.forest for m in q.models], rows_of_actions(batch)
    leaves = [forest.leaves_in_trees(batch.states[mine]) for forest, mine in zip(forests, rows, strict=True)]
    cells = Cells.of(forests, rows, leaves, len(batch))
    whole = Averager._made(batch, 0.9, forests, cells, None, True, 1, [Remembered() for _ in forests])
    assert found[0][0] == found[1][0]
    assert found[0][0] == pytest.approx(whole.value(policy), rel=1e-4)
    np.testing.assert_allclose(found[1][1], whole.occupancy(policy), rtol=0.02, atol=1e-4)
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert found[0][2] == pytest.approx(whole.effective_rows(policy), rel=0.02)
    assert found[0][1] @ batch.rewards == pytest.approx(found[0][0], rel=0.01)


def test_what_stays_with_a_part_takes_four_bytes_per_row_and_tree(batch):
    part = PartitionedTransitions.of(batch, 1000, sample_rows=500)
    survey, n_trees = part.survey(random_state=0), 30
    evaluator = over_partitions.OverPartitions(FittedQ(n_trees=n_trees), part, survey)
    q = evaluator.on_sample.evaluate(Constant(1, 3), survey.sample, discount=0.9)
    structure = over_partitions.Structure.of(q, survey.sample)
    own = over_partitions.own_leaves(part.sources[0], structure)
    ahead = over_partitions.next_leaves(part.sources[0], structure, Constant(1, 3), 0.9)
    n_bytes = (own.__sizeof__() + ahead.__sizeof__()) / len(own.rewards)
    assert n_bytes == pytest.approx(4 * n_trees + 40, rel=0.2)


@pytest.mark.parametrize(("sample_rows", "split", "leaf"), [(4000, 50, 20), (800, 50, 20), (800, 7, 3), (800, 2, 1)])
def test_sizes_of_nodes_count_all_rows(sample_rows, split, leaf):
    """A node with at least 50 of 4,000 rows has about 10 of a sample of 800."""
    x = np.arange(4000, dtype=float)[:, None]
    batch = Transitions(x, np.arange(4000) % 2, x[:, 0], x, np.zeros(4000, dtype=bool))
    part = PartitionedTransitions.of(batch, 1500, sample_rows=sample_rows)
    survey = part.survey(random_state=0)
    share = len(survey.sample) / 4000
    assert share == pytest.approx(sample_rows / 4000, rel=0.1)
    evaluator = FittedQ(min_samples_split=split, min_samples_leaf=leaf)
    found = over_partitions.OverPartitions(evaluator, part, survey).on_sample
    assert found.min_samples_split == max(2, round(split * share))
    assert found.min_samples_leaf == max(round(leaf * share), min(leaf, 5))


def test_no_tree_has_more_leaves_than_two_bytes_can_number(batch, monkeypatch):
    monkeypatch.setattr(over_partitions, "MOST_LEAVES", 32)
    part = PartitionedTransitions.of(batch, 1000, sample_rows=800)
    evaluator = over_partitions.OverPartitions(
        FittedQ(n_trees=5, min_samples_split=2), part, part.survey(random_state=0)
    )
    q = evaluator.evaluate(Constant(1, 3), None, discount=0.9)
    assert max(np.diff(model.forest.leaf_starts).max() for model in q.models) <= 32
