"""Rules that a policy must satisfy.

    Never("PI", when="T1 > 5e5")              never take this action where the condition holds
    Only("none", when="V <= 10 and E > 1e4")  take no other action there
    Monotone("dose_before", increasing=True)  the action index never decreases as the feature increases
    Cap("both", at_most=0.3)                  take the action in at most this share of the decisions
    Costs({"RTI": 2.0, "PI": 0.5})            cost of each action, in the units of the values
    Budget({"RTI": 1.0}, at_most=0.2)         limit on the mean cost of the decisions

Pointwise rules (the first two) hold in every state, seen or not. Caps and budgets hold on the sample that the policy was
learned from, and can be measured on any other sample.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, instance_of, one_of, optional
from capi._utils.suggestions import did_you_mean
from capi._utils.validation import Bools, Floats, as_not_negative, as_share, is_real
from capi.data.schema import Schema
from capi.errors import InvalidInputError

MOST_COMBINATIONS = 100_000  # of rules that are checked for conflicts
COMPARISON = re.compile(r"^(?P<feature>.+?)\s*(?P<sign><=|>=|==|<|>)\s*(?P<number>\S+)$")


def _listed(actions: Any) -> tuple[Any, ...]:
    return tuple(actions) if isinstance(actions, list | tuple | set | frozenset) else (actions,)


def _check_action(value: Any, name: str) -> None:  # noqa: ARG001  some rules have one action, others several
    if not isinstance(value, Hashable) or isinstance(value, np.ndarray):
        raise InvalidInputError(f"an action must be one label or number; got {value!r}.")


def _check_actions(value: Any, name: str) -> None:
    for action in _listed(value):
        _check_action(action, name)


def _check_costs(value: Any, name: str) -> None:
    if not isinstance(value, Mapping) or not value:
        raise InvalidInputError(f"{name} must map actions to numbers, such as {{'treat': 1.0}}; got {value!r}.")
    for action, cost in value.items():
        as_not_negative(cost, f"the cost of {action!r}")


def _check_number(value: Any, name: str) -> None:
    if not is_real(value) or not np.isfinite(value):
        raise InvalidInputError(f"{name} must be a number; got {value!r}.")


_POINTWISE: Constraints = {
    "when": optional(instance_of(str, "text, such as 'x3 > 5'")),
    "if_missing": one_of(True, False),
}


@dataclass(frozen=True)
class Never:
    """Never take an action where a condition holds.

    Parameters
    ----------
    action : label or number
    when : str, optional
        Comparisons of features with numbers, joined by "and": ``"age > 65 and dose <= 2"``. By default the rule holds everywhere.
    if_missing : bool
        Whether a comparison is true where its feature is missing.

    Examples
    --------
    >>> str(Never("PI", when="T1 > 5e5"))
    'never PI when T1 > 5e5'
    """

    action: Any
    when: str | None = None
    if_missing: bool = False

    _constraints: ClassVar[Constraints] = {"action": _check_action, **_POINTWISE}

    def __post_init__(self) -> None:
        check_parameters(self)

    def __str__(self) -> str:
        return f"never {self.action}" + _when(self.when)


@dataclass(frozen=True)
class Only:
    """Take only these actions where a condition holds.

    Parameters
    ----------
    actions : label, number, or a sequence of them
    when : str, optional
        As in `Never`.
    if_missing : bool
        As in `Never`.

    Examples
    --------
    >>> str(Only(["none", "PI"], when="V <= 10"))
    'only none or PI when V <= 10'
    """

    actions: Any
    when: str | None = None
    if_missing: bool = False

    _constraints: ClassVar[Constraints] = {"actions": _check_actions, **_POINTWISE}

    def __post_init__(self) -> None:
        check_parameters(self)

    def __str__(self) -> str:
        return f"only {' or '.join(map(str, _listed(self.actions)))}" + _when(self.when)


@dataclass(frozen=True)
class Monotone:
    """The action index never decreases (or never increases) as a feature increases, all else being equal.

    Parameters
    ----------
    feature : name or column
    increasing : bool
        False: the action index never increases.

    Examples
    --------
    >>> str(Monotone("age"))
    'monotone: the action never falls as age rises'
    """

    feature: Any
    increasing: bool = True

    def __str__(self) -> str:
        return f"monotone: the action never {'falls' if self.increasing else 'rises'} as {self.feature} rises"


@dataclass(frozen=True)
class Budget:
    """The mean cost of the decisions on the sample must not exceed a limit.

    Parameters
    ----------
    costs : mapping from actions to numbers
        Cost of each action; actions that are not listed cost nothing.
    at_most : float

    Examples
    --------
    >>> str(Budget({"RTI": 1.0, "both": 2.0}, at_most=0.5))
    'budget: mean cost (RTI 1, both 2) at most 0.5'
    """

    costs: Mapping[Any, float]
    at_most: float

    _constraints: ClassVar[Constraints] = {"costs": _check_costs, "at_most": _check_number}

    def __post_init__(self) -> None:
        check_parameters(self)

    def __str__(self) -> str:
        named = ", ".join(f"{action} {cost:g}" for action, cost in self.costs.items())
        return f"budget: mean cost ({named}) at most {self.at_most:g}"


@dataclass(frozen=True)
class Cap:
    """An action must not be taken in more than a given share of the sample.

    Parameters
    ----------
    action : label or number
    at_most : float in [0, 1]

    Examples
    --------
    >>> str(Cap("both", 0.3))
    'cap: both in at most 30 % of the states'
    """

    action: Any
    at_most: float

    _constraints: ClassVar[Constraints] = {"at_most": as_share}

    def __post_init__(self) -> None:
        check_parameters(self)

    def __str__(self) -> str:
        return f"cap: {self.action} in at most {100 * self.at_most:g} % of the states"


@dataclass(frozen=True)
class Costs:
    """Costs of actions, in the units of the values; they are subtracted from the values before a policy is chosen.

    Parameters
    ----------
    costs : mapping from actions to numbers
        Actions that are not listed cost nothing.

    Examples
    --------
    >>> str(Costs({"RTI": 2.0}))
    'costs: RTI 2'
    """

    costs: Mapping[Any, float]

    _constraints: ClassVar[Constraints] = {"costs": _check_costs}

    def __post_init__(self) -> None:
        check_parameters(self)

    def __str__(self) -> str:
        return "costs: " + ", ".join(f"{action} {cost:g}" for action, cost in self.costs.items())


Rule: TypeAlias = Never | Only | Monotone | Budget | Cap | Costs


@dataclass(frozen=True, eq=False)
class Box:
    """Where a condition holds: one interval per feature. Open intervals end at the nearest number inside them."""

    low: dict[int, float] = field(default_factory=dict)
    high: dict[int, float] = field(default_factory=dict)

    def contains(self, states: Floats, if_missing: bool) -> Bools:
        """Return where the condition holds; ``states`` (n, d) -> (n,)."""
        inside = np.ones(len(states), dtype=bool)
        for bounds, sign in ((self.low, 1.0), (self.high, -1.0)):
            for j, bound in bounds.items():
                column = states[:, j]
                inside &= (sign * column >= sign * bound) | (np.isnan(column) & if_missing)
        return inside

    def with_bound(self, feature: int, sign: str, number: float) -> Box:
        """Return the part of the box where the feature also satisfies the comparison with ``number``."""
        low, high = dict(self.low), dict(self.high)
        if sign in (">", ">=", "=="):
            bound = np.nextafter(number, np.inf) if sign == ">" else number
            low[feature] = max(low.get(feature, -np.inf), float(bound))
        if sign in ("<", "<=", "=="):
            bound = np.nextafter(number, -np.inf) if sign == "<" else number
            high[feature] = min(high.get(feature, np.inf), float(bound))
        return Box(low, high)

    def within(self, other: Box) -> bool:
        """Whether ``other`` contains this box."""
        above = all(self.low.get(j, -np.inf) >= bound for j, bound in other.low.items())
        return above and all(self.high.get(j, np.inf) <= bound for j, bound in other.high.items())

    def meets(self, other: Box) -> Box | None:
        """Return the intersection, None if it is empty."""
        low = {j: max(self.low.get(j, -np.inf), other.low.get(j, -np.inf)) for j in {*self.low, *other.low}}
        high = {j: min(self.high.get(j, np.inf), other.high.get(j, np.inf)) for j in {*self.high, *other.high}}
        empty = any(low[j] > high.get(j, np.inf) for j in low)
        return None if empty else Box(low, high)


@dataclass(frozen=True, eq=False)
class Forbidden:
    """A compiled pointwise rule: these actions are forbidden in this box."""

    rule: Never | Only
    actions: tuple[int, ...]
    box: Box


def forbidden_by(rule: Never | Only, schema: Schema) -> Forbidden:
    """Return what a pointwise rule forbids, with features and actions as indices."""
    named = {action_number(a, schema) for a in _listed(rule.action if isinstance(rule, Never) else rule.actions)}
    actions = named if isinstance(rule, Never) else set(range(len(schema.action_labels))) - named
    return Forbidden(rule, tuple(sorted(actions)), box_of(rule.when, schema))


def box_of(when: str | None, schema: Schema) -> Box:
    """Return the box where a condition holds."""
    box = Box()
    for part in [] if when is None else re.split(r"\s+and\s+", when.strip()):
        found = COMPARISON.match(part.strip())
        number = None if found is None else _number(found["number"])
        if found is None or number is None:
            raise InvalidInputError(
                f"when must be comparisons such as 'x3 > 5', joined by 'and'; {part!r} in {when!r} is not a comparison. "
                "Put a feature on the left and a number on the right."
            )
        box = box.with_bound(feature_number(found["feature"], schema), found["sign"], number)
    return box


def feature_number(feature: Any, schema: Schema) -> int:
    """Return the column of a feature given by name or index."""
    if feature in schema.feature_names:
        return schema.feature_names.index(feature)
    if isinstance(feature, int) and not isinstance(feature, bool) and 0 <= feature < len(schema.feature_names):
        return feature
    known = ", ".join(schema.feature_names)
    guess = did_you_mean(feature, schema.feature_names)
    raise InvalidInputError(f"unknown feature {feature!r}; the features are {known}.{guess}{_hint(schema)}")


def action_number(action: Any, schema: Schema) -> int:
    """Return the index of an action given by label or index; labels take precedence."""
    if action in schema.action_labels:
        return schema.action_labels.index(action)
    if isinstance(action, int) and not isinstance(action, bool) and 0 <= action < len(schema.action_labels):
        return action
    known = ", ".join(map(str, schema.action_labels))
    guess = did_you_mean(action, schema.action_labels)
    raise InvalidInputError(f"unknown action {action!r}; the actions are {known}.{guess}{_hint(schema)}")


def cost_table(rule: Budget | Cap | Costs, schema: Schema) -> Floats:
    """Return the cost of each action (A,); a cap assigns cost one to its action."""
    costs = {rule.action: 1.0} if isinstance(rule, Cap) else rule.costs
    table = np.zeros(len(schema.action_labels))
    for action, cost in costs.items():
        table[action_number(action, schema)] = float(cost)
    return table


def check_feasible(forbidden: Sequence[Forbidden], n_actions: int) -> None:
    """Refuse rules that together leave no action in some states, and name them.

    Actions with few rules are checked first, and a rule whose box lies within that of another rule for the same action is
    skipped. If there are still too many combinations, the check gives up; acting in such a state raises an error anyway.
    """
    of_action = sorted((_widest([f for f in forbidden if a in f.actions]) for a in range(n_actions)), key=len)
    if not of_action[0]:
        return  # some action is allowed everywhere
    tried = 0

    def clash(number: int, box: Box, chosen: tuple[Forbidden, ...]) -> tuple[Forbidden, ...] | None:
        """Return rules that forbid all actions from ``number`` on somewhere in ``box``, added to those already chosen."""
        nonlocal tried
        if number == n_actions:
            return chosen
        if any(f in chosen for f in of_action[number]):  # no further rule is needed for this action
            return clash(number + 1, box, chosen)
        for f in of_action[number]:
            tried += 1
            common = box.meets(f.box) if tried <= MOST_COMBINATIONS else None
            found = None if common is None else clash(number + 1, common, (*chosen, f))
            if found is not None:
                return found
        return None

    if found := clash(0, Box(), ()):
        rules = " and ".join(repr(str(f.rule)) for f in forbidden if f in found)
        raise InvalidInputError(
            f"the rules leave no action in some states: {rules} conflict. Drop or narrow one of them."
        )


def _widest(forbidden: list[Forbidden]) -> list[Forbidden]:
    """Return the rules whose boxes lie in no other box; of equal ones, the first."""
    return [
        f
        for i, f in enumerate(forbidden)
        if not any(
            f.box.within(g.box) and (j < i or not g.box.within(f.box)) for j, g in enumerate(forbidden) if j != i
        )
    ]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if np.isnan(value) else value


def _when(when: str | None) -> str:
    return "" if when is None else f" when {when}"


def _hint(schema: Schema) -> str:
    return (
        " Pass schema=batch.schema to use the names and labels of your table."
        if schema.feature_names[0] == "x0"
        else ""
    )
