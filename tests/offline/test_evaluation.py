"""Bad and extreme input: a clear word, never a silent number."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from capi import Transitions
from capi.data.schema import Schema
from capi.errors import Caveat, EvidenceWarning, InvalidInputError
from capi.evaluators import FittedQ
from capi.offline import compare, cross_evaluate, evaluate, fitted_value
from capi.offline.caveats import _most_telling
from capi.offline.fitted_q import Regression
from capi.policies import Constant, EpsilonGreedy, Greedy, Mixture, NonStationary, Uniform
from offline.helpers import SAMPLING, Table, bandit, hushed, quick, remade, told, walks, warned_of

PHASES = [phase for phase in Phase if phase is not Phase.shrink]  # a failure is told at once, not minutes later
WEIGHTED = (*SAMPLING, "doubly-robust", "weighted-doubly-robust")


def long_walk(n_episodes=40, length=50, propensity=0.5, actions=None):
    rng = np.random.default_rng(0)
    n = n_episodes * length
    x = rng.normal(size=(n, 1))
    taken = rng.integers(2, size=n) if actions is None else np.broadcast_to(actions, (n_episodes, length)).ravel()
    ends = np.arange(n) % length == length - 1
    made = {"episodes": np.arange(n) // length, "propensities": np.full(n, propensity), "n_actions": 2}
    return Transitions(x, taken, x[:, 0] + taken, x, ends, **made)


# -- weights -------------------------------------------------------------------------------------------


def test_a_clean_log_has_no_warnings():
    found = told(EpsilonGreedy(Constant(1, 2), 0.5), walks(200, longest=2, ends=1.0))
    assert found.warnings == ()
    assert not found.unreliable
    assert found.method == "doubly-robust"
    assert 0 < found.effective_episodes < 200


@pytest.mark.parametrize(
    ("length", "propensity"), [(1000, 0.5), (3, 1e-300), (3, 5e-324)], ids=["long", "tiny", "least"]
)
def test_weights_that_overflow_leave_no_weighted_estimates_but_a_fitted_one(length, propensity):
    """A thousand agreements at ratio 2 are a weight of e^693."""
    found = told(Constant(1, 2), long_walk(10, length, propensity, actions=1), n_resamples=3)
    assert warned_of(found, r"importance weights overflow \(the largest is e\^\d+\)")
    assert found.unreliable
    assert found.effective_episodes == 0
    assert found.method == "fitted-q"
    assert np.isfinite(found.estimate)
    for method in WEIGHTED:
        estimate = found.estimates[method]
        assert np.isnan([estimate.value, *estimate.bootstrap, *estimate.asymptotic]).all(), method


@pytest.mark.parametrize("length", [450, 800, 1100])
def test_large_weights_are_either_counted_right_or_refused(length):
    """Squares of weights leave float64 long before the weights do: 450 steps of ratio 2 are e^312, 800 are e^554."""
    found = told(Constant(1, 2), long_walk(10, length, 0.5, actions=1), methods=SAMPLING)
    assert found.unreliable
    assert warned_of(found, "overflow")


def test_just_bearable_weights_are_counted():
    found = told(Constant(1, 2), long_walk(10, 400, 0.5, actions=1))  # e^277, all the same
    assert found.effective_episodes == pytest.approx(10)
    assert found.unreliable
    assert warned_of(found, "should average 1 but average 2.00")
    for method in ("weighted", "weighted-per-decision", "weighted-doubly-robust"):
        assert np.isfinite(found.estimates[method].value)
        assert np.isfinite(found.estimates[method].standard_error)


def test_vanishing_weights_are_no_weights():
    found = told(Table(np.array([[1 - 1e-9, 1e-9]])), remade(long_walk(30, 40, 1.0, actions=1), states=np.zeros((1200, 1)), next_states=np.zeros((1200, 1))))  # fmt: skip
    assert found.unreliable
    assert warned_of(found, "from step 15 on no logged episode agrees")  # 1e-9 to the 15th is less than e^-300


def test_no_weight_after_a_step_is_told_with_the_step():
    batch = long_walk(40, 6, actions=np.array([1, 1, 1, 0, 0, 0]))
    found = told(Constant(1, 2), batch)
    assert warned_of(found, "from step 4 on no logged episode agrees with the policy")
    assert found.unreliable
    for method in SAMPLING:
        assert np.isnan(found.estimates[method].value)
    for method in ("doubly-robust", "weighted-doubly-robust", "fitted-q"):
        assert np.isfinite(found.estimates[method].value)


def test_ratios_that_do_not_matter_may_be_anything():
    batch = long_walk(40, 3, actions=1)
    tiny = remade(batch, propensities=np.where(np.arange(120) % 3 == 2, 5e-324, 1.0))
    found = told(Constant(1, 2), tiny, discount=0.0)
    assert found.estimates["weighted"].value == pytest.approx(found.behaviour.value)
    assert warned_of(found, "had a probability below 1 %")


def test_at_discount_zero_only_first_decisions_have_weight():
    batch = long_walk(60, 6, actions=np.array([1, 0, 0, 0, 0, 0]))
    found = hushed(Constant(1, 2), batch, discount=0.0)
    first = batch.rewards[::6].mean()
    assert found.estimates["weighted"].value == pytest.approx(first)
    assert found.estimates["per-decision"].value == pytest.approx(2 * first)
    assert found.effective_episodes == pytest.approx(60)


def test_too_little_overlap_is_told_and_makes_fitted_q_the_headline():
    found = told(Constant(1, 2), long_walk(100, 8))
    assert warned_of(found, r"overlap too little: 100 logged episodes are worth \d+\.\d of the policy's own")
    assert found.unreliable
    assert found.method == "fitted-q"
    assert hushed(Constant(1, 2), long_walk(100, 8), methods="doubly-robust").method == "doubly-robust"
    assert hushed(Constant(1, 2), long_walk(100, 8), methods=["per-decision", "weighted"]).method == "per-decision"
    asked = hushed(Constant(1, 2), long_walk(100, 8), method="weighted", methods="fitted-q")
    assert asked.method == "weighted"
    assert set(asked.estimates) == {"weighted", "fitted-q"}


def test_wrong_given_probabilities_are_told():
    batch = bandit(300)
    halved = remade(batch, propensities=batch.propensities / 2)
    found = told(EpsilonGreedy(Constant(1, 2), 0.4), halved, discount=0.0)
    assert warned_of(found, r"should average 1 but average (1\.9|2\.0)")
    assert found.unreliable


# -- what the log does not show ------------------------------------------------------------------------


def test_an_action_that_the_log_never_took_is_told_if_the_policy_takes_it():
    labels = ["wait", "treat", "operate"]
    batch = remade(bandit(200), n_actions=3, action_labels=labels)
    found = told(EpsilonGreedy(Constant(1, 3), 0.3), batch, discount=0.0)
    assert warned_of(found, r"the log never took 'operate' \(10 % of its decisions\)")
    assert found.unreliable
    quiet = told(Mixture([Constant(0, 3), Constant(1, 3)], [0.5, 0.5]), batch, discount=0.0)
    assert quiet.warnings == ()
    two = quick(Uniform(2), bandit(200), discount=0.0)
    for method, estimate in two.estimates.items():
        assert quiet.estimates[method].value == pytest.approx(estimate.value, rel=1e-12), method


def test_decisions_hardly_taken_in_such_states_are_told_and_few_rows_are_no_proof():
    rng = np.random.default_rng(0)
    x = rng.random((1000, 1))
    actions = np.where(x[:, 0] > 0.5, 0, rng.integers(2, size=1000))  # the second never where x is large
    batch = Transitions(x, actions, x[:, 0], x, np.ones(1000, dtype=bool), n_actions=2)
    found = told(Constant(1, 2), batch, discount=0.0)
    assert found.rarely_taken_share == pytest.approx(0.5, abs=0.05)
    assert warned_of(found, "of the policy's decisions were rarely or never taken in similar states")
    assert found.unreliable
    for seed in range(5):  # by chance alone a small leaf has just one of the actions
        assert told(Uniform(2), bandit(60, seed=seed), discount=0.0).rarely_taken_share == 0


def test_value_behind_the_end_of_the_log_is_told():
    """Infinite horizon, reward one a step: of 100, the first ten steps are worth 9.6."""
    batch = remade(long_walk(60, 10), rewards=np.ones(600), terminated=np.zeros(600, dtype=bool))
    found = told(Uniform(2), batch, discount=0.99)
    assert found.extrapolated_share == pytest.approx(0.99**10, abs=1e-3)
    assert warned_of(found, "about 90 % of the value lies beyond the end of the recorded episodes")
    for estimate in (*found.estimates.values(), found.behaviour):
        assert estimate.value == pytest.approx(100, rel=1e-6)
    assert told(Uniform(2), long_walk(60, 10)).extrapolated_share == 0


# -- small and plain -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rewards", [0.0, 3.0])
def test_constant_rewards_have_their_value_and_no_spread(rewards):
    found = told(Uniform(2), remade(bandit(60), rewards=np.full(60, rewards)), discount=0.0)
    for method in ("fitted-q", "weighted", "weighted-per-decision", "doubly-robust", "weighted-doubly-robust"):
        assert found.estimates[method].value == pytest.approx(rewards, abs=1e-12)
        assert found.estimates[method].standard_error == pytest.approx(0, abs=1e-9)
    assert "no significant difference" in found.verdict


def test_episodes_of_one_row_among_others_and_alone():
    batch = walks(40, longest=3)
    assert (batch.episode_lengths == 1).any()
    assert np.isfinite(hushed(Uniform(2), batch).estimate)
    alone = hushed(Uniform(2), remade(bandit(40), episodes=np.arange(40)[::-1]))
    assert alone.n_episodes == alone.n_rows == 40


@pytest.mark.parametrize(("n", "unreliable"), [(2, True), (9, True), (10, False), (29, False), (30, False)])
def test_few_episodes_are_told(n, unreliable):
    found = told(Uniform(2), remade(bandit(n), propensities=np.full(n, 0.5)), discount=0.0)
    assert warned_of(found, f"there are only {n} episodes") == (n < 30)
    assert found.unreliable == unreliable


def test_a_single_episode_is_refused():
    batch = walks(1, longest=5)
    with pytest.raises(InvalidInputError, match="at least two episodes with positive weight"):
        quick(Uniform(2), batch)
    two = walks(2, longest=3)
    with pytest.raises(InvalidInputError, match="at least two episodes with positive weight"):
        quick(Uniform(2), remade(two, weights=(two.episodes == 0).astype(float)))


def test_missing_values_in_states_are_states():
    batch = walks(80)
    states = batch.states.copy()
    states[np.random.default_rng(0).random(states.shape) < 0.2] = np.nan
    found = hushed(Uniform(2), remade(batch, states=states, propensities=None))
    assert np.isfinite([e.value for e in found.estimates.values()]).all()


@pytest.mark.parametrize("scale", [2.0**-332, 2.0**332])  # powers of two round nothing, so that trees split alike
def test_rewards_of_any_size(scale):
    batch = walks(40)
    plain, scaled = (hushed(Uniform(2), remade(batch, rewards=batch.rewards * c)) for c in (1.0, scale))
    for method, estimate in plain.estimates.items():
        assert scaled.estimates[method].value == pytest.approx(scale * estimate.value, rel=1e-3), method
        assert scaled.estimates[method].standard_error == pytest.approx(scale * estimate.standard_error, rel=1e-2)


def test_weights_that_differ_within_an_episode_are_refused():
    batch = walks(10, longest=3)
    row = int(np.flatnonzero(batch.episode_lengths[batch.episodes] > 1)[0]) + 1
    weight = np.ones(len(batch))
    weight[row] = 2.0
    with pytest.raises(InvalidInputError, match=rf"row {row} has 2\.0, the first row of its episode 1\.0"):
        quick(Uniform(2), remade(batch, weights=weight))


# -- masks ---------------------------------------------------------------------------------------------


@pytest.fixture
def masked():
    rng = np.random.default_rng(0)
    n = 240
    x = rng.random((n, 1))
    allowed = np.column_stack([np.ones(n, dtype=bool), x[:, 0] > 0.3, np.arange(n) % 2 == 0])
    actions = np.array([rng.choice(np.flatnonzero(row)) for row in allowed])
    ends = np.arange(n) % 2 == 1
    made = {"episodes": np.arange(n) // 2, "propensities": 1 / allowed.sum(axis=1), "n_actions": 3}
    return Transitions(x, actions, x[:, 0] + actions, np.roll(x, -1, axis=0), ends, allowed=allowed, next_allowed=np.roll(allowed, -1, axis=0), **made)  # fmt: skip


class Knowing:
    n_actions = 3

    def values(self, states):
        return np.tile([0.0, 1.0, 2.0], (len(states), 1))


def test_masks_bind_policy_and_values(masked):
    """The uniform policy is the behaviour's: all weights are one, and all estimates the mean return but for the model."""
    found = told(Uniform(3), masked)
    assert found.warnings == ()
    np.testing.assert_allclose(found.effective_episodes, 120)
    for method in SAMPLING:
        assert found.estimates[method].value == pytest.approx(found.behaviour.value)
    greedy = hushed(Greedy(Knowing(), masked=True), masked)
    assert np.isfinite(greedy.estimate)
    assert greedy.rarely_taken_share == 0
    with pytest.raises(InvalidInputError, match="next_allowed must be given"):
        quick(Uniform(3), remade(masked, next_allowed=None))
    with pytest.raises(InvalidInputError, match="pass allowed"):
        quick(Greedy(Knowing(), masked=True), remade(masked, allowed=None, next_allowed=None))


def test_a_policy_that_ignores_masks_is_refused(masked):
    class Careless(Uniform):
        def probabilities(self, states, allowed=None):
            return super().probabilities(states)

    with pytest.raises(InvalidInputError, match="must be zero where an action is not allowed"):
        quick(Careless(3), masked)


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "rule"),
    [
        ([0.5, 0.6], "must be a distribution"),
        ([1.5, -0.5], "must be a distribution"),
        ([np.nan, 1.0], "must be finite"),
        ([0.2, 0.3, 0.5], "must have shape"),
    ],
    ids=str,
)
def test_what_is_no_distribution_is_refused(shares, rule):
    class Odd(Uniform):
        def probabilities(self, states, allowed=None):
            return np.tile(shares, (len(states), 1))

    with pytest.raises(InvalidInputError, match=rule):
        quick(Odd(2), bandit(40), discount=0.0)


def test_probabilities_in_single_precision_are_good_enough():
    class Single(Uniform):
        def probabilities(self, states, allowed=None):
            return np.tile(np.array([0.1, 0.2, 0.7], dtype=np.float32), (len(states), 1))

    assert np.isfinite(hushed(Single(3), bandit(60, n_actions=3), discount=0.0).estimate)


@pytest.mark.parametrize("values", [np.nan, np.inf])
def test_an_evaluator_without_finite_values_is_refused(values):
    class Broken:
        n_actions = 2

        def values(self, states):
            return np.full((len(states), 2), values)

        def evaluate(self, policy, transitions, **options):
            return self

    with pytest.raises(InvalidInputError, match="Broken's Q"):
        quick(Uniform(2), bandit(40), discount=0.0, evaluator=Broken())


def test_another_evaluator_gives_the_values_inside():
    batch = walks(80, longest=2)
    found, other = (hushed(Uniform(2), batch, evaluator=e) for e in (None, FittedQ(n_trees=3)))
    for method in ("doubly-robust", "weighted-doubly-robust"):
        assert other.estimates[method].value != found.estimates[method].value
        assert other.estimates[method].value == pytest.approx(found.estimates[method].value, abs=0.5)
    assert other.estimates["fitted-q"].value == found.estimates["fitted-q"].value


CHANGING = NonStationary([Constant(0, 2), Constant(1, 2)])


class Clock(Uniform):
    def at(self, t):
        return Constant(t % 2, 2)


@pytest.mark.parametrize(
    "policy",
    [
        CHANGING,
        EpsilonGreedy(CHANGING, 0.1),
        Mixture([Constant(0, 2), CHANGING], [0.5, 0.5]),
        EpsilonGreedy(Mixture([CHANGING, Constant(0, 2)], [0.5, 0.5]), 0.1),
        Clock(2),
    ],
    ids=["steps", "exploring", "mixture", "both", "foreign"],
)
def test_policies_that_change_with_time_are_refused(policy):
    with pytest.raises(InvalidInputError, match="the policy changes with time"):
        quick(policy, bandit(40), discount=0.0)


def test_policies_that_could_change_but_do_not_are_not():
    mixture = Mixture([Constant(0, 2), Constant(1, 2)], [0.5, 0.5])
    for policy in (mixture, EpsilonGreedy(mixture, 0.1), EpsilonGreedy(EpsilonGreedy(Constant(0, 2), 0.1), 0.1)):
        assert np.isfinite(hushed(policy, bandit(40), discount=0.0).estimate)


def test_other_words_are_refused():
    batch = remade(bandit(40), feature_names=["age"])
    policy = Constant(1, 2, schema=Schema(("weight",), (0, 1)))
    with pytest.raises(InvalidInputError, match=r"same columns and actions as this batch.*schema=policy\.schema"):
        quick(policy, batch, discount=0.0)
    assert np.isfinite(hushed(Constant(1, 2, schema=batch.schema), batch, discount=0.0).estimate)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"discount": 1.0}, "discount"),
        ({"discount": None}, "discount must be given"),
        ({"discount": "much"}, "discount"),
        ({"method": "magic"}, "method must be one of 'auto'"),
        ({"methods": ["weighted", "magic"]}, "a method must be one of"),
        ({"methods": []}, "at least one of"),
        ({"level": 1.0}, "level must lie strictly between 0 and 1"),
        ({"level": "high"}, "level must lie"),
        ({"n_folds": 1}, "n_folds"),
        ({"n_resamples": 0}, "n_resamples"),
        ({"n_resamples": 2.5}, "n_resamples"),
        ({"random_state": -1}, "random_state"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"evaluator": "trees"}, "evaluator must be a PolicyEvaluator"),
        ({"trees": 5}, "a setting must be one of .*got 'trees'"),
    ],
    ids=str,
)
def test_bad_settings_are_named(settings, rule):
    with pytest.raises(InvalidInputError, match=rule):
        compare({"a": Uniform(2)}, bandit(40), **{"discount": 0.0, **settings})
    with pytest.raises(InvalidInputError, match=rule):
        cross_evaluate({"a": Uniform(2)}, bandit(40), **{"discount": 0.0, **settings})


def test_what_is_no_policy_and_no_batch_is_refused():
    batch = bandit(40)
    for thing in (Uniform, "policy", None):
        with pytest.raises(InvalidInputError, match="must be a Policy"):
            evaluate(thing, batch, discount=0.0)
    with pytest.raises(InvalidInputError, match="has 3 actions, the batch 2"):
        evaluate(Uniform(3), batch, discount=0.0)
    with pytest.raises(InvalidInputError, match="batch must be a Transitions"):
        evaluate(Uniform(2), batch.states, discount=0.0)
    for things in ({}, [Uniform(2)]):
        with pytest.raises(InvalidInputError, match="policies must be a mapping"):
            compare(things, batch, discount=0.0)
    with pytest.raises(InvalidInputError, match="at least one learner"):
        cross_evaluate({}, batch, discount=0.0)
    for thing in (Uniform, "learner"):
        with pytest.raises(InvalidInputError, match="learners must be learners or policies"):
            cross_evaluate(thing, batch, discount=0.0)


def test_warnings_point_at_the_line_that_asked():
    batch = bandit(20)
    for ask in (
        lambda: evaluate(Uniform(2), batch, discount=0.0, n_resamples=5),
        lambda: compare({"the policy": Uniform(2)}, batch, discount=0.0, n_resamples=5),
        lambda: cross_evaluate(Uniform(2), batch, discount=0.0, n_resamples=5),
    ):
        with pytest.warns(EvidenceWarning, match="only 20 episodes") as caught:
            ask()
        assert {w.filename for w in caught} == {__file__}


# -- anything ------------------------------------------------------------------------------------------


@st.composite
def logs(draw):
    """Small logs with whatever may be in them."""
    lengths = draw(st.lists(st.integers(1, 4), min_size=2, max_size=8))
    n, n_actions = sum(lengths), draw(st.integers(1, 3))
    numbers = st.floats(-1e6, 1e6).map(lambda v: 0.0 if abs(v) < 1e-6 else v)
    column = lambda values: np.array(draw(st.lists(values, min_size=n, max_size=n)))  # noqa: E731
    last = np.zeros(n, dtype=bool)
    last[np.cumsum(lengths) - 1] = True
    extra = {}
    if draw(st.booleans()):
        extra["propensities"] = column(st.sampled_from([1.0, 0.5, 0.1, 1e-3, 1e-200, 5e-324]))
    if draw(st.booleans()):
        weights = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5, 1e-3]), min_size=len(lengths), max_size=len(lengths)))
        weights[0] = 1.0
        extra["weights"] = np.repeat(weights, lengths)
    return Transitions(
        np.where(column(st.booleans()), column(st.sampled_from([0.0, 1.0, 2.0])), np.nan)[:, None],
        column(st.integers(0, n_actions - 1)),
        column(numbers),
        column(numbers)[:, None],
        last & column(st.booleans()),
        n_actions=n_actions,
        episodes=np.repeat(np.arange(len(lengths)), lengths),
        **extra,
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)
@given(logs(), st.sampled_from([0.0, 0.5, 0.99]), st.floats(0, 1))
def test_any_log_gives_numbers_with_their_warnings_or_a_reason(batch, discount, epsilon):
    policy = EpsilonGreedy(Constant(0, batch.n_actions), epsilon)
    try:
        found = told(policy, batch, discount=discount, n_resamples=4, n_folds=2, regression=Regression(n_trees=2))
    except InvalidInputError:
        return
    assert found.unreliable  # so few episodes prove nothing
    assert np.isfinite(found.behaviour.value)
    assert np.isfinite(found.estimates["fitted-q"].value)
    assert 0 <= found.effective_episodes <= found.n_episodes * (1 + 1e-9)
    assert 0 <= found.extrapolated_share <= 1
    assert 0 <= found.rarely_taken_share <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found.verdict.endswith("see the warnings.")
        found.to_dict()
        str(found)


def test_a_state_that_hides_the_time_left_is_found_out():
    """Episodes of three steps and a constant state: fitted Q believes that they end by chance, and weights know better."""
    n = 300
    rng = np.random.default_rng(0)
    ends = np.arange(n) % 3 == 2
    zeros = np.zeros((n, 1))
    rewards = 1.0 + 0.1 * rng.normal(size=n)
    actions = rng.integers(2, size=n)
    batch = Transitions(zeros, actions, rewards, zeros, ends, episodes=np.arange(n) // 3, propensities=np.full(n, 0.5))
    found = hushed(Uniform(2), batch, discount=0.9)
    assert found.estimates["doubly-robust"].value == pytest.approx(2.71, abs=0.05)
    assert found.estimates["fitted-q"].value == pytest.approx(2.5, abs=0.05)
    assert any("differ by more than chance explains" in warning.text for warning in found.warnings)
    assert not found.unreliable
    assert hushed(Uniform(2), batch, discount=0.9, method="fitted-q").unreliable
    timed = remade(batch, states=(np.arange(n) % 3)[:, None], next_states=(np.arange(n) % 3 + 1)[:, None])
    assert not any("chance" in warning.text for warning in hushed(Uniform(2), timed, discount=0.9).warnings)


def test_one_episode_that_decides_is_told():
    batch = bandit(100)
    rewards = batch.rewards.copy()
    rewards[np.flatnonzero(batch.actions == 1)[0]] = 1e6
    found = told(Constant(1, 2), remade(batch, rewards=rewards), discount=0.0)
    assert warned_of(found, "a single episode dominates the estimate")
    assert found.unreliable
    assert not warned_of(told(Constant(1, 2), batch, discount=0.0), "a single episode")


def test_given_probabilities_that_do_not_fit_some_states_are_told():
    """In the mean over all states they do: half of the states have the others' probabilities."""
    rng = np.random.default_rng(0)
    x = rng.random((600, 1))
    likely = np.where(x[:, 0] < 0.5, 0.8, 0.2)
    actions = (rng.random(600) < likely).astype(int)
    right = np.where(actions == 1, likely, 1 - likely)
    plain = {"terminated": np.ones(600, dtype=bool), "n_actions": 2}
    batch = Transitions(x, actions, rng.random(600), x, propensities=right, **plain)
    assert not warned_of(told(Uniform(2), batch, discount=0.0), "do not match its actions")
    wrong = Transitions(x, actions, batch.rewards, x, propensities=np.full(600, 0.5), **plain)
    assert warned_of(told(Uniform(2), wrong, discount=0.0), "do not match its actions")


def test_discount_zero_and_long_episodes_are_told_together():
    assert warned_of(told(Uniform(2), walks(60), discount=0.0), "only the first decision of each episode counts")


def test_a_score_is_for_policies_of_the_batch():
    with pytest.raises(
        InvalidInputError, match="policy must have as many actions as the batch: it has 3 actions, the batch 2"
    ):
        fitted_value(Constant(0, 3), bandit(20), discount=0.0)
    with pytest.raises(InvalidInputError, match="must be a Policy"):
        fitted_value("always", bandit(20), discount=0.0)
    with pytest.raises(InvalidInputError, match="batch must be a Transitions"):
        fitted_value(Constant(0, 2), [1, 2], discount=0.0)


def fields_of(found, kind):
    """Return severity, count and share of the caveat of a kind."""
    (caveat,) = (c for c in found.warnings if c.kind == kind)
    return caveat.severity, caveat.count, caveat.share


def test_caveats_have_the_numbers_that_their_words_state():
    few = told(Uniform(2), remade(bandit(9), propensities=np.full(9, 0.5)), discount=0.0)
    assert fields_of(few, "few-episodes") == ("severe", 9, None)
    poor = told(Constant(1, 2), long_walk(100, 8))
    assert fields_of(poor, "little-overlap") == ("severe", poor.effective_episodes, None)
    rare = bandit(100)
    probabilities = np.where(np.arange(100) < 3, 0.005, rare.propensities)
    found = told(Uniform(2), remade(rare, propensities=probabilities), discount=0.0)
    assert fields_of(found, "improbable-decisions") == ("warning", 3, 0.03)
    found = told(EpsilonGreedy(Constant(1, 3), 0.3), remade(bandit(60), n_actions=3), discount=0.0)
    assert fields_of(found, "unlogged-actions") == ("severe", pytest.approx(6), pytest.approx(0.1))
    rewards = bandit(100).rewards.copy()
    rewards[np.flatnonzero(bandit(100).actions == 1)[0]] = 1e6
    found = told(Constant(1, 2), remade(bandit(100), rewards=rewards), discount=0.0)
    assert fields_of(found, "dominant-episode") == ("severe", 1, None)


def test_of_several_shares_the_one_that_points_at_the_fewest_counts():
    assert _most_telling([0.3, 0.1, 0.4]) == 0.1
    assert _most_telling([0.3, 0.95]) == 0.95
    assert _most_telling([1.0]) == 1.0


def test_caveats_of_one_severity_decide_whether_the_number_is_unreliable():
    found = hushed(Uniform(2), bandit(60), discount=0.0)
    for severity, unreliable in (("note", False), ("warning", False), ("severe", True)):
        changed = replace(found, warnings=(Caveat("some-kind", "words", severity),))
        assert changed.unreliable is unreliable
        assert changed.to_dict()["unreliable"] is unreliable
