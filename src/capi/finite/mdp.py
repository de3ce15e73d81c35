r"""Finite Markov decision processes with a known model.

States are 0 .. S-1, actions 0 .. A-1, P[a] is (S, S) with rows that sum to one, R is (S, A) and the
discount :math:`\gamma` lies in [0, 1). For a policy with probabilities :math:`\pi(a|x)`:

.. math::
    (T^\pi Q)(x,a) &= R(x,a) + \gamma \sum_y P(y|x,a) \sum_b \pi(b|y)\, Q(y,b)   && \text{(bellman)} \\
    (T^* Q)(x,a)   &= R(x,a) + \gamma \sum_y P(y|x,a) \max_b Q(y,b)              && \text{(bellman\_optimality)} \\
    V^\pi          &= (I - \gamma P^\pi)^{-1} r^\pi                               && \text{(values)} \\
    Q^\pi(x,a)     &= R(x,a) + \gamma \sum_y P(y|x,a)\, V^\pi(y)                  && \text{(action\_values)} \\
    \mathrm{Loss}(\pi;\rho) &= \sum_x \rho(x)\,\bigl(V^*(x) - V^\pi(x)\bigr)      && \text{(performance\_loss)}

All actions are stored in one matrix of S*A rows, row ``x * A + a``, dense or sparse, so that one matrix
product is one sweep over the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from capi._utils.renamed import renamed
from capi._utils.row_ops import chosen_entries, row_max, row_sum
from capi._utils.state_rows import StateRows, state_index
from capi._utils.validation import (
    ROW_SUM_TOLERANCE,
    Bools,
    Floats,
    Ints,
    as_array,
    as_discount,
    as_distribution,
    as_finite_step,
    as_floats,
    as_int,
    as_integers,
    as_names,
    as_positive,
    as_q_values,
    check_actions,
    check_shape,
)
from capi.errors import InvalidInputError
from capi.finite.linear_systems import relative_error, solve_discounted, solve_stationary
from capi.finite.transition_matrices import Matrix, drawn_columns, scaled_rows, stacked_transitions
from capi.loss import greedy
from capi.policies import Tabular, one_hot
from capi.types import Policy

MAX_IMPROVEMENTS = 10_000  # policy iteration never comes close to this


@dataclass(frozen=True, eq=False)
class TabularQ:
    """An action value for each of finitely many states: ``table`` (S, A).

    A state is its index or, with ``features``, its row of features.
    """

    table: Floats
    features: StateRows | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        table = as_q_values(self.table, name="table").copy()
        table.flags.writeable = False
        object.__setattr__(self, "table", table)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return self.table.shape[1]

    def values(self, states: Floats) -> Floats:
        """Return the rows of ``states`` (n, 1) or (n, d) -> (n, A)."""
        return self.table.take(state_index(states, len(self.table), self.features), axis=0)


class FiniteMDP:
    """A finite MDP with a known model; it is also a `Domain`.

    Every ``policy`` argument may be a Policy, an array of actions (S,) or an array of probabilities
    (S, A). Instances are immutable.

    Parameters
    ----------
    P : array of shape (A, S, S), or sequence of A sparse arrays (S, S)
        ``P[a][x, y]`` is the probability of going from x to y with action a.
    R : array of shape (S, A)
        Expected reward.
    discount : float in [0, 1)
    start : array of shape (S,), optional
        Distribution of the first state; uniform by default.
    action_labels : sequence of A labels, optional
    features : array of shape (S, d), optional
        What a policy sees of each state, all different. By default a state is one column with its index.
    feature_names : sequence of d names, optional

    Examples
    --------
    Two states, "stay" and "move", reward 1 in the second state:

    >>> mdp = FiniteMDP(P=[np.eye(2), 1 - np.eye(2)], R=[[0.0, 0.0], [1.0, 1.0]], discount=0.9)
    >>> mdp
    FiniteMDP: 2 states, 2 actions, discount 0.9, dense
    >>> mdp.values([0, 0])
    array([ 0., 10.])
    >>> mdp.optimal_policy.actions
    array([1, 0])
    """

    def __init__(
        self,
        P: ArrayLike | Sequence[Matrix],
        R: ArrayLike,
        discount: float,
        *,
        start: ArrayLike | None = None,
        action_labels: Sequence[Any] | None = None,
        features: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self._stacked, self.n_actions, self.n_states = stacked_transitions(P)  # (S*A, S)
        rewards = as_floats(R, "R", ndim=2)
        if rewards.shape != (self.n_states, self.n_actions):
            raise InvalidInputError(
                f"R must have shape (n_states, n_actions) = ({self.n_states}, {self.n_actions}); got {rewards.shape}."
            )
        self.rewards: Floats = rewards.copy()  # (S, A)
        self.rewards.flags.writeable = False
        self.discount = as_discount(discount)
        uniform = np.full(self.n_states, 1 / self.n_states)
        self.start: Floats = uniform if start is None else as_distribution(start, "start", self.n_states).copy()
        self.start.flags.writeable = False
        labels = tuple(range(self.n_actions)) if action_labels is None else action_labels
        self.action_labels = as_names(labels, "action_labels", self.n_actions)
        self.features = None if features is None else StateRows.of(features, self.n_states)
        d = self.states.shape[1]
        if feature_names is None:
            feature_names = ("state",) if features is None else tuple(f"x{j}" for j in range(d))
        self.feature_names = as_names(feature_names, "feature_names", d)

    def __repr__(self) -> str:
        kind = f"sparse ({self._stacked.nnz} transitions)" if self.is_sparse else "dense"
        return f"FiniteMDP: {self.n_states} states, {self.n_actions} actions, discount {self.discount:g}, {kind}"

    @property
    def is_sparse(self) -> bool:
        """Whether the transition matrices are sparse."""
        return bool(sp.issparse(self._stacked))

    @cached_property
    def states(self) -> Floats:
        """All states, as a column (S, 1), or their features (S, d)."""
        if self.features is not None:
            return self.features.features
        column = np.arange(self.n_states, dtype=np.float64)[:, None]
        column.flags.writeable = False
        return column

    # -- operators ---------------------------------------------------------------------------------

    @renamed(sweeps="n_sweeps")
    def bellman(self, policy: Policy | ArrayLike, q: ArrayLike, n_sweeps: int = 1) -> Floats:
        """Return (T^pi)^n_sweeps Q for ``q`` (S, A)."""
        pi = self.decision(policy)
        v = row_sum(pi, self._table(q))
        if as_int(n_sweeps, "n_sweeps", minimum=1) > 1:  # all sweeps but the last need only the policy's own actions
            matrix, rewards = self.discount * self.transition_matrix(pi), self.reward_vector(pi)
            for _ in range(n_sweeps - 1):
                v = rewards + matrix @ v
        return self.backed_up(v)

    def bellman_optimality(self, q: ArrayLike) -> Floats:
        """Return T* Q for ``q`` (S, A)."""
        return self.backed_up(row_max(self._table(q)))

    def backed_up(self, values: Floats) -> Floats:
        """Return R + discount * P V for unchecked ``values`` (S,): one sweep over the model (S, A)."""
        following = (self._stacked @ values).reshape(self.n_states, self.n_actions)
        following *= self.discount
        following += self.rewards
        return following

    def transition_matrix(self, policy: Policy | ArrayLike) -> Matrix:
        """Return P^pi (S, S), sparse if the model is."""
        pi = self.decision(policy)
        actions = pi.argmax(axis=1)
        if (chosen_entries(pi, actions) == 1).all():
            return self._stacked[np.arange(self.n_states) * self.n_actions + actions]
        parts = [scaled_rows(self._stacked[a :: self.n_actions], pi[:, a]) for a in range(self.n_actions)]
        return sum(parts[1:], start=parts[0])

    def reward_vector(self, policy: Policy | ArrayLike) -> Floats:
        """Return r^pi (S,)."""
        return row_sum(self.decision(policy), self.rewards)

    # -- values of a policy ------------------------------------------------------------------------

    def values(self, policy: Policy | ArrayLike) -> Floats:
        """Return V^pi (S,), solved exactly (to rounding; see `capi.finite.linear_systems`)."""
        pi = self.decision(policy)
        return solve_discounted(self.transition_matrix(pi), self.reward_vector(pi), self.discount)

    def action_values(self, policy: Policy | ArrayLike) -> Floats:
        """Return Q^pi (S, A), solved exactly."""
        return self.backed_up(self.values(policy))

    def values_by_sweeps(self, policy: Policy | ArrayLike, *, tolerance: float = 1e-8) -> tuple[Floats, int]:
        """Return V^pi within ``tolerance`` in every state, and the number of sweeps of T^pi from zero that it took."""
        tolerance = as_positive(tolerance, "tolerance")
        matrix, rewards = self.discount * self.transition_matrix(policy), self.reward_vector(policy)
        v, n_sweeps = np.zeros(self.n_states), 0
        while True:
            new = rewards + matrix @ v
            n_sweeps += 1
            if self.discount * np.abs(new - v).max() <= (1 - self.discount) * tolerance:
                return new, n_sweeps
            v = new

    def greedy(self, q: ArrayLike) -> Tabular:
        """Return the greedy policy of ``q`` (S, A), the lowest action in case of ties."""
        return Tabular(greedy(self._table(q)), self.n_actions, self.features)

    def improved(self, actions: Ints, q: Floats) -> Ints:
        """Return the greedy actions of ``q`` (S, A), or ``actions`` (S,) if no gain exceeds the error of `values`.

        Without this guard rounding errors could make policy iteration alternate between tied actions forever.
        """
        table = self._table(q)
        gain = row_max(table) - chosen_entries(table, self.decision(actions).argmax(axis=1))
        error = 2 * relative_error(self.n_states, self.discount) * np.abs(table).max()
        return greedy(table) if (gain > error).any() else actions

    @cached_property
    def optimal_policy(self) -> Tabular:
        """An optimal policy, found by policy iteration."""
        policy = self.greedy(self.rewards)
        for _ in range(MAX_IMPROVEMENTS):
            improved = self.improved(policy.actions, self.action_values(policy))
            if np.array_equal(improved, policy.actions):
                return policy
            policy = Tabular(improved, self.n_actions, self.features)
        raise InvalidInputError(f"policy iteration did not converge in {MAX_IMPROVEMENTS} improvements.")

    @cached_property
    def optimal_action_values(self) -> Floats:
        """Q* (S, A)."""
        q = self.action_values(self.optimal_policy)
        q.flags.writeable = False
        return q

    @cached_property
    def optimal_values(self) -> Floats:
        """V* (S,)."""
        v = self.values(self.optimal_policy)
        v.flags.writeable = False
        return v

    def performance_loss(self, policy: Policy | ArrayLike, start: ArrayLike | None = None) -> float:
        """Return the paper's Loss(pi; rho): the mean of V* - V^pi under ``start`` (S,), by default that of the MDP."""
        rho = self.start if start is None else as_distribution(start, "start", self.n_states)
        return max(float(rho @ (self.optimal_values - self.values(policy))), 0.0)

    # -- states that a policy visits ---------------------------------------------------------------

    def stationary_distribution(self, policy: Policy | ArrayLike) -> Floats:
        """Return the distribution mu with mu P^pi = mu (S,); a policy with several such distributions is refused."""
        matrix = sp.csr_array(self.transition_matrix(policy))
        n_classes, label = connected_components(matrix, directed=True, connection="strong")
        crossing = matrix.tocoo()
        leaves = np.zeros(n_classes, dtype=bool)
        out = (label[crossing.row] != label[crossing.col]) & (crossing.data > 0)
        leaves[label[crossing.row[out]]] = True
        closed = np.flatnonzero(~leaves)
        if len(closed) > 1:
            x, y = (int(np.flatnonzero(label == c)[0]) for c in closed[:2])
            raise InvalidInputError(
                f"the policy has {len(closed)} stationary distributions: states {x} and {y} never reach each other. "
                "Use discounted_occupancy with a start distribution."
            )
        recurrent = np.flatnonzero(label == closed[0])
        mu = np.zeros(self.n_states)
        mu[recurrent] = solve_stationary(matrix[recurrent][:, recurrent])
        return mu

    def discounted_occupancy(self, policy: Policy | ArrayLike, start: ArrayLike | None = None) -> Floats:
        """Return (1 - discount) * start (I - discount P^pi)^-1, the discounted share of time in each state (S,)."""
        rho = self.start if start is None else as_distribution(start, "start", self.n_states)
        backward = self.transition_matrix(policy).T
        occupancy = solve_discounted(backward, (1 - self.discount) * rho, self.discount, norm=1)
        return np.maximum(occupancy, 0.0)

    @cached_property
    def absorbing(self) -> Bools:
        """Whether each state is never left and earns nothing (S,)."""
        x = np.arange(self.n_states)
        stays = [sp.csr_array(self._stacked[a :: self.n_actions])[x, x] for a in range(self.n_actions)]
        always = np.isclose(np.array([np.asarray(part).ravel() for part in stays]), 1.0).all(axis=0)
        return always & (self.rewards == 0).all(axis=1)

    # -- the Domain --------------------------------------------------------------------------------

    def initial(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw ``n`` start states (n, 1) or (n, d)."""
        return self.states[rng.choice(self.n_states, size=as_int(n, "n", minimum=0), p=self.start)]

    def step(self, states: Floats, actions: Ints, rng: np.random.Generator) -> tuple[Floats, Floats, Bools]:
        """Draw next states (n, 1) or (n, d); rewards (n,) are the expected ones, and no step terminates."""
        index = state_index(states, self.n_states, self.features)
        x, a = as_finite_step(index[:, None], actions, self.n_states, self.n_actions)
        following = drawn_columns(*self._cumulative, x * self.n_actions + a, rng)
        return self.states[following], self.rewards[x, a], np.zeros(len(x), dtype=bool)

    # -- internals ---------------------------------------------------------------------------------

    def decision(self, policy: Policy | ArrayLike) -> Floats:
        """Return the action probabilities of ``policy`` in all states (S, A)."""
        if hasattr(policy, "probabilities"):
            pi = as_floats(policy.probabilities(self.states), "policy.probabilities(states)", ndim=2)
        elif as_array(policy, "policy").ndim == 1:
            actions = as_integers(policy, "policy")
            check_shape(actions, "policy", (self.n_states,))
            check_actions(actions, self.n_actions, "policy")
            return one_hot(actions, self.n_actions)
        else:
            pi = as_floats(policy, "policy", ndim=2)
        check_shape(pi, "policy", (self.n_states, self.n_actions))
        sums = row_sum(pi, np.ones_like(pi))
        bad = np.flatnonzero((row_max(-pi) > 0) | (np.abs(sums - 1) > ROW_SUM_TOLERANCE))
        if bad.size:
            raise InvalidInputError(
                f"policy must be a distribution over actions in each state; state {bad[0]} has {pi[bad[0]]}."
            )
        return pi

    def _table(self, q: ArrayLike) -> Floats:
        table = as_floats(q, "q", ndim=2)
        check_shape(table, "q", (self.n_states, self.n_actions))
        return table

    @cached_property
    def _cumulative(self) -> tuple[Floats, Ints, Ints]:
        """The running sum of all probabilities, where each row ends in it, and the columns."""
        matrix = sp.csr_array(self._stacked)
        return np.cumsum(matrix.data), matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
