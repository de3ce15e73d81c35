"""The content of the page as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.validation import check_choice
from capi.data.columns import Column
from capi.data.elapsed import discount_unit
from capi.data.summary.description import Coverage
from capi.data.table_files import file_name
from capi.files.exports.flat_tree import FlatTree
from capi.policies import Constant
from capi.policy_spaces.constrained import ConstrainedPolicy
from capi.policy_spaces.imitation import ReadByImitation
from capi.policy_spaces.linear.linear import LinearPolicy
from capi.policy_spaces.supported import SupportedPolicy
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.report.certificate import certificate_record
from capi.report.columns import histogram, range_of_most
from capi.report.costs import evaluation_of_costs, negated, negative
from capi.report.diagnosis import diagnosis_record
from capi.report.evaluation import evaluation_record, headline_record, number_or_none, of_behaviour
from capi.report.importance import differences_record, leaf_rows, leaves_record, stakes_record
from capi.report.maps import influences, map_record
from capi.report.panel import panel_record
from capi.report.selection import selection_record
from capi.report.sources import Sources, read_sources
from capi.report.wording import (
    column_of,
    conditions,
    few_hidden,
    label_texts,
    percent_text,
    shown_caveat,
    shown_counts,
    shown_share,
)

MOST_LINES = 1500  # lines of rules
MOST_RULE_LETTERS = 300_000
MOST_ITERATIONS = 1e9
MOST_HISTOGRAMS = 24
KINDS = {
    "TreePolicy": "a decision tree",
    "ForestPolicy": "a forest of decision trees that vote",
    "ThresholdPolicy": "one cut in one column",
    "LinearPolicy": "a linear rule (one weighted sum of the columns per action; the largest wins)",
    "NeighborsPolicy": "a vote of the nearest known cases",
    "Constant": "the same action everywhere",
    "ReweightedPolicy": "what was done, with better actions drawn more often (its most probable action is shown)",
    "ClonedBehaviour": "what was done, drawn with the same probabilities (its most probable action is shown)",
    "Mixture": "a random mixture of several policies (its most probable action is shown)",
    "Greedy": "the action with the largest estimated value",
    "NonStationary": "a policy that changes with time (its first step is shown)",
}


def report_record(run: str | Path, include_cases: bool = False) -> dict[str, Any]:
    """Return the content of a run's report as plain values that JSON can hold.

    Parameters
    ----------
    run : str or Path
        The folder of a finished run.
    include_cases : bool
        Whether to include rows of the table, which lets a reader see the nearest logged cases. Otherwise the record holds aggregates
        only, none of them over fewer than five rows.
    """
    check_choice(include_cases, "include_cases", (True, False))
    sources = read_sources(run)
    selection = selection_record(sources.result.folder, is_cost=sources.is_cost)
    if sources.evaluation is not None and selection is not None and selection["is_behaviour"]:
        sources = replace(sources, evaluation=of_behaviour(sources.evaluation))
    if sources.evaluation is not None and sources.is_cost:
        sources = replace(sources, evaluation=evaluation_of_costs(sources.evaluation))
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
        "diagnosis": None if sources.tiny else diagnosis_record(sources.result.folder),
        "certificate": None if sources.tiny else certificate_record(sources.result.folder),
        "selection": selection,
        "making": _making(sources),
        "includes_cases": include_cases,
        "tiny": sources.tiny,
        "foreign_evaluation": sources.foreign,
    }


def _candidates(sources: Sources) -> list[int]:
    """Return the columns that may matter: those of the program, or all, with those of the imitating tree first."""
    program = sources.program or sources.shown.program
    used = _columns_of(sources, program.used)
    others = [] if sources.program else [i for i in range(len(sources.schema.columns)) if i not in used]
    return [*used, *others]


def _columns_of(sources: Sources, features: list[int]) -> list[int]:
    owner = [number for number, column in enumerate(sources.schema.columns) for _ in column.feature_names]
    return sorted({owner[j] for j in features})


def _head(sources: Sources) -> dict[str, Any]:
    settings, found = sources.result.settings, sources.evaluation or {}
    return {
        "action_column": str(settings.roles["action"]),
        "reward_column": str(settings.roles.get("reward") or settings.roles["cost"]),
        "is_cost": sources.is_cost,
        "table": file_name(settings.table),
        "n_rows": sources.described.n_rows,
        "n_episodes": sources.described.n_episodes,
        "n_columns": len(sources.schema.columns),
        "actions": label_texts(sources.schema.action_labels),
        "kind": kind_of(sources),
        **headline_record(found),
        "level": _level(found),
        "discount": float(settings.discount),
    }


def _level(found: dict[str, Any]) -> float | None:
    level = number_or_none(found.get("level"))
    return level if level is not None and 0 < level < 1 else None


def kind_of(sources: Sources) -> str:
    """Return a description of the kind of policy."""
    policy = sources.policy
    inner = policy.policy if isinstance(policy, ConstrainedPolicy | SupportedPolicy) else policy
    known = [KINDS[base.__name__] for base in type(inner).__mro__ if base.__name__ in KINDS]
    words = known[0] if known else f"a policy of type {type(inner).__name__}"
    if sources.shown.own and len(sources.shown.tree) > 1 and isinstance(inner, TreePolicy):
        words += f" with {len(sources.shown.tree.leaves)} leaves"
    if isinstance(policy, SupportedPolicy):
        return f"{words}, that chooses only among actions that the log takes often enough in similar states"
    return words + (", under rules that it must follow" if isinstance(policy, ConstrainedPolicy) else "")


def _data(sources: Sources, ranked: list[tuple[int, float]]) -> dict[str, Any]:
    batch, tiny = sources.batch, sources.tiny
    described = sources.described
    rewards = {**range_of_most(batch.rewards), "mean": described.rewards["mean"]}
    ends = shown_counts([described.n_terminated, described.n_truncated])
    counts = [None] * batch.n_actions if tiny else shown_counts([a.rows for a in described.actions])
    order = [number for number, share in ranked if share > 0] or [number for number, _ in ranked]
    return {
        "n_rows": described.n_rows,
        "sample_rows": described.sample_rows,
        "hold_out": float(getattr(sources.result.settings, "hold_out", 0.0)),
        "n_only_next": described.n_only_next,
        "n_episodes": described.n_episodes,
        "lengths": {"median": described.lengths["median"]},
        "n_terminated": None if tiny else ends[0],
        "n_truncated": None if tiny else ends[1],
        "assumed": described.assumed,
        "rewards": None if tiny else negated(rewards) if sources.is_cost else rewards,
        "missing": [] if tiny else [_missing(name, n, described.n_rows) for name, n in described.missing.items()],
        "actions": [
            _action(a, label, rows, hidden=tiny)
            for a, label, rows in zip(described.actions, label_texts(sources.schema.action_labels), counts, strict=True)
        ],
        "warnings": [] if tiny else [shown_caveat(caveat) for caveat in described.warnings],
        "histograms": [] if tiny else [_histogram(sources, number) for number in order[:MOST_HISTOGRAMS]],
        "n_not_shown": len(sources.schema.columns) - len(order[:MOST_HISTOGRAMS]),
    }


def _missing(name: str, rows: int, of: int) -> dict[str, Any]:
    share = shown_share(rows, of)
    return {"name": name, "rows": None if share is None else rows, "share": share}


def _action(found: Coverage, label: str, rows: int | None, *, hidden: bool) -> dict[str, Any]:
    """Return how often an action was taken, without numbers based on too few rows."""
    share = None if rows is None else found.share
    few = hidden or few_hidden(found.rows) is None
    own = {"effective": None, "covered": None} if few else {"effective": found.effective, "covered": found.covered}
    return {"action": label, "rows": rows, "share": share, **own}


def _histogram(sources: Sources, number: int) -> dict[str, Any]:
    column, features = _features(sources, number)
    return histogram(column, features)


def _features(sources: Sources, number: int) -> tuple[Column, Any]:
    start = sum(len(column.feature_names) for column in sources.schema.columns[:number])
    column = sources.schema.columns[number]
    return column, sources.batch.states[:, start : start + len(column.feature_names)]


def _learned(sources: Sources, ranked: list[tuple[int, float]]) -> dict[str, Any]:
    shown, policy = sources.shown, sources.policy
    names = [column.name for column in sources.schema.columns]
    return {
        "own": shown.own,
        "fidelity": shown.fidelity,
        "summary": policy.summary() if isinstance(policy, ReadByImitation) else "",
        "rules": _rules(sources),
        "kept_rules": [str(rule) for rule in policy.kept_rules] if isinstance(policy, ConstrainedPolicy) else [],
        "tree": tree_record(sources),
        "influence": []
        if sources.tiny
        else [{"name": names[i], "share": share} for i, share in ranked if share > 0][:10],
        "map": None if sources.tiny else map_record(sources, ranked),
    }


def tree_record(sources: Sources) -> dict[str, Any]:
    """Return the tree that shows the policy, node by node, for the drawing."""
    tree = sources.shown.tree
    labels = label_texts(sources.schema.action_labels)
    rows = leaf_rows(sources)
    nodes: list[dict[str, Any]] = []
    for node, left in enumerate(tree.left):
        if left < 0:
            actions = tree.actions[node]
            count = rows[node]
            share = None if count is None else count / len(sources.batch)
            text = ", else ".join(labels[a] for a in actions)
            nodes.append({"left": -1, "text": text, "action": actions[0], "rows": count, "share": share})
        else:
            cut = tree.feature[node], tree.at_most[node], tree.missing_left[node]
            yes, no = conditions(sources.display_schema, *cut, sources.with_missing)
            name = column_of(sources.display_schema, tree.feature[node])[1].name
            nodes.append({"left": left, "text": yes, "otherwise": no, "name": name if yes.startswith(name) else ""})
    return {"nodes": nodes, "levels": tree.levels, "leaves": tree.leaves}


def _rules(sources: Sources) -> dict[str, Any]:
    """Return the policy as text: its own rules if they are readable, otherwise those of the imitating tree."""
    policy, program = sources.policy, sources.program
    inner = policy.policy if isinstance(policy, ConstrainedPolicy) else policy
    own = True
    if isinstance(inner, LinearPolicy):
        lines = replace(inner, schema=sources.schema).rules().splitlines()
    elif isinstance(policy, Constant):
        lines = [f"always {label_texts(sources.schema.action_labels)[policy.action]}"]
    else:
        own = program is not None and len(program.trees) == 1
        tree = program.trees[0] if program is not None and own else sources.shown.tree
        lines = list(_lines(sources, tree))
    letters = np.cumsum([len(line) + 1 for line in lines])
    n = min(len(lines), MOST_LINES, int(np.searchsorted(letters, MOST_RULE_LETTERS, side="right")))
    return {"text": "\n".join(lines[:n]), "own": own, "n_lines": len(lines), "n_left_out": len(lines) - n}


def _lines(sources: Sources, tree: FlatTree) -> Iterator[str]:
    """Yield the lines of a tree's rules, each leaf with its share of the rows."""
    labels = label_texts(sources.schema.action_labels)
    counts = np.bincount(tree.leaf_of(sources.batch.states), minlength=len(tree))[tree.leaves]
    shown = [None] * len(counts) if sources.tiny else shown_counts(counts.tolist())
    rows = dict(zip(tree.leaves, shown, strict=True))
    waiting: list[tuple[int, str, str]] = [(0, "", "")]
    while waiting:
        node, indent, before = waiting.pop()
        if before:
            yield before
        left = tree.left[node]
        if left < 0:
            count = rows[node]
            share = "" if count is None else f"   ({percent_text(count / len(sources.batch))} of rows)"
            actions = ", else ".join(labels[a] for a in tree.actions[node])
            yield f"{indent}{actions}{share}"
            continue
        cut = tree.feature[node], tree.at_most[node], tree.missing_left[node]
        yes, _ = conditions(sources.display_schema, *cut, sources.with_missing)
        yield f"{indent}if {yes}:"
        waiting += [(left + 1, indent + "  ", f"{indent}else:"), (left, indent + "  ", "")]


def _convergence(sources: Sources) -> dict[str, Any]:
    """Return the history by column, with None for non-finite numbers, and the iteration that was kept: None if it was the last one."""
    history = [row for row in sources.result.history if 0 <= row.get("k", -1) < MOST_ITERATIONS]
    known = [
        name
        for name in ("k", "loss", "changed", "value", "score", "effective_rows")
        if any(name in row for row in history)
    ]
    found: dict[str, Any] = {name: [number_or_none(row.get(name)) for row in history] for name in known}
    for name in {"value", "score"} & set(known) if sources.is_cost else ():
        found[name] = list(map(negative, found[name]))
    in_episodes = any("careful_score" in row for row in history)
    candidates = sum("score" in row for row in history)
    return {**found, "kept": _kept(sources), "candidates": candidates, "in_episodes": in_episodes}


def _kept(sources: Sources) -> int | None:
    """Return the iteration, counted from 1, whose policy was kept as the best, or None if the run did not select one."""
    training = getattr(sources.policy, "training", None)
    n_iterations = len(sources.result.history)
    if sources.result.settings.keep != "best" or training is None:
        return None
    return training.n_iterations if 1 <= training.n_iterations <= n_iterations else None


def _making(sources: Sources) -> dict[str, Any]:
    settings = sources.result.settings
    table = file_name(settings.table)
    training = getattr(sources.policy, "training", None)
    return {
        "settings": replace(settings, table=table).to_toml(),
        "table": table,
        "seed": settings.random_state,
        "discount": settings.discount,
        "discount_per": discount_unit(sources.batch),
        "n_iterations": None if training is None else max(training.n_iterations, len(sources.result.history)),
        "kept": _kept(sources),
        "versions": {} if training is None else dict(sorted(training.versions.items())),
    }
