"""Policies with one cut: one action on the low side and one on the high side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters, checked_by, optional
from capi._utils.row_ops import row_max
from capi._utils.validation import Bools, Floats, Ints, as_states, check_rows
from capi.errors import InvalidInputError
from capi.loss import filled_regrets
from capi.policies import Deterministic, check_masks_given, first_allowed, in_blocks
from capi.policy_spaces._monotone import check_monotone
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver, finite_total
from capi.trees.readable_cuts import readable_cut
from capi.types import Policy, QFunction

TIE = 1e-12  # losses that differ by less than this share of the total gap count as equal


@dataclass(frozen=True, eq=False)
class ThresholdPolicy(Deterministic):
    """``low`` where the feature is at most ``cut``, ``high`` where it is above; a constant policy has cut = inf.

    With masks, each side takes the first action of its ranking that the state allows.
    """

    feature: int
    cut: float
    low: int
    high: int
    n_actions: int
    n_features: int
    ranking: Ints = field(repr=False)  # (2, A) the actions of the low and the high side, from best to worst
    masked: bool = False

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the best allowed action of each state's side (n,)."""
        check_masks_given(self.masked, allowed)
        column = as_states(states, n_features=self.n_features)[:, self.feature]
        _check_no_missing(column, self.feature)
        return first_allowed(self.ranking[np.where(column <= self.cut, 0, 1)], allowed)

    def rules(self) -> str:
        """Return the policy as text, with the names and labels of the table if known."""
        labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
        sides = [[labels[a] for a in (ranking if self.masked else ranking[:1])] for ranking in self.ranking]
        low, high = (", else ".join(map(str, side)) for side in sides)
        if self.cut == np.inf:
            return f"always {low}"
        where = self.schema.condition(self.feature, self.cut) if self.schema else f"x{self.feature} <= {self.cut!r}"
        return f"if {where}: {low}\nelse: {high}"

    def to_dict(self) -> dict[str, Any]:
        """Return the cut and the actions of both sides, with the names and labels of the table."""
        features = self.schema.feature_names if self.schema else tuple(f"x{j}" for j in range(self.n_features))
        labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
        if self.cut == np.inf:
            return {"action": labels[self.low]}
        sides = {"then": {"action": labels[self.low]}, "else": {"action": labels[self.high]}}
        return {"feature": features[self.feature], "at_most": self.cut, **sides}


class _Cut(NamedTuple):
    """The best cut of a feature."""

    loss: float
    feature: int
    cut: float
    low: int
    high: int


@dataclass(frozen=True)
class Thresholds(ImprovementSolver[ThresholdPolicy]):
    """Policies with one cut in one feature: the paper's half-spaces in one dimension (Section 5.1).

    `improve` finds the exact minimiser of the gap-weighted loss over all features, cuts and pairs of
    actions, including constant policies, by sorting and prefix sums: O(d n (log n + A)). Losses within
    1e-12 of the total gap are ties. Ties are broken in favour of constant policies (lowest action), then
    of the lowest feature, the lowest cut, and the lowest action on the low side.

    With masks, an action that a state does not allow counts as the mean of the allowed ones, and each side keeps a
    ranking of the actions and takes the first one that the state allows. The result is good but not always the best.

    Parameters
    ----------
    feature : int, optional
        Column to cut. By default the best one.
    monotone : mapping from columns to 1 or -1, optional
        Monotonicity per column: 1 if the action index must not decrease as the column increases, -1 if it must not
        increase. Not available with masks.

    Examples
    --------
    >>> states = np.array([[0.0], [1.0], [2.0]])
    >>> policy = Thresholds().improve(states, np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 5.0]]))
    >>> print(policy.rules())
    if x0 <= 1.5: 0
    else: 1
    """

    feature: int | None = None
    monotone: Mapping[int, int] | None = None

    _constraints: ClassVar[Constraints] = {"feature": optional(at_least(0)), "monotone": checked_by(check_monotone)}

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> ThresholdPolicy:
        """Return the policy with the least gap-weighted loss on the sample."""
        x = problem.states
        check_monotone(self.monotone, x.shape[1], masked=problem.masked)
        loss = problem.weighted(filled_regrets(problem.regrets, problem.mask))  # (n, A)
        tie = TIE * finite_total(row_max(loss))
        features = range(x.shape[1]) if self.feature is None else [self._checked_feature(x.shape[1])]
        for j in features:
            _check_no_missing(x[:, j], j)

        by_action = np.ascontiguousarray(loss.T)  # (A, n)
        sums = by_action.sum(axis=1)  # the loss of each constant policy (A,)
        directions = self.monotone or {}
        found = (_best_cut(x[:, j], by_action, j, tie, directions.get(j, 0)) for j in features)
        cuts = [cut for cut in found if cut is not None]
        least = min([sums.min(), *(cut.loss for cut in cuts)])
        constants = np.flatnonzero(sums <= least + tie)
        if constants.size:
            a = int(constants[0])
            best = _Cut(float(sums[a]), features[0], np.inf, a, a)
        else:
            best = next(cut for cut in cuts if cut.loss <= least + tie)
        low = x[:, best.feature] <= best.cut
        ranking = np.stack(
            [_ranked(loss[side].sum(axis=0), first) for side, first in ((low, best.low), (~low, best.high))]
        )
        shape = problem.n_actions, problem.n_features
        return ThresholdPolicy(best.feature, best.cut, best.low, best.high, *shape, ranking, problem.masked)

    def _checked_feature(self, n_features: int) -> int:
        if self.feature is None or self.feature >= n_features:
            raise InvalidInputError(
                f"feature must lie in 0..{n_features - 1}; got {self.feature}: states have {n_features} columns."
            )
        return self.feature


def _ranked(sums: Floats, first: int) -> Ints:
    """Return the actions from best to worst, with ``first`` moved to the front (A,)."""
    order = np.argsort(sums, kind="stable")
    return np.concatenate([[first], order[order != first]])


def _best_cut(column: Floats, loss: Floats, feature: int, tie: float, direction: int) -> _Cut | None:
    """Return the best cut between two distinct values of ``column`` (n,), None if all are equal; ``loss`` is (A, n).

    With ``direction`` 1 (-1) the action on the high side must not be lower (higher) than that on the low side.
    """
    order = np.argsort(column)
    x = column[order]
    places = np.flatnonzero(x[:-1] < x[1:])  # a cut after row i of the sorted column
    if not places.size:
        return None
    low, high = np.empty((2, len(loss), len(places)))
    for a, of_action in enumerate(loss):
        ordered = of_action[order]
        low[a] = np.cumsum(ordered)[places]
        # The high side is summed from its own end: total minus prefix would turn exact zeros into rounding errors.
        high[a] = np.cumsum(ordered[::-1])[::-1][places + 1]
    if direction:
        step = slice(None, None, direction)
        losses = (np.minimum.accumulate(low[step], axis=0) + high[step]).min(
            axis=0
        )  # the best partner of each high side
    else:
        losses = low.min(axis=0) + high.min(axis=0)  # (m,)
    least = losses.min()
    i = int(np.argmax(losses <= least + tie))
    pairs = low[:, i, None] + high[None, :, i]  # (A, A)
    if direction:
        numbers = np.arange(len(loss))
        pairs[(numbers[None, :] - numbers[:, None]) * direction < 0] = np.inf
    below, above = np.unravel_index(int(np.argmax(pairs <= least + tie)), pairs.shape)
    cut = readable_cut(float(x[places[i]]), float(x[places[i] + 1]))
    return _Cut(float(least), feature, cut, int(below), int(above))


def _check_no_missing(column: Floats, feature: int) -> None:
    check_rows(
        ~np.isnan(column),
        column,
        f"states[:, {feature}]",
        "must not be missing (NaN) where Thresholds cuts",
        " Impute the missing values, or choose another feature.",
    )
