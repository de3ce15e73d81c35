"""Masks in the search for optimal trees: every ranking of the actions as an action of its own.

A leaf of a tree that is learned with masks ranks the actions, and each state takes the first one that it allows. So its loss is
that of its ranking, and a search over rankings is exact. It takes A! columns of losses; with more actions or rows than that allows, the
search minimises a substitute, and a second one bounds what that may cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from math import factorial

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.policies import first_in_mask
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.trees.greedy import ranked
from capi.trees.forest import Tree

MOST_RANKINGS = 120  # those of five actions
MOST_NUMBERS = 2**25  # losses of rankings, 256 MB


@dataclass(frozen=True, eq=False)
class Rankings:
    """All rankings of the actions, and the loss of each in each state."""

    orders: Ints  # (R, A) in lexicographic order
    lost: Floats  # (n, R)

    @classmethod
    def of(cls, sample: ImprovementProblem) -> Rankings | None:
        """Return the rankings of a masked sample, None if they or their losses are too many."""
        n_rankings = factorial(sample.n_actions)
        if n_rankings > MOST_RANKINGS or n_rankings * len(sample.states) > MOST_NUMBERS:
            return None
        orders = np.array(list(permutations(range(sample.n_actions))), dtype=np.int64)
        rows, lost = np.arange(len(sample.states)), np.empty((len(sample.states), len(orders)))
        for r, order in enumerate(orders):
            lost[:, r] = sample.lost[rows, first_in_mask(np.tile(order, (len(rows), 1)), sample.mask)]
        return cls(orders, lost)

    def problem(self, sample: ImprovementProblem) -> ImprovementProblem:
        """Return the problem without masks whose actions are the rankings; those that lose the same everywhere are one."""
        distinct = {column.tobytes(): r for r, column in reversed(list(enumerate(self.lost.T)))}
        return ImprovementProblem(sample.states, -self.lost[:, sorted(distinct.values())])

    def put_into(self, tree: Tree) -> Tree:
        """Return ``tree`` with leaves that have the best ranking; among equals, that closest to the order of their own sums."""
        lost = np.zeros((len(tree.counts), len(self.orders)))
        np.add.at(lost, tree.leaf_of_row, self.lost)
        sums = np.sort(tree.sums, axis=1)
        for k in range(1, sums.shape[1]):  # equal sums would leave the order to the numbers of the actions
            sums[:, k] = np.maximum(sums[:, k], np.nextafter(sums[:, k - 1], np.inf))
        arranged = np.empty_like(sums)
        for leaf, usual in enumerate(ranked(tree.sums, None)):
            places = np.argsort(usual)[self.orders]  # each ranking in terms of the usual one
            least = np.flatnonzero(lost[leaf] == lost[leaf].min())
            best = least[np.lexsort(places[least].T[::-1])[0]]
            arranged[leaf, self.orders[best]] = sums[leaf]
        return replace(tree, sums=arranged)


def least_possible(sample: ImprovementProblem) -> ImprovementProblem:
    """Return a problem without masks that no tree with masks can lose less in: where an action is not allowed, it costs nothing."""
    lost = sample.lost if sample.mask is None else np.where(sample.mask, sample.lost, 0.0)
    return ImprovementProblem(sample.states, -lost)
