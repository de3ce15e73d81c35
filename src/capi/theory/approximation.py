r"""How much a policy space must lose: the worst-case greedy policy error :math:`d(\Pi)` (Section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.validation import Floats
from capi.finite.mdp import FiniteMDP
from capi.theory.policy_sets import as_policies, as_state_weights, check_mdp, regrets_of_all


@dataclass(frozen=True, eq=False)
class GreedyError:
    r"""The worst-case greedy policy error of a finite set of policies.

    Parameters
    ----------
    value : float
        :math:`d(\Pi)`, in reward units.
    worst : int
        The policy whose values are the hardest to improve on: the first one if there are several.
    best_losses : array of shape (m,)
        For the values of each policy, the least loss in the set.
    losses : array of shape (m, m)
        The loss of each policy (column) in the values of each policy (row).
    """

    value: float
    worst: int
    best_losses: Floats = field(repr=False)
    losses: Floats = field(repr=False)

    def __float__(self) -> float:
        return self.value


def greedy_error(mdp: FiniteMDP, policies: ArrayLike, nu: ArrayLike | None = None) -> GreedyError:
    r"""Return the worst-case greedy policy error, :math:`d(\Pi) = \max_{\pi' \in \Pi} \min_{\pi \in \Pi} L^{\pi'}(\pi)`.

    All pairs of policies are compared: one exact evaluation per policy, and one matrix product.

    Parameters
    ----------
    mdp : FiniteMDP
    policies : array of shape (m, S)
        The actions of each member of the space, such as `half_spaces`.
    nu : array of shape (S,), optional
        The distribution of the states in which policies are improved; by default the start distribution.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.theory import half_spaces
    >>> found = greedy_error(ChainWalk(variant=1).mdp, half_spaces(200))
    >>> round(found.value, 8), found.worst
    (0.01592717, 383)
    """
    check_mdp(mdp)
    actions, weights = as_policies(policies, mdp), as_state_weights(nu, "nu", mdp)
    lost = regrets_of_all(mdp, actions) * weights[None, :, None]  # (m, S, A)
    played = np.eye(mdp.n_actions)[actions]  # (m, S, A)
    losses = lost.reshape(len(actions), -1) @ played.reshape(len(actions), -1).T
    least = losses.min(axis=1)
    worst = int(np.argmax(least >= least.max() * (1 - 1e-9)))
    return GreedyError(float(least[worst]), worst, least, losses)
