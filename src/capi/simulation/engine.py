"""The simulation engine: runs a policy in a `Domain`, many episodes at once, for rollouts, sampling and performance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from capi._utils.row_ops import chosen_entries, draw_columns
from capi._utils.validation import (
    Bools,
    Floats,
    Ints,
    as_allowed,
    as_array,
    as_floats,
    as_int,
    as_states,
    check_rows,
    check_shape,
)
from capi.errors import InvalidInputError, SimulationError
from capi.policies import Deterministic
from capi.types import Domain, Policy

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Step(NamedTuple):
    """One step of the r episodes that are still running."""

    t: int
    running: Ints  # (r,) episode numbers
    states: Floats  # (r, d)
    allowed: Bools | None  # (r, A)
    actions: Ints  # (r,)
    propensities: Floats  # (r,) probabilities with which the policy took the actions
    rewards: Floats  # (r,)
    next_states: Floats  # (r, d)
    terminated: Bools  # (r,)
    next_allowed: Bools | None = (
        None  # (r, A), set by environments, which report masks only once; a domain can be called
    )


class Outcome(NamedTuple):
    """The results of n episodes."""

    discounted: Floats  # (n,) returns
    undiscounted: Floats  # (n,)
    lengths: Ints  # (n,)
    last_states: Floats  # (n, d)
    terminated: Bools  # (n,) ended by the process, not by the step limit


def policy_first(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function (policy, domain, ...) so that swapped arguments raise an error that shows the right order."""
    name = function.__name__
    at_random = " With None as the policy, actions are uniformly random." if name.startswith("sample_") else ""

    @wraps(function)
    def checked(*arguments: Given.args, **keywords: Given.kwargs) -> Result:
        policy = arguments[0] if arguments else keywords.get("policy")
        domain = arguments[1] if len(arguments) > 1 else keywords.get("domain")
        if _simulates(policy) or _decides(domain):  # checking the protocols would take as long as a step
            got = ", ".join(type(argument).__name__ for argument in (policy, domain) if argument is not None)
            raise InvalidInputError(
                f"{name} takes the policy first, then the domain; got {got}. Write {name}(policy, domain, ...).{at_random}"
            )
        return function(*arguments, **keywords)

    return checked


def _simulates(thing: Any) -> bool:
    return hasattr(thing, "step") and not hasattr(thing, "act")


def _decides(thing: Any) -> bool:
    return hasattr(thing, "act") and not hasattr(thing, "step")


@policy_first
def steps(
    policy: Policy,
    domain: Domain,
    starts: Floats,
    max_steps: int,
    rng: np.random.Generator,
    *,
    first_actions: Ints | None = None,
) -> Iterator[Step]:
    """Run an episode from each of ``starts`` (n, d) and yield one step at a time for all episodes that still run.

    ``first_actions`` (n,) are taken in the first step; then actions are drawn from the policy's probabilities. A policy
    that changes with time has ``at(t)``. The domain's results are checked.
    """
    check_domain_fits(policy, domain)
    x = as_states(starts, "starts", n_features=len(domain.feature_names)).copy()
    running = np.arange(len(x))
    for t in range(as_int(max_steps, "max_steps", minimum=1)):
        x.flags.writeable = False  # a domain that writes to its input would change the recorded states
        masks = masks_of(domain, x)
        if t == 0 and first_actions is not None:
            actions, propensities = first_actions, np.ones(len(x))
        else:
            actions, propensities = decide(policy.at(t) if hasattr(policy, "at") else policy, x, masks, rng)
        following, rewards, terminated = checked_step(domain, x, actions, rng, t)
        yield Step(t, running, x, masks, actions, propensities, rewards, following, terminated)
        alive = ~terminated
        running, x = running[alive], following[alive]
        if not len(running):
            return


def outcome(running: Iterable[Step], starts: Floats, discount: float) -> Outcome:
    """Return the results of the episodes from ``starts`` (n, d) without keeping their steps."""
    n = len(starts)
    discounted, undiscounted, lengths = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64)
    last, ended = np.array(starts, dtype=np.float64), np.zeros(n, dtype=bool)
    for step in running:
        discounted[step.running] += discount**step.t * step.rewards
        undiscounted[step.running] += step.rewards
        lengths[step.running] = step.t + 1
        last[step.running], ended[step.running] = step.next_states, step.terminated
    return Outcome(discounted, undiscounted, lengths, last, ended)


def decide(policy: Policy, states: Floats, allowed: Bools | None, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Return an action for each state, drawn from the policy's probabilities, and its probability; both (n,)."""
    if isinstance(policy, Deterministic):
        actions, propensities = policy.act(states, allowed), np.ones(len(states))
    else:
        name, shape = f"{type(policy).__name__}.probabilities", (len(states), policy.n_actions)
        probabilities = as_floats(policy.probabilities(states, allowed), name, ndim=2)
        check_shape(probabilities, name, shape)
        good = (probabilities >= 0).all(axis=1) & (np.abs(probabilities.sum(axis=1) - 1) <= 1e-6)
        check_rows(good, probabilities, name, "must be at least 0 and sum to 1")
        actions = draw_columns(probabilities, rng)
        propensities = chosen_entries(probabilities, actions)
    if allowed is not None:
        taken = allowed[np.arange(len(states)), actions]
        check_rows(taken, actions, f"the actions of {type(policy).__name__}", "must be allowed in their states")
    return actions, propensities


def masks_of(domain: Any, states: Floats) -> Bools | None:
    """Return the actions that the domain allows in each state (n, A), or None if it always allows all actions."""
    if not hasattr(domain, "allowed"):
        return None
    name = f"{type(domain).__name__}.allowed"
    try:
        allowed = domain.allowed(states)
    except Exception as error:
        raise SimulationError(f"{name} failed: {error!r}.") from error
    return as_allowed(allowed, name, (len(states), domain.n_actions))


def checked_step(
    domain: Domain, states: Floats, actions: Ints, rng: np.random.Generator, t: int
) -> tuple[Floats, Floats, Bools]:
    """Return the checked result of one step of the domain."""
    name, (n, d) = f"{type(domain).__name__}.step", states.shape
    try:
        result = domain.step(states, actions, rng)
    except InvalidInputError as error:
        error.add_note(f"{name} rejected its input at step {t} of the simulation.")
        raise
    except Exception as error:
        raise SimulationError(f"{name} failed at step {t} of the simulation: {error!r}.") from error
    try:
        following, rewards, terminated = (np.asarray(part) for part in result)
    except (TypeError, ValueError) as error:
        raise SimulationError(f"{name} must return next states, rewards and terminated; got {result!r}.") from error
    for part, rule, shape in (
        (following, "next states", (n, d)),
        (rewards, "rewards", (n,)),
        (terminated, "terminated", (n,)),
    ):
        if part.shape != shape:
            raise SimulationError(f"{name} must return {rule} of shape {shape}; at step {t} it returned {part.shape}.")
    for part, rule in ((following, "next states"), (rewards, "rewards")):
        if part.dtype.kind not in "fiub":
            raise SimulationError(f"{name} must return {rule} as numbers; at step {t} it returned {part.dtype}.")
    if terminated.dtype != np.bool_:
        raise SimulationError(f"{name} must return terminated as booleans; at step {t} it returned {terminated.dtype}.")
    bad = ~(np.isfinite(following).all(axis=1) & np.isfinite(rewards))
    if bad.any():
        i = int(np.argmax(bad))
        raise SimulationError(
            f"{name} must return finite numbers; at step {t}, from state {states[i]} with action {actions[i]}, it "
            f"returned next state {following[i]} and reward {rewards[i]}."
        )
    return following.astype(np.float64), rewards.astype(np.float64), terminated.astype(np.bool_)


def check_domain(domain: Any, name: str = "domain") -> None:
    """Raise an error unless ``domain`` is a `Domain`, which can start from any state."""
    if isinstance(domain, type):
        raise InvalidInputError(
            f"{name} must be an instance; got the class {domain.__name__}. Did you mean {domain.__name__}()?"
        )
    if not isinstance(domain, Domain):
        hint = ""
        if hasattr(domain, "reset") and hasattr(domain, "step"):
            hint = (
                " A Gymnasium environment cannot start from any state: use a single one (not a vector environment) only "
                "to sample data (capi.simulation.sampling) or to measure performance (capi.simulation.returns)."
            )
        raise InvalidInputError(
            f"{name} must have initial, step, n_actions, feature_names and action_labels; got {domain!r}.{hint}"
        )


@policy_first
def check_domain_fits(policy: Policy | None, domain: Any) -> None:
    """Raise an error unless ``domain`` can start from any state and has as many actions as the policy."""
    check_domain(domain)
    if policy is not None:
        check_is_policy(policy)
    if policy is not None and policy.n_actions != domain.n_actions:
        raise InvalidInputError(
            f"the policy must have the domain's {domain.n_actions} actions; it has {policy.n_actions}: {policy!r}."
        )


def check_is_policy(policy: Any) -> None:
    """Raise an error unless ``policy`` is a `Policy`."""
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise InvalidInputError(f"policy must be a Policy (act, probabilities, n_actions); got {policy!r}.")


def start_states(domain: Domain, starts: Any, n: int | None, rng: np.random.Generator) -> Floats:
    """Return the given start states (k, d), or ``n`` states drawn from the domain."""
    if starts is not None and n is not None:
        raise InvalidInputError(
            "n_episodes and starts must not both be given: there is one episode per start. Omit n_episodes."
        )
    if starts is not None:
        rows = as_array(starts, "starts")
        return as_states(
            rows[None] if rows.ndim == 1 else rows, "starts", n_features=len(domain.feature_names), allow_nan=False
        )
    if n is None:
        raise InvalidInputError("n_episodes or starts must be given: the number of episodes, or their start states.")
    return drawn_starts(domain, as_int(n, "n_episodes", minimum=1), rng)


def drawn_starts(domain: Domain, n: int, rng: np.random.Generator) -> Floats:
    """Return ``n`` checked start states of the domain (n, d)."""
    name, shape = f"{type(domain).__name__}.initial", (n, len(domain.feature_names))
    try:
        states = np.asarray(domain.initial(n, rng), dtype=np.float64)
    except InvalidInputError:
        raise
    except Exception as error:
        raise SimulationError(f"{name} failed: {error!r}.") from error
    if states.shape != shape or not np.isfinite(states).all():
        raise SimulationError(f"{name} must return finite states of shape {shape}; it returned {states.shape}.")
    return states
