"""Learning from a partitioned batch: the loop runs on a sample of its episodes, and all rows decide what is averaged.

What an evaluator averages is summed over all rows (`capi.evaluators.over_partitions`). Policies are improved on the sample or, with
``state_weights="batch"`` and few distinct states, on all of them, merged with their numbers of rows. A tree or forest that was learned
on a sample of evenly weighted states chooses the actions of its leaves by all rows in the end.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from capi._utils.randomness import seed_sequence
from capi._utils.validation import Ints
from capi.data.partitions import PartitionedTransitions
from capi.data.survey import Survey, loaded
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError, RareActionWarning
from capi.evaluators._batches import portable
from capi.evaluators.over_partitions import BITS, OverPartitions
from capi.learning import rules
from capi.learning.iteration import Loop
from capi.policy_spaces.neighbors.local_averages import LocalAverages
from capi.policy_spaces.neighbors.neighbors import Neighbors
from capi.policy_spaces.trees.forests import ForestPolicy
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.trees.forest import Forest
from capi.types import Policy, QFunction


@dataclass(frozen=True, eq=False)
class Localised:
    """A loop on the sample of a partitioned batch."""

    loop: Loop
    batch: Transitions
    states: Any
    survey: Survey
    partitions: PartitionedTransitions

    def finished(self, policy: Policy, q: QFunction, *, is_last: bool) -> tuple[Policy, float | None]:
        """Return the policy whose leaves take the action that loses least on all rows, and that loss per row.

        Policies that are no trees, that were learned with masks, constraints or weights by occupancy, or from all rows, stay as they are. So does
        the policy of an earlier round (not ``is_last``) that was kept for its score: ``q`` is then its own, not the one that it was chosen by, and
        would improve it once more, into a policy without a score.
        """
        if not is_last:
            return policy, None
        plain = isinstance(policy, TreePolicy | ForestPolicy) and not policy.masked
        chosen = getattr(policy, "chosen", None) is not None
        if not plain or chosen or self.states is not None or self.loop.state_weights != "batch" or self.survey.is_whole:
            return policy, None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RareActionWarning)  # the loop has warned already
            excluded = rules.excluded_actions(self.loop.evaluator, self.batch)
        return rescored(policy, q, excluded, self.survey, self.partitions)  # type: ignore[arg-type]


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
    if loop.state_weights == "batch" and states is None and survey.merged is not None and not survey.is_whole:
        states = survey.merged
    loop = rules.with_rules(loop, survey.sample, states)
    if not survey.is_whole:
        loop = replace(loop, evaluator=OverPartitions(loop.evaluator, partitions, survey))
    return Localised(loop, survey.sample, states, survey, partitions)


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
