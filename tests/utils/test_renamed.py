"""Names that have changed: old ones raise an error that says the new one, and nothing else about the classes changes."""

import dataclasses
import importlib
import inspect
import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone

from builders import random_mdp
from capi import Transitions, finite, trees
from capi._utils.renamed import renamed, translated
from capi.baselines import ModifiedPolicyIteration
from capi.errors import InvalidInputError, NotFittedError
from capi.evaluators import GTD, GTD2, TD, TDC, Exact, FittedQ, KernelFittedQ
from capi.policy_spaces import Neighbors, Partition
from capi.policy_spaces.partition import PartitionPolicy
from capi.runs import RunSettings

MDP = finite.FiniteMDP(*random_mdp(np.random.default_rng(0)), discount=0.9)

OLD_KEYWORDS = [
    (Exact, "sweeps", "n_sweeps", 3),
    (FittedQ, "sweeps", "n_sweeps", 3),
    (KernelFittedQ, "sweeps", "n_sweeps", 3),
    (ModifiedPolicyIteration, "sweeps", "n_sweeps", 3),
    (TD, "passes", "n_passes", 2),
    (GTD, "passes", "n_passes", 2),
    (GTD2, "passes", "n_passes", 2),
    (TDC, "passes", "n_passes", 2),
    (Partition, "index", "cell_of", ...),
    (PartitionPolicy, "index", "cell_of", ...),
    (Neighbors, "index", "algorithm", "exact"),
    (RunSettings, "iterations", "n_iterations", 5),
    (RunSettings, "seed", "random_state", 1),
    (trees.ExtraTreesRegressor, "n_estimators", "n_trees", 10),
]


@pytest.mark.parametrize(("kind", "old", "new", "value"), OLD_KEYWORDS)
def test_an_old_keyword_is_refused_with_the_new_one(kind, old, new, value):
    words = f"{old} is now called {new}; write {kind.__name__}({new}={'...' if value is ... else repr(value)})."
    with pytest.raises(InvalidInputError, match=f"^{re.escape(words)}$"):
        kind(**{old: value})
    names = list(inspect.signature(kind).parameters)
    assert new in names
    assert old not in names
    assert translated(kind, {old: value, "other": 1}) == {new: value, "other": 1}


def test_an_old_keyword_of_a_method_is_refused_with_the_new_one():
    with pytest.raises(InvalidInputError, match=r"^sweeps is now called n_sweeps; write bellman\(n_sweeps=2\)\.$"):
        MDP.bellman([0] * MDP.n_states, np.zeros((MDP.n_states, MDP.n_actions)), sweeps=2)
    assert "n_sweeps" in inspect.signature(finite.FiniteMDP.bellman).parameters


COLUMNS = [("episode", "episodes"), ("propensity", "propensities"), ("weight", "weights")]
ROWS = {
    "states": [[0.0], [1.0]],
    "actions": [0, 1],
    "rewards": [0.0, 1.0],
    "next_states": [[1.0], [1.0]],
    "terminated": [True, True],
}


@pytest.mark.parametrize(("old", "new"), COLUMNS)
def test_old_names_of_columns_are_refused_with_the_new_ones(old, new):
    with pytest.raises(InvalidInputError, match=rf"^{old} is now called {new}; write Transitions\({new}=\.\.\.\)\.$"):
        Transitions(**ROWS, **{old: [1, 1]})
    with pytest.raises(InvalidInputError, match=rf"^{old} is now called {new}; write from_arrays\({new}=\.\.\.\)\.$"):
        Transitions.from_arrays([[0.0], [1.0]], [0, 1], [0.0, 1.0], **{old: [1, 1]})
    batch = Transitions(**ROWS, **{new: np.array([1, 2]) if new == "episodes" else [1, 1]})
    assert getattr(batch, new) is not None
    assert not hasattr(batch, old)
    with pytest.raises(AttributeError, match=rf"^Transitions\.{old} is now called Transitions\.{new}\.$"):
        getattr(batch, old)


def test_roles_of_columns_in_tables_stay_singular():
    table = {"who": [1, 2], "x": [0.0, 1.0], "a": [0, 1], "r": [0.0, 1.0], "p": [0.5, 0.5], "w": [1.0, 2.0]}
    roles = {"episode": "who", "state": "x", "action": "a", "reward": "r", "propensity": "p", "weight": "w"}
    batch = Transitions.from_frame(table, **roles)
    assert batch.episodes.tolist() == [1, 2]
    assert batch.propensities.tolist() == [0.5, 0.5]
    assert batch.weights.tolist() == [1.0, 2.0]
    assert "also        propensities, weights" in repr(batch)
    assert batch == pickle.loads(pickle.dumps(batch))
    with pytest.raises(AttributeError, match="'Transitions' object has no attribute 'nothing'"):
        batch.nothing  # noqa: B018


def test_settings_are_copied_cloned_and_pickled_as_before():
    evaluator = FittedQ(n_sweeps=4)
    assert dataclasses.replace(evaluator, n_sweeps=5) == FittedQ(n_sweeps=5)
    assert pickle.loads(pickle.dumps(evaluator)) == evaluator
    regressor = trees.ExtraTreesRegressor(n_trees=7)
    assert clone(regressor).get_params()["n_trees"] == 7
    assert ModifiedPolicyIteration(MDP, n_sweeps=3).get_params()["n_sweeps"] == 3


def test_a_class_derived_from_one_with_old_names_is_called_by_its_own_name():
    class Mine(FittedQ):
        pass

    with pytest.raises(InvalidInputError, match=r"write Mine\(n_sweeps=2\)"):
        Mine(sweeps=2)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [("capi.features.kernels", "Linear", "LinearKernel"), ("capi.errors", "Diverged", "DivergenceError")],
)
def test_importing_an_old_name_says_the_new_one(module, old, new):
    with pytest.raises(ImportError, match=rf"^{module}\.{old} is now called {module}\.{new}\.$"):
        getattr(importlib.import_module(module), old)


@pytest.mark.parametrize(
    ("thing", "old", "new"),
    [
        (FittedQ(), "sweeps", "n_sweeps"),
        (trees.ExtraTreesRegressor(), "n_estimators", "n_trees"),
        (Neighbors(), "index", "algorithm"),
        (ModifiedPolicyIteration(MDP), "sweeps", "n_sweeps"),
    ],
)
def test_an_old_attribute_is_refused_with_the_new_one(thing, old, new):
    kind = type(thing).__name__
    with pytest.raises(AttributeError, match=rf"^{kind}\.{old} is now called {kind}\.{new}\.$"):
        getattr(thing, old)
    with pytest.raises(AttributeError, match="nothing"):
        thing.nothing  # noqa: B018


def test_what_a_learner_has_not_learned_is_still_said():
    with pytest.raises(NotFittedError, match="fit"):
        ModifiedPolicyIteration(MDP).policy_  # noqa: B018


def test_values_that_are_long_to_show_are_not_shown():
    @renamed(old="new")
    def function(new=None):
        return new

    with pytest.raises(InvalidInputError, match=r"^old is now called new; write function\(new=\.\.\.\)\.$"):
        function(old=np.zeros(1000))
    assert function(new=1) == 1
