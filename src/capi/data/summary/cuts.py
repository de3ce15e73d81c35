"""Columns that tell in each row whether the reward exceeds a bound or has a certain value, or that hold the episode's sum of rewards.

A flag such as "profit above 10" leaves the profit open, and says too much nevertheless. Three findings that a column known before the
decision does not explain, because chance plays a part in rewards:

- Two groups of rows share no reward although the rewards of one group begin right where those of the other end. Groups
  that are merely far apart, such as large and small customers, have a gap in between.
- A number exceeds a bound in the rows with one reward, such as the cost of a failure, and in no others. In a process a state may well decide on
  the reward; but states persist, so the column counts only if the row before says nothing about when it exceeds the bound.
- A number is a straight line in the sum (or the mean) of the rewards of its episode, or of those still to come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from capi._utils.validation import Bools, Floats, Ints
from capi.data.columns import Column
from capi.data.summary.leaks import (
    ADVICE,
    EXACT,
    EXCEPTIONS,
    LEAST_FIXED,
    LEAST_ROWS,
    MODAL,
    is_line,
    sample_of_rows,
    share_explained,
    shown_as,
)
from capi.errors import Caveat

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

MOST_ROWS = 100_000  # looked at, of whole episodes
MOST_VALUES = 20  # of a column of groups
AROUND = 5  # distinct rewards on each side of a bound
WIDE = 3.0  # times the mean distance of those: a gap
PERSISTENT = 0.1  # share of the variation that the row before explains
N_BINS = 10  # of the row before


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that are looked at, in the order of the batch."""

    rows: Ints  # (m,)
    rewards: Floats  # (m,)
    owners: Ints  # (m,) numbers of their episodes
    order: Ints  # (m,) by reward
    distinct: Floats  # (k,) rewards
    first: Ints  # (k,) places in the order where they begin
    one_step: bool

    @property
    def follows(self) -> Bools:
        """Whether each row (m,) follows the one before it."""
        return np.append(False, self.owners[1:] == self.owners[:-1])

    def in_several_episodes(self, chosen: Bools) -> bool:
        """Whether rows (m,) are enough: they are from several episodes."""
        return int(chosen.sum()) >= LEAST_FIXED and len(np.unique(self.owners[chosen])) >= LEAST_FIXED


def rows_of(batch: Transitions) -> Rows | None:
    """Return the rows to look at, None if there are too few."""
    starts, n = batch.episode_starts, len(batch)
    lengths = np.diff(starts, append=n)
    owners = np.repeat(np.arange(len(starts)), lengths)
    rows: Ints = np.arange(n)
    if n > MOST_ROWS:
        rows = np.flatnonzero(owners % -(-n // MOST_ROWS) == 0)
    if len(rows) < LEAST_ROWS:
        return None
    rewards = batch.rewards[rows]
    order = np.argsort(rewards, kind="stable")
    distinct, first = np.unique(rewards[order], return_index=True)
    return Rows(rows, rewards, owners[rows], order, distinct, first, len(starts) == n)


def divides_reward(column: Column, features: Floats, looked_at: Rows) -> Caveat | None:
    """Return a caveat if a column with ``features`` (n, width) tells in which rows the reward exceeds a bound."""
    here = features[looked_at.rows]
    if np.isnan(here[:, 0]).any():
        return None  # groups of the rows in which a value is known would need an order of their own
    for group, name in _groups(column, here):
        bound = _bound(group, looked_at)
        if bound is not None:
            return _divided(column, name, bound, looked_at)
    value = None if column.kind not in ("number", "date") else _value_above(here[:, 0], looked_at)
    if value is None:
        return None
    cut, reward, above, n = value
    name = f"{column.name} is {'above' if above else 'at most'} {shown_as(column)(cut)}"
    start = f"column {column.name} gives the reward away: the reward is {reward:.4g} where {name},"
    return _caveat(
        column, f"{start} in {n:,} rows, and in almost no others", f"{start} and in almost no other rows", looked_at, n
    )


def _groups(column: Column, here: Floats) -> Iterator[tuple[Bools, str]]:
    """Yield groups of rows, and how to name them: those of a category, or with numbers above a bound."""
    if column.kind == "one-hot":
        for feature, value in zip(here.T, column.values, strict=True):
            yield feature == 1, f"{column.name} is {value}"
        return
    values = np.unique(here[:, 0])
    if len(values) <= MOST_VALUES:
        shown = shown_as(column)
        for low, high in pairwise(values):
            several = len(values) > 2
            yield here[:, 0] > low, f"{column.name} is {'at least ' if several else ''}{shown(high)}"


def _bound(group: Bools, looked_at: Rows) -> tuple[float, bool] | None:
    """Return the reward that divides a group from the other rows, and whether the group is above; None if there is none."""
    if not (looked_at.in_several_episodes(group) and looked_at.in_several_episodes(~group)):
        return None
    least, n = min(int(group.sum()), int((~group).sum())), len(group)
    below = np.append(0, np.cumsum(group[looked_at.order]))[looked_at.first]  # (k,) of the group, below each reward
    for above in (True, False):
        of_group = below if above else looked_at.first - below  # as if the group were above
        size = int(group.sum()) if above else n - int(group.sum())
        errors = of_group + (n - looked_at.first) - (size - of_group)
        at = int(errors.argmin())
        if errors[at] <= EXCEPTIONS * least and _is_dense(looked_at.distinct, at):
            return float(looked_at.distinct[at]), above
    return None


def _is_dense(values: Floats, at: int) -> bool:
    """Whether the distance between sorted values ``at`` - 1 and ``at`` is like those around it."""
    if not AROUND < at < len(values) - AROUND:
        return False
    usual = max(values[at - 1] - values[at - 1 - AROUND], values[at + AROUND] - values[at]) / AROUND
    return bool(values[at] - values[at - 1] <= WIDE * usual)


def _divided(column: Column, name: str, bound: tuple[float, bool], looked_at: Rows) -> Caveat:
    value, above = bound
    n = int((looked_at.rewards >= value).sum() if above else (looked_at.rewards < value).sum())
    start = f"column {column.name} gives the reward away: where {name}, the reward is {'at least' if above else 'below'} {value:.4g},"
    return _caveat(
        column, f"{start} in {n:,} rows, and in almost no others", f"{start} and in almost no other rows", looked_at, n
    )


def _value_above(feature: Floats, looked_at: Rows) -> tuple[float, float, bool, int] | None:
    """Return a number and a reward that is earned in the rows above (or not above) it and in no others, and how many there are."""
    ends = np.append(looked_at.first[1:], len(looked_at.rows))
    counts = ends - looked_at.first
    common = np.flatnonzero((counts >= LEAST_FIXED) & (counts <= MODAL * len(feature)))
    if not len(common):
        return None
    order = np.argsort(feature, kind="stable")
    values, first = np.unique(feature[order], return_index=True)
    for k in common[np.argsort(-counts[common], kind="stable")][:MOST_VALUES]:
        reward = float(looked_at.distinct[k])
        earned = looked_at.rewards == reward
        if len(values) < 2 or not (looked_at.in_several_episodes(earned) and looked_at.in_several_episodes(~earned)):
            continue
        below, n = np.append(0, np.cumsum(earned[order]))[first], len(feature)
        errors = below + (n - first) - (counts[k] - below)  # if the reward is earned from each value on
        for above, wrong in ((True, errors), (False, n - errors)):
            at = int(wrong[1:].argmin()) + 1
            exceeds = feature >= values[at]
            if wrong[at] <= EXCEPTIONS * min(counts[k], n - counts[k]) and not _persists(exceeds, feature, looked_at):
                return float(values[at - 1]), reward, above, int(counts[k])
    return None


def _persists(exceeds: Bools, feature: Floats, looked_at: Rows) -> bool:
    """Whether the row before tells when a column exceeds a bound, as that of a state does; rows of one-step episodes have none before."""
    if looked_at.one_step:
        return False
    after = np.flatnonzero(looked_at.follows)
    if len(after) < LEAST_ROWS:
        return True
    before = feature[after - 1]
    edges = np.unique(np.quantile(before, np.linspace(0, 1, N_BINS + 1)[1:-1]))
    table = np.zeros((len(edges) + 1, 2), dtype=np.int64)
    np.add.at(table, (np.searchsorted(edges, before), exceeds[after].astype(np.int64)), 1)
    return share_explained(table) >= PERSISTENT


def sums_of(batch: Transitions) -> dict[str, Floats]:
    """Return what a column may hold of the rewards of a row's episode (n,), by name; empty without episodes of several rows.

    Sums that the number of rows determines, as where each row costs the same, say nothing.
    """
    starts, n = batch.episode_starts, len(batch)
    if len(starts) == n or len(starts) < LEAST_ROWS:
        return {}
    lengths = np.diff(starts, append=n)
    owner = np.repeat(np.arange(len(starts)), lengths)
    total = np.add.reduceat(batch.rewards, starts)[owner]
    up_to = np.cumsum(batch.rewards)
    before = up_to - batch.rewards
    unit = EXACT * max(float(np.abs(batch.rewards).max()), np.finfo(float).tiny)
    rest = np.round((total - (before - before[starts][owner])) / unit) * unit  # nothing that is left is exactly nothing
    n_rest = (starts + lengths)[owner] - np.arange(n)
    found = {
        "the sum of the rewards of its episode": (total, lengths[owner]),
        "the mean of the rewards of its episode": (total / lengths[owner], lengths[owner]),
        "the sum of the rewards that are still to come in its episode": (rest, n_rest),
    }
    rows = _one_per_episode(starts, lengths)
    kept = {}
    for name, (target, number) in found.items():
        sample = sample_of_rows(rows, target[rows])
        if sample is not None and not is_line(number[rows].astype(np.float64), sample):
            kept[name] = target
    return kept


def _one_per_episode(starts: Ints, lengths: Ints) -> Ints:
    rows: Ints = starts + (np.random.default_rng(0).random(len(starts)) * lengths).astype(np.int64)
    return rows


def fixes_return(batch: Transitions, column: Column, features: Floats, sums: dict[str, Floats]) -> Caveat | None:
    """Return a caveat if a column of numbers is a straight line in one of the ``sums`` of rewards."""
    if column.kind != "number" or not sums:
        return None
    starts = batch.episode_starts
    rows = _one_per_episode(starts, np.diff(starts, append=len(batch)))
    for name, target in sums.items():
        sample = sample_of_rows(rows, target[rows])
        if sample is not None and is_line(features[rows, 0], sample):
            text = f"column {column.name} gives the outcome away: it is {name}, or a straight line in it. {ADVICE}"
            return Caveat("fixes-return", text, "severe", column=column.name)
    return None


def _caveat(column: Column, text: str, without_counts: str, looked_at: Rows, count: int) -> Caveat:
    return Caveat(
        "divides-reward",
        f"{text}. {ADVICE}",
        "severe" if looked_at.one_step else "warning",
        column=column.name,
        count=count,
        share=count / len(looked_at.rows),
        text_without_counts=f"{without_counts}. {ADVICE}",
    )
