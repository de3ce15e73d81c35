"""Map of the policy's decisions over its two most influential columns, with all others at their typical values."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.data.columns import Column
from capi.plotting import regions
from capi.report.columns import day_scale, median, scale_of, thinned
from capi.report.sources import Sources
from capi.report.wording import FEW, LONGEST_WORD, short

GRID = 60  # cells along a numeric column
LEAST_COARSE, COARSE = 2, 12  # fewest and most cells per axis in which rows are counted


def influences(sources: Sources, candidates: list[int]) -> list[tuple[int, float]]:
    """Return how much each column influences the decisions, the largest first; see `capi.plotting.regions.influences`."""
    batch, columns = sources.batch, sources.schema.columns
    return regions.influences(sources.policy.act, batch.states, columns, candidates=candidates, allowed=batch.allowed)


def feature_slice(sources: Sources, number: int) -> slice:
    """Return the positions of a column's features in a state."""
    return regions.feature_slices(sources.schema.columns)[number]


def map_record(sources: Sources, ranked: list[tuple[int, float]]) -> dict[str, Any] | None:
    """Return the decisions on a grid over one or two columns as runs of equal cells, or None if no column matters."""
    numbers = regions.columns_to_draw(ranked, sources.schema.columns)
    if not numbers or sources.masked:
        return None
    axes = [_axis(sources, number) for number in numbers]
    base = _typical_state(sources)
    nx, ny = len(axes[0]["features"]), len(axes[1]["features"]) if len(axes) > 1 else 1
    grid = np.tile(base, (nx * ny, 1))
    grid[:, feature_slice(sources, numbers[0])] = np.tile(axes[0]["features"], (ny, 1))
    if len(axes) > 1:
        grid[:, feature_slice(sources, numbers[1])] = np.repeat(axes[1]["features"], nx, axis=0)
    decided = sources.policy.act(grid).reshape(ny, nx)
    backed = _backed(axes, (ny, nx))
    runs = [run for y in range(ny) for run in _runs(y, decided[y], backed[y])]
    others = [c.name for i, c in enumerate(sources.schema.columns) if i not in numbers]
    shown = [{key: value for key, value in axis.items() if key not in ("features", "cell_of")} for axis in axes]
    return {"axes": shown, "shape": [ny, nx], "runs": runs, "n_others": len(others)}


def _axis(sources: Sources, number: int) -> dict[str, Any]:
    """Return the cells along a column: ``features`` (cells, width), the ends of the axis, and the cell of each row."""
    column = sources.schema.columns[number]
    rows = sources.batch.states[:, feature_slice(sources, number)]
    if column.kind in ("number", "date"):
        return _number_axis(column, rows[:, 0])
    words = [short(str(v), LONGEST_WORD) for v in column.values] if column.values else ["false", "true"]
    one_hot = column.kind == "one-hot"
    features = np.eye(len(words)) if one_hot else np.arange(float(len(words)))[:, None]
    missing = np.isnan(rows[:, 0])
    cell = rows.argmax(axis=1) if one_hot else np.where(missing, 0, rows[:, 0]).astype(np.int64)
    return {"name": column.name, "words": words, "features": features, "cell_of": np.where(missing, -1, cell)}


def _number_axis(column: Column, x: Floats) -> dict[str, Any]:
    known = x[~np.isnan(x)]
    dates = column.kind == "date"
    scale = day_scale(column, known, share=0.01) if dates else scale_of(known, share=0.01)
    low, high = scale["low"], scale["high"]
    edges = np.geomspace(low, high, GRID + 1) if scale["log"] else np.linspace(low, high, GRID + 1)
    middles = np.sqrt(edges[1:]) * np.sqrt(edges[:-1]) if scale["log"] else (edges[1:] + edges[:-1]) / 2
    inside = (x >= low) & (x <= high)
    cell = np.searchsorted(edges, np.where(inside, x, low), side="right") - 1
    return {
        "name": column.name,
        "low": None if dates else low,  # together with the texts they would reveal the first day of the table
        "high": None if dates else high,
        "log": scale["log"],
        "ends": scale["ends"] if dates else None,
        "features": middles[:, None],
        "cell_of": np.where(inside, np.clip(cell, 0, GRID - 1), -1),
    }


def _typical_state(sources: Sources) -> Floats:
    """Return the state made of medians and most frequent values (d,)."""
    state = np.empty(sources.batch.n_features)
    states = thinned(sources.batch.states)
    for number, column in enumerate(sources.schema.columns):
        places = feature_slice(sources, number)
        rows = states[:, places]
        known = rows[~np.isnan(rows[:, 0])]
        if not len(known):
            state[places] = np.nan
        elif column.kind == "one-hot":
            state[places] = np.eye(rows.shape[1])[known.sum(axis=0).argmax()]
        elif column.kind == "number":
            state[places] = median(known[:, 0])
        else:
            state[places] = np.floor(median(known[:, 0]))
    return state


def _backed(axes: list[dict[str, Any]], shape: tuple[int, int]) -> Any:
    """Return which cells have rows of the table nearby: at least `FEW` in their cell of a coarser grid."""
    coarse = []
    rows = len(axes[0]["cell_of"]) / (2 * FEW)  # number of cells with enough rows if rows are spread evenly
    for axis, size in zip(axes, shape[::-1], strict=False):
        most = min(max(int(rows if len(axes) == 1 else sqrt(rows)), LEAST_COARSE), COARSE)
        by = max(1, size // most) if "words" not in axis else 1
        coarse.append((axis["cell_of"], by, -(-size // by)))
    x, by_x, nx = coarse[0]
    y, by_y, ny = coarse[1] if len(axes) > 1 else (np.zeros(len(x), dtype=np.int64), 1, 1)
    there = (x >= 0) & (y >= 0)
    counts = np.bincount((y[there] // by_y) * nx + x[there] // by_x, minlength=nx * ny).reshape(ny, nx)
    return np.repeat(np.repeat(counts >= FEW, by_y, axis=0), by_x, axis=1)[: shape[0], : shape[1]]


def _runs(y: int, actions: Ints, backed: Any) -> list[list[int]]:
    """Return the runs of equal cells in a row of the grid: [y, first cell, number of cells, action, whether rows back it]."""
    changes = np.flatnonzero((np.diff(actions) != 0) | (np.diff(backed.astype(np.int8)) != 0)) + 1
    starts = [0, *changes.tolist(), len(actions)]
    return [[y, a, b - a, int(actions[a]), int(backed[a])] for a, b in pairwise(starts)]
