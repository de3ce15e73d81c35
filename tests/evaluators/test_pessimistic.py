import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from capi import CAPI, Transitions
from capi.baselines import PSDP
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import LSTDQ, TD, BoostedQ, Exact, FittedQ, KernelFittedQ, Pessimistic, Rollouts
from capi.evaluators.averager import Averager
from capi.features import Polynomial
from capi.files.codecs import from_arrays, to_arrays
from capi.policies import Constant, Uniform
from capi.policy_spaces import Trees, Unrestricted
from capi.runs.checkpoint import read_checkpoint, write_checkpoint
from capi.testing import check_evaluator, random_batch

SMALL = FittedQ(n_trees=4, n_sweeps=2)
SPREADS = ("bootstrap", "halves", "trees")


def bandit(rewards, actions, weights=None, **columns):
    """Return a batch in which every row is an episode of one step from the same state."""
    n = len(rewards)
    x = np.zeros((n, 1))
    return Transitions(x, actions, rewards, x, np.ones(n, dtype=bool), weights=weights, **columns)


def values(evaluator, batch, policy=None, **options):
    policy = Constant(0, batch.n_actions) if policy is None else policy
    return evaluator.evaluate(policy, batch, discount=0.9, **options).values(batch.states)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("actions", ["separate", "input"])
def test_keeps_the_contract(spread, actions):
    check_evaluator(Pessimistic(FittedQ(n_trees=3, actions=actions), spread=spread, n_models=2))
    check_evaluator(Pessimistic(FittedQ(n_trees=3, actions=actions, n_sweeps=None), spread=spread, n_models=2))


@pytest.mark.parametrize("spread", ["bootstrap", "halves"])
@pytest.mark.parametrize(
    "inner",
    [
        LSTDQ(Polynomial(1)),
        TD(Polynomial(1)),
        KernelFittedQ(),
        BoostedQ(n_trees=5, min_samples_leaf=2),
        FittedQ(regressor=make_pipeline(StandardScaler(), LinearRegression())),
    ],
    ids=lambda inner: type(inner).__name__,
)
def test_every_evaluator_that_learns_from_a_batch_can_be_lowered(inner, spread):
    check_evaluator(Pessimistic(inner, spread=spread, n_models=2))


def test_bootstrap_bounds_of_a_table_are_means_less_deviations_over_resampled_episodes():
    rewards, actions = np.tile([0.0, 1.0, 5.0, 2.0, 4.0, 9.0], 3), np.tile([0, 0, 0, 1, 1, 1], 3)
    batch = bandit(rewards, actions)
    q = Pessimistic(FittedQ(n_trees=2), kappa=2.0, n_models=3).evaluate(Uniform(2), batch, discount=0.5)
    x = np.zeros((1, 1))
    np.testing.assert_allclose(q.mean.values(x), [[2.0, 5.0]])
    of_models = []
    for own in q.resamples:
        assert own.weights.sum() == 18, "as many episodes as the batch has"
        of_action = [(own.weights * rewards)[actions == a].sum() / own.weights[actions == a].sum() for a in (0, 1)]
        of_models.append(of_action)
    middle = np.mean(of_models, axis=0)
    deviation = np.sqrt(np.square(of_models - middle).sum(axis=0) / 2)
    np.testing.assert_allclose(q.values(x), [[2.0, 5.0]] - 2 * deviation)
    assert (deviation > 0).all()


def test_bounds_of_halves_subtract_half_of_the_difference():
    batch = bandit([0.0, 1.0, 5.0, 10.0], [0, 0, 0, 0], n_actions=1)
    q = Pessimistic(FittedQ(n_trees=2), spread="halves").evaluate(Constant(0, 1), batch, discount=0.5)
    one, other = (own.rewards.mean() for own in q.resamples)
    assert sorted(np.concatenate([own.rewards for own in q.resamples])) == [0.0, 1.0, 5.0, 10.0]
    np.testing.assert_allclose(q.values(np.zeros((1, 1))), [[4.0 - abs(one - other) / 2]])


@pytest.mark.parametrize("actions", ["separate", "input"])
def test_bounds_by_trees_subtract_the_deviation_over_trees(actions):
    batch = random_batch()
    q = Pessimistic(FittedQ(n_trees=5, actions=actions), kappa=0.5, spread="trees").evaluate(
        Constant(0, 3), batch, discount=0.9
    )
    for a in range(3):
        forest = q.mean.models[a if actions == "separate" else 0].forest
        x = batch.states if actions == "separate" else np.column_stack([batch.states, np.full(len(batch), float(a))])
        leaves = forest.leaves(x)
        deviation = np.std(forest.means[leaves, 0], axis=0, ddof=1)
        expected = q.mean.values(batch.states)[:, a] - 0.5 * deviation
        np.testing.assert_allclose(q.values(batch.states)[:, a], expected, atol=1e-12)
    assert q.models == ()


def rarely_lucky(seed):
    """Action 1 is worse in the mean, but was tried six times, with a lucky jackpot."""
    rng = np.random.default_rng(seed)
    n = 200
    actions = np.repeat([0, 1], [n - 6, 6])
    rewards = np.where(actions == 0, 1 + 0.5 * rng.normal(size=n), 0.0)
    rewards[-1] = 12.0  # the mean of action 1 in the log is 2, in truth perhaps 0.1
    return bandit(rewards, actions)


@pytest.mark.parametrize("spread", ["bootstrap", "halves"])
def test_a_rare_action_with_a_lucky_reward_is_taken_by_the_plain_policy_and_not_by_the_pessimistic_one(spread):
    for seed in range(5):
        batch = rarely_lucky(seed)
        plain, careful = (
            CAPI(part, Unrestricted(), discount=0.0, n_iterations=1, random_state=seed, keep="last").fit(batch)
            for part in (FittedQ(), Pessimistic(FittedQ(), kappa=1.0, spread=spread, n_models=20))
        )
        assert plain.predict([[0.0]])[0] == 1
        assert careful.predict([[0.0]])[0] == 0


def test_uncertainty_of_later_steps_lowers_the_bounds_of_earlier_ones():
    """The first decision pays nothing; what follows action 1 was seen rarely and varies."""
    n = 40
    first, second = np.zeros((n, 1)), np.where(np.arange(n) < 30, 1.0, 2.0)[:, None]
    gains = np.where(np.arange(n) < 30, 1.0, np.where(np.arange(n) == 35, 20.0, 0.0))
    states = np.stack([first, second], axis=1).reshape(-1, 1)
    following = np.stack([second, second], axis=1).reshape(-1, 1)
    actions = np.stack([(np.arange(n) >= 30).astype(int), np.zeros(n, dtype=int)], axis=1).ravel()
    rewards = np.stack([np.zeros(n), gains], axis=1).ravel()
    batch = Transitions(
        states, actions, rewards, following, np.tile([False, True], n), episodes=np.repeat(np.arange(n), 2), n_actions=2
    )
    evaluator = Pessimistic(FittedQ(n_trees=2, min_samples_split=2, n_sweeps=2), n_models=20)
    q = evaluator.evaluate(Constant(0, 2), batch, discount=0.9)
    x = np.zeros((1, 1))
    np.testing.assert_allclose(q.mean.values(x), [[0.9, 1.8]])
    assert q.spreads(x)[0, 0] < 0.1 < 0.5 < q.spreads(x)[0, 1]


@pytest.mark.parametrize("spread", SPREADS)
def test_kappa_zero_gives_the_values_of_the_wrapped_evaluator_in_every_round(spread):
    batch = random_batch(n_episodes=40)
    inner = FittedQ(n_trees=4, n_sweeps=None)
    settings = {"discount": 0.9, "n_iterations": 4, "random_state": 3}
    plain = CAPI(inner, Trees(), **settings).fit(batch)
    lowered = CAPI(Pessimistic(inner, kappa=0.0, spread=spread), Trees(), **settings).fit(batch)
    np.testing.assert_array_equal(lowered.q_.values(batch.states), plain.q_.values(batch.states))
    for one, other in zip(plain.history_, lowered.history_, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize("spread", SPREADS)
def test_bounds_fall_with_kappa_and_the_mean_does_not_change(spread):
    batch = random_batch()
    low, middle, high = (values(Pessimistic(SMALL, kappa, spread), batch) for kappa in (2.0, 0.5, 0.0))
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert (low < high).mean() > 0.5
    np.testing.assert_array_equal(high, values(SMALL, batch))


def test_weights_of_rows_count_in_all_models():
    batch = bandit([0.0, 1.0, 5.0, 100.0], [0, 0, 0, 0], [1.0, 1.0, 2.0, 0.0], n_actions=1)
    q = Pessimistic(FittedQ(n_trees=2)).evaluate(Constant(0, 1), batch, discount=0.5)
    for own, model in zip(q.resamples, q.models, strict=True):
        assert own.weights[3] == 0
        np.testing.assert_allclose(model.values(np.zeros((1, 1))), np.average(batch.rewards, weights=own.weights))
    assert q.mean.values(np.zeros((1, 1)))[0, 0] == pytest.approx(11 / 4)


def test_rows_of_an_episode_are_drawn_together():
    batch = random_batch()
    q = Pessimistic(SMALL).evaluate(Constant(0, 3), batch, discount=0.9)
    for own in q.resamples:
        assert own.states is batch.states, "only weights are new"
        for episode in np.unique(batch.episodes):
            assert len(set(own.weights[batch.episodes == episode])) == 1


def test_all_rounds_use_the_same_resamples_and_every_model_keeps_its_own_trees():
    batch, q = random_batch(), None
    evaluator, ages = Pessimistic(FittedQ(n_trees=3), n_models=2), []
    for k in range(4):
        old, q = q, evaluator.evaluate(Uniform(3), batch, discount=0.9, previous=q, rng=np.random.default_rng(k))
        ages.append([part.age for part in (q.mean, *q.models)])
        if old is not None:
            assert q.resamples is old.resamples
    assert ages == [[1] * 3, [1] * 3, [2] * 3, [1] * 3]
    other = evaluator.evaluate(Uniform(3), batch, discount=0.9, rng=np.random.default_rng(9))
    assert any(not np.array_equal(a.weights, b.weights) for a, b in zip(other.resamples, q.resamples, strict=True)), (
        "another run has other resamples"
    )


def test_a_plain_q_of_an_earlier_round_is_continued():
    batch = random_batch()
    before = SMALL.evaluate(Uniform(3), batch, discount=0.9)
    q = Pessimistic(SMALL, n_models=2).evaluate(Uniform(3), batch, discount=0.9, previous=before)
    assert [part.n_sweeps for part in (q.mean, *q.models)] == [4] * 3


@pytest.mark.parametrize("spread", SPREADS)
def test_bounds_do_not_depend_on_the_number_of_threads(spread):
    batch = random_batch(n_episodes=60)
    one, two = (
        values(Pessimistic(FittedQ(n_trees=5, n_sweeps=None, n_jobs=n_jobs), spread=spread), batch) for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_the_defaults_of_the_loop_follow_policies_in_the_model_of_the_wrapped_evaluator():
    batch = random_batch(n_episodes=60)
    learner = CAPI(Pessimistic(FittedQ(n_trees=4, n_sweeps=None), n_models=2), discount=0.9, random_state=0)
    learner.set_params(n_iterations=4, evaluator__evaluator__n_trees=5).fit(batch)
    assert all("effective_rows" in numbers for numbers in learner.history_)
    kept = [numbers["k"] for numbers in learner.history_ if numbers.get("kept")]
    assert len(kept) == 1
    assert len(learner.q_.mean.models[0].forest.trees) == 5
    own = Averager.of(learner.q_, batch, discount=0.9).action_values(learner.policy_)
    if kept[0] < learner.history_[-1]["k"]:  # otherwise Q is that of the policy before
        np.testing.assert_allclose(learner.q_.mean.values(batch.states), own.values(batch.states), atol=1e-4)


def test_lower_bounds_of_an_earlier_policy_belong_to_that_policy():
    batch = random_batch(n_episodes=60)
    q = Pessimistic(FittedQ(n_trees=4, n_sweeps=None), n_models=2).evaluate(Uniform(3), batch, discount=0.9)
    policy = Constant(2, 3)
    of_policy = q.under(lambda own, of: Averager.of(own, of, discount=0.9).action_values(policy))
    for own, before, of in zip(of_policy.models, q.models, q.resamples, strict=True):
        expected = Averager.of(before, of, discount=0.9).action_values(policy).values(batch.states)
        np.testing.assert_array_equal(own.values(batch.states), expected)


def test_psdp_and_improving_rounds_accept_lower_bounds():
    batch = random_batch(n_episodes=40)
    evaluator = Pessimistic(FittedQ(n_trees=3), n_models=2)
    assert PSDP(evaluator, Trees(), discount=0.9, horizon=2, random_state=0).fit(batch).policy_.n_actions == 3
    CAPI(evaluator, Trees(), discount=0.9, n_iterations=3, accept="improving", random_state=0).fit(batch)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("inner", [FittedQ(n_trees=3), FittedQ(n_trees=3, n_sweeps=None, projections=2)], ids=repr)
def test_a_checkpoint_resumes_to_the_same_bytes(tmp_path, spread, inner):
    batch = random_batch(n_episodes=40)
    evaluator = Pessimistic(inner, spread=spread, n_models=2)
    learner = CAPI(evaluator, Trees(), discount=0.9, n_iterations=6, random_state=4)
    whole = list(learner.iterate(batch))
    write_checkpoint(tmp_path / "checkpoint.zip", whole[2], [], "here", {})
    after, _, _ = read_checkpoint(tmp_path / "checkpoint.zip", ["here"], batch, evaluator, 4)
    again = list(learner.iterate(batch, after=after))
    assert [iteration.k for iteration in again] == [3, 4, 5]
    for one, other in zip(whole[3:], again, strict=True):
        np.testing.assert_array_equal(one.q.values(batch.states), other.q.values(batch.states))
        np.testing.assert_array_equal(one.q.spreads(batch.states), other.q.spreads(batch.states))
        np.testing.assert_array_equal(one.policy.act(batch.states), other.policy.act(batch.states))


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    batch = random_batch(n_episodes=40)
    evaluator = Pessimistic(FittedQ(n_trees=3), n_models=2)
    first = next(CAPI(evaluator, Trees(), discount=0.9, n_iterations=2, random_state=4).iterate(batch))
    write_checkpoint(tmp_path / "checkpoint.zip", first, [], "here", {})
    with pytest.raises(InvalidInputError, match="q must fit these settings, with 3 models"):
        read_checkpoint(tmp_path / "checkpoint.zip", ["here"], batch, Pessimistic(FittedQ(n_trees=3), n_models=3), 4)


def packed(spread="bootstrap"):
    q = Pessimistic(FittedQ(n_trees=2), spread=spread, n_models=3).evaluate(Uniform(3), random_batch(), discount=0.9)
    return to_arrays(q)


@pytest.mark.parametrize(
    ("spread", "changes", "message"),
    [
        ("bootstrap", {"n_models": 1}, "1 models do not fit the spread bootstrap"),
        ("halves", {"n_models": 1}, "1 models do not fit the spread halves"),
        ("bootstrap", {"spread": "trees"}, "3 models do not fit the spread trees"),
        ("bootstrap", {"n_models": 4}, "q4 is missing"),
        ("bootstrap", {"kappa": -1.0}, "kappa must be a number from 0"),
        ("bootstrap", {"seed": -1}, "seed must be an integer"),
        ("trees", {"age0": -1}, "age0 must be an integer"),
    ],
)
def test_damaged_files_are_refused(spread, changes, message):
    damaged = packed(spread)
    damaged.settings |= changes
    with pytest.raises(InvalidInputError, match=message):
        from_arrays(damaged, decides=False)


def test_models_in_a_file_must_fit_together():
    other = FittedQ(n_trees=1).evaluate(Uniform(2), random_batch(n_actions=2), discount=0.9)
    damaged = packed()
    damaged.parts["q1"] = to_arrays(other)
    with pytest.raises(InvalidInputError, match="all models must have the same actions"):
        from_arrays(damaged, decides=False)
    damaged = packed("trees")
    damaged.parts["q0"] = to_arrays(other)
    with pytest.raises(InvalidInputError, match="needs at least two trees per model"):
        from_arrays(damaged, decides=False)


class Plain:
    """An evaluator that does not say that it uses weights."""

    def evaluate(self, policy, transitions, *, discount, states=None, previous=None, rng=None):
        return FittedQ(n_trees=2).evaluate(policy, transitions, discount=discount, rng=rng)


class Weighted(Plain):
    uses_weights = True


def test_an_evaluator_of_your_own_says_whether_it_uses_weights():
    with pytest.raises(InvalidInputError, match="Plain does not say that it does"):
        Pessimistic(Plain())
    check_evaluator(Pessimistic(Plain(), spread="halves"))
    check_evaluator(Pessimistic(Weighted(), n_models=2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kappa": -1.0}, "kappa must be a number, at least 0"),
        ({"spread": "models"}, "spread must be"),
        ({"n_models": 1}, "n_models must be an integer, at least 2"),
        ({"evaluator": FittedQ}, "evaluator must have the method evaluate"),
        ({"evaluator": Pessimistic(SMALL)}, "must not be pessimistic itself"),
        ({"evaluator": Exact(ChainWalk().mdp)}, "must learn from a batch"),
        ({"evaluator": Rollouts(ChainWalk())}, "must learn from a batch"),
        ({"evaluator": KernelFittedQ(), "spread": "trees"}, "needs FittedQ with at least two trees of its own"),
        ({"evaluator": FittedQ(n_trees=1), "spread": "trees"}, "at least two trees of its own"),
        ({"evaluator": FittedQ(regressor=LinearRegression()), "spread": "trees"}, "at least two trees of its own"),
        ({"evaluator": FittedQ(regressor=KNeighborsRegressor())}, "uses the weights of rows"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Pessimistic(**{"evaluator": SMALL, **settings})


def test_a_batch_must_be_given_and_have_episodes_to_draw():
    with pytest.raises(InvalidInputError, match="transitions must be given"):
        Pessimistic(SMALL).evaluate(Constant(0, 3), None, discount=0.9)
    single = random_batch(n_episodes=1)
    with pytest.raises(InvalidInputError, match="needs at least two episodes; this batch has 1"):
        Pessimistic(SMALL).evaluate(Constant(0, 3), single, discount=0.9)
    assert values(Pessimistic(SMALL, spread="trees"), single).shape == (len(single), 3)


def test_evaluators_that_need_every_action_get_resamples_that_have_it():
    """One of twelve episodes takes action 1, so a third of all resamples would miss it."""
    batch = bandit(np.arange(12.0), [0] * 11 + [1])
    q = Pessimistic(LSTDQ(lambda x: np.ones((len(x), 1))), n_models=20).evaluate(Uniform(2), batch, discount=0.5)
    assert all(own.weights[-1] > 0 for own in q.resamples)
    forests = Pessimistic(FittedQ(n_trees=2), n_models=20).evaluate(Uniform(2), batch, discount=0.5)
    assert any(own.weights[-1] == 0 for own in forests.resamples)
    assert forests.spreads(np.zeros((1, 1)))[0, 1] > 1, "where the action is missing, its model averages all rows"
