r"""Action values by simulation: play an action, then the policy, and add up what it earns.

:math:`\hat Q(x, a) = \frac1M \sum_j \sum_{t<H} \gamma^t R_t^{(j)}`, from :math:`X_0 = x, A_0 = a`, then :math:`A_t \sim \pi`. Cutting after
H steps leaves out at most :math:`\gamma^H R_{\max} / (1 - \gamma)`; a critic adds its own estimate of that rest, :math:`\gamma^H \hat V(X_H)`.

Lazaric, Ghavamzadeh and Munos (2010) for the rollouts, Gabillon et al. (2011) for the critic, Dimitrakakis and Lagoudakis
(2008) for spending more of them where the best action is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from capi._utils.parameters import (
    Constraints,
    all_of,
    at_least,
    check_parameters,
    instance_of,
    one_of,
    strictly_between,
)
from capi._utils.row_ops import row_sum
from capi._utils.validation import Floats, Ints, as_discount, as_q_values, as_share, as_states
from capi.data.schema import Schema
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.simulation.engine import Outcome, check_domain, masks_of, outcome, steps
from capi.types import Domain, Policy, PolicyEvaluator, QFunction

ROLLOUTS_AT_ONCE = 200_000  # so that a million states need no gigabytes


@dataclass(frozen=True, eq=False)
class RolloutValues:
    """Q at the states from which rollouts started, and what they cost; elsewhere it is unknown."""

    states: Floats = field(repr=False)  # (n, d)
    table: Floats = field(repr=False)  # (n, A) means
    spread: Floats = field(repr=False)  # (n, A) standard errors of the means; NaN where there was one rollout
    counts: Ints = field(repr=False)  # (n,) rollouts of each action
    n_transitions: int  # simulated for this Q, those of the critic's batch not included
    critic: QFunction | None = field(default=None, repr=False)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.table.shape[1]

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A) must be among those that rollouts started from."""
        if states is self.states or np.array_equal(states, self.states):
            return self.table
        x = as_states(states, n_features=self.states.shape[1])
        rows = [self._row_of.get(state.tobytes(), -1) for state in x]
        if -1 in rows:
            raise InvalidInputError(
                f"rollouts know Q only at the states that they started from, which {x[rows.index(-1)]} is not. Improve the policy "
                "in a space that generalises from them (Trees, Forests, Thresholds, ...), not in Unrestricted."
            )
        return self.table[rows]

    @cached_property
    def _row_of(self) -> dict[bytes, int]:
        """The row of each state, the first of equal ones."""
        return {state.tobytes(): len(self.states) - 1 - i for i, state in enumerate(self.states[::-1])}


@dataclass(frozen=True, eq=False)
class _InDomain:
    """What both evaluators know from their domain."""

    domain: Domain

    _constraints: ClassVar[Constraints] = {"domain": check_domain}

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.domain.n_actions

    @property
    def schema(self) -> Schema:
        """The domain's words."""
        names = self.domain.feature_names
        return Schema.of(len(names), self.domain.n_actions, names, self.domain.action_labels)


@dataclass(frozen=True, eq=False)
class Rollouts(_InDomain):
    """Monte Carlo estimates of Q at the states where improvement asks: the evaluator of DPI.

    Parameters
    ----------
    domain : Domain
        A simulator that can start in any state.
    n_rollouts : int
        Rollouts of each action from each state, M.
    horizon : int
        Steps of a rollout, H, the first one included.
    allocation : "equal" or "gap"
        "gap" spends the same budget where the best action is in doubt: after two rollouts of each action everywhere,
        states whose gap is larger than its confidence bound get no more, and the rest goes to the others.
    delta : float in (0, 1)
        Probability with which a bound may fail, for "gap".
    inertia : float
        Where rollouts cannot tell actions apart, those of the current policy count as better by this share of the range of
        returns. A policy that fails nowhere within the horizon has no gaps at all: without inertia any other would
        replace it.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.policies import Constant
    >>> states = np.array([[0.0], [100.0]])
    >>> q = Rollouts(ChainWalk(success=1.0), horizon=30).evaluate(Constant(1, 2), None, discount=0.9, states=states)
    >>> q.values(states).round(2).tolist()
    [[1.63, 1.82], [0.0, 0.0]]
    >>> q.n_transitions
    120
    """

    n_rollouts: int = 1
    horizon: int = 50
    allocation: str = "equal"
    delta: float = 0.1
    inertia: float = 1e-9

    _constraints: ClassVar[Constraints] = {
        **_InDomain._constraints,
        "n_rollouts": at_least(1),
        "horizon": at_least(1),
        "allocation": one_of("equal", "gap"),
        "delta": all_of(as_share, strictly_between(0, 1)),
        "inertia": as_share,
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.allocation == "gap" and self.n_rollouts < 2:
            raise InvalidInputError(
                'allocation="gap" needs n_rollouts of at least 2: it spends the rest where it helps.'
            )

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None = None,  # noqa: ARG002  the domain is the model
        *,
        discount: float,
        states: Floats | None = None,
        previous: QFunction | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,
    ) -> RolloutValues:
        """Return Q at ``states`` (n, d) by rollouts of every action from each of them."""
        x, discount = _starts(self.domain, states), as_discount(discount)
        generator = np.random.default_rng(0) if rng is None else rng
        tally = _Tally(policy, self.domain, x, self.horizon, discount, generator)
        everywhere = np.arange(len(x))
        if self.allocation == "equal":
            tally.add(everywhere, self.n_rollouts)
        else:
            _spend(tally, self.n_rollouts * len(x), self.delta)
        return tally.result(self.inertia)


@dataclass(frozen=True, eq=False)
class RolloutsWithCritic(_InDomain):
    """Short rollouts, and a critic's estimate of what comes after them: the evaluator of DPI-Critic.

    Parameters
    ----------
    domain : Domain
    critic : PolicyEvaluator
        Fitted to the batch before the rollouts start; its value at the last state, times discount^H, ends each rollout.
    n_rollouts, horizon : int
    inertia : float
        As in `Rollouts`.

    Examples
    --------
    >>> from capi.domains import ChainWalk
    >>> from capi.evaluators import Exact
    >>> from capi.policies import Constant
    >>> chain, states = ChainWalk(success=1.0), np.array([[0.0], [100.0]])
    >>> evaluator = RolloutsWithCritic(chain, Exact(chain.mdp), horizon=1)
    >>> q = evaluator.evaluate(Constant(1, 2), None, discount=0.99, states=states)
    >>> bool(np.allclose(q.values(states), chain.mdp.action_values(Constant(1, 2))[[0, 100]]))
    True
    """

    critic: PolicyEvaluator
    n_rollouts: int = 1
    horizon: int = 10
    inertia: float = 1e-9

    _constraints: ClassVar[Constraints] = {
        **_InDomain._constraints,
        "critic": instance_of(PolicyEvaluator, "an evaluator, with the method evaluate"),
        "n_rollouts": at_least(1),
        "horizon": at_least(1),
        "inertia": as_share,
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def evaluate(
        self,
        policy: Policy,
        transitions: Transitions | None = None,
        *,
        discount: float,
        states: Floats | None = None,
        previous: QFunction | None = None,
        rng: np.random.Generator | None = None,
    ) -> RolloutValues:
        """Return Q at ``states`` (n, d) by rollouts that end in the value of a critic, which learns from ``transitions``."""
        x, discount = _starts(self.domain, states), as_discount(discount)
        generator = np.random.default_rng(0) if rng is None else rng
        before = previous.critic if isinstance(previous, RolloutValues) else None
        critic = self.critic.evaluate(policy, transitions, discount=discount, previous=before, rng=generator)

        def rest(found: Outcome) -> Floats:
            rest, goes_on = np.zeros(len(found.lengths)), ~found.terminated  # nobody is asked about an end
            if goes_on.any():
                last = found.last_states[goes_on]
                values = as_q_values(critic.values(last), n_rows=len(last), name="the critic's Q")
                values = row_sum(policy.probabilities(last, masks_of(self.domain, last)), values)
                rest[goes_on] = discount ** found.lengths[goes_on] * values
            return rest

        tally = _Tally(policy, self.domain, x, self.horizon, discount, generator, rest)
        tally.add(np.arange(len(x)), self.n_rollouts)
        return tally.result(self.inertia, critic)


class _Tally:
    """Sums of returns by state and action; `add` runs more rollouts of every action from some of the states."""

    def __init__(
        self,
        policy: Policy,
        domain: Domain,
        states: Floats,
        horizon: int,
        discount: float,
        rng: np.random.Generator,
        rest: Callable[[Outcome], Floats] | None = None,
    ) -> None:
        self.domain, self.policy, self.states, self.horizon = domain, policy, states, horizon
        self.discount, self.rng, self.rest = discount, rng, rest
        shape = (len(states), domain.n_actions)
        self.masks = masks_of(domain, states)
        self.allowed = np.ones(shape, dtype=bool) if self.masks is None else self.masks  # with which rollouts start
        self.sums, self.squares, self.counts = np.zeros(shape), np.zeros(shape), np.zeros(len(states), dtype=np.int64)
        self.low, self.high, self.n_transitions = np.inf, -np.inf, 0
        self.first = np.full(len(states), np.nan)  # shifts the squares, so that large means do not hide the spread

    def add(self, rows: Ints, times: int = 1) -> None:
        """Run ``times`` rollouts of every action from the states ``rows``, not too many at once."""
        A = self.domain.n_actions
        for first in range(0, len(rows), ROLLOUTS_AT_ONCE // A):
            some = rows[first : first + ROLLOUTS_AT_ONCE // A]
            at_once, left = max(1, ROLLOUTS_AT_ONCE // (len(some) * A)), times
            while left > 0:
                self._add(some, min(left, at_once))
                left -= at_once

    def _add(self, rows: Ints, times: int) -> None:
        which, actions = (np.repeat(index, times) for index in np.nonzero(self.allowed[rows]))
        starts = self.states[rows][which]
        running = steps(self.policy, self.domain, starts, self.horizon, self.rng, first_actions=actions)
        found = outcome(running, starts, self.discount)
        returns = found.discounted if self.rest is None else found.discounted + self.rest(found)
        table = np.zeros((len(rows), self.domain.n_actions, times))
        table[which, actions, np.arange(len(which)) % times] = returns
        new = np.isnan(self.first[rows])
        self.first[rows[new]] = table[new, self.allowed[rows[new]].argmax(axis=1), 0]
        self.sums[rows] += table.sum(axis=2)
        self.squares[rows] += np.square(table - self.first[rows, None, None]).sum(axis=2)
        self.counts[rows] += times
        self.n_transitions += int(found.lengths.sum())
        self.low, self.high = min(self.low, float(returns.min())), max(self.high, float(returns.max()))

    @property
    def means(self) -> Floats:
        """Mean returns (n, A)."""
        return self.sums / self.counts[:, None]

    def result(self, inertia: float, critic: QFunction | None = None) -> RolloutValues:
        """Return Q as it stands, a hair better where the policy decides so."""
        n = self.counts[:, None]
        shifted = self.means - self.first[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.maximum(self.squares / n - np.square(shifted), 0.0) * n / (n - 1)
            spread = np.where(n > 1, np.sqrt(variance / n), np.nan)
        hair = inertia * (self.high - self.low or max(abs(self.high), 1.0))
        table = self.means
        if hair:
            table = table + hair * self.policy.probabilities(self.states, self.masks)
        worst = np.where(self.allowed, table, np.inf).min(axis=1, keepdims=True)
        table = np.where(self.allowed, table, worst)  # nothing is known of the others, and nobody will ask
        return RolloutValues(self.states, table, spread, self.counts, self.n_transitions, critic)


def _spend(tally: _Tally, budget: int, delta: float) -> None:
    """Spend ``budget`` rollouts of every action: two everywhere, then the rest where the best action is in doubt."""
    n, A = tally.sums.shape
    everywhere = np.arange(n)
    tally.add(everywhere, 2)
    while (left := budget - int(tally.counts.sum())) > 0:
        best = np.sort(np.where(tally.allowed, tally.means, -np.inf), axis=1)
        gap = best[:, -1] - best[:, -2] if A > 1 else np.full(n, np.inf)  # infinite where one action is allowed
        bound = (tally.high - tally.low) * np.sqrt(2 / tally.counts * np.log(max(A - 1, 1) / delta))
        doubtful = np.flatnonzero(gap <= bound)
        if not len(doubtful):
            return  # what is left of the budget is not needed
        utility = gap[doubtful] + np.sqrt(np.log(tally.counts.sum()) / (1 + tally.counts[doubtful]))
        chosen = np.sort(doubtful[np.argsort(-utility, kind="stable")[:left]])
        # As many at once as are there already, at most: few states would else take one call a rollout.
        tally.add(chosen, max(1, min(left // len(chosen), int(tally.counts[chosen].min()))))


def _starts(domain: Domain, states: Floats | None) -> Floats:
    if states is None:
        raise InvalidInputError("states must be given: rollouts start from them. Pass states to fit.")
    return as_states(states, n_features=len(domain.feature_names), allow_nan=False)
