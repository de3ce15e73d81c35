r"""Convex surrogates of the gap-weighted loss: how much of their excess carries over.

For two actions and scores f, a surrogate replaces :math:`g(x) 1\{f(x) \text{ prefers the worse action}\}` by :math:`g(x)\, \phi(\pm f(x))`. With the
psi-transform of Bartlett, Jordan and McAuliffe (2006), and gaps as weights,

.. math:: \psi\Bigl(\frac{\Delta L}{E g}\Bigr) \le \frac{\Delta R_\phi}{E g},

where both excesses are over the infimum over all scores. So a small surrogate excess forces a small loss if the scores can be anything. With scores of a class, such as linear ones, no
surrogate guarantees the least loss of the class: that can only be measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from capi._utils.parameters import instance_of
from capi._utils.validation import (
    Floats,
    as_floats,
    as_q_values,
    as_share,
    as_states,
    as_weights,
    check_choice,
    check_shape,
)
from capi.errors import InvalidInputError
from capi.loss import gap_weighted_loss, regrets
from capi.types import Policy

SurrogateName: TypeAlias = Literal["hinge", "logistic", "exponential", "squared"]
MOST_LINES = 400  # states of a plane whose lines are all tried


def _logistic_psi(theta: float) -> float:
    return ((1 + theta) * math.log1p(theta) + (0.0 if theta == 1 else (1 - theta) * math.log1p(-theta))) / 2


PSI: dict[str, Callable[[float], float]] = {
    "hinge": lambda theta: theta,
    "logistic": _logistic_psi,
    "exponential": lambda theta: 1 - math.sqrt(1 - theta**2),
    "squared": lambda theta: theta**2,
}
PHI: dict[str, Callable[[Floats], Floats]] = {
    "hinge": lambda margin: np.maximum(1 - margin, 0.0),
    "logistic": lambda margin: np.logaddexp(0.0, -margin),
    "exponential": lambda margin: np.exp(-margin),
    "squared": lambda margin: np.square(1 - margin),
}


def psi_transform(surrogate: SurrogateName, theta: float) -> float:
    """Return the psi-transform of a surrogate: the least share of its excess that goes with a share of the loss's excess.

    Parameters
    ----------
    surrogate : "hinge", "logistic", "exponential" or "squared"
    theta : float in [0, 1]

    Examples
    --------
    >>> [round(psi_transform(name, 0.5), 5) for name in ("hinge", "exponential", "logistic")]
    [0.5, 0.13397, 0.13081]
    """
    check_choice(surrogate, "surrogate", tuple(PSI))
    return PSI[surrogate](as_share(theta, "theta"))


@dataclass(frozen=True)
class Calibration:
    """What a surrogate says about the loss, both as shares of the mean gap.

    Parameters
    ----------
    loss : float
        The gap-weighted loss, which is its own excess: the greedy policy has none.
    excess : float
        The surrogate, which is its own excess: where values are functions of the state, its infimum over all scores is zero.
    psi : float
        The psi-transform of ``loss``, which is at most ``excess``.
    bound : float
        The largest loss that goes with the excess: what the surrogate guarantees.
    mean_gap : float
        In reward units.
    """

    loss: float
    excess: float
    psi: float
    bound: float
    mean_gap: float

    @property
    def holds(self) -> bool:
        """Whether the calibration inequality holds; it must, up to rounding."""
        return self.psi <= self.excess + 1e-12


def measured_calibration(
    scores: ArrayLike, q_values: ArrayLike, surrogate: SurrogateName, weights: ArrayLike | None = None
) -> Calibration:
    """Measure the calibration inequality of a surrogate on data with two actions.

    Parameters
    ----------
    scores : array of shape (n,)
        How much the second action is preferred over the first; ties go to the first.
    q_values : array of shape (n, 2)
    surrogate : "hinge", "logistic", "exponential" or "squared"
    weights : array of shape (n,), optional

    Examples
    --------
    >>> found = measured_calibration([2.0, -0.5], [[0.0, 1.0], [0.0, 3.0]], "hinge")
    >>> found.loss, found.excess, found.holds
    (0.75, 1.125, True)
    """
    check_choice(surrogate, "surrogate", tuple(PSI))
    q = as_q_values(q_values)
    if q.shape[1] != 2:
        raise InvalidInputError(f"q_values must have two actions for a calibration; got {q.shape[1]}.")
    f = as_floats(scores, "scores", ndim=1)
    check_shape(f, "scores", (len(q),), "q_values")
    w = as_weights(weights, "weights", len(q))
    share = np.full(len(q), 1 / len(q)) if w is None else w / w.sum()
    gaps, better = np.abs(q[:, 1] - q[:, 0]), np.where(q[:, 1] > q[:, 0], 1.0, -1.0)
    mean_gap = float(share @ gaps)
    if mean_gap == 0:
        return Calibration(0.0, 0.0, 0.0, 0.0, 0.0)
    loss = gap_weighted_loss(q, (f > 0).astype(int), w) / mean_gap
    excess = float(share @ (gaps * PHI[surrogate](better * f))) / mean_gap
    return Calibration(loss, excess, PSI[surrogate](min(loss, 1.0)), _inverse(surrogate, excess), mean_gap)


def _inverse(surrogate: str, excess: float) -> float:
    """Return the largest share whose psi-transform is at most ``excess``."""
    if excess >= PSI[surrogate](1.0):
        return 1.0
    return float(brentq(lambda theta: PSI[surrogate](theta) - excess, 0.0, 1.0, xtol=1e-12))


def best_half_space_loss(states: ArrayLike, q_values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return the least gap-weighted loss of all half-spaces of a line or a plane, with two actions, by trying all of them.

    Parameters
    ----------
    states : array of shape (n, 1) or (n, 2)
        At most 400 of them in a plane.
    q_values : array of shape (n, 2)
    weights : array of shape (n,), optional

    Examples
    --------
    >>> states = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> best_half_space_loss(states, [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    0.25
    """
    x = as_states(states, allow_nan=False)
    q = as_q_values(q_values, n_rows=len(x))
    if x.shape[1] > 2 or q.shape[1] != 2 or (x.shape[1] == 2 and len(x) > MOST_LINES):
        raise InvalidInputError(
            f"best_half_space_loss tries all half-spaces: two actions, and one column, or two columns and at most {MOST_LINES} "
            f"states; got {q.shape[1]} actions and states of shape {x.shape}."
        )
    w = as_weights(weights, "weights", len(x))
    lost = regrets(q) * (np.full(len(x), 1 / len(x)) if w is None else w / w.sum())[:, None]
    if x.shape[1] == 1:
        return _least_along(x[:, :1], lost)
    pairs = x[:, None, :] - x[None, :, :]
    normals = np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(-1, 2)
    normals = normals[np.abs(normals).max(axis=1) > 0]
    if not len(normals):
        return float(lost.sum(axis=0).min())
    angles = np.unique(np.arctan2(normals[:, 1], normals[:, 0]) % np.pi)
    between = (angles + np.append(angles[1:], angles[0] + np.pi)) / 2  # no two states tie there unless they are equal
    return min(_least_along(x @ np.array([[math.cos(a)], [math.sin(a)]]), lost) for a in between)


def excess_over_half_spaces(
    policy: Policy, states: ArrayLike, q_values: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Return how much more a policy, such as one of `Linear`, loses than the best half-space.

    Parameters
    ----------
    policy : Policy
    states : array of shape (n, 1) or (n, 2)
    q_values : array of shape (n, 2)
    weights : array of shape (n,), optional
    """
    instance_of(Policy, "a Policy (act, probabilities, n_actions)")(policy, "policy")
    x = as_states(states, allow_nan=False)
    return gap_weighted_loss(q_values, policy.act(x), weights) - best_half_space_loss(x, q_values, weights)


def _least_along(column: Floats, lost: Floats) -> float:
    """Return the least loss of all cuts of a column (n, 1), both ways."""
    order = np.argsort(column[:, 0], kind="stable")
    x, totals = column[order, 0], lost.sum(axis=0)
    low = np.cumsum(lost[order], axis=0)[:-1][x[:-1] < x[1:]]
    high = totals - low
    cuts = np.minimum(low[:, 0] + high[:, 1], low[:, 1] + high[:, 0])
    return float(max(min(totals.min(), np.min(cuts, initial=np.inf)), 0.0))
