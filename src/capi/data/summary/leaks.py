"""Columns that give the outcome away, or were recorded after the decision.

A column fixes the reward if, given its value, the reward hardly varies although it varies elsewhere. Legitimate predictors
leave more room, so all rules ask for near certainty, and they count what they looked at: columns, values and rewards. Rows of
an episode depend on each other; only one row of each episode is looked at. If a reward is earned only in the last row of an
episode, only last rows are looked at: otherwise every column that tells the last row would seem to fix it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import late
from capi._utils.validation import Bools, Floats, Ints
from capi.data.columns import Column
from capi.errors import Caveat

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

special = late("scipy.special")

MOST_ROWS = 20_000  # looked at; findings are counted in all rows
LEAST_ROWS = 50
N_BINS = 20  # of a column of numbers
MOST_LEVELS = 100  # more values are looked at in bins
ROWS_PER_LEVEL = 10  # at least, on average
MOST_REWARDS = 20  # the most common ones, which a value of a column may fix
LEAST_COMMON = 10  # rows
LEAST_FIXED = 20  # rows of a value of the column
EXPLAINED = (
    0.64  # share of the reward's variation; 0.81 if 90 % of the rows are copies of the reward and the others are random
)
NEIGHBOURS = 0.005  # median distance of the rewards of neighbouring rows, as a share of all ranks
COMMON = 0.05  # share of a reward value above which ties are expected
COPIED = 0.6  # share of rows
EXACT = 1e-9  # relative rounding error
EXCEPTIONS = 0.005  # share of a value's rows
ODDS = 20.0  # how much more likely exceptions must be in the other rows
ERROR = 0.01  # of all tests of a table together
MODAL = 0.9  # share above which the most common reward can be certain for legitimate reasons, such as a low risk
ADVICE = "If it was recorded after the decision, a policy must not see it: leave it out"


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows that are looked at."""

    rows: Ints  # (m,) row numbers
    rewards: Floats  # (m,)
    values: Floats  # (k,) the most common rewards
    counts: Ints  # (k,) their numbers of rows
    codes: Ints  # (m,) positions of the rewards in ``values``; k for all others
    ranks: Floats  # (m,) of the rewards; equal ones have their mean rank
    rare: Bools  # (m,) rows whose reward few others have
    in_scope: Bools | None  # (n,) the rows in which a reward is earned; None for all
    one_step: bool  # each episode has one row


@dataclass(frozen=True, eq=False)
class Levels:
    """The values or bins of a column: a number for each row, and how to find and name a level."""

    of: Callable[[Floats], Ints]  # features (n, width) -> (n,)
    count: int
    name: Callable[[int], str]


@dataclass(frozen=True)
class Fixed:
    """A level in which the reward hardly varies."""

    level: int
    reward: float


def sample_of(batch: Transitions) -> Sample | None:
    """Return the rows to look at, None if the reward does not vary or there are too few of them."""
    starts = batch.episode_starts
    n, n_episodes = len(batch), len(starts)
    rng = np.random.default_rng(0)
    chosen: Ints = np.arange(n_episodes)
    if n_episodes > MOST_ROWS:
        chosen = np.sort(rng.choice(n_episodes, MOST_ROWS, replace=False))
    in_scope = None
    if n_episodes == n:
        rows = chosen
    else:
        lengths = np.diff(starts, append=n)
        last = np.zeros(n, dtype=bool)
        last[starts + lengths - 1] = True
        earlier = batch.rewards[~last]
        if bool((earlier == earlier[0]).all()):
            in_scope, rows = last, (starts + lengths - 1)[chosen]
        else:
            rows = starts[chosen] + (rng.random(len(chosen)) * lengths[chosen]).astype(np.int64)
    return sample_of_rows(rows, batch.rewards[rows], in_scope, n_episodes == n)


def sample_of_rows(rows: Ints, rewards: Floats, in_scope: Bools | None = None, one_step: bool = False) -> Sample | None:
    """Return rows to look at, given their numbers and rewards (m,); None if the rewards do not vary or there are too few."""
    values, codes, counts = np.unique(rewards, return_inverse=True, return_counts=True)
    if len(values) < 2 or len(rows) < LEAST_ROWS:
        return None
    common = np.argsort(-counts, kind="stable")[:MOST_REWARDS]
    common = common[counts[common] >= LEAST_COMMON]
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[codes]
    is_rare = counts <= COMMON * len(rows)
    rare = is_rare[codes] & (is_rare.sum() > MOST_REWARDS)
    return Sample(
        rows,
        rewards,
        values[common],
        counts[common],
        codes_of(rewards, values[common]),
        ranks,
        rare,
        in_scope,
        one_step,
    )


def leak_of(batch: Transitions, column: Column, features: Floats, sample: Sample) -> Caveat | None:
    """Return a caveat if a column with ``features`` (n, width) fixes the reward, in all of its rows or for one of its values."""
    n_columns = len(batch.schema.columns)
    if n_columns == 1 and not sample.one_step:
        return None  # the state of a process with a single column may well decide on the reward
    looked_at = features[sample.rows]
    of = len(batch) if sample.in_scope is None else int(sample.in_scope.sum())
    if column.kind != "one-hot" and _is_function(looked_at[:, 0], sample):
        copied = _n_in_scope(features[:, 0] == batch.rewards, sample)
        return _of_whole_column(column, copied if copied > COPIED * of else None, of, sample)
    # in a process a reward may well depend on whether a number of the state exceeds a bound
    levels = levels_of(column, looked_at, in_bins=sample.one_step)
    if levels is None or not len(sample.values):
        return None
    width = len(sample.values) + 1
    table = np.bincount(levels.of(looked_at) * width + sample.codes, minlength=levels.count * width)
    table = table.reshape(levels.count, width)
    whole = None
    if len(sample.rows) - table.sum(axis=0).max() >= LEAST_COMMON and share_explained(table) >= EXPLAINED:
        usual = table.argmax(axis=1)[levels.of(features)]
        others = len(sample.values)  # the code of all other rewards together, which are not one reward
        right = _n_in_scope((usual == codes_of(batch.rewards, sample.values)) & (usual < others), sample)
        whole = _of_whole_column(column, right, of, sample)
        if right > COPIED * of:
            return whole
    found = fixed_level(table, sample, n_columns)
    return whole if found is None else _of_value(batch, column, features, levels, found, sample)


def levels_of(column: Column, features: Floats, in_bins: bool = True) -> Levels | None:
    """Return the values of a column as levels, or bins of a column with many; the last level holds the missing values.

    None if all values are missing, or if there are many and they must not be put ``in_bins``.
    """
    name = column.name
    if column.kind == "one-hot":
        n = len(column.values)

        def place(rows: Floats) -> Ints:
            return np.where(np.isnan(rows[:, 0]), n, np.nan_to_num(rows).argmax(axis=1))

        return Levels(place, n + 1, lambda i: f"{name} is {column.values[i] if i < n else 'missing'}")
    feature = features[:, 0]
    known = np.unique(feature[~np.isnan(feature)])
    if not len(known):
        return None
    shown = shown_as(column)
    if len(known) <= min(MOST_LEVELS, len(feature) // ROWS_PER_LEVEL):
        edges = known
    elif not in_bins:
        return None
    else:
        n_bins = max(1, min(N_BINS, len(feature) // (2 * ROWS_PER_LEVEL)))
        ordered = np.sort(feature[~np.isnan(feature)])
        edges = np.unique(ordered[np.linspace(0, len(ordered) - 1, n_bins + 1).astype(np.int64)])
    n = 2 * len(edges) + 1

    def bins(rows: Floats) -> Ints:
        x = rows[:, 0]  # values on an edge have a bin of their own: they may be common
        return np.where(np.isnan(x), n, np.searchsorted(edges, x) + np.searchsorted(edges, x, side="right"))

    def text(i: int) -> str:
        if i == n:
            return f"{name} is missing"
        if i % 2:
            return f"{name} is {shown(edges[i // 2])}"
        return f"{name} is between {shown(edges[i // 2 - 1])} and {shown(edges[i // 2])}"

    return Levels(bins, n + 1, text)


def share_explained(table: Ints) -> float:
    """Return how much of the reward's variation a column explains, by counts (levels, rewards): Goodman and Kruskal's tau.

    It is 1 if the reward is a function of the level, and 0 in expectation if they are independent.
    """
    sizes = table.sum(axis=1, keepdims=True)
    table, sizes = table[sizes[:, 0] > 0], sizes[sizes[:, 0] > 0]
    n = sizes.sum()
    before = 1 - ((table.sum(axis=0) / n) ** 2).sum()
    after = 1 - (table * (table / sizes)).sum() / n
    if len(sizes) < 2 or len(sizes) >= n or before == 0:
        return 0.0
    return float(1 - after / before * (n - 1) / (n - len(sizes)))


def fixed_level(table: Ints, sample: Sample, n_columns: int) -> Fixed | None:
    """Return the level with most rows in which the reward hardly varies, given counts (levels, rewards); None if there is none."""
    m = int(table.sum())
    rows = table.sum(axis=1)
    candidates = np.flatnonzero(sample.counts >= LEAST_FIXED)
    tried = rows >= LEAST_FIXED
    alpha = ERROR / max(n_columns * int(tried.sum()) * len(candidates), 1)
    best: Fixed | None = None
    most = 0
    for j in candidates:
        share = sample.counts[j] / m
        if share > MODAL:
            continue
        n, hits = rows[tried], table[tried, j]
        near = (n - hits <= EXCEPTIONS * n) & (n > most) & (n < m)
        for level, rows_here, hit in zip(np.flatnonzero(tried)[near], n[near], hits[near], strict=True):
            highest = _upper(rows_here - hit, rows_here, alpha)
            lowest = 1 - _upper(sample.counts[j] - hit, m - rows_here, alpha)
            if rows_here > most and lowest * (1 - highest) >= ODDS * highest * (1 - lowest):
                best, most = Fixed(int(level), float(sample.values[j])), int(rows_here)
    return best


def _upper(k: int, n: int, alpha: float) -> float:
    """Return the upper confidence limit of a probability after ``k`` of ``n`` (Clopper and Pearson)."""
    return 1.0 if k >= n else float(special.betaincinv(k + 1, n - k, 1 - alpha))


def is_line(feature: Floats, sample: Sample) -> bool:
    """Whether a feature (m,) of the rows of a sample of several rows per episode is a straight line in the reward in most of them."""
    return _is_function(feature, sample)


def _is_function(feature: Floats, sample: Sample) -> bool:
    """Whether the reward is a function of the column in most rows: a straight line or, in one step, any smooth function.

    In a process the reward may well depend on the current state, smoothly but seldom as an exact line. Common reward values are
    left out: by chance, too, many neighbours have the same one.
    """
    known = ~np.isnan(feature)
    rare = sample.rare & known
    if rare.sum() < LEAST_FIXED:
        return False
    x = feature[rare]
    shuffled = np.random.default_rng(0).permutation(len(x))  # the order of equal values must say nothing
    order = shuffled[np.argsort(x[shuffled], kind="stable")]
    if sample.one_step and len(x) >= max(LEAST_ROWS, COPIED * known.sum()):
        typical = np.median(np.abs(np.diff(sample.ranks[rare][order])))
        if typical <= max(2.0, NEIGHBOURS * len(x)):
            return True
    off = _distances(feature[known], sample.rewards[known], x[order], sample.rewards[rare][order])
    return bool(np.mean(off <= EXACT * np.max(np.abs(sample.rewards))) > COPIED)


def _distances(x: Floats, y: Floats, sorted_x: Floats, their_y: Floats) -> Floats:
    """Return the distances of points from the line through most pairs of neighbours among other points; infinite if it is level."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        run, rise = np.diff(sorted_x), np.diff(their_y)
        slope = float(np.median(rise[run > 0] / run[run > 0])) if (run > 0).any() else 0.0
        level = np.median(their_y - slope * sorted_x)
        return np.abs(y - slope * x - level) if slope else np.full(len(y), np.inf)


def codes_of(rewards: Floats, values: Floats) -> Ints:
    """Return the position of each reward (n,) in ``values`` (k,), k if it is not among them."""
    if not len(values):
        return np.zeros(len(rewards), dtype=np.int64)
    order = np.argsort(values)
    place = np.minimum(np.searchsorted(values[order], rewards), len(values) - 1)
    return np.where(values[order][place] == rewards, order[place], len(values))


def _n_in_scope(rows: Bools, sample: Sample) -> int:
    return int(np.count_nonzero(rows if sample.in_scope is None else rows[sample.in_scope]))


def _of_whole_column(column: Column, count: int | None, of: int, sample: Sample) -> Caveat:
    name = column.name
    plain = f"column {name} gives the reward away: its value nearly fixes it. {ADVICE}"
    last = "" if sample.in_scope is None else "last "
    where = f"{count:,} of {of:,} {last}rows" if count is not None else ""
    return Caveat(
        "fixes-reward",
        f"column {name} gives the reward away: it fixes it in {where}. {ADVICE}" if where else plain,
        "severe" if sample.one_step else "warning",
        column=name,
        count=count,
        share=None if count is None else count / of,
        text_without_counts=plain,
    )


def _of_value(
    batch: Transitions, column: Column, features: Floats, levels: Levels, found: Fixed, sample: Sample
) -> Caveat | None:
    """Return the caveat of a level that fixes the reward, counted in all rows."""
    scope = slice(None) if sample.in_scope is None else sample.in_scope
    here = levels.of(features)[scope] == found.level
    hit = batch.rewards[scope] == found.reward
    n, count, elsewhere = int(here.sum()), int((here & hit).sum()), float(hit[~here].mean())
    name, last = column.name, "" if sample.in_scope is None else "last "
    value = f"{found.reward:.4g}"
    kept = f"where {levels.name(found.level)}, the reward is"
    return Caveat(
        "value-fixes-reward",
        f"column {name} gives the reward away for some of its values: {kept} {value} in {count:,} of {n:,} {last}rows "
        f"({100 * elsewhere:.3g} % of the others). {ADVICE}",
        "severe" if sample.one_step else "warning",
        column=name,
        count=count,
        share=count / n,
        text_without_counts=f"column {name} gives the reward away for some of its values: {kept} {value} in nearly all {last}rows. {ADVICE}",
    )


def shown_as(column: Column) -> Callable[[float], str]:
    """Return how to write a feature of the column."""

    def text(x: float) -> str:
        if column.kind == "number":
            return f"{x:.4g}"
        value: Any = column.decode(np.array([[x]]))[0]
        return {True: "true", False: "false"}.get(value, str(value)) if column.kind == "boolean" else str(value)

    return text
