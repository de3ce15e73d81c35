"""The settings of the loop, the result of a round, and the checks of inputs and results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
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
from capi.trees.projections import Projections
from capi.types import Policy, PolicyEvaluator, PolicySpace, QFunction, StateSample

Thing = TypeVar("Thing")
ByIteration: TypeAlias = Callable[[int, Policy, np.random.Generator], Thing]  # (k, policy, rng) -> Thing
Weighting: TypeAlias = Literal["batch", "occupancy", "mixture"]
States: TypeAlias = ArrayLike | tuple[ArrayLike, ...] | StateSample


Keep: TypeAlias = "Literal['last', 'best'] | Callable[[Iteration], float]"
SETTLED_ROUNDS = 3  # in which nothing moves, before the loop stops by itself
HARDLY = 1e-3  # change of the mean value, relative to it, that does not count as movement


class Update(Protocol):
    """Combine the old and the new policy."""

    def __call__(self, old: Policy, new: Policy, *, q: QFunction, states: Floats, k: int) -> Policy | None:
        """Return the policy to continue with, or None to end the loop with the old one."""


@dataclass(frozen=True, eq=False)
class Yardstick:
    """What the model grows from in which policies are compared while the loop runs: targets (n, 2), and the round they come from."""

    targets: Floats
    k: int
    projections: Projections | None = None  # combinations of columns that its trees also cut


@dataclass(frozen=True, eq=False)
class Iteration:
    """The result of one round: Q of the old policy, and the new policy."""

    k: int  # from 0; the policy is the paper's pi_{k+1}
    q: QFunction
    policy: Policy
    loss: float  # of the policy on the sample, according to q: what the space minimised
    changed: float  # fraction of decisions on the sample that differ from the previous policy's (total variation)
    seconds: float
    n_unchanged: int  # consecutive rounds, up to this one, without a changed decision
    seeds: np.random.SeedSequence  # of the whole loop, so it can resume after this round
    schema: Schema | None  # names and labels of the round's batch, or of its evaluator's model
    value: float  # mean of q over the sample under the new policy: the evaluator's own estimate, not evidence
    n_drawn: int = 0  # rows of a batch that was generated for this round
    n_settled: int = 0  # consecutive rounds, up to this one, with the same decisions and almost the same value
    visits: Floats | None = None  # (m,) occupancies of the policies so far, summed; None if all states count alike
    effective_rows: float | None = None  # rows, or states of a model, that the old policy visits
    score: float | None = None  # of the new policy, if only better ones are accepted
    accepted: bool = True  # otherwise the policy is the old one
    yardstick: Yardstick | None = None  # by which policies are accepted
    supported: Any = None  # the batch, the one with the masks of a support, and that support, so that the loop can resume on the same objects

    def numbers(self) -> dict[str, float]:
        """Return the numbers of the round, which are cheap to keep, and the number of simulated transitions if any."""
        simulated = getattr(self.q, "n_transitions", None)
        cost = {} if simulated is None else {"n_transitions": simulated + self.n_drawn}
        more = {
            "effective_rows": self.effective_rows,
            "score": self.score,
            "accepted": None if self.score is None else float(self.accepted),
            "remaining_gap": getattr(
                self.policy, "remaining_gap", None
            ),  # of a search for the best policy of the space
        }
        return {
            "k": self.k,
            "loss": self.loss,
            "changed": self.changed,
            "value": self.value,
            "seconds": self.seconds,
            **cost,
            **{name: number for name, number in more.items() if number is not None},
        }


def own_states(batch: Transitions) -> StateSample:
    """Return the states of a batch, in which the logged decisions were made."""
    return StateSample(batch.states, batch.weights, batch.allowed)


def next_states(batch: Transitions) -> StateSample:
    """Return the next states of a batch, in which a policy's decisions enter the Bellman targets."""
    return StateSample(batch.next_states, batch.weights, batch.next_masks())


def _part_with(verb: str) -> Constraint:
    """Return a constraint that accepts objects with the method ``verb`` and functions that build one per round."""

    def check(part: Any, name: str) -> None:
        if isinstance(part, type) or not (callable(part) or hasattr(part, verb)):
            hint = f" Did you mean {part.__name__}()?" if isinstance(part, type) else ""
            raise InvalidInputError(
                f"{name} must have the method {verb}, or be a function (k, policy, rng); got {part!r}.{hint}"
            )

    return check


@dataclass(frozen=True, eq=False)
class Loop:
    """The settings of the loop; `CAPI` documents all except the last ones, which are up to rules and baselines."""

    evaluator: PolicyEvaluator | ByIteration[PolicyEvaluator] | None  # None: by rule
    space: PolicySpace | ByIteration[PolicySpace] | None
    discount: float
    n_iterations: int | None
    initial_policy: Policy | None = None
    random_state: RandomState = None
    loss: Literal["gap", "zero-one"] = "gap"
    update: Update | None = None
    patience: int | None = None
    keep: Keep | None = "last"  # None: by rule
    state_weights: Weighting | None = "batch"  # None: by rule
    accept: Literal["any", "improving"] = "any"
    support: Any = None  # Support
    until_settled: bool | None = False  # whether to stop when neither decisions nor values move; None: by rule
    n_from_log: int = 0  # first rounds, each of which begins with what was done; the next one begins anew
    stop: Callable[[Iteration], bool] | None = (
        None  # called after each round but those from the log, in addition to patience
    )
    sample_of: Callable[[Transitions], StateSample] = own_states  # the states to use if none are given

    _constraints: ClassVar[Constraints] = {
        "evaluator": optional(_part_with("evaluate")),
        "space": optional(_part_with("improve")),
        "discount": as_discount,
        "n_iterations": optional(at_least(1)),
        "initial_policy": optional(
            satisfying(
                lambda policy: isinstance(policy, Policy),
                "be a Policy (act, probabilities, n_actions)",
                advice="For the same action everywhere, pass capi.policies.Constant(action, n_actions).",
            )
        ),
        "loss": one_of("gap", "zero-one"),
        "update": optional(satisfying(callable, "be a function (old, new, *, q, states, k)")),
        "patience": optional(at_least(1)),
        "until_settled": optional(one_of(True, False)),
        "keep": satisfying(
            lambda keep: keep is None or callable(keep) or (isinstance(keep, str) and keep in ("last", "best")),
            "be 'last', 'best' or a function of an Iteration (larger is better)",
        ),
        "state_weights": optional(one_of("batch", "occupancy", "mixture")),
        "accept": one_of("any", "improving"),
        "support": optional(satisfying(lambda s: hasattr(s, "fit") and hasattr(s, "threshold"), "be a capi.Support")),
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        object.__setattr__(self, "discount", as_discount(self.discount))

    @property
    def n_rounds(self) -> int:
        """The number of rounds, which a rule has filled in if the user did not."""
        if self.n_iterations is None:
            raise InvalidInputError("n_iterations must be given.")
        return self.n_iterations

    def score_of(self, iteration: Iteration) -> float | None:
        """Return the score of a round if ``keep`` is a function; None otherwise."""
        if not callable(self.keep):
            return None
        score = self.keep(iteration)
        if not isinstance(score, Real) or score != score:  # NaN
            raise InvalidInputError(
                f"keep must return a number other than NaN; at k = {iteration.k} it returned {score!r}."
            )
        return float(score)

    def ends_with(self, iteration: Iteration) -> bool:
        """Return whether the loop ends after ``iteration``; it never does before it has begun anew."""
        if iteration.k < self.n_from_log:
            return False
        if self.patience is not None and iteration.n_unchanged >= self.patience:
            return True
        if self.until_settled and iteration.n_settled >= SETTLED_ROUNDS:
            return True
        return self.stop is not None and self.stop(iteration)


def resolved(value: Any, k: int, policy: Policy, rng: Callable[[], np.random.Generator], kind: type) -> Any:
    """Return ``value``, or its result for round ``k`` if it is a function of (k, policy, rng)."""
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
    """Return the checked states, weights and masks of round ``k``."""
    if states is None:
        if batch is not None:
            return sample_of(batch)
        known = getattr(evaluator, "states", None)
        if known is None:
            raise InvalidInputError(
                f"states must be given: neither a batch nor {type(evaluator).__name__} provides them. Pass states to fit."
            )
        return StateSample(as_states(known))
    if callable(states):
        states = states(k, policy, rng())
    sample = StateSample.of(states, "states")
    x = as_states(sample.states, n_features=None if batch is None else batch.n_features).copy()
    x.flags.writeable = False  # only results for arrays that cannot change are cached
    allowed = as_allowed(sample.allowed, "allowed", (len(x), policy.n_actions))
    return StateSample(x, as_weights(sample.weights, "weights", len(x)), allowed)


def start_sample(starts: Any, batch: Any) -> StateSample | None:
    """Return the checked states in which episodes begin; None if the batch tells."""
    if starts is None:
        return None
    if not isinstance(batch, Transitions):
        raise InvalidInputError("starts must come with a batch: they replace the first states of its episodes.")
    sample = StateSample.of(starts, "starts")
    x = as_states(sample.states, "starts", n_features=batch.n_features).copy()
    x.flags.writeable = False
    allowed = as_allowed(sample.allowed, "allowed", (len(x), batch.n_actions))
    return StateSample(x, as_weights(sample.weights, "weights of the starts", len(x)), allowed)


def n_actions(evaluator: Any, transitions: Any) -> int:
    """Return the number of actions, A, for the default initial policy."""
    for source in (transitions, evaluator):
        n_actions = getattr(source, "n_actions", None)
        if n_actions is not None:
            return int(n_actions)
    raise InvalidInputError(
        "transitions or initial_policy must be given: without them, and with an evaluator that has no n_actions, the "
        "number of actions is unknown. Pass the batch to fit, or initial_policy=capi.policies.Constant(0, n_actions)."
    )


def check_batch(transitions: Any) -> None:
    """Raise an error unless ``transitions`` is a batch, a function that returns one, or None."""
    if transitions is not None and not isinstance(transitions, Transitions) and not callable(transitions):
        remedy = " Convert the table to a batch with Transitions.from_frame." if is_table(transitions) else ""
        raise InvalidInputError(
            f"transitions must be Transitions, a function (k, policy, rng) or None; got a {type(transitions).__name__}.{remedy}"
        )


def batch_of(transitions: Any, roles: Mapping[str, Any], discount: float, verb: str) -> Any:
    """Convert a table whose columns have ``roles`` to a batch, and return anything else unchanged.

    ``verb`` is the method that the user called, for error messages.
    """
    if not is_table(transitions):
        if roles:
            raise InvalidInputError(
                f"{', '.join(roles)}: column names must come with a table; {verb} got a {type(transitions).__name__}. "
                "Omit them, or pass the table."
            )
        return transitions
    known = list(RoleNames.__annotations__)
    for role in roles:
        check_choice(role, f"a role in {verb}", known)
    missing = [
        role
        for role in ("state", "action", "reward")
        if role not in roles and not (role == "reward" and "cost" in roles)
    ]
    if missing:
        raise InvalidInputError(
            f"{verb} needs the roles of the table's columns; {', '.join(missing)} not given. For example, write "
            f'{verb}(table, episode="patient", time="day", state=["age", "dose"], action="drug", reward="score"), or build '
            f"the batch first with Transitions.from_frame. The columns are {_column_names(transitions)}."
        )
    if roles.get("discount", discount) != discount:
        raise InvalidInputError(
            f"discount must be that of the learner, {discount:g}; got {roles['discount']!r}. Omit it."
        )
    return Transitions.from_frame(transitions, **{**roles, "discount": discount})


def _column_names(table: Any, most: int = 12) -> str:
    names = list(table) if isinstance(table, Mapping) else list(getattr(table, "column_names", table.columns))
    return ", ".join(map(repr, names[:most])) + (f", ... ({len(names)} in total)" if len(names) > most else "")


def checked_values(q: Any, states: Floats, n_actions: int, evaluator: str) -> Floats:
    """Return the checked values of ``q``, which ``evaluator`` returned, at ``states``."""
    if not isinstance(q, QFunction):
        raise InvalidInputError(f"{evaluator}.evaluate must return a QFunction (n_actions, values); got {q!r}.")
    values = as_q_values(q.values(states), n_rows=len(states), name=f"{evaluator}'s Q")
    if values.shape[1] != n_actions:
        raise InvalidInputError(
            f"{evaluator}'s Q must have one column per action; it has {values.shape[1]}, the policy has {n_actions} actions."
        )
    return values


def check_policy(policy: Any, n_actions: int, rule: str) -> None:
    """Raise an error unless ``policy`` is a policy with ``n_actions`` actions."""
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
