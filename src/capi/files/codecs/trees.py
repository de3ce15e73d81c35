"""Trees and forests: policies and action values.

The file holds the nodes and the leaf contents of a tree, but not the rows that it was grown on. Kernels follow the nodes without checks, so
only valid trees may reach them: children follow their parents, every node except the root has one parent, leaves are numbered from 0,
and features exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Ints
from capi.errors import LEAST_SHOWN
from capi.evaluators.fitted_values import FittedValues, ForestModel
from capi.files.codecs.parts import no_code
from capi.files.packing import Contents, Kind, Packed, json_number
from capi.policy_spaces.trees.forests import ForestPolicy
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.policy_spaces.trees.optimal import OptimalTreePolicy
from capi.trees._kernels.records import NODE
from capi.trees.forest import Forest, Tree
from capi.trees.projections import TERMS, Projections
from capi.trees.ranks import MOST_FEATURES

MOST_TREES = 2**20
TINY_SUM = 2.0**-512  # in place of a sum that is left out: no share in the importance of features
STOPS = (None, "time_limit", "node_limit", "work_limit", "interrupt")


def pack_forest(trees: Sequence[Tree]) -> Packed:
    """Return trees concatenated into arrays; ``sizes`` (T,) has the number of nodes of each tree."""
    nodes = np.concatenate([tree.nodes for tree in trees])
    inner = nodes["left"] >= 0
    return Packed(
        "trees",
        arrays={
            "sizes": np.array([len(tree.nodes) for tree in trees], dtype=np.int64),
            "left": nodes["left"].astype("<i4"),
            "feature": np.where(inner, nodes["feature"], 0).astype("<i2"),
            "threshold": np.where(inner, nodes["threshold"], 0.0),
            "missing_left": inner & (nodes["missing_left"] != 0),
            "sums": np.concatenate([tree.sums for tree in trees]),
            "weights": np.concatenate([tree.weights for tree in trees]),
            "counts": np.concatenate([tree.counts for tree in trees]),
        },
    )


def without_small_leaves(packed: Packed) -> None:
    """Take the counts and sums of leaves with fewer than five rows out of packed trees; of the sums, the order of the actions remains.

    If a single leaf of a tree is that small, its count is the difference of known numbers, so the next smallest leaf goes with it.
    """
    arrays = packed.arrays
    sums, weights, counts = (arrays[name].copy() for name in ("sums", "weights", "counts"))
    first = 0
    for size in arrays["sizes"].tolist():
        of_tree = counts[first : first + (size + 1) // 2]
        small = of_tree < LEAST_SHOWN
        if small.sum() == 1 and len(small) > 1:
            small[np.where(small, np.inf, of_tree).argmin()] = True
        leaves = first + np.flatnonzero(small)
        order = np.argsort(sums[leaves], axis=1, kind="stable")
        sums[leaves] = TINY_SUM * np.argsort(order, axis=1)
        weights[leaves], counts[leaves] = 1.0, 0
        first += len(small)
    packed.arrays = {**arrays, "sums": sums, "weights": weights, "counts": counts}
    if "leaf_regrets" in arrays:
        packed.arrays["leaf_regrets"] = np.where(counts > 0, arrays["leaf_regrets"], 0.0)


def unpack_forest(contents: Contents, n_features: int, n_outputs: int) -> list[Tree]:
    """Return the trees, each checked."""
    sizes = contents.integers("sizes", (None,), 1, 2**31 - 1)
    n, n_leaves = int(sizes.sum()), int((sizes + 1).sum()) // 2
    if (sizes % 2 == 0).any():
        raise contents.refuse("a tree must have one more leaf than splits")
    left = contents.integers("left", (n,), -n, n, "<i4")  # its size limits the memory allocated below
    nodes = np.zeros(n, dtype=NODE)
    nodes["left"] = left
    nodes["feature"] = contents.integers("feature", (n,), 0, n_features - 1, "<i2")
    nodes["threshold"] = contents.floats("threshold", (n,), infinite=True)
    nodes["missing_left"] = contents.flags("missing_left", (n,))
    if (nodes["threshold"] == -np.inf).any():
        raise contents.refuse("threshold must not be minus infinity")
    sums = contents.floats("sums", (n_leaves, n_outputs), infinite=True)
    weights = contents.positive("weights", (n_leaves,))
    counts = contents.integers("counts", (n_leaves,), 0, 2**62)
    ends = np.cumsum(sizes)[:-1]
    leaf_ends = np.cumsum((sizes + 1) // 2)[:-1]
    pieces = (np.split(nodes, ends), *(np.split(array, leaf_ends) for array in (sums, weights, counts)))
    return [_tree(contents, *parts) for parts in zip(*pieces, strict=True)]


def _tree(
    contents: Contents, nodes: NDArray[np.void], sums: NDArray[np.float64], weights: NDArray[np.float64], counts: Ints
) -> Tree:
    _check_nodes(contents, nodes["left"].astype(np.int64))
    no_rows = np.zeros(0, dtype=np.int32)
    return Tree(nodes.copy(), nodes["threshold"].copy(), sums.copy(), weights.copy(), counts.copy(), no_rows)


def _check_nodes(contents: Contents, left: Ints) -> None:
    n, inner = len(left), np.flatnonzero(left >= 0)
    children = np.concatenate([left[inner], left[inner] + 1])
    if (left[inner] <= inner).any() or not np.array_equal(np.sort(children), np.arange(1, n)):
        raise contents.refuse("the nodes must be a tree in which children follow their parents")
    if not np.array_equal(np.sort(-1 - left[left < 0]), np.arange((n + 1) // 2)):
        raise contents.refuse("the leaves of a tree must be numbered from 0")


def _pack_tree(policy: TreePolicy) -> Packed:
    packed = pack_forest([policy.tree])
    packed.kind = "tree"
    packed.settings = {
        "n_actions": int(policy.n_actions),
        "n_features": int(policy.n_features),
        "masked": bool(policy.masked),
        "greedy_depth": policy.greedy_depth,
        "optimal_seconds": json_number(policy.optimal_seconds),
    }
    packed.arrays |= {"with_missing": policy.with_missing.astype(bool), "leaf_regrets": policy.leaf_regrets}
    if policy.chosen is not None:
        packed.arrays["chosen"] = policy.chosen.astype(np.int64)
    return packed


def _unpack_tree(contents: Contents) -> TreePolicy:
    n_actions, n_features = contents.n_actions(), contents.n_features()
    trees = unpack_forest(contents, n_features, n_actions)
    if len(trees) != 1:
        raise contents.refuse(f"there must be one tree; there are {len(trees)}")
    missing = contents.flags("with_missing", (n_features,))
    n_leaves = len(trees[0].sums)
    return TreePolicy(
        trees[0],
        n_actions,
        n_features,
        missing,
        contents.floats("leaf_regrets", (n_leaves,), infinite=True),
        contents.flag("masked"),
        contents.integers("chosen", (n_leaves,), 0, n_actions - 1) if contents.has_array("chosen") else None,
        contents.integer_or_none("greedy_depth", 0, 2**31),
        contents.number("optimal_seconds", 0.0, infinite=True),
    )


def _pack_optimal_tree(policy: OptimalTreePolicy) -> Packed:
    packed = _pack_tree(policy)
    packed.kind = "optimal tree"
    packed.settings |= {
        "max_depth": int(policy.max_depth),
        "optimal": bool(policy.optimal),
        "remaining_gap": float(policy.remaining_gap),
        "stopped_by": policy.stopped_by,
    }
    if policy.masked and not policy.substitute:  # earlier files do not say so: with masks, they have a substitute
        packed.settings["substitute"] = False
    packed.arrays["thinned"] = policy.thinned.astype(bool)
    return packed


def _unpack_optimal_tree(contents: Contents) -> OptimalTreePolicy:
    plain = _unpack_tree(contents)
    return OptimalTreePolicy(
        plain.tree,
        plain.n_actions,
        plain.n_features,
        plain.with_missing,
        plain.leaf_regrets,
        plain.masked,
        plain.chosen,
        plain.greedy_depth,
        plain.optimal_seconds,
        max_depth=contents.integer("max_depth", 0, 64),
        optimal=contents.flag("optimal"),
        remaining_gap=contents.number("remaining_gap", 0.0),
        stopped_by=contents.choice("stopped_by", STOPS),
        thinned=contents.flags("thinned", (plain.n_features,)),
        substitute=contents.flag("substitute") if contents.has_setting("substitute") else plain.masked,
    )


def _pack_forest_policy(policy: ForestPolicy) -> Packed:
    packed = pack_forest(policy.forest.trees)
    packed.kind = "forest"
    packed.settings = {
        "n_actions": int(policy.n_actions),
        "n_features": int(policy.n_features),
        "masked": bool(policy.masked),
    }
    packed.arrays |= packed_projections(policy.forest)
    return packed


def _unpack_forest_policy(contents: Contents) -> ForestPolicy:
    n_actions, n_features = contents.n_actions(), contents.n_features()
    projections = unpack_projections(contents, n_features)
    n_inputs = n_features + (0 if projections is None else len(projections))
    forest = Forest(unpack_forest(contents, n_inputs, n_actions), projections)
    return ForestPolicy(forest, n_actions, n_features, masked=contents.flag("masked"))


def _pack_fitted(q: FittedValues) -> Packed:
    models = [model for model in q.models if isinstance(model, ForestModel)]
    if len(models) < len(q.models):
        raise no_code(q.models[0])
    settings = {"n_actions": int(q.n_actions), "n_features": int(q.n_features), "separate": bool(q.separate)}
    packed = pack_forest([tree for model in models for tree in model.forest.trees])
    packed.kind, packed.settings = "fitted values", settings
    packed.holds_states = bool((packed.arrays["counts"] < LEAST_SHOWN).any())  # their means are values of single rows
    packed.arrays |= packed_projections(models[0].forest)
    packed.arrays["trees_of_models"] = np.array([len(model.forest.trees) for model in models], dtype=np.int64)
    return packed


def _unpack_fitted(contents: Contents) -> FittedValues:
    n_actions, n_features, separate = contents.n_actions(), contents.n_features(), contents.flag("separate")
    counts = contents.integers("trees_of_models", (n_actions if separate else 1,), 1, MOST_TREES)
    projections = unpack_projections(contents, n_features)
    n_inputs = n_features + (0 if projections is None else len(projections))
    trees = unpack_forest(contents, n_inputs if separate else n_inputs + 1, 1)
    if counts.sum() != len(trees):
        raise contents.refuse(f"there must be {counts.sum()} trees; there are {len(trees)}")
    starts = np.concatenate([[0], np.cumsum(counts)])
    forests = [Forest(trees[start:end], projections) for start, end in pairwise(starts)]
    models = [ForestModel(forest, 1, remembers=True) for forest in forests]
    return FittedValues(models, n_actions, n_features, separate)


def packed_projections(forest: Forest) -> dict[str, NDArray[Any]]:
    """Return the combinations of columns that a forest cuts as arrays; none if it cuts only columns."""
    combined = forest.projections
    return {} if combined is None else {"combined": combined.columns, "coefficients": combined.coefficients}


def unpack_projections(contents: Contents, n_features: int) -> Projections | None:
    """Return the combinations of columns that a forest cuts, checked."""
    if not contents.has_array("combined"):
        return None
    columns = contents.integers("combined", (None, TERMS), 0, n_features - 1)
    if len(columns) > MOST_FEATURES - n_features:
        raise contents.refuse(
            f"trees take at most {MOST_FEATURES} columns and combinations; there are {n_features} and {len(columns)}"
        )
    return Projections(columns, contents.floats("coefficients", columns.shape), n_features)


KINDS = {
    "tree": Kind(_pack_tree, _unpack_tree, withhold=without_small_leaves),
    "optimal tree": Kind(_pack_optimal_tree, _unpack_optimal_tree, withhold=without_small_leaves),
    "forest": Kind(_pack_forest_policy, _unpack_forest_policy, withhold=without_small_leaves),
    "fitted values": Kind(_pack_fitted, _unpack_fitted, decides=False),
}
