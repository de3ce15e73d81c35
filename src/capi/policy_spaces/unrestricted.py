"""The space of all policies, with which CAPI is ordinary policy iteration."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from capi._utils.validation import Floats
from capi.errors import InvalidInputError
from capi.policies import Greedy
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.policy_spaces.imitation import ReadByImitation
from capi.types import Policy, QFunction


@dataclass(frozen=True, eq=False)
class GreedyPolicy(ReadByImitation, Greedy):
    """The greedy policy of Q, and the states of the sample."""

    sample: Floats | None = field(default=None, repr=False)  # (n, d)

    def summary(self) -> str:
        """Return one sentence that describes the policy."""
        return f"The action with the largest value of Q, everywhere ({type(self.q).__name__})."

    def learning_states(self) -> Floats | None:
        """Return the states of the sample (n, d)."""
        return self.sample


@dataclass(frozen=True)
class Unrestricted(ImprovementSolver[GreedyPolicy]):
    """The space of all policies; its best member is the greedy policy of Q.

    Examples
    --------
    >>> from capi.finite.mdp import TabularQ
    >>> q = TabularQ(np.array([[0.0, 1.0], [2.0, 1.0]]))
    >>> Unrestricted().improve(np.array([[0.0]]), q.table[:1], q=q).act(np.array([[0.0], [1.0]]))
    array([1, 0])
    """

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,
        previous: Policy | None = None,  # noqa: ARG002  the sample decides alone
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> GreedyPolicy:
        """Return the greedy policy of ``q``; without the Q-function the policy is undefined outside the sample."""
        if q is None:
            raise InvalidInputError(
                "Unrestricted needs q, the Q-function that q_values come from: a table of values does not extend to other states. "
                "Pass q=..., or choose a space that generalises."
            )
        return GreedyPolicy(q, masked=problem.masked, sample=problem.states)
