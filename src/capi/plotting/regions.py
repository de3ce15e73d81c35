"""Plots of a policy's decisions over one or two features of the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.suggestions import did_you_mean
from capi._utils.validation import Bools, Floats, Ints
from capi.data.columns import MOST_VALUES, Column
from capi.data.schema import Schema
from capi.errors import InvalidInputError
from capi.plotting.style import add_legend, colour_of, marker_of, name_axes, new_figure, stack_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = 150  # cells along each feature
N_BINS = 20
MOST_POINTS = 2000  # more would hide each other
N_LEVELS = 8  # of a feature, to measure its information about the decisions
LEAST_SAMPLED, MOST_SAMPLED = 200, 2000  # rows on which influence is measured
MOST_ASKED = 80_000  # decisions to measure influence
MOST_TRIED = 400  # columns


def draw_decisions(
    act: Callable[[Floats], Ints], states: Floats, features: Sequence[Any], n_actions: int, schema: Schema | None
) -> Figure:
    """Return a figure of the decisions of ``act`` over one or two ``features``, given by column index or name.

    Over two features the regions show the decisions in states whose other features are at their medians; the points are
    the states themselves, with their own decisions. Over one feature bars show the share of each action.
    """
    names = schema.feature_names if schema else tuple(f"x{j}" for j in range(states.shape[1]))
    labels = schema.action_labels if schema else tuple(range(n_actions))
    columns = [_column(feature, names) for feature in features]
    if len(columns) not in (1, 2) or len(set(columns)) < len(columns):
        raise InvalidInputError(f"features must be one or two different features; got {features!r}.")
    figure, [axes] = new_figure(6.0, 4.2)
    if len(columns) == 1:
        _draw_shares(axes, states[:, columns[0]], act(states), labels)
    else:
        _draw_regions(axes, act, states, columns, labels)
        name_axes(axes, y=names[columns[1]])
    name_axes(axes, x=names[columns[0]])
    add_legend(axes, "decision")
    return figure


def influences(
    act: Callable[..., Ints],
    states: Floats,
    columns: Sequence[Column],
    *,
    candidates: Sequence[int] | None = None,
    allowed: Bools | None = None,
) -> list[tuple[int, float]]:
    """Return, for each column, the share of decisions that change when its values are shuffled, largest first.

    Ties keep the order of the columns.

    Parameters
    ----------
    act : function of states (n, d) and masks (n, A)
    states : array of shape (n, d)
    columns : sequence of Column
        The columns that the features of a state come from, in order.
    candidates : sequence of int, optional
        Indices of the columns to try. By default all; if there are very many, the first ones.
    allowed : array of shape (n, A), optional
        The actions that the states allow.
    """
    tried = (range(len(columns)) if candidates is None else candidates)[:MOST_TRIED]
    most = max(LEAST_SAMPLED, MOST_ASKED // max(min(len(columns), MOST_TRIED), 1))
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(states), min(len(states), MOST_SAMPLED, most), replace=False))
    some, order = states[rows], rng.permutation(len(rows))
    mask = None if allowed is None else allowed[rows]
    before = act(some, mask)
    places, found = feature_slices(columns), []
    for number in tried:
        dealt = some.copy()
        dealt[:, places[number]] = some[order, places[number]]
        found.append((number, float(np.mean(act(dealt, mask) != before))))
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def columns_to_draw(ranked: Sequence[tuple[int, float]], columns: Sequence[Column]) -> list[int]:
    """Return the one or two columns over which to draw decisions: those with the most influence, none if none has any.

    ``ranked`` is the result of `influences`. Every plot of decisions chooses its columns here.
    """
    return [number for number, share in ranked if share > 0 and _can_be_axis(columns[number])][:2]


def features_to_draw(act: Callable[..., Ints], states: Floats, schema: Schema | None) -> list[int]:
    """Return one feature of each of the `columns_to_draw`; if no column influences the decisions, the first known features.

    For a column with several features, one per category, it is the feature with the most information about the decisions.
    """
    columns = schema.columns if schema else tuple(Column(f"x{j}") for j in range(states.shape[1]))
    chosen = columns_to_draw(influences(act, states, columns), columns)
    if not chosen:
        return np.flatnonzero(~np.isnan(states).all(axis=0)).tolist()[:2] or [0]
    places, some = feature_slices(columns), thinned(states)
    wide = any(len(columns[number].feature_names) > 1 for number in chosen)
    actions = act(some) if wide else np.zeros(len(some), dtype=np.int64)
    return [_most_telling(some, actions, places[number]) for number in chosen]


def feature_slices(columns: Sequence[Column]) -> list[slice]:
    """Return the slice of a state that holds the features of each column."""
    ends = np.cumsum([len(column.feature_names) for column in columns]).tolist()
    return [slice(end - len(column.feature_names), end) for column, end in zip(columns, ends, strict=True)]


def thinned(states: Floats) -> Floats:
    """Return a subset of many states, evenly spread over the rows."""
    return states[:: max(1, len(states) // MOST_POINTS)]


def _can_be_axis(column: Column) -> bool:
    return column.kind in ("number", "date", "boolean") or len(column.values) <= MOST_VALUES


def _most_telling(states: Floats, actions: Ints, features: slice) -> int:
    """Return the feature with the largest mutual information with the decisions, the first in case of ties."""
    gains = [
        round(_information(_levels(column), actions), 9) for column in states[:, features].T
    ]  # rounded so that ties stay ties
    return features.start + int(np.argmax(gains)) if len(gains) > 1 else int(features.start)


def _levels(column: Floats) -> Ints:
    """Return the level of each value, counted from 1; 0 where it is missing (n,)."""
    values = np.unique(column[~np.isnan(column)])
    if len(values) > N_LEVELS:
        values = np.nanquantile(column, np.linspace(0, 1, N_LEVELS + 1)[:-1])
    return np.where(np.isnan(column), 0, np.searchsorted(values, column, side="right"))


def _information(cells: Ints, actions: Ints) -> float:
    """Return the mutual information of the states' cells and their actions, in nats."""
    pairs = cells * (actions.max() + 1) + actions
    return _entropy(cells) + _entropy(actions) - _entropy(pairs)


def _entropy(codes: Ints) -> float:
    shares = np.unique(codes, return_counts=True)[1] / len(codes)
    return float(-(shares * np.log(shares)).sum())


def _draw_shares(axes: Any, column: Floats, actions: Ints, labels: Sequence[Any]) -> None:
    known = ~np.isnan(column)
    x, decisions = column[known], actions[known]
    if not len(x):
        raise InvalidInputError("the feature must have a known value in some state; it is missing in all of them.")
    edges = np.unique(np.quantile(x, np.linspace(0, 1, N_BINS + 1)))
    edges = np.array([edges[0] - 0.5, edges[0] + 0.5]) if len(edges) == 1 else edges
    counts = np.stack([np.histogram(x[decisions == a], bins=edges)[0] for a in range(len(labels))])
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    stack_bars(axes, edges[:-1], np.diff(edges), shares, labels)
    name_axes(axes, y="share of decisions")
    axes.set_ylim(0, 1)


def _draw_regions(
    axes: Any, act: Callable[[Floats], Ints], states: Floats, columns: Sequence[int], labels: Sequence[Any]
) -> None:
    complete = states[~np.isnan(states[:, columns]).any(axis=1)]
    if not len(complete):
        raise InvalidInputError("both features must be known in some state; in each state at least one is missing.")
    sides = [_ticks(complete[:, j]) for j in columns]
    grid = np.tile(np.nanmedian(complete, axis=0), (GRID * GRID, 1))
    grid[:, columns[0]], grid[:, columns[1]] = (side.ravel() for side in np.meshgrid(*sides))
    colours = matplotlib.colors.ListedColormap([colour_of(a) for a in range(len(labels))])
    regions = act(grid).reshape(GRID, GRID)
    axes.pcolormesh(
        *sides, regions, cmap=colours, vmin=-0.5, vmax=len(labels) - 0.5, alpha=0.25, shading="nearest", rasterized=True
    )
    shown = thinned(complete)
    decisions = act(shown)
    for a, label in enumerate(labels):
        chosen = shown[decisions == a]
        style = {"s": 12, "color": colour_of(a), "marker": marker_of(a)}
        axes.scatter(chosen[:, columns[0]], chosen[:, columns[1]], **style, linewidths=0, label=str(label))


def _ticks(column: Floats) -> Floats:
    low, high = float(column.min()), float(column.max())
    margin = 0.02 * (high - low) or 0.5
    return np.linspace(low - margin, high + margin, GRID)


def _column(feature: Any, names: Sequence[str]) -> int:
    if feature in names:
        return list(names).index(feature)
    if isinstance(feature, int) and not isinstance(feature, bool) and 0 <= feature < len(names):
        return feature
    raise InvalidInputError(
        f"unknown feature {feature!r}; the features are {', '.join(names)}.{did_you_mean(feature, names)}"
    )
