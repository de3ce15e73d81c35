"""Where a policy decides what: pictures over one or two features of the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.validation import Floats, Ints
from capi.data.schema import Schema
from capi.errors import InvalidInput
from capi.plotting.style import add_legend, colour_of, marker_of, name_axes, new_figure, stack_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = 150  # cells along each feature
N_BINS = 20
MOST_POINTS = 2000  # more hide each other
N_LEVELS = 8  # of a feature, when its influence on the decisions is measured


def draw_decisions(
    act: Callable[[Floats], Ints], states: Floats, features: Sequence[Any], n_actions: int, schema: Schema | None
) -> Figure:
    """Return a figure of the decisions ``act`` takes over one or two ``features``, given by column or name.

    Over two features the regions are those of states whose other features have their medians; the points are the states
    themselves, with their own decisions. Over one feature bars show the share of each action.
    """
    names = schema.feature_names if schema else tuple(f"x{j}" for j in range(states.shape[1]))
    labels = schema.action_labels if schema else tuple(range(n_actions))
    columns = [_column(feature, names) for feature in features]
    if len(columns) not in (1, 2) or len(set(columns)) < len(columns):
        raise InvalidInput(f"features must be one or two different features; got {features!r}.")
    figure, [axes] = new_figure(6.0, 4.2)
    if len(columns) == 1:
        _draw_shares(axes, states[:, columns[0]], act(states), labels)
    else:
        _draw_regions(axes, act, states, columns, labels)
        name_axes(axes, y=names[columns[1]])
    name_axes(axes, x=names[columns[0]])
    add_legend(axes, "decision")
    return figure


def telling_features(states: Floats, actions: Ints) -> list[int]:
    """Return the columns of the two features that tell the most about the decisions; if there is one, that one.

    The first has the largest mutual information with the decisions, the second the largest together with the first, so that a
    copy of the first tells nothing more. Features are cut into eight levels of about as many states; missing values
    are a level of their own. Among equals the one at the left is taken; features that are never known do not count.

    Parameters
    ----------
    states : array of shape (n, d)
    actions : array of shape (n,)
        What is decided in them.
    """
    known = np.flatnonzero(~np.isnan(states).all(axis=0)).tolist() or [0]
    levels = {j: _levels(states[:, j]) for j in known}
    cells = np.zeros(len(states), dtype=np.int64)
    found: list[int] = []
    while levels and len(found) < 2:
        joint = {j: cells * (N_LEVELS + 1) + level for j, level in levels.items()}
        told = {
            j: round(_information(each, actions), 9) for j, each in joint.items()
        }  # so that rounding breaks no ties
        best = max(told, key=lambda j: told[j])
        found.append(best)
        cells = joint[best]
        del levels[best]
    return found


def thinned(states: Floats) -> Floats:
    """Return some of many states, evenly spread over the rows."""
    return states[:: max(1, len(states) // MOST_POINTS)]


def _levels(column: Floats) -> Ints:
    """Return the level of each value from 1 on, 0 where it is missing (n,)."""
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
        raise InvalidInput("the feature has no known value in these states.")
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
        raise InvalidInput("no state has a known value of both features.")
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
    raise InvalidInput(f"unknown feature {feature!r}; known are {', '.join(names)}.")
