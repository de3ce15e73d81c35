"""Scores in one model for all policies, or in two, each with the trees of one half of the episodes and the averages of the other."""

import numpy as np
import pytest

import builders
from capi import Transitions
from capi.evaluators import FittedQ, KernelFittedQ
from capi.evaluators.averager import Averager
from capi.evaluators.scoring_models import ScoringModels, _growth, settled_targets
from capi.policies import Constant, Uniform
from capi.types import StateSample


def pair(batch, seed=0, **settings):
    return ScoringModels.grown(
        batch, batch.rewards, discount=0.9, rng=np.random.default_rng(seed), **{"halves": True, **settings}
    )


def test_the_halves_share_no_episode_and_together_are_the_batch(monkeypatch):
    batch, grown = builders.wandering(0), []
    original = Averager.grown.__func__

    def recorded(cls, structure, targets, *arguments, **settings):
        grown.append((structure, targets, settings["averages"]))
        return original(cls, structure, targets, *arguments, **settings)

    monkeypatch.setattr(Averager, "grown", classmethod(recorded))
    pair(batch)
    for structure, targets, averages in grown:
        first, second = set(structure.episodes), set(averages.episodes)
        assert not first & second
        assert first | second == set(batch.episodes)
        assert abs(len(first) - len(second)) <= 1
        np.testing.assert_array_equal(targets, structure.rewards)
    np.testing.assert_array_equal(grown[0][0].rewards, grown[1][2].rewards)
    np.testing.assert_array_equal(grown[1][0].rewards, grown[0][2].rewards)


def test_a_score_is_the_mean_of_the_values_in_both_models():
    both = pair(builders.wandering(0))
    policies = [Constant(0, 3), Constant(2, 3), Uniform(3)]
    expected = [np.mean([model.value(policy) for model in both.models]) for policy in policies]
    np.testing.assert_array_equal(both.scores(policies), expected)
    assert both.score(policies[1]) == expected[1]
    assert both.scores([]) == []


def test_a_single_episode_has_one_model():
    batch = builders.wandering(0)
    one = Transitions(
        batch.states, batch.actions, batch.rewards, batch.next_states, np.zeros(len(batch), bool), n_actions=3, episodes=np.zeros(len(batch), int)
    )  # fmt: skip
    (model,) = pair(one).models
    assert model.batch is one
    assert np.isfinite(pair(one).score(Uniform(3)))


def test_the_seed_decides_and_the_number_of_threads_does_not():
    batch, policies = builders.wandering(0, n_episodes=60), [Constant(0, 3), Uniform(3)]
    expected = pair(batch).scores(policies)
    assert pair(batch, n_jobs=3).scores(policies) == expected
    assert pair(batch, seed=1).scores(policies) != expected


def test_the_models_start_where_they_are_told():
    batch = builders.wandering(0)
    starts = StateSample(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([1.0, 3.0]))
    for model in pair(batch, starts=starts).models:
        np.testing.assert_array_equal(model.starts.states, starts.states)
        np.testing.assert_array_equal(model.start_shares, [0.25, 0.75])
    for model in pair(batch).models:
        np.testing.assert_array_equal(model.starts.states, model.batch.states[model.batch.episode_starts])


def test_visits_are_conserved_although_many_leaves_are_empty():
    for seed in range(3):
        for model in pair(builders.wandering(seed, weights=True, elapsed=True)).models:
            assert (model.cells.own == 0).any()
            np.testing.assert_allclose(model.occupancy(Uniform(3)) @ (1 - model.steps), 1, atol=2e-3)


def test_an_action_that_one_half_lacks_takes_all_its_rows():
    batch = builders.wandering(0)
    actions = np.where(batch.episodes == 0, 2, batch.actions % 2)
    rare = Transitions(
        batch.states, actions, batch.rewards, batch.next_states, batch.terminated, n_actions=3, episodes=batch.episodes
    )
    assert np.isfinite(pair(rare).score(Constant(2, 3)))


def test_settled_targets_are_those_of_the_fixed_point_or_of_q_itself():
    batch, policy = builders.wandering(0), Uniform(3)
    q = FittedQ(n_trees=3, n_sweeps=2).evaluate(policy, batch, discount=0.9)
    values = Averager.of(q, batch, discount=0.9).under(policy).next_values
    expected = batch.rewards + 0.9 * np.where(batch.terminated, 0, values)
    np.testing.assert_allclose(settled_targets(q, batch, [policy], 0.9)[:, 0], expected, rtol=1e-12)

    other = KernelFittedQ().evaluate(policy, batch, discount=0.9)
    ahead = np.where(batch.terminated, 0, other.values(batch.next_states).mean(axis=1))
    np.testing.assert_allclose(
        settled_targets(other, batch, [policy], 0.9)[:, 0], batch.rewards + 0.9 * ahead, rtol=1e-12
    )


@pytest.mark.parametrize(("n_rows", "expected"), [(100, (30, 5, 1)), (30_000, (30, 5, 1)), (1_000_000, (10, 40, 20))])
def test_more_rows_have_larger_leaves_and_fewer_trees(n_rows, expected):
    growth = _growth(n_rows)
    assert (growth.n_trees, growth.min_samples_split, growth.min_samples_leaf) == expected


def test_by_default_there_is_one_model_whose_trees_see_all_targets():
    batch, policies = builders.wandering(0), [Constant(0, 3), Constant(2, 3)]
    q = FittedQ(n_trees=3, n_sweeps=2).evaluate(policies[0], batch, discount=0.9)
    targets = settled_targets(q, batch, policies, 0.9)
    assert targets.shape == (len(batch), 2)
    (model,) = pair(batch, halves=False).models
    assert model.batch is batch
    models = ScoringModels.grown(batch, targets, discount=0.9, rng=np.random.default_rng(0))
    assert models.models[0].forests[0].sums.shape[1] == 2
    assert len(models.scores(policies)) == 2
