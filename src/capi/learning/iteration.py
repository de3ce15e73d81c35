"""What the loop runs with, what a round yields, and the checks at both ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.parameters import Constraint, Constraints, at_least, check_parameters, one_of, optional, satisfying
from capi._utils.randomness import RandomState
from capi._utils.row_ops import row_sum
from capi._utils.validation import (
    Floats,
    as_allowed,
    as_discount,
    as_q_values,
    as_states,
    as_weights,
    check_choice,
)
from capi.data.columns import is_table
from capi.data.readers.roles import RoleNames
from capi.data.schema import Schema
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.policies import Decisions, one_hot
from capi.types import Policy, PolicyEvaluator, PolicySpace, QFunction, StateSample

Thing = TypeVar("Thing")
ByIteration: TypeAlias = Callable[[int, Policy, np.random.Generator], Thing]  # (k, policy, rng) -> Thing
States: TypeAlias = ArrayLike | tuple[ArrayLike, ...] | StateSample


class Update(Protocol):
    """How the new policy enters the loop."""

    def __call__(self, old: Policy, new: Policy, *, q: QFunction, states: Floats, k: int) -> Policy | None:
        """Return the policy to go on with; None ends the loop with the old one."""


@dataclass(frozen=True, eq=False)
class Iteration:
    """What one round of the loop did: Q of the old policy, and the new policy."""

    k: int  # from 0; the policy is the paper's pi_{k+1}
    q: QFunction
    policy: Policy
    loss: float  # of the policy on the sample, by q: what the space minimised
    changed: float  # share of decisions on the sample that differ from the last policy's (total variation)
    seconds: float
    n_unchanged: int  # rounds in a row, up to this one, in which no decision changed
    seeds: np.random.SeedSequence  # of the whole loop, so that it can go on from here
    schema: Schema | None  # the words of the round's batch, or of its evaluator's model
    value: float  # mean of q over the sample under the new policy: what the evaluator itself believes, no evidence
    n_drawn: int = 0  # rows of a batch that was made for this round

    def numbers(self) -> dict[str, float]:
        """Return what is cheap to keep: everything but Q and the policy, and what Q cost if it was simulated."""
        simulated = getattr(self.q, "n_transitions", None)
        cost = {} if simulated is None else {"n_transitions": simulated + self.n_drawn}
        return {
            "k": self.k,
            "loss": self.loss,
            "changed": self.changed,
            "value": self.value,
            "seconds": self.seconds,
            **cost,
        }


def own_states(batch: Transitions) -> StateSample:
    """Return the states of a batch, where its decisions were made."""
    return StateSample(batch.states, batch.weights, batch.allowed)


def next_states(batch: Transitions) -> StateSample:
    """Return the next states of a batch, where a policy's decisions enter the Bellman targets."""
    return StateSample(batch.next_states, batch.weights, batch.next_masks())


def _part_with(verb: str) -> Constraint:
    """Accept what has the method ``verb``, and functions that make such a part for each round."""

    def check(part: Any, name: str) -> None:
        if isinstance(part, type) or not (callable(part) or hasattr(part, verb)):
            hint = f" Did you mean {part.__name__}()?" if isinstance(part, type) else ""
            raise InvalidInputError(
                f"{name} must have the method {verb}, or be a function (k, policy, rng); got {part!r}.{hint}"
            )

    return check


@dataclass(frozen=True, eq=False)
class Loop:
    """Everything that the loop runs with; `CAPI` explains all but ``stop``."""

    evaluator: PolicyEvaluator | ByIteration[PolicyEvaluator]
    space: PolicySpace | ByIteration[PolicySpace]
    discount: float
    n_iterations: int
    initial_policy: Policy | None = None
    random_state: RandomState = None
    loss: Literal["gap", "zero-one"] = "gap"
    update: Update | None = None
    patience: int | None = None
    keep: Literal["last"] | Callable[[Iteration], float] = "last"
    stop: Callable[[Iteration], bool] | None = None  # asked after each round, besides patience
    sample_of: Callable[[Transitions], StateSample] = own_states  # the points of a batch if none are given

    _constraints: ClassVar[Constraints] = {
        "evaluator": _part_with("evaluate"),
        "space": _part_with("improve"),
        "discount": as_discount,
        "n_iterations": at_least(1),
        "initial_policy": optional(
            satisfying(
                lambda policy: isinstance(policy, Policy),
                "be a Policy (act, probabilities, n_actions)",
                advice="For one action everywhere pass capi.policies.Constant(action, n_actions).",
            )
        ),
        "loss": one_of("gap", "zero-one"),
        "update": optional(satisfying(callable, "be a function (old, new, *, q, states, k)")),
        "patience": optional(at_least(1)),
        "keep": satisfying(
            lambda keep: callable(keep) or (isinstance(keep, str) and keep == "last"),
            "be 'last' or a function of an Iteration (larger is better)",
        ),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        object.__setattr__(self, "discount", as_discount(self.discount))

    def ends_with(self, iteration: Iteration) -> bool:
        """Whether the loop is over after ``iteration``."""
        if self.patience is not None and iteration.n_unchanged >= self.patience:
            return True
        return self.stop is not None and self.stop(iteration)


def resolved(value: Any, k: int, policy: Policy, rng: Callable[[], np.random.Generator], kind: type) -> Any:
    """Return ``value``, or what it makes for round ``k`` if it is a function of (k, policy, rng)."""
    if not inspect.isroutine(value) and (value is None or isinstance(value, kind)):
        return value
    made = value(k, policy, rng())
    if not isinstance(made, kind):
        raise InvalidInputError(
            f"a function (k, policy, rng) must return a {kind.__name__}; at k = {k} it returned {made!r}."
        )
    return made


def state_sample(
    states: Any,
    batch: Transitions | None,
    sample_of: Callable[[Transitions], StateSample],
    evaluator: PolicyEvaluator,
    k: int,
    policy: Policy,
    rng: Callable[[], np.random.Generator],
) -> StateSample:
    """Return the points, weights and masks of round ``k``, checked."""
    if states is None:
        if batch is not None:
            return sample_of(batch)
        known = getattr(evaluator, "states", None)
        if known is None:
            raise InvalidInputError(
                f"states must be given: there is no batch, and {type(evaluator).__name__} knows none."
            )
        return StateSample(as_states(known))
    if callable(states):
        states = states(k, policy, rng())
    if isinstance(states, tuple) and not 1 <= len(states) <= 3:
        raise InvalidInputError(f"states must be an array or (states, weights, allowed); got a tuple of {len(states)}.")
    sample = StateSample(*states) if isinstance(states, tuple) else StateSample(states)
    x = as_states(sample.states, n_features=None if batch is None else batch.n_features).copy()
    x.flags.writeable = False  # so that what is found out about these points can be remembered
    allowed = as_allowed(sample.allowed, "allowed", (len(x), policy.n_actions))
    return StateSample(x, as_weights(sample.weights, "weights", len(x)), allowed)


def n_actions(evaluator: Any, transitions: Any) -> int:
    """Return A for the default initial policy."""
    for source in (transitions, evaluator):
        n_actions = getattr(source, "n_actions", None)
        if n_actions is not None:
            return int(n_actions)
    raise InvalidInputError(
        "transitions or an initial_policy must be given: neither a fixed batch nor the evaluator says how many actions "
        "there are. Pass the batch to fit, or initial_policy=capi.policies.Constant(0, n_actions)."
    )


def check_batch(transitions: Any) -> None:
    """Refuse what is neither a batch nor a function that makes one."""
    if transitions is not None and not isinstance(transitions, Transitions) and not callable(transitions):
        remedy = " Make a batch of the table with Transitions.from_frame." if is_table(transitions) else ""
        raise InvalidInputError(
            f"transitions must be Transitions, a function (k, policy, rng) or None; got a {type(transitions).__name__}.{remedy}"
        )


def batch_of(transitions: Any, roles: Mapping[str, Any], discount: float, verb: str) -> Any:
    """Return the batch of a table whose columns have ``roles``, and everything else as it is; ``verb`` was called with it."""
    if not is_table(transitions):
        if roles:
            raise InvalidInputError(
                f"{', '.join(roles)}: names of columns go with a table; {verb} got a {type(transitions).__name__}. "
                "Leave them out, or pass the table."
            )
        return transitions
    known = list(RoleNames.__annotations__)
    for role in roles:
        check_choice(role, f"a role in {verb}", known)
    missing = [role for role in ("state", "action", "reward") if role not in roles]
    if missing:
        raise InvalidInputError(
            f"{verb} must be told which columns of a table are what; {', '.join(missing)} not given. Write for example "
            f'{verb}(table, episode="patient", time="day", state=["age", "dose"], action="drug", reward="score"), or make the '
            f"batch first with Transitions.from_frame. The columns are {_column_names(transitions)}."
        )
    if roles.get("discount", discount) != discount:
        raise InvalidInputError(
            f"discount must be that of the learner, {discount:g}; got {roles['discount']!r}. Leave it out."
        )
    return Transitions.from_frame(transitions, **{**roles, "discount": discount})


def _column_names(table: Any, most: int = 12) -> str:
    names = list(table) if isinstance(table, Mapping) else list(getattr(table, "column_names", table.columns))
    return ", ".join(map(repr, names[:most])) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def checked_values(q: Any, states: Floats, n_actions: int, evaluator: str) -> Floats:
    """Return the values of ``q`` at ``states``, or say what is wrong with what the evaluator returned."""
    if not isinstance(q, QFunction):
        raise InvalidInputError(f"{evaluator}.evaluate must return a QFunction (n_actions, values); got {q!r}.")
    values = as_q_values(q.values(states), n_rows=len(states), name=f"{evaluator}'s Q")
    if values.shape[1] != n_actions:
        raise InvalidInputError(
            f"{evaluator}'s Q must have a column an action; it has {values.shape[1]}, the policy has {n_actions} actions."
        )
    return values


def check_policy(policy: Any, n_actions: int, rule: str) -> None:
    """Refuse what is no policy over as many actions."""
    if not isinstance(policy, Policy):
        raise InvalidInputError(f"{rule}; got {policy!r}.")
    if policy.n_actions != n_actions:
        raise InvalidInputError(f"{rule} with {n_actions} actions; got one with {policy.n_actions}.")


def distance(before: Decisions, now: Decisions, n_actions: int) -> Floats:
    """Return the total variation between the decisions of two policies in each state (n,)."""
    if before.ndim == now.ndim == 1:
        return (before != now).astype(np.float64)
    old, new = (one_hot(actions, n_actions) if actions.ndim == 1 else actions for actions in (before, now))
    return row_sum(np.abs(new - old), np.full_like(old, 0.5))
