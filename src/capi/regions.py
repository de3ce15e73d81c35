"""Where a policy decides what: pictures over one or two features of the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi.errors import InvalidInput
from capi.schema import Schema
from capi.validation import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")  # Okabe and Ito's
MARKERS = "osv^DPX*"
GRID = 150  # cells along each feature
N_BINS = 20
MOST_POINTS = 2000  # more hide each other


def draw_decisions(
    act: Callable[[Floats], Ints], states: Floats, features: Sequence[Any], n_actions: int, schema: Schema | None
) -> Figure:
    """Return a figure of the decisions ``act`` takes over one or two ``features``, given by column or name.

    Over two features the regions are those of states whose other features have their medians; the points are the states
    themselves, with their own decisions. Over one feature bars show the share of each action.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  only those who draw pay for it

    names = schema.feature_names if schema else tuple(f"x{j}" for j in range(states.shape[1]))
    labels = schema.action_labels if schema else tuple(range(n_actions))
    columns = [_column(feature, names) for feature in features]
    if len(columns) not in (1, 2) or len(set(columns)) < len(columns):
        raise InvalidInput(f"features must be one or two different features; got {features!r}.")
    figure = Figure(figsize=(6.0, 4.2), layout="constrained")
    axes = figure.subplots()
    if len(columns) == 1:
        _draw_shares(axes, states[:, columns[0]], act(states), labels)
    else:
        _draw_regions(axes, act, states, columns, labels)
        axes.set_ylabel(names[columns[1]], parse_math=False)
    axes.set_xlabel(names[columns[0]], parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    legend = axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), title="decision")
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _draw_shares(axes: Any, column: Floats, actions: Ints, labels: Sequence[Any]) -> None:
    known = ~np.isnan(column)
    x, decisions = column[known], actions[known]
    if not len(x):
        raise InvalidInput("the feature has no known value in these states.")
    edges = np.unique(np.quantile(x, np.linspace(0, 1, N_BINS + 1)))
    edges = np.array([edges[0] - 0.5, edges[0] + 0.5]) if len(edges) == 1 else edges
    counts = np.stack([np.histogram(x[decisions == a], bins=edges)[0] for a in range(len(labels))])
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    below = np.zeros(len(edges) - 1)
    for a, share in enumerate(shares):
        colour = PALETTE[a % len(PALETTE)]
        axes.bar(
            edges[:-1],
            share,
            np.diff(edges),
            below,
            align="edge",
            color=colour,
            edgecolor="white",
            label=str(labels[a]),
        )
        below = below + share
    axes.set_ylabel("share of decisions")
    axes.set_ylim(0, 1)


def _draw_regions(
    axes: Any, act: Callable[[Floats], Ints], states: Floats, columns: Sequence[int], labels: Sequence[Any]
) -> None:
    from matplotlib.colors import ListedColormap  # noqa: PLC0415

    complete = states[~np.isnan(states[:, columns]).any(axis=1)]
    if not len(complete):
        raise InvalidInput("no state has a known value of both features.")
    sides = [_ticks(complete[:, j]) for j in columns]
    grid = np.tile(np.nanmedian(complete, axis=0), (GRID * GRID, 1))
    grid[:, columns[0]], grid[:, columns[1]] = (side.ravel() for side in np.meshgrid(*sides))
    colours = ListedColormap([PALETTE[a % len(PALETTE)] for a in range(len(labels))])
    regions = act(grid).reshape(GRID, GRID)
    axes.pcolormesh(
        *sides, regions, cmap=colours, vmin=-0.5, vmax=len(labels) - 0.5, alpha=0.25, shading="nearest", rasterized=True
    )
    shown = complete[:: max(1, len(complete) // MOST_POINTS)]
    decisions = act(shown)
    for a, label in enumerate(labels):
        chosen = shown[decisions == a]
        style = {"s": 12, "color": PALETTE[a % len(PALETTE)], "marker": MARKERS[a % len(MARKERS)]}
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
