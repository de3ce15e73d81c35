"""The probabilities of the logged actions: given, or estimated on other episodes."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import naive
from capi import Transitions
from capi.errors import InvalidInputError
from capi.offline.behaviour import N_BINS, behaviour_of, calibration
from capi.policies import Uniform
from capi.policies.behaviour import MIXED_IN
from offline.helpers import bandit, hushed, quick, remade, told, warned_of

SEEN = []


class Spy(ClassifierMixin, BaseEstimator):
    """Keeps which rows it learned from and which it was asked for."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        SEEN.append([set(X[:, 0]), set()])
        return self

    def predict_proba(self, X):
        SEEN[-1][1] |= set(X[:, 0])
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


class Sure(ClassifierMixin, BaseEstimator):
    """Says 95 % for the first action, whatever happens."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.tile([0.95, 0.05], (len(X), 1))


def estimated(batch, classifier=None, folds=None, seed=0, n_jobs=1):
    folds = np.arange(len(batch)) % 4 if folds is None else folds
    return behaviour_of(batch, folds, classifier, np.random.default_rng(seed), n_jobs)


def without_propensity(batch):
    return remade(batch, propensities=None)


def test_given_probabilities_are_taken_as_they_are():
    batch = bandit(50)
    found = estimated(batch)
    np.testing.assert_array_equal(found.probability, batch.propensities)
    assert found.given
    assert not found.is_miscalibrated
    assert str(found) == "behaviour probabilities: from the log"


def test_whoever_estimates_a_row_has_not_seen_its_episode():
    x = np.arange(40.0)[:, None]
    batch = Transitions(x, np.arange(40) % 2, np.zeros(40), x, np.ones(40, dtype=bool))
    folds = np.repeat(np.random.default_rng(0).permutation(10) % 4, 4)  # episodes of four rows
    SEEN.clear()
    estimated(batch, Spy(), folds)
    assert len(SEEN) == 4
    for k, (learned, asked) in enumerate(SEEN):
        assert asked == set(x[folds == k, 0])
        assert learned == set(x[folds != k, 0])


def test_the_folds_of_an_evaluation_hold_whole_episodes():
    n = 90
    x = np.arange(float(n))[:, None]
    actions = np.random.default_rng(0).integers(2, size=n)
    batch = Transitions(x, actions, x[:, 0], x, np.arange(n) % 3 == 2, episodes=np.arange(n) // 3)
    SEEN.clear()
    hushed(Uniform(2), batch, behaviour=Spy(), n_folds=3, methods="weighted")
    for learned, asked in SEEN:
        assert {i // 3 for i in learned}.isdisjoint({i // 3 for i in asked})
        assert learned | asked == set(range(n))


@pytest.mark.parametrize(
    "classifier",
    [
        None,
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(n_estimators=20, min_samples_leaf=120),
    ],
    ids=["trees", "logistic", "pipeline", "forest"],
)
def test_estimated_probabilities_are_about_right_and_known_to_be(classifier):
    batch = bandit(1500, n_actions=3)
    found = estimated(without_propensity(batch), classifier)
    assert not found.given
    assert np.abs(found.probability - batch.propensities).mean() < 0.05
    assert not found.is_miscalibrated
    assert "estimated on other episodes" in str(found)
    again = estimated(without_propensity(batch), classifier, n_jobs=2)
    np.testing.assert_array_equal(again.probability, found.probability)


def test_a_classifier_goes_before_the_logs_own_probabilities():
    found = estimated(bandit(100), DummyClassifier())
    assert not found.given
    assert set(np.round(found.probability, 1)) != set(np.round(bandit(100).propensities, 1))


def test_an_action_that_is_missing_outside_a_fold_still_has_a_probability():
    """Action 2 is taken in the first fold only, so those who estimate it there have never seen it; in the end just one action is left."""
    batch = without_propensity(bandit(80))
    folds = np.arange(80) // 40
    rare = remade(batch, actions=np.where(np.arange(80) == 3, 2, batch.actions), n_actions=3)
    for classifier in (None, LogisticRegression()):
        found = estimated(rare, classifier, folds)
        assert found.probability[3] == pytest.approx(MIXED_IN / 3)
        assert found.rare == pytest.approx(1 / 80)
    single = remade(batch, actions=(np.arange(80) < 40).astype(int))  # the other half knows one action only
    assert estimated(single, LogisticRegression(), folds).probability == pytest.approx(np.full(80, MIXED_IN / 2))


@pytest.mark.parametrize("classifier", [None, LogisticRegression()], ids=["trees", "logistic"])
def test_probability_is_only_where_it_is_allowed(classifier):
    rng = np.random.default_rng(0)
    n = 200
    x = rng.random((n, 1))
    allowed = np.column_stack([np.ones(n, dtype=bool), x[:, 0] > 0.5, np.arange(n) % 2 == 0])
    actions = np.array([rng.choice(np.flatnonzero(row)) for row in allowed])
    batch = Transitions(x, actions, x[:, 0], x, np.ones(n, dtype=bool), allowed=allowed, n_actions=3)
    found = estimated(batch, classifier)
    alone = allowed.sum(axis=1) == 1
    np.testing.assert_allclose(found.probability[alone], 1.0)
    assert (found.probability[~alone] < 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_calibration_matches_naive(seed):
    rng = np.random.default_rng(seed)
    predicted = rng.dirichlet(np.ones(3), size=97)
    predicted[:30] = predicted[0]  # ties
    actions = rng.integers(3, size=97)
    assert calibration(predicted, actions)[0] == pytest.approx(naive.calibration_error(predicted, actions, N_BINS))


def test_calibration_does_not_depend_on_the_order_of_the_rows():
    """The same prediction for all is right if its mean is, even where the log has first one action and then the other."""
    predicted = np.full((400, 2), 0.5)
    actions = np.repeat([0, 1], 200)
    assert calibration(predicted, actions)[0] == 0
    few = calibration(predicted[:3], actions[:3])
    assert np.isfinite(few).all()


def test_chance_explains_the_error_of_right_probabilities():
    rng = np.random.default_rng(0)
    found, expected = [], []
    for _ in range(40):
        predicted = rng.dirichlet(np.full(3, 2.0), size=500)
        actions = (predicted.cumsum(axis=1) > rng.random((500, 1))).argmax(axis=1)
        error, chance = calibration(predicted, actions)
        found.append(error)
        expected.append(chance)
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.1)


def test_miscalibrated_probabilities_are_told_and_right_ones_are_not():
    batch = without_propensity(bandit(1000))
    found = told(Uniform(2), batch, discount=0.0, behaviour=Sure())
    assert warned_of(found, "estimated behaviour probabilities are off by 4")
    assert quick(Uniform(2), batch, discount=0.0, behaviour=LogisticRegression()).warnings == ()


def test_rare_decisions_are_told():
    batch = bandit(200)
    rare = remade(batch, propensities=np.where(np.arange(200) < 3, 0.005, batch.propensities))
    assert estimated(rare).rare == pytest.approx(3 / 200)
    found = told(Uniform(2), rare, discount=0.0)
    assert warned_of(found, r"^1\.5 % of the logged decisions had a probability below 1 %")


@pytest.mark.parametrize("classifier", ["trees", LogisticRegression, object()], ids=["word", "class", "thing"])
def test_what_is_no_classifier_is_refused(classifier):
    with pytest.raises(
        InvalidInputError,
        match="the classifier of what was done must have the methods fit, predict_proba and get_params",
    ):
        quick(Uniform(2), bandit(40), discount=0.0, behaviour=classifier)


def test_classifiers_are_seeded_by_the_evaluation():
    batch = without_propensity(bandit(100))
    forest = RandomForestClassifier(n_estimators=3, random_state=5)
    one, same, other = (estimated(batch, forest, seed=seed).probability for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    assert forest.random_state == 5
