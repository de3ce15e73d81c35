"""Where decisions matter, and where the policy differs from the logged behaviour: shares, never rows."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any

import numpy as np

from capi._utils.row_ops import chosen_entries
from capi._utils.validation import Floats, Ints
from capi.loss import negligible_gap, second_best_gap
from capi.report.columns import merged_histogram, nice
from capi.report.sources import Sources
from capi.report.wording import FEW, conditions, few_hidden, label_texts, shown_cells, shown_counts, shown_share

MOST_ACTIONS = 12  # in a cross table; the others are grouped
N_BINS = 30


def gaps_and_limit(sources: Sources) -> tuple[Floats, float] | None:
    """Return the loss of the second-best action (n,), infinite where there is no choice, and the largest loss that is negligible."""
    values, allowed = sources.values, sources.batch.allowed
    if values is None or values.shape[1] < 2 or sources.tiny:
        return None
    gaps = second_best_gap(values, allowed)
    return (gaps, negligible_gap(values, allowed)) if np.isfinite(gaps).sum() >= FEW else None


def _share_hardly(gaps: Floats, limit: float) -> float | None:
    """Return the share of gaps up to the limit, or None if it must be hidden."""
    return shown_share(int((gaps <= limit).sum()), len(gaps))


def stakes_record(sources: Sources) -> dict[str, Any] | None:
    """Return the distribution of the action gap and the share of decisions that matter little, or None without action values."""
    found = gaps_and_limit(sources)
    if found is None:
        return None
    gaps, limit = found[0][np.isfinite(found[0])], found[1]
    beyond = min(max(FEW, floor(0.05 * len(gaps))), len(gaps) - 1)
    step = nice(float(np.sort(gaps)[-1 - beyond]) / N_BINS)
    edges, shares = merged_histogram(gaps, np.linspace(0.0, N_BINS * step, N_BINS + 1))
    return {
        "limit": limit,
        "mean": float(gaps.mean()),
        "median": float(np.median(gaps)),
        "share_hardly": _share_hardly(gaps, limit),
        "edges": edges,
        "shares": shares,
    }


def leaves_record(sources: Sources) -> list[dict[str, Any]]:
    """Return, for each leaf of the tree that shows the policy, how often it is reached, its decision and what is at stake."""
    shown = sources.shown
    labels = label_texts(sources.schema.action_labels)
    differs = sources.decisions != sources.batch.actions
    gaps, limit = gaps_and_limit(sources) or (None, 0.0)
    gained = _gains(sources)
    rows_of = [np.flatnonzero(shown.leaf_of_row == leaf) for leaf in shown.tree.leaves]
    counts = leaf_rows(sources)
    found = []
    for number, (leaf, rows) in enumerate(zip(shown.tree.leaves, rows_of, strict=True)):
        enough = len(rows) >= FEW and not sources.tiny
        record: dict[str, Any] = {
            "number": number + 1,
            "node": leaf,
            "where": where(sources, leaf),
            "decision": ", else ".join(labels[a] for a in shown.tree.actions[leaf]),
            "action": shown.tree.actions[leaf][0],
            "rows": counts[leaf],
            "share": None if counts[leaf] is None else len(rows) / len(differs),
            "differs": shown_share(int(differs[rows].sum()), len(rows)) if enough else None,
            "leaves_log": _leaves_log(sources, rows) if enough else None,
        }
        free = np.zeros(0) if gaps is None else gaps[rows][np.isfinite(gaps[rows])]
        record["gap"] = float(free.mean()) if enough and len(free) >= FEW else None
        record["share_hardly"] = _share_hardly(free, limit) if enough and len(free) >= FEW else None
        record["hardly"] = record["gap"] is not None and record["gap"] <= limit
        of_those = rows[differs[rows]]
        enough_differ = gained is not None and enough and len(of_those) >= FEW
        record["at_stake"] = float(gained[of_those].mean()) if enough_differ and gained is not None else None
        found.append(record)
    _rank(found, "rank_gap", lambda leaf: leaf["gap"])
    _rank(
        found,
        "rank_differs",
        lambda leaf: None if leaf["differs"] is None else leaf["differs"] * (leaf["share"] or 0.0),
    )
    return found


def _gains(sources: Sources) -> Floats | None:
    """Return the estimated value of the policy's action minus that of the logged action (n,)."""
    values = sources.values
    if values is None:
        return None
    return chosen_entries(values, sources.decisions) - chosen_entries(values, sources.batch.actions)


def _leaves_log(sources: Sources, rows: Ints) -> float | None:
    """Return for which share of the rows the log rarely takes the policy's action in similar states, or None if it is unknown or hidden."""
    if sources.leaving is None:
        return None
    compared, left = sources.leaving
    mine = left[np.isin(compared, rows)]
    return shown_share(int(mine.sum()), len(mine)) if len(mine) >= FEW else None


def leaf_rows(sources: Sources) -> dict[int, int | None]:
    """Return the number of rows in each leaf of the tree that shows the policy, or None where it must be hidden."""
    shown = sources.shown
    counts = [int((shown.leaf_of_row == leaf).sum()) for leaf in shown.tree.leaves]
    visible = [None] * len(counts) if sources.tiny else shown_counts(counts)
    return dict(zip(shown.tree.leaves, visible, strict=True))


def _rank(leaves: list[dict[str, Any]], name: str, size: Callable[[dict[str, Any]], float | None]) -> None:
    """Store the rank of each leaf by size, the largest first and hidden ones last."""
    sizes = [size(leaf) for leaf in leaves]
    order = sorted(range(len(leaves)), key=lambda i: (sizes[i] is None, -(sizes[i] or 0.0), i))
    for place, i in enumerate(order):
        leaves[i][name] = place


def where(sources: Sources, leaf: int) -> list[str]:
    """Return the conditions under which a leaf of the tree is reached, in the names and labels of the table."""
    tree = sources.shown.tree
    words = []
    for node, holds in tree.path_to(leaf):
        cut = tree.feature[node], tree.at_most[node], tree.missing_left[node]
        yes, no = conditions(sources.display_schema, *cut, sources.with_missing)
        words.append(yes if holds else no)
    return words


def differences_record(sources: Sources) -> dict[str, Any] | None:
    """Return a comparison of the logged and the policy's actions: shares of the actions, agreement, and the cross table."""
    if sources.tiny:
        return None
    logged, decided = sources.batch.actions, sources.decisions
    names, places = _grouped(label_texts(sources.schema.action_labels), logged, decided)
    cells = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(cells, (places[logged], places[decided]), 1)
    n, agreed = len(logged), int((logged == decided).sum())
    gained = None if few_hidden(n - agreed) is None else _gains(sources)
    shown = shown_cells(cells.tolist())
    return {
        "actions": names,
        "logged": _shares(shown_counts(cells.sum(axis=1).tolist()), n),
        "decided": _shares(shown_counts(cells.sum(axis=0).tolist()), n),
        "cells": shown,
        "row_shares": [_shares(row, int(total)) for row, total in zip(shown, cells.sum(axis=1), strict=True)],
        "agreement": shown_share(agreed, n),
        "leaves_log": _leaves_log(sources, np.arange(n)),
        "n_compared": None if sources.leaving is None or len(sources.leaving[0]) == n else len(sources.leaving[0]),
        "mean_gain": None if gained is None else float(gained.mean()),
    }


def _shares(counts: list[int | None], of: int) -> list[float | None]:
    return [None if count is None else count / of if of else 0.0 for count in counts]


def _grouped(labels: list[str], logged: Ints, decided: Ints) -> tuple[list[str], Ints]:
    """Return the names of a table's rows, and the row of each action; if there are many actions, rare ones share the last row."""
    n_actions = len(labels)
    if n_actions <= MOST_ACTIONS:
        return labels, np.arange(n_actions)
    counts = np.bincount(logged, minlength=n_actions) + np.bincount(decided, minlength=n_actions)
    kept = np.sort(np.argsort(-counts, kind="stable")[: MOST_ACTIONS - 1])
    places = np.full(n_actions, len(kept))
    places[kept] = np.arange(len(kept))
    return [*(labels[a] for a in kept), f"others ({n_actions - len(kept)})"], places
