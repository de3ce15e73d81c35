"""What was done, with better actions made more frequent: policies near the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from capi._utils.parameters import Constraints, check_parameters, instance_of, optional, strictly_between
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_states
from capi.errors import InvalidInputError
from capi.policies import Described, check_masks_given, in_blocks
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.types import Policy, QFunction


@dataclass(frozen=True, eq=False)
class ReweightedPolicy(Described):
    """A policy that draws actions with probabilities proportional to b(a|x) exp(Q(x, a) / temperature)."""

    q: QFunction
    behaviour: Policy = field(repr=False)
    temperature: float  # in units of Q
    masked: bool = False
    excluded: tuple[int, ...] = ()  # actions that the log takes too rarely

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.q.n_actions

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the most probable action, the lowest among equals (n,)."""
        return self.probabilities(states, allowed).argmax(axis=1)

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the distribution of the decision (n, A)."""
        x = as_states(states)
        mask = as_allowed(allowed, "allowed", (len(x), self.n_actions))
        check_masks_given(self.masked, mask)
        done = self.behaviour.probabilities(x, mask)
        if self.excluded:
            done = without(done, self.excluded, mask)
        values = np.where(done > 0, self.q.values(x), -np.inf)
        weights = done * np.exp((values - values.max(axis=1, keepdims=True)) / self.temperature)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def rules(self) -> str:
        """Return a sentence on what the policy does."""
        return (
            "What was done in similar states, with better actions more often: an action that is worth "
            f"{self.temperature:.3g} more is drawn {np.e:.2f} times as often as it was."
        )


@dataclass(frozen=True)
class Reweighted(ImprovementSolver[ReweightedPolicy]):
    r"""Policies near the log: the one with the largest mean of Q minus ``temperature`` times its divergence from what was done.

    It draws action a with probability proportional to :math:`b(a|x) \exp(Q(x, a) / \tau)`, where b is what was done (Peters, Mülling and
    Altün 2010; Peng, Kumar, Zhang and Levine 2019). It never takes an action that the log does not take, it changes little where Q does not
    tell actions apart, and its Q is estimated from rows that it visits itself. So it is dependable where greedy policies are not; it is not
    a rule that can be read.

    Parameters
    ----------
    behaviour : Policy, optional
        What was done. By default `CAPI` clones it from its batch (`capi.policies.cloned`).
    temperature : float
        :math:`\tau`, in standard deviations of the advantage of the logged actions. Larger is nearer to the log.

    Examples
    --------
    >>> from capi.finite.mdp import TabularQ
    >>> from capi.policies import Uniform
    >>> q = TabularQ(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> policy = Reweighted(Uniform(2), temperature=1.0).improve(np.array([[0.0], [1.0]]), q.table, q=q)
    >>> policy.probabilities(np.array([[0.0]])).round(2)
    array([[0.12, 0.88]])
    """

    behaviour: Policy | None = None
    temperature: float = 2.0

    _constraints: ClassVar[Constraints] = {
        "behaviour": optional(instance_of(Policy, "a Policy (act, probabilities, n_actions)")),
        "temperature": strictly_between(0.0, np.inf),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,
        previous: Policy | None = None,  # noqa: ARG002  what was done counts, not what came before
        rng: np.random.Generator | None = None,  # noqa: ARG002
    ) -> ReweightedPolicy:
        """Return the reweighted policy of ``q``; without the Q-function the policy is undefined outside the sample."""
        if q is None:
            raise InvalidInputError(
                "Reweighted needs q, the Q-function that q_values come from: a table of values does not extend to other states. Pass q=..., or "
                "choose a space that generalises."
            )
        if self.behaviour is None:
            raise InvalidInputError(
                "Reweighted needs behaviour, what was done: pass capi.policies.cloned(batch), or use it in CAPI with a fixed batch."
            )
        excluded = tuple(int(a) for a in getattr(q, "excluded", ()))
        known = q.of_others() if hasattr(q, "of_others") else q
        done = self.behaviour.probabilities(problem.states, problem.mask)
        done = without(done, excluded, problem.mask) if excluded else done
        values = np.where(done > 0, problem.values, 0.0)
        advantages = values - (done * values).sum(axis=1, keepdims=True)
        spread = float(np.sqrt(problem.mean((done * np.square(advantages)).sum(axis=1))))
        scale = self.temperature * (spread if spread > 0 else 1.0)
        return ReweightedPolicy(known, self.behaviour, scale, problem.masked, excluded)


def without(probabilities: Floats, excluded: tuple[int, ...], mask: Bools | None) -> Floats:
    """Return distributions without some actions: even ones over the other (allowed) actions where nothing else is left."""
    kept = probabilities.copy()
    kept[:, excluded] = 0.0
    sums = kept.sum(axis=1, keepdims=True)
    others = np.ones_like(kept) if mask is None else mask.astype(np.float64)
    others[:, excluded] = 0.0
    others = np.where(others.any(axis=1, keepdims=True), others, 1.0 if mask is None else mask)
    even = others / others.sum(axis=1, keepdims=True)
    return np.where(sums > 0, kept / np.where(sums > 0, sums, 1.0), even)
