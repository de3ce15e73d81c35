"""Staying where the data are: masks from what was done, policies that make their own, and policies near the log."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from capi import CAPI, Support, Transitions, load_policy
from capi.errors import InvalidInputError, RareActionWarning
from capi.evaluators import FittedQ
from capi.files.exports import export_policy
from capi.finite.mdp import TabularQ
from capi.policies import Constant, Uniform, cloned
from capi.policies.behaviour import ClonedBehaviour
from capi.policy_spaces import Forests, OptimalTrees, Reweighted, Trees, Unrestricted
from capi.policy_spaces.supported import SupportedPolicy, often_enough
from capi.testing import random_batch


def lucky(n=400, seed=0):
    """Return one-step decisions in which action 1 is never taken below 0.5, but for one row with a huge, lucky reward."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.random((n, 1)), axis=0)
    actions = np.where(x[:, 0] > 0.5, rng.integers(2, size=n), 0)
    rewards = np.where(actions == 1, -1.0, 0.0) + rng.normal(scale=0.1, size=n)
    actions[n // 4], rewards[n // 4] = 1, 50.0
    return Transitions(x, actions, rewards, x, np.ones(n, dtype=bool))


def steps(n_episodes=60, length=5, seed=0, **more):
    rng = np.random.default_rng(seed)
    n = n_episodes * length
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    actions = np.where(x[:, 0] > 0, rng.integers(1, 3, size=n), rng.integers(2, size=n))
    ends = np.arange(n) % length == length - 1
    return Transitions(
        x,
        actions,
        x[:, 1] * (actions == 1) + rng.normal(size=n),
        y,
        ends,
        n_actions=3,
        episodes=np.arange(n) // length,
        **more,
    )


def quick(space=None, **options):
    settings = {"discount": 0.9, "n_iterations": 2, "random_state": 0, **options}
    return CAPI(FittedQ(n_trees=5, min_samples_split=20), space or Trees(max_depth=2), **settings)


def test_plain_learning_takes_the_lucky_action_and_support_does_not():
    batch, below = lucky(), np.linspace(0.05, 0.45, 9)[:, None]
    options = {"discount": 0.0, "n_iterations": 1, "random_state": 0}
    plain = CAPI(FittedQ(), Unrestricted(), **options).fit(batch).policy_
    near = CAPI(FittedQ(), Unrestricted(), support=Support(0.2), **options).fit(batch).policy_
    assert (plain.act(below) == 1).any()
    assert (near.act(below) == 0).all()


def test_masks_hold_on_unseen_states():
    batch = steps()
    learner = quick(Unrestricted(), support=Support(0.3, projections=5)).fit(batch)
    x = np.random.default_rng(1).normal(size=(500, 2)) * 3
    allowed = learner.support_.allowed(x)
    assert allowed[np.arange(500), learner.policy_.act(x)].all()
    assert not allowed.all()
    assert ((learner.policy_.probabilities(x) > 0) <= allowed).all()


def test_evaluation_and_improvement_see_the_same_masks():
    batch, support = steps(), Support(0.3, projections=0)
    learner = quick(support=support).fit(batch)
    masked = learner.support_.mask(batch)
    again = quick().fit(masked)
    np.testing.assert_array_equal(
        learner.policy_.policy.act(batch.states, masked.allowed), again.policy_.act(batch.states, masked.allowed)
    )
    assert learner.history_[0]["loss"] == again.history_[0]["loss"]


def test_a_logged_action_is_always_allowed_in_its_own_state():
    batch = steps()
    masked = Support(1.0).fit(batch).mask(batch)
    assert masked.allowed[np.arange(len(batch)), batch.actions].all()
    assert masked.next_allowed[~batch.terminated].any(axis=1).all()


def test_masks_of_the_table_stay():
    allowed = np.ones((300, 3), dtype=bool)
    plain = steps()
    allowed[:, 0] = plain.actions == 0
    batch = plain.with_masks(allowed, np.tile([False, True, True], (300, 1)))
    masked = Support(0.0).fit(batch).mask(batch)
    assert (masked.allowed <= allowed).all()
    assert not masked.next_allowed[~batch.terminated, 0].any()


def test_a_threshold_of_zero_allows_everything_and_gives_the_same_decisions():
    batch = steps()
    plain, near = quick().fit(batch), quick(support=Support(0.0, max_depth=1)).fit(batch)
    np.testing.assert_array_equal(plain.policy_.act(batch.states), near.policy_.act(batch.states))


def test_a_threshold_of_one_repeats_the_most_frequent_action():
    batch = steps()
    learner = quick(support=Support(1.0)).fit(batch)
    clone = learner.support_.behaviour
    np.testing.assert_array_equal(learner.policy_.act(batch.states), clone.act(batch.states))


def test_no_row_is_judged_by_its_own_episode():
    """An action that one episode alone takes is not supported in it, although the episode itself takes it everywhere."""
    x, episodes = np.zeros((100, 1)), np.repeat(np.arange(10), 10)
    actions = np.repeat([1] + [0] * 9, 10)
    batch = Transitions(x, actions, np.zeros(100), x, np.arange(100) % 10 == 9, episodes=episodes)
    masked = Support(0.05, projections=0, n_folds=10).fit(batch).mask(batch)
    assert not masked.next_allowed[:9, 1].any()  # other episodes never take it
    assert masked.next_allowed[10:19, 1].all()  # one in nine rows of the others does


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.1, 0.4, 0.8]))
def test_one_tree_decides_like_policy_and_support_together(seed, depth, support_depth, threshold):
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, size=(120, 2)).astype(float)
    x[rng.random(x.shape) < 0.1] = np.nan
    actions = rng.choice(3, size=120, p=rng.dirichlet(np.ones(3)))
    actions = np.where(np.nan_to_num(x[:, 0]) > 0, actions, rng.integers(3, size=120))
    batch = Transitions(x, actions, rng.normal(size=120), x, np.ones(120, dtype=bool), n_actions=3)
    fitted = Support(threshold, max_depth=support_depth).fit(batch)
    masked = fitted.mask(batch)
    inner = Trees(max_depth=depth, min_samples_leaf=1).improve(x, rng.normal(size=(120, 3)), allowed=masked.allowed)
    policy = fitted.restrict(inner)
    new = rng.integers(-8, 9, size=(400, 2)) / 2
    new[rng.random(new.shape) < 0.3] = np.nan
    np.testing.assert_array_equal(policy.act(new), policy.tree.act(new))


def test_all_exports_carry_a_support_that_is_a_small_tree(tmp_path):
    batch = steps()
    policy = quick(OptimalTrees(max_depth=2), support=Support(0.3, max_depth=2)).fit(batch).policy_
    x = np.random.default_rng(2).normal(size=(50, 2))
    connection = sqlite3.connect(":memory:")
    sql = export_policy(policy, "sql")
    found = [
        connection.execute(f'SELECT {sql} FROM (SELECT ? AS "x0", ? AS "x1")', row).fetchone()[0] for row in x.tolist()
    ]
    connection.close()
    np.testing.assert_array_equal(found, policy.act(x))
    scope = {}
    exec(export_policy(policy, "python"), scope)
    decided = [scope["decide"]({"x0": a, "x1": b}) for a, b in x.tolist()]
    np.testing.assert_array_equal(decided, policy.act(x))
    for text in (
        policy.rules(),
        export_policy(policy, "text"),
        export_policy(policy, "json"),
        export_policy(policy, "dot"),
    ):
        assert "x0" in text


def test_other_supports_are_refused_by_exports_that_cannot_carry_them():
    policy = quick(support=Support(0.3, projections=2)).fit(steps()).policy_
    for to in ("sql", "python", "json", "dot", "onnx"):
        with pytest.raises(InvalidInputError, match="cannot be exported to"):
            export_policy(policy, to)
    assert "at least 0.3 times as often" in export_policy(policy, "text")
    assert "at least 0.3 times as often" in policy.rules()


@pytest.mark.parametrize("support", [Support(0.3), Support(0.3, max_depth=2), Support(0.5, projections=0)])
def test_a_saved_policy_decides_the_same(tmp_path, support):
    batch = steps()
    policy = quick(support=support).fit(batch).policy_
    policy.save(tmp_path / "policy.capi")
    loaded = load_policy(tmp_path / "policy.capi")
    x = np.random.default_rng(3).normal(size=(300, 2)) * 2
    x[::7, 1] = np.nan
    np.testing.assert_array_equal(loaded.act(x), policy.act(x))
    np.testing.assert_array_equal(loaded.supported(x), policy.supported(x))


def test_a_classifier_can_say_what_was_done_but_not_be_saved(tmp_path):
    batch = steps()
    policy = quick(support=Support(0.3, classifier=RandomForestClassifier(10))).fit(batch).policy_
    assert policy.supported(batch.states).shape == (300, 3)
    with pytest.raises(InvalidInputError, match="another library"):
        policy.save(tmp_path / "policy.capi")


def test_the_share_of_decisions_that_leave_the_log():
    batch = steps()
    fitted = Support(0.3).fit(batch)
    never_below = fitted.leaving(Constant(2, 3), batch)
    assert never_below[batch.states[:, 0] < -0.5].mean() > 0.9
    assert never_below[batch.states[:, 0] > 0.5].mean() < 0.1
    assert fitted.leaving(Uniform(3), batch).max() <= 1
    share = 100 * never_below.mean()
    assert fitted.where_leaving(Constant(2, 3), batch).startswith(
        f"The policy takes actions that the log rarely takes in {share:.0f} % of the decisions"
    )


def test_the_same_seed_gives_the_same_masks_for_any_number_of_threads():
    batch = steps()
    one, two = (Support(0.3, n_jobs=n).fit(batch, random_state=1).mask(batch) for n in (1, 2))
    np.testing.assert_array_equal(one.allowed, two.allowed)
    np.testing.assert_array_equal(one.next_allowed, two.next_allowed)


def test_a_users_mask_outranks_the_support():
    policy = SupportedPolicy(Constant(0, 2), Constant(0, 2), 0.5)
    allowed = np.array([[False, True]])
    assert policy.act(np.zeros((1, 1)), allowed) == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.5}, r"threshold must be a number in \[0, 1\]"),
        ({"threshold": None}, "threshold"),
        ({"max_depth": 0}, "max_depth"),
        ({"n_folds": 1}, "n_folds"),
        ({"classifier": LogisticRegression}, "classifier must have the methods"),
        ({"classifier": LogisticRegression(), "max_depth": 2}, "omit it"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        Support(**options)


def test_support_needs_a_fixed_batch():
    with pytest.raises(InvalidInputError, match="fixed batch"):
        quick(support=Support()).fit(lambda k, policy, rng: steps())
    with pytest.raises(InvalidInputError, match="support must be"):
        quick(support=0.3).fit(steps())


def test_degenerate_batches_have_a_support():
    one_action = Transitions(np.zeros((6, 1)), [0] * 6, [0.0] * 6, np.zeros((6, 1)), [True] * 6, n_actions=2)
    assert not Support(0.1).fit(one_action).mask(one_action).allowed[:, 1].any()
    one_episode = Transitions(
        np.zeros((4, 1)), [0, 1, 0, 1], [0.0] * 4, np.zeros((4, 1)), [False] * 3 + [True], episodes=[0] * 4
    )
    assert Support(0.1).fit(one_episode).mask(one_episode).allowed.all()


def test_often_enough_is_relative_to_the_most_frequent_action():
    np.testing.assert_array_equal(often_enough(np.array([[0.6, 0.3, 0.1]]), 0.5), [[True, True, False]])


# -- what was done, as a policy -----------------------------------------------------------------------


def test_a_clone_has_the_frequencies_of_the_log():
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=(4000, 1)).astype(float)
    actions = (rng.random(4000) < np.where(x[:, 0] == 1, 0.8, 0.1)).astype(int)
    batch = Transitions(x, actions, np.zeros(4000), x, np.ones(4000, dtype=bool))
    found = cloned(batch).probabilities(np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(found, [[0.9, 0.1], [0.2, 0.8]], atol=0.03)
    small = cloned(batch, max_depth=1)
    assert len(small.forest.trees) == 1
    np.testing.assert_allclose(small.probabilities(np.array([[0.0], [1.0]])), found, atol=0.03)


def test_a_saved_clone_is_the_same(tmp_path):
    batch = steps()
    for policy in (cloned(batch), replace(cloned(batch), sharpness=2.0)):
        policy.save(tmp_path / "clone.capi")
        loaded = load_policy(tmp_path / "clone.capi")
        assert isinstance(loaded, ClonedBehaviour)
        np.testing.assert_array_equal(loaded.probabilities(batch.states), policy.probabilities(batch.states))


def test_the_clone_of_an_expert_is_sharpened_and_that_of_a_coin_is_not():
    rng = np.random.default_rng(0)
    x = rng.random((400, 2))
    expert = (5 * x[:, 0]).astype(int)
    taken = np.where(rng.random(400) < 0.05, rng.integers(5, size=400), expert)
    batch = Transitions(x, taken, np.zeros(400), x, np.ones(400, dtype=bool), n_actions=5)
    new = rng.random((1000, 2))
    sharp, plain = (
        cloned(batch, calibrated=c).probabilities(new)[np.arange(1000), (5 * new[:, 0]).astype(int)]
        for c in (True, False)
    )
    assert cloned(batch).sharpness > 1
    assert sharp.mean() > plain.mean() + 0.02  # the truth is 0.96
    coin = Transitions(x, rng.integers(2, size=400), np.zeros(400), x, np.ones(400, dtype=bool))
    assert cloned(coin).sharpness == 1


def test_rows_without_weight_do_not_count():
    plain = random_batch()
    arrays = {n: getattr(plain, n) for n in ("states", "actions", "rewards", "next_states", "terminated", "episodes")}
    weights = np.where(plain.actions == 2, 0.0, 1.0)
    weighted = Transitions(**arrays, weights=weights, n_actions=plain.n_actions)
    assert (cloned(weighted).probabilities(plain.states)[:, 2] < 0.01).all()
    assert (cloned(weighted, max_depth=2).probabilities(plain.states)[:, 2] < 0.01).all()


# -- policies near the log ----------------------------------------------------------------------------


class Fixed:
    """Has the same probabilities everywhere."""

    n_actions = 3

    def probabilities(self, states, allowed=None):
        return np.tile([0.5, 0.3, 0.2], (len(states), 1))

    def act(self, states, allowed=None):
        return np.zeros(len(states), dtype=int)


def test_reweighting_maximises_value_minus_divergence():
    rng = np.random.default_rng(0)
    q, x = TabularQ(rng.normal(size=(1, 3))), np.zeros((1, 1))
    policy = Reweighted(Fixed(), temperature=1.5).improve(x, q.table, q=q)
    b = np.array([0.5, 0.3, 0.2])

    def objective(p):
        return p @ q.table[0] - policy.temperature * np.sum(p * np.log(p / b))

    best = objective(policy.probabilities(x)[0])
    assert all(objective(rng.dirichlet(np.ones(3))) <= best + 1e-12 for _ in range(500))


def test_a_high_temperature_is_the_log_and_a_low_one_is_greedy():
    batch = steps()
    done = cloned(batch)
    q = FittedQ(n_trees=5).evaluate(done, batch, discount=0.5)
    values = q.values(batch.states)
    hot, cold = (
        Reweighted(done, t).improve(batch.states, values, q=q).probabilities(batch.states) for t in (1e6, 1e-6)
    )
    np.testing.assert_allclose(hot, done.probabilities(batch.states), atol=1e-4)
    taken = np.where(done.probabilities(batch.states) > 0, values, -np.inf)
    np.testing.assert_array_equal(cold.argmax(axis=1), taken.argmax(axis=1))


def test_capi_clones_the_log_for_reweighted_and_makes_one_step(tmp_path):
    batch = steps()
    learner = CAPI(FittedQ(n_trees=5, min_samples_leaf=5, n_sweeps=None), Reweighted(), discount=0.9, random_state=0)
    learner.fit(batch)
    assert len(learner.history_) == 1
    assert learner.policy_.behaviour.n_actions == 3
    learner.policy_.save(tmp_path / "policy.capi")
    loaded = load_policy(tmp_path / "policy.capi")
    np.testing.assert_array_equal(loaded.probabilities(batch.states), learner.policy_.probabilities(batch.states))
    allowed = np.tile([True, False, True], (len(batch), 1))
    assert (learner.policy_.probabilities(batch.states, allowed)[:, 1] == 0).all()
    assert "more often" in learner.policy_.rules()


def test_reweighted_needs_what_was_done_and_q():
    q = FittedQ(n_trees=2).evaluate(Constant(0, 3), steps(), discount=0.5)
    with pytest.raises(InvalidInputError, match="needs behaviour"):
        Reweighted().improve(np.zeros((1, 2)), np.zeros((1, 3)), q=q)
    with pytest.raises(InvalidInputError, match="needs q"):
        Reweighted(Uniform(3)).improve(np.zeros((1, 2)), np.zeros((1, 3)))
    with pytest.raises(InvalidInputError, match="temperature"):
        Reweighted(temperature=0.0)
    with pytest.raises(InvalidInputError, match="fixed batch"):
        CAPI(FittedQ(), Reweighted(), n_iterations=1).fit(lambda k, policy, rng: steps())


def test_forests_and_masks_work_with_a_support():
    policy = quick(Forests(n_trees=3), support=Support(0.3)).fit(steps()).policy_
    assert policy.act(np.zeros((2, 2))).shape == (2,)


def test_a_policy_too_large_to_print_is_imitated_with_its_support():
    batch = steps()
    policy = quick(Forests(n_trees=3), support=Support(0.3)).fit(batch).policy_
    summary, found, *rules, remark = policy.rules(batch.states, max_depth=2).splitlines()
    assert "3 trees" in summary
    assert found.startswith("This tree makes the same decision in ")
    assert rules
    assert remark == f"({policy.remark[1:-1]})"


# -- what a review found ------------------------------------------------------------------------------


def test_a_saved_clone_tells_nothing_about_fewer_than_five_rows():
    rng = np.random.default_rng(0)
    for weights in (None, rng.random(300)):
        plain = steps()
        names = ("states", "actions", "rewards", "next_states", "terminated", "episodes")
        batch = Transitions(**{n: getattr(plain, n) for n in names}, weights=weights, n_actions=3)
        for policy in (cloned(batch), cloned(batch, max_depth=2)):
            for tree in policy.forest.trees:
                np.testing.assert_allclose(tree.sums.sum(axis=1), 1.0)
                assert (tree.weights == 1).all()
                assert not len(tree.leaf_of_row)


def test_few_rows_of_an_action_count_alike_in_a_leaf():
    x = np.zeros((20, 1))
    one, four = (
        cloned(Transitions(x, np.repeat([0, 1], [20 - n, n]), np.zeros(20), x, np.ones(20, dtype=bool)), max_depth=1)
        for n in (1, 4)
    )
    assert one.probabilities(x[:1])[0, 1] == pytest.approx(1 / 20)
    assert four.probabilities(x[:1])[0, 1] == pytest.approx(1 / 17)
    y = np.zeros((5, 1))
    few = Transitions(y, [0, 1, 1, 1, 2], np.zeros(5), y, np.ones(5, dtype=bool))
    np.testing.assert_allclose(cloned(few, max_depth=1).probabilities(y[:1]), [[1 / 6, 4 / 6, 1 / 6]])


def test_a_rare_action_is_never_drawn_and_does_not_prevent_saving(tmp_path):
    plain = steps()
    actions = np.where(plain.actions == 2, 1, plain.actions)
    actions[:3] = 2
    names = ("states", "rewards", "next_states", "terminated", "episodes")
    batch = Transitions(**{n: getattr(plain, n) for n in names}, actions=actions, n_actions=3)
    learner = CAPI(FittedQ(n_trees=5, min_samples_leaf=5, n_sweeps=None), Reweighted(), discount=0.9, random_state=0)
    with pytest.warns(RareActionWarning):
        policy = learner.fit(batch).policy_
    assert (policy.probabilities(batch.states)[:, 2] == 0).all()
    policy.save(tmp_path / "policy.capi")
    loaded = load_policy(tmp_path / "policy.capi")
    np.testing.assert_array_equal(loaded.probabilities(batch.states), policy.probabilities(batch.states))
    only = np.tile([False, False, True], (len(batch), 1))
    assert (policy.probabilities(batch.states, only)[:, 2] == 1).all()


def test_masks_of_the_user_are_still_needed():
    plain = steps()
    allowed = np.ones((300, 3), dtype=bool)
    batch = plain.with_masks(allowed, allowed)
    batch = batch.with_masks(np.where(plain.actions[:, None] == 0, allowed, [False, True, True]), allowed)
    policy = quick(support=Support(0.3, max_depth=2)).fit(batch).policy_
    with pytest.raises(InvalidInputError, match="masks of allowed actions"):
        policy.act(batch.states)
    with pytest.raises(InvalidInputError, match="masks of allowed actions"):
        export_policy(policy, "sql")
    assert policy.act(batch.states, batch.allowed).shape == (300,)


def test_rows_and_episodes_without_weight_do_not_stop_a_support():
    plain = steps()
    names = ("states", "actions", "rewards", "next_states", "terminated", "episodes")
    weights = np.repeat([1.0, 0.0], 150)
    batch = Transitions(**{n: getattr(plain, n) for n in names}, weights=weights, n_actions=3)
    for learner in (quick(support=Support(0.3)), quick(Reweighted())):
        assert learner.fit(batch).policy_.n_actions == 3


def test_given_starts_and_states_get_the_masks_of_the_support():
    batch = steps()
    starts = np.random.default_rng(0).normal(size=(20, 2))
    learner = CAPI(discount=0.9, n_iterations=2, random_state=0, support=Support(0.3, max_depth=2))
    assert learner.fit(batch, starts=starts).policy_.n_actions == 3
    given = quick(support=Support(1.0)).fit(batch, states=batch.states)
    np.testing.assert_array_equal(given.policy_.act(batch.states), given.support_.behaviour.act(batch.states))
    with pytest.raises(InvalidInputError, match="states must be given as an array"):
        quick(support=Support(0.3)).fit(batch, states=lambda k, policy, rng: batch.states)


def test_a_large_tree_is_not_merged_with_its_support():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 1))
    batch = Transitions(x, rng.integers(2, size=3000), np.zeros(3000), x, np.ones(3000, dtype=bool))
    fitted = Support(0.3, max_depth=2).fit(batch)
    deep = Trees(max_depth=None, min_samples_leaf=1).improve(
        x, rng.normal(size=(3000, 2)), allowed=np.ones((3000, 2), bool)
    )
    assert fitted.restrict(deep).tree is None


@pytest.mark.parametrize("random_state", [0, None])
def test_a_loop_with_a_support_goes_on_as_without_the_interruption(random_state):
    """With the same masks, and with the trees of values that were grown on the same rows."""
    batch, learner = steps(), quick(n_iterations=4, random_state=random_state, support=Support(0.3))
    rounds = list(learner.iterate(batch))
    for cut in range(3):
        rest = list(learner.iterate(batch, after=rounds[cut]))
        assert len(rest) == 3 - cut
        for one, again in zip(rounds[cut + 1 :], rest, strict=True):
            assert (one.loss, one.value) == (again.loss, again.value)
            assert one.q.values(batch.states).tobytes() == again.q.values(batch.states).tobytes()
