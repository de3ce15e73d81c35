r"""The Loss Distortion Lemma, repaired: what estimated action values cost a policy that minimises their loss.

The paper's Lemma 1 bounds the loss :math:`L_n(\hat\pi)` in the true values of the policy that minimises the loss in estimated ones. As printed it
does not hold: its proof divides by the gap where the gap is zero, its constant lacks :math:`c_g`, and it applies Bernstein's inequality to a set that depends on the
sample. Three forms that do hold, for any number of actions, every policy :math:`\pi` of the space, :math:`e \ge \max |\hat Q - Q|` on the sample and
the gap g between the best two true values:

.. math::
    L_n(\hat\pi) &\le L_n(\pi) + 2 e\, P_n(\hat\pi \ne \pi) \\
    L_n(\hat\pi) &\le \tfrac{t + 2}{t - 2} L_n(\pi) + \tfrac{2 t}{t - 2}\, e\, P_n(g \le t e), \quad t > 2 \\
    L_n(\hat\pi) &\le 3 L_n(\pi) + 4 \|D\|_p P_n(g \le t)^{1 - 1/p} + 4^p t^{1 - p} \|D\|_p^p, \quad t > 0,

with :math:`D(x) = \max_a |\hat Q(x, a) - Q(x, a)|` and its norm :math:`\|D\|_p` on the sample, p > 1. ``docs/theory.md`` has the proof.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.validation import (
    Floats,
    Ints,
    as_integers,
    as_positive,
    as_q_values,
    as_weights,
    check_actions,
    check_shape,
)
from capi.errors import InvalidInputError
from capi.loss import gap_weighted_loss, second_best_gap


def distortion_by_disagreement(
    q_values: ArrayLike, estimates: ArrayLike, learned: ArrayLike, other: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Return the first form: a bound on the true loss of the minimiser of the estimated loss, by where it differs from another policy.

    Parameters
    ----------
    q_values, estimates : array of shape (n, A)
        True and estimated action values.
    learned : array of shape (n,)
        Actions of the policy with the least loss in ``estimates``.
    other : array of shape (n,)
        Actions of any policy of the space.
    weights : array of shape (n,), optional
        Weights of the states.

    Examples
    --------
    >>> q, estimates = [[1.0, 0.0], [0.0, 3.0]], [[0.0, 0.5], [0.0, 3.0]]
    >>> distortion_by_disagreement(q, estimates, [1, 1], [0, 1])
    1.0
    """
    q, error, w = _checked(q_values, estimates, weights)
    mine, others = _as_actions(learned, "learned", q), _as_actions(other, "other", q)
    return gap_weighted_loss(q, others, weights) + 2 * float(error.max()) * float(w @ (mine != others))


def distortion_by_gaps(
    q_values: ArrayLike, estimates: ArrayLike, other: ArrayLike, weights: ArrayLike | None = None, *, t: float = 4.0
) -> float:
    """Return the second form: a bound on the true loss of the minimiser of the estimated loss, by the mass of small gaps.

    Parameters
    ----------
    q_values, estimates : array of shape (n, A)
        True and estimated action values.
    other : array of shape (n,)
        Actions of any policy of the space.
    weights : array of shape (n,), optional
        Weights of the states.
    t : float above 2
        Gaps up to ``t`` times the largest error count as small; 4 gives the paper's factor 3.

    Examples
    --------
    >>> q, estimates = [[1.0, 0.0], [0.0, 9.0]], [[0.0, 0.5], [0.0, 9.0]]
    >>> distortion_by_gaps(q, estimates, [0, 1])
    2.0
    """
    q, error, w = _checked(q_values, estimates, weights)
    if as_positive(t, "t") <= 2:
        raise InvalidInputError(f"t must be above 2; got {t!r}.")
    e = float(error.max())
    small = float(w @ (second_best_gap(q) <= t * e))
    return (t + 2) / (t - 2) * gap_weighted_loss(q, _as_actions(other, "other", q), weights) + 2 * t / (
        t - 2
    ) * e * small


def distortion_in_norm(
    q_values: ArrayLike,
    estimates: ArrayLike,
    other: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    p: float = 2.0,
    t: float | None = None,
) -> float:
    r"""Return the third form: the bound by an L_p norm of the error, which the paper leaves open.

    If the mass of gaps up to t is at most :math:`c\, t^\zeta`, the best t gives the exponent :math:`p (1 + \zeta) / (p + \zeta)` of the norm.

    Parameters
    ----------
    q_values, estimates : array of shape (n, A)
        True and estimated action values.
    other : array of shape (n,)
        Actions of any policy of the space.
    weights : array of shape (n,), optional
        Weights of the states.
    p : float above 1
    t : float, optional
        The gap up to which gaps count as small; by default the best one.

    Examples
    --------
    >>> q, estimates = [[1.0, 0.0], [0.0, 9.0]], [[0.0, 0.5], [0.0, 9.0]]
    >>> round(distortion_in_norm(q, estimates, [0, 1]), 4)
    2.8284
    """
    q, error, w = _checked(q_values, estimates, weights)
    if as_positive(p, "p") <= 1:
        raise InvalidInputError(f"p must be above 1; got {p!r}.")
    largest = float(error.max())
    norm = largest * float((w @ (error / largest) ** p) ** (1 / p)) if largest > 0 else 0.0  # no power overflows
    gaps = second_best_gap(q)
    if t is not None:
        at = np.array([as_positive(t, "t")])
        masses = np.array([float(w @ (gaps <= at[0]))])
    else:  # just below each gap, and beyond all of them
        values = np.unique(gaps[np.isfinite(gaps) & (gaps > 0)])
        at = np.append(values, np.inf)
        masses = np.array([float(w @ (gaps < value)) for value in at])
    with np.errstate(over="ignore", invalid="ignore"):
        rare = np.where(np.isfinite(at), at * (4 * norm / at) ** p, 0.0)
    terms = 4 * norm * masses ** (1 - 1 / p) + rare
    return 3 * gap_weighted_loss(q, _as_actions(other, "other", q), weights) + float(terms.min())


def _checked(q_values: ArrayLike, estimates: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
    """Return the true values (n, A), the largest error in each state (n,) and the weights with sum 1 (n,)."""
    q, found = as_q_values(q_values), as_q_values(estimates, name="estimates")
    check_shape(found, "estimates", q.shape, "q_values")
    w = as_weights(weights, "weights", len(q))
    share = np.full(len(q), 1 / len(q)) if w is None else w / w.sum()
    counts = share > 0
    error = np.where(counts, np.abs(found - q).max(axis=1), 0.0)
    return q, error, share


def _as_actions(value: ArrayLike, name: str, q: Floats) -> Ints:
    actions = as_integers(value, name)
    check_shape(actions, name, (len(q),), "q_values")
    check_actions(actions, q.shape[1], name)
    return actions
