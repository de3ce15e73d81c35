"""Policies as programs: trees that vote or scores that are compared, in the columns of the table. Exports are written from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.data.columns import Column
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.files.exports.flat_tree import FlatTree
from capi.policies import Constant
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.linear.linear import LinearPolicy, StatesAndConstant
from capi.policy_spaces.rules import Forbidden
from capi.policy_spaces.supported import SupportedPolicy
from capi.policy_spaces.thresholds import ThresholdPolicy
from capi.policy_spaces.trees.forests import ForestPolicy
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.trees.projections import Projections


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores: the action with the largest weighted sum of scaled columns plus a constant is taken."""

    origin: Floats  # (d,)
    unit: Floats  # (d,)
    weights: Floats  # (A, d + 1)


@dataclass(frozen=True)
class Feature:
    """A feature, as its column and its position in that column."""

    column: Column
    position: int


@dataclass(frozen=True, eq=False)
class Program:
    """A policy that does not need the library: trees that vote (a single one decides), or scores; the lowest action wins ties."""

    schema: Schema
    trees: tuple[FlatTree, ...] = ()
    scores: Scores | None = None
    forbidden: tuple[Forbidden, ...] = ()
    needed: tuple[int, ...] = ()  # features that must not be missing
    combinations: Projections | None = None  # of features; trees count them after the features

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.schema.action_labels)

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """The column of each feature."""
        return tuple(Feature(column, i) for column in self.schema.columns for i in range(len(column.feature_names)))

    @cached_property
    def used(self) -> list[int]:
        """The features that decisions depend on."""
        found = set(self.needed)
        for rule in self.forbidden:
            found |= {*rule.box.low, *rule.box.high}
        found |= self._cut & set(range(len(self.features)))
        for j in self.combined:
            found.update(i for i, _ in self.terms(j))
        return sorted(found)

    @cached_property
    def combined(self) -> list[int]:
        """The combinations that decisions depend on, as trees count them."""
        return sorted(self._cut - set(range(len(self.features))))

    def terms(self, j: int) -> list[tuple[int, float]]:
        """Return the features and coefficients of a combination, to be added in this order."""
        if self.combinations is None or j < len(self.features):
            return []
        k = j - len(self.features)
        pairs = zip(self.combinations.columns[k].tolist(), self.combinations.coefficients[k].tolist(), strict=True)
        return [(i, c) for t, (i, c) in enumerate(pairs) if t < 2 or c != 0]

    @cached_property
    def _cut(self) -> set[int]:
        return {j for tree in self.trees for j in tree.feature if j >= 0}

    @cached_property
    def depth(self) -> int:
        """The largest number of splits on any path."""
        return max((max(tree.levels) for tree in self.trees), default=0)

    @cached_property
    def barred(self) -> frozenset[int]:
        """The actions that a rule forbids somewhere."""
        return _barred(self.forbidden)


def program_of(policy: Any) -> Program | None:
    """Return a policy as a program, or None if it can only be imitated."""
    rules: tuple[Forbidden, ...] = ()
    if isinstance(policy, SupportedPolicy) and not policy.masked:
        if policy.tree is None:
            return None
        policy = policy.tree
    inner, schema = policy, getattr(policy, "schema", None)
    if isinstance(policy, ConstrainedPolicy):
        inner, rules = policy.policy, policy.compiled.forbidden
    elif getattr(policy, "masked", False):
        raise InvalidInputError(
            "this policy was learned with masks of allowed actions, which exported code does not have. "
            "Export it to text, json or dot, or state what is allowed as rules (Constrained)."
        )
    found = _plain(inner, _barred(rules))
    if found is None:
        return None
    n_features, n_actions, make = found
    program = make(schema or Schema.of(n_features, n_actions))
    return replace(program, forbidden=rules)


def _plain(policy: Any, barred: frozenset[int]) -> tuple[int, int, Any] | None:
    """Return the number of features and actions, and a function that makes the program, for a policy without rules."""
    kind = type(policy)
    if kind is Constant:
        n_features = len(policy.schema.feature_names) if policy.schema else 1
        leaf = _ranked(np.argsort(np.arange(policy.n_actions) != policy.action, kind="stable"), barred)
        return n_features, policy.n_actions, lambda schema: Program(schema, (FlatTree.leaf(leaf),))
    if isinstance(policy, TreePolicy):
        tree = FlatTree.of(policy.tree, [_ranked(row, barred) for row in policy.ranking])
        return policy.n_features, policy.n_actions, lambda schema: Program(schema, (tree,))
    if kind is ForestPolicy:
        trees = tuple(
            FlatTree.of(tree, [_ranked(row, barred) for row in np.argsort(tree.sums, axis=1, kind="stable")])
            for tree in policy.forest.trees
        )
        return policy.n_features, policy.n_actions, lambda s: Program(s, trees, combinations=policy.forest.projections)
    if kind is ThresholdPolicy:
        low, high = (_ranked(row, barred) for row in policy.ranking)
        tree = FlatTree.leaf(low) if policy.cut == np.inf else FlatTree.split(policy.feature, policy.cut, low, high)
        return policy.n_features, policy.n_actions, lambda s: Program(s, (tree,), needed=(policy.feature,))
    if kind is LinearPolicy and isinstance(policy.features.transform, StatesAndConstant):
        scaling, d = policy.features.transform.scaling, policy.n_features
        scores = Scores(scaling.origin, scaling.unit, policy.weights)
        return d, policy.n_actions, lambda s: Program(s, scores=scores, needed=tuple(range(d)))
    return None


def _barred(rules: tuple[Forbidden, ...]) -> frozenset[int]:
    return frozenset(a for rule in rules for a in rule.actions)


def _ranked(actions: Ints, barred: frozenset[int]) -> tuple[int, ...]:
    """Return the actions of a leaf (A,), up to the first that no rule ever forbids."""
    known = actions.tolist()
    sure = next((i for i, a in enumerate(known) if a not in barred), len(known) - 1)
    return tuple(known[: sure + 1])
