r"""The action gap and the losses that it weights: one function per formula.

Sections and equations are those of [1]_ in the long version, numbered as in ``docs/paper-map.md``.
Shapes: q_values (n, A), actions (n,), weights (n,) or None, allowed (n, A) or None. Ties
between actions go to the lowest index.

.. [1] A.-m. Farahmand, D. Precup, A. Barreto, M. Ghavamzadeh,
   "Classification-based Approximate Policy Iteration".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.row_ops import chosen_entries, first_column, row_max, row_sum
from capi._utils.validation import (
    ROW_SUM_TOLERANCE,
    Bools,
    Floats,
    Ints,
    as_allowed,
    as_floats,
    as_integers,
    as_q_values,
    as_weights,
    check_actions,
    check_rows,
    check_shape,
)
from capi.errors import InvalidInputError

NEGLIGIBLE_SHARE = 0.01  # of the spread of the values


def action_gap(q_values: ArrayLike) -> Floats:
    r"""Return the gap between two actions, :math:`g_Q(x) = |Q(x,1) - Q(x,2)|` (Section 2.2).

    Parameters
    ----------
    q_values : array of shape (n, 2)

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> action_gap([[1.0, 3.0], [2.0, 2.0]])
    array([2., 0.])
    """
    q = as_q_values(q_values)
    if q.shape[1] != 2:
        raise InvalidInputError(
            f"action_gap is the gap between two actions; q_values has {q.shape[1]}. For more actions use regrets."
        )
    return np.abs(q[:, 0] - q[:, 1])


def regrets(q_values: ArrayLike, allowed: ArrayLike | None = None) -> Floats:
    r"""Return the gap of every action, :math:`g_Q(x,a) = \max_{a'} Q(x,a') - Q(x,a)` (Section 3).

    With two actions the regret of the worse one is `action_gap`, and the other is exactly zero. Actions
    that are not allowed do not count in the maximum; their own regret is infinite.

    Parameters
    ----------
    q_values : array of shape (n, A)
    allowed : array of shape (n, A), optional

    Returns
    -------
    array of shape (n, A)

    Examples
    --------
    >>> regrets([[1.0, 3.0, 2.5]])
    array([[2. , 0. , 0.5]])
    """
    q = as_q_values(q_values)
    mask = as_allowed(allowed, "allowed", q.shape)
    return regrets_to(best_values(q, mask), q, mask)


def second_best_gap(q_values: ArrayLike, allowed: ArrayLike | None = None) -> Floats:
    r"""Return how much the second-best action loses, that is, how much the choice matters in each state.

    .. math:: \min_{a \ne a^*} \, g_Q(x, a), \quad a^* = \arg\max_a Q(x, a)

    With two actions this is `action_gap`. A state that allows only one action leaves no choice: its gap is infinite.

    Parameters
    ----------
    q_values : array of shape (n, A)
    allowed : array of shape (n, A), optional
        Both actions are chosen from these.

    Returns
    -------
    array of shape (n,)
        Zero exactly where several actions are best.

    Examples
    --------
    >>> second_best_gap([[1.0, 3.0, 2.5], [2.0, 2.0, 0.0]])
    array([0.5, 0. ])
    >>> second_best_gap([[1.0, 3.0, 2.5]], [[False, True, False]])
    array([inf])
    """
    gaps = regrets(q_values, allowed)
    return np.full(len(gaps), np.inf) if gaps.shape[1] == 1 else np.partition(gaps, 1, axis=1)[:, 1]


def negligible_gap(q_values: ArrayLike, allowed: ArrayLike | None = None) -> float:
    """Return the gap up to which the choice makes little difference: 1 % of the spread of the values.

    The spread is the distance between the 5 % and the 95 % quantile of all (allowed) values, over states and actions, so
    that a few extreme states do not make all others look alike. If the quantiles are equal it is the whole range.

    Parameters
    ----------
    q_values : array of shape (n, A)
    allowed : array of shape (n, A), optional

    Returns
    -------
    float
        Zero if all values are the same.

    Examples
    --------
    >>> round(negligible_gap([[0.0, 50.0, 100.0]]), 6)
    0.9
    """
    q = as_q_values(q_values)
    mask = as_allowed(allowed, "allowed", q.shape)
    values = q.ravel() if mask is None else q[mask]
    low, high = np.quantile(values, [0.05, 0.95])
    spread = high - low if high > low else values.max() - values.min()
    return NEGLIGIBLE_SHARE * float(spread)


def filled_regrets(lost: Floats, allowed: Bools | None) -> Floats:
    """Return regrets (n, A) in which actions that are not allowed have, instead of infinity, the mean of the allowed ones.

    A policy that prefers such an action falls back to another one there, so the action is neither free nor forbidden.
    Sums of these regrets rank the actions for many states at once.
    """
    if allowed is None:
        return lost
    known = np.where(allowed, lost, 0.0)
    mean = known.sum(axis=1) / allowed.sum(axis=1)
    return np.where(allowed, lost, mean[:, None])


def greedy(q_values: ArrayLike, allowed: ArrayLike | None = None) -> Ints:
    r"""Return :math:`\hat\pi(x; Q) = \arg\max_a Q(x,a)`, the lowest of the maximisers (Section 2.1).

    Examples
    --------
    >>> greedy([[1.0, 3.0], [2.0, 2.0]])
    array([1, 0])
    """
    q = as_q_values(q_values)
    scored, best = _with_best(q, as_allowed(allowed, "allowed", q.shape))
    return first_column(scored, best)


def gap_weighted_loss(
    q_values: ArrayLike, actions: ArrayLike, weights: ArrayLike | None = None, allowed: ArrayLike | None = None
) -> float:
    r"""Return the mean value lost by playing ``actions`` instead of the greedy ones.

    .. math::
        \hat L_n(\pi) = \frac1n \sum_{i=1}^n
            \Bigl[\max_a \hat Q(X_i, a) - \hat Q(X_i, \pi(X_i))\Bigr]

    This is Section 3's loss for any number of actions. With two it is Equation (1),
    `two_action_loss`: the gap wherever the policy errs, zero elsewhere.

    Parameters
    ----------
    q_values : array of shape (n, A)
        Estimated action values at the sampled states.
    actions : array of shape (n,)
        Actions chosen by the policy, in ``0 .. A - 1``.
    weights : array of shape (n,), optional
        Weights of the mean.
    allowed : array of shape (n, A), optional
        The best action is chosen from these.

    Returns
    -------
    float
        Zero exactly when every action is greedy; never negative.

    Examples
    --------
    >>> gap_weighted_loss([[1.0, 3.0], [2.0, 2.5]], [0, 1])
    1.0
    """
    return weighted_mean(_lost(q_values, actions, allowed), weights)


def expected_loss(
    q_values: ArrayLike, probabilities: ArrayLike, weights: ArrayLike | None = None, allowed: ArrayLike | None = None
) -> float:
    r"""Return the expected gap-weighted loss of a stochastic policy.

    .. math::
        \frac1n \sum_{i=1}^n \sum_a \pi(a|X_i) \Bigl[\max_b \hat Q(X_i, b) - \hat Q(X_i, a)\Bigr]

    For a deterministic policy this is `gap_weighted_loss`.

    Examples
    --------
    >>> expected_loss([[1.0, 3.0], [2.0, 2.5]], [[0.5, 0.5], [0.0, 1.0]])
    0.5
    """
    return weighted_mean(expected_regrets(regrets(q_values, allowed), probabilities), weights)


def two_action_loss(q_values: ArrayLike, actions: ArrayLike, weights: ArrayLike | None = None) -> float:
    r"""Return Equation (1): the mean of :math:`g_{\hat Q}(X_i)\,1\{\pi(X_i) \ne \arg\max_a \hat Q(X_i,a)\}`.

    The paper writes the integral over the empirical distribution as a sum; this is the mean, which
    has the same minimiser.

    Examples
    --------
    >>> two_action_loss([[1.0, 3.0], [2.0, 2.5]], [0, 1])
    1.0
    """
    gap = action_gap(q_values)
    errs = _checked_actions(actions, (len(gap), 2)) != greedy(q_values)
    return weighted_mean(gap * errs, weights)


def zero_one_loss(
    q_values: ArrayLike, actions: ArrayLike, weights: ArrayLike | None = None, allowed: ArrayLike | None = None
) -> float:
    r"""Return the share of states whose action is not a maximiser of Q: the loss that other classifiers minimise.

    .. math:: \frac1n \sum_{i=1}^n 1\{\pi(X_i) \notin \mathrm{Argmax}_a \hat Q(X_i, a)\}

    Examples
    --------
    >>> zero_one_loss([[1.0, 3.0], [2.0, 2.0]], [0, 1])
    0.5
    """
    return weighted_mean((_lost(q_values, actions, allowed) > 0).astype(np.float64), weights)


def zero_one_values(q_values: ArrayLike, allowed: ArrayLike | None = None) -> Floats:
    """Return 1 for every maximiser of Q and 0 for the other actions (n, A).

    The gap-weighted loss of these values is the 0/1 loss of the original ones, so any policy space
    that is given them minimises the 0/1 loss.

    Examples
    --------
    >>> zero_one_values([[1.0, 3.0, 3.0]])
    array([[0., 1., 1.]])
    """
    return (regrets(q_values, allowed) == 0).astype(np.float64)


def summed_regrets(q_values: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    r"""Return the total loss of each action when it is played in every state of the sample (A,).

    Its minimiser is the constant action with the least loss. Section 3 shows that it is also
    :math:`\arg\max_a \sum_i \hat Q(X_i, a)`; the sums of regrets are more exact, because states
    without a gap add exactly zero to them.

    Examples
    --------
    >>> summed_regrets([[1.0, 3.0], [2.5, 2.0]])
    array([2. , 0.5])
    """
    return weighted(regrets(q_values), weights).sum(axis=0)


def weighted(values: Floats, weights: ArrayLike | None) -> Floats:
    """Return ``values`` (n, A) with each row multiplied by its weight."""
    w = as_weights(weights, "weights", len(values))
    return values if w is None else values * w[:, None]


def weighted_mean(losses: Floats, weights: ArrayLike | None) -> float:
    """Return the mean of ``losses`` (n,), each counted by its weight."""
    return float(np.average(losses, weights=as_weights(weights, "weights", len(losses))))


# -- the same for values (n, A) and masks (n, A) that are already checked ------------------------------


def best_values(q: Floats, mask: Bools | None) -> Floats:
    """Return the largest (allowed) value of each row (n,)."""
    return _with_best(q, mask)[1]


def regrets_to(best: Floats, q: Floats, mask: Bools | None) -> Floats:
    """Return the loss of each action against the ``best`` value of its row (n,); infinite where it is not allowed (n, A)."""
    gaps = best[:, None] - q
    return gaps if mask is None else np.where(mask, gaps, np.inf)


def regrets_of_actions(best: Floats, q: Floats, mask: Bools | None, actions: ArrayLike) -> Floats:
    """Return the regret of each row's action (n,); actions that are not allowed are refused."""
    a = _checked_actions(actions, q.shape)
    if mask is not None:
        check_rows(chosen_entries(mask, a), a, "actions", "must be allowed in their states")
    return best - chosen_entries(q, a)


def expected_regrets(gaps: Floats, probabilities: ArrayLike) -> Floats:
    """Return the mean regret of each row's distribution (n,); ``gaps`` (n, A) are infinite where an action is not allowed."""
    p = as_floats(probabilities, "probabilities", ndim=2)
    check_shape(p, "probabilities", gaps.shape)
    sums = row_sum(p, np.ones_like(p))
    good = (row_max(-p) <= 0) & (np.abs(sums - 1) <= ROW_SUM_TOLERANCE)
    check_rows(good, p, "probabilities", "must be a distribution over actions in each row")
    losses = row_sum(p, np.where(p > 0, gaps, 0.0))
    check_rows(np.isfinite(losses), p, "probabilities", "must be zero for actions that are not allowed")
    return losses


def _lost(q_values: ArrayLike, actions: ArrayLike, allowed: ArrayLike | None) -> Floats:
    q = as_q_values(q_values)
    mask = as_allowed(allowed, "allowed", q.shape)
    return regrets_of_actions(best_values(q, mask), q, mask, actions)


def _with_best(q: Floats, mask: Bools | None) -> tuple[Floats, Floats]:
    """Return the values (n, A), minus infinity where an action is not allowed, and the largest of each row (n,)."""
    scored = q if mask is None else np.where(mask, q, -np.inf)
    best = row_max(scored)
    with np.errstate(over="ignore"):
        if np.isinf(q.max() - q.min()):  # otherwise no row can be too wide
            wide = np.flatnonzero(np.isinf(best[:, None] - q).any(axis=1))
            if wide.size:
                i = int(wide[0])
                raise InvalidInputError(
                    f"q_values must not differ by more than float64 can represent; row {i} is {q[i]}."
                )
    return scored, best


def _checked_actions(actions: ArrayLike, shape: tuple[int, ...]) -> Ints:
    a = as_integers(actions, "actions")
    check_shape(a, "actions", shape[:1])
    check_actions(a, shape[1])
    return a
