r"""Exact dynamic programming in a finite MDP, as settings of the CAPI loop.

In the space of all policies the algorithms differ only in the evaluation: one sweep of :math:`T^{\pi_k}` per round is value
iteration (for a policy that is greedy in Q, :math:`T^{\pi} Q = T^* Q`), m sweeps are modified policy iteration, and the full
solution is policy iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from capi._utils.renamed import renamed
from capi._utils.validation import Bools, Floats, as_positive
from capi.errors import InvalidInputError
from capi.evaluators import Exact
from capi.finite.mdp import FiniteMDP
from capi.learning.iteration import Iteration, Loop
from capi.learning.learner import Learner
from capi.policies import Tabular
from capi.policy_spaces import Unrestricted
from capi.types import Policy, QFunction


class _FiniteLearner(Learner):
    """A learner that uses its model and all of its states."""

    def iterate(
        self, transitions: Any = None, *, states: Any = None, starts: Any = None, after: Iteration | None = None
    ) -> Iterator[Iteration]:
        """Yield each round; ``after`` resumes after a round that was yielded earlier."""
        if transitions is not None or states is not None:
            raise InvalidInputError(
                f"transitions and states must be None: {type(self).__name__} learns from its model, on all states. "
                "To learn on other states, use CAPI with capi.evaluators.Exact."
            )
        return super().iterate(starts=starts, after=after)


class ValueIteration(_FiniteLearner):
    r"""Value iteration: :math:`Q_{k+1} = T^* Q_k` from :math:`Q_0 = 0`, and the greedy policy of each Q.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    n_iterations : int
        Maximum number of sweeps.
    tolerance : float, optional
        Stop when the policy provably loses at most this much in every state (checked every tenth sweep). With None, all
        sweeps are made.

    Examples
    --------
    >>> from capi import FiniteMDP
    >>> mdp = FiniteMDP(P=[np.eye(2), 1 - np.eye(2)], R=[[0.0, 0.0], [1.0, 1.0]], discount=0.9)
    >>> learner = ValueIteration(mdp).fit()
    >>> learner.predict(mdp.states), len(learner.history_)
    (array([1, 0]), 10)
    """

    def __init__(self, mdp: FiniteMDP, n_iterations: int = 10_000, *, tolerance: float | None = 1e-8) -> None:
        self.mdp = mdp
        self.n_iterations = n_iterations
        self.tolerance = tolerance

    def loop(self) -> Loop:
        """Return the settings of the loop: one sweep per round, all policies."""
        evaluator = Exact(self.mdp, n_sweeps=1)
        stop = _good_enough(self.mdp, self.tolerance, every=10)  # each check costs as much as a round
        return Loop(evaluator, Unrestricted(), self.mdp.discount, self.n_iterations, stop=stop)


@renamed(sweeps="n_sweeps")
class ModifiedPolicyIteration(_FiniteLearner):
    r"""Modified policy iteration: :math:`Q_{k+1} = (T^{\pi_k})^m Q_k`, then the greedy policy.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    n_sweeps : int
        Sweeps per round, m; 1 gives value iteration, a large number approaches policy iteration.
    n_iterations : int
        Maximum number of rounds.
    tolerance : float, optional
        Stop when the policy provably loses at most this much in every state. With None, all rounds are made.
    """

    def __init__(
        self, mdp: FiniteMDP, n_sweeps: int = 10, n_iterations: int = 10_000, *, tolerance: float | None = 1e-8
    ) -> None:
        self.mdp = mdp
        self.n_sweeps = n_sweeps
        self.n_iterations = n_iterations
        self.tolerance = tolerance

    def loop(self) -> Loop:
        """Return the settings of the loop: m sweeps per round, all policies."""
        evaluator = Exact(self.mdp, n_sweeps=self.n_sweeps)
        stop = _good_enough(self.mdp, self.tolerance, every=1)
        return Loop(evaluator, Unrestricted(), self.mdp.discount, self.n_iterations, stop=stop)


class PolicyIteration(_FiniteLearner):
    r"""Policy iteration: :math:`Q^{\pi_k}` exactly, then the greedy policy, until it no longer changes.

    A greedy policy replaces the old one only if it is better somewhere by more than the error of the evaluation, so rounding
    cannot make the policies cycle among ties.

    Parameters
    ----------
    mdp : FiniteMDP
        The model.
    n_iterations : int
        Maximum number of rounds.
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
        """Return the settings of the loop: exact evaluation, all policies, and a stop after the first unchanged round."""
        evaluator, start = Exact(self.mdp), self.initial_policy
        return Loop(
            evaluator, _AllTables(self.mdp), self.mdp.discount, self.n_iterations, initial_policy=start, patience=1
        )


@dataclass(frozen=True, eq=False)
class _AllTables:
    """All policies of a finite MDP; the old policy stays if none is better."""

    mdp: FiniteMDP

    def improve(
        self,
        states: Floats,  # noqa: ARG002  the table has every state
        q_values: Floats,  # noqa: ARG002
        *,
        q: QFunction | None = None,
        previous: Policy | None = None,
        allowed: Bools | None = None,  # noqa: ARG002
        weights: Floats | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> Tabular:
        if q is None or previous is None:
            raise InvalidInputError("q and previous must be given.")
        return Tabular(self.mdp.improved(previous.act(self.mdp.states), q.values(self.mdp.states)), self.mdp.n_actions)


def _good_enough(mdp: FiniteMDP, tolerance: float | None, every: int) -> Callable[[Iteration], bool] | None:
    """Return a function that checks, every ``every`` rounds, whether the policy provably loses at most ``tolerance``.

    A policy pi that is greedy in Q has T^pi Q = T* Q, and then Q^pi and Q* both lie between T* Q + c min(T* Q - Q)
    and T* Q + c max(T* Q - Q) with c = discount / (1 - discount) (Puterman 1994, Theorem 6.6.3).
    """
    if tolerance is None:
        return None
    limit = as_positive(tolerance, "tolerance") * (1 - mdp.discount)

    def good_enough(iteration: Iteration) -> bool:
        if (iteration.k + 1) % every:
            return False
        q = iteration.q.values(mdp.states)
        moved = mdp.bellman_optimality(q) - q
        return bool(mdp.discount * (moved.max() - moved.min()) <= limit)

    return good_enough
