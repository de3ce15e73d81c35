r"""How the losses of all rounds add up to the loss of the last policy (Section 4.2 and the proof of Theorem 2).

For any policies :math:`\pi_0 .. \pi_K`, with :math:`l_k = l^{\pi_k}(\pi_{k+1})` and :math:`L_k = \nu l_k`,

.. math::
    V^* - V^{\pi_K} &\le \sum_{k < K} (\gamma P^*)^{K-k-1} (I - \gamma P^{\pi_{k+1}})^{-1} l_k + (\gamma P^*)^K (V^* - V^{\pi_0}) \\
    \mathrm{Loss}(\pi_K; \rho) &\le \sum_{k < K} \gamma^{K-k-1} \sum_m \gamma^m c_{\rho,\nu}(K-k-1; m; \pi_{k+1})\, L_k + 2 \gamma^K Q_{\max} \\
    &\le \frac{2}{1 - \gamma} \Bigl[\inf_s C_{\rho,\nu}(K, s) \max_k \gamma^{(K-k-1) s} L_k + \gamma^K R_{\max}\Bigr].

No assumption is needed, so these inequalities must hold in every finite MDP.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.parameters import instance_of
from capi._utils.row_ops import chosen_entries, row_max
from capi._utils.validation import Floats
from capi.errors import InvalidInputError
from capi.finite.linear_systems import solve_discounted
from capi.finite.mdp import FiniteMDP
from capi.theory.futures import Concentrability, discounted_concentrability, future_sum
from capi.theory.policy_sets import as_policies, as_state_weights, check_mdp

EXPONENTS = np.linspace(0.0, 1.0, 101)  # where the infimum over s is searched


@dataclass(frozen=True, eq=False)
class Propagation:
    r"""Both sides of the error-propagation inequality, in reward units.

    Parameters
    ----------
    loss : float
        The left side, :math:`\mathrm{Loss}(\pi_K; \rho)`.
    vector_bound : float
        The right side of the vector form, averaged over rho.
    bound : float
        The right side by the measured losses and the concentrability of each round.
    theorem_bound : float
        The right side of the form of Theorem 2, with the measured losses of the rounds.
    s : float
        The exponent at which it is least.
    round_losses : array of shape (K,)
        :math:`L^{\pi_k}(\pi_{k+1})`, averaged over nu.
    factors : array of shape (K,)
        What one unit of each round's loss adds to ``bound``; the last rounds count the most unless future states concentrate.
    lost, bounds : array of shape (S,)
        Both sides of the vector form, state by state.
    start_term, vector_start_term : float
        What the first policy adds to ``bound`` and to ``vector_bound``.
    """

    loss: float
    vector_bound: float
    bound: float
    theorem_bound: float
    s: float
    round_losses: Floats
    factors: Floats = field(repr=False)
    lost: Floats = field(repr=False)
    bounds: Floats = field(repr=False)
    start_term: float = 0.0
    vector_start_term: float = 0.0


def propagation(
    mdp: FiniteMDP,
    policies: ArrayLike,
    futures: Concentrability | None = None,
    *,
    rho: ArrayLike | None = None,
    nu: ArrayLike | None = None,
) -> Propagation:
    r"""Return both sides of the error-propagation inequality for the policies of a run.

    Parameters
    ----------
    mdp : FiniteMDP
    policies : array of shape (K + 1, S)
        The actions of the first policy and of those of all rounds, in this order.
    futures : Concentrability, optional
        That of the policy space for at least K rounds, with the same rho and nu, for the form of Theorem 2; by default that of the
        policies of the run.
    rho, nu : array of shape (S,), optional
        Distributions of the first state and of the sampled states; by default the start distribution.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> mdp = ChainWalk(variant=2).mdp
    >>> left, best = np.zeros(200, dtype=int), mdp.optimal_policy.actions
    >>> found = propagation(mdp, [left, best])
    >>> found.loss, found.loss <= found.vector_bound <= found.bound <= found.theorem_bound
    (0.0, True)
    """
    check_mdp(mdp)
    actions = as_policies(policies, mdp)
    if len(actions) < 2:
        raise InvalidInputError("policies must hold the first policy and at least one of a round; got one policy.")
    first, sampled = as_state_weights(rho, "rho", mdp), as_state_weights(nu, "nu", mdp)
    K, discount = len(actions) - 1, mdp.discount
    best = mdp.transition_matrix(mdp.optimal_policy)
    losses, factors = np.empty(K), np.empty(K)
    bounds = mdp.optimal_values - mdp.values(actions[0])  # grows to the right side, round by round
    starts = np.empty((K, mdp.n_states))  # rho (P*)^k
    for k in range(K):
        starts[k] = first if k == 0 else best.T @ starts[k - 1]
        q = mdp.action_values(actions[k])
        lost = row_max(q) - chosen_entries(q, actions[k + 1])
        losses[k] = float(sampled @ lost)
        bounds = discount * (best @ bounds) + solve_discounted(mdp.transition_matrix(actions[k + 1]), lost, discount)
    for k in range(K):
        factors[k] = discount ** (K - k - 1) * future_sum(mdp, actions[k + 1], starts[K - k - 1], sampled)
    start_term = 2 * discount**K * q_max(mdp)
    used = losses > 0  # a round without loss adds nothing, however rare the sampled states are
    begun = mdp.optimal_values - mdp.values(actions[0])
    for _ in range(K):
        begun = discount * (best @ begun)
    if futures is None:
        futures = discounted_concentrability(mdp, actions, K, rho=first, nu=sampled)
    _check_futures(futures, K, discount)
    theorem, s = theorem_form(futures, losses, start_term)
    return Propagation(
        mdp.performance_loss(actions[-1], first),
        float(first @ bounds),
        float(factors[used] @ losses[used]) + start_term,
        theorem,
        s,
        losses,
        factors,
        mdp.optimal_values - mdp.values(actions[-1]),
        bounds,
        start_term,
        float(first @ begun),
    )


def _check_futures(futures: Concentrability, n_rounds: int, discount: float) -> None:
    instance_of(Concentrability, "a Concentrability, as from discounted_concentrability")(futures, "futures")
    if futures.discount != discount:
        raise InvalidInputError(f"futures must have the discount of the MDP, {discount:g}; got {futures.discount:g}.")
    if len(futures.sums) < n_rounds:
        raise InvalidInputError(f"futures must have the sums of at least {n_rounds} rounds; got {len(futures.sums)}.")


def theorem_form(futures: Concentrability, losses: Floats, start_term: float) -> tuple[float, float]:
    """Return 2 / (1 - discount) min_s C(K, s) max_k discount ** ((K - k - 1) s) L_k plus ``start_term``, and the best s."""
    K, discount = len(losses), futures.discount
    if not losses.any():
        return start_term, 0.0
    ages = np.arange(K)[::-1]
    found = [futures.coefficient(K, s) * float((discount ** (ages * s) * losses).max()) for s in EXPONENTS]
    best = int(np.argmin(found))
    return 2 / (1 - discount) * found[best] + start_term, float(EXPONENTS[best])


def q_max(mdp: FiniteMDP) -> float:
    """Return the paper's bound of all action values, Rmax / (1 - discount)."""
    return float(np.abs(mdp.rewards).max()) / (1 - mdp.discount)
