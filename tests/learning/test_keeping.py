import numpy as np
import pytest

from capi import CAPI, Transitions
from capi.baselines import CPI, LSPI, RFQI, FittedQIteration
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import LSTDQ, Exact, FittedQ, KernelFittedQ, Rollouts
from capi.evaluators.averager import Averager
from capi.features.bases import Polynomial
from capi.learning.keeping import Candidates, candidate_rounds, score_in_episodes, score_policies
from capi.policies import Constant
from capi.policy_spaces import Thresholds, Trees
from capi.testing import random_batch
from capi.trees.forest import Forest

SETTINGS = {"discount": 0.9, "n_iterations": 8, "random_state": 0}


@pytest.mark.parametrize("n", [1, 2, 5, 20, 21, 400])
def test_candidates_are_spread_over_both_halves(n):
    found = candidate_rounds(n)
    assert n - 1 in found
    assert all(sum(first <= k < last for k in found) <= 10 for first, last in ((0, n // 2), (n // 2, n)))
    assert n > 20 or found == set(range(n))
    assert n < 400 or max(np.diff(sorted(found))) < 30


@pytest.mark.parametrize("kwargs", [{}, {"state_weights": "batch"}, {"accept": "improving"}], ids=str)
def test_the_best_of_the_candidates_is_kept(kwargs):
    batch = random_batch()
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **SETTINGS, keep="best", **kwargs).fit(batch)
    rounds, chosen = _chosen(learner, batch)
    assert sorted(chosen.scores) == list(range(8))
    again = score_in_episodes([step.policy for step in rounds], rounds[-1], batch, 0.9)
    assert again.values.tolist() == list(chosen.scores.values())
    assert again.careful.tolist() == list(chosen.careful.values())
    assert chosen.k == again.best
    _is_kept(learner, batch, rounds, chosen)
    assert [row["careful_score"] for row in learner.history_] == list(chosen.careful.values())


def test_where_states_repeat_the_model_scores_the_later_rounds():
    rng, plain = np.random.default_rng(0), random_batch()
    x, y = (rng.integers(5, size=plain.states.shape).astype(float) for _ in range(2))
    batch = Transitions(x, plain.actions, plain.rewards, y, plain.terminated, episodes=plain.episodes)
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **SETTINGS, keep="best").fit(batch)
    rounds, chosen = _chosen(learner, batch)
    assert sorted(chosen.scores) == [4, 5, 6, 7]
    assert not chosen.careful
    assert chosen.k == max(chosen.scores, key=lambda k: (chosen.scores[k], -k))
    again = score_policies([rounds[k].policy for k in chosen.scores], rounds[-1], batch, 0.9)
    assert again == list(chosen.scores.values())
    _is_kept(learner, batch, rounds, chosen)


def _chosen(learner, batch):
    rounds, candidates = list(learner.iterate(batch)), Candidates(8)
    for step in rounds:
        candidates.add(step)
    return rounds, candidates.best(rounds[-1], batch, 0.9, learner.evaluator, None)


def _is_kept(learner, batch, rounds, chosen):
    np.testing.assert_array_equal(learner.policy_.act(batch.states), rounds[chosen.k].policy.act(batch.states))
    assert learner.policy_.training.n_iterations == chosen.k + 1
    assert [row["k"] for row in learner.history_ if row.get("kept")] == [chosen.k]
    assert {row["k"]: row["score"] for row in learner.history_ if "score" in row} == chosen.scores
    model = Averager.of(learner.q_, batch, discount=0.9)  # whichever round is kept, its Q has the trees
    assert np.isfinite(model.value(learner.policy_))


def test_every_learner_with_a_batch_can_keep_its_best():
    batch = random_batch()
    for learner in (
        FittedQIteration(FittedQ(n_trees=4), **SETTINGS, keep="best"),
        RFQI(KernelFittedQ(), **SETTINGS, keep="best"),
        LSPI(LSTDQ(Polynomial(1)), **SETTINGS, keep="best"),
        CPI(FittedQ(n_trees=4), Trees(max_depth=2), **SETTINGS, keep="best", step_size=0.5),
    ):
        fitted = learner.fit(batch)
        assert sum(row.get("kept", 0) for row in fitted.history_) == 1


def test_a_model_scores_exactly():
    mdp = ChainWalk(variant=2).mdp
    learner = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), 0.99, 6, keep="best").fit()
    scores = [row["score"] for row in learner.history_ if "score" in row]
    assert max(scores) == pytest.approx(mdp.start @ mdp.values(learner.policy_))


def test_without_a_fixed_batch_there_is_no_score():
    with pytest.raises(InvalidInputError, match=r"keep='best' needs a fixed batch"):
        CAPI(FittedQ(n_trees=2), Trees(max_depth=1), 0.9, 2, keep="best").fit(lambda k, policy, rng: random_batch())
    with pytest.raises(InvalidInputError, match=r"keep='best' needs a fixed batch"):
        CAPI(Rollouts(ChainWalk()), Thresholds(), 0.9, 2, keep="best").fit()


def test_only_improving_policies_are_accepted():
    batch = random_batch()
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **SETTINGS, accept="improving", keep="last")
    rounds = list(learner.iterate(batch))
    rejected = [step for step in rounds if not step.accepted]
    assert rejected  # otherwise the test says nothing
    assert rounds[0].accepted  # what the loop begins with need not belong to the space
    for step in rejected:
        assert step.policy is rounds[step.k - 1].policy
        assert step.changed == 0
    for cut in (0, 2, 5):
        rest = list(learner.iterate(batch, after=rounds[cut]))
        assert [step.score for step in rest] == [step.score for step in rounds[cut + 1 :]]


def test_the_states_that_a_rejected_policy_visits_are_added_to_the_mixture():
    batch = random_batch()
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **SETTINGS, accept="improving", keep="last")
    rounds = list(learner.iterate(batch))
    sums = [step.visits.sum() for step in rounds]  # each policy adds visits with sum 1
    expected, total = [], 0
    for step in rounds:
        total += 1 if step.accepted else 2
        expected.append(total)
    assert any(not step.accepted for step in rounds)
    assert sums == pytest.approx(expected)


def test_with_a_model_improvement_is_exact():
    mdp = ChainWalk(variant=2).mdp
    rounds = list(CAPI(Exact(mdp, n_sweeps=1), Thresholds(), 0.99, 8, accept="improving").iterate())
    values = [float(mdp.start @ mdp.values(step.policy)) for step in rounds]
    assert values == sorted(values)
    assert any(not step.accepted for step in rounds)
    assert all(step.score >= value for step, value in zip(rounds, values, strict=True) if step.accepted)


def test_only_one_batch_can_be_compared_or_visited_over_the_rounds():
    def drawn(k, policy, rng):
        return random_batch(seed=k)

    for settings, message in (
        ({"accept": "improving"}, "accept='improving' needs a fixed batch"),
        ({"state_weights": "mixture"}, "state_weights='mixture' needs a fixed batch"),
        ({"state_weights": "occupancy"}, "state_weights='occupancy' needs a fixed batch"),
    ):
        learner = CAPI(FittedQ(n_trees=2), Trees(max_depth=1), 0.9, 2, initial_policy=Constant(0, 3), **settings)
        with pytest.raises(InvalidInputError, match=message):
            learner.fit(drawn)
    learner = CAPI(FittedQ(n_trees=2), Trees(max_depth=1), 0.9, 2, state_weights="mixture", random_state=0)
    first = next(learner.iterate(random_batch()))
    with pytest.raises(InvalidInputError, match="after must be a round of the same batch"):
        list(learner.iterate(random_batch(n_episodes=3), after=first))


def test_a_function_marks_the_round_that_it_keeps():
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **SETTINGS, keep=lambda step: -abs(step.k - 3)).fit(
        random_batch()
    )
    assert [row["k"] for row in learner.history_ if row.get("kept")] == [3]


def test_a_loop_that_ends_early_scores_the_later_half_of_its_rounds():
    rng, plain = np.random.default_rng(0), random_batch()
    x, y = (rng.integers(3, size=plain.states.shape).astype(float) for _ in range(2))
    batch = Transitions(x, plain.actions, plain.rewards, y, plain.terminated, episodes=plain.episodes)
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), 0.9, 20, random_state=0, keep="best", patience=1).fit(batch)
    made = len(learner.history_)
    assert 2 < made < 10
    assert [row["k"] for row in learner.history_ if "score" in row] == list(range(made // 2, made))


@pytest.mark.parametrize("keep", ["best", "last", lambda iteration: iteration.value], ids=["best", "last", "function"])
def test_the_leaves_of_the_kept_tree_count_the_rows_of_the_batch(keep):
    """And not the points on which it was grown, which are start states and next states."""
    batch = random_batch()
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), **SETTINGS, keep=keep, state_weights="mixture").fit(batch)
    policy = learner.policy_
    leaf = Forest([policy.tree]).leaves(batch.states)[0]
    assert policy.tree.counts.tolist() == np.bincount(leaf, minlength=policy.n_leaves).tolist()
    values = learner.q_.values(batch.states)
    lost = values.max(axis=1) - values[np.arange(len(batch)), policy.act(batch.states)]
    assert policy.leaf_regrets == pytest.approx(np.bincount(leaf, weights=lost, minlength=policy.n_leaves))
