"""How much of a policy stays the same if it is learned from resampled episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.data.transitions import Transitions
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.imitation import imitating_tree
from capi.policy_spaces.supported import SupportedPolicy
from capi.policy_spaces.thresholds import ThresholdPolicy
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.selection._refits import Refit
from capi.types import Policy


class Stability(NamedTuple):
    """Shares of the refits that agree with the policy."""

    root: float  # on the column of the first split
    columns: float  # on all columns
    decisions: float  # mean over the rows
    by_row: Floats  # (n,)


class Outline(NamedTuple):
    """The column of a tree's first split, and all its columns."""

    root: int | None
    columns: frozenset[int]


def stability_of(policy: Policy, batch: Transitions, resamples: Sequence[Refit]) -> Stability:
    """Return how many of the refits have the same outline as ``policy``, and make the same decisions in the rows of ``batch``."""
    if not resamples:
        return Stability(math.nan, math.nan, math.nan, np.full(len(batch), np.nan))
    decisions = policy.act(batch.states, batch.allowed)
    outline = _outline(policy, batch, decisions)
    roots, columns, same = [], [], np.zeros(len(batch))
    for refit in resamples:
        theirs = refit.policy.act(batch.states, batch.allowed)
        found = _outline(refit.policy, batch, theirs)
        roots.append(found.root == outline.root)
        columns.append(found.columns == outline.columns)
        same += theirs == decisions
    by_row = same / len(resamples)
    mean = float(np.average(by_row, weights=batch.weights))
    return Stability(float(np.mean(roots)), float(np.mean(columns)), mean, by_row)


def _outline(policy: Any, batch: Transitions, decisions: Ints) -> Outline:
    """Return the outline of a tree, or of the small tree by which rules show another policy."""
    inner = policy.policy if isinstance(policy, ConstrainedPolicy | SupportedPolicy) else policy
    owner = [number for number, column in enumerate(batch.schema.columns) for _ in column.feature_names]
    if isinstance(inner, ThresholdPolicy):
        constant = inner.cut == np.inf
        return (
            Outline(None, frozenset()) if constant else Outline(owner[inner.feature], frozenset({owner[inner.feature]}))
        )
    if not isinstance(inner, TreePolicy):
        inner = imitating_tree(batch.states, decisions, batch.n_actions, batch.allowed)
    nodes = inner.tree.nodes
    cut = nodes["feature"][nodes["left"] >= 0].tolist()
    return Outline(owner[int(nodes["feature"][0])] if cut else None, frozenset(owner[j] for j in cut))
