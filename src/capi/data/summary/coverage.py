"""How well the rows of each action cover the states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.late import sklearn
from capi._utils.validation import Floats, Ints

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

MOST_ROWS = 100_000  # enough for a shallow tree to find its cuts
N_BINS = 64
DEPTH = 3


@dataclass(frozen=True, eq=False)
class SimilarStates:
    """Groups of similar states: the leaves of a shallow tree that predicts the logged action."""

    tree: Any  # of scikit-learn
    edges: list[Floats]  # of each column's bins
    n_actions: int

    @classmethod
    def of(cls, batch: Transitions) -> SimilarStates:
        """Grow the tree on the rows of ``batch``, or on a sample of them."""
        n = len(batch)
        sample = np.arange(n) if n <= MOST_ROWS else np.random.default_rng(0).choice(n, MOST_ROWS, replace=False)
        edges = [_edges(column) for column in batch.states[sample].T]
        # bin numbers instead of values, because some values are too large for single precision
        tree = sklearn.tree.DecisionTreeClassifier(
            max_depth=DEPTH, min_samples_leaf=max(1, len(sample) // 50), random_state=0
        )
        tree.fit(_binned(batch.states[sample], edges), batch.actions[sample])
        return cls(tree.tree_, edges, batch.n_actions)

    def leaves(self, states: Floats) -> Ints:
        """Return the leaf of each state (n,)."""
        return _leaves(self.tree, self.edges, states)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the tree."""
        return int(self.tree.node_count)

    def counts(self, batch: Transitions, leaves: Ints) -> Floats:
        """Return the weight of each action's rows in each node (nodes, A); ``leaves`` (n,) are those of the rows."""
        counts = np.zeros((self.n_nodes, self.n_actions))
        np.add.at(counts, (leaves, batch.actions), 1.0 if batch.weights is None else batch.weights)
        return counts


def leaf_counts(batch: Transitions) -> Floats:
    """Return the weight of each action's rows in the leaves of a shallow tree that predicts the action (l, A)."""
    counts = counts_by_leaf(batch)[1]
    return counts[counts.sum(axis=1) > 0]


def counts_by_leaf(batch: Transitions) -> tuple[Ints, Floats]:
    """Return the leaf of each row in that tree (n,), and the weight of each action's rows in each of its nodes (nodes, A)."""
    groups = SimilarStates.of(batch)
    leaves = groups.leaves(batch.states)
    return leaves, groups.counts(batch, leaves)


def effective_rows(counts: Floats) -> Floats:
    r"""Return the effective sample size of each action (A,), from its rows in the leaves (l, A).

    Weighted by :math:`w = 1 / \hat p(a \mid leaf)`, an action's rows represent all rows of the leaves in which it was taken. Their
    Kish size is :math:`(\sum w)^2 / \sum w^2`: the action's own number of rows if it was taken everywhere with the same
    probability, and the smaller the more unevenly it was taken.
    """
    totals = np.broadcast_to(counts.sum(axis=1, keepdims=True), counts.shape)
    taken = counts > 0
    of_weights = np.where(taken, totals, 0.0).sum(axis=0)
    of_squares = np.divide(totals**2, counts, out=np.zeros_like(counts), where=taken).sum(axis=0)
    return np.divide(of_weights**2, of_squares, out=np.zeros_like(of_weights), where=of_squares > 0)


def covered_shares(counts: Floats) -> Floats:
    """Return, for each action, the share of all rows in leaves in which it was taken (A,)."""
    totals = counts.sum(axis=1)
    return ((counts > 0) * totals[:, None]).sum(axis=0) / totals.sum()


def _leaves(tree: Any, edges: list[Floats], states: Floats) -> Ints:
    """Return the leaf of each state (n,); scikit-learn would need all states in bins, in single precision."""
    node = np.zeros(len(states), dtype=np.int64)
    for i in np.flatnonzero(tree.children_left >= 0):  # parents come before their children
        here = np.flatnonzero(node == i)
        j, threshold = tree.feature[i], tree.threshold[i]
        cut = edges[j][int(threshold)] if np.isfinite(threshold) else np.inf  # from bin numbers back to values
        x = states[here, j]
        left = np.where(np.isnan(x), bool(tree.missing_go_to_left[i]), x <= cut)
        node[here] = np.where(left, tree.children_left[i], tree.children_right[i])
    return node


def _edges(column: Floats) -> Floats:
    """Return the upper edges of a column's bins."""
    known = np.sort(column[~np.isnan(column)])
    if not len(known):
        return known
    return np.unique(known[np.linspace(0, len(known) - 1, N_BINS + 1).astype(np.int64)])


def _binned(states: Floats, edges: list[Floats]) -> NDArray[np.float32]:
    binned = np.empty(states.shape, dtype=np.float32)
    for j, cuts in enumerate(edges):
        binned[:, j] = np.where(np.isnan(states[:, j]), np.nan, np.searchsorted(cuts, states[:, j]))
    return binned
