"""Where decisions matter, and where the policy decides otherwise than those who were logged: shares, never rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from capi.report.ranges import merged_histogram, thinned
from capi.report.sources import Sources
from capi.report.wording import FEW, conditions, few_hidden, label_texts
from capi.rows import chosen_entries
from capi.validation import Floats, Ints

HARDLY = 0.01  # of the spread of values: smaller gaps hardly matter
MOST_ACTIONS = 12  # in a cross table; the others are put together
N_BINS = 30


def action_gaps(values: Floats) -> Floats:
    """Return by how much the best action's value exceeds that of the second best (n,)."""
    best = np.partition(values, values.shape[1] - 2, axis=1)[:, -2:]
    return best[:, 1] - best[:, 0]


def spread_of(values: Floats) -> float:
    """Return how far apart the action values lie: the range without the lowest and the highest twentieth."""
    low, high = np.quantile(thinned(values), [0.05, 0.95])
    return float(high - low)


def _share_hardly(gaps: Floats, limit: float) -> float:
    """Return the share of gaps below the limit; equal values never matter."""
    return float(np.mean((gaps < limit) | (gaps == 0)))


def stakes_record(sources: Sources) -> dict[str, Any] | None:
    """Return how the action gap is spread and what share of decisions hardly matters, None without action values."""
    values = sources.values
    if values is None or values.shape[1] < 2:
        return None
    gaps, limit = action_gaps(values), HARDLY * spread_of(values)
    high = float(np.quantile(gaps, 0.95))
    edges, shares = merged_histogram(gaps, np.linspace(0, high or 1.0, N_BINS + 1))
    return {
        "spread": spread_of(values),
        "limit": limit,
        "mean": float(gaps.mean()),
        "median": float(np.median(gaps)),
        "share_hardly": _share_hardly(gaps, limit),
        "edges": edges,
        "shares": shares,
    }


def leaves_record(sources: Sources) -> list[dict[str, Any]]:
    """Return, for each leaf of the tree that tells the policy, how often it is met, what is decided and what is at stake."""
    told, values = sources.told, sources.values
    labels = label_texts(sources.schema.action_labels)
    differs = sources.decisions != sources.batch.actions
    gaps = action_gaps(values) if values is not None and values.shape[1] > 1 else None
    gained = None
    if values is not None:
        gained = chosen_entries(values, sources.decisions) - chosen_entries(values, sources.batch.actions)
    limit = HARDLY * spread_of(values) if values is not None else 0.0
    found = []
    for number, leaf in enumerate(told.tree.leaves):
        rows = np.flatnonzero(told.leaf_of_row == leaf)
        enough = len(rows) >= FEW
        record: dict[str, Any] = {
            "number": number + 1,
            "node": leaf,
            "where": where(sources, leaf),
            "decision": ", else ".join(labels[a] for a in told.tree.actions[leaf]),
            "action": told.tree.actions[leaf][0],
            "rows": few_hidden(len(rows)),
            "share": len(rows) / len(differs) if enough else None,
            "differs": float(differs[rows].mean()) if enough else None,
        }
        record["gap"] = float(gaps[rows].mean()) if enough and gaps is not None else None
        record["share_hardly"] = _share_hardly(gaps[rows], limit) if enough and gaps is not None else None
        record["hardly"] = record["gap"] is not None and (record["gap"] < limit or record["gap"] == 0)
        of_those = rows[differs[rows]]
        told_apart = gained is not None and len(of_those) >= FEW
        record["at_stake"] = float(gained[of_those].mean()) if told_apart and gained is not None else None
        found.append(record)
    _rank(found, "rank_gap", lambda leaf: leaf["gap"])
    _rank(found, "rank_differs", lambda leaf: None if leaf["differs"] is None else leaf["differs"] * leaf["share"])
    return found


def _rank(leaves: list[dict[str, Any]], name: str, size: Callable[[dict[str, Any]], float | None]) -> None:
    """Write the place of each leaf by size, the largest first and those that are not told last."""
    sizes = [size(leaf) for leaf in leaves]
    order = sorted(range(len(leaves)), key=lambda i: (sizes[i] is None, -(sizes[i] or 0.0), i))
    for place, i in enumerate(order):
        leaves[i][name] = place


def where(sources: Sources, leaf: int) -> list[str]:
    """Return the conditions under which a leaf of the tree is reached, in the words of the table."""
    tree = sources.told.tree
    words = []
    for node, holds in tree.path_to(leaf):
        cut = tree.feature[node], tree.at_most[node], tree.missing_left[node]
        yes, no = conditions(sources.schema, *cut, sources.with_missing)
        words.append(yes if holds else no)
    return words


def differences_record(sources: Sources) -> dict[str, Any]:
    """Return what was done against what the policy does: shares of the actions, agreement, and the cross table."""
    logged, decided = sources.batch.actions, sources.decisions
    names, places = _grouped(label_texts(sources.schema.action_labels), logged, decided)
    cells = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(cells, (places[logged], places[decided]), 1)
    n = len(logged)
    gain = None
    if sources.values is not None:
        gained = chosen_entries(sources.values, decided) - chosen_entries(sources.values, logged)
        gain = float(gained.mean())
    return {
        "actions": names,
        "logged": [_share(c, n) for c in cells.sum(axis=1)],
        "decided": [_share(c, n) for c in cells.sum(axis=0)],
        "cells": [[few_hidden(int(c)) for c in row] for row in cells],
        "row_shares": [[_share(c, int(row.sum())) for c in row] for row in cells],
        "agreement": float(np.mean(logged == decided)),
        "mean_gain": gain,
    }


def _share(count: Any, of: int) -> float | None:
    return None if few_hidden(int(count)) is None else (float(count) / of if of else 0.0)


def _grouped(labels: list[str], logged: Ints, decided: Ints) -> tuple[list[str], Ints]:
    """Return the names of a table's rows, and the row of each action: rare actions share the last one if there are many."""
    n_actions = len(labels)
    if n_actions <= MOST_ACTIONS:
        return labels, np.arange(n_actions)
    counts = np.bincount(logged, minlength=n_actions) + np.bincount(decided, minlength=n_actions)
    kept = np.sort(np.argsort(-counts, kind="stable")[: MOST_ACTIONS - 1])
    places = np.full(n_actions, len(kept))
    places[kept] = np.arange(len(kept))
    return [*(labels[a] for a in kept), f"others ({n_actions - len(kept)})"], places
