"""Policies from single decision trees, grown greedily for the action-gap-weighted loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.parameters import Constraints, at_least, check_parameters, checked_by, optional
from capi._utils.validation import Bools, Floats, Ints, as_states
from capi.plotting.tree import draw_tree, support_of
from capi.policies import Deterministic, check_masks_given, first_allowed, first_in_mask, in_blocks
from capi.policy_spaces._monotone import check_monotone, monotone_actions
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.policy_spaces.trees._outline import Outline, regret_reductions
from capi.trees.forest import Forest, Growth, Tree, grow, n_candidates
from capi.trees.projections import Projections
from capi.trees.ranks import encode
from capi.trees.readable_cuts import with_readable_cuts
from capi.types import Policy, QFunction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AFFORDABLE = 10.0  # seconds
LEAF_SIZE, ROWS_PER_STATE = 5, 100  # by default a leaf has five states, or one per hundred rows of a small sample
MOST_LEAVES, SHOWN_LEVELS, MOST_NAMED = (
    64,
    3,
    5,
)  # larger trees are summarised by their first levels and their main columns
DEEPEST, MOST_CUTS = 4, 255  # of optimal trees: maximum depth, and cut points per feature


@dataclass(frozen=True, eq=False)
class TreePolicy(Deterministic):
    """A decision tree; each leaf takes the action with the least loss on the states that it was grown on.

    With masks, a leaf ranks the actions by their loss and takes the first one that the state allows.
    """

    tree: Tree = field(repr=False)
    n_actions: int
    n_features: int
    with_missing: Bools = field(repr=False)  # (d,) features with missing values in the sample
    leaf_regrets: Floats = field(repr=False)  # (l,) total loss of the leaf's decisions
    masked: bool = False
    chosen: Ints | None = field(default=None, repr=False)  # (l,) actions, if they are not those with the least loss
    greedy_depth: int | None = field(default=None, repr=False)  # depth limit of the growth, if a better tree may exist
    optimal_seconds: float = field(default=np.inf, repr=False)  # estimated time to find the best tree of that depth

    @property
    def optimal_is_affordable(self) -> bool:
        """Whether `OptimalTrees` would find the best tree of this depth in a few seconds, and that tree may lose less."""
        return self.greedy_depth is not None and self.optimal_seconds <= AFFORDABLE

    @cached_property
    def _forest(self) -> Forest:
        return Forest([self.tree])

    @cached_property
    def ranking(self) -> Ints:
        """The actions of each leaf from best to worst (l, A)."""
        return ranked(self.tree.sums, self.chosen)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.tree.sums)

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the best allowed action of each state's leaf (n,)."""
        check_masks_given(self.masked, allowed)
        x = as_states(states, n_features=self.n_features)
        return first_allowed(self.ranking[self._forest.leaves(x)[0]], allowed)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as nested dictionaries, with the names and labels of the table.

        Inner nodes have ``feature``, ``at_most`` (None: "is known"), ``missing`` ("then" or "else"), ``then`` and
        ``else``. Leaves have ``action``, ``states`` (the number of states in the sample), ``regret`` (their total) and, if
        the policy was learned with masks, ``otherwise``: the actions to try in order where ``action`` is not allowed.
        Files do not give the states and the regret of leaves with fewer than five states; these are None then.
        """
        described: dict[int, dict[str, Any]] = {}
        for number in reversed(self._in_order()):  # not recursively: trees can be thousands of levels deep
            described[number] = self._described(number, described)
        return described[0]

    def rules(self, *, full: bool = False) -> str:
        """Return the tree as text, with the names and labels of the table and the support and regret of each leaf.

        A tree with more than 64 leaves is summarised: its size, the columns that matter most and its first levels.

        Parameters
        ----------
        full : bool
            Return the whole tree, however large it is.
        """
        if self.n_leaves > MOST_LEAVES and not full:
            return "\n".join([*self._summary(), *self.remarks()])
        return "\n".join([*self._lines(self.to_dict()), *self.remarks()])

    def remarks(self) -> list[str]:
        """Return remarks for readers of the rules, one per line."""
        if not self.optimal_is_affordable:
            return []
        seconds, depth = max(self.optimal_seconds, 0.1), self.greedy_depth
        return [f"(grown greedily; OptimalTrees(max_depth={depth}) finds the best tree in about {seconds:.1g} s)"]

    def to_dot(self) -> str:
        """Return the tree in the Graphviz DOT language."""
        lines = ["digraph policy {", '  node [shape=box, fontname="sans-serif"];']
        self._add_dot(self.to_dict(), lines)
        return "\n".join([*lines, "}"])

    def plot(self, states: ArrayLike | None = None) -> Figure:  # noqa: ARG002  the tree is drawn without states
        """Return a drawing of the tree, with the names and labels of the table; ``figure.savefig("tree.png")`` saves it.

        Parameters
        ----------
        states : array of shape (n, d), optional
            Ignored: only other policies draw their decisions in these states.
        """
        return draw_tree(self.to_dict(), self._condition, _decision)

    def importances(self) -> Floats:
        """Return the share of each feature in the reduction of regret (d,); zeros if there is none."""
        reduction = regret_reductions(self.tree, self.n_features)
        total = reduction.sum()
        return reduction / total if total > 0 else reduction

    def _in_order(self) -> list[int]:
        """Return the nodes from the root on: each after its parent, and those of the left branch first."""
        found, waiting, left = [], [0], self.tree.nodes["left"].tolist()
        while waiting:
            number = waiting.pop()
            found.append(number)
            if left[number] >= 0:
                waiting += [left[number] + 1, left[number]]
        return found

    def _described(self, number: int, children: dict[int, dict[str, Any]]) -> dict[str, Any]:
        node = self.tree.nodes[number]
        if node["left"] < 0:
            leaf = -1 - int(node["left"])
            labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
            first, *others = (labels[a] for a in self.ranking[leaf])
            count = int(self.tree.counts[leaf])  # zero if the file that the tree comes from does not give it
            known = count and not np.isnan(self.leaf_regrets[leaf])
            plain = {
                "action": first,
                "states": count or None,
                "regret": float(self.leaf_regrets[leaf]) if known else None,
            }
            return {**plain, "otherwise": others} if self.masked else plain
        left = int(node["left"])
        return {**self._split(number), "then": children.pop(left), "else": children.pop(left + 1)}

    def _split(self, number: int) -> dict[str, Any]:
        """Return the condition of an inner node as in `to_dict`."""
        node = self.tree.nodes[number]
        j = int(node["feature"])
        return {
            "feature": self.schema.feature_names[j] if self.schema else f"x{j}",
            "at_most": None if np.isinf(node["threshold"]) else float(node["threshold"]),
            "missing": ("then" if node["missing_left"] else "else") if self.with_missing[j] else None,
        }

    def _condition(self, node: dict[str, Any]) -> str:
        """Return the condition of an inner node of `to_dict`, with the column names of the table."""
        missing_too = node["missing"] == "then"
        if self.schema is not None:
            return self.schema.condition(node["feature"], node["at_most"], missing_too)
        if node["at_most"] is None:
            return f"{node['feature']} is known"
        return f"{node['feature']} <= {node['at_most']!r}{' or is missing' if missing_too else ''}"

    def _lines(self, tree: dict[str, Any]) -> Iterator[str]:
        waiting: list[tuple[dict[str, Any] | None, int]] = [(tree, 0)]  # None: the word "else"
        while waiting:
            node, level = waiting.pop()
            indent = "  " * level
            if node is None:
                yield f"{indent}else:"
            elif "action" in node:
                support = f"  ({', '.join(support_of(node))})" if self.tree.counts.any() else ""
                yield f"{indent}{_decision(node)}{support}"
            else:
                yield f"{indent}if {self._condition(node)}:"
                waiting += [(node["else"], level + 1), (None, level), (node["then"], level + 1)]

    def _add_dot(self, tree: dict[str, Any], lines: list[str]) -> None:
        waiting: list[str | tuple[dict[str, Any], str]] = [(tree, "n")]  # nodes with their names, and finished lines
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                lines.append(item)
                continue
            node, name = item
            if "action" in node:
                text = f"{_decision(node)}\n{', '.join(support_of(node))}"
                lines.append(f"  {name} [label={_quoted(text)}, style=rounded];")
                continue
            lines.append(f"  {name} [label={_quoted(self._condition(node))}];")
            for branch, label in (("else", "no"), ("then", "yes")):
                child = f"{name}{branch[0]}"
                waiting += [f'  {name} -> {child} [label="{label}"];', (node[branch], child)]

    def _summary(self) -> Iterator[str]:
        """Yield the lines that stand for a tree that is too large to read."""
        outline = Outline.of(self.tree, self.ranking[:, 0], self.n_actions)
        yield f"A decision tree with {self.n_leaves:,} leaves and {outline.levels:,} levels of splits, too large to read."
        shares = self.importances()
        names = self.schema.feature_names if self.schema else tuple(f"x{j}" for j in range(self.n_features))
        first = [j for j in np.argsort(-shares, kind="stable")[:MOST_NAMED] if shares[j] >= 0.005]
        if first:
            yield (
                "Shares in the reduction of regret: "
                + ", ".join(f"{names[j]} {100 * shares[j]:.0f} %" for j in first)
                + "."
            )
        yield f"Its first {SHOWN_LEVELS} levels:"
        labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
        waiting = [(0, "  ", 0, "")]
        while waiting:
            number, indent, level, before = waiting.pop()
            if before:
                yield before
            left = int(self.tree.nodes["left"][number])
            if left < 0 or level == SHOWN_LEVELS:
                yield f"{indent}{outline.below(number, labels)}"
                continue
            yield f"{indent}if {self._condition(self._split(number))}:"
            deeper = indent + "  "
            waiting += [(left + 1, deeper, level + 1, f"{indent}else:"), (left, deeper, level + 1, "")]
        yield "The whole tree: policy.rules(full=True), or capi export RUN --to text."


@dataclass(frozen=True)
class Trees(ImprovementSolver[TreePolicy]):
    """Decision trees, grown greedily: each split is the one that leaves the least regret.

    A node's regret is the loss of its best single action on its states. A node is split until its regret is exactly zero
    or it is too small. If no cut reduces the regret, the one that best separates the actions' values is used, so growth
    does not stall. Finally, splits below which all leaves make the same decision are pruned. States may have missing
    values.

    Parameters
    ----------
    max_depth : int, optional
        Levels of splits; None is no limit, and gives trees that are too large to read.
    max_leaf_nodes : int, optional
        If given, the leaf with the largest gain is split first.
    min_samples_split : int
        A node with fewer states is a leaf (the paper's eta_pi).
    min_samples_leaf : int, optional
        A leaf has at least this many states. None: 5, or 1 % of the states if they are fewer than 500.
    max_features : int, float or None
        Features considered in a node: a number, a share of all, or None for all.
    monotone : mapping from columns to 1 or -1, optional
        Monotonicity per column: 1 if the action index must not decrease as the column increases, -1 if it must not
        increase. The tree is grown without this constraint; then its leaves get the actions with the least loss that
        keep the order at each split. Not available with masks.

    Examples
    --------
    >>> states = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    >>> values = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    >>> print(Trees(max_depth=2).improve(states, values).rules())
    if x0 <= 3.5:
      if x0 <= 2.5:
        0  (2 states, regret 0)
      else:
        1  (1 state, regret 0)
    else:
      0  (1 state, regret 0)
    """

    max_depth: int | None = 3
    max_leaf_nodes: int | None = None
    min_samples_split: int = 2
    min_samples_leaf: int | None = None
    max_features: int | float | None = None
    monotone: Mapping[int, int] | None = None

    _constraints: ClassVar[Constraints] = {
        "monotone": checked_by(check_monotone),
        "max_depth": optional(at_least(1)),
        "max_leaf_nodes": optional(at_least(2)),
        "min_samples_split": at_least(2),
        "min_samples_leaf": optional(at_least(1)),
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,
    ) -> TreePolicy:
        """Return a tree grown greedily for the gap-weighted loss on the sample."""
        sample = problem.counted
        growth = Growth(
            n_candidates=n_candidates(self.max_features, sample.n_features),
            min_samples_split=self.min_samples_split,
            min_samples_leaf=leaf_size(self.min_samples_leaf, sample.n_rows),
            max_depth=self.max_depth,
            max_leaf_nodes=self.max_leaf_nodes,
            best_cuts=True,
            policy=True,
        )
        check_monotone(self.monotone, sample.n_features, masked=sample.masked)
        grown = grown_on(sample, growth, rng).trees[0]
        chosen = monotone_actions(grown.nodes, grown.sums, self.monotone) if self.monotone else None
        pruned, chosen = _pruned(grown, chosen, whole_ranking=sample.masked)
        tree = with_readable_cuts(pruned)
        leaf_regrets = leaf_losses(tree, chosen, sample)
        missing = np.atleast_1d(np.isnan(sample.states).any(axis=0))
        policy = TreePolicy(tree, sample.n_actions, sample.n_features, missing, leaf_regrets, sample.masked, chosen)
        return self._with_estimate(policy, sample)

    def _with_estimate(self, policy: TreePolicy, sample: ImprovementProblem) -> TreePolicy:
        """Return the policy with the estimated time to find an optimal tree, if there is one that may lose less."""
        comparable = self.max_leaf_nodes is None and self.max_features is None and not self.monotone
        depth = self.max_depth
        if not comparable or policy.masked or depth is None or depth > DEEPEST or not policy.leaf_regrets.any():
            return policy
        n_bins = [min(len(np.unique(column)), MOST_CUTS + 1) for column in sample.states.T]
        seconds = seconds_for_optimal(len(sample.states), np.array(n_bins), sample.n_actions, depth)
        return replace(policy, greedy_depth=depth, optimal_seconds=seconds)


def leaf_size(given: int | None, n_rows: int) -> int:
    """Return the least number of states in a leaf: the given one, or one that makes the leaves of a table worth reading."""
    return max(1, min(LEAF_SIZE, n_rows // ROWS_PER_STATE)) if given is None else given


def seconds_for_optimal(n_rows: int, n_bins: Ints, n_actions: int, depth: int) -> float:
    """Return the estimated seconds that one thread searches for the best tree; ``n_bins`` (d,) are the bins of each feature.

    The constants were measured in ``benchmarks/optimal_trees.py``. How much work the bounds save depends on the data; the
    shares here are those for noisy values, where they save the least.
    """
    d, cuts = len(n_bins), float(n_bins.sum())
    pairs, cells = d * (d + 1) / 2, (cuts**2 + float(np.square(n_bins).sum())) / 2
    adding, reading = 3e-9 * pairs * (n_actions + 2), 5e-9 * cells * n_actions  # per row, and for all tables once
    by_rows = 4e-11 * cuts * d * (n_actions + 15)  # per row
    two = min(adding * n_rows + reading, by_rows * n_rows)
    seconds = 1e-7 * n_rows * d + two
    if depth >= 3:
        sides = 0.7 * cuts
        three = min(4 * d * adding * n_rows + sides * reading, sides * by_rows * n_rows / 2)
        seconds += three if depth == 3 else 0.3 * cuts * three / 2
    return seconds


def grown_on(
    sample: ImprovementProblem,
    growth: Growth,
    rng: np.random.Generator | None,
    n_jobs: int = 1,
    projections: Projections | None = None,
) -> Forest:
    """Return policy trees grown on rows with weight; ``rng=None`` is a fixed seed. The trees also cut ``projections``.

    The losses already include the weights of the rows; node sizes are counted in rows.
    """
    generator = np.random.default_rng(0) if rng is None else rng
    inputs = encode(sample.states, n_jobs, projections=projections)
    return grow(inputs, sample.filled_losses, growth, generator, n_jobs=n_jobs)


def leaf_losses(tree: Tree, chosen: Ints | None, sample: ImprovementProblem) -> Floats:
    """Return the total loss of the decisions of each leaf (l,)."""
    actions = first_in_mask(ranked(tree.sums, chosen)[tree.leaf_of_row], sample.mask)
    lost = np.take_along_axis(sample.lost, actions[:, None], axis=1)[:, 0]
    return np.bincount(tree.leaf_of_row, weights=lost, minlength=len(tree.counts)).astype(np.float64)


def ranked(sums: Floats, chosen: Ints | None) -> Ints:
    """Return the actions of each leaf from best to worst, with ``chosen`` (l,) in front; ``sums`` (l, A) -> (l, A)."""
    order = np.argsort(sums, axis=1, kind="stable")
    if chosen is None:
        return order
    others = order[order != chosen[:, None]].reshape(len(sums), -1)
    return np.column_stack([chosen, others])


def _pruned(tree: Tree, chosen: Ints | None, *, whole_ranking: bool) -> tuple[Tree, Ints | None]:
    """Return the tree without splits below which all leaves make the same decision, and its ``chosen`` actions."""
    ranking = ranked(tree.sums, chosen)
    _, decision = np.unique(ranking if whole_ranking else ranking[:, :1], axis=0, return_inverse=True)
    old = tree.nodes
    common = np.empty(len(old), dtype=np.int64)  # the decision of all leaves below a node, -1 if they differ
    for i in range(len(old) - 1, -1, -1):  # children come after their parents
        left = int(old["left"][i])
        same = left < 0 or common[left] == common[left + 1]
        common[i] = decision.ravel()[-1 - left] if left < 0 else common[left] if same else -1

    nodes, above = [old[0].copy()], [tree.above[0]]
    leaves: list[list[int]] = []
    waiting = [(0, 0)]  # (old number, new number)
    while waiting:
        i, k = waiting.pop()
        if common[i] >= 0:
            nodes[k]["left"] = -1 - len(leaves)
            leaves.append(_leaves_below(old, i))
            continue
        left = int(old["left"][i])
        nodes[k]["left"] = len(nodes)
        waiting += [(left + 1, len(nodes) + 1), (left, len(nodes))]
        nodes += [old[left].copy(), old[left + 1].copy()]
        above += [tree.above[left], tree.above[left + 1]]
    new_leaf = np.empty(len(tree.counts), dtype=np.int32)
    for number, merged in enumerate(leaves):
        new_leaf[merged] = number
    pruned = Tree(
        np.array(nodes, dtype=old.dtype),
        np.array(above),
        np.stack([tree.sums[merged].sum(axis=0) for merged in leaves]),
        np.array([tree.weights[merged].sum() for merged in leaves]),
        np.array([tree.counts[merged].sum() for merged in leaves]),
        new_leaf[tree.leaf_of_row],
    )
    return pruned, None if chosen is None else np.array([chosen[merged[0]] for merged in leaves])


def _leaves_below(nodes: Any, number: int) -> list[int]:
    waiting, leaves = [number], []
    while waiting:
        left = int(nodes["left"][waiting.pop()])
        if left < 0:
            leaves.append(-1 - left)
        else:
            waiting += [left, left + 1]
    return leaves


def _decision(node: dict[str, Any]) -> str:
    return ", else ".join(str(action) for action in (node["action"], *node.get("otherwise", ())))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
