import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from capi import CAPI, Transitions
from capi.errors import InvalidInputError, RareActionWarning
from capi.evaluators import BoostedQ, Exact, FittedQ, KernelFittedQ, Pessimistic
from capi.learning import rules
from capi.policy_spaces import Forests, Trees, Unrestricted
from capi.testing import random_batch


def chain_of(length, n_episodes=4, terminated=False):
    """Episodes of one length, with two actions that both occur."""
    n = length * n_episodes
    x = np.linspace(0, 1, n)[:, None]
    ends = np.zeros(n, dtype=bool)
    ends[length - 1 :: length] = terminated
    return Transitions(x, np.arange(n) % 2, x[:, 0], x, ends, episodes=np.repeat(np.arange(n_episodes), length))


@pytest.mark.parametrize(
    ("length", "discount", "steps"),
    [(1000, 0.9, 29), (1000, 0.99, 299), (20, 0.99, 80), (5, 0.99, 50), (1000, 0.9999, 3000), (1000, 0.0, 1)],
)
def test_the_horizon_follows_from_the_discount_and_the_episodes(length, discount, steps):
    assert rules.horizon(chain_of(length, 2), discount) == steps


def test_without_a_future_one_round_of_one_sweep_is_enough():
    single = chain_of(1, 50, terminated=True)
    assert rules.horizon(single, 0.99) == 1
    learner = CAPI(space=Trees(max_depth=1), random_state=0).fit(single)
    assert len(learner.history_) == 1
    assert rules.default_evaluator(single, 0.99).n_sweeps == 1
    assert len(CAPI(space=Trees(max_depth=1), discount=0.0).fit(chain_of(9)).history_) == 1


def test_rounds_times_sweeps_reach_the_horizon():
    batch = chain_of(1000)
    for n_sweeps in (1, 7):
        assert rules.default_rounds(FittedQ(n_sweeps=n_sweeps), batch, 0.99) * n_sweeps >= 299
    assert rules.default_rounds(FittedQ(n_sweeps=None), batch, 0.99) == rules.ROUNDS
    assert rules.default_rounds(KernelFittedQ(n_sweeps=None), batch, 0.99) == rules.ROUNDS


def test_the_defaults_need_only_a_batch():
    learner = CAPI(random_state=0)
    assert repr(learner) == "CAPI(random_state=0)"
    learner.fit(random_batch())
    assert learner.policy_.rules()
    assert [row["k"] for row in learner.history_ if row.get("kept")]
    with pytest.raises(InvalidInputError, match=r"evaluator must be given, or a fixed batch"):
        CAPI().fit(lambda k, policy, rng: random_batch())


def test_other_evaluators_keep_the_last_policy_and_weigh_the_batch_alike():
    loop = rules.with_rules(CAPI(KernelFittedQ(), Unrestricted()).loop(), random_batch(), None)
    assert (loop.keep, loop.state_weights, loop.until_settled) == ("last", "batch", True)
    loop = rules.with_rules(CAPI(FittedQ(), Trees(), n_iterations=3).loop(), random_batch(), None)
    assert (loop.keep, loop.state_weights, loop.n_iterations, loop.until_settled) == ("best", "mixture", 3, False)
    assert rules.with_rules(CAPI(FittedQ(), Trees()).loop(), random_batch(), random_batch().states).keep == "last"


def test_a_loop_that_no_longer_moves_stops():
    batch = random_batch()
    settled = CAPI(FittedQ(n_sweeps=None, refresh_every="never"), Trees(max_depth=1), 0.5, random_state=0).fit(batch)
    assert len(settled.history_) < rules.ROUNDS
    assert all(row["changed"] == 0 for row in settled.history_[-3:])


def test_a_rarely_taken_action_is_never_chosen_and_a_warning_says_so():
    rng = np.random.default_rng(0)
    n = 300
    x, actions = rng.uniform(size=(n, 2)), rng.integers(2, size=n)
    actions[7] = 2  # once; the most rewarding of all
    batch = Transitions(
        x,
        actions,
        actions + x[:, 0],
        rng.uniform(size=(n, 2)),
        rng.uniform(size=n) < 0.2,
        n_actions=4,
        action_labels=list("abcd"),
    )
    for space in (Trees(max_depth=2), Forests(n_trees=3), Unrestricted()):
        with pytest.warns(RareActionWarning, match=r"'c' \(1 row\), 'd' \(0 rows\)\. No policy will choose them"):
            learner = CAPI(FittedQ(n_trees=5), space, 0.9, n_iterations=3, random_state=0).fit(batch)
        assert set(learner.policy_.act(x)) <= {0, 1}
    for evaluator in (
        FittedQ(regressor=LinearRegression()),
        BoostedQ(10),
        Pessimistic(BoostedQ(10), spread="bootstrap", n_models=2),
    ):
        with pytest.warns(RareActionWarning, match="No policy will choose them"):
            learner = CAPI(evaluator, Trees(max_depth=2), 0.9, n_iterations=2, random_state=0).fit(batch)
        assert set(learner.policy_.act(x)) <= {0, 1}


def test_actions_of_small_examples_may_have_few_rows():
    batch = Transitions([[0.0], [1.0], [2.0]], [0, 1, 1], [0.0, 1.0, 2.0], [[0.0]] * 3, [True] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CAPI(FittedQ(n_trees=2), Trees(max_depth=1), 0.5, n_iterations=2).fit(batch)


def test_excluded_actions_are_worst_in_every_state():
    values = np.array([[1.0, 2.0, 9.0], [3.0, 3.0, 9.0]])
    made = rules.made_worst(values, np.array([2]))
    np.testing.assert_array_equal(made[:, :2], values[:, :2])
    np.testing.assert_array_equal(made[:, 2], [0.0, 2.0])
    assert values[0, 2] == 9.0


def test_the_first_policy_is_the_best_of_all_where_states_count_by_visits(chain):
    exact = CAPI(Exact(chain), Trees(max_depth=1), chain.discount, 1, state_weights="occupancy")
    policy, _ = rules.first_policy(exact.loop(), Exact(chain), None, np.empty(0, dtype=np.int64), None)
    assert policy is chain.optimal_policy


@pytest.fixture
def chain():
    from capi.domains import ChainWalk

    return ChainWalk(variant=2).mdp
