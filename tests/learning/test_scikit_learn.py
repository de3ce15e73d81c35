"""Learners behave like estimators of scikit-learn: fitted or not, nested parameters, clones, scores, searches."""

import pickle
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from capi import CAPI, EpisodeKFold, Transitions
from capi.baselines import (
    CPI,
    DPI,
    LSPI,
    PSDP,
    RFQI,
    DPICritic,
    FittedQIteration,
    ModifiedPolicyIteration,
    PolicyIteration,
    ValueIteration,
)
from capi.domains import ChainWalk
from capi.errors import CapiError, InvalidInputError, NotFittedError, not_fitted
from capi.evaluators import LSTDQ, Exact, FittedQ, KernelFittedQ, Rollouts, RolloutsWithCritic
from capi.features import KernelDictionary, Polynomial
from capi.features.kernels import Gaussian
from capi.offline import fitted_value
from capi.policies import Constant
from capi.policy_spaces import Classifier, Constrained, Thresholds, Trees
from capi.policy_spaces.rules import Cap
from capi.testing import random_batch

CHAIN = ChainWalk(variant=2, discount=0.9)
BATCH = random_batch()
FOREST = FittedQ(n_trees=5)


def capi(**options):
    settings = {"evaluator": FOREST, "space": Thresholds(), "discount": 0.9, "n_iterations": 2, "random_state": 0}
    return CAPI(**{**settings, **options})


LEARNERS = [  # each with what it is fitted to
    (capi(), BATCH),
    (CAPI(Exact(CHAIN.mdp), Thresholds(), 0.9, 2), None),
    (ValueIteration(CHAIN.mdp, 3), None),
    (ModifiedPolicyIteration(CHAIN.mdp, n_iterations=3), None),
    (PolicyIteration(CHAIN.mdp), None),
    (FittedQIteration(FOREST, 0.9, 2), BATCH),
    (RFQI(KernelFittedQ(Gaussian(1.0)), 0.9, 2), BATCH),
    (LSPI(LSTDQ(Polynomial(1)), 0.9, 2), BATCH),
    (CPI(FOREST, Thresholds(), 0.9, 2), BATCH),
    (PSDP(FOREST, Thresholds(), 0.9, 2), BATCH),
    (DPI(CHAIN, Thresholds(), n_iterations=1, n_states=20, horizon=5, random_state=0), None),
    (DPICritic(CHAIN, Thresholds(), FOREST, n_iterations=1, n_states=20, horizon=5, n_episodes=5, max_steps=5), None),
]
NAMES = [f"{type(learner).__name__}-{'model' if batch is None else 'batch'}" for learner, batch in LEARNERS]
every_learner = pytest.mark.parametrize(("learner", "batch"), LEARNERS, ids=NAMES)


# -- fitted or not ---------------------------------------------------------------------------------------


@every_learner
def test_scikit_learn_knows_whether_a_learner_is_fitted(learner, batch):
    learner = clone(learner)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(learner)
    with pytest.raises(SklearnNotFittedError, match="has no policy_ yet: call fit first"):
        learner.policy_  # noqa: B018
    check_is_fitted(learner.fit(batch))
    check_is_fitted(learner, "policy_")
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(clone(learner))


def test_not_fitted_is_an_error_of_both_libraries_and_survives_pickling():
    error = not_fitted("call fit")
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(copy, NotFittedError | CapiError)
        assert isinstance(copy, SklearnNotFittedError)
        assert isinstance(copy, ValueError)
        assert isinstance(copy, AttributeError)
        assert str(copy) == "call fit"
        assert type(copy) is type(error)
        assert type(copy).__name__ == "NotFittedError"


def test_features_that_are_not_fitted_say_so_to_scikit_learn():
    with pytest.raises(SklearnNotFittedError):
        Polynomial(2).transform(BATCH.states)


def test_learners_do_not_import_scikit_learn_unless_asked():
    code = (
        "import sys; from capi import CAPI; from capi.domains import ChainWalk; from capi.evaluators import Exact;"
        "from capi.policy_spaces import Thresholds;"
        "learner = CAPI(Exact(ChainWalk().mdp), Thresholds(), 0.99, 1).set_params(evaluator__n_sweeps=2);"
        "repr(learner), learner.get_params(), learner._repr_html_(); assert 'sklearn' not in sys.modules, 'imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- parameters ------------------------------------------------------------------------------------------


@every_learner
def test_a_clone_has_the_same_parameters(learner, batch):
    copy = clone(learner)
    assert copy is not learner
    assert repr(copy) == repr(learner)
    assert list(copy.get_params()) == list(learner.get_params())
    shallow = learner.get_params(deep=False)
    assert not any("__" in name for name in shallow)
    assert shallow.items() <= learner.get_params().items()


@pytest.mark.parametrize(
    "parts",
    [
        {"space": Constrained(Trees(max_depth=2), [Cap(1, 0.5)])},
        {"space": Classifier(make_pipeline(StandardScaler(), LogisticRegression()))},
        {"evaluator": FittedQ(regressor=Ridge())},
        {"evaluator": LSTDQ(KernelDictionary(Gaussian(1.0)))},
        {"evaluator": lambda k, policy, rng: FOREST},
        {"keep": lambda iteration: iteration.value, "update": lambda old, new, **_: new},
        {"initial_policy": Constant(1, 3), "random_state": np.random.default_rng(0)},
    ],
    ids=lambda parts: " ".join(parts),
)
def test_learners_with_any_parts_can_be_cloned_and_fitted(parts):
    check_is_fitted(clone(capi(**parts)).fit(BATCH))


def test_nested_parameters_are_listed_after_their_parent():
    learner = capi(space=Constrained(Trees(max_depth=4), [Cap(0, 0.5)]))
    found = learner.get_params()
    assert found["evaluator"] is FOREST
    assert found["evaluator__n_trees"] == 5
    assert found["space__space__max_depth"] == 4
    assert found["space__rules"] == learner.space.rules
    names = list(found)
    assert names.index("evaluator") < names.index("evaluator__n_trees") < names.index("space") < names.index("discount")
    assert "evaluator__n_trees" not in learner.get_params(deep=False)
    assert "__" not in repr(learner)


def test_policies_and_models_are_not_taken_apart():
    learner = CAPI(Exact(CHAIN.mdp), Thresholds(), 0.9, initial_policy=Constant(0, 2))
    nested = [name for name in learner.get_params() if "__" in name]
    assert nested == ["evaluator__mdp", "evaluator__n_sweeps", "space__feature", "space__monotone"]


def test_set_params_reaches_into_frozen_settings_and_replaces_them():
    learner = capi(space=Constrained(Trees(max_depth=4), [Cap(0, 0.5)]))
    space = learner.space
    assert learner.set_params(evaluator__n_trees=7, space__space__max_depth=1, n_iterations=9) is learner
    assert (learner.evaluator.n_trees, learner.space.space.max_depth, learner.n_iterations) == (7, 1, 9)
    assert learner.space.rules == space.rules
    assert FOREST.n_trees == 5, "the old part may be shared and must stay as it is"
    assert space.space.max_depth == 4


def test_several_parameters_of_one_part_change_together():
    @dataclass(frozen=True)
    class Ordered:
        low: int = 0
        high: int = 1

        def __post_init__(self):
            if self.low > self.high:
                raise InvalidInputError("low must be at most high.")

        def evaluate(self, *args, **kwargs): ...

    learner = capi(evaluator=Ordered())
    assert learner.set_params(evaluator__low=5, evaluator__high=6).evaluator == Ordered(5, 6)


def test_a_new_part_and_its_parameters_can_be_set_at_once():
    learner = capi().set_params(evaluator__n_trees=3, evaluator=FittedQ(n_trees=50, n_sweeps=4))
    assert (learner.evaluator.n_trees, learner.evaluator.n_sweeps) == (3, 4)


def test_parameters_of_a_critic_and_its_regressor():
    critic = FittedQ(regressor=make_pipeline(StandardScaler(), Ridge(alpha=2.0)))
    learner = capi(evaluator=RolloutsWithCritic(CHAIN, critic))
    assert learner.get_params()["evaluator__critic__regressor__ridge__alpha"] == 2.0
    learner.set_params(evaluator__critic__regressor__ridge__alpha=5.0, evaluator__critic__n_sweeps=2)
    assert learner.evaluator.critic.regressor.named_steps["ridge"].alpha == 5.0
    assert learner.evaluator.critic.n_sweeps == 2
    assert critic.regressor.named_steps["ridge"].alpha == 2.0, (
        "estimators inside frozen settings are not changed in place"
    )


def test_frozen_settings_within_an_estimator_are_reached_too():
    learner = capi(evaluator=LSTDQ(KernelDictionary(Gaussian(1.0))))
    assert learner.get_params()["evaluator__features__kernel__bandwidth"] == 1.0
    learner.set_params(evaluator__features__kernel__bandwidth=3.0)
    assert learner.evaluator.features.kernel == Gaussian(3.0)


def test_any_object_with_get_params_is_a_part():
    class Own(BaseEstimator):
        def __init__(self, strength=1.0):
            self.strength = strength

        def improve(self, *args, **kwargs): ...

    own = Own()
    learner = capi(space=own).set_params(space__strength=2.0)
    assert (learner.space.strength, own.strength) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gamma", "a parameter of CAPI must be one of 'evaluator', .*; got 'gamma'"),
        (
            "evaluator__n_tree",
            r"a parameter of FittedQ must be one of 'n_trees', .*; got 'n_tree' \(in evaluator__n_tree\)",
        ),
        (
            "evaluator__regressor__alpha",
            "evaluator__regressor__alpha cannot be set: evaluator__regressor is a NoneType",
        ),
        ("keep__x", "keep__x cannot be set: keep is a NoneType, which has no parameters"),
        ("evaluator__", r"a parameter of FittedQ must be .*; got ''"),
    ],
)
def test_a_wrong_name_is_refused_with_those_that_exist(name, message):
    with pytest.raises(InvalidInputError, match=message):
        capi().set_params(**{name: 1})


def test_a_wrong_value_changes_nothing():
    learner = capi()
    with pytest.raises(InvalidInputError, match="n_trees must be"):
        learner.set_params(n_iterations=50, evaluator__n_trees=0)
    assert learner.n_iterations == 2
    assert learner.evaluator is FOREST


def test_a_part_that_is_a_function_has_no_parameters():
    with pytest.raises(InvalidInputError, match="evaluator is a function, which has no parameters"):
        capi(evaluator=lambda k, policy, rng: FOREST).set_params(evaluator__n_trees=3)


# -- tables ----------------------------------------------------------------------------------------------

ROLES = {"episode": "patient", "time": "day", "state": ["age", "sex"], "action": "drug", "reward": "outcome"}


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    drug = np.array(["none", "beta"])[rng.integers(2, size=n)]
    age = rng.uniform(20, 80, size=n)
    return pd.DataFrame(
        {
            "patient": np.repeat(np.arange(n // 3), 3),
            "day": np.tile([1, 2, 3], n // 3),
            "age": age,
            "sex": np.array(["f", "m"])[rng.integers(2, size=n)],
            "drug": drug,
            "outcome": np.where((drug == "beta") == (age > 50), 1.0, 0.0),
        }
    )


@pytest.mark.parametrize(
    "form",
    [lambda t: t, pl.from_pandas, pa.Table.from_pandas, lambda t: t.to_dict("list")],
    ids=["pandas", "polars", "arrow", "mapping"],
)
def test_fit_takes_a_table_with_roles(form):
    frame = table()
    learner = capi().fit(form(frame), **ROLES)
    same = capi().fit(Transitions.from_frame(frame, **ROLES))
    assert learner.schema_ == same.schema_
    assert learner.policy_.rules() == same.policy_.rules()
    assert learner.roles_ == ROLES
    assert same.roles_ is None
    assert set(learner.predict(frame)) <= {"none", "beta"}


def test_a_learner_with_discount_zero_keeps_every_row_of_a_table():
    frame = table().assign(cut=False)
    assert capi(discount=0.0).fit(frame, **ROLES, truncated="cut").policy_.training.n_rows == len(frame)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (
            {},
            "state, action, reward not given. For example, write fit.table, episode=.*Transitions.from_frame.*'patient', 'day'",
        ),
        ({"state": "age", "action": "drug"}, "; reward not given"),
        ({**ROLES, "rewards": "outcome"}, "a role in fit must be one of 'state', .*; got 'rewards'"),
        ({**ROLES, "discount": 0.5}, "discount must be that of the learner, 0.9; got 0.5"),
    ],
)
def test_a_table_without_its_roles_is_refused_with_what_to_write(roles, message):
    with pytest.raises(InvalidInputError, match=message):
        capi().fit(table(), **roles)


def test_iterate_names_the_reader_of_tables():
    with pytest.raises(
        InvalidInputError, match=r"got a DataFrame. Convert the table to a batch with Transitions.from_frame"
    ):
        next(capi().iterate(table()))


def test_roles_without_a_table_and_targets_are_refused():
    with pytest.raises(InvalidInputError, match="reward: column names must come with a table; fit got a Transitions"):
        capi().fit(BATCH, reward="outcome")
    with pytest.raises(InvalidInputError, match="y must be None, because the batch contains the rewards; got a list"):
        capi().fit(BATCH, [1, 2])
    with pytest.raises(InvalidInputError, match="y must be None"):
        capi().fit(BATCH).score(BATCH, [1, 2])


# -- scores and searches ---------------------------------------------------------------------------------


def test_the_score_is_the_fitted_value_of_the_policy():
    train, test = BATCH.split(0.5, random_state=0)
    learner = capi().fit(train)
    score = learner.score(test)
    assert isinstance(score, float)
    assert score == fitted_value(learner.policy_, test, discount=0.9) == learner.score(test)
    with pytest.raises(SklearnNotFittedError):
        capi().score(test)


def test_a_better_policy_has_a_larger_score():
    x = np.linspace(0, 1, 200)[:, None]
    actions = np.arange(200) % 2
    batch = Transitions(x, actions, np.where(actions == (x[:, 0] > 0.5), 1.0, 0.0), x, np.ones(200, dtype=bool))
    good, bad = (capi(discount=0.0, n_iterations=1).fit(batch) for _ in range(2))
    bad.policy_ = Constant(0, 2)
    assert good.score(batch) > bad.score(batch) + 0.3


def test_a_table_is_scored_with_the_roles_and_the_encoding_of_fit():
    train, test = table(), table(seed=1)
    learner = capi().fit(train, **ROLES)
    batch = Transitions.from_frame(test, **ROLES, schema=learner.schema_)
    assert learner.score(test) == learner.score(batch) == learner.score(test, **ROLES)
    only_women = test[test["sex"] == "f"]
    assert np.isfinite(learner.score(only_women)), "a fold may lack a category"
    with pytest.raises(InvalidInputError, match=r"state, action, reward not given. For example, write score"):
        capi().fit(BATCH).score(test)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_grid_search_over_nested_parameters(n_jobs):
    grid = {"space__feature": [0, 1], "evaluator__n_trees": [3, 6]}
    folds = EpisodeKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(capi(), grid, cv=folds, n_jobs=n_jobs, error_score="raise").fit(BATCH)
    learner = capi().set_params(**search.best_params_)
    by_hand = [clone(learner).fit(rest).score(fold) for rest, fold in BATCH.folds(3, random_state=0)]
    assert search.best_score_ == pytest.approx(np.mean(by_hand), rel=1e-12)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert len(set(search.cv_results_["mean_test_score"])) > 1
    assert search.best_estimator_.policy_.rules() == learner.fit(BATCH).policy_.rules()
    np.testing.assert_array_equal(search.predict(BATCH), learner.predict(BATCH.states))


def test_grid_search_on_a_table():
    frame = table()
    former = capi(keep="last", state_weights="batch")  # a few rows of a few patients say little about visits
    search = GridSearchCV(former, {"space__feature": [0, 1]}, cv=GroupKFold(3), error_score="raise")
    search.fit(frame, groups=frame["patient"], **ROLES)
    assert search.best_params_ == {"space__feature": 0}, "the outcome depends on age"


def test_groups_of_scikit_learn_split_a_batch_by_episodes_too():
    scores = cross_val_score(capi(), BATCH, cv=GroupKFold(4), groups=BATCH.episodes, error_score="raise")
    assert np.isfinite(scores).all()


def test_rows_that_cut_an_episode_stop_a_search():
    with pytest.raises(InvalidInputError, match="rows must hold whole episodes; of episode "):
        cross_val_score(capi(), BATCH, cv=5, error_score="raise")


def test_decisions_out_of_fold():
    predicted = cross_val_predict(capi(), BATCH, cv=EpisodeKFold(4))
    assert predicted.shape == (len(BATCH),)


def test_predict_takes_the_masks_of_a_batch():
    allowed = np.ones((len(BATCH), 3), dtype=bool)
    allowed[:, 2] = BATCH.actions == 2
    masked = Transitions(
        BATCH.states,
        BATCH.actions,
        BATCH.rewards,
        BATCH.next_states,
        BATCH.terminated,
        allowed=allowed,
        next_allowed=allowed,
    )
    learner = capi().fit(masked)
    np.testing.assert_array_equal(learner.predict(masked), learner.predict(masked.states, allowed))


def test_a_rollout_part_of_a_search_is_reached():
    learner = CAPI(Rollouts(CHAIN), Thresholds(), 0.9).set_params(evaluator__domain__success=0.75)
    assert learner.evaluator.domain.success == 0.75
