"""Rules for settings, as data: each frozen dataclass has one table that maps parameters to constraints.

A constraint is a function of a value and its name that raises `InvalidInputError`. Rules that relate several parameters
stay in ``__post_init__``, after `check_parameters`.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Forest:
...     n_trees: int = 30
...     max_depth: int | None = None
...     _constraints = {"n_trees": at_least(1), "max_depth": optional(at_least(1))}
...
...     def __post_init__(self):
...         check_parameters(self)
>>> Forest(max_depth=0)
Traceback (most recent call last):
capi.errors.InvalidInputError: max_depth must be an integer, at least 1; got 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from inspect import signature
from typing import Any, TypeAlias

from capi._utils.suggestions import did_you_mean
from capi._utils.validation import as_int, check_choice, is_real
from capi.errors import InvalidInputError

Constraint: TypeAlias = Callable[[Any, str], object]
Constraints: TypeAlias = Mapping[str, Constraint]


def check_parameters(settings: Any) -> None:
    """Refuse settings with a parameter that breaks its constraint."""
    for name, constraint in type(settings)._constraints.items():
        constraint(getattr(settings, name), name)


def check_options(kind: type, options: Mapping[str, Any]) -> None:
    """Refuse ``options`` that ``kind`` does not have, or whose values break their constraint, without building an instance.

    Rules that relate several parameters are not checked here, but when the settings are built.
    """
    known = tuple(signature(kind).parameters)
    constraints: Constraints = getattr(kind, "_constraints", {})
    for name, value in options.items():
        if name not in known:
            shown = ", ".join(known) or "none"
            raise InvalidInputError(
                f"{kind.__name__} has no parameter {name!r}; it has {shown}.{did_you_mean(name, known)}"
            )
        if name in constraints:
            constraints[name](value, name)


def at_least(minimum: int, *, at_most: int | None = None, otherwise: str = "") -> Constraint:
    """Accept whole numbers from ``minimum`` to ``at_most``; ``otherwise`` says what to do about larger ones."""

    def check(value: Any, name: str) -> None:
        if as_int(value, name, minimum=minimum) > (value if at_most is None else at_most):
            raise InvalidInputError(f"{name} must be at most {at_most}; got {value}.{otherwise and ' ' + otherwise}")

    return check


def one_of(*choices: Any) -> Constraint:
    """Accept only these values."""
    return lambda value, name: check_choice(value, name, choices)


def checked_by(check: Callable[[Any], object]) -> Constraint:
    """Accept values that ``check``, which knows the parameter's name, does not refuse."""
    return lambda value, _: check(value)


def optional(constraint: Constraint) -> Constraint:
    """Accept None, and values that ``constraint`` accepts."""
    return lambda value, name: None if value is None else constraint(value, name)


def literal_or(literal: Any, constraint: Constraint) -> Constraint:
    """Accept ``literal``, such as "never", and values that ``constraint`` accepts."""
    return lambda value, name: None if type(value) is type(literal) and value == literal else constraint(value, name)


def strictly_between(low: float, high: float) -> Constraint:
    """Accept real numbers above ``low`` and below ``high``."""

    def check(value: Any, name: str) -> None:
        if not is_real(value) or not low < value < high:
            raise InvalidInputError(f"{name} must lie strictly between {low:g} and {high:g}; got {value!r}.")

    return check


def instance_of(kind: type | tuple[type, ...], description: str) -> Constraint:
    """Accept instances of ``kind``, called ``description`` in the error."""

    def check(value: Any, name: str) -> None:
        if isinstance(value, type) or not isinstance(value, kind):
            raise InvalidInputError(f"{name} must be {description}; got {value!r}.")

    return check


def satisfying(holds: Callable[[Any], bool], rule: str, *, advice: str = "") -> Constraint:
    """Accept values for which ``holds`` is true; errors state the ``rule``, such as "be a function of a state", and ``advice``."""

    def check(value: Any, name: str) -> None:
        if not holds(value):
            raise InvalidInputError(f"{name} must {rule}; got {value!r}.{advice and ' ' + advice}")

    return check


def all_of(*constraints: Constraint) -> Constraint:
    """Accept values that all ``constraints`` accept; the first that fails raises its error."""

    def check(value: Any, name: str) -> None:
        for constraint in constraints:
            constraint(value, name)

    return check


def word_or(words: Collection[str], constraint: Constraint) -> Constraint:
    """Accept ``words`` and no other strings, and other values that ``constraint`` accepts."""
    return lambda value, name: check_choice(value, name, words) if isinstance(value, str) else constraint(value, name)


def callable_or(constraint: Constraint) -> Constraint:
    """Accept functions, and values that ``constraint`` accepts."""
    return lambda value, name: None if callable(value) else constraint(value, name)
