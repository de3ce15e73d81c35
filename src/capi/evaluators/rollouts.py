r"""Action values by simulation: take an action, follow the policy, and sum the discounted rewards.

:math:`\hat Q(x, a) = \frac1M \sum_j \sum_{t<H} \gamma^t R_t^{(j)}`, from :math:`X_0 = x, A_0 = a`, then :math:`A_t \sim \pi`. Stopping after
H steps omits at most :math:`\gamma^H R_{\max} / (1 - \gamma)`; a critic adds its estimate of this remainder, :math:`\gamma^H \hat V(X_H)`.

The rollouts follow Lazaric, Ghavamzadeh and Munos (2010), the critic Gabillon et al. (2011), and the allocation of more
rollouts to states with an uncertain best action Dimitrakakis and Lagoudakis (2008).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from capi._utils.executors import ExecutorLike, check_executor, lost_workers_explained, ordered
from capi._utils.parameters import (
    Constraints,
    all_of,
    at_least,
    check_parameters,
    instance_of,
    one_of,
    strictly_between,
)
from capi._utils.randomness import numbered_rng, seed_sequence
from capi._utils.row_ops import row_sum
from capi._utils.validation import Floats, Ints, as_discount, as_q_values, as_share, as_states
from capi.data.schema import Schema
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError
from capi.evaluators._batches import portable
from capi.simulation.engine import Outcome, check_domain, masks_of, outcome, steps
from capi.types import Domain, Policy, PolicyEvaluator, QFunction

ROLLOUTS_AT_ONCE = 200_000  # so that a million states do not need gigabytes of memory
ROLLOUTS_PER_TASK = 2_000  # with an executor; part of the results, because each task has its own random numbers


@dataclass(frozen=True, eq=False)
class RolloutValues:
    """Q at the start states of rollouts, and the cost of the rollouts; at other states Q is unknown."""

    states: Floats = field(repr=False)  # (n, d)
    table: Floats = field(repr=False)  # (n, A) means
    spread: Floats = field(repr=False)  # (n, A) standard errors of the means; NaN where there was only one rollout
    counts: Ints = field(repr=False)  # (n,) rollouts per action
    n_transitions: int  # simulated for this Q, excluding the critic's batch
    critic: QFunction | None = field(default=None, repr=False)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.table.shape[1]

    def values(self, states: Floats) -> Floats:
        """Return Q(x, a) for all actions; ``states`` (n, d) -> (n, A) must be start states of the rollouts."""
        if states is self.states or np.array_equal(states, self.states):
            return self.table
        x = as_states(states, n_features=self.states.shape[1])
        rows = [self._row_of.get(state.tobytes(), -1) for state in x]
        if -1 in rows:
            raise InvalidInputError(
                f"states must be start states of the rollouts, where Q is known; {x[rows.index(-1)]} is not one. Improve the "
                "policy in a space that generalises from them (Trees, Forests, Thresholds, ...), not in Unrestricted."
            )
        return self.table[rows]

    @cached_property
    def _row_of(self) -> dict[bytes, int]:
        """Row number of each state, the first one for duplicates."""
        return {state.tobytes(): len(self.states) - 1 - i for i, state in enumerate(self.states[::-1])}


@dataclass(frozen=True, eq=False)
class _InDomain:
    """Properties that both evaluators take from their domain."""

    domain: Domain

    _constraints: ClassVar[Constraints] = {"domain": check_domain}

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.domain.n_actions

    @property
    def schema(self) -> Schema:
        """Feature names and action labels of the domain."""
        names = self.domain.feature_names
        return Schema.of(len(names), self.domain.n_actions, names, self.domain.action_labels)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; pools and clients stay here, and a pickle gives the same results in one process."""
        executor = self.__dict__["executor"]
        return self.__dict__ | {"executor": executor if executor is None or isinstance(executor, str) else "sequential"}

    def __copy__(self) -> _InDomain:
        """Return a copy that shares the executor."""
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> _InDomain:
        """Return a copy that shares the executor."""
        own = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        return type(self)(**{k: v if k == "executor" else deepcopy(v, memo) for k, v in own.items()})


@dataclass(frozen=True, eq=False)
class Rollouts(_InDomain):
    """Monte Carlo estimates of Q at the states on which the policy is improved: the evaluator of DPI.

    Parameters
    ----------
    domain : Domain
        A simulator that can start in any state. Each of its steps counts as one unit of time: the elapsed times of a batch are not
        used.
    n_rollouts : int
        Number of rollouts of each action from each state, M.
    horizon : int
        Number of steps in a rollout, H, including the first.
    allocation : "equal" or "gap"
        "gap" spends the same budget on states with an uncertain best action: after two rollouts of each action from every
        state, states whose gap exceeds its confidence bound get no more, and the rest of the budget goes to the others.
    delta : float in (0, 1)
        Probability that a confidence bound may fail, for "gap".
    inertia : float
        Bonus for the actions of the current policy, as a fraction of the range of returns, which breaks ties between actions
        that rollouts cannot distinguish. If a policy does not fail anywhere within the horizon, there are no gaps: without
        inertia any other policy could replace it.
    executor : concurrent.futures.Executor, dask.distributed.Client, name of a joblib backend, or None
        Where the simulations run. By default all run in this process and share one stream of random numbers. An executor runs them in
        tasks of at most 2,000 rollouts, each task with a stream of its own: results have the same bytes for any executor and any
        number of workers, but differ from those of None. "sequential" runs the tasks in this process. Other processes need a
        domain and a policy that can be pickled. The pickle of an evaluator with a pool or a client has "sequential" in its place; a
        copy in this process shares the pool or the client.

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
    executor: ExecutorLike = None

    _constraints: ClassVar[Constraints] = {
        **_InDomain._constraints,
        "n_rollouts": at_least(1),
        "horizon": at_least(1),
        "allocation": one_of("equal", "gap"),
        "delta": all_of(as_share, strictly_between(0, 1)),
        "inertia": as_share,
        "executor": check_executor,
    }

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.allocation == "gap" and self.n_rollouts < 2:
            raise InvalidInputError(
                'allocation="gap" requires n_rollouts of at least 2, because it starts with two rollouts everywhere; got '
                f"{self.n_rollouts}."
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
        """Return Q at ``states`` (n, d), estimated by rollouts of every action from each of them."""
        x, discount = _starts(self.domain, states), as_discount(discount)
        generator = np.random.default_rng(0) if rng is None else rng
        tally = _Tally(policy, self.domain, x, self.horizon, discount, generator, executor=self.executor)
        everywhere = np.arange(len(x))
        if self.allocation == "equal":
            tally.add(everywhere, self.n_rollouts)
        else:
            _spend(tally, self.n_rollouts * len(x), self.delta)
        return tally.result(self.inertia)


@dataclass(frozen=True, eq=False)
class RolloutsWithCritic(_InDomain):
    """Short rollouts plus a critic's estimate of the value after them: the evaluator of DPI-Critic.

    Parameters
    ----------
    domain : Domain
        As in `Rollouts`.
    critic : PolicyEvaluator
        Fitted to the batch before the rollouts start; its value at the last state, times discount^H, is added to each rollout.
        It uses the elapsed times of the batch, whose unit must then be one step of the simulator.
    n_rollouts, horizon : int
        As in `Rollouts`.
    inertia : float
        As in `Rollouts`.
    executor : concurrent.futures.Executor, dask.distributed.Client, name of a joblib backend, or None
        As in `Rollouts`. The critic learns and estimates in this process.

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
    executor: ExecutorLike = None

    _constraints: ClassVar[Constraints] = {
        **_InDomain._constraints,
        "critic": instance_of(PolicyEvaluator, "an evaluator, with the method evaluate"),
        "n_rollouts": at_least(1),
        "horizon": at_least(1),
        "inertia": as_share,
        "executor": check_executor,
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
        """Return Q at ``states`` (n, d), from rollouts and the values of a critic that learns from ``transitions``."""
        x, discount = _starts(self.domain, states), as_discount(discount)
        generator = np.random.default_rng(0) if rng is None else rng
        before = previous.critic if isinstance(previous, RolloutValues) else None
        critic = self.critic.evaluate(policy, transitions, discount=discount, previous=before, rng=generator)

        def rest(found: Outcome) -> Floats:
            rest, alive = np.zeros(len(found.lengths)), ~found.terminated  # terminal states have value 0
            if alive.any():
                last = found.last_states[alive]
                values = as_q_values(critic.values(last), n_rows=len(last), name="the critic's Q")
                values = row_sum(policy.probabilities(last, masks_of(self.domain, last)), values)
                rest[alive] = discount ** found.lengths[alive] * values
            return rest

        tally = _Tally(policy, self.domain, x, self.horizon, discount, generator, rest, self.executor)
        tally.add(np.arange(len(x)), self.n_rollouts)
        return tally.result(self.inertia, critic)


class _Block(NamedTuple):
    """Rollouts that run together: ``times`` of every allowed action from the states ``rows``."""

    rows: Ints
    times: int


class _Tally:
    """Sums of returns per state and action; `add` runs more rollouts of every action from some of the states."""

    def __init__(
        self,
        policy: Policy,
        domain: Domain,
        states: Floats,
        horizon: int,
        discount: float,
        rng: np.random.Generator,
        rest: Callable[[Outcome], Floats] | None = None,
        executor: ExecutorLike = None,
    ) -> None:
        self.domain, self.policy, self.states, self.horizon = domain, policy, states, horizon
        self.discount, self.rng, self.rest, self.executor = discount, rng, rest, executor
        self.seeds = None if executor is None else seed_sequence(rng)
        self.sent = policy if executor is None else portable(policy)
        self.n_tasks = 0
        shape = (len(states), domain.n_actions)
        self.masks = masks_of(domain, states)
        self.allowed = np.ones(shape, dtype=bool) if self.masks is None else self.masks  # first actions of rollouts
        self.sums, self.squares, self.counts = np.zeros(shape), np.zeros(shape), np.zeros(len(states), dtype=np.int64)
        self.low, self.high, self.n_transitions = np.inf, -np.inf, 0
        self.first = np.full(len(states), np.nan)  # subtracted before squaring, so large means do not hide the spread

    def add(self, rows: Ints, times: int = 1) -> None:
        """Run ``times`` rollouts of every action from the states ``rows``, in blocks of limited size."""
        blocks = list(self._blocks(rows, times))
        with lost_workers_explained(self.executor, domain=self.domain, policy=self.sent):
            for block, found in zip(blocks, ordered(_simulated, self._tasks(blocks), self.executor), strict=True):
                self._count(block, found)

    def _blocks(self, rows: Ints, times: int) -> Iterator[_Block]:
        A, most = self.domain.n_actions, ROLLOUTS_AT_ONCE if self.executor is None else ROLLOUTS_PER_TASK
        n_states = max(1, most // A)
        for first in range(0, len(rows), n_states):
            some = rows[first : first + n_states]
            at_once, left = max(1, most // (len(some) * A)), times
            while left > 0:
                yield _Block(some, min(left, at_once))
                left -= at_once

    def _first_pairs(self, block: _Block) -> tuple[Ints, Ints]:
        """Return the position in ``rows`` of each rollout's start (m,), and its first action (m,); too large to keep for all blocks."""
        which, actions = (np.repeat(index, block.times) for index in np.nonzero(self.allowed[block.rows]))
        return which, actions

    def _tasks(self, blocks: list[_Block]) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of `_simulated` for each block; with an executor each has its own random numbers."""
        for block in blocks:
            rng = self.rng if self.seeds is None else numbered_rng(self.seeds, self.n_tasks)
            self.n_tasks += 1
            which, actions = self._first_pairs(block)
            yield self.sent, self.domain, self.states[block.rows[which]], actions, self.horizon, self.discount, rng

    def _count(self, block: _Block, found: Outcome) -> None:
        (rows, times), (which, actions) = block, self._first_pairs(block)
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
        """Return Q so far, with a tiny bonus for the actions of the policy."""
        n = self.counts[:, None]
        shifted = self.means - self.first[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.maximum(self.squares / n - np.square(shifted), 0.0) * n / (n - 1)
            spread = np.where(n > 1, np.sqrt(variance / n), np.nan)
        bonus = inertia * (self.high - self.low or max(abs(self.high), 1.0))
        table = self.means
        if bonus:
            table = table + bonus * self.policy.probabilities(self.states, self.masks)
        worst = np.where(self.allowed, table, np.inf).min(axis=1, keepdims=True)
        table = np.where(self.allowed, table, worst)  # placeholder for forbidden actions, whose values are never used
        return RolloutValues(self.states, table, spread, self.counts, self.n_transitions, critic)


def _simulated(
    policy: Policy,
    domain: Domain,
    starts: Floats,
    first_actions: Ints,
    horizon: int,
    discount: float,
    rng: np.random.Generator,
) -> Outcome:
    """Return the outcome of one rollout from each of ``starts`` (m, d), wherever it runs."""
    return outcome(steps(policy, domain, starts, horizon, rng, first_actions=first_actions), starts, discount)


def _spend(tally: _Tally, budget: int, delta: float) -> None:
    """Run ``budget`` rollouts of every action: two per state, the rest in states with an uncertain best action."""
    n, A = tally.sums.shape
    everywhere = np.arange(n)
    tally.add(everywhere, 2)
    while (left := budget - int(tally.counts.sum())) > 0:
        best = np.sort(np.where(tally.allowed, tally.means, -np.inf), axis=1)
        gap = best[:, -1] - best[:, -2] if A > 1 else np.full(n, np.inf)  # infinite where one action is allowed
        bound = (tally.high - tally.low) * np.sqrt(2 / tally.counts * np.log(max(A - 1, 1) / delta))
        doubtful = np.flatnonzero(gap <= bound)
        if not len(doubtful):
            return  # the rest of the budget is not needed
        utility = gap[doubtful] + np.sqrt(np.log(tally.counts.sum()) / (1 + tally.counts[doubtful]))
        chosen = np.sort(doubtful[np.argsort(-utility, kind="stable")[:left]])
        # At most double the counts per call; one rollout per call would be slow for few states.
        tally.add(chosen, max(1, min(left // len(chosen), int(tally.counts[chosen].min()))))


def _starts(domain: Domain, states: Floats | None) -> Floats:
    if states is None:
        raise InvalidInputError("states must be given, because rollouts start from them. Pass states to fit.")
    return as_states(states, n_features=len(domain.feature_names), allow_nan=False)
