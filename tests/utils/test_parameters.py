"""Rules of settings as data: each constraint, and the tables of all public classes that have one."""

import importlib
import inspect
import re
from dataclasses import dataclass, is_dataclass
from typing import ClassVar

import numpy as np
import pytest

from capi._utils.parameters import (
    Constraints,
    all_of,
    at_least,
    callable_or,
    check_options,
    check_parameters,
    instance_of,
    literal_or,
    one_of,
    optional,
    satisfying,
    strictly_between,
    word_or,
)
from capi._utils.validation import as_positive, as_share
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import Exact, FittedQ
from capi.features import OneHot, Tiles
from capi.policies import Constant
from capi.policy_spaces import Unrestricted

PACKAGES = [
    "capi",
    "capi.evaluators",
    "capi.policy_spaces",
    "capi.baselines",
    "capi.domains",
    "capi.features",
    "capi.features.kernels",
    "capi.policies",
    "capi.learning.iteration",
    "capi.learning.state_choice",
    "capi.theory",
]
NONSENSE = object()  # no constraint accepts it
CHAIN = ChainWalk()
REQUIRED = {  # values of parameters that have no default
    "features": OneHot(200),
    "mdp": CHAIN.mdp,
    "domain": CHAIN,
    "critic": Exact(CHAIN.mdp),
    "policy": Constant(0, 2),
    "base": Constant(0, 2),
    "inner": FittedQ(n_sweeps=1),
    "candidates": CHAIN.mdp.states,
    "values": lambda policy, rng: None,
    "n": 5,
    "policies": [Constant(0, 2)],
    "weights": [1.0],
    "action": 0,
    "actions": [0, 1],
    "n_actions": 2,
    "epsilon": 0.1,
    "evaluator": Exact(CHAIN.mdp),
    "space": Unrestricted(),
    "discount": 0.9,
    "n_iterations": 3,
}


def settings_classes():
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", sorted(vars(module))):
            thing = getattr(module, name)
            if inspect.isclass(thing) and not name.startswith("_") and hasattr(thing, "_constraints"):
                yield thing


CLASSES = sorted(set(settings_classes()), key=lambda kind: (kind.__module__, kind.__name__))
RULES = [(kind, name) for kind in CLASSES for name in kind._constraints]


def named(value):
    return value.__name__ if isinstance(value, type) else value


def test_the_public_settings_have_tables():
    names = {kind.__name__ for kind in CLASSES}
    assert {
        "Exact",
        "FittedQ",
        "KernelFittedQ",
        "LSTDQ",
        "TDC",
        "HIV",
        "CartPole",
        "Gaussian",
        "Tiles",
        "Loop",
    } <= names


@pytest.mark.parametrize(("kind", "name"), RULES, ids=named)
def test_each_rule_is_about_a_parameter_and_refuses_nonsense(kind, name):
    assert name in inspect.signature(kind).parameters
    with pytest.raises(InvalidInputError, match=rf"\b{name}\b"):
        check_options(kind, {name: NONSENSE})


BUILT = [(kind, name) for kind, name in RULES if is_dataclass(kind) and "policy_spaces" not in kind.__module__]


@pytest.mark.parametrize(("kind", "name"), BUILT, ids=named)
def test_settings_are_checked_when_they_are_built(kind, name):
    parameters = inspect.signature(kind).parameters.values()
    needed = {p.name: REQUIRED[p.name] for p in parameters if p.default is inspect.Parameter.empty}
    with pytest.raises(InvalidInputError, match=rf"\b{name}\b"):
        kind(**{**needed, name: NONSENSE})


FITTED = [(kind, name) for kind, name in RULES if hasattr(kind, "fit_transform")]


@pytest.mark.parametrize(("kind", "name"), FITTED, ids=named)
def test_transformers_are_checked_when_they_are_fitted(kind, name):
    with pytest.raises(InvalidInputError, match=rf"\b{name}\b"):
        kind(**{name: NONSENSE}).fit(np.zeros((3, 1)))


@pytest.mark.parametrize("kind", CLASSES, ids=named)
def test_defaults_are_accepted(kind):
    parameters = inspect.signature(kind).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    made = [name for name, value in defaults.items() if "factory" in repr(value)]
    check_options(kind, {name: value for name, value in defaults.items() if name not in made})


@dataclass(frozen=True)
class Forest:
    n_trees: int = 30
    depth: int | None = None
    name: str = ""

    _constraints: ClassVar[Constraints] = {"n_trees": at_least(1), "depth": optional(at_least(1))}

    def __post_init__(self):
        check_parameters(self)


def test_settings_refuse_the_first_parameter_that_breaks_its_rule():
    assert Forest(3, 2).depth == 2
    with pytest.raises(InvalidInputError, match="n_trees must be an integer, at least 1; got 0"):
        Forest(0, 0)
    with pytest.raises(InvalidInputError, match="depth must be an integer, at least 1; got 'deep'"):
        Forest(depth="deep")


def test_options_are_checked_without_building():
    check_options(Forest, {"n_trees": 2, "depth": None, "name": "a name has no rule"})
    check_options(FittedQ, {"n_sweeps": None})  # needs another refresh_every: a rule of two parameters
    with pytest.raises(InvalidInputError, match="depth must be an integer"):
        check_options(Forest, {"depth": 0})
    with pytest.raises(
        InvalidInputError, match=re.escape("Forest has no parameter 'n_leaves'; it has n_trees, depth, name.")
    ):
        check_options(Forest, {"n_leaves": 2})


def test_a_class_without_a_table_has_its_parameters_only():
    @dataclass
    class Plain:
        pass

    check_options(Plain, {})
    with pytest.raises(InvalidInputError, match="Plain has no parameter 'x'; it has none"):
        check_options(Plain, {"x": 1})


ACCEPTED = [
    (at_least(2), 2),
    (at_least(2), np.int64(7)),
    (at_least(1, at_most=3), 3),
    (one_of("a", 1), 1),
    (optional(at_least(1)), None),
    (literal_or("never", at_least(1)), "never"),
    (literal_or("never", at_least(1)), 5),
    (strictly_between(0, 1), 0.5),
    (instance_of(str, "a word"), "w"),
    (callable_or(one_of("a")), len),
    (callable_or(one_of("a")), "a"),
    (satisfying(callable, "be a function"), len),
    (all_of(as_positive, as_share), 1),
    (word_or(("a", "b"), as_share), "b"),
    (word_or(("a", "b"), as_share), 0.5),
]
REFUSED = [
    (at_least(2), 1, "x must be an integer, at least 2; got 1."),
    (at_least(2), True, "x must be an integer, at least 2; got True."),
    (at_least(1, at_most=3), 4, "x must be at most 3; got 4."),
    (at_least(1, at_most=3, otherwise="Take less."), 4, "x must be at most 3; got 4. Take less."),
    (one_of("a", 1), True, "x must be one of 'a', 1; got True."),
    (optional(at_least(1)), 0, "x must be an integer, at least 1; got 0."),
    (literal_or("never", at_least(1)), "always", "x must be an integer, at least 1; got 'always'."),
    (strictly_between(0, 1), 1, "x must lie strictly between 0 and 1; got 1."),
    (strictly_between(0, 1), "half", "x must lie strictly between 0 and 1; got 'half'."),
    (instance_of(str, "a word"), 1, "x must be a word; got 1."),
    (instance_of(str, "a word"), str, "x must be a word; got <class 'str'>."),
    (callable_or(one_of("a")), "b", "x must be one of 'a'; got 'b'."),
    (satisfying(callable, "be a function"), 1, "x must be a function; got 1."),
    (satisfying(callable, "be a function", advice="Write one."), 1, "x must be a function; got 1. Write one."),
    (all_of(as_positive, as_share), 0, "x must be a positive number; got 0."),
    (all_of(as_positive, as_share), 2, "x must be a number in [0, 1]; got 2."),
    (word_or(("a", "b"), as_share), "c", "x must be one of 'a', 'b'; got 'c'."),
    (word_or(("a", "b"), as_share), 2, "x must be a number in [0, 1]; got 2."),
]


@pytest.mark.parametrize(("constraint", "value"), ACCEPTED)
def test_constraints_accept(constraint, value):
    constraint(value, "x")


@pytest.mark.parametrize(("constraint", "value", "message"), REFUSED)
def test_constraints_refuse_and_say_why(constraint, value, message):
    with pytest.raises(InvalidInputError, match=f"^{re.escape(message)}$"):
        constraint(value, "x")


def test_transformers_with_a_box_refuse_deviations():
    with pytest.raises(InvalidInputError, match="scale must be one of 'range'; got 'deviation'"):
        Tiles(scale="deviation").fit(np.zeros((3, 1)))
