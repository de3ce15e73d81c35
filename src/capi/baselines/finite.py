r"""Exact dynamic programming in a finite MDP, as settings of the CAPI loop.

With all policies to choose from, the evaluation alone decides the name: one sweep of :math:`T^{\pi_k}` a
round is value iteration (for a policy that is greedy in Q, :math:`T^{\pi} Q = T^* Q`), m sweeps are modified
policy iteration, the full solution is policy iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capi.errors import InvalidInput
from capi.evaluators import Exact
from capi.finite_mdp import FiniteMDP
from capi.iteration import Learner, Loop, Update
from capi.policies import Tabular
from capi.policy_spaces import Unrestricted
from capi.types import Policy, QFunction
from capi.validation import Bools, Floats


class ValueIteration(Learner):
    r"""Value iteration: :math:`Q_{k+1} = T^* Q_k` from :math:`Q_0 = 0`, and the greedy policy of each Q.

    Parameters
    ----------
    mdp : FiniteMDP
    n_iterations : int
        The most sweeps to make.
    tolerance : float, optional
        Stop when Q is within this of Q* everywhere (it has moved by at most tolerance * (1 - discount) /
        discount). None makes all sweeps.

    Examples
    --------
    >>> from capi import FiniteMDP
    >>> mdp = FiniteMDP(P=[np.eye(2), 1 - np.eye(2)], R=[[0.0, 0.0], [1.0, 1.0]], discount=0.9)
    >>> learner = ValueIteration(mdp).fit()
    >>> learner.predict(mdp.states), len(learner.history_)
    (array([1, 0]), 196)
    """

    def __init__(self, mdp: FiniteMDP, n_iterations: int = 10_000, *, tolerance: float | None = 1e-8) -> None:
        self.mdp = mdp
        self.n_iterations = n_iterations
        self.tolerance = tolerance

    def loop(self) -> Loop:
        """Return one sweep a round, all policies."""
        discount = self.mdp.discount
        stop = _until_settled(discount / (1 - discount), self.tolerance)
        return Loop(Exact(self.mdp, sweeps=1), Unrestricted(), discount, self.n_iterations, update=stop)


class ModifiedPolicyIteration(Learner):
    r"""Modified policy iteration: :math:`Q_{k+1} = (T^{\pi_k})^m Q_k`, then the greedy policy.

    Parameters
    ----------
    mdp : FiniteMDP
    sweeps : int
        m; 1 is value iteration, very many are policy iteration.
    n_iterations : int
        The most rounds to make.
    tolerance : float, optional
        Stop when Q is within this of Q* everywhere. None makes all rounds.
    """

    def __init__(
        self, mdp: FiniteMDP, sweeps: int = 10, n_iterations: int = 10_000, *, tolerance: float | None = 1e-8
    ) -> None:
        self.mdp = mdp
        self.sweeps = sweeps
        self.n_iterations = n_iterations
        self.tolerance = tolerance

    def loop(self) -> Loop:
        """Return m sweeps a round, all policies."""
        evaluator, discount = Exact(self.mdp, sweeps=self.sweeps), self.mdp.discount
        # If m sweeps of T^pi move Q by e, Q was within e / (1 - discount^m) of Q^pi, so T* = T^pi moves it by
        # at most (1 + discount) times that, and Q* is no further than that over (1 - discount) away.
        factor = 1 + (1 + discount) / ((1 - discount**self.sweeps) * (1 - discount))
        stop = _until_settled(factor, self.tolerance)
        return Loop(evaluator, Unrestricted(), discount, self.n_iterations, update=stop)


class PolicyIteration(Learner):
    r"""Policy iteration: :math:`Q^{\pi_k}` exactly, then the greedy policy, until it no longer changes.

    A greedy policy that is nowhere better than the old one, to the error of the evaluation, does not replace
    it: rounding cannot make the policies cycle among ties.

    Parameters
    ----------
    mdp : FiniteMDP
    n_iterations : int
        The most rounds to make.
    initial_policy : Policy, optional
        By default action 0 everywhere.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> mdp = ChainWalk(variant=2).mdp
    >>> learner = PolicyIteration(mdp).fit()
    >>> mdp.performance_loss(learner.policy_), len(learner.history_)
    (0.0, 5)
    """

    def __init__(self, mdp: FiniteMDP, n_iterations: int = 1_000, *, initial_policy: Policy | None = None) -> None:
        self.mdp = mdp
        self.n_iterations = n_iterations
        self.initial_policy = initial_policy

    def loop(self) -> Loop:
        """Return exact evaluation, all policies, and a stop at the first round without change."""
        return Loop(
            Exact(self.mdp),
            _AllTables(self.mdp),
            self.mdp.discount,
            self.n_iterations,
            initial_policy=self.initial_policy,
            patience=1,
        )


@dataclass(frozen=True, eq=False)
class _AllTables:
    """All policies on the states of a finite MDP, which come in order; the old one stays if none is better."""

    mdp: FiniteMDP

    def improve(
        self,
        states: Floats,
        q_values: Floats,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample is the whole table
        previous: Policy | None = None,
        allowed: Bools | None = None,  # noqa: ARG002
        weights: Floats | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> Tabular:
        if previous is None:
            return self.mdp.greedy(q_values)
        return Tabular(self.mdp.improved(previous.act(states), q_values), self.mdp.n_actions)


def _until_settled(factor: float, tolerance: float | None) -> Update | None:
    """Return an update that ends the loop when ``factor`` times the last movement of Q is within the tolerance."""
    if tolerance is None:
        return None
    if not tolerance > 0:
        raise InvalidInput(f"tolerance must be positive, or None for all iterations; got {tolerance!r}.")
    last: list[Floats] = []

    def update(old: Policy, new: Policy, *, q: QFunction, states: Floats, k: int) -> Policy | None:  # noqa: ARG001
        table = q.values(states)
        settled = bool(last) and factor * np.abs(table - last.pop()).max() <= tolerance
        last.append(table)
        return None if settled else new

    return update
