from itertools import product

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.loss import gap_weighted_loss, greedy
from capi.policy_spaces import Classifier, Thresholds
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.classifier import examples
from capi.testing import check_policy_space


class Recorder(ClassifierMixin, BaseEstimator):
    """A classifier that shows what it was given, and always predicts its first class."""

    def fit(self, X, y, sample_weight=None):
        self.X_, self.y_, self.w_, self.classes_ = X, y, sample_weight, np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


class BestStump(ClassifierMixin, BaseEstimator):
    """Exactly the least weighted 0/1 loss over cuts in the first column: what the reduction is about."""

    def fit(self, X, y, sample_weight):
        self.classes_ = np.unique(y)
        cuts = [-np.inf, *np.unique(X[:, 0])]

        def loss(rule):
            cut, low, high = rule
            return sample_weight[np.where(X[:, 0] <= cut, low, high) != y].sum()

        self.rule_ = min(product(cuts, self.classes_, self.classes_), key=loss)
        return self

    def predict(self, X):
        cut, low, high = self.rule_
        return np.where(X[:, 0] <= cut, low, high)


@pytest.mark.parametrize("n_actions", [2, 3])
@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        DecisionTreeClassifier(max_depth=3),
        RandomForestClassifier(5),
        HistGradientBoostingClassifier(max_iter=5, early_stopping=False),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_keeps_the_contract(estimator, n_actions):
    check_policy_space(Classifier(estimator), n_actions=n_actions)


def test_with_two_actions_labels_are_greedy_and_weights_are_gaps():
    """Rows without a gap or a weight are left out; weights have a mean of one."""
    rng = np.random.default_rng(0)
    states, q_values, weights = rng.normal(size=(30, 2)), rng.normal(size=(30, 2)), rng.integers(0, 3, 30).astype(float)
    q_values[:5, 1] = q_values[:5, 0]
    model = Classifier(Recorder()).improve(states, q_values, weights=weights).model
    gaps = weights * np.abs(q_values[:, 0] - q_values[:, 1])
    kept = gaps > 0
    np.testing.assert_array_equal(model.X_, states[kept])
    np.testing.assert_array_equal(model.y_, greedy(q_values)[kept])
    np.testing.assert_allclose(model.w_, gaps[kept] / gaps[kept].mean())


@pytest.mark.parametrize("n_actions", [2, 3, 4])
def test_the_weighted_errors_are_the_loss_but_for_a_constant(n_actions):
    """For every assignment of actions, not only for good ones."""
    rng = np.random.default_rng(n_actions)
    states, q_values = rng.normal(size=(20, 1)), rng.normal(size=(20, n_actions))
    rows, actions, weights = examples(ImprovementProblem.of(states, q_values).stakes)
    constants = set()
    for _ in range(30):
        played = rng.integers(n_actions, size=20)
        errors = weights[played[rows] != actions].sum()
        gap = (q_values.max(axis=1) - q_values.min(axis=1)).mean()
        constants.add(round(errors / 20 - gap_weighted_loss(q_values, played) / gap, 9))
    assert len(constants) == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_least_weighted_error_is_the_least_loss(seed):
    rng = np.random.default_rng(seed)
    states, q_values = rng.normal(size=(15, 1)), rng.normal(size=(15, 3))
    ours = Classifier(BestStump()).improve(states, q_values)
    best = Thresholds().improve(states, q_values)
    losses = [gap_weighted_loss(q_values, policy.act(states)) for policy in (ours, best)]
    assert losses[0] == pytest.approx(losses[1])


def test_with_one_action_in_the_sample_it_is_constant():
    policy = Classifier(LogisticRegression()).improve(np.zeros((3, 2)), [[0.0, 1.0]] * 3)
    np.testing.assert_array_equal(policy.act(np.ones((2, 2))), [1, 1])
    assert policy.rules() == "always 1"
    np.testing.assert_array_equal(policy.scores(np.ones((1, 2))), [[-np.inf, 0.0]])
    np.testing.assert_array_equal(policy.act(np.ones((2, 2)), np.array([[True, False], [True, True]])), [0, 1])
    assert Classifier(LogisticRegression()).improve(np.zeros((3, 2)), np.zeros((3, 2))).rules() == "always 0"


def test_missing_values_are_the_estimators_business():
    states = np.array([[np.nan], [0.0], [1.0]] * 30)
    values = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]] * 30)
    policy = Classifier(HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=5)).improve(states, values)
    np.testing.assert_array_equal(policy.act(states[:3]), [1, 0, 0])


STATES = np.random.default_rng(0).normal(size=(80, 2))
VALUES = STATES @ np.array([[1.0, -1.0, 0.2], [0.5, 0.5, -1.0]])


@pytest.mark.parametrize("n_actions", [2, 3])
@pytest.mark.parametrize("estimator", [LogisticRegression(), DecisionTreeClassifier(), SVC()], ids=str)
def test_masks_are_kept(estimator, n_actions):
    values = VALUES[:, :n_actions]
    allowed = np.ones((80, n_actions), dtype=bool)
    allowed[np.arange(40), greedy(values)[:40]] = False
    policy = Classifier(estimator).improve(STATES, values, allowed=allowed)
    taken = policy.act(STATES, allowed)
    assert allowed[np.arange(80), taken].all()
    free = allowed.all(axis=1)
    np.testing.assert_array_equal(taken[free], policy.model.predict(STATES[free]))
    with pytest.raises(InvalidInputError, match="learned with masks"):
        policy.act(STATES)


def test_actions_that_are_not_allowed_have_no_influence():
    allowed = np.random.default_rng(0).random((80, 3)) < 0.7
    allowed[:, 0] = True
    one, other = (
        Classifier(LogisticRegression()).improve(STATES, values, allowed=allowed).model.coef_
        for values in (VALUES, np.where(allowed, VALUES, 99.0))
    )
    np.testing.assert_array_equal(one, other)


def test_what_is_barred_is_replaced_by_the_next_in_rank():
    policy = Classifier(LogisticRegression()).improve(STATES, VALUES)
    free = np.ones((80, 3), dtype=bool)
    np.testing.assert_array_equal(policy.act(STATES, free), policy.act(STATES))
    barred = free.copy()
    barred[np.arange(80), policy.act(STATES)] = False
    np.testing.assert_array_equal(policy.act(STATES, barred), np.argsort(policy.scores(STATES), axis=1)[:, 1])


def test_a_classifier_that_cannot_rank_refuses_masks():
    allowed = np.ones((80, 3), dtype=bool)
    allowed[0, 0] = False
    for estimator in (Recorder(), SVC(decision_function_shape="ovo")):
        with pytest.raises(InvalidInputError, match="must rank them"):
            Classifier(estimator).improve(STATES, VALUES, allowed=allowed)


def test_a_weight_is_a_number_of_copies():
    copies = np.random.default_rng(0).integers(0, 4, size=80)
    space = Classifier(DecisionTreeClassifier(max_depth=2))
    weighted = space.improve(STATES, VALUES, weights=copies.astype(float))
    repeated = space.improve(np.repeat(STATES, copies, axis=0), np.repeat(VALUES, copies, axis=0))
    np.testing.assert_array_equal(weighted.act(STATES), repeated.act(STATES))


def test_every_random_state_comes_from_the_rng():
    estimator = make_pipeline(StandardScaler(), RandomForestClassifier(3, max_features=1))
    space = Classifier(estimator)
    one, same, other = (space.improve(STATES, VALUES, rng=np.random.default_rng(s)).model for s in (1, 1, 2))
    assert one[-1].random_state == same[-1].random_state != other[-1].random_state
    assert estimator[-1].random_state is None
    assert not hasattr(estimator[-1], "estimators_")


def test_a_pipelines_last_step_gets_the_weights():
    inner = make_pipeline(make_pipeline(StandardScaler(), Recorder()))
    model = Classifier(inner).improve(STATES, VALUES).model
    assert model[0][-1].w_.shape == (160,)  # of three actions the worst has no example


def test_the_rules_name_the_classifier_and_the_actions():
    from dataclasses import replace

    policy = Classifier(DecisionTreeClassifier(max_depth=2)).improve(STATES, VALUES)
    schema = Schema(("x", "y"), ("a", "b", "c"))
    assert replace(policy, schema=schema).rules().startswith("the prediction of DecisionTreeClassifier(max_depth=2")
    assert replace(policy, schema=schema).rules().endswith("), one of: a, b, c")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Classifier(LogisticRegression), r"Did you mean LogisticRegression\(\)"),
        (lambda: Classifier("tree"), "must be a scikit-learn classifier"),
        (lambda: Classifier(KNeighborsClassifier()), "KNeighborsClassifier.* does not"),
        (
            lambda: Classifier(make_pipeline(StandardScaler(), KNeighborsClassifier())),
            "in a pipeline, the last step must",
        ),
        (lambda: Classifier(LogisticRegression()).improve(STATES, VALUES[:9]), "one row per state"),
        (lambda: Classifier(LogisticRegression()).improve(STATES, VALUES).act(STATES[:, :1]), "must have 2 columns"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InvalidInputError, match=words):
        call()


def test_it_can_be_told_what_it_is():
    states = np.arange(10.0)[:, None]
    policy = Classifier(LogisticRegression()).improve(states, np.eye(2)[(states[:, 0] > 4).astype(int)])
    told = policy.to_dict()
    assert told["actions"] == [0, 1]
    assert told["classifier"].startswith("LogisticRegression(")
