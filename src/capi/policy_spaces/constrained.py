"""Any policy space, restricted to the policies that satisfy given rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.parameters import Constraints, check_parameters, instance_of, optional
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_states, as_weights, check_rows
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.policies import Deterministic, in_blocks
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver, improved, in_round
from capi.policy_spaces.imitation import ReadByImitation, imitation
from capi.policy_spaces.rules import (
    Budget,
    Cap,
    Costs,
    Forbidden,
    Monotone,
    Never,
    Only,
    Rule,
    check_feasible,
    cost_table,
    feature_number,
    forbidden_by,
)
from capi.types import Policy, PolicySpace, QFunction

SEARCH_STEPS = 30  # bisections of a multiplier
MOST_DOUBLINGS = 60
ROUNDS = 5  # over several budgets, which affect each other
ROUNDING = 1e-12  # of a mean, relative to its largest term


@dataclass(frozen=True, eq=False)
class _Limit:
    """A cap or a budget: the mean of ``costs`` (A,) over decisions is at most ``at_most``."""

    rule: Budget | Cap
    costs: Floats
    at_most: float

    def mean(self, actions: Ints, weights: Floats | None) -> float:
        """Return the mean cost of decisions (n,)."""
        return float(np.average(self.costs[actions], weights=weights))

    def holds(self, actions: Ints, weights: Floats | None) -> bool:
        """Whether decisions (n,) satisfy the limit."""
        return self.mean(actions, weights) <= self.at_most + self.slack

    @property
    def slack(self) -> float:
        """Rounding error allowed for the mean of these costs."""
        return ROUNDING * float(max(abs(self.at_most), self.costs.max()))


@dataclass(frozen=True, eq=False)
class _Compiled:
    """The rules, with features and actions as indices."""

    forbidden: tuple[Forbidden, ...]
    monotone: dict[int, int]
    costs: Floats  # (A,) subtracted from values
    limits: tuple[_Limit, ...]

    @classmethod
    def of(cls, rules: Sequence[Rule], schema: Schema) -> _Compiled:
        """Return the compiled rules, or raise if they contradict each other."""
        forbidden = tuple(forbidden_by(rule, schema) for rule in rules if isinstance(rule, Never | Only))
        check_feasible(forbidden, len(schema.action_labels))
        costs = [cost_table(rule, schema) for rule in rules if isinstance(rule, Costs)]
        limits = [_Limit(r, cost_table(r, schema), float(r.at_most)) for r in rules if isinstance(r, Budget | Cap)]
        return cls(
            forbidden, _directions(rules, schema), sum(costs, np.zeros(len(schema.action_labels))), tuple(limits)
        )

    def mask(self, states: Floats, allowed: Bools | None) -> Bools | None:
        """Return the actions that the rules and ``allowed`` permit in each state (n, A); None: all."""
        if not self.forbidden:
            return allowed
        mask = np.ones((len(states), len(self.costs)), dtype=bool) if allowed is None else allowed.copy()
        for f in self.forbidden:
            inside = f.box.contains(states, f.rule.if_missing)
            mask[np.ix_(inside, np.array(f.actions, dtype=np.int64))] = False
        if not mask.any(axis=1).all():
            i = int(np.argmin(mask.any(axis=1)))
            fired = [f for f in self.forbidden if f.box.contains(states[i : i + 1], f.rule.if_missing)[0]]
            names = " and ".join(repr(str(f.rule)) for f in fired)
            if allowed is not None:
                names += f" and allowed[{i}]"
            check_rows(
                mask.any(axis=1),
                states,
                "states",
                f"must have at least one allowed action; {names} leave none",
                ""
                if allowed is None
                else " allowed are the masks of the table or of a support: change the rule, or these.",
            )
        return mask


@dataclass(frozen=True, eq=False)
class _Shifted:
    """A Q-function minus a price for each action."""

    q: QFunction
    prices: Floats  # (A,)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.q.n_actions

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) minus the prices (n, A)."""
        return self.q.values(states) - self.prices


@dataclass(frozen=True, eq=False)
class ConstrainedPolicy(Deterministic):
    """A policy of another space that satisfies the rules; see `Constrained`."""

    policy: Policy
    kept_rules: tuple[Rule, ...]
    compiled: _Compiled = field(repr=False)
    multipliers: Floats = field(repr=False)  # the price per unit of each cap and budget, in order
    n_features: int = field(repr=False)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.policy.n_actions

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the best action among those that the rules (and ``allowed``) permit (n,)."""
        x = as_states(states, n_features=self.n_features)
        mask = self.compiled.mask(x, as_allowed(allowed, "allowed", (len(x), self.n_actions)))
        return self.policy.act(x, mask)

    def report(
        self, states: ArrayLike, allowed: ArrayLike | None = None, weights: ArrayLike | None = None
    ) -> list[dict[str, Any]]:
        """Return, for each cap and budget, the mean cost on ``states`` (n, d), the limit and whether it holds there.

        All limits hold on the sample that the policy was learned from; on held-out episodes they may not.
        """
        x = as_states(states, n_features=self.n_features)
        actions, w = (
            self.act(x, as_allowed(allowed, "allowed", (len(x), self.n_actions))),
            as_weights(weights, "weights", len(x)),
        )
        return [
            {
                "rule": str(limit.rule),
                "mean": limit.mean(actions, w),
                "at_most": limit.at_most,
                "holds": limit.holds(actions, w),
            }
            for limit in self.compiled.limits
        ]

    def rules(self, states: ArrayLike | None = None, allowed: ArrayLike | None = None) -> str:
        """Return the policy as text, if its space can print it, and the rules that it satisfies.

        A policy that is too large to print is described by a small tree that imitates it in ``states`` (n, d), by default
        the states that it was learned from.
        """
        inner = _with_schema(self.policy, self.schema)
        if isinstance(inner, ReadByImitation):
            text = inner.described_by(imitation(self, inner.states_to_imitate(states), allowed))
        else:
            text = inner.rules() if hasattr(inner, "rules") else f"{type(inner).__name__}"
        return "\n".join([text, "keeping to:", *(f"  {rule}" for rule in self.kept_rules)])

    def to_dict(self) -> dict[str, Any]:
        """Return the policy and its rules as a dictionary."""
        inner = _with_schema(self.policy, self.schema)
        shown = inner.to_dict() if hasattr(inner, "to_dict") else {"kind": type(inner).__name__}
        return {"policy": shown, "rules": [str(rule) for rule in self.kept_rules]}


def _check_rules(value: Any, name: str) -> None:
    if isinstance(value, Rule) or not isinstance(value, Iterable):
        raise InvalidInputError(f"{name} must be a sequence of rules; got {value!r}.")
    for rule in value:
        if not isinstance(rule, Rule):
            raise InvalidInputError(f"{name} must be Never, Only, Monotone, Cap, Costs or Budget; got {rule!r}.")


@dataclass(frozen=True, eq=False)
class Constrained(ImprovementSolver[ConstrainedPolicy]):
    """The policies of another space that satisfy rules.

    Pointwise rules (`Never`, `Only`) become masks of allowed actions, both in learning and whenever the policy acts: they
    hold in every state, seen or not. Caps and budgets get a price per unit, which is raised until the policy satisfies them
    on the sample; of the policies that the search visits, the one with the least loss is returned. `report` measures the
    limits on other states. Monotone rules are enforced by the space itself, if it supports them (Thresholds, Trees,
    OptimalTrees, Linear).

    Parameters
    ----------
    space : PolicySpace
    rules : sequence of rules
        See `capi.policy_spaces.rules`.
    schema : Schema, optional
        The names and labels of the table, ``batch.schema``. By default features are x0, x1, ... and actions 0, 1, ...

    Examples
    --------
    >>> from capi.policy_spaces import Thresholds
    >>> from capi.policy_spaces.rules import Cap, Never
    >>> states = np.arange(10.0)[:, None]
    >>> values = np.stack([np.zeros(10), states[:, 0] - 2.5], axis=1)
    >>> space = Constrained(Thresholds(), [Never(1, when="x0 >= 8"), Cap(1, 0.3)])
    >>> policy = space.improve(states, values)
    >>> policy.act(states)
    array([0, 0, 0, 0, 0, 1, 1, 1, 0, 0])
    """

    space: PolicySpace
    rules: Sequence[Rule]
    schema: Schema | None = None

    _constraints: ClassVar[Constraints] = {
        "space": instance_of(PolicySpace, "a policy space, with the method improve"),
        "rules": _check_rules,
        "schema": optional(instance_of(Schema, "a Schema, such as batch.schema")),
    }

    def __post_init__(self) -> None:
        if isinstance(self.rules, Iterable) and not isinstance(self.rules, str | Rule):
            object.__setattr__(self, "rules", tuple(self.rules))  # read once, then fixed
        check_parameters(self)
        if any(isinstance(rule, Monotone) for rule in self.rules):
            self._check_monotone()
        if self.schema is not None:
            _Compiled.of(self.rules, self.schema)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,
    ) -> ConstrainedPolicy:
        """Return the policy that satisfies the rules with the least gap-weighted loss on the sample."""
        compiled = _Compiled.of(self.rules, self._schema_for(problem))
        mask = compiled.mask(problem.states, problem.allowed)
        space = replace(self.space, monotone=compiled.monotone) if compiled.monotone else self.space  # type: ignore[type-var]
        before = previous.policy if isinstance(previous, ConstrainedPolicy) else previous
        seed = np.random.default_rng(0) if rng is None else rng
        state = seed.bit_generator.state

        def best(prices: Floats) -> Policy:
            seed.bit_generator.state = state  # the same random draws for all prices
            priced = None if q is None else _Shifted(q, prices) if prices.any() else q
            return improved(space, problem.priced(prices, mask), q=priced, previous=before, rng=seed)

        search = _Search(compiled, best, problem.priced(compiled.costs, mask))
        start = previous.multipliers if isinstance(previous, ConstrainedPolicy) else None
        policy, multipliers = search.run(start)
        kept = tuple(self.rules)
        return ConstrainedPolicy(policy, kept, compiled, multipliers, problem.n_features, schema=self.schema)

    def in_round(self, k: int, n_rounds: int) -> Constrained:
        """Return the space of round ``k`` of a loop."""
        return replace(self, space=in_round(self.space, k, n_rounds))

    def _schema_for(self, problem: ImprovementProblem) -> Schema:
        """Return the names of the problem's features and actions, or refuse those of another table."""
        shape = problem.n_features, problem.n_actions
        schema = Schema.of(*shape) if self.schema is None else self.schema
        if (len(schema.feature_names), len(schema.action_labels)) != shape:
            raise InvalidInputError(
                f"schema must match the data: it has {len(schema.feature_names)} features and "
                f"{len(schema.action_labels)} actions, but the data have {shape[0]} and {shape[1]}."
            )
        return schema

    def _check_monotone(self) -> None:
        if not is_dataclass(self.space) or "monotone" not in {f.name for f in fields(self.space)}:
            raise InvalidInputError(
                f"{type(self.space).__name__} cannot guarantee monotone policies. Use Thresholds, Trees, OptimalTrees "
                "or Linear."
            )
        if any(isinstance(rule, Never | Only) for rule in self.rules):
            raise InvalidInputError(
                "monotone rules and pointwise rules cannot be guaranteed together: where an action is forbidden, another "
                "one replaces it, which may break the order. Use only one of the two kinds."
            )


class _Search:
    """The search for prices at which the best policy satisfies all caps and budgets."""

    def __init__(self, compiled: _Compiled, best: Callable[[Floats], Policy], problem: ImprovementProblem) -> None:
        self.compiled, self.best, self.problem = compiled, best, problem
        self.limits = compiled.limits
        self.found: tuple[float, Policy, Floats] | None = None  # the least loss among those that satisfy all limits

    def run(self, start: Floats | None) -> tuple[Policy, Floats]:
        """Return the policy with the least loss among those found that satisfy all limits, and its prices."""
        multipliers = np.zeros(len(self.limits))
        policy, actions = self._at(multipliers)
        if self._kept(actions):
            return policy, multipliers
        self._check_reachable()
        if start is not None and len(start) == len(self.limits) and start.any():
            self._at(start)
        for _ in range(ROUNDS):
            for j in range(len(self.limits)):
                multipliers[j] = self._price_of(j, multipliers)
            if self._kept(self._at(multipliers)[1]):
                break
        if self.found is None:
            rules = " and ".join(repr(str(limit.rule)) for limit in self.limits)
            raise InvalidInputError(
                f"no policy of the space was found that satisfies {rules}. Raise a limit, or use a richer space."
            )
        return self.found[1], self.found[2]

    def _price_of(self, j: int, multipliers: Floats) -> float:
        """Return the least price of limit ``j`` at which it holds, with the other prices fixed."""

        def kept(price: float) -> bool:
            trial = multipliers.copy()
            trial[j] = price
            return self.limits[j].holds(self._at(trial)[1], self.problem.weights)

        if kept(0.0):
            return 0.0
        gaps = self.problem.values.max(axis=1) - self.problem.values.min(axis=1)
        high = max(float(gaps.mean()), np.finfo(float).tiny) / max(float(self.limits[j].costs.max()), 1e-300)
        for _ in range(MOST_DOUBLINGS):
            if kept(high):
                break
            high *= 2
        else:
            return high
        low = 0.0
        for _ in range(SEARCH_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if kept(middle) else (middle, high)
        return high

    def _at(self, multipliers: Floats) -> tuple[Policy, Ints]:
        """Return the best policy at these prices and its decisions; remember it if it is the best that satisfies all limits."""
        prices = self.compiled.costs + sum(
            (m * limit.costs for m, limit in zip(multipliers, self.limits, strict=True)), 0.0
        )
        policy = self.best(prices)
        actions = policy.act(self.problem.states, self.problem.allowed)
        if self._kept(actions):
            loss = self.problem.loss_of(actions)
            if self.found is None or loss < self.found[0]:
                self.found = loss, policy, multipliers.copy()
        return policy, actions

    def _kept(self, actions: Ints) -> bool:
        return all(limit.holds(actions, self.problem.weights) for limit in self.limits)

    def _check_reachable(self) -> None:
        """Refuse limits below the cost of the cheapest allowed decisions, naming the rules involved."""
        for limit in self.limits:
            costs = np.broadcast_to(limit.costs, self.problem.values.shape)
            allowed = costs if self.problem.mask is None else np.where(self.problem.mask, costs, np.inf)
            cheapest = self.problem.mean(allowed.min(axis=1))
            if cheapest > limit.at_most + limit.slack:
                against = next((f.rule for f in self.compiled.forbidden if self._binds(f, limit)), None)
                pair = f"{str(limit.rule)!r}" + ("" if against is None else f" and {str(against)!r}")
                raise InvalidInputError(
                    f"{pair} cannot be satisfied on the sample: even the cheapest allowed decisions cost "
                    f"{cheapest:.4g} on average."
                )

    def _binds(self, forbidden: Forbidden, limit: _Limit) -> bool:
        """Whether a rule forbids the cheapest action somewhere in the sample."""
        cheapest = int(limit.costs.argmin())
        inside = forbidden.box.contains(self.problem.states, forbidden.rule.if_missing)
        return cheapest in forbidden.actions and bool(inside.any())


def _directions(rules: Sequence[Rule], schema: Schema) -> dict[int, int]:
    """Return the direction of each feature with a monotone rule: 1 or -1."""
    directions: dict[int, int] = {}
    for rule in rules:
        if isinstance(rule, Monotone):
            j, direction = feature_number(rule.feature, schema), 1 if rule.increasing else -1
            if directions.setdefault(j, direction) != direction:
                name = schema.feature_names[j]
                raise InvalidInputError(
                    f"'{Monotone(name)}' and '{Monotone(name, increasing=False)}' conflict. Drop one of them."
                )
    return directions


def _with_schema(policy: Any, schema: Schema | None) -> Any:
    return replace(policy, schema=schema) if isinstance(policy, Deterministic) and schema is not None else policy
