"""Concentrability in the model that a batch and its trees are: how much more often a policy visits a logged row than the log has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capi._utils.parameters import instance_of
from capi._utils.validation import Floats
from capi.errors import InvalidInputError
from capi.evaluators.averager import Averager
from capi.evaluators.under_policy import UnderPolicy
from capi.types import Policy

CHECK_EVERY = 8  # steps between two looks at which policies have settled
SHARE = 0.1  # of the error that is still allowed, for the policies that settle at the same step


def may_settle(left_out: Any, error: float, allowed: float) -> Any:
    """Return which policies can be left as they are, given what each leaves out and the error so far: all together stay below ``allowed``."""
    return left_out <= SHARE * (allowed - error)


def after(model: Averager, policy: Any, m1: int, m2: int) -> float:
    """Return the largest ratio of a row's visits after m1 + m2 steps to its share of the batch."""
    _check_steps(model)
    under = model.under(_checked(policy, "policy", model))
    if m1 == 0:
        x = _first(under)
    else:
        best = model.under(model.best_policy())
        x = _first(best)
        for _ in range(m1 - 1):
            x = _next(best, x)
        x = _next(under, x)
    for _ in range(m2):
        x = _next(under, x)
    return float(_ratios(model, x))


def sums_over(model: Averager, policies: Any, n_rounds: int, relative: float) -> tuple[Floats, float]:
    """Return the discounted sums of the largest ratio over policies, for each round, and their largest error."""
    _check_steps(model)
    if not isinstance(policies, Sequence) or not policies:
        raise InvalidInputError(
            f"policies must be a sequence with at least one policy in an Averager; got {type(policies).__name__}. "
            "The bound over all policies needs a FiniteMDP."
        )
    under = [model.under(_checked(policy, f"policies[{i}]", model)) for i, policy in enumerate(policies)]
    best = model.under(model.best_policy()) if n_rounds > 1 else None
    found: list[tuple[float, float]] = []
    led: Floats | None = None  # visits of the best policy in the step before the round
    for k in range(n_rounds):
        if k and best is not None:
            led = _first(best) if led is None else _next(best, led)
        starts = [_first(each) if led is None else _next(each, led) for each in under]
        found.append(_sum(model, under, starts, relative))
    return np.array([total for total, _ in found]), max(error for _, error in found)


def _sum(model: Averager, under: Sequence[UnderPolicy], starts: list[Floats], relative: float) -> tuple[float, float]:
    """Return the sum over steps of the largest ratio, from the visits ``starts`` of each policy, and its error."""
    discount = model.discount
    shares = model.weights[model.weights > 0] / model.weights.sum()
    worst = float(1 / shares.min())
    going = list(zip(under, starts, strict=True))
    total, error, settled, factor, step = 0.0, 0.0, 0.0, 1.0, 0
    while True:
        total += factor * max([settled, *(_ratios(model, x) for _, x in going)])
        mass = max([settled / worst, *(float(x.sum()) for _, x in going)])
        rest = factor * discount / (1 - discount) * worst * mass  # no ratio exceeds the mass times the worst one
        if rest <= relative / 2 * total:
            return total, error + rest
        factor *= discount
        step += 1
        following = [(each, _next(each, x)) for each, x in going]
        if step % CHECK_EVERY == 0:
            moved = np.array([np.abs(new - x).sum() for (_, x), (_, new) in zip(going, following, strict=True)])
            left_out = factor * moved * worst / (1 - discount) ** 2  # no later step moves further
            small = may_settle(left_out, error, relative / 2 * total)
            error += float(left_out[small].max(initial=0.0))
            settled = max([settled, *(_ratios(model, following[i][1]) for i in np.flatnonzero(small))])
            following = [one for one, settles in zip(following, small, strict=True) if not settles]
        going = following
        if not going:
            return total + factor / (1 - discount) * settled, error


def _check_steps(model: Averager) -> None:
    if model.batch.elapsed is not None:
        raise InvalidInputError("concentrability counts steps; this batch has elapsed times. Leave them out.")


def _checked(policy: Any, name: str, model: Averager) -> Any:
    instance_of(Policy, "a Policy (act, probabilities, n_actions)")(policy, name)
    if policy.n_actions != model.batch.n_actions:
        raise InvalidInputError(f"{name} must have {model.batch.n_actions} actions; got {policy.n_actions}.")
    return policy


def _first(under: UnderPolicy) -> Floats:
    """Return the visits of each row in the first step (n,)."""
    m = under.model
    return m.shared_back(under.initial.back(m.start_shares, len(m.inverse)))


def _next(under: UnderPolicy, visits: Floats) -> Floats:
    """Return the visits of each row one step later (n,), with decisions by the policy."""
    m = under.model
    return m.shared_back(under.following.back(visits, len(m.inverse)))


def _ratios(model: Averager, visits: Floats) -> float:
    counted = model.weights > 0
    return float((visits[counted] / model.weights[counted]).max() * model.weights.sum())
