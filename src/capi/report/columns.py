"""Table columns as the page shows them: ranges, typical values and histograms.

Range ends have at least `FEW` rows beyond them. Range ends and typical values are rounded, so they identify no single row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, floor, isfinite, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Floats, Ints
from capi.data.columns import DAY, Column
from capi.report.svg import SMALLEST
from capi.report.wording import FEW, LONGEST_WORD, TINY, few_hidden, numbered, short, shown_share

N_BINS = 24
N_STEPS = 200  # steps of a slider
N_COARSE = 10  # number of steps to which range ends are rounded
BEYOND = 0.05  # share of the values that rounding may leave out at each end
WIDE = 1000.0  # scales with at least this ratio of large to small values are logarithmic
LARGEST = 1e300  # largest end of a scale: differences between larger numbers overflow
MOST_WORDS = 12  # categories with their own bar
ENOUGH = 50_000  # rows for a median
DIGITS = 3  # significant digits of typical values on a logarithmic scale
MOST_WHOLE = 2.0**50  # up to here float64 has halves between whole numbers
MONTHS, YEARS = 150, 3650  # ranges of at least so many days are rounded to months, and to years


def column_record(column: Column, features: Floats, start: int) -> dict[str, Any]:
    """Return a column of the panel: how to set it, and its typical value; ``features`` (n, width) begin at ``start``."""
    known = features[~np.isnan(features[:, 0])]
    record: dict[str, Any] = {
        "name": column.name,
        "kind": column.kind,
        "start": start,
        "width": len(column.feature_names),
        "missing": len(known) < len(features),
    }
    if column.values:
        record["values"] = listed_values(column)
    elif column.kind == "date":
        record["whole_days"] = "T" not in str(column.origin)
        record["grain"] = day_scale(column, known[:, 0])["grain"]
    elif column.kind == "number":
        record |= scale_of(known[:, 0])
    record["typical"] = typical(column, features, record) if len(features) >= TINY else None
    return record


def listed_values(column: Column) -> list[list[Any]]:
    """Return the index and the name of each category, and a text to show instead if the name is blank."""
    plain = [_plain(value) for value in column.values]
    words = numbered([short(str(word), LONGEST_WORD) for word in plain])
    listed: list[list[Any]] = []
    for i, (value, word) in enumerate(zip(plain, words, strict=True)):
        kept = value if not isinstance(value, str) else word
        listed.append([i, kept] if word.strip() else [i, kept, repr(kept)])
    return listed


def without_rare_words(column: Column, features: Floats) -> Column:
    """Return a column with the categories of fewer than `FEW` rows replaced by numbered names."""
    if not column.values:
        return column
    counts = category_counts(column, features[~np.isnan(features[:, 0])])
    rare = counts < FEW
    if column.rest:
        rare[-1] = False  # its name tells nothing
    return replace(column, values=rare_renamed(column.values, rare, "rare value"))


def rare_renamed(words: tuple[Any, ...], rare: NDArray[np.bool_], what: str) -> tuple[Any, ...]:
    """Return names with the rare ones replaced by numbered names that none of the others has."""
    others = {str(word) for word, is_rare in zip(words, rare, strict=True) if not is_rare}
    found = []
    for i, word in enumerate(words):
        name = f"({what} {i + 1})"
        while name in others:
            name = f"({name})"
        found.append(name if rare[i] else word)
    return tuple(found)


def typical(column: Column, features: Floats, record: dict[str, Any]) -> Any:
    """Return the rounded median or the most frequent value of rows, as the page's controls hold it; None means missing."""
    known = features[~np.isnan(features[:, 0])]
    if 2 * len(known) < len(features) or len(known) < FEW:
        return None
    if column.values:
        counts = category_counts(column, known)
        listed = [entry[0] for entry in record["values"]]
        return max(listed, key=lambda i: (counts[i], -i)) if listed else None
    middle = median(thinned(known[:, 0]))
    if column.kind == "boolean":
        return bool(middle > 0.5)
    if column.kind == "date":
        day = _day_number(column, middle)
        return _day_name(_on_grain(day, record["grain"])) + ("" if record["whole_days"] else "T00:00")
    return rounded(middle, record)


def median(x: Floats) -> float:
    """Return the median, even of numbers whose sums overflow."""
    n = len(x)
    ends = np.partition(x, [(n - 1) // 2, n // 2])
    return float(ends[(n - 1) // 2] / 2 + ends[n // 2] / 2)


def thinned(rows: NDArray[Any]) -> NDArray[Any]:
    """Return a random sample that is large enough for a rounded median or quantile."""
    if len(rows) <= ENOUGH:
        return rows
    return rows[
        np.random.default_rng(0).integers(0, len(rows), ENOUGH)
    ]  # at random: every k-th row may be of the same kind


def rounded(x: float, record: dict[str, Any]) -> float:
    """Return a number rounded to the steps of its column's scale."""
    if not isfinite(x) or abs(x) < SMALLEST:
        return 0.0
    x = min(max(x, -LARGEST), LARGEST)
    if record["log"]:
        return float(f"{x:.{DIGITS - 1}e}")
    return _on_step(round(x / record["step"]), record["step"])


def _day_number(column: Column, days: float) -> int:
    """Return the day, counted from 1970, that is ``days`` after the origin of a date column."""
    return (column.origin_microseconds + floor(days) * DAY) // DAY


def _day_name(day: int) -> str:
    return str(np.datetime64(day, "D"))


def day_text(column: Column, days: float) -> str:
    """Return the date that is ``days`` after the origin of a date column."""
    return _day_name(_day_number(column, days))


def _on_grain(day: int, grain: str | int, up: bool = False) -> int:
    """Return a day rounded down, or ``up``, to the first of a month or a year, or to a multiple of some days."""
    if isinstance(grain, int):
        return -(-day // grain) * grain if up else day // grain * grain
    unit = np.datetime64(day, "D").astype(f"datetime64[{grain}]")
    first = int(unit.astype("datetime64[D]").astype(np.int64))
    if not up or first == day:
        return first
    following: Any = unit + np.ones((), dtype=f"timedelta64[{grain}]")
    return int(following.astype("datetime64[D]").astype(np.int64))


def day_scale(column: Column, x: Floats, share: float = 0.0) -> dict[str, Any]:
    """Return the ends of an axis of days (counted as in the column), with their texts and the grain to which they are rounded."""
    low, high = _ends(x, share)
    first, last = (0, 0) if len(x) < FEW else (_day_number(column, low), _day_number(column, high))
    span = YEARS if len(x) < TINY else last - first
    grain: str | int = "Y" if span >= YEARS else "M" if span >= MONTHS else max(1, round(nice(span / N_COARSE)))
    first, last = _on_grain(first, grain), _on_grain(last, grain, up=True)
    last = max(last, first + 1)
    shift = column.origin_microseconds / DAY
    ends = [_day_name(first), _day_name(last)]
    return {"low": first - shift, "high": last - shift, "step": 1.0, "log": False, "ends": ends, "grain": grain}


def histogram(column: Column, features: Floats) -> dict[str, Any]:
    """Return the histogram of the known values of a column, in bins of at least `FEW` rows.

    Numbers: ``edges`` (b + 1), ``shares`` (b); the first and last bins include all values beyond. Others: ``words`` and ``shares``.
    """
    missing = np.isnan(features[:, 0])
    known = features[~missing]
    gaps = shown_share(int(missing.sum()), len(missing))
    n_known = len(known) if gaps is not None else None
    record = {"name": column.name, "kind": column.kind, "share_missing": gaps, "n_known": n_known}
    if len(known) < TINY:
        return {**record, "words": [], "shares": []}
    if column.kind in ("number", "date"):
        return {**record, **_binned(column, known[:, 0])}
    if column.values:
        words, counts = [short(str(value), LONGEST_WORD) for value in column.values], category_counts(column, known)
    else:
        words, n_true = ["false", "true"], int((known[:, 0] > 0.5).sum())
        counts = np.array([len(known) - n_true, n_true])
    order = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i] >= FEW][:MOST_WORDS]
    rest = len(known) - int(counts[order].sum())
    while few_hidden(rest) is None:  # the remainder would reveal how many they are
        rest += int(counts[order.pop()])
    others = [(f"others ({len(words) - len(order)})", rest)] if rest else []
    shown = [*((words[i], int(counts[i])) for i in order), *others]
    return {**record, "words": [word for word, _ in shown], "shares": [count / len(known) for _, count in shown]}


def _binned(column: Column, x: Floats) -> dict[str, Any]:
    is_date = column.kind == "date"
    scale = day_scale(column, x, share=0.01) if is_date else scale_of(x, share=0.01)
    low, high = scale["low"], scale["high"]
    edges = np.geomspace(low, high, N_BINS + 1) if scale["log"] else np.linspace(low, high, N_BINS + 1)
    if _all_whole(x) and not scale["log"] and max(-low, high) < MOST_WHOLE:
        wide = ceil((high - low + 1) / N_BINS)
        edges = low - 0.5 + wide * np.arange(ceil((high - low + 1) / wide) + 1)
    if not bool(np.all(np.diff(edges) > 0)):  # too close together for numbers in between
        edges = np.array([low, high])
    inside = np.clip(x, edges[0], edges[-1])
    counts, kept = _merged(np.histogram(inside, edges)[0], edges)
    shares = [int(c) / len(x) for c in counts]
    if not is_date:
        return {"edges": kept, "log": scale["log"], "shares": shares, "ends": None, "names": None}
    names = [day_text(column, ceil(edge)) for edge in kept]
    return {"edges": _since_1970(column, kept), "log": False, "shares": shares, "ends": scale["ends"], "names": names}


def _since_1970(column: Column, days: list[float]) -> list[float]:
    """Return days counted from 1970, which reveals nothing about the table."""
    return [day + column.origin_microseconds / DAY for day in days]


def merged_histogram(x: Floats, edges: Floats) -> tuple[list[float], list[float]]:
    """Return edges (b + 1) and shares (b) of bins with at least `FEW` rows each."""
    counts, kept = _merged(np.histogram(np.clip(x, edges[0], edges[-1]), edges)[0], edges)
    return [float(e) for e in kept], [int(c) / len(x) for c in counts]


def _merged(counts: Ints, edges: Floats) -> tuple[list[int], list[float]]:
    """Return the histogram with small bins merged into their neighbours; empty bins stay, because they identify no row."""
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


def _ends(x: Floats, share: float = 0.0) -> tuple[float, float]:
    """Return a low and a high number with at least `FEW` rows, and at least a share of the rows, beyond each; for too few rows, the median."""
    if len(x) < FEW:
        return 0.0, 0.0
    if len(x) < TINY:
        middle = median(x)
        return middle, middle
    sample = thinned(x)
    beyond = max(FEW, floor(share * len(sample)))
    found = np.partition(sample, [beyond, len(sample) - 1 - beyond])
    return float(found[beyond]), float(found[len(sample) - 1 - beyond])


def _all_whole(x: Floats) -> bool:
    sample = thinned(x)
    return bool(np.all(sample == np.floor(sample)))


def scale_of(x: Floats, share: float = 0.0) -> dict[str, Any]:
    """Return the ends of a slider or an axis, rounded outwards, its steps, and whether it is logarithmic."""
    if len(x) < FEW:
        return {"low": 0.0, "high": 1.0, "step": 0.01, "log": False}
    low, high = (min(max(end, -LARGEST), LARGEST) for end in _ends(x, share))
    if len(x) < TINY:  # only the power of ten of the median is shown
        size = 1.0 if abs(low) < SMALLEST else 10.0 ** ceil(log10(abs(low)) + 1e-9)
        low, high = (-size, 0.0) if low < 0 else (0.0, size)
    if low > 0 and high / low >= WIDE:
        return {"low": _on_digit(max(low, 1 / LARGEST), floor), "high": _on_digit(high, ceil), "step": 0.0, "log": True}
    # steps below a few units in the last place do not exist
    least = max(4 * float(np.spacing(max(abs(low), abs(high)))), SMALLEST)
    span = high - low if high > low else max(abs(low) / N_COARSE, 1.0 if abs(low) < SMALLEST else 0.0)
    step = nice(max(span / N_STEPS, least))
    coarse = nice(span / N_COARSE) if span / N_STEPS >= least else step
    if _all_whole(x):
        step, coarse = max(1.0, float(round(step))), max(1.0, float(round(coarse)))
    first, last = floor(low / coarse), ceil(high / coarse)
    return {
        "low": _on_step(first, coarse),
        "high": _on_step(last if last > first else first + 1, coarse),
        "step": step,
        "log": False,
    }


def range_of_most(x: Floats) -> dict[str, float]:
    """Return the ends between which all values lie but the few most extreme ones, never outside the values themselves.

    An end that at least `FEW` rows share is exact; otherwise it is rounded inwards, so that it is nobody's value, and to a finer
    step if a coarse one would leave out many values, as of skewed costs.
    """
    if len(x) < TINY:
        return {name: scale_of(x)[name] for name in ("low", "high")}
    ordered = np.partition(x, [FEW - 1, len(x) - FEW])
    low, high = float(ordered[FEW - 1]), float(ordered[len(x) - FEW])
    step = nice(high / N_COARSE - low / N_COARSE)
    if np.count_nonzero(x == low) < FEW:
        low = _inwards(x, low, step, ceil)
    if np.count_nonzero(x == high) < FEW:
        high = _inwards(x, high, step, floor)
    return {"low": min(low, high), "high": max(low, high)}


def _inwards(x: Floats, end: float, step: float, to: Callable[[float], int]) -> float:
    """Return an end of the values rounded up or down to a step, or to a finer one until at most a share of the values is beyond it."""
    for unit in (step, step / 10, step / 100, step / 1000):
        inner = _on_step(to(end / unit), unit)
        if np.count_nonzero(x < inner if to is ceil else x > inner) <= BEYOND * len(x):
            break
    return inner


def nice(step: float) -> float:
    """Return the next number of the form 1, 2 or 5 times a power of ten."""
    if not SMALLEST <= step <= LARGEST:
        return 1.0
    power = 10.0 ** floor(log10(step))
    return next((float(f"{m * power:.3g}") for m in (1, 2, 5) if m * power >= step), float(f"{10 * power:.3g}"))


def _on_step(n: int, step: float) -> float:
    return float(n * step) if step >= 1 else round(n * step, 1 - floor(log10(step)))


def _on_digit(x: float, to: Any) -> float:
    unit = 10.0 ** floor(log10(x))
    return float(f"{to(x / unit) * unit:.3g}")


def category_counts(column: Column, known: Floats) -> Ints:
    """Return how many rows have each category."""
    if column.kind == "one-hot":
        return known.sum(axis=0).astype(np.int64)
    return np.bincount(known[:, 0].astype(np.int64), minlength=len(column.values))


def _plain(value: Any) -> Any:
    """Return a category as a JSON value; numbers that JavaScript cannot hold exactly become text."""
    if isinstance(value, bool | str):
        return value
    exact = abs(value) < 2**53 if isinstance(value, int) else isfinite(value)
    return value if exact else str(value)
