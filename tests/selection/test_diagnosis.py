"""Each part of a diagnosis dominates where the problem is made so, and degenerate batches are no accident."""

import json

import numpy as np
import pytest

from capi import CAPI, Transitions
from capi.baselines import LSPI, PSDP
from capi.errors import InvalidInputError, NotFittedError
from capi.evaluators import LSTDQ, FittedQ
from capi.features import Polynomial
from capi.policy_spaces import Constrained, Forests, OptimalTrees, Thresholds, Trees
from capi.policy_spaces.rules import Never
from capi.selection import Diagnosis, diagnose
from capi.testing import random_batch

PARTS = ("evaluator", "space", "sample", "log")


def one_step(n, best, noise=0.0, d=2, share=0.5, seed=0, **columns):
    """Return a batch of single decisions: reward 1 for the best arm ``best(x)``, plus noise; arm 1 is tried with ``share(x)``."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d))
    arms = (rng.random(n) < (share(x) if callable(share) else share)).astype(int)
    rewards = (arms == best(x)) + noise * rng.normal(size=n)
    return Transitions(x, arms, rewards, x, np.ones(n, dtype=bool), **columns)


def first(x):
    return x[:, 0] > 0


def tree(**settings):
    return CAPI(FittedQ(n_trees=10), Trees(max_depth=2), 0.0, random_state=0, **settings)


def found_in(learner, batch, **settings):
    return diagnose(learner.fit(batch), batch, **{"n_refits": 4, **settings})


def bytes_of(found):
    return json.dumps(found.to_dict()), found.same_decisions_by_row.tobytes()


def test_noise_and_few_episodes_show_as_evaluator_and_sample():
    found = found_in(tree(), one_step(40, first, noise=2.0, d=5))
    assert found.dominant in ("evaluator", "sample")
    assert min(found.evaluator, found.sample) > 3 * max(found.space, found.log, 0.0)
    assert found.same_decisions < 0.9
    assert found.held_out_loss > found.learning_loss


def test_values_that_are_noise_show_as_evaluator():
    """A single cut cannot follow the noise, so the sample loses little; the action values do."""
    batch = one_step(300, lambda x: x[:, 0] > -2, noise=3.0, d=6)
    found = found_in(CAPI(FittedQ(n_trees=10), Thresholds(), 0.0, random_state=0), batch)
    assert found.dominant == "evaluator"
    assert "estimated action values" in found.advice


def test_a_single_cut_on_an_exclusive_or_shows_as_space():
    found = found_in(
        CAPI(FittedQ(n_trees=10), Thresholds(), 0.0, random_state=0), one_step(400, lambda x: x[:, 0] * x[:, 1] > 0)
    )
    assert found.dominant == "space"
    assert found.space == pytest.approx(0.45, abs=0.07)
    assert found.space_in_model == pytest.approx(0.45, abs=0.07)
    assert "Choose a larger one" in found.advice
    larger = CAPI(FittedQ(n_trees=10), OptimalTrees(max_depth=2), 0.0, random_state=0)
    enough = found_in(larger, one_step(400, lambda x: x[:, 0] * x[:, 1] > 0))
    assert enough.dominant is None


def test_actions_that_the_log_rarely_takes_show_as_leaving_it():
    """Arm 1 is always better, and where the first column is positive it was tried in one row of fifty."""
    batch = one_step(2000, lambda x: x[:, 0] > -2, noise=0.1, share=lambda x: np.where(first(x), 0.02, 0.5))
    found = found_in(tree(), batch)
    assert found.dominant == "log"
    assert found.left_by_rows == pytest.approx(0.45, abs=0.08)
    assert found.left_by_visits == pytest.approx(found.left_by_rows, abs=0.02)
    assert found.log == pytest.approx(found.left_by_visits, abs=0.05), "one reward unit is at stake in each"
    assert "rarely takes" in found.advice


def test_known_propensities_count_where_policy_and_log_agree():
    batch = one_step(400, lambda x: x[:, 0] > -2, share=0.5, propensities=np.full(400, 0.01))
    found = found_in(tree(), batch)
    assert found.left_by_rows == pytest.approx(np.mean(batch.actions == 1))


def test_without_noise_nothing_is_lost_and_rules_are_stable():
    rng = np.random.default_rng(0)
    x, arms = rng.choice([-1.0, 1.0], (300, 2)), rng.integers(2, size=300)
    batch = Transitions(x, arms, (arms == first(x)).astype(float), x, np.ones(300, dtype=bool))
    found = found_in(tree(), batch)
    assert (found.same_root, found.same_columns, found.same_decisions) == (1.0, 1.0, 1.0)
    assert (found.same_decisions_by_row == 1).all()
    np.testing.assert_allclose([getattr(found, part) for part in PARTS], 0.0, atol=1e-9)
    assert found.dominant is None
    assert (found.value, found.stakes) == (pytest.approx(1.0), pytest.approx(1.0))
    assert "nothing needs to be changed" in str(found)


def test_episodes_of_many_steps_count_per_episode():
    """States do not tell the first step from the second and last, so 1 / (1 - 0.5 * 0.5) decisions count per episode."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (400, 2))
    arms = rng.integers(2, size=400)
    rewards = (arms == (x[:, 0] * x[:, 1] > 0)).astype(float)
    episodes = np.repeat(np.arange(200), 2)
    following, ends = np.vstack([x[1:], x[:1]]), np.tile([False, True], 200)
    batch = Transitions(x, arms, rewards, following, ends, episodes=episodes)
    learner = CAPI(FittedQ(n_trees=10, n_sweeps=None), Thresholds(), 0.5, 4, random_state=0)
    found = found_in(learner, batch)
    assert found.dominant == "space"
    assert found.stakes == pytest.approx(4 / 3, abs=0.05)
    assert found.space == pytest.approx(2 / 3, abs=0.1), "a single cut is right half of the time"


def test_results_do_not_depend_on_threads_and_repeat():
    batch = random_batch()
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), 0.9, 3, random_state=0).fit(batch)
    one = diagnose(learner, batch, n_refits=3)
    assert bytes_of(one) == bytes_of(diagnose(learner, batch, n_refits=3, n_jobs=2))
    assert bytes_of(one) != bytes_of(diagnose(learner, batch, n_refits=3, random_state=1))


def test_a_learner_without_a_seed_is_diagnosed_with_one():
    batch = one_step(60, first, noise=1.0)
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=1), 0.0).fit(batch)
    assert bytes_of(diagnose(learner, batch, n_refits=2)) == bytes_of(diagnose(learner, batch, n_refits=2))


def test_progress_can_be_shown():
    batch, seen = one_step(40, first), []
    diagnose(tree().fit(batch), batch, n_refits=2, shown=lambda items: seen.append(len(items)) or items)
    assert seen == [4], "two halves and two resamples"


@pytest.mark.parametrize(
    "space",
    [
        Thresholds(),
        Forests(n_trees=3, projections=2),
        Constrained(Trees(max_depth=2), [Never(1, when="x0 > 0.5")]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_any_space(space):
    batch = one_step(120, first, noise=0.3)
    found = found_in(CAPI(FittedQ(n_trees=4), space, 0.0, random_state=0), batch, n_refits=2)
    assert np.isfinite([getattr(found, part) for part in PARTS]).all()
    assert 0 <= found.same_columns <= found.same_root <= 1


def test_evaluators_that_do_not_average_rows_say_what_is_missing():
    batch = one_step(200, first, noise=0.2)
    found = found_in(CAPI(LSTDQ(Polynomial(2)), Trees(max_depth=2), 0.0, 3, random_state=0), batch)
    assert "LinearValues does not average rows" in found.notes[0]
    assert "measured in trees grown on its targets" in str(found)
    assert found.evaluator_seeds == 0
    assert np.isfinite(found.space)
    baseline = diagnose(LSPI(LSTDQ(Polynomial(1)), discount=0.0).fit(batch), batch, n_refits=2)
    assert np.isfinite(baseline.sample)


def test_an_evaluator_that_is_a_function_is_not_compared_between_seeds():
    batch = one_step(60, first)
    found = found_in(CAPI(lambda k, policy, rng: FittedQ(n_trees=3), Trees(max_depth=1), 0.0, 2, random_state=0), batch)
    assert np.isnan(found.evaluator_seeds)
    assert any("function of the round" in note for note in found.notes)
    json.dumps(found.to_dict(), allow_nan=False)


def test_refits_that_fail_are_left_out_with_the_reason():
    """The second arm has one row, which half of the halves lack; least squares need it."""
    x = np.linspace(-1, 1, 20)[:, None]
    batch = Transitions(x, (np.arange(20) == 3).astype(int), x[:, 0], x, np.ones(20, dtype=bool))
    found = found_in(CAPI(LSTDQ(Polynomial(1)), Trees(max_depth=1), 0.0, 2, random_state=0), batch)
    assert np.isnan(found.evaluator)
    assert np.isnan(found.parts["space"])
    assert any(
        "refits failed and were left out. The first one: each action must be taken" in note for note in found.notes
    )
    assert "could be measured" in found.advice or found.dominant is None
    assert [text.get_text() for text in found.plot().axes[0].texts].count("not measured") == 3


def test_masks_weights_missing_values_and_given_starts():
    rng = np.random.default_rng(0)
    n = 200
    x = rng.uniform(-1, 1, (n, 2))
    allowed = rng.random((n, 3)) < 0.7
    arms = rng.integers(3, size=n)
    allowed[np.arange(n), arms] = True
    ends = np.tile([False, True], n // 2)
    following = np.vstack([x[1:], x[:1]])
    x[rng.random(x.shape) < 0.1] = np.nan
    batch = Transitions(
        x,
        arms,
        (arms == (np.nan_to_num(x[:, 0]) > 0)).astype(float),
        following,
        ends,
        allowed=allowed,
        next_allowed=np.vstack([allowed[1:], allowed[:1]]),
        episodes=np.repeat(np.arange(n // 2), 2),
        weights=np.repeat(rng.integers(0, 3, n // 2), 2).astype(float),
    )
    learner = CAPI(FittedQ(n_trees=4), Trees(max_depth=2), 0.5, 3, random_state=0)
    found = found_in(learner, batch, n_refits=2)
    assert np.isfinite([getattr(found, part) for part in PARTS]).all()
    starts = (np.zeros((3, 2)), None, np.ones((3, 3), dtype=bool))
    learner.fit(batch, starts=starts)
    other = diagnose(learner, batch, starts=starts, n_refits=2)
    assert np.isfinite([getattr(other, part) for part in PARTS]).all()
    assert other.value != found.value


def test_one_action_leaves_nothing_to_lose():
    batch = Transitions(np.arange(20.0)[:, None], [0] * 20, np.arange(20.0), np.zeros((20, 1)), [True] * 20)
    found = found_in(CAPI(FittedQ(n_trees=3), Trees(max_depth=1), 0.0, random_state=0), batch)
    assert [getattr(found, part) for part in PARTS] == [0.0] * 4
    assert (found.same_root, found.same_decisions, found.stakes, found.dominant) == (1.0, 1.0, 0.0, None)


def test_two_episodes_are_enough_and_one_is_not():
    batch = random_batch()
    rows = np.isin(batch.episodes, np.unique(batch.episodes)[:2])
    two = batch.subset(rows)
    learner = CAPI(FittedQ(n_trees=3), Trees(max_depth=1), 0.9, 2, random_state=0)
    assert np.isfinite(found_in(learner, two, n_refits=2).same_decisions)
    one = batch.subset(batch.episodes == batch.episodes[0])
    with pytest.raises(InvalidInputError, match="at least two with positive weight; this batch has 1"):
        diagnose(learner.fit(one), one)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda b: diagnose(tree(), b), NotFittedError, "call fit first"),
        (lambda b: diagnose("tree", b), InvalidInputError, "learner must be a fitted learner"),
        (lambda b: diagnose(tree().fit(b), b.states), InvalidInputError, "batch must be the Transitions"),
        (lambda b: diagnose(tree().fit(b), b.subset(np.arange(30))), InvalidInputError, "with 60 rows; it has 30"),
        (lambda b: diagnose(tree().fit(b), b, n_refits=0), InvalidInputError, "n_refits"),
        (lambda b: diagnose(tree().fit(b), b, n_jobs=0), InvalidInputError, "n_jobs"),
        (lambda b: diagnose(tree().fit(b), b, starts=np.zeros((1, 7))), InvalidInputError, "starts"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused(call, error, match):
    with pytest.raises(error, match=match):
        call(one_step(60, first))


def test_policies_that_change_with_time_are_refused():
    batch = random_batch()
    learner = PSDP(FittedQ(n_trees=3), Trees(max_depth=1), discount=0.9, horizon=2).fit(batch)
    with pytest.raises(InvalidInputError, match="changes with time"):
        diagnose(learner, batch)


def test_the_text_has_a_line_per_part_and_one_that_says_what_to_do():
    found = found_in(tree(), one_step(60, first, noise=1.0))
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["evaluator", "space", "sample", "leaving"]
    assert lines[5].startswith("Of 4 refits on resampled episodes")
    assert lines[6] == found.advice


def test_dictionaries_hold_what_json_can_and_no_rows():
    found = found_in(tree(), one_step(60, first, noise=1.0))
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert sum(record["rows_by_agreement"]) == pytest.approx(1.0)
    assert record["dominant"] == found.dominant
    assert record["n_rows"] == 60
    assert not any(isinstance(value, list) and len(value) > 10 for value in record.values())
    assert isinstance(found, Diagnosis)


def test_the_figure_has_the_parts_and_the_rows():
    found = found_in(tree(), one_step(60, first, noise=1.0))
    left, right = found.plot().axes
    widths = sorted(bar.get_width() for bar in left.patches)
    assert widths == sorted(found.parts.values())
    assert sum(bar.get_height() for bar in right.patches) == pytest.approx(100.0)
