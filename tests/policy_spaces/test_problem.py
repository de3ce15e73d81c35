"""The problem that all spaces solve: what is checked, how often, and what follows from it."""

import sys
from dataclasses import dataclass, fields

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from capi import CAPI, policy_spaces
from capi._utils import validation
from capi._utils.parameters import check_options
from capi.baselines.cpi import _SmallSteps
from capi.errors import InvalidInputError
from capi.features.kernels import Gaussian
from capi.loss import expected_loss, gap_weighted_loss, regrets, zero_one_values
from capi.policies import Constant, Uniform
from capi.policy_spaces import (
    Classifier,
    Constrained,
    Forests,
    KernelPolicies,
    Linear,
    LocalAverages,
    Neighbors,
    OptimalTrees,
    Partition,
    Reweighted,
    Thresholds,
    Trees,
    Unrestricted,
)
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver, improved
from capi.policy_spaces.rules import Cap, Never

SPACES = [
    Unrestricted(),
    Partition(lambda states: states[:, 0] > 0),
    Thresholds(),
    Trees(max_depth=2),
    Forests(n_trees=3),
    OptimalTrees(max_depth=2),
    Neighbors(5),
    LocalAverages(Gaussian(0.2)),
    Linear(),
    KernelPolicies(Gaussian(0.5), max_size=20),
    Classifier(LogisticRegression()),
    Constrained(Trees(max_depth=2), [Never(1, when="x0 > 1"), Cap(2, 0.4)]),
    Reweighted(Uniform(3)),
    _SmallSteps(Trees(max_depth=2), discount=0.9, epsilon=0.0, step_size=0.5, reward_range=None),
]
CHECKS = ("as_q_values", "as_weights", "as_allowed")


def sample(n=120):
    rng = np.random.default_rng(0)
    states, values, allowed = rng.normal(size=(n, 2)), rng.normal(size=(n, 3)), rng.random((n, 3)) < 0.7
    allowed[:, 0] = True
    return states, values, rng.integers(3, size=n).astype(float), allowed


@dataclass(frozen=True)
class Matrix:
    """Values that are known in the states of the sample only."""

    table: np.ndarray

    @property
    def n_actions(self):
        return self.table.shape[1]

    def values(self, states):
        assert len(states) == len(self.table)
        return self.table


@dataclass(frozen=True)
class Known:
    """An evaluator that knows the values."""

    table: np.ndarray

    def evaluate(self, policy, transitions, **_):
        return Matrix(self.table)


@pytest.fixture
def counts(monkeypatch):
    """How often each check was called, but for what policies check when they are asked to act."""
    found = dict.fromkeys(CHECKS, 0)

    def counted(name, check):
        def call(value, *args, **options):
            frame, acting = sys._getframe(1), False
            while frame is not None:
                acting = acting or frame.f_code.co_name in ("act", "probabilities")
                frame = frame.f_back
            found[name] += value is not None and not acting
            return check(value, *args, **options)

        return call

    for name in CHECKS:
        check = getattr(validation, name)
        for module in [m for key, m in sys.modules.items() if key.split(".")[0] == "capi"]:
            if vars(module).get(name) is check:
                monkeypatch.setattr(module, name, counted(name, check))
    return found


@pytest.mark.parametrize("loss", ["gap", "zero-one"])
@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_values_weights_and_masks_are_checked_once_per_round(space, loss, counts):
    states, values, weights, allowed = sample()
    start = Constant(0, 3)
    learner = CAPI(Known(values), space, 0.9, 3, initial_policy=start, random_state=0, loss=loss)
    rounds = learner.iterate(states=(states, weights, allowed))
    next(rounds)
    assert counts == dict.fromkeys(CHECKS, 1)
    next(rounds)
    assert counts == {"as_q_values": 2, "as_weights": 1, "as_allowed": 1}, "states are fixed, values are new"


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_improve_checks_once(space, counts):
    states, values, weights, allowed = sample()
    options = {"q": Matrix(values), "previous": Constant(0, 3)}
    space.improve(states, values, allowed=allowed, weights=weights, **options)
    assert counts == dict.fromkeys(CHECKS, 1)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_values": np.full((120, 3), np.nan)}, "q_values must be finite"),
        ({"q_values": np.zeros((119, 3))}, "one row per state: 120 rows"),
        ({"weights": np.zeros(120)}, "weights must have a positive"),
        ({"weights": np.full(120, -1.0)}, "weights must not be negative"),
        ({"allowed": np.zeros((120, 3))}, "allowed must allow at least one action"),
        ({"allowed": np.ones((120, 2))}, r"allowed must have shape \(120, 3\)"),
        ({"states": np.zeros(120)}, "two dimensions"),
        ({"states": np.full((120, 2), np.inf)}, "states must (not be infinite|be finite)"),
    ],
)
def test_every_space_names_what_is_wrong(space, change, message):
    states, values, _, _ = sample()
    arguments = {"states": states, "q_values": values, "q": Matrix(values), "previous": Constant(0, 3), **change}
    with pytest.raises(InvalidInputError, match=message):
        space.improve(**arguments)


def test_missing_values_are_refused_by_spaces_that_measure_distances_also_in_the_loop():
    states, values, _, _ = sample()
    states[3, 1] = np.nan
    for space in (Neighbors(5), LocalAverages(Gaussian(0.2)), KernelPolicies(), Linear()):
        with pytest.raises(InvalidInputError, match="states must be finite"):
            CAPI(Known(values), space, 0.9, 1, initial_policy=Constant(0, 3)).fit(states=states)


def test_the_loop_asks_a_space_that_has_an_improve_of_its_own():
    asked = []

    class Mine(Thresholds):
        def improve(self, states, q_values, **options):
            asked.append(sorted(options))
            return super().improve(states, q_values, **options)

    states, values, weights, allowed = sample()
    CAPI(Known(values), Mine(), 0.9, 2, initial_policy=Constant(0, 3)).fit(states=(states, weights, allowed))
    assert asked == [["allowed", "previous", "q", "rng", "weights"]] * 2
    asked.clear()
    Constrained(Mine(), []).improve(states, values)
    assert len(asked) == 1
    assert improved(Thresholds(), ImprovementProblem.of(states, values)).cut == Thresholds().improve(states, values).cut
    assert len(asked) == 1


def test_every_space_takes_the_problem_and_states_its_rules():
    spaces = [getattr(policy_spaces, name) for name in policy_spaces.__all__]
    assert {type(space) for space in SPACES} >= set(spaces)
    for space in spaces:
        assert issubclass(space, ImprovementSolver), space
        assert space.improve is ImprovementSolver.improve, space
        names = {field.name for field in fields(space)}
        assert set(getattr(space, "_constraints", {})) <= names
        assert not names or space._constraints, space


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        (Trees, {"max_depth": 0}, "max_depth must be an integer, at least 1; got 0."),
        (OptimalTrees, {"max_depth": 7}, "max_depth must be at most 6; got 7. Use Trees for deeper trees."),
        (OptimalTrees, {"n_thresholds": 2**16}, "n_thresholds must be at most 65533; got 65536."),
        (Neighbors, {"metric": "far"}, "metric must be a metric of scikit-learn"),
        (Linear, {"surrogate": "square"}, "surrogate must be one of 'hinge', 'logistic', 'exponential'"),
        (KernelPolicies, {"strength": -1.0}, "strength must be a number, at least 0; got -1.0."),
        (Forests, {"n_jobs": 0}, "n_jobs must be a positive integer"),
        (Constrained, {"space": Trees}, "space must be a policy space, with the method improve"),
        (Cap, {"at_most": 2}, r"at_most must be a number in \[0, 1\]; got 2."),
        (Never, {"when": 3}, "when must be text, such as 'x3 > 5'; got 3."),
    ],
)
def test_options_are_checked_without_building_a_space(space, options, message):
    with pytest.raises(InvalidInputError, match=message):
        check_options(space, options)


def test_what_follows_from_a_problem():
    states, values, weights, allowed = sample()
    problem = ImprovementProblem.of(states, values, weights=weights, allowed=allowed)
    np.testing.assert_array_equal(problem.regrets, regrets(values, allowed))
    np.testing.assert_array_equal(problem.scored_zero_one().values, zero_one_values(values, allowed))
    actions = allowed.argmax(axis=1)
    assert problem.loss_of(actions) == gap_weighted_loss(values, actions, weights, allowed)
    shares = allowed / allowed.sum(axis=1, keepdims=True)
    assert problem.loss_of(shares) == expected_loss(values, shares, weights, allowed)
    assert np.isinf(problem.lost).any()
    assert not np.isnan(problem.lost).any()

    counted = problem.counted
    assert (counted.n_rows, counted.n_features, counted.n_actions) == ((weights > 0).sum(), 2, 3)
    np.testing.assert_array_equal(counted.regrets, problem.regrets[weights > 0])
    assert counted.counted is counted

    stakes = problem.stakes
    np.testing.assert_array_equal(stakes.states, states[stakes.rows])
    assert np.where(np.isinf(stakes.lost), 0, stakes.lost).max(axis=1).sum() == pytest.approx(1.0)
    others = np.setdiff1d(np.arange(120), stakes.rows)
    assert ((weights[others] == 0) | (allowed[others].sum(axis=1) == 1)).all()


def test_masks_that_allow_everything_are_kept_but_are_no_masks():
    states, values, _, allowed = sample()
    everything = np.ones_like(allowed)
    problem = ImprovementProblem.of(states, values, allowed=everything)
    assert problem.allowed is everything
    assert not problem.masked
    only_without_weight = everything.copy()
    only_without_weight[0, 1] = False
    weights = np.ones(120)
    weights[0] = 0
    problem = ImprovementProblem.of(states, values, allowed=only_without_weight, weights=weights)
    assert problem.counted.masked, "the policy will be asked about such states, too"
