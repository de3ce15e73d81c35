r"""Rademacher averages of the losses of a policy space, and the fixed point r* of condition (4).

.. math:: R_n G = \sup_{g \in G} \frac1n \sum_{i=1}^n \sigma_i\, g(X_i), \qquad G = \{l^{\pi'}(\pi) : \pi \in \Pi\}.

The supremum over all of G takes one call of a space's `improve`, on the values :math:`\sigma_i (\max_a Q - Q)`. The analysis needs the local one, over members with
:math:`P l^2 \le r`. Since :math:`\{l(\pi)\}` is not convex, the local averages are a step function of r, whatever :math:`\Pi` is (the paper's footnote on convex
:math:`\Pi` does not apply); those of the star hull are sub-root, and never smaller. Then :math:`\psi(r) = B\, E R_n(r)` has one positive fixed point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from capi._utils.randomness import RandomState, as_generator
from capi._utils.statistics import standard_error
from capi._utils.validation import Floats, as_int, as_not_negative, as_positive, as_q_values, as_states, as_weights
from capi.errors import InvalidInputError
from capi.loss import regrets
from capi.policy_spaces import Thresholds
from capi.theory._fronts import Members, StarHulls, drawn_signs, members_of
from capi.types import PolicySpace

N_DRAWS = 1000


@dataclass(frozen=True)
class Rademacher:
    """An average over random signs.

    Parameters
    ----------
    value : float
        In reward units.
    standard_error : float
        Of the average over draws.
    n_draws : int
    radius : float or None
        The largest mean square of the losses; None for all members.
    is_exact : bool
        Whether the supremum of each draw is exact, or, for a local average through `improve` (trees on more than a few states), not below it.
        Otherwise the space has no exact minimiser, and the value is a lower estimate.
    """

    value: float
    standard_error: float
    n_draws: int
    radius: float | None
    is_exact: bool


@dataclass(frozen=True)
class FixedPoint:
    """The fixed point r* of the complexity condition, in squared reward units.

    Parameters
    ----------
    radius : float
        The fixed point, r*.
    standard_error : float
        By the draws of signs.
    scale : float
        B, with which the averages are multiplied: the largest gap b, or another bound of the losses such as 2 Qmax.
    n, n_draws : int
        Sample size, and number of draws.
    is_exact : bool
        As in `Rademacher`.
    """

    radius: float
    standard_error: float
    scale: float
    n: int
    n_draws: int
    is_exact: bool


def rademacher(
    space: PolicySpace | ArrayLike,
    states: ArrayLike,
    q_values: ArrayLike,
    *,
    n: int | None = None,
    nu: ArrayLike | None = None,
    radius: float | None = None,
    n_draws: int = N_DRAWS,
    random_state: RandomState = 0,
) -> Rademacher:
    """Return the Rademacher average of the losses of a policy space, global or local.

    Parameters
    ----------
    space : PolicySpace, or array of shape (m, N)
        The policy space, or the actions of each of its members in the states.
    states : array of shape (N, d)
    q_values : array of shape (N, A)
        Action values of the policy that is improved.
    n : int, optional
        Sample size: the states are then all states there are, with distribution ``nu``, and samples are drawn from them. By default the
        states are the sample.
    nu : array of shape (N,), optional
        Weights of the states; by default all are equal.
    radius : float, optional
        Only losses with a mean square up to this, and those of the star hull, count; by default all.
    n_draws : int
        Number of draws of signs.
    random_state : int, Generator or None

    Examples
    --------
    All policies with one cut, on 20 states with gaps of 1; the exact average is 0.19602:

    >>> from capi.policy_spaces import Thresholds
    >>> states = np.arange(20.0)[:, None]
    >>> found = rademacher(Thresholds(), states, np.tile([0.0, 1.0], (20, 1)), n_draws=4000)
    >>> abs(found.value - 0.19602127) < 3 * found.standard_error
    True
    """
    members, signs = _problem(space, states, q_values, n, nu, random_state)
    D = as_int(n_draws, "n_draws", minimum=2)
    if radius is None:
        found = np.array([members.largest(signs()) for _ in range(D)])
    else:
        at = as_not_negative(radius, "radius")
        found = StarHulls.of((members.front(signs()) for _ in range(D)), members.is_hull).at(at)
    return Rademacher(float(found.mean()), standard_error(found), D, radius, members.is_exact)


def fixed_point(
    space: PolicySpace | ArrayLike,
    states: ArrayLike,
    q_values: ArrayLike,
    *,
    n: int | None = None,
    nu: ArrayLike | None = None,
    scale: Literal["gap"] | float = "gap",
    n_draws: int = N_DRAWS,
    random_state: RandomState = 0,
) -> FixedPoint:
    r"""Return the fixed point :math:`r^* = B\, E R_n(r^*)` of the local Rademacher averages of the star hull (condition (4)).

    Parameters
    ----------
    space : PolicySpace, or array of shape (m, N)
        The policy space, or the actions of each of its members in the states.
    states : array of shape (N, d)
    q_values : array of shape (N, A)
        Action values of the policy that is improved.
    n : int, optional
        Sample size: the states are then all states there are, with distribution ``nu``, and samples are drawn from them. By default the
        states are the sample.
    nu : array of shape (N,), optional
        Weights of the states; by default all are equal.
    scale : "gap" or float
        B: the largest gap (the largest loss of a decision), which is enough and far smaller, or a larger number such as the paper's 2 Qmax.
    n_draws : int
        Number of draws of signs.
    random_state : int, Generator or None

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.theory import half_spaces
    >>> mdp = ChainWalk(variant=2).mdp
    >>> found = fixed_point(half_spaces(200), mdp.states, mdp.optimal_action_values, n=2000)
    >>> round(found.radius, 3), round(found.scale, 3)
    (0.005, 1.954)
    """
    members, signs = _problem(space, states, q_values, n, nu, random_state)
    b = float(regrets(q_values).max())
    if not isinstance(scale, str) or scale != "gap":
        given = as_positive(scale, "scale")
        if given < b * (1 - 1e-9):
            raise InvalidInputError(
                f"scale must be at least the largest gap, {b:.6g}, to bound all losses; got {given:.6g}."
            )
        b = given
    D = as_int(n_draws, "n_draws", minimum=2)
    hulls = StarHulls.of((members.front(signs()) for _ in range(D)), members.is_hull)
    size = len(as_q_values(q_values)) if n is None else n
    radius, error = solved(hulls, b)
    return FixedPoint(radius, error, b, size, D, members.is_exact)


def solved(hulls: StarHulls, scale: float) -> tuple[float, float]:
    """Return the fixed point of ``scale`` times the mean supremum, and its standard error by the draws."""

    def above(radius: float) -> float:
        return scale * float(hulls.at(radius).mean()) - radius

    top = scale * float(hulls.sums.max(axis=1).mean())
    if top <= 0:
        return 0.0, 0.0
    low = top
    while above(low) < 0:  # near zero the averages grow like a square root
        low /= 4
    radius = float(brentq(above, low, 2 * top, xtol=1e-12 * top, rtol=1e-12))
    step = 1e-4 * radius
    slope = (above(radius + step) - above(radius - step)) / (2 * step)  # of psi(r) - r, below zero
    return radius, scale * standard_error(hulls.at(radius)) / max(-slope, 1e-12)


def _problem(
    space: Any, states: ArrayLike, q_values: ArrayLike, n: int | None, nu: ArrayLike | None, random_state: RandomState
) -> tuple[Members, Any]:
    """Return the members of the space, and the function that draws signs."""
    x = as_states(states, allow_nan=not isinstance(space, Thresholds))
    q = as_q_values(q_values, n_rows=len(x))
    w = as_weights(nu, "nu", len(x))
    weights: Floats = np.full(len(x), 1 / len(x)) if w is None else w / w.sum()
    size = None if n is None else as_int(n, "n", minimum=1)
    is_space = isinstance(space, PolicySpace) and not isinstance(space, type)
    known: Any = space if is_space else _actions(space, q)
    return members_of(known, x, regrets(q), weights), drawn_signs(size, weights, as_generator(random_state))


def _actions(space: Any, q: Floats) -> Any:
    table = np.asarray(space)
    good = table.ndim == 2 and table.shape[1] == len(q) and len(table) > 0 and table.dtype.kind in "iu"
    if not good or table.min() < 0 or table.max() >= q.shape[1]:
        raise InvalidInputError(
            f"space must be a policy space, or actions in 0..{q.shape[1] - 1} of its members in the states, (m, {len(q)}); "
            f"got {type(space).__name__}{' of shape ' + str(table.shape) if table.ndim else ''}."
        )
    return table.astype(np.int64)
