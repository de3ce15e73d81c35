"""Importance sampling and doubly robust estimation: closed forms, slow twins, derivatives."""

import numpy as np
import pytest

import builders
import naive
from capi import Transitions
from capi.offline.episodes import Episodes
from capi.offline.estimators import MeanOfEpisodes, SumOfRatios
from capi.offline.importance_weights import Weights
from offline.helpers import WEIGHTINGS, estimators, of_model, ratios_of, walks

UNBIASED = ("per-decision", "doubly-robust")


def value_of_all(found, probabilities):
    return {method: float(estimator.values(probabilities[None])[0]) for method, estimator in found.items()}


@pytest.mark.parametrize("discount", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_every_log_in_its_frequency_gives_exactly_the_value_whatever_the_model(seed, discount):
    """For means of episodes this is that they are unbiased, for ratios that they are consistent: episodes of different lengths included."""
    rng = np.random.default_rng(seed)
    process = builders.Layers(rng)
    batch, p = process.every_log()
    assert p.sum() == pytest.approx(1)
    assert set(batch.episode_lengths) == {1, 2, 3}
    wrong = rng.normal(size=process.policy.shape)
    ratios = ratios_of(batch, process.policy, process.behaviour)
    found = estimators(batch, discount, ratios, *of_model(batch, wrong, process.policy))
    expected = dict.fromkeys(WEIGHTINGS, pytest.approx(process.value(process.policy, discount), abs=1e-12))
    assert value_of_all(found, p) == expected


@pytest.mark.parametrize("seed", range(4))
def test_with_the_true_values_doubly_robust_needs_no_probabilities(seed):
    rng = np.random.default_rng(seed)
    process = builders.Layers(rng)
    batch, p = process.every_log()
    ratios = ratios_of(batch, rng.uniform(0.1, 5.0, size=process.policy.shape), process.behaviour)
    q = process.values(process.policy, 0.9)[1]
    found = value_of_all(estimators(batch, 0.9, ratios, *of_model(batch, q, process.policy)), p)
    value = pytest.approx(process.value(process.policy, 0.9), abs=1e-12)
    assert found["doubly-robust"] == value
    assert found["weighted-doubly-robust"] == value
    assert all(found[method] != value for method in ("weighted", "per-decision", "weighted-per-decision"))


@pytest.mark.parametrize("longest", [1, 2])
def test_truncated_episodes_that_are_closed_with_the_true_values_give_exactly_the_value(longest):
    rng = np.random.default_rng(5)
    process = builders.Layers(rng)
    batch, p = process.every_log(longest)
    assert not batch.terminated[Episodes(batch, 0.9).last].all()
    start, _, following = of_model(batch, process.values(process.policy, 0.9)[1], process.policy)
    wrong = rng.normal(size=len(batch)), np.where(Episodes(batch, 0.9).time < longest - 1, rng.normal(), following)
    ratios = ratios_of(batch, process.policy, process.behaviour)
    value = pytest.approx(process.value(process.policy, 0.9), abs=1e-12)
    found = value_of_all(estimators(batch, 0.9, ratios, start, *wrong), p)
    assert {method: found[method] for method in ("weighted", "per-decision", "weighted-per-decision")} == dict.fromkeys(
        ("weighted", "per-decision", "weighted-per-decision"), value
    )
    right = value_of_all(
        estimators(batch, 0.9, ratios, *of_model(batch, process.values(process.policy, 0.9)[1], process.policy)), p
    )
    assert right == dict.fromkeys(WEIGHTINGS, value)


@pytest.fixture(params=range(3))
def drawn(request):
    """A random log, ratios (some zero) and a random model of it."""
    rng = np.random.default_rng(request.param)
    batch = walks(n_episodes=25, longest=6, seed=request.param)
    ratios = rng.lognormal(sigma=0.7, size=len(batch)) * (rng.random(len(batch)) > 0.05)
    following = np.where(batch.terminated, 0.0, rng.normal(size=len(batch)))
    model = rng.normal(size=batch.n_episodes), rng.normal(size=len(batch)), following
    return batch, ratios, model, rng.uniform(0.2, 3.0, size=batch.n_episodes)


def test_estimates_match_naive(drawn):
    batch, ratios, (start, taken, following), counts = drawn
    episodes, discount = naive.rows_of_episodes(batch), 0.8
    weights = naive.running_products(episodes, ratios)
    rewards = naive.closed_returns(episodes, batch, discount, following)
    model = start, taken, following
    # the backward recursion needs the state's own value before each row: the model's next value of the row before
    expected = {
        "doubly-robust": naive.doubly_robust(episodes, batch, discount, ratios, *model, counts),
        "weighted-doubly-robust": naive.weighted_doubly_robust(episodes, batch, discount, weights, *model, counts),
        "weighted": naive.weighted(weights, rewards, counts),
        "per-decision": naive.per_decision(weights, rewards, counts),
        "weighted-per-decision": naive.weighted_per_decision(weights, rewards, counts),
    }
    found = value_of_all(estimators(batch, discount, ratios, *model), counts)
    assert found == pytest.approx(expected, rel=1e-10)


def test_weights_and_their_effective_number_match_naive(drawn):
    batch, ratios, _, counts = drawn
    episodes = naive.rows_of_episodes(batch)
    expected = naive.running_products(episodes, ratios)
    counted = Transitions(
        batch.states, batch.actions, batch.rewards, batch.next_states, batch.terminated, n_actions=2,
        episodes=batch.episodes, weights=counts[Episodes(batch, 0.8).of_row],
    )  # fmt: skip
    weights = Weights(Episodes(counted, 0.8), ratios)
    np.testing.assert_allclose(weights.of_rows, np.concatenate(expected), rtol=1e-12)
    np.testing.assert_allclose(weights.of_episodes, [products[-1] for products in expected], rtol=1e-12)
    assert weights.effective_episodes == pytest.approx(naive.effective_episodes(expected, counts, 0.8))
    assert weights.overlap.largest_share == pytest.approx(max(c * w[-1] for c, w in zip(counts, expected, strict=True)) / sum(
        c * w[-1] for c, w in zip(counts, expected, strict=True)
    ))  # fmt: skip


def test_equal_weights_are_worth_all_episodes_and_one_heavy_one_is_worth_one():
    e = Episodes(walks(n_episodes=20), 0.9)
    assert Weights(e, np.ones(len(e.batch))).effective_episodes == pytest.approx(20)
    ratios = np.where(e.of_row == 3, 2.0, 0.0)
    assert Weights(e, ratios).effective_episodes == pytest.approx(1)
    assert Weights(e, ratios).overlap.largest_share == 1


def test_weights_of_a_long_log_do_not_depend_on_what_stands_before_them():
    """Each episode's sums of logarithms start afresh: a million rows of large ratios leave no trace in the last episode."""
    n = 1_000_000
    episode = np.append(np.arange(n) // 100, [n, n])
    states = np.zeros((n + 2, 1))
    batch = Transitions(
        states, np.zeros(n + 2, dtype=int), np.zeros(n + 2), states, np.zeros(n + 2, dtype=bool), episodes=episode
    )
    ratios = np.append(np.exp(np.random.default_rng(0).normal(0.5, 3.0, size=n)), [3.0, 0.1])
    np.testing.assert_allclose(Weights(Episodes(batch, 0.9), ratios).of_rows[-2:], [3.0, 0.3], rtol=1e-11)


def test_decisions_that_are_worth_nothing_at_the_start_carry_no_weight():
    batch = walks(n_episodes=10, longest=5)
    e = Episodes(batch, 0.0)
    ratios = np.where(e.time == 0, 2.0, 0.0)
    weights = Weights(e, ratios)
    np.testing.assert_allclose(weights.of_rows, 2.0, rtol=1e-15)
    assert weights.overlap.lost_after is None


def test_a_step_without_weight_adds_nothing_to_a_correction_and_leaves_no_ratio_without_one():
    batch = walks(n_episodes=8, longest=3, seed=2)
    e = Episodes(batch, 0.9)
    ratios = np.where(e.time == 1, 0.0, 1.0)
    weights = Weights(e, np.where(e.lengths[e.of_row] == 1, 0.0, ratios))  # no episode is left at the second step
    assert weights.overlap.lost_after == 1
    numbers, ones = np.ones(len(batch)), np.ones((1, 8))
    assert SumOfRatios.by_step(weights, numbers, np.full(8, 5.0)).values(ones) == pytest.approx(6.0)
    assert np.isnan(SumOfRatios.by_step(weights, numbers).values(ones)).all()
    assert np.isnan(SumOfRatios.of_whole(weights, np.ones(8)).values(ones)).all()


def central_differences(estimator, counts, step=1e-5):
    """The derivative in each count, times their sum."""
    out = np.empty(len(counts))
    for i in range(len(counts)):
        moved = np.array([counts, counts])
        moved[:, i] += [step, -step]
        high, low = estimator.values(moved)
        out[i] = (high - low) / (2 * step)
    return out * counts.sum()


@pytest.mark.parametrize("method", WEIGHTINGS)
def test_influence_is_the_derivative_in_the_counts(drawn, method):
    batch, ratios, model, counts = drawn
    estimator = estimators(batch, 0.8, ratios, *model)[method]
    expected = central_differences(estimator, counts)
    found = estimator.influence(counts)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())
    assert counts @ found == pytest.approx(0, abs=1e-9 * np.abs(found).max())  # scaling all counts changes nothing


def test_countings_are_taken_one_by_one_however_many_there_are(drawn, monkeypatch):
    batch, ratios, model, _ = drawn
    counts = np.random.default_rng(0).integers(4, size=(7, batch.n_episodes)).astype(float)
    for estimator in estimators(batch, 0.8, ratios, *model).values():
        whole = estimator.values(counts)
        monkeypatch.setattr("capi.offline.estimators.MOST_SUMS", 13)
        np.testing.assert_array_equal(estimator.values(counts), whole)
        np.testing.assert_allclose([estimator.values(row[None])[0] for row in counts], whole, rtol=1e-12)
        monkeypatch.undo()


def test_a_mean_counts_as_it_is_told():
    estimator = MeanOfEpisodes(np.array([1.0, 4.0]))
    np.testing.assert_allclose(estimator.values(np.array([[1.0, 1.0], [3.0, 1.0]])), [2.5, 1.75])
    np.testing.assert_allclose(estimator.influence(np.array([3.0, 1.0])), [-0.75, 2.25])
