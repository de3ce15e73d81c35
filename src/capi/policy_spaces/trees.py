"""Policies that are decision trees, grown for the action-gap-weighted loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from capi.cuts import readable_cut
from capi.errors import InvalidInput
from capi.loss import regrets, weighted
from capi.policies import Deterministic, permitted
from capi.trees.encoding import encode
from capi.trees.forest import Forest, Growth, Tree, grow
from capi.trees.regressor import n_candidates
from capi.types import Policy, QFunction
from capi.validation import Bools, Floats, Ints, as_allowed, as_int, as_q_values, as_states, as_weights


@dataclass(frozen=True, eq=False)
class TreePolicy(Deterministic):
    """A decision tree: each leaf plays the action that loses the least on the states it was grown on."""

    tree: Tree = field(repr=False)
    n_actions: int
    n_features: int
    with_missing: Bools = field(repr=False)  # (d,) features that had missing values in learning

    @cached_property
    def _forest(self) -> Forest:
        return Forest([self.tree])

    @property
    def leaf_actions(self) -> Ints:
        """The action of each leaf (l,)."""
        return self.tree.sums.argmin(axis=1)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.tree.sums)

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the action of each state's leaf, or the lowest allowed one where it is not allowed (n,)."""
        x = as_states(states, n_features=self.n_features)
        return permitted(self.leaf_actions[self._forest.leaves(x)[0]], allowed, self.n_actions)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as nested dictionaries, in the words of the table.

        Inner nodes have ``feature``, ``at_most`` (None: "is known"), ``missing`` ("then" or "else"), ``then`` and
        ``else``; leaves have ``action``, ``states`` (how many it was grown on) and ``regret`` (what they lose in sum).
        """
        return self._described(0)

    def rules(self) -> str:
        """Return the tree as text, in the words of the table, with the support and the regret of each leaf."""
        return "\n".join(self._lines(self.to_dict(), ""))

    def to_dot(self) -> str:
        """Return the tree in Graphviz's language."""
        lines = ["digraph policy {", '  node [shape=box, fontname="sans-serif"];']
        self._add_dot(self.to_dict(), lines, "n")
        return "\n".join([*lines, "}"])

    def importances(self) -> Floats:
        """Return the share of each feature in the reduction of regret (d,); zeros if there is none."""
        reduction = np.zeros(self.n_features)
        self._add_reductions(0, reduction)
        total = reduction.sum()
        return reduction / total if total > 0 else reduction

    def _described(self, number: int) -> dict[str, Any]:
        node = self.tree.nodes[number]
        if node["left"] < 0:
            leaf = -1 - int(node["left"])
            sums, labels = self.tree.sums[leaf], self.schema.action_labels if self.schema else range(self.n_actions)
            action = int(sums.argmin())
            return {"action": labels[action], "states": int(self.tree.counts[leaf]), "regret": float(sums[action])}
        j, left = int(node["feature"]), int(node["left"])
        return {
            "feature": self.schema.feature_names[j] if self.schema else f"x{j}",
            "at_most": None if np.isinf(node["threshold"]) else float(node["threshold"]),
            "missing": ("then" if node["missing_left"] else "else") if self.with_missing[j] else None,
            "then": self._described(left),
            "else": self._described(left + 1),
        }

    def _lines(self, node: dict[str, Any], indent: str) -> Iterator[str]:
        if "action" in node:
            yield f"{indent}{node['action']}  ({node['states']} states, regret {node['regret']:.4g})"
            return
        yield f"{indent}if {_condition(node)}:"
        yield from self._lines(node["then"], indent + "  ")
        yield f"{indent}else:"
        yield from self._lines(node["else"], indent + "  ")

    def _add_dot(self, node: dict[str, Any], lines: list[str], name: str) -> None:
        if "action" in node:
            text = f"{node['action']}\n{node['states']} states, regret {node['regret']:.4g}"
            lines.append(f"  {name} [label={_quoted(text)}, style=rounded];")
            return
        lines.append(f"  {name} [label={_quoted(_condition(node))}];")
        for branch, label in (("then", "yes"), ("else", "no")):
            child = f"{name}{branch[0]}"
            self._add_dot(node[branch], lines, child)
            lines.append(f'  {name} -> {child} [label="{label}"];')

    def _add_reductions(self, number: int, reduction: Floats) -> Floats:
        """Add what the splits below a node gain to ``reduction`` (d,), and return the node's summed regrets (A,)."""
        node = self.tree.nodes[number]
        if node["left"] < 0:
            return self.tree.sums[-1 - int(node["left"])]
        left, right = (self._add_reductions(int(node["left"]) + side, reduction) for side in (0, 1))
        both = left + right
        reduction[int(node["feature"])] += max(both.min() - left.min() - right.min(), 0.0)
        return both


@dataclass(frozen=True)
class Trees:
    """Decision trees, grown greedily: each split is the one that leaves the least regret.

    A node's regret is what its best single action loses on its states. It is split until that is exactly zero or the
    node is too small; among cuts that leave the regret as it is, the one that tells the actions' values apart best is
    taken, so that growth does not stall. States may have missing values.

    Parameters
    ----------
    max_depth : int, optional
    max_leaf_nodes : int, optional
        With it the leaf that gains most is split first.
    min_samples_split : int
        A node with fewer states is a leaf (the paper's eta_pi).
    min_samples_leaf : int
    max_features : int, float or None
        Features looked at in a node; None is all.

    Examples
    --------
    >>> states = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    >>> values = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    >>> print(Trees(max_depth=2).improve(states, values).rules())
    if x0 <= 3.5:
      if x0 <= 2.5:
        0  (2 states, regret 0)
      else:
        1  (1 states, regret 0)
    else:
      0  (1 states, regret 0)
    """

    max_depth: int | None = None
    max_leaf_nodes: int | None = None
    min_samples_split: int = 2
    min_samples_leaf: int = 1
    max_features: int | float | None = None

    def __post_init__(self) -> None:
        for name, least in (("max_depth", 1), ("max_leaf_nodes", 2)):
            if getattr(self, name) is not None:
                as_int(getattr(self, name), name, minimum=least)
        as_int(self.min_samples_split, "min_samples_split", minimum=2)
        as_int(self.min_samples_leaf, "min_samples_leaf", minimum=1)

    def improve(
        self,
        states: ArrayLike,
        q_values: ArrayLike,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,  # noqa: ARG002
        allowed: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        rng: np.random.Generator | None = None,
    ) -> TreePolicy:
        """Return a tree that was grown greedily for the gap-weighted loss on the sample."""
        growth = Growth(
            n_candidates=None if self.max_features is None else n_candidates(self.max_features, np.shape(states)[1]),
            min_samples_split=self.min_samples_split,
            min_samples_leaf=self.min_samples_leaf,
            max_depth=self.max_depth,
            max_leaf_nodes=self.max_leaf_nodes,
            best_cuts=True,
            policy=True,
        )
        name = type(self).__name__
        forest, x, n_actions = grown_for_regret(name, growth, states, q_values, allowed, weights, rng)
        return TreePolicy(
            _with_readable_cuts(forest.trees[0]), n_actions, x.shape[1], np.atleast_1d(np.isnan(x).any(axis=0))
        )


def grown_for_regret(
    name: str,
    growth: Growth,
    states: ArrayLike,
    q_values: ArrayLike,
    allowed: ArrayLike | None,
    weights: ArrayLike | None,
    rng: np.random.Generator | None,
    n_jobs: int = 1,
) -> tuple[Forest, Floats, int]:
    """Return policy trees for the sample, its states (n, d), and the number of actions."""
    x = as_states(states)
    values = as_q_values(q_values, n_rows=len(x))
    mask = as_allowed(allowed, "allowed", values.shape)
    if mask is not None and not mask.all():
        raise InvalidInput(f"{name} cannot honour masks of allowed actions. Use Partition or Unrestricted.")
    w = as_weights(weights, "weights", len(x))
    lost = weighted(regrets(values), w)
    if w is not None:
        x, lost = x[w > 0], lost[w > 0]  # a state without weight is no state
    generator = np.random.default_rng(0) if rng is None else rng
    # The weights are in the regrets already. Counts decide about sizes, and nothing else needs weights.
    return grow(encode(x, n_jobs), lost, growth, generator, n_jobs=n_jobs), x, values.shape[1]


def _with_readable_cuts(tree: Tree) -> Tree:
    """Return the tree with each threshold rounded as far as that sends no state elsewhere."""
    nodes = tree.nodes.copy()
    for i in np.flatnonzero((nodes["left"] >= 0) & np.isfinite(nodes["threshold"])):
        middle, above = float(nodes["threshold"][i]), float(tree.above[i])
        nodes["threshold"][i] = readable_cut(middle - (above - middle), above) if middle < above else middle
    return replace(tree, nodes=nodes)


def _condition(node: dict[str, Any]) -> str:
    if node["at_most"] is None:
        return f"{node['feature']} is known"
    missing = " or is missing" if node["missing"] == "then" else ""
    return f"{node['feature']} <= {node['at_most']!r}{missing}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
