"""Print what small forests of all kinds are, as one digest: run by `test_variants` in processes of their own."""

import hashlib
import itertools

import numpy as np

from capi.trees.forest import Growth, grow
from capi.trees.ranks import encode

N, D = 60, 5


def problem(policy):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    X[:, 0] = np.round(X[:, 0])
    X[rng.random((N, D)) < 0.1] = np.nan
    Y = rng.normal(size=(N, 3))  # no whole numbers: another order of additions gives other digits
    return X, Y.max(axis=1, keepdims=True) - Y if policy else Y, rng.random(N) + 0.1


def parts():
    """Yield all arrays of a forest of each kind, and where it sends states."""
    states = np.random.default_rng(2).normal(size=(70, D))
    states[::7, 1] = np.nan
    for policy, best_cuts, narrow, max_leaf_nodes, weighted in itertools.product(
        (False, True), (False, True), (True, False), (None, 6), (False, True)
    ):
        X, Y, weights = problem(policy)
        growth = Growth(n_trees=2, n_candidates=3, policy=policy, best_cuts=best_cuts, max_leaf_nodes=max_leaf_nodes)
        rng = np.random.default_rng(1)
        forest = grow(encode(X, narrow=narrow), Y, growth, rng, weights=weights if weighted else None)
        for tree in forest.trees:
            yield from (tree.nodes, tree.above, tree.sums, tree.weights, tree.counts, tree.leaf_of_row)
        yield forest.leaves(states)
        yield forest.mean_values(states)
        yield forest.leaves_of_actions(states[:, : D - 1], 4)
        yield forest.mean_values_of_actions(states[:, : D - 1], 4)


def digest():
    whole = hashlib.sha256()
    for part in parts():
        whole.update(np.ascontiguousarray(part).tobytes())
    return whole.hexdigest()


if __name__ == "__main__":
    print(digest())  # noqa: T201
