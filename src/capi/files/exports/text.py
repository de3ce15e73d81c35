"""Readable exports of a policy, as text, JSON and Graphviz; forests are written in full, tree by tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from capi._utils.validation import Ints
from capi.data.columns import Column
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.policies import Constant
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.linear.linear import LinearPolicy, StatesAndConstant
from capi.policy_spaces.supported import SupportedPolicy
from capi.policy_spaces.thresholds import ThresholdPolicy
from capi.policy_spaces.trees.forests import ForestPolicy
from capi.policy_spaces.trees.greedy import TreePolicy

DEEPEST = 200  # splits; deeper trees are not readable
DOT_NAMES = re.compile(r"^  n\w*( -> n\w*)?")  # at the beginning of a line
NODE_STYLE = 'node [shape=box, fontname="sans-serif"];'


def shown(policy: Any, to: str, note: str) -> str | None:
    """Return a policy as "text", "json" or "dot", or None if it can only be imitated."""
    rules: tuple[Any, ...] = ()
    remarks = note.splitlines()
    if isinstance(policy, SupportedPolicy):
        if to == "text" and (policy.tree is not None or _can_be_shown(policy.policy)):
            remarks = [*remarks, policy.remark]
        policy = policy.tree or (policy.inner if to == "text" else policy)
    if isinstance(policy, ConstrainedPolicy):
        inner: Any = policy.policy
        rules = policy.kept_rules
        policy = (
            replace(inner, schema=policy.schema) if policy.schema is not None and hasattr(inner, "schema") else inner
        )
    if not _can_be_shown(policy):
        return None
    if to != "text":  # rules() refers readers of large trees to this text
        for tree in _trees(policy):
            _check_depth(tree)
    if to == "json":
        return _json(_record(policy), rules, note)
    if to == "dot":
        return _dot(policy, [*note.splitlines(), *map(str, rules)])
    kept = ["keeping to:", *(f"  {rule}" for rule in rules)] if rules else []
    return "\n".join([*remarks, _text(policy), *kept])


def _can_be_shown(policy: Any) -> bool:
    kinds = (Constant, ForestPolicy, ThresholdPolicy)
    linear = type(policy) is LinearPolicy and isinstance(policy.features.transform, StatesAndConstant)
    return type(policy) in kinds or isinstance(policy, TreePolicy) or linear


def _trees(policy: Any) -> list[TreePolicy]:
    """Return the trees of a forest as policies, with the same names and labels."""
    if isinstance(policy, TreePolicy):
        return [policy]
    if not isinstance(policy, ForestPolicy):
        return []
    everywhere = np.ones(policy.n_inputs, dtype=bool)  # new states may have missing values anywhere
    return [
        TreePolicy(
            tree,
            policy.n_actions,
            policy.n_inputs,
            everywhere,
            tree.sums.min(axis=1),
            policy.masked,
            schema=_with_combinations(policy),
        )
        for tree in policy.forest.trees
    ]


def _with_combinations(policy: ForestPolicy) -> Schema | None:
    """Return the schema with the combinations that the trees cut as columns, named by their formulas."""
    if policy.forest.projections is None:
        return policy.schema
    schema = policy.schema or Schema.of(policy.n_features, policy.n_actions)
    names = [
        f"days({name} - {column.origin})" if column.kind == "date" else name
        for column in schema.columns
        for name in column.feature_names
    ]
    formulas = policy.forest.projections.named(tuple(names))
    columns = (*schema.columns, *map(Column, formulas))
    return Schema((*schema.feature_names, *formulas), schema.action_labels, columns)


def _check_depth(policy: TreePolicy) -> None:
    left = policy.tree.nodes["left"]
    depth: Ints = np.zeros(len(left), dtype=np.int64)
    for i in np.flatnonzero(left >= 0):  # children follow their parents
        depth[left[i]] = depth[left[i] + 1] = depth[i] + 1
    if depth.max() > DEEPEST:
        raise InvalidInputError(
            f"trees must have at most {DEEPEST} splits on a path to be shown as JSON or DOT; got {depth.max()}. Export them as text, or "
            "learn with a smaller max_depth."
        )


def _text(policy: Any) -> str:
    if isinstance(policy, Constant):
        return f"always {_label(policy)}"
    if not isinstance(policy, ForestPolicy):
        return str(policy.rules(full=True) if isinstance(policy, TreePolicy) else policy.rules())
    trees = [tree.rules(full=True) for tree in _trees(policy)]
    head = f"The action with the most votes of {len(trees)} trees; the first one wins ties:"
    return "\n".join([head, *(f"tree {i + 1}:\n{text}" for i, text in enumerate(trees))])


def _record(policy: Any) -> dict[str, Any]:
    if isinstance(policy, Constant):
        return {"action": _label(policy)}
    if isinstance(policy, ForestPolicy):
        return {"decides": "most votes, the first among equals", "trees": [tree.to_dict() for tree in _trees(policy)]}
    record: dict[str, Any] = policy.to_dict()
    return record


def _label(policy: Constant) -> Any:
    return policy.schema.action_labels[policy.action] if policy.schema else policy.action


def _json(record: dict[str, Any], rules: tuple[Any, ...], note: str) -> str:
    if rules:
        record = {"policy": record, "rules": list(map(str, rules))}
    if note:
        record = {"note": note, **record}
    return json.dumps(_finite(record), indent=2, ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    """Return a document with non-finite numbers, which JSON cannot hold, as text."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _dot(policy: Any, notes: list[str]) -> str:
    label = [f"  label={quoted(chr(10).join(notes))};"] if notes else []
    if isinstance(policy, TreePolicy):
        first, *rest = policy.to_dot().split("\n")
        return "\n".join([first, *label, *rest])
    body = _forest_dot(policy) if isinstance(policy, ForestPolicy) else _small_dot(policy)
    return "\n".join(["digraph policy {", f"  {NODE_STYLE}", *label, *body, "}"])


def _forest_dot(policy: ForestPolicy) -> Iterator[str]:
    for i, tree in enumerate(_trees(policy)):
        yield f"  subgraph cluster_{i} {{"
        yield f"  label={quoted(f'tree {i + 1} of {len(policy.forest.trees)}, which vote')};"
        for line in tree.to_dot().split("\n")[2:-1]:
            yield DOT_NAMES.sub(lambda found, i=i: found[0].replace("n", f"t{i}n"), line)  # type: ignore[misc]
        yield "  }"


def _small_dot(policy: Any) -> Iterator[str]:
    """Yield the graph of a constant, threshold or linear policy."""
    if isinstance(policy, Constant):
        yield f"  n [label={quoted(str(_label(policy)))}, style=rounded];"
        return
    record = policy.to_dict()
    if isinstance(policy, ThresholdPolicy):
        if "action" in record:
            yield f"  n [label={quoted(str(record['action']))}, style=rounded];"
            return
        plain = f"x{policy.feature} <= {policy.cut!r}"
        condition = policy.schema.condition(policy.feature, policy.cut) if policy.schema else plain
        yield f"  n [label={quoted(condition)}];"
        for branch, word in (("then", "yes"), ("else", "no")):
            yield f"  n{branch[0]} [label={quoted(str(record[branch]['action']))}, style=rounded];"
            yield f'  n -> n{branch[0]} [label="{word}"];'
        return
    for j, feature in enumerate(record["features"]):
        yield f"  x{j} [label={quoted(str(feature))}];"
    for a, (action, weights) in enumerate(zip(record["actions"], record["weights"], strict=True)):
        yield f"  a{a} [label={quoted(f'score of {action}')}, style=rounded];"
        yield from (f'  x{j} -> a{a} [label="{w!r}"];' for j, w in enumerate(weights) if w != 0)


def quoted(text: str) -> str:
    """Return text as a Graphviz string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\0", " ")
    return f'"{escaped}"'
