"""Exact evaluation in a finite MDP with a known model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters, optional
from capi._utils.renamed import renamed
from capi._utils.validation import Floats, check_shape
from capi.data.schema import Schema
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.finite.mdp import FiniteMDP, TabularQ
from capi.types import Policy, QFunction


def _check_mdp(mdp: Any, name: str) -> None:
    if not isinstance(mdp, FiniteMDP):
        raise InvalidInputError(f"{name} must be a FiniteMDP; got a {type(mdp).__name__}.")


@renamed(sweeps="n_sweeps")
@dataclass(frozen=True, eq=False)
class Exact:
    r"""Exact evaluation: the full solution, or a few sweeps of the Bellman operator.

    With ``n_sweeps=None`` the result is :math:`Q^{\pi}`. With ``n_sweeps=m`` it is :math:`(T^{\pi_k})^m \hat Q_{k-1}`, starting
    from :math:`\hat Q_{-1} = 0`. The paper's chain walk uses m = 1 (Section 5.1), which queries the model as often as value
    iteration does.

    Parameters
    ----------
    mdp : FiniteMDP
        The model; with it, ``evaluate`` needs no transitions. Each of its steps counts as one unit of time, and the elapsed
        times of a batch are not used.
    n_sweeps : int, optional
        Number of sweeps, m; None solves for the fixed point.

    Examples
    --------
    >>> from capi import FiniteMDP
    >>> from capi.policies import Constant
    >>> mdp = FiniteMDP(P=[np.eye(2), 1 - np.eye(2)], R=[[0.0, 0.0], [1.0, 1.0]], discount=0.9)
    >>> Exact(mdp).evaluate(Constant(0, n_actions=2), discount=0.9).table
    array([[ 0.,  9.],
           [10.,  1.]])
    """

    mdp: FiniteMDP
    n_sweeps: int | None = None

    _constraints: ClassVar[Constraints] = {"mdp": _check_mdp, "n_sweeps": optional(at_least(1))}

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.mdp.n_actions

    @property
    def schema(self) -> Schema:
        """Feature names and action labels of the model, for policies that are learned without a batch."""
        return Schema(self.mdp.feature_names, self.mdp.action_labels)

    @property
    def states(self) -> Floats:
        """All states of the model (S, 1) or their features (S, d), on which the loop improves the policy by default."""
        return self.mdp.states

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None = None,  # noqa: ARG002  the model is known
        *,
        discount: float,
        states: Floats | None = None,  # noqa: ARG002  the table covers all states
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,  # noqa: ARG002  nothing is drawn
    ) -> TabularQ:
        """Return the action values of ``policy``, or with ``n_sweeps`` the result of sweeps from ``previous``."""
        if discount != self.mdp.discount:
            raise InvalidInputError(
                f"discount must be that of the model, {self.mdp.discount:g}; got {discount!r}. "
                "Build the FiniteMDP with the learner's discount."
            )
        if self.n_sweeps is None:
            return TabularQ(self.mdp.action_values(policy), self.mdp.features)
        return TabularQ(self.mdp.bellman(policy, self._start(previous), self.n_sweeps), self.mdp.features)

    def _start(self, previous: QFunction | None) -> Floats:
        if previous is None:
            return np.zeros((self.mdp.n_states, self.mdp.n_actions))
        table = previous.table if isinstance(previous, TabularQ) else previous.values(self.mdp.states)
        check_shape(table, "previous.values(states)", (self.mdp.n_states, self.mdp.n_actions))
        return table
