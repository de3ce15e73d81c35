"""The best tree of a given depth for a finite MDP, as a mixed-integer linear program that HiGHS solves.

A policy is its discounted occupancy: with y[s, l, a] >= 0 the share of (discounted) time that the process spends in state s,
which is in leaf l, and takes action a,

    sum_{l, a} y[s, l, a] = (1 - discount) start[s] + discount sum_{s', l, a} P(s | s', a) y[s', l, a]      for each s,

and the value of the policy is sum y[s, l, a] R[s, a] / (1 - discount). The tree is three kinds of variables: cut[t, c], whether
node t has cut c; in[s, l], whether state s is in leaf l; and act[l, a], whether leaf l takes action a:

    sum_c cut[t, c] = 1,   sum_l in[s, l] = 1,   sum_a act[l, a] = 1,
    sum of in[s, l] over the leaves below the left side of t <= sum of cut[t, c] over the cuts with s on the left, the right side alike,
    sum_a y[s, l, a] <= M[s] in[s, l],   y[s, l, a] <= M[s] act[l, a].

Only cut and act are integers; in is then an integer by itself. M[s] is a bound on the occupancy of s under any policy, at most 1.
States that are never left and earn nothing are left out: what is done there does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from capi._utils.validation import Bools, Floats, Ints
from capi.finite.mdp import FiniteMDP

GAP = 1e-6  # relative, at which HiGHS stops
SWEEPS, CLOSE = 500, 1e-3  # of the bounds on occupancies


@dataclass(frozen=True)
class Solution:
    """The tree that the solver has found, as actions of all states, and what it has proved."""

    actions: Ints | None  # (S,); None if it has found none
    bound: float  # no tree of the depth is worth more
    proved: bool  # whether the solver has closed the gap between bound and tree
    seconds: float  # of the processor, all of it


@dataclass(frozen=True)
class Cuts:
    """The distinct ways to divide some states by one feature, and the states on the left side of each."""

    left: Bools  # (cuts, states)

    @classmethod
    def of(cls, states: Floats) -> Cuts:
        """Return all cuts of ``states`` (n, d) between two values, and the one with all states on the left."""
        found = {np.ones(len(states), dtype=bool).tobytes(): np.ones(len(states), dtype=bool)}
        for column in states.T:
            for value in np.unique(column)[:-1]:
                left = column <= value
                found.setdefault(left.tobytes(), left)
        return cls(np.array(list(found.values())))


def best_tree(mdp: FiniteMDP, max_depth: int, *, time_limit: float) -> Solution:
    """Return the best tree of a depth for an MDP with features.

    Parameters
    ----------
    mdp : FiniteMDP
    max_depth : int, at least 1
    time_limit : float
        Seconds of wall time, of the solver alone.
    """
    started = process_time()
    program = _Program(mdp, max_depth)
    found = milp(
        -program.rewards,
        integrality=program.integer,
        bounds=Bounds(0.0, program.largest),
        constraints=LinearConstraint(program.matrix, program.low, program.high),
        options={"time_limit": time_limit, "mip_rel_gap": GAP},
    )
    bound = np.inf if found.mip_dual_bound is None else -float(found.mip_dual_bound)
    actions = None if found.x is None else program.actions_of(found.x)
    best = float(mdp.start @ mdp.optimal_values)
    return Solution(actions, min(bound, best), bool(found.status == 0), process_time() - started)


class _Program:
    """Columns and rows of the program."""

    def __init__(self, mdp: FiniteMDP, depth: int) -> None:
        self.mdp, self.depth = mdp, depth
        self.kept = np.flatnonzero(~mdp.absorbing)
        self.cuts = Cuts.of(mdp.states[self.kept])
        self.n_nodes, self.n_leaves = 2**depth - 1, 2**depth
        n, n_cuts = len(self.kept), len(self.cuts.left)
        self.shape = (n, self.n_leaves, mdp.n_actions)
        sizes = [
            n * self.n_leaves * mdp.n_actions,
            self.n_nodes * n_cuts,
            n * self.n_leaves,
            self.n_leaves * mdp.n_actions,
        ]
        self.first = np.concatenate([[0], np.cumsum(sizes)])
        self.most = occupancy_bounds(mdp)[self.kept]
        n_columns = int(self.first[-1])
        self.integer = np.zeros(n_columns)
        self.integer[self.first[1] : self.first[2]] = 1
        self.integer[self.first[3] :] = 1
        self.largest = np.ones(n_columns)
        self.largest[: self.first[1]] = np.repeat(self.most, self.n_leaves * mdp.n_actions)
        self.rewards = np.zeros(n_columns)
        per_leaf = np.broadcast_to(mdp.rewards[self.kept][:, None, :], self.shape)
        self.rewards[: self.first[1]] = per_leaf.ravel() / (1 - mdp.discount)
        rows = [self._flow(), self._choices(), self._sides(), self._decisions()]
        self.matrix = sp.vstack([matrix for matrix, _, _ in rows], format="csr")
        self.low = np.concatenate([low for _, low, _ in rows])
        self.high = np.concatenate([high for _, _, high in rows])

    def _y(self) -> Ints:
        return np.arange(self.first[1]).reshape(self.shape)

    def _cut(self) -> Ints:
        return np.arange(self.first[1], self.first[2]).reshape(self.n_nodes, -1)

    def _in(self) -> Ints:
        return np.arange(self.first[2], self.first[3]).reshape(self.shape[0], self.n_leaves)

    def _act(self) -> Ints:
        return np.arange(self.first[3], self.first[4]).reshape(self.n_leaves, -1)

    def _matrix(self, rows: Ints, columns: Ints, values: Floats | float, n_rows: int) -> sp.csr_array:
        rows, columns = np.broadcast_arrays(rows, columns)
        values = np.broadcast_to(values, rows.shape)
        return sp.csr_array((values.ravel(), (rows.ravel(), columns.ravel())), shape=(n_rows, int(self.first[-1])))

    def _flow(self) -> tuple[sp.csr_array, Floats, Floats]:
        """Return the rows of the flow: what leaves a state is what starts there and what arrives."""
        mdp, n = self.mdp, len(self.kept)
        rows, columns, values = [], [], []
        for a in range(mdp.n_actions):
            moves = sp.csr_array(mdp.transition_matrix(np.full(mdp.n_states, a)))[self.kept][:, self.kept]
            net = sp.coo_array(sp.eye_array(n) - mdp.discount * moves.T)
            rows.append(np.repeat(net.row, self.n_leaves))
            columns.append(self._y()[net.col, :, a].ravel())
            values.append(np.repeat(net.data, self.n_leaves))
        matrix = self._matrix(np.concatenate(rows), np.concatenate(columns), np.concatenate(values), n)
        start = (1 - mdp.discount) * mdp.start[self.kept]
        return matrix, start, start

    def _choices(self) -> tuple[sp.csr_array, Floats, Floats]:
        """Return the rows for one cut per node, one leaf per state, one action per leaf."""
        parts = [
            self._matrix(np.arange(len(columns))[:, None], columns, 1.0, len(columns))
            for columns in (self._cut(), self._in(), self._act())
        ]
        matrix = sp.vstack(parts, format="csr")
        return matrix, np.ones(matrix.shape[0]), np.ones(matrix.shape[0])

    def _sides(self) -> tuple[sp.csr_array, Floats, Floats]:
        """Return the rows that put a state below a side of a node only if the node's cut does."""
        n, parts = len(self.kept), []
        rows = np.arange(n)[:, None]
        for node in range(self.n_nodes):
            leaves = leaves_below(node, self.depth)
            half = len(leaves) // 2
            for below, goes in ((leaves[:half], self.cuts.left), (leaves[half:], ~self.cuts.left)):
                c, s = np.nonzero(goes)
                inside = self._matrix(rows, self._in()[:, below], 1.0, n)
                parts.append(inside - self._matrix(s, self._cut()[node, c], 1.0, n))
        matrix = sp.vstack(parts, format="csr")
        return matrix, np.full(matrix.shape[0], -np.inf), np.zeros(matrix.shape[0])

    def _decisions(self) -> tuple[sp.csr_array, Floats, Floats]:
        """Return the rows that allow time in a state only in its leaf, with the action of the leaf."""
        n, n_leaves, n_actions = self.shape
        per_leaf = np.arange(n * n_leaves).reshape(n, n_leaves)
        most = np.broadcast_to(self.most[:, None], per_leaf.shape)
        spent = self._matrix(per_leaf[:, :, None], self._y(), 1.0, n * n_leaves)
        spent = spent - self._matrix(per_leaf, self._in(), most, n * n_leaves)
        each = np.arange(n * n_leaves * n_actions).reshape(self.shape)
        acted = self._matrix(each, self._y(), 1.0, each.size)
        where = np.broadcast_to(self._act()[None], self.shape)
        acted = acted - self._matrix(each, where, np.broadcast_to(self.most[:, None, None], self.shape), each.size)
        matrix = sp.vstack([spent, acted], format="csr")
        return matrix, np.full(matrix.shape[0], -np.inf), np.zeros(matrix.shape[0])

    def actions_of(self, x: Floats) -> Ints:
        """Return the action of every state (S,) in the tree that a solution describes."""
        chosen = x[self._cut()].argmax(axis=1)
        leaf_actions = x[self._act()].argmax(axis=1)
        actions = np.zeros(self.mdp.n_states, dtype=np.int64)
        for i, s in enumerate(self.kept):
            node = 0
            while node < self.n_nodes:
                node = 2 * node + (1 if self.cuts.left[chosen[node], i] else 2)
            actions[s] = leaf_actions[node - self.n_nodes]
        return actions


def leaves_below(node: int, depth: int) -> list[int]:
    """Return the leaves below a node, from left to right; nodes count from the root, 0, level by level."""
    reached = [node]
    while reached[0] < 2**depth - 1:
        reached = [child for each in reached for child in (2 * each + 1, 2 * each + 2)]
    return [each - (2**depth - 1) for each in reached]


def occupancy_bounds(mdp: FiniteMDP) -> Floats:
    """Return a bound on the discounted share of time in each state (S,), whatever the policy.

    Sweeps of value iteration from above, for all states at once: each result is a bound, however few sweeps there were.
    """
    S, A = mdp.n_states, mdp.n_actions
    stacked = sp.vstack([sp.csr_array(mdp.transition_matrix(np.full(S, a))) for a in range(A)], format="csr")
    if not mdp.is_sparse:
        stacked = stacked.toarray()
    time = np.ones((S, S))  # from each state, in each state
    here = (1 - mdp.discount) * np.eye(S)
    for _ in range(SWEEPS):
        following = here + mdp.discount * np.asarray(stacked @ time).reshape(A, S, S).max(axis=0)
        change = float(np.abs(following - time).max())
        time = following
        if change < CLOSE * (1 - mdp.discount):
            break
    return np.minimum(mdp.start @ time, 1.0)
