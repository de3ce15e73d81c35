r"""How much future states may differ from the sampled ones: concentrability coefficients (Section 4.2).

.. math::
    c_{\rho,\nu}(m_1; m_2; \pi) &= \Bigl\| \frac{d\,\rho (P^*)^{m_1} (P^\pi)^{m_2}}{d\nu} \Bigr\|_\infty \\
    C_{\rho,\nu}(K, s) &= \frac{1 - \gamma}{2} \sum_{k < K} \gamma^{(1 - s) k} \sum_{m \ge 0} \gamma^m \sup_{\pi' \in \Pi} c_{\rho,\nu}(k; m; \pi').

The inner sums are computed to a stated error. Distributions of a policy change from step to step by at most as much as in the step before
(a stochastic matrix does not lengthen differences in total variation), so a policy whose distribution hardly changes can be left as it is, and
what that leaves out is bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from capi._utils.validation import Floats, Ints, as_int, as_positive, as_share
from capi.errors import InvalidInputError
from capi.evaluators.averager import Averager
from capi.finite.mdp import FiniteMDP
from capi.theory._batch_futures import CHECK_EVERY, after, may_settle, sums_over
from capi.theory.policy_sets import as_policies, as_state_weights, check_mdp
from capi.types import Policy

SPARSE = 0.1  # share of nonzero transitions up to which products are sparse
RELATIVE = 1e-6  # error of the sums over m, unless another one is asked for


@dataclass(frozen=True, eq=False)
class Concentrability:
    r"""The sums over future steps behind :math:`C_{\rho,\nu}(K, s)`.

    Parameters
    ----------
    sums : array of shape (K,)
        :math:`\sum_m \gamma^m \sup_{\pi'} c(k; m; \pi')` for k = 0 .. K-1; infinite where states outside of nu are reached.
    error : float
        The largest error of the sums, in either direction; over all policies they are never too small.
    discount : float
    is_upper_bound : bool
        Whether the supremum over all policies was replaced by the one over all policies that may change from step to step.
    """

    sums: Floats
    error: float
    discount: float
    is_upper_bound: bool = False

    def coefficient(self, n_rounds: int, s: float) -> float:
        """Return C(K, s) for ``n_rounds`` up to the number of sums."""
        K = as_int(n_rounds, "n_rounds", minimum=1)
        if len(self.sums) < K:
            raise InvalidInputError(f"n_rounds must be at most {len(self.sums)}, the number of sums; got {K}.")
        powers = self.discount ** ((1 - as_share(s, "s")) * np.arange(K))
        return float((1 - self.discount) / 2 * (powers @ self.sums[:K]))


def concentrability(
    mdp: FiniteMDP | Averager,
    policy: Policy | ArrayLike,
    m1: int,
    m2: int,
    *,
    rho: ArrayLike | None = None,
    nu: ArrayLike | None = None,
) -> float:
    r"""Return :math:`c_{\rho,\nu}(m_1; m_2; \pi)`: how much more often a state may be met than it is sampled.

    Parameters
    ----------
    mdp : FiniteMDP or Averager
        In an `Averager`, the model that a batch and its trees are, the states are the logged rows, with their decisions and weights; ``rho`` and
        ``nu`` are those of the batch. After m1 + m2 steps, the decision itself is that of the policy of the last step.
    policy : Policy, or array of shape (S,) or (S, A)
    m1, m2 : int
        Steps of the optimal policy, then of ``policy``.
    rho, nu : array of shape (S,), optional
        Distributions of the first state and of the sampled states; by default the start distribution.

    Returns
    -------
    float
        Infinite if a state can be met that is never sampled.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> mdp = ChainWalk(variant=2).mdp
    >>> concentrability(mdp, mdp.optimal_policy, 0, 0)
    1.0
    >>> round(concentrability(mdp, mdp.optimal_policy, 0, 300), 2)
    88.89
    """
    first, then = as_int(m1, "m1", minimum=0), as_int(m2, "m2", minimum=0)
    if isinstance(mdp, Averager):
        _check_own_states(rho, nu)
        return after(mdp, policy, first, then)
    check_mdp(mdp)
    x, to = as_state_weights(rho, "rho", mdp), as_state_weights(nu, "nu", mdp)
    for matrix, steps in ((mdp.transition_matrix(mdp.optimal_policy), first), (mdp.transition_matrix(policy), then)):
        backward = matrix.T
        for _ in range(steps):
            x = backward @ x
    return _largest_ratio(x, to)


def discounted_concentrability(
    mdp: FiniteMDP | Averager,
    policies: Any,
    n_rounds: int,
    *,
    rho: ArrayLike | None = None,
    nu: ArrayLike | None = None,
    relative_error: float = RELATIVE,
) -> Concentrability:
    r"""Return the sums behind :math:`C_{\rho,\nu}(K, s)`, over a finite set of policies or over all policies.

    Parameters
    ----------
    mdp : FiniteMDP or Averager
        In an `Averager` the states are the logged rows, as in `concentrability`; ``rho`` and ``nu`` are those of the batch.
    policies : array of shape (m, S), or None; sequence of policies in an Averager
        The actions of each member of the space. None stands for all policies; then the supremum is over policies that may change from
        step to step, which dynamic programming finds, and which is an upper bound.
    n_rounds : int
        The number of rounds, K.
    rho, nu : array of shape (S,), optional
        Distributions of the first state and of the sampled states; by default the start distribution.
    relative_error : float
        Of the sums.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.theory import half_spaces
    >>> found = discounted_concentrability(ChainWalk(variant=2).mdp, half_spaces(200), 1)
    >>> round(float(found.sums[0]), 2), round(found.coefficient(1, 0.5), 3)
    (6567.24, 32.836)
    """
    K, relative = as_int(n_rounds, "n_rounds", minimum=1), as_positive(relative_error, "relative_error")
    if isinstance(mdp, Averager):
        _check_own_states(rho, nu)
        return Concentrability(*sums_over(mdp, policies, K, relative), mdp.discount)
    check_mdp(mdp)
    first, to = as_state_weights(rho, "rho", mdp), as_state_weights(nu, "nu", mdp)
    starts = np.empty((mdp.n_states, K))
    forward = mdp.transition_matrix(mdp.optimal_policy).T
    for k in range(K):
        starts[:, k] = first if k == 0 else forward @ starts[:, k - 1]
    if policies is None:
        return _over_all(mdp, starts, to, relative)
    sums, error = _over_members(mdp, as_policies(policies, mdp), starts, to, relative)
    return Concentrability(sums, error, mdp.discount)


def _check_own_states(rho: ArrayLike | None, nu: ArrayLike | None) -> None:
    for value, name in ((rho, "rho"), (nu, "nu")):
        if value is not None:
            raise InvalidInputError(f"{name} of an Averager is that of its batch; leave {name} out.")


def future_sum(mdp: FiniteMDP, policy: Ints, start: Floats, nu: Floats) -> float:
    r"""Return :math:`\sum_m \gamma^m \|d\,(\mu (P^\pi)^m) / d\nu\|_\infty` for one policy (S,) and one distribution (S,)."""
    sums, error = _over_members(mdp, policy[None, :], start[:, None], nu, RELATIVE)
    return float(sums[0]) + error  # from above, for inequalities


def _over_members(mdp: FiniteMDP, policies: Ints, starts: Floats, nu: Floats, relative: float) -> tuple[Floats, float]:
    """Return the sums (K,) for the distributions ``starts`` (S, K), and their largest error."""
    scale = np.where(nu > 0, nu, 1.0)  # states outside of the sample are watched apart
    backward = [sp.csr_array(mdp.transition_matrix(np.full(mdp.n_states, a)).T) for a in range(mdp.n_actions)]
    scaled = [matrix.multiply(scale[None, :]).multiply(1 / scale[:, None]).tocsr() for matrix in backward]
    extra = [_light(matrix - scaled[0]) for matrix in scaled[1:]]  # what another action than the first one changes
    plays = [np.ascontiguousarray((policies == a).T, dtype=np.float64) for a in range(1, mdp.n_actions)]  # (S, m)
    found = [
        _sum_of_one(_light(scaled[0]), extra, plays, start / scale, nu, mdp.discount, relative) for start in starts.T
    ]
    return np.array([total for total, _ in found]), max(error for _, error in found)


def _sum_of_one(
    first: Any, extra: list[Any], plays: list[Floats], start: Floats, nu: Floats, discount: float, relative: float
) -> tuple[float, float]:
    """Return the sum for one distribution, given by its ratio to nu (S,), and its error."""
    sampled = nu > 0
    worst = float(1 / nu[sampled].min())  # no ratio of a distribution on the sampled states is larger
    x = np.repeat(start[:, None], plays[0].shape[1] if plays else 1, axis=1)  # (S, m)
    total, error, settled, factor, step = 0.0, 0.0, 0.0, 1.0, 0
    while True:
        if not sampled.all() and x[~sampled].any():
            return math.inf, 0.0
        total += factor * max(settled, float(x.max()))
        rest = factor * discount / (1 - discount)
        if rest * worst <= relative / 2 * total:
            return total, error + rest * worst
        new = first @ x
        for matrix, mask in zip(extra, plays, strict=True):
            new += matrix @ (x * mask)
        factor *= discount
        step += 1
        if step % CHECK_EVERY == 0:
            moved = np.abs(new - x).T @ nu  # no later step moves further
            left_out = factor * moved * worst / (1 - discount) ** 2
            small = may_settle(left_out, error, relative / 2 * total)
            if small.any():
                error += float(left_out[small].max())
                settled = max(settled, float(new[:, small].max()))
                new, plays = new[:, ~small], [mask[:, ~small] for mask in plays]
            if not new.shape[1]:
                return total + factor / (1 - discount) * settled, error
        x = new


def _over_all(mdp: FiniteMDP, starts: Floats, nu: Floats, relative: float) -> Concentrability:
    """Return the sums with the supremum over policies that change from step to step, by dynamic programming for each target state."""
    S, A, discount = mdp.n_states, mdp.n_actions, mdp.discount
    forward = [_light(mdp.transition_matrix(np.full(S, a))) for a in range(A)]
    reached = np.eye(S)  # column y: the largest probability of being in y after m steps, by first state
    sums, factor = np.zeros(starts.shape[1]), 1.0
    inverse = np.where(nu > 0, 1 / np.where(nu > 0, nu, 1.0), np.inf)
    worst = float(inverse[nu > 0].max())
    while True:
        sums += factor * _ratios(reached.T @ starts, inverse)
        rest = factor * discount / (1 - discount) * worst
        if rest <= relative * sums.min() or not np.isfinite(sums).all():
            return Concentrability(sums + rest, rest, discount, is_upper_bound=True)
        ways = [matrix @ reached for matrix in forward]
        reached = np.maximum.reduce(ways)
        factor *= discount


def _light(matrix: Any) -> Any:
    """Return the matrix in the form in which products are faster."""
    found = sp.csr_array(matrix)
    found.eliminate_zeros()
    return found if found.nnz <= SPARSE * found.shape[0] * found.shape[1] else found.toarray()


def _ratios(x: Floats, inverse: Floats) -> Floats:
    """Return the largest ratio of each column of ``x`` (S, c) to nu (c,); infinite where nu lacks a state of the column."""
    if np.isfinite(inverse).all():
        return np.max(x * inverse[:, None], axis=0)
    known = np.isfinite(inverse)
    found = np.max(x[known] * inverse[known, None], axis=0)
    return np.where((x[~known] > 0).any(axis=0), np.inf, found)


def _largest_ratio(x: Floats, nu: Floats) -> float:
    return float(_ratios(x[:, None], np.where(nu > 0, 1 / np.where(nu > 0, nu, 1.0), np.inf))[0])
