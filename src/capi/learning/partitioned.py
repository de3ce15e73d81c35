"""Learning from a partitioned batch: the loop runs on a sample of its episodes, and all rows decide what is averaged.

What an evaluator averages is summed over all rows (`capi.evaluators.over_partitions`). Policies are improved on the sample or, with
``state_weights="batch"`` and few distinct states, on all of them, merged with their numbers of rows. A tree or forest that was learned
on a sample of evenly weighted states chooses the actions of its leaves by all rows in the end.

Leaf sizes of spaces count rows. A merged state stands in the search as several equal rows, which no cut can divide: as many as the largest such
size, or all of its rows if they are fewer. A leaf then has enough of these exactly if it has enough rows of the table.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from capi._utils.randomness import seed_sequence
from capi._utils.validation import Floats, Ints
from capi.data.partitions import PartitionedTransitions
from capi.data.survey import Survey, loaded
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError, RareActionWarning
from capi.evaluators._batches import portable
from capi.evaluators.over_partitions import BITS, OverPartitions
from capi.learning import rules
from capi.learning.iteration import Loop, own_states
from capi.policy_spaces.classifier import Classifier
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.neighbors.local_averages import LocalAverages
from capi.policy_spaces.neighbors.neighbors import Neighbors
from capi.policy_spaces.trees.forests import ForestPolicy
from capi.policy_spaces.trees.greedy import LEAF_SIZE, ROWS_PER_STATE, TreePolicy
from capi.trees.forest import Forest
from capi.types import Policy, QFunction

MOST_COPIES = 200_000  # rows that merged states may stand for in a search
SIZES = ("min_samples_leaf", "min_samples_split")


@dataclass(frozen=True, eq=False)
class Localised:
    """A loop on the sample of a partitioned batch."""

    loop: Loop
    batch: Transitions
    states: Any
    survey: Survey
    partitions: PartitionedTransitions
    merged: tuple[Floats, Floats] | None = None  # distinct states and the rows of each, if the states come from them

    def finished(self, policy: Policy, q: QFunction, row: dict[str, float], *, is_last: bool) -> Policy:
        """Return the policy whose leaves take the action that loses least on all rows; ``row`` of the history gets that loss per row.

        Policies that are not trees, that were learned with masks, constraints or weights by occupancy, or from all rows, stay as they are. So does
        the policy of an earlier round (not ``is_last``) that was kept for its score: ``q`` is then its own, not the one that it was chosen by, and
        would improve it once more, into a policy without a score. Policies that were improved on all rows get the numbers of rows in their leaves.
        """
        if self.merged is not None:
            row["loss_on_all_rows"] = row["loss"]
            return recounted(policy, *self.merged)
        if not is_last:
            return policy
        plain = isinstance(policy, TreePolicy | ForestPolicy) and not policy.masked
        chosen = getattr(policy, "chosen", None) is not None
        if not plain or chosen or self.states is not None or self.loop.state_weights != "batch" or self.survey.is_whole:
            return policy
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RareActionWarning)  # the loop has warned already
            excluded = rules.excluded_actions(self.loop.evaluator, self.batch)
        found, row["loss_on_all_rows"] = rescored(policy, q, excluded, self.survey, self.partitions)  # type: ignore[arg-type]
        return found


def localised(loop: Loop, partitions: PartitionedTransitions, states: Any) -> Localised:
    """Return the loop for the sample of a partitioned batch."""
    if loop.support is not None:
        raise InvalidInputError(
            "support cannot be learned from partitions yet: its masks are part of the batch. Learn from transitions.sample()."
        )
    if callable(loop.evaluator) and not hasattr(loop.evaluator, "evaluate"):
        raise InvalidInputError(
            "evaluator must be one evaluator, not a function of the round, with a partitioned batch."
        )
    if isinstance(loop.space, Neighbors | LocalAverages):
        raise InvalidInputError(
            f"{type(loop.space).__name__} compares with every row, so it cannot learn from partitions. Use OptimalTrees, Trees, "
            "Forests, Thresholds or Linear, or learn from transitions.sample()."
        )
    seeds = seed_sequence(loop.random_state)
    return _placed(replace(loop, random_state=seeds), partitions, partitions.survey(random_state=seeds), states)


def relocalised(loop: Loop, local: Localised) -> Localised:
    """Return another loop for the same batch, whose sample is known."""
    return _placed(replace(loop, random_state=local.loop.random_state), local.partitions, local.survey, None)


def _placed(loop: Loop, partitions: PartitionedTransitions, survey: Survey, states: Any) -> Localised:
    without_space = loop.space is None
    loop, merged = rules.with_rules(loop, survey.sample, states), None
    own = loop.state_weights == "batch" and states is None and loop.sample_of is own_states
    if own and survey.merged is not None and not survey.is_whole:
        if without_space:
            loop = replace(loop, space=rules.default_space(rows_of_rule(survey)))
        states = as_rows(*survey.merged, loop.space)
        merged = None if states is None else survey.merged
    if not survey.is_whole:
        loop = replace(loop, evaluator=OverPartitions(loop.evaluator, partitions, survey))
    return Localised(loop, survey.sample, states, survey, partitions, merged)


def as_rows(states: Floats, counts: Floats, space: Any) -> tuple[Floats, Floats] | None:
    """Return rows (m, d) for distinct states and the weight of each (m,), on which leaf sizes of a space mean what they mean on all rows.

    None if there would be too many, or if the space counts rows in a way that is not known.
    """
    least = least_rows(space)
    if least is None:
        return None
    enough = min(counts.sum(), LEAF_SIZE * ROWS_PER_STATE)  # for the rule of trees, which depends on the number of rows
    while np.minimum(counts, least).sum() < enough:
        least *= 2
    copies = np.minimum(counts, least).astype(np.int64)
    if copies.sum() > max(MOST_COPIES, len(states)):
        return None
    return np.repeat(states, copies, axis=0), np.repeat(counts / copies, copies)


def rows_of_rule(survey: Survey) -> int:
    """Return the number of rows from which the sizes of the default space follow: those of the sample, or, if states are merged, all of them.

    It is less than that if merged states would have to stand for too many rows.
    """
    n_rows = len(survey.sample)
    if survey.merged is not None and not survey.is_whole:
        n_rows, counts = survey.n_rows, survey.merged[1]
        while np.minimum(counts, least_rows(rules.default_space(n_rows)) or 1).sum() > MOST_COPIES:
            n_rows //= 2
            if n_rows <= rules.FEWEST_IN_LEAF * rules.ROWS_PER_LEAF_ROW:
                break
    return n_rows


def least_rows(space: Any) -> int | None:
    """Return the largest number of rows with which a space compares those of a leaf or a node; None if that is not known."""
    if isinstance(space, Classifier) or (callable(space) and not hasattr(space, "improve")):
        return None
    known = [getattr(space, name) for name in SIZES if hasattr(space, name)]
    sizes: list[int | None] = [LEAF_SIZE if size is None else size for size in known]
    if is_dataclass(space):
        inner = [getattr(space, f.name) for f in fields(space)]
        sizes += [least_rows(part) for part in inner if hasattr(part, "improve")]
    return None if None in sizes else max([1, *(size for size in sizes if size is not None)])


def recounted(policy: Policy, states: Floats, counts: Floats) -> Policy:
    """Return a tree or forest whose leaves have the numbers of rows that reach them; other policies stay as they are."""
    if isinstance(policy, ConstrainedPolicy):
        return replace(policy, policy=recounted(policy.policy, states, counts))
    if isinstance(policy, TreePolicy):
        return replace(policy, tree=_recounted(Forest([policy.tree]), states, counts).trees[0])
    if isinstance(policy, ForestPolicy):
        return replace(policy, forest=_recounted(policy.forest, states, counts), known=None, origin=None)
    return policy


def _recounted(forest: Forest, states: Floats, counts: Floats) -> Forest:
    starts = forest.leaf_starts
    found = np.zeros(int(starts[-1]), dtype=np.int64)
    for leaves in forest.leaves(states):
        np.add.at(found, leaves, counts.astype(np.int64))
    trees = [replace(tree, counts=found[a:b]) for tree, a, b in zip(forest.trees, starts, starts[1:], strict=False)]
    return Forest(trees, forest.projections)


def rescored(
    policy: TreePolicy | ForestPolicy, q: QFunction, excluded: Ints, survey: Survey, partitions: PartitionedTransitions
) -> tuple[Policy, float]:
    """Return the policy whose leaves take the action that loses least on all rows, and that loss per row."""
    forest = policy.forest if isinstance(policy, ForestPolicy) else Forest([policy.tree])
    crew = partitions.crew
    values: Any = q if not len(excluded) else rules.WithoutActions(q, excluded)
    largest = float(np.abs(values.values(survey.sample.states)).max())
    exponent = int(BITS - 1 - np.frexp(max(4 * largest, 1e-300) * survey.largest_weight * survey.n_rows)[1])
    handles = crew.each(
        _regret_sums, partitions.parts, crew.shared(forest.bare()), crew.shared(portable(values)), exponent
    )
    sums, weights, counts = crew.merged(_plus, handles)
    regrets, totals = np.ldexp(sums.astype(np.float64), -exponent), np.ldexp(weights.astype(np.float64), -exponent)
    starts = forest.leaf_starts
    trees = [
        replace(tree, sums=regrets[a:b], weights=totals[a:b], counts=counts[a:b])
        for tree, a, b in zip(forest.trees, starts, starts[1:], strict=False)
    ]
    if isinstance(policy, ForestPolicy):
        found = replace(policy, forest=Forest(trees, forest.projections), known=None, origin=None)
        return found, float("nan")
    leaf_regrets = regrets.min(axis=1)
    changed: dict[str, Any] = {"tree": trees[0], "leaf_regrets": leaf_regrets}
    return replace(policy, **changed), float(leaf_regrets.sum() / totals.sum())


def _regret_sums(source: Any, forest: Forest, q: QFunction, exponent: int) -> tuple[Ints, Ints, Ints]:
    """Return, for each leaf of a forest, the sums of the regrets (l, A) and weights (l,) of a part's rows, and their number."""
    t = loaded(source)
    values = q.values(t.states)
    regrets = values.max(axis=1)[:, None] - values
    w = np.ones(len(t)) if t.weights is None else t.weights
    whole = np.rint(np.ldexp(regrets * w[:, None], exponent)).astype(np.int64)
    weights = np.rint(np.ldexp(w, exponent)).astype(np.int64)
    sums = np.zeros((int(forest.leaf_starts[-1]), values.shape[1]), dtype=np.int64)
    totals, counts = np.zeros(len(sums), dtype=np.int64), np.zeros(len(sums), dtype=np.int64)
    for leaves in forest.leaves(t.states):
        order = np.argsort(leaves, kind="stable")
        at = np.flatnonzero(np.append(True, np.diff(leaves[order]) != 0))
        here = leaves[order][at]
        sums[here] += np.add.reduceat(whole[order], at, axis=0)
        totals[here] += np.add.reduceat(weights[order], at)
        counts[here] += np.diff(np.append(at, len(order)))
    return sums, totals, counts


def _plus(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))
