"""Exact local search over trees: change one node at a time as long as the value of the start rises.

A tree is complete: a cut for each node, level by level, and an action for each leaf. A node above two leaves gets the best of many
cuts with many pairs of actions; any other node gets the best cut, with the actions of all leaves kept or chosen anew. All values are
exact. If only the states N of a node change their actions, the others can be eliminated once, and each candidate costs one linear
system of size |N|.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.experiments.small_trees.milp import Cuts, leaves_below
from capi.finite.mdp import FiniteMDP
from capi.policy_spaces.trees.greedy import TreePolicy

WORK = 1e10  # multiplications per node, about; fewer actions are tried if all of them cost more
FEWEST, MOST = 64, 1_000  # candidates per node
MOST_PASSES = 10
MOST_STATES = 1_000  # the search needs dense matrices
GAIN = 1e-10  # relative, of a change that counts


@dataclass(frozen=True)
class CompleteTree:
    """A cut for each node and an action for each leaf."""

    cuts: Ints  # (2^depth - 1,) numbers of cuts
    actions: Ints  # (2^depth,)

    def deeper(self) -> CompleteTree:
        """Return the same decisions as a tree with one more level, whose cuts have all states on the left."""
        return CompleteTree(
            np.append(self.cuts, np.zeros(len(self.actions), dtype=np.int64)), np.repeat(self.actions, 2)
        )


class TreeSearch:
    """Local search over the trees of a depth for an MDP with features."""

    def __init__(self, mdp: FiniteMDP, depth: int) -> None:
        self.mdp, self.depth = mdp, depth
        self.n_nodes = 2**depth - 1
        self.left: Bools = Cuts.of(mdp.states).left  # (cuts, S); the first one has all states on the left
        self.numbers = {row.tobytes(): c for c, row in enumerate(self.left)}
        every = range(mdp.n_actions)
        matrices = [mdp.transition_matrix(np.full(mdp.n_states, a)) for a in every]
        self.P: Floats = np.array([np.asarray(m.toarray() if mdp.is_sparse else m) for m in matrices])  # (A, S, S)

    def improved(self, tree: CompleteTree) -> tuple[CompleteTree, float]:
        """Return a tree that no change of one node improves, or the one after ten passes, and its value."""
        value = self.value(tree)
        for _ in range(MOST_PASSES):
            before = value
            for node in range(self.n_nodes - 1, -1, -1):
                found, worth = self._changed(tree, node)
                if worth > value + GAIN * max(abs(value), 1e-6):
                    tree, value = found, worth
            if value == before:
                break
        return tree, value

    def value(self, tree: CompleteTree) -> float:
        """Return the exact value of the start."""
        return float(self.mdp.start @ self.mdp.values(self.decisions(tree)))

    def decisions(self, tree: CompleteTree) -> Ints:
        """Return the action of each state (S,)."""
        return tree.actions[self.leaves(tree.cuts)]

    def leaves(self, cuts: Ints) -> Ints:
        """Return the leaf of each state (S,)."""
        every = np.arange(self.mdp.n_states)
        node = np.zeros(self.mdp.n_states, dtype=np.int64)
        for _ in range(self.depth):
            node = 2 * node + np.where(self.left[cuts[node], every], 1, 2)
        return node - self.n_nodes

    def of(self, policy: TreePolicy) -> CompleteTree:
        """Return the tree of a policy, completed by cuts with all states on the left."""
        cuts, actions = np.zeros(self.n_nodes, dtype=np.int64), np.zeros(self.n_nodes + 1, dtype=np.int64)
        names, labels = list(self.mdp.feature_names), list(self.mdp.action_labels)
        waiting = [(0, policy.to_dict())]
        while waiting:
            node, described = waiting.pop()
            if "action" in described:
                taken = described["action"]
                leaves = [node - self.n_nodes] if node >= self.n_nodes else leaves_below(node, self.depth)
                actions[leaves] = labels.index(taken) if taken in labels else int(taken)
                continue
            feature = described["feature"]
            column = self.mdp.states[:, names.index(feature) if feature in names else int(str(feature)[1:])]
            cuts[node] = self.numbers.get((column <= described["at_most"]).tobytes(), 0)
            waiting += [(2 * node + 1, described["then"]), (2 * node + 2, described["else"])]
        return CompleteTree(cuts, actions)

    # -- one node ------------------------------------------------------------------------------------

    def _changed(self, tree: CompleteTree, node: int) -> tuple[CompleteTree, float]:
        """Return the best tree that differs in one node, and its value."""
        return self._pair(tree, node) if 2 * node + 1 >= self.n_nodes else self._cut(tree, node)

    def _cut(self, tree: CompleteTree, node: int) -> tuple[CompleteTree, float]:
        """Try all cuts, with the actions of before and with those that look best by the values of before."""
        actions = self.decisions(tree)
        gains = self._gains(actions)
        best = tree, -np.inf
        for cut in range(len(self.left)):
            cuts = tree.cuts.copy()
            cuts[node] = cut
            leaves = self.leaves(cuts)
            by_leaf = np.zeros((self.n_nodes + 1, self.mdp.n_actions))
            np.add.at(by_leaf, leaves, gains)
            for chosen in (tree.actions, by_leaf.argmax(axis=1)):
                candidate = CompleteTree(cuts, chosen)
                worth = self.value(candidate)
                if worth > best[1]:
                    best = candidate, worth
        return best

    def _pair(self, tree: CompleteTree, node: int) -> tuple[CompleteTree, float]:
        """Try cuts of a node above two leaves with pairs of actions."""
        first, second = leaves_below(node, self.depth)
        inside = np.isin(self.leaves(tree.cuts), (first, second))
        if not inside.any():
            return tree, -np.inf
        reduced = _Reduced(self.mdp, self.P, self.decisions(tree), inside)
        gains = self._gains(self.decisions(tree))[inside]  # (N, A)
        seen: dict[bytes, int] = {}
        for cut, row in enumerate(self.left[:, inside]):
            seen.setdefault(row.tobytes(), cut)
        n_tried = _n_actions(len(seen), int(inside.sum()), self.mdp.n_actions)
        candidates: list[tuple[int, int, int]] = []
        chosen = []
        for cut in seen.values():
            on_left = self.left[cut][inside]
            sides = (gains[on_left].sum(axis=0), gains[~on_left].sum(axis=0))
            tops = [np.argsort(-side, kind="stable")[:n_tried] for side in sides]
            for a, b in product(*tops):
                candidates.append((cut, int(a), int(b)))
                chosen.append(np.where(on_left, a, b))
        values = reduced.values(np.array(chosen))
        cut, a, b = candidates[int(values.argmax())]
        cuts, actions = tree.cuts.copy(), tree.actions.copy()
        cuts[node], actions[first], actions[second] = cut, a, b
        found = CompleteTree(cuts, actions)
        return found, self.value(found)

    def _gains(self, actions: Ints) -> Floats:
        """Return what each action adds to the value of the start, to first order (S, A)."""
        q = self.mdp.action_values(actions)
        occupancy = self.mdp.discounted_occupancy(actions)
        return occupancy[:, None] * (q - q[np.arange(len(q)), actions][:, None])


def _n_actions(n_cuts: int, n_states: int, n_actions: int) -> int:
    """Return how many actions per side are tried."""
    n_candidates = min(max(WORK / max(n_states, 1) ** 3, FEWEST), MOST)
    return int(min(max(np.sqrt(n_candidates / n_cuts), 1), n_actions))


class _Reduced:
    """An MDP after the elimination of all states but N, whose actions are given."""

    def __init__(self, mdp: FiniteMDP, P: Floats, actions: Ints, inside: Bools) -> None:
        kept, others = np.flatnonzero(inside), np.flatnonzero(~inside)
        discount = mdp.discount
        moves = P[actions[others], others]  # (K, S)
        system = np.eye(len(others)) - discount * moves[:, others]
        right = np.column_stack([discount * moves[:, kept], mdp.rewards[others, actions[others]]])
        solved = np.linalg.solve(system, right)  # V_K = arrive V_N + earned
        arrive, earned = solved[:, :-1], solved[:, -1]
        direct, around = P[:, kept][:, :, kept], P[:, kept][:, :, others]
        self.moves = discount * (direct + around @ arrive)  # (A, N, N)
        self.rewards = mdp.rewards[kept].T + discount * (around @ earned)  # (A, N)
        self.start = mdp.start[kept] + mdp.start[others] @ arrive
        self.constant = float(mdp.start[others] @ earned)

    def values(self, actions: Ints) -> Floats:
        """Return the value of the start for several decisions in the states N; ``actions`` (m, N) -> (m,)."""
        n = actions.shape[1]
        every, identity = np.arange(n), np.eye(n)
        found = np.empty(len(actions))
        for i, chosen in enumerate(actions):  # one at a time: a stack of matrices may be large
            values = np.linalg.solve(identity - self.moves[chosen, every], self.rewards[chosen, every])
            found[i] = self.start @ values + self.constant
        return found
