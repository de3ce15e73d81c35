"""The columns of the table on the page: their ranges, typical values and histograms.

Ends of ranges and typical values are rounded, so that they are nobody's own.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, isfinite, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi.report.wording import FEW, short
from capi.tables.columns import DAY, MOST_VALUES, Column
from capi.validation import Floats, Ints

N_BINS = 24
N_STEPS = 200  # of a slider
WIDE = 1000.0  # ratio of large to small values from which a scale is logarithmic
MOST_WORDS = 12  # categories with a bar of their own
MOST_LISTED = 2000  # categories to choose from
LONGEST_WORD = 300  # letters
ENOUGH = 50_000  # rows for a median
DIGITS = 3  # of typical values on a logarithmic scale


def column_record(column: Column, features: Floats, start: int) -> dict[str, Any]:
    """Return a column for the panel: how to set it, and what is typical; ``features`` (n, width) begin at ``start``."""
    known = features[~np.isnan(features[:, 0])]
    record: dict[str, Any] = {
        "name": column.name,
        "kind": column.kind,
        "start": start,
        "width": len(column.feature_names),
        "missing": len(known) < len(features),
    }
    if column.values:
        counts = category_counts(column, known)
        record["values"] = [[int(i), _plain(column.values[i])] for i in _listed(counts)]
    elif column.kind == "date":
        record["origin"] = column.origin_microseconds // 1000  # origins are whole days
        record["whole_days"] = "T" not in str(column.origin)
    if column.kind in ("number", "date"):
        record |= _scale(known[:, 0], whole_days=column.kind == "date")
    record["typical"] = typical(column, features, record)
    return record


def _listed(counts: Ints) -> Ints:
    """Return the categories that a list offers: all of a few, else the most frequent ones, in their order."""
    if len(counts) <= MOST_VALUES:
        return np.arange(len(counts))
    frequent = np.argsort(-counts, kind="stable")[:MOST_LISTED]
    return np.sort(frequent[counts[frequent] >= FEW])


def without_rare_words(column: Column, features: Floats) -> Column:
    """Return a column whose categories of fewer than `FEW` rows are called by their numbers."""
    if not column.values:
        return column
    counts = category_counts(column, features[~np.isnan(features[:, 0])])
    words = [v if counts[i] >= FEW else f"(rare value {i + 1})" for i, v in enumerate(column.values)]
    return replace(column, values=tuple(words)) if len(set(words)) == len(words) else column


def typical(column: Column, features: Floats, record: dict[str, Any]) -> Any:
    """Return the rounded median or the most frequent value of rows, as the page's controls hold it: None is missing."""
    known = features[~np.isnan(features[:, 0])]
    if 2 * len(known) < len(features) or not len(known):
        return None
    if column.values:
        counts = category_counts(column, known)
        listed = [place for place, _ in record["values"]]
        return max(listed, key=lambda i: (counts[i], -i)) if listed else None
    middle = float(np.median(thinned(known[:, 0])))
    if column.kind == "boolean":
        return bool(middle > 0.5)
    if column.kind == "date":
        return day_text(column, middle) + ("" if record["whole_days"] else "T00:00")
    return rounded(middle, record)


def thinned(rows: NDArray[Any]) -> NDArray[Any]:
    """Return enough of the rows for a median or a quantile that is rounded anyway."""
    if len(rows) <= ENOUGH:
        return rows
    return rows[np.random.default_rng(0).integers(0, len(rows), ENOUGH)]  # by chance: every k-th row may be of one kind


def rounded(x: float, record: dict[str, Any]) -> float:
    """Return a number in the steps of its column's scale."""
    if x == 0 or not isfinite(x):
        return 0.0
    if record["log"]:
        return float(round(x, DIGITS - 1 - floor(log10(abs(x)))))
    return _on_step(round(x / record["step"]), record["step"])


def day_text(column: Column, days: float) -> str:
    """Return the day that lies ``days`` behind the origin of a date column."""
    point = np.datetime64(int(column.origin_microseconds + floor(days) * DAY), "us")
    return str(point.astype("datetime64[D]"))


def histogram(column: Column, features: Floats) -> dict[str, Any]:
    """Return how the known values of a column are spread, in bins of at least `FEW` rows.

    Numbers: ``edges`` (b + 1), ``shares`` (b); the first and the last bin hold what lies beyond. Others: ``words`` and ``shares``.
    """
    missing = np.isnan(features[:, 0])
    known = features[~missing]
    record = {"name": column.name, "kind": column.kind, "share_missing": float(missing.mean()), "n_known": len(known)}
    if len(known) < FEW:
        return {**record, "words": [], "shares": []}
    if column.kind in ("number", "date"):
        return {**record, **_binned(column, known[:, 0])}
    if column.values:
        words, counts = [str(value) for value in column.values], category_counts(column, known)
    else:
        words, n_true = ["false", "true"], int((known[:, 0] > 0.5).sum())
        counts = np.array([len(known) - n_true, n_true])
    order = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i] >= FEW][:MOST_WORDS]
    rest = len(known) - int(counts[order].sum())
    others = [(f"others ({len(words) - len(order)})", rest)] if rest >= FEW else []
    shown = [*((words[i], int(counts[i])) for i in order), *others]
    return {**record, "words": [word for word, _ in shown], "shares": [count / len(known) for _, count in shown]}


def _binned(column: Column, x: Floats) -> dict[str, Any]:
    scale = _scale(x, whole_days=column.kind == "date", share=0.01)
    low, high = scale["low"], scale["high"]
    edges = np.geomspace(low, high, N_BINS + 1) if scale["log"] else np.linspace(low, high, N_BINS + 1)
    values = np.unique(thinned(x))
    if 1 < len(values) <= N_BINS and not scale["log"] and bool(np.all(values == np.floor(values))):
        edges = np.concatenate([[values[0] - 0.5], (values[1:] + values[:-1]) / 2, [values[-1] + 0.5]])
    inside = np.clip(x, edges[0], edges[-1])
    counts, kept = _merged(np.histogram(inside, edges)[0], edges)
    ends = [day_text(column, e) for e in (kept[0], kept[-1])] if column.kind == "date" else None
    return {
        "edges": kept,
        "log": scale["log"],
        "shares": [int(c) / len(x) for c in counts],
        "ends": ends,
    }


def merged_histogram(x: Floats, edges: Floats) -> tuple[list[float], list[float]]:
    """Return edges (b + 1) and shares (b) of bins with at least `FEW` rows each."""
    counts, kept = _merged(np.histogram(np.clip(x, edges[0], edges[-1]), edges)[0], edges)
    return [float(e) for e in kept], [int(c) / len(x) for c in counts]


def _merged(counts: Ints, edges: Floats) -> tuple[list[int], list[float]]:
    """Return the histogram with small bins joined to their neighbours; empty ones stay, they tell of nobody."""
    bins: list[int] = []
    ends = [float(edges[0])]
    for count, end in zip(counts, edges[1:], strict=True):
        if bins and (0 < bins[-1] < FEW or (0 < count < FEW)):
            bins[-1] += int(count)
            ends[-1] = float(end)
        else:
            bins.append(int(count))
            ends.append(float(end))
    while len(bins) > 1 and 0 < bins[0] < FEW:
        bins[:2] = [bins[0] + bins[1]]
        del ends[1]
    return bins, ends


def _scale(x: Floats, *, whole_days: bool, share: float = 0.0) -> dict[str, Any]:
    """Return the ends of a slider or an axis, rounded outwards, its steps, and whether it is logarithmic."""
    if not len(x):
        return {"low": 0.0, "high": 1.0, "step": 0.01, "log": False}
    low, high = (float(end) for end in (np.quantile(thinned(x), [share, 1 - share]) if share else (x.min(), x.max())))
    if low > 0 and high / low >= WIDE and not whole_days:
        ends = _on_digits(low, floor), _on_digits(high, ceil)
        return {"low": ends[0], "high": ends[1], "step": 0.0, "log": True}
    step = _nice((high - low) / N_STEPS) if high > low else max(abs(low) / 100, 0.01)
    if whole_days or bool(np.all(x[:1000] == np.floor(x[:1000]))):
        step = max(1.0, float(round(step)))
    first, last = floor(low / step), ceil(high / step)
    return {
        "low": _on_step(first, step),
        "high": _on_step(last if last > first else first + 1, step),
        "step": step,
        "log": False,
    }


def _nice(step: float) -> float:
    """Return the next number of the form 1, 2 or 5 times a power of ten."""
    if not isfinite(step) or step <= 0:
        return 1.0
    power = 10.0 ** floor(log10(step))
    return next((float(f"{m * power:.3g}") for m in (1, 2, 5) if m * power >= step), float(f"{10 * power:.3g}"))


def _on_step(n: int, step: float) -> float:
    return float(f"{n * step:.12g}")


def _on_digits(x: float, to: Any) -> float:
    unit = 10.0 ** floor(log10(x))
    return float(f"{to(x / unit) * unit:.3g}")


def category_counts(column: Column, known: Floats) -> Ints:
    """Return how many rows have each category."""
    if column.kind == "one-hot":
        return known.sum(axis=0).astype(np.int64)
    return np.bincount(known[:, 0].astype(np.int64), minlength=len(column.values))


def _plain(value: Any) -> Any:
    """Return a category as JSON has it; numbers that JavaScript cannot hold as text."""
    if isinstance(value, bool | str):
        return short(value, LONGEST_WORD) if isinstance(value, str) else value
    exact = abs(value) < 2**53 if isinstance(value, int) else isfinite(value)
    return value if exact else str(value)
