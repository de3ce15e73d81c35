"""One method on one chain: the loss of every iterate, its cost, and the smallest loss in the space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from capi._utils.validation import Ints
from capi.baselines import PolicyIteration, ValueIteration
from capi.domains import ChainWalk
from capi.domains.chain import LEFT, RIGHT
from capi.evaluators import Exact
from capi.finite.mdp import FiniteMDP
from capi.learning.capi import CAPI
from capi.learning.iteration import Iteration
from capi.loss import action_gap, zero_one_values
from capi.policies import Constant
from capi.policy_spaces import Thresholds
from capi.theory import half_spaces
from capi.types import Policy

EVALUATION_TOLERANCE = 1e-8  # of policy iteration's evaluations when they are counted in sweeps


def run(values: Mapping[str, Any], seed: int = 0, n_jobs: int = 1) -> dict[str, Any]:  # noqa: ARG001  nothing is random
    """Return the results of a method: ``losses[k]`` is the loss of pi_k, ``sweeps`` and ``seconds`` are cumulative."""
    chain = ChainWalk(variant=values["variant"], success=values["success"], reward_on=values["reward_on"])
    mdp = _mirrored(chain.mdp) if values["ties"] == "last" else chain.mdp
    leftwards = (values["start"] == "all-left") != (values["ties"] == "last")
    start = Constant(LEFT if leftwards else RIGHT, n_actions=2)
    return _METHODS[values["method"]](mdp, start, values["n_iterations"])


def _capi(mdp: FiniteMDP, start: Policy, n_iterations: int) -> dict[str, Any]:
    learner = CAPI(Exact(mdp, n_sweeps=1), Thresholds(), mdp.discount, n_iterations, initial_policy=start)
    return _measured(mdp, start, learner.iterate(), sweeps_each=1)


def _value_iteration(mdp: FiniteMDP, start: Policy, n_iterations: int) -> dict[str, Any]:  # noqa: ARG001
    """Run value iteration from Q = 0, whose greedy policy follows from the tie rule, whatever the start."""
    greedy_of_zero = Constant(LEFT, n_actions=2)
    learner = ValueIteration(mdp, n_iterations, tolerance=None)
    return _measured(mdp, greedy_of_zero, learner.iterate(), sweeps_each=1)


def _policy_iteration(mdp: FiniteMDP, start: Policy, n_iterations: int) -> dict[str, Any]:
    """Run policy iteration until it has converged; its last policy fills the remaining iterations.

    ``seconds`` is the time of solving a linear system for each policy. ``sweeps`` and ``seconds_by_sweeps`` are the
    cost of evaluating the same policies by sweeps instead.
    """
    iterations = list(PolicyIteration(mdp, n_iterations, initial_policy=start).iterate())
    record = _measured(mdp, start, iterations)
    sweeps, seconds = [0], [0.0]
    for policy in [start, *(iteration.policy for iteration in iterations)][: len(iterations)]:
        started = perf_counter()
        sweeps.append(sweeps[-1] + mdp.values_by_sweeps(policy, tolerance=EVALUATION_TOLERANCE)[1])
        seconds.append(seconds[-1] + perf_counter() - started)
    record |= {"sweeps": sweeps, "seconds_by_sweeps": seconds, "converged": len(iterations)}
    for key in ("losses", "sweeps", "seconds", "seconds_by_sweeps"):
        record[key] += [record[key][-1]] * (n_iterations + 1 - len(record[key]))
    return record


def _zero_one(mdp: FiniteMDP, start: Policy, n_iterations: int) -> dict[str, Any]:  # noqa: ARG001
    """Minimise the 0/1 loss given Q*: this gives a single policy, so the same loss at every iteration, and no sweeps."""
    q = mdp.optimal_action_values
    started = perf_counter()
    chosen = Thresholds().improve(mdp.states, zero_one_values(q))
    seconds = perf_counter() - started
    by_gap = Thresholds().improve(mdp.states, q)
    optimal, gap = q.argmax(axis=1), action_gap(q)
    return {
        "losses": [mdp.performance_loss(chosen)] * (n_iterations + 1),
        "sweeps": [0] * (n_iterations + 1),
        "seconds": [seconds] * (n_iterations + 1),
        "best_in_space": _least_loss(mdp),
        "zero_one": _mistakes(chosen.act(mdp.states), optimal, gap),
        "gap_weighted": _mistakes(by_gap.act(mdp.states), optimal, gap),
    }


_METHODS = {"capi": _capi, "vi": _value_iteration, "pi": _policy_iteration, "zero-one": _zero_one}


def _least_loss(mdp: FiniteMDP) -> float:
    """Return the smallest performance loss in the policy space, by trying all policies."""
    return min(mdp.performance_loss(actions) for actions in half_spaces(mdp.n_states))


def _measured(mdp: FiniteMDP, start: Policy, iterations: Iterable[Iteration], sweeps_each: int = 0) -> dict[str, Any]:
    losses, seconds = [mdp.performance_loss(start)], [0.0]
    for iteration in iterations:
        losses.append(losses[-1] if iteration.changed == 0 else mdp.performance_loss(iteration.policy))
        seconds.append(seconds[-1] + iteration.seconds)
    return {"losses": losses, "sweeps": [k * sweeps_each for k in range(len(losses))], "seconds": seconds}


def _mistakes(actions: Ints, optimal: Ints, gap: Any) -> dict[str, float]:
    """Return the number of states where the actions are not optimal, and the mean gap there."""
    wrong = actions != optimal
    return {"states": int(wrong.sum()), "mean_gap": float(gap[wrong].mean()) if wrong.any() else 0.0}


def _mirrored(mdp: FiniteMDP) -> FiniteMDP:
    """Return the mirrored chain, in which ties between thresholds and actions are broken the other way."""
    rows = [mdp.transition_matrix(np.full(mdp.n_states, action))[::-1, ::-1] for action in (RIGHT, LEFT)]
    return FiniteMDP(np.stack(rows), mdp.rewards[::-1, ::-1], mdp.discount)
