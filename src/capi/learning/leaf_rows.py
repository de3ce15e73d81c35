"""Leaves of a learned tree, described by the rows of the batch.

Where states count by their visits (`capi.learning.decision_points`), trees are grown on weighted points, which are not the rows of the table. Readers
know the rows.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from capi.data.transitions import Transitions
from capi.errors import RareActionWarning
from capi.learning.iteration import Iteration
from capi.learning.rules import WithoutActions, excluded_actions
from capi.policy_spaces._problem import ImprovementProblem
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.trees.forest import Forest
from capi.types import Policy, QFunction


def with_rows(policy: Policy, q: QFunction, batch: Any, last: Iteration, evaluator: Any) -> Policy:
    """Return a tree whose leaves have the number of the batch's rows that reach them, and the regret of their decisions there.

    Other policies, and trees that were grown on the rows, stay as they are.
    """
    inner: Any = policy.policy if isinstance(policy, ConstrainedPolicy) else policy
    if last.visits is None or not isinstance(batch, Transitions) or not isinstance(inner, TreePolicy):
        return policy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RareActionWarning)  # the loop has warned
        excluded = excluded_actions(evaluator, batch)
    values = (WithoutActions(q, excluded) if len(excluded) else q).values(batch.states)
    lost = ImprovementProblem(batch.states, values, batch.weights, batch.allowed).lost
    decisions = policy.act(batch.states, batch.allowed)
    of_row = np.take_along_axis(lost, decisions[:, None], axis=1)[:, 0]
    leaf = Forest([inner.tree]).leaves(batch.states)[0]
    counted: TreePolicy = replace(
        inner,
        tree=replace(inner.tree, counts=np.bincount(leaf, minlength=inner.n_leaves)),
        leaf_regrets=np.bincount(leaf, weights=of_row, minlength=inner.n_leaves).astype(np.float64),
    )
    return replace(policy, policy=counted) if isinstance(policy, ConstrainedPolicy) else counted
