"""Policies that are constant on the cells of a given partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.parameters import Constraints, at_least, check_parameters
from capi._utils.renamed import renamed
from capi._utils.validation import Bools, Floats, Ints, as_integers, as_states, check_actions, check_shape
from capi.errors import InvalidInputError
from capi.policies import Deterministic, check_masks_given, first_allowed
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.types import Policy, QFunction

MOST_CELLS = 20  # that `rules` lists


@renamed(index="cell_of")
@dataclass(frozen=True, eq=False)
class PartitionPolicy(Deterministic):
    """One action per cell; states in cells without data get the default.

    With masks, each state takes the first action of its cell's ranking that it allows.
    """

    cell_of: Callable[[Floats], ArrayLike]
    cells: Ints  # (m,) sorted numbers of the cells with data
    ranking: Ints  # (m + 1, A) actions of each cell from best to worst; the last row is for cells without data
    masked: bool = False

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.ranking.shape[1]

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action of each state's cell (n,)."""
        check_masks_given(self.masked, allowed)
        cell = cell_numbers(self.cell_of, as_states(states))
        row = np.minimum(np.searchsorted(self.cells, cell), len(self.cells) - 1)
        row = np.where(self.cells[row] == cell, row, len(self.cells))
        return first_allowed(self.ranking[row], allowed)

    def to_dict(self) -> dict[str, Any]:
        """Return the action of each cell with data, and the default; with masks, the whole rankings."""
        labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
        decisions = [[labels[a] for a in row] if self.masked else labels[row[0]] for row in self.ranking]
        return {"cells": dict(zip(self.cells.tolist(), decisions[:-1], strict=True)), "default": decisions[-1]}

    def rules(self) -> str:
        """Return the policy as text: the cells of each action, and the default."""
        shown = self.to_dict()
        by_decision: dict[str, list[str]] = {}
        for cell, decision in shown["cells"].items():
            by_decision.setdefault(_as_text(decision), []).append(str(cell))
        lines = [f"in cells {_shortened(cells)}: {decision}" for decision, cells in by_decision.items()]
        return "\n".join([*lines, f"elsewhere: {_as_text(shown['default'])}"])


def _check_cell_of(value: Any, name: str) -> None:
    if not callable(value):
        raise InvalidInputError(f"{name} must be a function from states (n, d) to cell numbers (n,); got {value!r}.")


@renamed(index="cell_of")
@dataclass(frozen=True, eq=False)
class Partition(ImprovementSolver[PartitionPolicy]):
    r"""Policies on a given partition of the state space (the paper's Section 3).

    In each cell the policy with the least loss takes :math:`\arg\max_a \sum_i \hat Q(X_i, a)` over the
    states of the sample in that cell. That is not the majority of the greedy actions, which would ignore
    how much each state matters.

    Parameters
    ----------
    cell_of : callable
        States (n, d) -> integers (n,), the cell of each state.
    default : int
        Action in cells without data.

    Examples
    --------
    Cells of width one on the first feature; one state with a large gap outvotes two with small gaps:

    >>> space = Partition(lambda states: np.floor(states[:, 0]))
    >>> states, q_values = np.array([[0.1], [0.5], [0.9]]), np.array([[0.1, 0.0], [0.1, 0.0], [0.0, 9.0]])
    >>> space.improve(states, q_values).act(np.array([[0.3], [7.0]]))
    array([1, 0])
    """

    cell_of: Callable[[Floats], ArrayLike]
    default: int = 0

    _constraints: ClassVar[Constraints] = {"cell_of": _check_cell_of, "default": at_least(0)}

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> PartitionPolicy:
        """Return the policy with the least gap-weighted loss on the sample, cell by cell.

        With masks, a cell ranks its actions by their mean regret over the states that allow them, and each state
        takes the first one that it allows. The ranking is good but not always the best: finding the best one is hard.
        """
        check_actions(np.array([self.default]), problem.n_actions, "default")
        cells, cell = np.unique(cell_numbers(self.cell_of, problem.states), return_inverse=True)
        mask = problem.mask
        if mask is None:
            score = _sum_by_cell(problem.lost, cell, len(cells))
        else:
            counts = _sum_by_cell(problem.weighted(mask.astype(np.float64)), cell, len(cells))
            sums = _sum_by_cell(problem.weighted(np.where(mask, problem.regrets, 0.0)), cell, len(cells))
            score = np.where(counts > 0, sums / np.where(counts > 0, counts, 1.0), np.inf)
        default = np.argsort(np.arange(problem.n_actions) != self.default, kind="stable")
        ranking = np.vstack([np.argsort(score, axis=1, kind="stable"), default])
        return PartitionPolicy(self.cell_of, cells, ranking, problem.masked)


def cell_numbers(cell_of: Callable[[Floats], ArrayLike], states: Floats) -> Ints:
    """Return the cell of each state (n,), checked."""
    cell = as_integers(cell_of(states), "cell_of(states)")
    check_shape(cell, "cell_of(states)", (len(states),))
    return cell


def _sum_by_cell(values: Floats, cell: Ints, n_cells: int) -> Floats:
    """Return the column sums of each cell's rows: (n, A), (n,) -> (m, A)."""
    return np.stack([np.bincount(cell, weights=column, minlength=n_cells) for column in values.T], axis=1)


def _as_text(decision: Any) -> str:
    return ", else ".join(map(str, decision)) if isinstance(decision, list) else str(decision)


def _shortened(cells: list[str]) -> str:
    shown = ", ".join(cells[:MOST_CELLS])
    return shown + (f", ... ({len(cells)} in all)" if len(cells) > MOST_CELLS else "")
