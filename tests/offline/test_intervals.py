"""Bootstrap and asymptotic intervals, paired differences, and what must not change them."""

import numpy as np
import pytest
from scipy import stats

from capi.offline import compare, evaluate
from capi.offline.estimate import Estimate
from capi.offline.estimators import MeanOfEpisodes
from capi.offline.resampling import resampled
from capi.policies import Constant, EpsilonGreedy, Uniform
from offline.helpers import SAMPLING, bandit, hushed, quickly, remade, repeated, walks

NO_FOLDS = {"methods": SAMPLING, "n_resamples": 5}


def numbers_of(found):
    """Everything that was computed, as bytes."""
    estimates = [*found.estimates.values(), found.behaviour]
    return b"".join(np.array([e.value, *e.draws, *e.influence]).tobytes() for e in estimates)


def estimates_of(found):
    return {method: estimate.value for method, estimate in found.estimates.items()}


def test_the_bootstrap_of_a_mean_is_close_to_normal_theory():
    values = np.random.default_rng(0).exponential(size=500)
    (draws,) = resampled([MeanOfEpisodes(values)], np.ones(500), 2000, np.random.SeedSequence(0), 0, 1)
    estimator = MeanOfEpisodes(values)
    estimate = Estimate(values.mean(), draws, estimator.influence(np.ones(500)), 0.9)
    se = values.std(ddof=1) / np.sqrt(500)
    assert estimate.standard_error == pytest.approx(se)
    assert draws.std() == pytest.approx(se, rel=0.06)
    half = stats.norm.ppf(0.95) * se
    assert estimate.bootstrap == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    half = stats.t.ppf(0.95, 499) * se
    assert estimate.asymptotic == pytest.approx((values.mean() - half, values.mean() + half))


def test_the_interval_of_a_weighted_mean_is_that_of_its_influence():
    """The variance of a ratio of means, by the delta method."""
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=800), rng.exponential(size=800)
    weights /= weights.mean()
    estimator = MeanOfEpisodes(values)
    (draws,) = resampled([estimator], weights, 1500, np.random.SeedSequence(0), 0, 1)
    estimate = Estimate(0.0, draws, weights * estimator.influence(weights), 0.95)
    mean = np.average(values, weights=weights)
    assert estimate.standard_error == pytest.approx(np.sqrt(((weights * (values - mean)) ** 2).sum()) / 800, rel=0.01)
    assert draws.std() == pytest.approx(estimate.standard_error, rel=0.08)


def test_whole_episodes_are_drawn_with_replacement_and_their_weights_stay_with_them():
    class Kept:
        def values(self, counts):
            self.counts = counts
            return counts.sum(axis=1)

    kept, weights = Kept(), np.array([1.0, 2.0, 0.5, 0.5])
    resampled([kept], weights, 50, np.random.SeedSequence(0), 0, 1)
    drawn = kept.counts / weights
    np.testing.assert_array_equal(drawn, drawn.round())
    assert (drawn.sum(axis=1) == 4).all()
    assert len({tuple(row) for row in drawn}) > 20


def test_lost_resamples_are_left_out_and_too_many_of_them_leave_no_interval():
    draws = np.arange(100.0)
    draws[:10] = np.nan
    few = Estimate(50.0, draws, np.zeros(4), 0.9)
    ends = np.array([9 + 0.05 * 91, 9 + 0.95 * 91])  # b of B numbers stands at b / (B + 1)
    wider = stats.t.ppf(0.95, 3) / stats.norm.ppf(0.95) * np.sqrt(4 / 3)
    assert few.bootstrap == pytest.approx(tuple(50.0 + wider * (ends - 50.0)))
    draws[:11] = np.nan
    assert np.isnan(Estimate(50.0, draws, np.zeros(4), 0.9).bootstrap).all()
    assert np.isnan(Estimate(np.nan, np.arange(100.0), np.zeros(4), 0.9).bootstrap).all()
    assert np.isnan(Estimate(1.0, np.ones(1), np.zeros(4), 0.9).bootstrap).all()
    assert np.isnan(Estimate(1.0, np.ones(9), np.zeros(1), 0.9).asymptotic).all()


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_a_policy_and_itself_differ_by_exactly_nothing():
    found = quickly({"one": Constant(1, 2), "other": Constant(1, 2), "third": Constant(0, 2)}, walks())
    for method, estimate in found["one"].estimates.items():
        difference = estimate - found["other"].estimates[method]
        assert (difference.value, *difference.bootstrap, *difference.asymptotic) == (0, 0, 0, 0, 0), method
    mixed = EpsilonGreedy(Constant(1, 2), 0.5)
    comparable = quickly({"one": mixed, "other": mixed}, walks(200), n_resamples=100)
    assert "no significant difference between one and other" in comparable.verdict("one", "other")
    assert found.difference("one", "third").value != 0


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_differences_are_antisymmetric_and_paired():
    found = quickly({"a": EpsilonGreedy(Constant(1, 2), 0.5), "b": Uniform(2)}, walks(200), n_resamples=100)
    there, back = found.difference("a", "b"), found.difference("b", "a")
    assert there.value == -back.value
    low, high = there.bootstrap
    assert back.bootstrap == pytest.approx((-high, -low))
    assert there.standard_error == back.standard_error
    apart = np.hypot(*(found[name].estimates[found.method].standard_error for name in "ab"))
    assert there.standard_error < 0.8 * apart  # what both gain from the same episodes is no difference


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_a_policy_is_worth_the_same_in_whatever_company():
    batch = walks()
    alone = hushed(Constant(1, 2), batch)
    among = quickly({"first": Uniform(2), "the policy": Constant(1, 2)}, batch, method="doubly-robust")["the policy"]
    assert numbers_of(among) == numbers_of(alone)


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_the_same_seed_gives_the_same_bytes_for_any_number_of_threads():
    batch = remade(walks(40), propensities=None)
    settings = {"n_resamples": 6, "discount": 0.9, "n_folds": 2}
    one, again, threads, other = (
        numbers_of(evaluate(EpsilonGreedy(Constant(1, 2), 0.3), batch, random_state=seed, n_jobs=n, **settings))
        for seed, n in ((0, 1), (0, None), (0, 2), (1, 1))
    )
    assert one == again == threads
    assert one != other


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_without_a_seed_results_differ_and_a_generator_moves_on():
    batch, rng = walks(), np.random.default_rng(0)
    assert numbers_of(hushed(Uniform(2), batch, random_state=None)) != numbers_of(
        hushed(Uniform(2), batch, random_state=None)
    )
    assert numbers_of(hushed(Uniform(2), batch, random_state=rng)) != numbers_of(
        hushed(Uniform(2), batch, random_state=rng)
    )


def test_the_order_of_the_episodes_does_not_matter():
    batch = walks(60, ends=1.0)
    order = np.random.default_rng(0).permutation(60)
    rows = np.concatenate([np.flatnonzero(batch.episodes == i) for i in order])
    shuffled = remade(
        batch,
        **{name: getattr(batch, name)[rows] for name in ("states", "actions", "rewards", "next_states", "terminated")},
        propensities=batch.propensities[rows],
        episodes=batch.episodes[rows],
    )
    policy = EpsilonGreedy(Constant(1, 2), 0.5)
    one, other = (hushed(policy, b, **NO_FOLDS) for b in (batch, shuffled))
    assert estimates_of(other) == pytest.approx(estimates_of(one), rel=1e-12)
    assert other.effective_episodes == pytest.approx(one.effective_episodes)
    for method, estimate in one.estimates.items():
        np.testing.assert_allclose(other.estimates[method].influence, estimate.influence[order], atol=1e-12)


def test_a_reward_for_everybody_is_added_and_a_scale_is_a_factor():
    batch = bandit(150)
    policy = EpsilonGreedy(Constant(1, 2), 0.4)
    plain, more, scaled = (
        hushed(policy, remade(batch, rewards=rewards), discount=0.0)
        for rewards in (batch.rewards, batch.rewards + 8, batch.rewards * 4)
    )
    for method in ("weighted", "weighted-per-decision", "weighted-doubly-robust", "fitted-q", "doubly-robust"):
        # trees of shifted rewards may round another way, so the doubly robust ones are only close
        close = {"rel": 1e-9} if method not in ("doubly-robust", "weighted-doubly-robust") else {"abs": 0.05}
        assert more.estimates[method].value == pytest.approx(plain.estimates[method].value + 8, **close), method
        assert more.estimates[method].standard_error == pytest.approx(plain.estimates[method].standard_error, rel=0.05)
    assert more.behaviour.value == pytest.approx(plain.behaviour.value + 8)
    for method, estimate in plain.estimates.items():
        assert scaled.estimates[method].value == pytest.approx(4 * estimate.value, rel=1e-9), method
        np.testing.assert_allclose(scaled.estimates[method].draws, 4 * estimate.draws, rtol=1e-9)
        assert scaled.estimates[method].asymptotic == pytest.approx(tuple(4 * x for x in estimate.asymptotic))


def test_whole_weights_are_repeated_episodes():
    batch = walks(40)
    counts = np.random.default_rng(0).integers(0, 4, size=40)
    lengths = batch.episode_lengths
    policy = EpsilonGreedy(Constant(1, 2), 0.5)
    ended = remade(batch, terminated=np.append(batch.episodes[1:] != batch.episodes[:-1], True))
    counted = hushed(policy, remade(ended, weights=np.repeat(counts, lengths) * 0.1), **NO_FOLDS)
    copied = hushed(policy, repeated(ended, counts), **NO_FOLDS)
    assert estimates_of(counted) == pytest.approx(estimates_of(copied), rel=1e-9)
    assert counted.behaviour.value == pytest.approx(copied.behaviour.value)
    assert counted.n_episodes == (counts > 0).sum()  # what does not count is not there


@pytest.mark.filterwarnings("ignore::capi.errors.EvidenceWarning")
def test_episodes_of_weight_zero_are_as_if_they_were_not_there():
    batch = walks(40)
    kept = np.arange(40) % 3 > 0
    rows = np.repeat(kept, batch.episode_lengths)
    weighted = remade(batch, weights=np.where(rows, 2.0, 0.0))
    one, other = (hushed(Uniform(2), b) for b in (weighted, batch.subset(rows)))
    assert numbers_of(one)[:8] == numbers_of(other)[:8]
    assert estimates_of(one) == pytest.approx(estimates_of(other), rel=1e-9)


def test_relabelled_actions_are_worth_the_same():
    batch = bandit(100, n_actions=3)
    renamed = remade(batch, actions=(batch.actions + 1) % 3)
    one, other = (hushed(Constant(a, 3), b, discount=0.0, **NO_FOLDS) for a, b in ((1, batch), (2, renamed)))
    assert estimates_of(one) == pytest.approx(estimates_of(other), rel=1e-12)


def test_a_higher_level_has_a_wider_interval_within_the_draws():
    spans = {}
    for level in (0.5, 0.9):
        found = hushed(Uniform(2), bandit(100), discount=0.0, level=level, n_resamples=200)
        assert found.level == level
        spans[level] = found.interval, found.estimates[found.method].asymptotic
    for narrow, wide in zip(spans[0.5], spans[0.9], strict=True):
        assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_compare_takes_the_settings_of_evaluate():
    batch = bandit(100)
    one = evaluate(Uniform(2), batch, discount=0.0, n_resamples=10, n_folds=3, methods=["fitted-q", "weighted"])
    other = compare({"x": Uniform(2)}, batch, discount=0.0, n_resamples=10, n_folds=3, methods=["fitted-q", "weighted"])
    assert numbers_of(one) == numbers_of(other["x"])


def test_standard_errors_know_how_much_each_episode_counts():
    batch = bandit(400)
    weight = np.random.default_rng(1).exponential(size=400)
    found = hushed(Uniform(2), remade(batch, weights=weight), discount=0.0, n_resamples=300, methods=SAMPLING)
    share = weight / weight.mean()
    moved = share * (batch.rewards - np.average(batch.rewards, weights=weight))
    assert found.behaviour.standard_error == pytest.approx(moved.std(ddof=1) / 20)
    for estimate in (*found.estimates.values(), found.behaviour):
        assert np.std(estimate.draws) == pytest.approx(estimate.standard_error, rel=0.15)
