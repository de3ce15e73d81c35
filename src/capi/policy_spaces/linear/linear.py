"""Policies that are linear in features: the action with the largest weighted sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, checked_by, optional
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_int, as_states
from capi.errors import InvalidInputError
from capi.features.scaling import Scale, Scaling, check_scale, learned_scaling
from capi.features.tables import Features, FittedFeatures, Table, check_features, fitted_features
from capi.policies import Deterministic, check_masks_given, in_blocks
from capi.policy_spaces._monotone import check_monotone
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.policy_spaces.linear._line_search import TIE, LineSearch
from capi.policy_spaces.linear._surrogates import ConvexLoss, Penalty, Surrogate
from capi.types import Policy, QFunction


@dataclass(frozen=True, eq=False)
class StatesAndConstant:
    """The scaled columns of a state, and a constant one."""

    scaling: Scaling

    def __call__(self, states: Floats) -> Floats:
        """Return the features; (n, d) -> (n, d + 1)."""
        return np.hstack([self.scaling(states), np.ones((len(states), 1))])

    def in_original_units(self, weights: Floats) -> Floats:
        """Return the weights (A, d + 1) of the unscaled states and of the constant that give the same scores."""
        slopes = weights[:, :-1] / self.scaling.unit
        return np.column_stack([slopes, weights[:, -1] - slopes @ self.scaling.origin])

    def in_own_units(self, weights: Floats) -> Floats:
        """Return the weights of these features from those of the unscaled states; the inverse of `in_original_units`."""
        slopes = weights[:, :-1]
        return np.column_stack([slopes * self.scaling.unit, weights[:, -1] + slopes @ self.scaling.origin])


@dataclass(frozen=True, eq=False)
class LinearPolicy(Deterministic):
    """The allowed action with the largest score (ties: the lowest action); scores are linear in features."""

    weights: Floats  # (A, p) of the features
    features: FittedFeatures = field(repr=False)
    source: Any = field(default=None, repr=False)  # the features before fitting; None: the states themselves
    masked: bool = False

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Number of features of a state, d."""
        return self.features.n_features

    def scores(self, states: Floats) -> Floats:
        """Return the score of each action; ``states`` (n, d) -> (n, A)."""
        return self.features.product(as_states(states), self.weights.T)

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the (allowed) action with the largest score (n,)."""
        check_masks_given(self.masked, allowed)
        scores = self.scores(states)
        mask = as_allowed(allowed, "allowed", scores.shape)
        return (scores if mask is None else np.where(mask, scores, -np.inf)).argmax(axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Return ``features`` (names), ``actions`` (labels) and ``weights``, one row per action.

        If the features are the states themselves, the weights refer to the unscaled columns of the table, and the last
        feature is "constant".
        """
        states = self.features.transform
        plain = isinstance(states, StatesAndConstant)
        weights = states.in_original_units(self.weights) if isinstance(states, StatesAndConstant) else self.weights
        names = [*self._columns(), "constant"] if plain else [f"phi{j}" for j in range(self.weights.shape[1])]
        return {"features": names, "actions": list(self._labels()), "weights": weights.tolist()}

    def rules(self, digits: int = 3) -> str:
        """Return the policy as text, with the names and labels of the table.

        The text shows the difference of two scores, or the score of each action. Zero weights are left out; the others are
        rounded to ``digits`` digits, so the text may be wrong for states very close to a decision boundary.
        """
        as_int(digits, "digits", minimum=1)
        described = self.to_dict()
        names, labels, weights = described["features"], described["actions"], np.array(described["weights"])
        ranking = _constant_ranking(weights, names)
        if ranking is not None:
            return "always " + ", else ".join(str(labels[a]) for a in (ranking if self.masked else ranking[:1]))
        if len(labels) == 2:
            difference = _sum_as_text(weights[1] - weights[0], names, digits)
            return f"if {difference} > 0: {labels[1]}\nelse: {labels[0]}"
        lines = [f"  {label}: {_sum_as_text(w, names, digits)}" for label, w in zip(labels, weights, strict=True)]
        return "\n".join(["the action with the largest score, the first among equals:", *lines])

    def _columns(self) -> tuple[str, ...]:
        return self.schema.feature_names if self.schema else tuple(f"x{j}" for j in range(self.n_features))

    def _labels(self) -> tuple[Any, ...]:
        return self.schema.action_labels if self.schema else tuple(range(self.n_actions))


@dataclass(frozen=True, eq=False)
class Linear(ImprovementSolver[LinearPolicy]):
    r"""Policies that are linear in features: :math:`\pi(x) = \arg\max_a \theta_a \cdot \phi(x)`.

    First a convex surrogate of the gap-weighted loss is minimised, with scores :math:`f_a = \theta_a \cdot \phi`,

    .. math::
        \frac1g \sum_i w_i \sum_{a, b} \bigl[r_i(b) - r_i(a)\bigr]_+\, \ell\bigl(f_a(X_i) - f_b(X_i)\bigr) + \text{penalty},
        \qquad g = \sum_i w_i \max_a r_i(a),

    with the regrets r, over pairs of allowed actions: where b loses more than a, a should score higher. With two actions this
    is :math:`\sum_i w_i\, \text{gap}_i\, \ell(\text{margin}_i) / g`; `capi.policy_spaces.linear._surrogates` explains the form
    for more actions and its properties. Because of g, neither the scale of the values nor that of the weights matters; rows
    without a gap have no effect. Then exact line searches lower the gap-weighted loss itself.

    Features that need fitting are fitted once, to all states with weight, and reused in later iterations. The scale of the
    states is learned from those with a gap.

    Parameters
    ----------
    features : callable or transformer, optional
        From states (n, d) to features (n, p), as in `capi.features.bases`; include a constant if you want one. By default
        the scaled states themselves and a constant. A feature that is constant in the sample is not penalised.
    surrogate : "logistic", "hinge" or "exponential"
        The loss :math:`\ell(m)` of a margin: log(1 + exp(-m)), max(1 - m, 0) with its corner rounded to a parabola between
        margins 0.9 and 1 (to have a gradient; it differs from the hinge by at most 0.05), or exp(-m).
    penalty : "l2" or "l1"
        The strength times :math:`\sum_a \|\theta_a\|_2^2 / (A - 1)` or :math:`\sum_a \|\theta_a\|_1 / (A - 1)`: with two
        actions, half the squared length, or the l1 norm, of their difference. "l1" makes many weights zero; polishing may
        change any of them that reduces the loss.
    strength : float
        Strength of the penalty, relative to the mean loss, independent of the number of rows.
    polish : bool
        Whether to lower the gap-weighted loss itself, starting from the best of the surrogate's solution, the previous
        policy and the constant policies. The result never loses more than any of these. False returns the surrogate's
        solution.
    max_iterations : int
        Maximum number of iterations of the solver for the surrogate, L-BFGS-B.
    scale : "range", "deviation", array of shape (2, d) or None
        Scaling of the states if there are no ``features``; it affects the penalty and the solver.
    monotone : mapping from columns to 1 or -1, optional
        Monotonicity per column: 1 if the action index must not decrease as the column increases, -1 if it must not
        increase. The weights of such a column increase or decrease from action to action, and polishing does not change
        them. Requires the states themselves as features, the penalty "l2" and no masks.

    Examples
    --------
    >>> states = np.array([[1.0, 7.0], [2.0, 3.0], [3.0, 5.0], [4.0, 1.0]])
    >>> policy = Linear(penalty="l1", strength=0.05).improve(states, [[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    >>> policy.act(states)
    array([0, 0, 1, 1])
    >>> print(policy.rules(digits=2))
    if 3.1 x0 - 7.3 > 0: 1
    else: 0
    """

    features: Features = None
    surrogate: Surrogate = "logistic"
    penalty: Penalty = "l2"
    strength: float = 1e-3
    polish: bool = True
    max_iterations: int = 500
    scale: Scale = "deviation"
    monotone: Mapping[int, int] | None = None

    _constraints: ClassVar[Constraints] = {
        "features": optional(checked_by(check_features)),
        "monotone": checked_by(check_monotone),
        "scale": checked_by(check_scale),
        **ConvexLoss._constraints,
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.monotone and (self.features is not None or self.penalty != "l2"):
            raise InvalidInputError(
                'monotone requires the states themselves as features (features=None) and the penalty "l2".'
            )

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,
    ) -> LinearPolicy:
        """Return the policy that minimises the surrogate, polished for the gap-weighted loss on the sample."""
        check_monotone(self.monotone, problem.n_features, masked=problem.masked)
        if self.features is None:
            plain = StatesAndConstant(_scaling(problem, self.scale))
            features, old = fitted_features(plain, problem.states), _translated(previous, plain)
        else:
            kept, old = kept_features(previous, self.features, problem.n_features)
            features = fitted_features(self.features, problem.counted_states) if kept is None else kept
        order = self.monotone or {}
        found = learned_weights(features, problem, self._convex(), old, rng, polish=self.polish, order=order)
        return LinearPolicy(found, features, self.features, problem.masked)

    def _convex(self) -> ConvexLoss:
        return ConvexLoss(self.surrogate, self.penalty, self.strength, self.max_iterations)


def learned_weights(
    features: FittedFeatures,
    problem: ImprovementProblem,
    convex: ConvexLoss,
    previous: Floats | None,
    rng: np.random.Generator | None,
    *,
    polish: bool,
    order: Mapping[int, int] = MappingProxyType({}),
) -> Floats:
    """Return the weights (A, p) that minimise the convex loss, or better ones; those of the ``previous`` policy are tried too.

    In the columns of ``order`` weights increase (1) or decrease (-1) from action to action, and so does the best action along
    that column.
    """
    shape, stakes = (problem.n_actions, features.n_columns), problem.stakes
    if not len(stakes.rows):
        return np.zeros(shape)
    table = _table(features, problem)
    constant = _constant_columns(table)
    solution = convex.minimiser(table, stakes.lost, constant != 0, order)
    if not polish:
        return solution
    search = LineSearch(table, stakes.lost, tuple(order))
    best = search.start(np.zeros(shape))  # the lowest action
    for weights in (*_constant_policies(constant, shape), solution, previous):
        fits = weights is not None and weights.shape == shape and _in_order(weights, order)
        place = search.start(weights) if weights is not None and fits else best
        best = place if place.loss < best.loss - TIE else best
    return search.polished(best, np.random.default_rng(0) if rng is None else rng).weights


def _in_order(weights: Floats, order: Mapping[int, int]) -> bool:
    return all((direction * np.diff(weights[:, j]) >= 0).all() for j, direction in order.items())


def kept_features(previous: Policy | None, source: Any, n_features: int) -> tuple[FittedFeatures | None, Floats | None]:
    """Return features and weights of the ``previous`` policy if its features come from the same ``source``."""
    if isinstance(previous, LinearPolicy) and previous.source is source and previous.n_features == n_features:
        return previous.features, previous.weights
    return None, None


def _translated(previous: Policy | None, plain: StatesAndConstant) -> Floats | None:
    """Return the weights of a ``previous`` policy of the states themselves, in the units of ``plain``."""
    if not isinstance(previous, LinearPolicy) or not isinstance(previous.features.transform, StatesAndConstant):
        return None
    if previous.n_features != len(plain.scaling.unit):
        return None
    return plain.in_own_units(previous.features.transform.in_original_units(previous.weights))


def _scaling(problem: ImprovementProblem, scale: Scale) -> Scaling:
    """Return the scaling learned from the states with a gap; a weight counts as a number of copies."""
    problem.complete_states()
    stakes = problem.stakes
    if not isinstance(scale, str) or scale != "deviation" or not len(stakes.rows):
        return learned_scaling(stakes.states if len(stakes.rows) else problem.counted_states, scale)
    mean = np.average(stakes.states, axis=0, weights=stakes.weights)
    deviation = np.sqrt(np.average((stakes.states - mean) ** 2, axis=0, weights=stakes.weights))
    return Scaling(mean, np.where(deviation > 0, deviation, 1.0))


def _table(features: FittedFeatures, problem: ImprovementProblem) -> Table:
    """Return the features of the rows with a gap (m, p)."""
    rows = problem.stakes.rows
    if len(rows) == problem.n_rows:
        return features(problem.states)
    table = features.of_rows(problem.states, rows)
    if not np.isfinite(table.data if features.sparse else table).all():
        raise InvalidInputError("features(states) must be finite.")
    return table


def _constant_columns(table: Table) -> Floats:
    """Return the value of each constant column, zero for the others (p,)."""
    low, high = table.min(axis=0), table.max(axis=0)
    if not isinstance(table, np.ndarray):
        low, high = low.toarray().ravel(), high.toarray().ravel()
    return np.where(low == high, low, 0.0)


def _constant_policies(constant: Floats, shape: tuple[int, int]) -> Iterator[Floats]:
    """Yield weights (A, p) with which one action is taken everywhere, if some feature is ``constant`` (p,)."""
    columns = np.flatnonzero(constant)
    for a in range(shape[0] if columns.size else 0):
        weights = np.zeros(shape)
        weights[a, columns[-1]] = np.sign(constant[columns[-1]])
        yield weights


def _constant_ranking(weights: Floats, names: list[str]) -> Ints | None:
    """Return the order of the actions if it is the same everywhere, None otherwise; ``weights`` (A, p)."""
    apart = (weights != weights[0]).any(axis=0)  # (p,)
    if not apart.any():
        return np.arange(len(weights))
    if names[-1] != "constant" or apart[:-1].any():
        return None
    return np.argsort(-weights[:, -1], kind="stable")


def _sum_as_text(weights: Floats, names: list[str], digits: int) -> str:
    """Return a weighted sum as text: "0.5 x0 - 2 x1 + 3"."""
    terms = [(w, "" if name == "constant" else f" {name}") for w, name in zip(weights, names, strict=True) if w != 0]
    if not terms:
        return "0"
    first, *others = [f"{abs(w):.{digits}g}{name}" for w, name in terms]
    signs = [" - " if w < 0 else " + " for w, _ in terms[1:]]
    return ("-" if terms[0][0] < 0 else "") + first + "".join(s + t for s, t in zip(signs, others, strict=True))
