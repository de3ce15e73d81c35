"""Everything that the page says, as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from capi.policies import Constant
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.imitation import ReadByImitation
from capi.policy_spaces.linear import LinearPolicy
from capi.policy_spaces.trees import TreePolicy
from capi.report.flat import FlatTree
from capi.report.maps import influences, map_record
from capi.report.panel import panel_record
from capi.report.ranges import histogram
from capi.report.sources import Sources, read_sources
from capi.report.stakes import differences_record, leaves_record, stakes_record
from capi.report.wording import FEW, conditions, count_text, few_hidden, label_texts, percent_text, sentence
from capi.report.worth import evaluation_record, number_or_none
from capi.tables.columns import Column
from capi.validation import check_choice

MOST_LINES = 1500  # of rules
MOST_HISTOGRAMS = 24
KINDS = {
    "TreePolicy": "a decision tree",
    "ForestPolicy": "a forest: many decision trees that vote",
    "ThresholdPolicy": "one cut in one column",
    "LinearPolicy": "a linear rule: weighted sums of the columns, the largest of which wins",
    "NeighborPolicy": "a vote of the nearest known cases",
    "Constant": "the same action everywhere",
    "Mixture": "a draw among several policies; shown is the most probable action",
    "Greedy": "the action with the largest estimated value",
    "NonStationary": "a policy that changes with time; shown is its first step",
}


def report_record(run: str | Path, include_cases: bool = False) -> dict[str, Any]:
    """Return everything that the report of a run says, as plain values that JSON has.

    Parameters
    ----------
    run : str or Path
        The folder of a finished run.
    include_cases : bool
        Whether rows of the table may be in it, so that a reader sees the nearest logged cases. Otherwise there are aggregates
        only, none of them of fewer than five rows.
    """
    check_choice(include_cases, "include_cases", (True, False))
    sources = read_sources(run)
    ranked = influences(sources, _candidates(sources))
    return {
        "head": _head(sources),
        "data": _data(sources, ranked),
        "learned": _learned(sources, ranked),
        "panel": panel_record(sources, include_cases=include_cases),
        "convergence": _convergence(sources),
        "stakes": stakes_record(sources),
        "leaves": leaves_record(sources),
        "differences": differences_record(sources),
        "evaluation": None if sources.evaluation is None else evaluation_record(sources.evaluation),
        "making": _making(sources),
        "includes_cases": include_cases,
    }


def _candidates(sources: Sources) -> list[int]:
    """Return the columns that may matter: those of the program, or those of the tree that tells it first."""
    program = sources.program or sources.told.program
    used = _columns_of(sources, program.used)
    others = [] if sources.program else [i for i in range(len(sources.schema.columns)) if i not in used]
    return [*used, *others]


def _columns_of(sources: Sources, features: list[int]) -> list[int]:
    owner = [number for number, column in enumerate(sources.schema.columns) for _ in column.feature_names]
    return sorted({owner[j] for j in features})


def _head(sources: Sources) -> dict[str, Any]:
    settings, batch, found = sources.result.settings, sources.batch, sources.evaluation or {}
    return {
        "action_column": str(settings.roles["action"]),
        "reward_column": str(settings.roles["reward"]),
        "table": Path(settings.table).name,
        "n_rows": len(batch),
        "n_episodes": None if batch.episode is None else batch.n_episodes,
        "n_columns": len(sources.schema.columns),
        "actions": label_texts(sources.schema.action_labels),
        "kind": kind_of(sources),
        "estimate": number_or_none(found.get("estimate")),
        "interval": [number_or_none(end) for end in found.get("interval") or (None, None)],
        "level": number_or_none(found.get("level")),
        "doubtful": bool(found.get("doubtful", found.get("warnings"))),
    }


def kind_of(sources: Sources) -> str:
    """Return in words what kind of policy it is."""
    policy = sources.policy
    inner = policy.policy if isinstance(policy, ConstrainedPolicy) else policy
    known = [KINDS[base.__name__] for base in type(inner).__mro__ if base.__name__ in KINDS]
    words = known[0] if known else f"a policy of the kind {type(inner).__name__}"
    if sources.told.own and len(sources.told.tree) > 1 and isinstance(inner, TreePolicy):
        words += f" with {len(sources.told.tree.leaves)} leaves"
    return words + (", under rules that it must keep" if isinstance(policy, ConstrainedPolicy) else "")


def _data(sources: Sources, ranked: list[tuple[int, float]]) -> dict[str, Any]:
    batch = sources.batch
    described = batch.describe()
    rewards = {
        name: float(x)
        for name, x in zip(("low", "median", "high"), np.quantile(batch.rewards, [0.05, 0.5, 0.95]), strict=True)
    }
    order = [number for number, share in ranked if share > 0] or [number for number, _ in ranked]
    return {
        "n_rows": described.n_rows,
        "hold_out": float(getattr(sources.result.settings, "hold_out", 0.0)),
        "n_only_next": described.n_only_next,
        "n_episodes": described.n_episodes,
        "lengths": described.lengths,
        "n_terminated": few_hidden(described.n_terminated),
        "n_truncated": few_hidden(described.n_truncated),
        "assumed": described.assumed,
        "rewards": {**rewards, "mean": described.rewards["mean"], "deviation": described.rewards["deviation"]},
        "missing": [
            {"name": name, "rows": few_hidden(rows), "share": rows / len(batch) if rows >= FEW else None}
            for name, rows in described.missing.items()
        ],
        "actions": [
            {**asdict(a), "action": label, "rows": few_hidden(a.rows), "share": a.share if a.rows >= FEW else None}
            for a, label in zip(described.actions, label_texts(sources.schema.action_labels), strict=True)
        ],
        "warnings": [sentence(warning) for warning in described.warnings],
        "histograms": [_histogram(sources, number) for number in order[:MOST_HISTOGRAMS]],
        "n_not_shown": len(sources.schema.columns) - len(order[:MOST_HISTOGRAMS]),
    }


def _histogram(sources: Sources, number: int) -> dict[str, Any]:
    column, features = _features(sources, number)
    return histogram(column, features)


def _features(sources: Sources, number: int) -> tuple[Column, Any]:
    start = sum(len(column.feature_names) for column in sources.schema.columns[:number])
    column = sources.schema.columns[number]
    return column, sources.batch.states[:, start : start + len(column.feature_names)]


def _learned(sources: Sources, ranked: list[tuple[int, float]]) -> dict[str, Any]:
    told, policy = sources.told, sources.policy
    names = [column.name for column in sources.schema.columns]
    return {
        "own": told.own,
        "fidelity": told.fidelity,
        "summary": policy.summary() if isinstance(policy, ReadByImitation) else "",
        "rules": _rules(sources),
        "kept_rules": [str(rule) for rule in policy.kept_rules] if isinstance(policy, ConstrainedPolicy) else [],
        "tree": tree_record(sources),
        "influence": [{"name": names[number], "share": share} for number, share in ranked if share > 0][:10],
        "map": map_record(sources, ranked),
    }


def tree_record(sources: Sources) -> dict[str, Any]:
    """Return the tree that tells the policy, node by node, for the drawing."""
    tree = sources.told.tree
    labels = label_texts(sources.schema.action_labels)
    rows = np.bincount(sources.told.leaf_of_row, minlength=len(tree))
    nodes: list[dict[str, Any]] = []
    for node, left in enumerate(tree.left):
        if left < 0:
            actions = tree.actions[node]
            count = few_hidden(int(rows[node]))
            share = None if count is None else count / len(sources.batch)
            text = ", else ".join(labels[a] for a in actions)
            nodes.append({"left": -1, "text": text, "action": actions[0], "rows": count, "share": share})
        else:
            cut = tree.feature[node], tree.at_most[node], tree.missing_left[node]
            yes, no = conditions(sources.schema, *cut, sources.with_missing)
            nodes.append({"left": left, "text": yes, "otherwise": no})
    return {"nodes": nodes, "levels": tree.levels, "leaves": tree.leaves}


def _rules(sources: Sources) -> dict[str, Any]:
    """Return the policy as text: its own rules where it can be read, else those of the tree that tells it."""
    policy, program = sources.policy, sources.program
    inner = policy.policy if isinstance(policy, ConstrainedPolicy) else policy
    own = True
    if isinstance(inner, LinearPolicy):
        lines = replace(inner, schema=sources.schema).rules().splitlines()
    elif isinstance(policy, Constant):
        lines = [f"always {label_texts(sources.schema.action_labels)[policy.action]}"]
    else:
        own = program is not None and len(program.trees) == 1
        tree = FlatTree.of(program.trees[0]) if program is not None and own else sources.told.tree
        lines = list(_lines(sources, tree))
    left_out = max(0, len(lines) - MOST_LINES)
    return {"text": "\n".join(lines[:MOST_LINES]), "own": own, "n_lines": len(lines), "n_left_out": left_out}


def _lines(sources: Sources, tree: FlatTree) -> Iterator[str]:
    """Yield the lines of a tree's rules, each leaf with its share of the rows."""
    labels = label_texts(sources.schema.action_labels)
    rows = np.bincount(tree.leaf_of(sources.batch.states), minlength=len(tree))
    waiting: list[tuple[int, str, str]] = [(0, "", "")]
    while waiting:
        node, indent, before = waiting.pop()
        if before:
            yield before
        left = tree.left[node]
        if left < 0:
            count = few_hidden(int(rows[node]))
            share = (
                f"{count_text(count)} rows" if count is None else percent_text(count / len(sources.batch)) + " of rows"
            )
            actions = ", else ".join(labels[a] for a in tree.actions[node])
            yield f"{indent}{actions}   ({share})"
            continue
        cut = tree.feature[node], tree.at_most[node], tree.missing_left[node]
        yes, _ = conditions(sources.schema, *cut, sources.with_missing)
        yield f"{indent}if {yes}:"
        waiting += [(left + 1, indent + "  ", f"{indent}else:"), (left, indent + "  ", "")]


def _convergence(sources: Sources) -> dict[str, list[float | None]]:
    """Return the history by column; numbers that are none are None."""
    history = sources.result.history
    known = [name for name in ("k", "loss", "changed", "value") if history and name in history[0]]
    return {
        name: [float(row[name]) if np.isfinite(row.get(name, np.nan)) else None for row in history] for name in known
    }


def _making(sources: Sources) -> dict[str, Any]:
    settings = sources.result.settings
    table = Path(settings.table).name
    training = getattr(sources.policy, "training", None)
    return {
        "settings": replace(settings, table=table).to_toml(),
        "table": table,
        "seed": settings.seed,
        "discount": settings.discount,
        "n_iterations": None if training is None else training.n_iterations,
        "versions": {} if training is None else dict(sorted(training.versions.items())),
    }
