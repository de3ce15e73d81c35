r"""Functions for ``fit(states=...)`` and ``fit(transitions=...)`` that choose states by the action gap.

The paper asks how to choose the sampling distribution, and suggests to change it from round to round to obtain more informative samples. Both choices draw from candidates:

- `ImportantStates`: where the gap is large, so that a wrong action costs much (Li, Bulitko and Greiner 2007);
- `UncertainStates`: where the gap is small compared with how uncertain it is, so that new data may change the decision and be worth something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy.stats import norm

from capi._utils.parameters import Constraints, at_least, check_parameters, instance_of, one_of, satisfying
from capi._utils.row_ops import chosen_entries
from capi._utils.validation import Floats, as_q_values, as_states, check_shape
from capi.errors import InvalidInputError
from capi.loss import greedy, second_best_gap
from capi.types import Policy, QFunction, StateSample

Candidates: TypeAlias = Floats | Callable[[np.random.Generator], Floats]

_CALLABLE = satisfying(callable, "be a function of a policy and a Generator")


@dataclass(frozen=True, eq=False)
class ImportantStates:
    """States drawn in proportion to their gap: where the choice matters (Li, Bulitko and Greiner 2007).

    With weights, which undo the choice, the gap-weighted loss on the drawn states estimates that on all candidates: every drawn state then counts alike, as in plain
    classification. Without weights, states that matter count twice.

    Parameters
    ----------
    candidates : array of shape (m, d), or function of a Generator
        The states to choose from.
    values : function (policy, rng) -> QFunction
        Estimates the action values of the round's policy, such as ``lambda policy, rng: evaluator.evaluate(policy, batch, discount=0.99)``.
    n : int
        Number of states per round, drawn with replacement.
    weighted : bool
        Whether states get weights that undo the choice.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.evaluators import Exact
    >>> from capi.policies import Constant
    >>> mdp = ChainWalk(variant=2).mdp
    >>> chosen = ImportantStates(mdp.states, lambda policy, rng: Exact(mdp).evaluate(policy, discount=0.99), 500)
    >>> sample = chosen(0, Constant(0, 2), np.random.default_rng(0))
    >>> bool(np.median(sample.states) < 50)  # near the reward, where it matters
    True
    """

    candidates: Candidates
    values: Callable[[Policy, np.random.Generator], QFunction]
    n: int
    weighted: bool = True

    _constraints: ClassVar[Constraints] = {"n": at_least(1), "values": _CALLABLE, "weighted": one_of(True, False)}

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, k: int, policy: Policy, rng: np.random.Generator) -> StateSample:  # noqa: ARG002
        """Return the states of a round."""
        x = _drawn(self.candidates, rng)
        gaps = second_best_gap(_values_at(x, self.values(policy, rng), "values"))
        gaps = np.where(np.isfinite(gaps), gaps, 0.0)
        rows, chance = _chosen(gaps, self.n, rng)
        return StateSample(x[rows], 1 / chance[rows] if self.weighted else None)


@dataclass(frozen=True, eq=False)
class UncertainStates:
    r"""States drawn in proportion to what deciding by the present estimates may cost there.

    With the mean g and the spread s of the gap between the two actions that look best, over several estimates, that cost is the mean of the negative
    part of a normal gap, :math:`s \varphi(g / s) - g \Phi(-g / s)`: large where the gap is small and uncertain, and where much is at stake.

    Parameters
    ----------
    candidates : array of shape (m, d), or function of a Generator
        The states to choose from.
    values : function (policy, rng) -> sequence of QFunctions
        Two or more estimates of the same action values, such as from halves or resamples of the batch.
    n : int
        Number of states per round, drawn with replacement.

    Examples
    --------
    >>> from capi.finite.mdp import TabularQ
    >>> from capi.policies import Constant
    >>> sure, unsure = [0.0, 9.0], [0.0, 0.1]
    >>> estimates = [TabularQ(np.array([sure, unsure])), TabularQ(np.array([[0.0, 9.1], [0.3, 0.0]]))]
    >>> chosen = UncertainStates(np.array([[0.0], [1.0]]), lambda policy, rng: estimates, 100)
    >>> float(chosen(0, Constant(0, 2), np.random.default_rng(0)).states.mean())
    1.0
    """

    candidates: Candidates
    values: Callable[[Policy, np.random.Generator], Sequence[QFunction]]
    n: int

    _constraints: ClassVar[Constraints] = {"n": at_least(1), "values": _CALLABLE}

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, k: int, policy: Policy, rng: np.random.Generator) -> StateSample:  # noqa: ARG002
        """Return the states of a round."""
        x = _drawn(self.candidates, rng)
        found = self.values(policy, rng)
        if not isinstance(found, Sequence) or len(found) < 2:
            raise InvalidInputError(
                "values must return at least two Q-functions, whose differences show what is uncertain; "
                f"got {len(found) if isinstance(found, Sequence) else f'a {type(found).__name__}'}."
            )
        costs = expected_mistake([_values_at(x, q, f"values[{i}]") for i, q in enumerate(found)])
        return StateSample(x[_chosen(costs, self.n, rng)[0]])


def expected_mistake(estimates: Sequence[Floats]) -> Floats:
    """Return what it may cost in each state to take the action that looks best, from two or more estimates (n, A) of the same values."""
    tables = np.stack(estimates)
    mean = tables.mean(axis=0)
    if mean.shape[1] < 2:
        return np.zeros(len(mean))
    best = greedy(mean)
    others = mean.copy()
    others[np.arange(len(mean)), best] = -np.inf
    second = greedy(np.where(np.isfinite(others), others, others[np.isfinite(others)].min() - 1.0))
    gaps = np.stack([chosen_entries(table, best) - chosen_entries(table, second) for table in tables])  # (m, n)
    gap, spread = gaps.mean(axis=0), gaps.std(axis=0, ddof=1)
    safe = np.where(spread > 0, spread, 1.0)
    cost = safe * norm.pdf(gap / safe) - gap * norm.cdf(-gap / safe)
    return np.where(spread > 0, np.maximum(cost, 0.0), 0.0)


def _values_at(states: Floats, q: Any, name: str) -> Floats:
    """Return the checked values of a Q-function in states (n, d) -> (n, A)."""
    instance_of(QFunction, "a QFunction, or return one")(q, name)
    values = as_q_values(q.values(states), name=f"{name} in the candidates")
    check_shape(values, f"{name} in the candidates", (len(states), q.n_actions), "candidates")
    return values


def _drawn(candidates: Candidates, rng: np.random.Generator) -> Floats:
    return as_states(candidates(rng) if callable(candidates) else candidates, "candidates")


def _chosen(scores: Floats, n: int, rng: np.random.Generator) -> tuple[Any, Floats]:
    """Return the rows of n draws in proportion to the scores (m,), or alike if all are zero, and the chance of each row (m,)."""
    total = float(scores.sum())
    chance = scores / total if total > 0 else np.full(len(scores), 1 / len(scores))
    return rng.choice(len(scores), n, p=chance), chance
