"""Fitted Q evaluation on kept trees: its fixed point, its resamples, its derivative."""

from dataclasses import replace

import numpy as np
import pytest

import builders
import naive
from capi.offline.episodes import Episodes
from capi.offline.fitted_q import FittedStart, Regression, fitted_evaluation
from capi.offline.score import fitted_value
from capi.policies import Constant, EpsilonGreedy, Uniform
from capi.testing import check_policy
from offline.helpers import Table, bandit, hushed, quick, remade, repeated, walks

SMALL = Regression(n_trees=3, min_samples_leaf=2)


@pytest.fixture(params=["rows", "leaves"])
def sweeps(request, monkeypatch):
    """Solve from row to row, as if all leaves were small, and through the leaves, as if all were large."""
    monkeypatch.setattr("capi.evaluators.under_policy.SMALL_CELLS", 1e9 if request.param == "rows" else 0)


def fitted_of(batch, policy=None, discount=0.8, regression=SMALL, seed=0):
    policy = Uniform(batch.n_actions) if policy is None else policy
    return fitted_evaluation(policy, Episodes(batch, discount), regression, np.random.default_rng(seed))


def with_rewards(fitted, rewards):
    """Return the evaluation of other rewards on the same trees."""
    under, e = fitted.under, fitted.episodes
    batch = remade(e.batch, rewards=rewards)
    model = replace(under.model, batch=batch)
    return replace(fitted, episodes=Episodes(batch, e.discount), under=replace(under, model=model, guess=None))


@pytest.mark.usefixtures("sweeps")
@pytest.mark.parametrize("policy", [Uniform(3), Constant(1, 3)], ids=["uniform", "constant"])
def test_the_solution_is_the_fixed_point_of_plain_sweeps(policy):
    batch = walks(n_episodes=15, n_actions=3)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=15)
    batch = remade(batch, weights=weights[Episodes(batch, 0.8).of_row])
    fitted = fitted_of(batch, policy)
    dense = naive.DenseSystem.of(fitted)
    theta = naive.leaf_values(dense, fitted.episodes.weights)
    np.testing.assert_allclose(dense.theta, theta, atol=1e-9)
    np.testing.assert_allclose(fitted.next_values, dense.following @ theta, atol=1e-9)
    q = fitted.q.values(batch.states[fitted.episodes.starts])
    expected = (q * policy.probabilities(batch.states[fitted.episodes.starts])).sum(axis=1)
    np.testing.assert_allclose(dense.initial @ theta, expected, atol=1e-9)


@pytest.mark.usefixtures("sweeps")
def test_counting_episodes_is_repeating_them_on_the_same_leaves(monkeypatch):
    monkeypatch.setattr("capi.offline.fitted_q.CLOSE", 1e-12)
    batch = walks(n_episodes=15, n_actions=2)
    fitted = fitted_of(batch)
    e, dense = fitted.episodes, naive.DenseSystem.of(fitted)
    counts = np.where(np.random.default_rng(0).random(15) < 0.6, 0, 3)
    rows = np.concatenate([np.tile(np.flatnonzero(e.of_row == i), c) for i, c in enumerate(counts)]).astype(int)
    again = replace(
        dense,
        episodes=Episodes(repeated(batch, counts), 0.8),
        taken=dense.taken[rows],
        following=dense.following[rows],
        initial=dense.initial[np.repeat(np.arange(15), counts)],
    )
    assert not (again.taken.sum(axis=0) > 0).all()  # leaves that no drawn episode visits keep their values
    theta = naive.left_out_leaf_values(again, dense)
    assert fitted.value(counts.astype(float)) == pytest.approx((again.initial @ theta).mean(), abs=1e-9)


@pytest.mark.usefixtures("sweeps")
def test_the_own_counting_is_the_estimate_itself():
    fitted = fitted_of(walks(n_episodes=20))
    assert fitted.value(np.ones(20)) == pytest.approx(fitted.under.value, rel=1e-9)
    assert fitted.value(np.full(20, 7.0)) == pytest.approx(fitted.under.value, rel=1e-9)  # only shares matter


@pytest.mark.usefixtures("sweeps")
@pytest.mark.parametrize("discount", [0.0, 0.8, 0.99])
def test_influence_is_the_derivative_in_the_counts(discount, monkeypatch):
    monkeypatch.setattr("capi.offline.fitted_q.CLOSE", 1e-13)
    monkeypatch.setattr("capi.offline.fitted_q.EXACT", 1e-13)
    batch = walks(n_episodes=18, n_actions=2)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=18)
    weights /= weights.mean()
    batch = remade(batch, weights=weights[Episodes(batch, 0.8).of_row])
    parts = []
    for k in range(3):  # as in cross evaluation, a policy a part
        members = np.flatnonzero(np.arange(18) % 3 == k)
        part = batch.subset(np.isin(Episodes(batch, 0.8).of_row, members))
        parts.append((members, fitted_of(part, EpsilonGreedy(Constant(k % 2, 2), 0.3), discount, seed=k)))
    for estimator in (
        FittedStart([(np.arange(18), fitted_of(batch, discount=discount))], weights),
        FittedStart(parts, weights),
    ):
        expected = np.empty(18)
        for i in range(18):
            moved = np.array([weights, weights])
            moved[:, i] += [1e-4, -1e-4]
            high, low = estimator.values(moved)
            expected[i] = (high - low) / 2e-4 * weights.sum()
        found = estimator.influence(weights)
        np.testing.assert_allclose(found, expected, atol=3e-5 * np.abs(expected).max())
        assert weights @ found == pytest.approx(0, abs=1e-7 * np.abs(found).max())


def test_several_parts_are_one_number_by_their_counts():
    batch = walks(n_episodes=20)
    halves = [np.arange(10), np.arange(10, 20)]
    of_row = Episodes(batch, 0.8).of_row
    evaluations = [fitted_of(batch.subset(np.isin(of_row, half))) for half in halves]
    counts = np.random.default_rng(0).integers(1, 4, size=20).astype(float)
    both = FittedStart(list(zip(halves, evaluations, strict=True)), np.ones(20))
    means = [fitted.value(counts[half]) for half, fitted in zip(halves, evaluations, strict=True)]
    expected = np.average(means, weights=[counts[half].sum() for half in halves])
    np.testing.assert_allclose(both.values(counts[None]), [expected])
    only_first = np.where(np.arange(20) < 10, counts, 0.0)  # nothing of the second was drawn
    np.testing.assert_allclose(both.values(only_first[None]), [means[0]])


def test_resamples_by_the_derivative_are_close_to_those_by_the_system():
    batch = walks(n_episodes=400)
    e = Episodes(batch, 0.8)
    fitted = fitted_of(batch, regression=Regression(n_trees=5, min_samples_leaf=20))
    counts = np.random.default_rng(0).multinomial(400, np.full(400, 1 / 400), size=30).astype(float)
    solved, derived = (
        FittedStart([(np.arange(400), fitted)], e.weights, linear=linear).values(counts) for linear in (False, True)
    )
    assert np.corrcoef(solved, derived)[0, 1] > 0.98
    assert derived.std() == pytest.approx(solved.std(), rel=0.15)


def test_resamples_are_as_exact_for_large_values_as_for_small_ones():
    """A constant reward adds c / (1 - discount) where nothing ends, to every resample alike."""
    batch = walks(n_episodes=60, longest=10, ends=0.0)
    discount, shift = 0.98, 1e5
    plain = fitted_of(batch, discount=discount, regression=Regression(n_trees=3, min_samples_leaf=10))
    shifted = with_rewards(plain, batch.rewards + shift)
    counts = np.random.default_rng(0).multinomial(60, np.full(60, 1 / 60), size=10).astype(float)
    expected = np.array([plain.value(c) for c in counts])
    found = np.array([shifted.value(c) for c in counts]) - shift / (1 - discount)
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=0.03 * expected.std())


@pytest.mark.parametrize("discount", [0.9, 0.999])
def test_all_possible_logs_in_their_frequency_give_the_exact_value(discount):
    process = builders.Layers(np.random.default_rng(3))
    batch, p = process.every_log()
    batch = remade(batch, weights=p[Episodes(batch, discount).of_row])
    regression = Regression(n_trees=2, min_samples_leaf=1)
    policy = Table(process.policy)
    check_policy(policy, batch.states, 2)
    found = hushed(policy, batch, discount=discount, methods=["fitted-q"], n_resamples=2, regression=regression)
    assert found.estimate == pytest.approx(process.value(process.policy, discount), abs=1e-8)
    assert found.behaviour.value == pytest.approx(process.value(process.behaviour, discount), abs=1e-12)


def test_much_data_of_a_finite_process_give_about_its_value():
    rng = np.random.default_rng(0)
    process = builders.Layers(rng)
    batch, p = process.every_log()
    drawn = remade(repeated(batch, rng.multinomial(3000, p)))
    policy = Table(process.policy)
    found = quick(policy, drawn, n_resamples=100, regression=Regression(n_trees=3, min_samples_leaf=1))
    value = process.value(process.policy, 0.9)
    for method, estimate in found.estimates.items():
        assert abs(estimate.value - value) < 4 * estimate.standard_error, method
        assert 0 < estimate.standard_error < 0.1, method
        assert np.std(estimate.draws) == pytest.approx(estimate.standard_error, rel=0.35), method


def test_values_that_hardly_fade_are_found():
    fitted = fitted_of(walks(n_episodes=40, ends=0.0), discount=0.9999)
    u, theta = fitted.next_values, fitted.under.leaf_values
    np.testing.assert_allclose(u, fitted.under.following.values(theta), atol=1e-6 * np.abs(u).max())


def test_an_action_that_nobody_takes_changes_nothing():
    two, three = walks(n_episodes=80, longest=2), remade(walks(n_episodes=80, longest=2), n_actions=3)
    found, wider = (hushed(Constant(1, b.n_actions), b) for b in (two, three))
    for method, estimate in found.estimates.items():
        assert wider.estimates[method].value == pytest.approx(estimate.value, rel=1e-12), method
    assert wider.warnings == found.warnings


def test_trees_do_not_depend_on_the_episodes_counted_nor_on_threads():
    batch = walks(n_episodes=60)
    one, two = (fitted_of(batch, regression=replace(SMALL, n_jobs=n)) for n in (1, 2))
    np.testing.assert_array_equal(one.under.leaf_values, two.under.leaf_values)
    counts = np.random.default_rng(0).integers(3, size=(6, 60)).astype(float)
    starts = [FittedStart([(np.arange(60), fitted)], np.ones(60), n) for fitted, n in ((one, 1), (two, 2))]
    np.testing.assert_array_equal(starts[0].values(counts), starts[1].values(counts))


def test_the_leaves_are_those_of_the_policys_actions_in_the_mean():
    batch = walks(n_episodes=30, n_actions=3)
    policy = EpsilonGreedy(Constant(2, 3), 0.3)
    fitted = fitted_of(batch, policy)
    dense = naive.DenseSystem.of(fitted)
    np.testing.assert_allclose(dense.taken.sum(axis=1), 3)  # a leaf a tree
    np.testing.assert_allclose(dense.following.sum(axis=1), ~batch.terminated)
    np.testing.assert_allclose(dense.initial.sum(axis=1), 1)
    q = fitted.q.values(batch.next_states)
    expected = np.where(batch.terminated, 0, (q * policy.probabilities(batch.next_states)).sum(axis=1))
    np.testing.assert_allclose(dense.following @ dense.theta, expected, atol=1e-12)


def test_without_episode_numbers_every_row_is_an_episode():
    batch = bandit(60)
    numbered = remade(batch, episodes=np.arange(60))
    for discount in (0.0, 0.5):
        one, other = (quick(Constant(1, 2), b, discount=discount) for b in (batch, numbered))
        assert one.to_dict() == other.to_dict()
    assert one.n_episodes == 60


def test_one_step_doubly_robust_is_augmented_inverse_propensity_weighting():
    """Its mean by hand; the model's values are known, so that nothing but the formula is tested."""

    class Known:
        n_actions = 2

        def values(self, states):
            return np.column_stack([np.sin(5 * states[:, 0]), states[:, 0]])

        def evaluate(self, policy, transitions, **options):
            return self

    batch, policy = bandit(80), EpsilonGreedy(Constant(1, 2), 0.4)
    found = quick(policy, batch, discount=0.0, evaluator=Known())
    q, pi = Known().values(batch.states), policy.probabilities(batch.states)
    i = np.arange(80)
    direct, ratio = (pi * q).sum(axis=1), pi[i, batch.actions] / batch.propensities
    errors = ratio * (batch.rewards - q[i, batch.actions])
    assert found.estimates["doubly-robust"].value == pytest.approx((direct + errors).mean())
    expected = direct.mean() + errors.sum() / ratio.sum()
    assert found.estimates["weighted-doubly-robust"].value == pytest.approx(expected)
    for method in ("per-decision",):
        assert found.estimates[method].value == pytest.approx((ratio * batch.rewards).mean())
    for method in ("weighted", "weighted-per-decision"):
        assert found.estimates[method].value == pytest.approx((ratio * batch.rewards).sum() / ratio.sum())
    assert found.estimates["doubly-robust"].standard_error == pytest.approx((direct + errors).std(ddof=1) / np.sqrt(80))


def test_the_quick_score_is_the_mean_of_the_first_states_and_leaves_out_what_does_not_count():
    batch = walks(n_episodes=40)
    kept = np.repeat(np.arange(40) % 4 > 0, batch.episode_lengths)
    weighted = remade(batch, weights=np.where(kept, 2.0, 0.0))
    scores = [fitted_value(Constant(1, 2), b, discount=0.8, random_state=3) for b in (weighted, batch.subset(kept))]
    assert scores[0] == pytest.approx(scores[1], rel=1e-9)
    episodes = Episodes(batch.subset(kept), 0.8)
    fitted = fitted_evaluation(Constant(1, 2), episodes, Regression(), np.random.default_rng(3))
    assert scores[1] == pytest.approx(fitted.value(np.ones(30)), rel=1e-12)
