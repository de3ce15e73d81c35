"""Possible problems in a batch: columns that leak information, duplicated rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Bools, Floats, Ints
from capi.data.columns import Column
from capi.data.origin import CategoryLevels
from capi.data.summary.cuts import Rows, divides_reward, fixes_return, rows_of, sums_of
from capi.data.summary.leaks import Sample, leak_of, sample_of
from capi.data.summary.orders import looks_ordered
from capi.data.summary.times import later_dates, shifted_columns, unequal_steps
from capi.errors import LEAST_SHOWN, Caveat

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

FEW = 10  # rows beyond one per action; with fewer, a column can be a function of the action by chance
LIKE_AN_ID = 0.95  # share of distinct values
LEAST_IDS = 20
LEAST_LEVELS = 50
OF_ROWS = 0.01  # distinct values per row
FINITE = 0.1  # share of distinct states up to which repeated rows are expected
ROWS_AT_ONCE = 4096
WEAK = 10.0  # effective rows


def table_caveats(
    batch: Transitions, counts: Ints, effective: Floats, later: Mapping[str, tuple[int, int]]
) -> Iterator[Caveat]:
    """Yield a caveat for each finding that the owner of the table should check.

    ``batch`` may be a sample of it; ``counts`` (A,) are the rows of each action in the whole table, ``effective`` (A,) the effective ones,
    and ``later`` those with later dates, as in `capi.data.origin.Origin`.
    """
    for label, count, size in zip(batch.schema.action_labels, counts, effective, strict=True):
        if not count:
            yield Caveat(
                "never-taken", f"action {label} was never taken: nothing can be learned about it", "warning", count=0
            )
        elif size < WEAK:
            yield Caveat(
                "small-effective-sample",
                f"action {label} has an effective sample of only {size:.3g} rows",
                "warning",
                count=float(size),
                text_without_counts=f"action {label} has an effective sample of fewer than {LEAST_SHOWN} rows",
            )
    if np.count_nonzero(counts) == 1:
        label = batch.schema.action_labels[int(counts.argmax())]
        yield Caveat(
            "one-action",
            f"action {label} was taken in every row: there is nothing to compare it with, so nothing can be learned",
            "severe",
        )
    if batch.origin is not None:
        yield from unequal_steps(batch.origin)
    yield from later_dates(later)
    first = _episode_starts(batch)
    sample = sample_of(batch)
    looked_at, sums = rows_of(batch), sums_of(batch)
    start = 0
    for column in batch.schema.columns:
        stop = start + len(column.feature_names)
        yield from _of_column(batch, column, batch.states[:, start:stop], first, sample, looked_at, sums)
        start = stop
    yield from shifted_columns(batch)
    repeated = _n_repeated(batch)
    if repeated:
        rest = "an earlier row in state, action, reward and next state: check the table for duplicates"
        yield Caveat(
            "repeated-rows",
            f"{repeated} {'rows repeat' if repeated > 1 else 'row repeats'} {rest}",
            "warning",
            count=repeated,
            share=repeated / len(batch),
            text_without_counts=f"{'a few' if 2 * repeated <= len(batch) else 'most'} rows repeat {rest}",
        )


def _of_column(
    batch: Transitions,
    column: Column,
    features: Floats,
    first: Bools,
    sample: Sample | None,
    looked_at: Rows | None,
    sums: dict[str, Floats],
) -> Iterator[Caveat]:
    levels = None if batch.origin is None else batch.origin.levels.get(column.name)
    unique_text = levels is not None and LEAST_IDS <= levels.n_rows * LIKE_AN_ID <= levels.n_levels
    if levels is not None and _is_free_text(levels, unique_text):
        yield _free_text(column, levels)
        return
    known = np.flatnonzero(~np.isnan(features[:, 0]))
    if not len(known):
        yield Caveat("missing-column", f"column {column.name} is missing in every row", "warning", column=column.name)
        return
    if column.rest and not column.listed and len(features) >= LEAST_IDS:
        yield _like_an_id(column, f"has only values with fewer than {LEAST_SHOWN} rows, which became one")
        return
    some_missing = len(known) < len(features)
    example = features[known[0]]
    if _everywhere(features, lambda rows: np.isnan(features[rows]) | (features[rows] == example)):
        where = " in which it is known" if some_missing else ""
        yield Caveat(
            "constant-column", f"column {column.name} is the same in every row{where}", "note", column=column.name
        )
        if not some_missing and not unique_text:
            return
    elif leak := _equal_to_reward(batch, column, features):
        yield leak
        sample = None  # one caveat about the reward is enough
    if _is_function_of_action(batch, features):
        sample = None  # the action may well decide on the reward
        yield Caveat(
            "function-of-action",
            f"column {column.name} is a function of the action: if it was set by the decision or after it, "
            "a policy must not see it",
            "severe",
            column=column.name,
        )
    if sample is not None:
        leak = leak_of(batch, column, features, sample)
        if leak is None and looked_at is not None:
            leak = divides_reward(column, features, looked_at)
        if leak is None:
            leak = fixes_return(batch, column, features, sums)
        if leak is not None:
            yield leak
    if note := looks_ordered(column):
        yield note
    if unique_text or (column.kind in ("number", "codes") and _is_like_an_id(features[:, 0], first)):
        owner = "row" if first.all() else "row or episode"
        yield _like_an_id(column, f"is different for almost every {owner}")


def _like_an_id(column: Column, finding: str) -> Caveat:
    advice = "like an id: a model can only memorise it, so leave it out"
    if column.kind == "number":
        advice = (
            "like an id. Leave ids out, because a model can only memorise them; an amount, such as an income, may stay"
        )
    return Caveat("like-an-id", f"column {column.name} {finding}, {advice}", "warning", column=column.name)


def _is_free_text(levels: CategoryLevels, unique_text: bool) -> bool:
    """Whether there are so many rare values that they cannot be categories; ids are single words."""
    many = levels.n_levels >= max(LEAST_LEVELS, OF_ROWS * levels.n_rows)
    return many and 2 * levels.n_rare >= levels.n_levels and (levels.in_words or not unique_text)


def _free_text(column: Column, levels: CategoryLevels) -> Caveat:
    start = f"column {column.name} has {levels.n_levels:,} distinct values"
    rest = (
        "like free text: almost nothing can be learned from it. Group the values into a few categories, or leave it out"
    )
    return Caveat(
        "free-text",
        f"{start}, {levels.n_rare:,} of them in fewer than {LEAST_SHOWN} rows, {rest}",
        "warning",
        column=column.name,
        count=levels.n_levels,
        share=levels.n_levels / levels.n_rows,
        text_without_counts=f"column {column.name} has many distinct values, most of them in few rows, {rest}",
    )


def _equal_to_reward(batch: Transitions, column: Column, features: Floats) -> Caveat | None:
    for name, feature in zip(column.feature_names, features.T, strict=True):
        if _equal(feature, batch.rewards):
            return Caveat(
                "equals-reward",
                f"column {name} equals the reward: if it was measured after the decision, a policy must not see it",
                "severe",
                column=column.name,
            )
        if batch.episodes is None or len(batch) <= FEW:
            continue
        follows = batch.episodes[1:] == batch.episodes[:-1]
        now = np.where(follows, feature[:-1], np.nan)
        if (~np.isnan(now)).sum() >= FEW and _equal(now, batch.rewards[1:]):
            return Caveat(
                "equals-next-reward",
                f"column {name} equals the reward of the next row: it was measured after the decision",
                "severe",
                column=column.name,
            )
    return None


def _equal(feature: Floats, rewards: Floats) -> bool:
    """Whether the feature equals the reward wherever it is known."""
    return _everywhere(feature, lambda rows: np.isnan(feature[rows]) | (feature[rows] == rewards[rows]))


def _is_function_of_action(batch: Transitions, features: Floats) -> bool:
    """Whether all rows with the same action have the same features (NaN equals NaN)."""
    row = np.full(batch.n_actions, -1)
    row[batch.actions] = np.arange(len(batch))  # the last one with each action
    n_taken = int((row >= 0).sum())
    if n_taken < 2 or len(batch) < n_taken + FEW:
        return False
    examples = features[row]  # (A, width)

    def same(rows: slice) -> Bools:
        expected = examples[batch.actions[rows]]
        return (features[rows] == expected) | (np.isnan(features[rows]) & np.isnan(expected))

    return _everywhere(features, same)


def _is_like_an_id(feature: Floats, first: Bools) -> bool:
    """Whether whole numbers differ from row to row or, if constant within episodes, from episode to episode."""
    if not _everywhere(feature, lambda rows: np.isnan(feature[rows]) | (feature[rows] == np.floor(feature[rows]))):
        return False
    fixed = bool((feature[1:] == feature[:-1])[~first[1:]].all())
    looked_at = feature[first] if fixed else feature
    looked_at = looked_at[~np.isnan(looked_at)]
    return len(looked_at) >= LEAST_IDS and _n_different(looked_at) >= LIKE_AN_ID * len(looked_at)


def _everywhere(table: Floats, holds: Callable[[slice], Bools]) -> bool:
    """Whether ``holds`` is true in all rows; checked block by block, because usually the first block fails."""
    blocks = range(0, len(table), ROWS_AT_ONCE)
    return all(bool(holds(slice(start, start + ROWS_AT_ONCE)).all()) for start in blocks)


def _episode_starts(batch: Transitions) -> Bools:
    if batch.episodes is None:
        return np.ones(len(batch), dtype=bool)
    return np.append(True, batch.episodes[1:] != batch.episodes[:-1])


def _n_repeated(batch: Transitions) -> int:
    """Return the number of rows that repeat an earlier one; zero where few distinct states make that likely."""
    states = _hashed(batch.states)
    if _n_different(states) <= FINITE * len(batch):
        return 0
    rest = np.column_stack([batch.actions.astype(np.float64), batch.rewards, batch.terminated.astype(np.float64)])
    rows = states * np.uint64(3) + _hashed(batch.next_states) * np.uint64(5) + _hashed(rest) * np.uint64(7)
    return len(batch) - _n_different(rows)


def _n_different(values: NDArray[Any]) -> int:
    """Return the number of distinct values; sorting is several times faster than `np.unique`."""
    ordered = np.sort(values)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1


def _hashed(table: Floats) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row; different rows collide with probability 2**-64 per pair."""
    factors = np.random.default_rng(0).integers(1, 2**63, size=(table.shape[1], 2), dtype=np.uint64) * 2 + 1
    total = np.zeros(len(table), dtype=np.uint64)
    for start in range(0, len(table), ROWS_AT_ONCE):
        block = table[start : start + ROWS_AT_ONCE] + 0.0  # turns -0 into 0
        for column, (one, two) in zip(block.T, factors, strict=True):
            bits = np.ascontiguousarray(column).view(np.uint64) * one
            total[start : start + ROWS_AT_ONCE] += (bits ^ (bits >> np.uint64(32))) * two
    return total
